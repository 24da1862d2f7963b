//! The embedding: one row for each token, so it is never worth memory of its own.
//!
//! A row is read from the file when it is wanted, through the system's page cache: 8 KB for each token of DeepSeek V4 Flash. It is not taken from the
//! mapping, because a file that is cut short while it is open would then end the process instead of the answer.
//!
//! Nothing but the check of its bytes needs all of it, and the first answer does not wait for that: a gigabyte is read and checked beside it. Where
//! the check fails, the next row is an error, and so is every one after it. A file that was written to meanwhile is checked again before another
//! row of it counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::SystemTime;

use fastar_fst::{Container, Dtype};

use super::weights::{Loader, Weight};
use crate::pager::{Dense, Disk, check_unkept, read_whole};
use crate::{Error, Result};

/// Up to so many bytes are checked before the model is used: it takes no time that a person would see.
const CHECKED_AT_ONCE: u64 = 64 << 20;

/// The rows.
pub struct Embedding {
    weight: Weight,
    /// The file they stay in; none where they are in memory.
    file: Option<Disk>,
    check: Option<Check>,
    /// When the file as it was checked had been written to last; before that, as it was opened.
    checked: Mutex<Option<SystemTime>>,
}

impl Embedding {
    /// Its tensor.
    pub const NAME: &str = "embed.weight";

    /// Whether its rows are read from the file one by one: they must stand alone in it, without scales that belong to several rows.
    pub fn stays_in_file(container: &Container) -> bool {
        container.file().is_some()
            && container
                .dense_places()
                .any(|place| place.name == Self::NAME)
            && container
                .tensor(Self::NAME)
                .is_some_and(|t| matches!(t.dtype, Dtype::F32 | Dtype::Bf16 | Dtype::Q8_0))
    }

    /// Finds it. The bytes of `dense` have been checked; those of a large one that stays in the file are checked from now on.
    pub fn load(
        container: &Arc<Container>,
        dense: Option<&Dense>,
        vocab: usize,
        columns: usize,
    ) -> Result<Self> {
        Self::load_checking(container, dense, (vocab, columns), CHECKED_AT_ONCE)
    }

    fn load_checking(
        container: &Arc<Container>,
        dense: Option<&Dense>,
        (vocab, columns): (usize, usize),
        at_once: u64,
    ) -> Result<Self> {
        if dense.is_none() || !Self::stays_in_file(container) {
            let weight = Loader::resident(container, dense).matrix(Self::NAME, vocab, columns)?;
            return Ok(Self {
                weight,
                file: None,
                check: None,
                checked: Mutex::default(),
            });
        }
        let file = open(container)?;
        let checked = Mutex::new(file.modified());
        let bytes = container
            .dense_places()
            .find(|place| place.name == Self::NAME)
            .map_or(0, |place| place.bytes);
        let weight = Loader::checked(container).matrix(Self::NAME, vocab, columns)?;
        let check = match bytes <= at_once {
            true => {
                check_unkept(container, &file, Self::NAME, &AtomicBool::new(false))?;
                None
            }
            false => Some(Check::start(container)?),
        };
        Ok(Self {
            weight,
            file: Some(file),
            check,
            checked,
        })
    }

    /// The row of a token, expanded into `out` [columns]. `bytes` are those of the dense weights, `buffer` is for reading.
    pub fn row(
        &self,
        container: &Container,
        bytes: &[u8],
        token: u32,
        buffer: &mut Vec<u8>,
        out: &mut [f32],
    ) -> Result<()> {
        let Some(file) = &self.file else {
            self.weight.view(bytes).row(token as usize, out);
            return Ok(());
        };
        let Some(place) = self.weight.row_place(token as usize) else {
            unreachable!("only rows that stand alone stay in the file");
        };
        buffer.resize(place.len(), 0);
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            read_whole(file, buffer, place.start as u64)
                .map_err(|error| unreadable(container, &error))?;
            // Looked at after the row: who writes to the file changes this first.
            let modified = file.modified();
            if modified == *checked {
                break;
            }
            check_unkept(container, file, Self::NAME, &AtomicBool::new(false))?;
            *checked = modified;
        }
        let failure = self
            .check
            .as_ref()
            .and_then(|check| check.failure(*checked));
        if let Some(failure) = failure {
            return Err(Error::Read(failure));
        }
        match self.weight.row_view(buffer) {
            Some(row) => row.row(0, out),
            None => unreachable!("the shape was checked when the model was loaded"),
        }
        Ok(())
    }
}

