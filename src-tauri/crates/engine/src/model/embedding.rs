//! The embedding: one row for each token, so it is never worth memory of its own.
//!
//! A row is read from the file when it is wanted, through the system's page cache: 8 KB for each token of DeepSeek V4 Flash.
//!
//! Nothing but the check of its bytes needs all of it, and the first answer does not wait for that: a gigabyte is read and checked beside it, and
//! the answer is done when the check is ([`Embedding::settle`]). Where the check fails, the next row is an error, and so is every one after it.
//! A file that was written to meanwhile is checked again before another row of it counts. That goes by the time it was last written to,
//! which a program that writes through a mapping, or twice within one tick of the clock, does not always change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use fastar_fst::{Container, Dtype};
use fastar_kernels::threads;

use super::weights::{Loader, Rows, Weight};
use crate::pager::{Dense, Disk, Source, check_unkept, read_whole};
use crate::{Cancel, Error, Result};

/// Up to so many bytes are checked before the model is used: it takes no time that a person would see.
const CHECKED_AT_ONCE: u64 = 64 << 20;
/// A file that was written to during so many checks is not going to be left alone.
const CHECKS: usize = 2;
/// Who waits for a check looks this often whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The rows.
pub struct Embedding {
    rows: Home,
    check: Option<Check>,
    /// When the file had been written to last as its bytes were found to be right, apart from what `check` found.
    right: Mutex<Option<Written>>,
}

/// Where the rows are.
enum Home {
    Memory(Weight),
    File(Rows, Disk),
}

/// When a file was last written to, where the system tells.
type Written = Option<SystemTime>;

/// What is known of the bytes of a file.
enum Verdict {
    Right,
    /// They are being checked.
    Open,
    /// Why they are not.
    Wrong(String),
    /// They were not checked, or that came to no end.
    Unknown,
}

impl Embedding {
    /// Its tensor.
    pub const NAME: &str = "embed.weight";

    /// Whether its rows are read from the file one by one: they must stand alone in it, without scales that belong to several rows.
    pub fn stays_in_file(container: &Container) -> bool {
        container.file().is_some()
            && container.dense_place(Self::NAME).is_some()
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
                rows: Home::Memory(weight),
                check: None,
                right: Mutex::default(),
            });
        }
        let file = open(container)?;
        let written = file.modified();
        let bytes = container
            .dense_place(Self::NAME)
            .map_or(0, |place| place.bytes);
        let rows = Rows::find(container, Self::NAME, vocab, columns)?;
        let (check, right) = match bytes <= at_once {
            true => {
                check_unkept(container, &file, Self::NAME, &|| false)?;
                (None, Some(written))
            }
            false => (Some(Check::start(container)?), None),
        };
        Ok(Self {
            rows: Home::File(rows, file),
            check,
            right: Mutex::new(right),
        })
    }

    /// The row of a token, expanded into `out` [columns]. `bytes` are those of the dense weights, `buffer` is for reading.
    pub fn row(
        &self,
        container: &Container,
        bytes: &[u8],
        token: u32,
        (buffer, out): (&mut Vec<u8>, &mut [f32]),
        cancel: &Cancel,
    ) -> Result<()> {
        let (rows, file) = match &self.rows {
            Home::Memory(weight) => {
                weight.view(bytes).row(token as usize, out);
                return Ok(());
            }
            Home::File(rows, file) => (rows, file),
        };
        let Some((at, length)) = rows.place(token as usize) else {
            unreachable!("the token was checked against the vocabulary");
        };
        buffer.resize(length, 0);
        self.checked(container, file, cancel, || {
            read_whole(file, buffer, at).map_err(|error| unreadable(container, &error))
        })?;
        match rows.view(buffer) {
            Some(row) => row.row(0, out),
            None => unreachable!("the shape was checked when the model was loaded"),
        }
        Ok(())
    }

    /// Waits for the check that goes on beside the first answer: what was answered until then is right, or this is an error.
    pub fn settle(&self, container: &Container, cancel: &Cancel) -> Result<()> {
        let Home::File(_, file) = &self.rows else {
            return Ok(());
        };
        while self.check.as_ref().is_some_and(Check::goes_on) {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.checked(container, file, cancel, || Ok(()))
    }

    /// Reads, and what was read is right or being checked.
    fn checked(
        &self,
        container: &Container,
        file: &Disk,
        cancel: &Cancel,
        mut read: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..=CHECKS {
            read()?;
            // Looked at afterwards: who writes to the file changes this first.
            let written = file.modified();
            let verdict = match &self.check {
                _ if *right == Some(written) => Verdict::Right,
                Some(check) if check.of == written => check.verdict(),
                _ => Verdict::Unknown,
            };
            match verdict {
                Verdict::Right | Verdict::Open => return Ok(()),
                Verdict::Wrong(why) => return Err(Error::Read(why)),
                Verdict::Unknown => {}
            }
            check_unkept(container, file, Self::NAME, &|| cancel.is_cancelled())?;
            *right = Some(written);
        }
        Err(Error::Read(format!(
            "{} is being written to by another program. Wait until that is done, and then ask again.",
            container.records().name()
        )))
    }
}

