//! What an unfinished conversion has done: a small file beside the partial one, replaced as a whole each time, so that after a kill or a
//! power cut it tells of a moment that was. It lists the checkpoint's tensors that are in the partial file for certain, and the checksum of
//! the bytes each had when it was read.
//!
//! Little-endian: 8 bytes magic, the plan's fingerprint (u64), the finished container's identity or 0 (u64), the number of tensors n (u64),
//! n checksums (XXH3-64, u64 each), n bytes that are 1 where the tensor is there and 0 where not, and the XXH3-64 of everything before.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use twox_hash::xxhash3_64::Hasher;

const MAGIC: &[u8; 8] = b"FSTJRNL\x01";
const HEAD_BYTES: usize = 32;

pub(crate) struct Journal {
    path: PathBuf,
    fingerprint: u64,
    /// Of the container that was made, once it was found whole.
    pub identity: u64,
    sums: Vec<u64>,
    done: Vec<bool>,
}

/// Why there is nothing to go on with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    Missing,
    Damaged,
    OtherPlan,
}

impl Journal {
    /// Nothing done yet. Not on disk before [`save`](Self::save).
    pub fn new(path: PathBuf, fingerprint: u64, tensors: usize) -> Self {
        Self {
            path,
            fingerprint,
            identity: 0,
            sums: vec![0; tensors],
            done: vec![false; tensors],
        }
    }

    /// Reads what was saved for the plan with this fingerprint over so many tensors.
    pub fn load(
        path: PathBuf,
        fingerprint: u64,
        tensors: usize,
    ) -> io::Result<Result<Self, Unusable>> {
        let mut file = match fastar_files::open(&path, File::options().read(true)) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Err(Unusable::Missing)),
            Err(e) => return Err(e),
        };
        // Two journals of this number of tensors have one length; anything else is not read.
        let bytes = HEAD_BYTES + tensors * 9 + 8;
        let length = file.metadata()?.len();
        let mut text = vec![0; bytes.min(length as usize)];
        file.read_exact(&mut text)?;
        let word = |at: usize| -> Option<u64> {
            Some(u64::from_le_bytes(text.get(at..at + 8)?.try_into().ok()?))
        };
        if length < HEAD_BYTES as u64 || !text.starts_with(MAGIC) {
            return Ok(Err(Unusable::Damaged));
        }
        if word(8) != Some(fingerprint) {
            return Ok(Err(Unusable::OtherPlan));
        }
        let (content, sum) = text.split_at(text.len() - 8);
        if length != bytes as u64
            || word(24) != Some(tensors as u64)
            || Hasher::oneshot(content).to_le_bytes() != sum
        {
            return Ok(Err(Unusable::Damaged));
        }
        let (sums, done) = content[HEAD_BYTES..].split_at(tensors * 8);
        let (sums, _) = sums.as_chunks::<8>();
        Ok(Ok(Self {
            fingerprint,
            identity: word(16).unwrap_or_default(),
            sums: sums.iter().map(|b| u64::from_le_bytes(*b)).collect(),
            done: done.iter().map(|&b| b == 1).collect(),
            path,
        }))
    }

    /// Puts it on disk, durably: the old one or the new one is there at any moment.
    pub fn save(&self) -> io::Result<()> {
        let mut text = Vec::with_capacity(HEAD_BYTES + self.sums.len() * 9 + 8);
        text.extend_from_slice(MAGIC);
        for word in [self.fingerprint, self.identity, self.sums.len() as u64] {
            text.extend_from_slice(&word.to_le_bytes());
        }
        text.extend(self.sums.iter().flat_map(|sum| sum.to_le_bytes()));
        text.extend(self.done.iter().map(|&done| u8::from(done)));
        text.extend_from_slice(&Hasher::oneshot(&text).to_le_bytes());
        let new = self.path.with_added_extension("new");
        let mut file = fastar_files::make(&new, &mut File::options())?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        sync_folder(&self.path);
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_done(&self, tensor: usize) -> bool {
        self.done[tensor]
    }

    /// Checksum of a tensor that is done.
    pub fn sum(&self, tensor: usize) -> u64 {
        self.sums[tensor]
    }

    /// Notes a tensor whose bytes are on disk.
    pub fn note(&mut self, tensor: usize, sum: u64) {
        self.sums[tensor] = sum;
        self.done[tensor] = true;
    }

    /// Notes that a tensor has to be written again.
    pub fn forget(&mut self, tensor: usize) {
        self.done[tensor] = false;
    }
}

/// Makes a rename in the folder of `path` survive a power cut. Not every file system can sync a folder; the file's bytes are safe already.
pub(crate) fn sync_folder(path: &Path) {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if let Err(error) = File::open(folder).and_then(|folder| folder.sync_all()) {
        tracing::debug!(%error, "folder not synced");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn load(path: &Path, fingerprint: u64, tensors: usize) -> Result<Journal, Unusable> {
        Journal::load(path.to_owned(), fingerprint, tensors).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_in_the_place_of_a_journal_is_never_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.fst.partial.state");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let read = Journal::load(path, 1, 2).map(drop).unwrap_err();
        assert!(read.to_string().contains("not a regular file"), "{read}");
    }

    #[cfg(unix)]
    #[test]
    fn a_journal_is_written_through_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("chats.db");
        fs::write(&victim, "all my chats").unwrap();
        let path = folder.path().join("m.fst.partial.state");
        for place in [path.clone(), path.with_added_extension("new")] {
            std::os::unix::fs::symlink(&victim, place).unwrap();
        }
        let read = Journal::load(path.clone(), 1, 2).map(drop).unwrap_err();
        assert!(read.to_string().contains("a link"), "{read}");
        Journal::new(path.clone(), 1, 2).save().unwrap();
        assert_eq!(fs::read(victim).unwrap(), b"all my chats");
        assert!(load(&path, 1, 2).is_ok());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_was_noted_is_there_again_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert_eq!(load(&path, 7, 3).err(), Some(Unusable::Missing));
        let mut journal = Journal::new(path.clone(), 7, 3);
        journal.note(1, 0xabcd);
        journal.save().unwrap();
        journal.note(2, 5);
        let again = load(&path, 7, 3).unwrap();
        assert_eq!(
            (0..3).map(|t| again.is_done(t)).collect::<Vec<_>>(),
            [false, true, false]
        );
        assert_eq!((again.sum(1), again.identity), (0xabcd, 0));
        assert_eq!(load(&path, 8, 3).err(), Some(Unusable::OtherPlan));
        assert_eq!(load(&path, 7, 4).err(), Some(Unusable::Damaged));
    }

    #[test]
    fn a_flipped_bit_or_a_missing_end_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        Journal::new(path.clone(), 7, 3).save().unwrap();
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, bad).unwrap();
            assert!(load(&path, 7, 3).is_err(), "byte {at}");
            fs::write(&path, &good[..at]).unwrap();
            assert!(load(&path, 7, 3).is_err(), "cut at {at}");
        }
    }
}