/// A check that goes on beside the first answers. Ends early when it is dropped.
struct Check {
    /// When what is checked had been written to last.
    of: Option<SystemTime>,
    stopped: Arc<AtomicBool>,
    failure: Arc<OnceLock<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Check {
    fn start(container: &Arc<Container>) -> Result<Self> {
        let disk = open(container)?;
        let of = disk.modified();
        let (stopped, failure) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let told: Arc<OnceLock<String>> = Arc::clone(&failure);
        let (container, stop) = (Arc::clone(container), Arc::clone(&stopped));
        let work = move || {
            if let Err(error) = check_unkept(&container, &disk, Embedding::NAME, &stop) {
                tracing::warn!(%error, "the embedding was checked");
                // Told once, here.
                let _ = told.set(error.to_string());
            }
        };
        let thread = std::thread::Builder::new().name("checking".into());
        let thread = thread.spawn(work).map_err(|error| {
            Error::Input(format!(
                "A thread for checking could not be started: {error}."
            ))
        })?;
        Ok(Self {
            of,
            stopped,
            failure,
            thread: Some(thread),
        })
    }

    /// Why the file as it was then may not be used, if that is known.
    fn failure(&self, then: Option<SystemTime>) -> Option<String> {
        self.failure.get().filter(|_| self.of == then).cloned()
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn open(container: &Container) -> Result<Disk> {
    let file = container.file().ok_or_else(|| {
        Error::Input("The embedding is to stay in a file, and there is none.".into())
    })?;
    Disk::new(file).map_err(|error| unreadable(container, &error))
}

fn unreadable(container: &Container, error: &std::io::Error) -> Error {
    Error::Read(format!(
        "Could not read the embedding in {}: {error}. Check the disk and the file.",
        container.records().name()
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::io::{Seek as _, SeekFrom, Write as _};
    use std::time::{Duration, Instant};

    use fastar_testkit::{Tiny, tiny};

    use super::*;

    fn embedding(container: &Arc<Container>) -> (Embedding, usize) {
        let shape = container.tensor(Embedding::NAME).unwrap().shape.to_vec();
        let disk = Disk::new(container.file().unwrap()).unwrap();
        let dense = Dense::read(container, &disk, |_| false).unwrap();
        let sizes = (shape[0], shape[1]);
        let large = Embedding::load_checking(container, Some(&dense), sizes, 0).unwrap();
        (large, sizes.1)
    }

    #[test]
    fn a_file_that_is_written_to_while_it_is_open_is_checked_again() {
        let model = tiny(&Tiny::default()).convert();
        let container = Arc::new(Container::open(&model.path()).unwrap());
        let place = container
            .dense_places()
            .find(|place| place.name == Embedding::NAME)
            .map(|place| place.offset..place.offset + place.bytes)
            .unwrap();
        let bytes = container.bytes()[place.start as usize..place.end as usize].to_vec();
        let write = |at: u64, bytes: &[u8]| {
            // Clocks of file systems tick slower than this.
            std::thread::sleep(Duration::from_millis(30));
            let mut file = std::fs::File::options()
                .write(true)
                .open(model.path())
                .unwrap();
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(bytes).unwrap();
        };
        let shape = container.tensor(Embedding::NAME).unwrap().shape.to_vec();
        for at_once in [0, u64::MAX] {
            let disk = Disk::new(container.file().unwrap()).unwrap();
            let dense = Dense::read(&container, &disk, |_| false).unwrap();
            let sizes = (shape[0], shape[1]);
            let embedding =
                Embedding::load_checking(&container, Some(&dense), sizes, at_once).unwrap();
            let (mut buffer, mut out) = (Vec::new(), vec![0.0; shape[1]]);
            let mut row = |token| embedding.row(&container, &[], token, &mut buffer, &mut out);
            row(0).unwrap();
            // Far from the row that is read.
            write(place.end - 1, &[bytes[bytes.len() - 1] ^ 1]);
            for token in [0, 1] {
                let error = row(token).unwrap_err().to_string();
                assert!(error.contains(Embedding::NAME), "{error}");
            }
            write(place.start, &bytes);
            row(0).unwrap();
        }
    }

    #[test]
    fn a_large_one_is_checked_beside_the_first_answers() {
        let model = tiny(&Tiny::default()).convert();
        let container = Arc::new(Container::open(&model.path()).unwrap());
        let (whole, columns) = embedding(&container);
        let (mut buffer, mut out) = (Vec::new(), vec![0.0; columns]);
        let mut row = |of: &Embedding, token| of.row(&container, &[], token, &mut buffer, &mut out);
        row(&whole, 3).unwrap();
        let thread = || whole.check.as_ref().and_then(|check| check.thread.as_ref());
        while thread().is_some_and(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        row(&whole, 3).unwrap();

        // One bit of the last row: it is found whichever row is read, and from then on none is given.
        let place = container
            .dense_places()
            .find(|place| place.name == Embedding::NAME)
            .map(|place| place.offset + place.bytes - 1)
            .unwrap();
        let last = container.bytes()[place as usize];
        let mut file = std::fs::File::options()
            .write(true)
            .open(model.path())
            .unwrap();
        file.seek(SeekFrom::Start(place)).unwrap();
        file.write_all(&[last ^ 1]).unwrap();
        let (damaged, _) = embedding(&container);
        let since = Instant::now();
        let error = loop {
            match row(&damaged, 0) {
                Err(error) => break error.to_string(),
                Ok(()) => std::thread::sleep(Duration::from_millis(1)),
            }
            assert!(
                since.elapsed() < Duration::from_secs(60),
                "it was not found"
            );
        };
        assert!(error.contains(Embedding::NAME), "{error}");
        assert!(row(&damaged, 1).is_err());
    }
}