/// A check that goes on beside the first answers. Ends early when it is dropped.
struct Check {
    /// When what is checked had been written to last.
    of: Written,
    stopped: Arc<AtomicBool>,
    /// Nothing, if they are right.
    outcome: Arc<OnceLock<Result<()>>>,
    thread: Option<JoinHandle<()>>,
}

impl Check {
    fn start(container: &Arc<Container>) -> Result<Self> {
        let disk = open(container)?;
        Self::of(container, disk.modified(), Box::new(disk))
    }

    /// Checks what a source gives.
    fn of(container: &Arc<Container>, of: Written, source: Box<dyn Source>) -> Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let outcome: Arc<OnceLock<Result<()>>> = Arc::default();
        let (container, stop, told) = (
            Arc::clone(container),
            Arc::clone(&stopped),
            Arc::clone(&outcome),
        );
        let thread = threads::start("checking", move || {
            let stopped = || stop.load(Ordering::Relaxed);
            let outcome = check_unkept(&container, &*source, Embedding::NAME, &stopped);
            if let Err(error) = &outcome
                && !matches!(error, Error::Cancelled)
            {
                tracing::warn!(%error, "the embedding was checked");
            }
            // Told once, here.
            let _ = told.set(outcome);
        })?;
        Ok(Self {
            of,
            stopped,
            outcome,
            thread: Some(thread),
        })
    }

    fn goes_on(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// What came of it. A disk that failed for once, or no memory to check with, says nothing about the bytes.
    fn verdict(&self) -> Verdict {
        // Asked first: what it finds is told before it ends.
        let goes_on = self.goes_on();
        match self.outcome.get() {
            Some(Ok(())) => Verdict::Right,
            Some(Err(error @ Error::Container(_))) => Verdict::Wrong(error.to_string()),
            Some(Err(_)) => Verdict::Unknown,
            None if goes_on => Verdict::Open,
            None => Verdict::Unknown,
        }
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
        let bytes = container.read(Embedding::NAME).unwrap();
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
            let go = Cancel::default();
            let mut row =
                |token| embedding.row(&container, &[], token, (&mut buffer, &mut out), &go);
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
        let go = Cancel::default();
        let mut row =
            |of: &Embedding, token| of.row(&container, &[], token, (&mut buffer, &mut out), &go);
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
        let last = *container.read(Embedding::NAME).unwrap().last().unwrap();
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
    /// A disk that fails, ends in a panic, or gives what is there, once it is let go.
    struct Odd {
        disk: Disk,
        held: Arc<AtomicBool>,
        fails: fn() -> std::io::Result<()>,
    }

    impl Source for Odd {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
            while self.held.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            (self.fails)()?;
            self.disk.read_at(buffer, offset)
        }
    }

    #[test]
    fn a_check_that_came_to_no_end_is_made_again_and_an_answer_waits_for_it() {
        let model = tiny(&Tiny::default()).convert();
        let container = Arc::new(Container::open(&model.path()).unwrap());
        let disk = || Disk::new(container.file().unwrap()).unwrap();
        for fails in [
            (|| Err(std::io::Error::from_raw_os_error(5))) as fn() -> std::io::Result<()>,
            || panic!("on purpose"),
            || Ok(()),
        ] {
            let held = Arc::new(AtomicBool::new(true));
            let odd = Odd {
                disk: disk(),
                held: Arc::clone(&held),
                fails,
            };
            let (mut embedding, columns) = embedding(&container);
            embedding.check =
                Some(Check::of(&container, disk().modified(), Box::new(odd)).unwrap());
            let (mut buffer, mut out) = (Vec::new(), vec![0.0; columns]);
            let go = Cancel::default();
            // Nothing is known yet: rows are given, and no answer is done.
            let mut row = || embedding.row(&container, &[], 1, (&mut buffer, &mut out), &go);
            row().unwrap();
            let stopped = Cancel::default();
            stopped.cancel();
            let settled = embedding.settle(&container, &stopped);
            assert!(matches!(settled, Err(Error::Cancelled)), "{settled:?}");
            held.store(false, Ordering::Relaxed);
            embedding.settle(&container, &go).unwrap();
            row().unwrap();
        }
    }

    #[test]
    fn a_file_that_is_never_left_alone_ends_in_a_sentence_and_can_be_stopped() {
        let model = tiny(&Tiny::default()).convert();
        let container = Arc::new(Container::open(&model.path()).unwrap());
        let (mut embedding, _) = embedding(&container);
        embedding.check = None;
        let file = std::fs::File::options()
            .write(true)
            .open(model.path())
            .unwrap();
        let mut times = 0;
        let mut touched = || {
            times += 1;
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs(times);
            file.set_modified(then).unwrap();
            Ok(())
        };
        let Home::File(_, disk) = &embedding.rows else {
            panic!("a large one stays in the file");
        };
        let checked = embedding.checked(&container, disk, &Cancel::default(), &mut touched);
        let error = checked.unwrap_err().to_string();
        assert!(
            error.contains("is being written to by another program"),
            "{error}"
        );
        let stopped = Cancel::default();
        stopped.cancel();
        let checked = embedding.checked(&container, disk, &stopped, touched);
        assert!(matches!(checked, Err(Error::Cancelled)), "{checked:?}");
    }
}
