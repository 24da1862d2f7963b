//! The state of one file on the disk: which blocks are there, and what their bytes hash to.
//!
//! Beside `NAME` lies `NAME.partial` while it is incomplete, and always the hidden `.NAME.blocks`:
//!
//! ```text
//! offset       bytes
//! 0            4096   JSON padded with spaces: see `Header`
//! 4096 + 16 i  16     block i of 4 MiB: bytes written u32, 1 if they are synced u32, XXH3-64 of the written bytes u64; little endian
//! ```
//!
//! A record follows its data. After a kill the page cache has both; after a power cut an unsynced record is believed only if the bytes still
//! have its hash, so that the state never promises more than there is. When the file is finished its records remain, and a damaged block
//! can be found and fetched alone. The kernel's lock on `.NAME.blocks` ends with the process that held it.

mod check;
mod records;
mod table;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fastar_files::{holders, locks};

use crate::{Error, RemoteFile, Result};

pub(crate) use check::Checked;
use records::{Header, Record, kept, load};
pub(crate) use table::{Cursor, Table};

/// Bytes of a block: the unit of repair, and more than a kill can lose on one connection.
pub const BLOCK: u64 = 4 << 20;

/// How complete a file is, from the disk alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Nothing there.
    Absent,
    /// This many bytes are there and wait for the rest.
    Partial(u64),
    /// Under its final name with the right length.
    Whole,
}

impl Presence {
    /// How many of the bytes of `file` need not be fetched.
    pub fn bytes(self, file: &RemoteFile) -> u64 {
        match self {
            Self::Absent => 0,
            Self::Partial(bytes) => bytes,
            Self::Whole => file.bytes,
        }
    }
}

/// What [`open`] found.
pub(crate) enum Opened {
    /// Finished and checked before, unchanged since.
    Whole,
    /// Under its final name with the right length, contents not checked.
    Unchecked(Table),
    /// Under its partial name, perhaps empty.
    Partial(Table),
}

pub(crate) fn partial_path(dest: &Path) -> PathBuf {
    with_name(dest, "", ".partial")
}

pub(crate) fn blocks_path(dest: &Path) -> PathBuf {
    with_name(dest, ".", ".blocks")
}

fn with_name(dest: &Path, before: &str, after: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(before);
    name.push(dest.file_name().unwrap_or_default());
    name.push(after);
    dest.with_file_name(name)
}

/// What lies at `dest` and beside it, without a lock and without reading the contents.
pub(crate) fn presence(file: &RemoteFile, dest: &Path) -> Presence {
    let state = fastar_files::open(&blocks_path(dest), OpenOptions::new().read(true))
        .and_then(|blocks| load(&blocks));
    // An older revision of the same length is not it, as in `open`.
    let is_another =
        |(header, _): &(Header, Vec<Record>)| !header.describes(file) || header.replaces;
    if std::fs::metadata(dest).is_ok_and(|found| found.is_file() && found.len() == file.bytes)
        && !state.as_ref().is_ok_and(is_another)
    {
        return Presence::Whole;
    }
    let Ok(found) = std::fs::metadata(partial_path(dest)) else {
        return Presence::Absent;
    };
    let bytes = match state {
        Ok((header, records)) if header.describes(file) => records
            .iter()
            .enumerate()
            .map(|(i, record)| kept(*record, i as u64, file.bytes, found.len()))
            .sum(),
        Ok(_) => 0,
        Err(_) => found.len().min(file.bytes),
    };
    Presence::Partial(bytes)
}

/// Opens and locks what is there, and makes the folder. `recheck` does not believe that a finished file is still what was checked.
pub(crate) fn open(file: &RemoteFile, dest: &Path, recheck: bool) -> Result<Opened> {
    let folder = crate::folder_of(dest);
    std::fs::create_dir_all(folder).map_err(|error| Error::io("make", &folder.join("."), error))?;
    let blocks = lock(dest)?;
    let found = std::fs::symlink_metadata(dest).ok();
    let known = load(&blocks).ok();
    let ours = known.is_some();
    let same = known.filter(|(header, _)| header.describes(file));
    if let Some(found) = &found {
        let finished = std::fs::metadata(dest)
            .ok()
            .filter(|finished| finished.is_file() && finished.len() == file.bytes);
        if let Some(finished) =
            finished.filter(|_| same.as_ref().is_none_or(|(header, _)| !header.replaces))
        {
            if ours && same.is_none() {
                // An older revision of the same length.
            } else {
                if !recheck
                    && same
                        .as_ref()
                        .is_some_and(|(header, _)| header.verified == Some(modified(&finished)))
                {
                    return Ok(Opened::Whole);
                }
                let data = fastar_files::open(dest, OpenOptions::new().read(true).write(true))
                    .map_err(|error| Error::io("write", dest, error))?;
                let table = Table::new(file, dest, dest.to_owned(), data, blocks, same);
                table.save_header()?;
                return Ok(Opened::Unchecked(table));
            }
        } else if !ours || !found.is_file() {
            return Err(Error::Occupied {
                path: dest.to_owned(),
                repo: file.repo.clone(),
            });
        }
    }
    // Else it would be told only when everything is there.
    holders::alone(dest).map_err(|holder| Error::Loaded {
        path: dest.to_owned(),
        holder,
    })?;
    let at = partial_path(dest);
    let mut made = OpenOptions::new();
    made.read(true).write(true).create(true).truncate(false);
    let data =
        fastar_files::open(&at, &mut made).map_err(|error| Error::io("write", &at, error))?;
    let fresh = same.is_none();
    let table = Table::new(file, dest, at, data, blocks, same);
    if fresh {
        // Records of other contents say nothing about these bytes. Without any records the bytes may be ours: the final hash decides.
        table.state().header.replaces = found.is_some();
        if ours {
            table.restart()?
        } else {
            table.adopt()?
        }
    } else {
        table.trust()?;
    }
    Ok(Opened::Partial(table))
}

/// The state of a finished file, for reading alone. Whoever wants to write meanwhile is told that it is busy.
pub(crate) struct Recorded {
    records: Vec<Record>,
    file: RemoteFile,
    /// Holds the lock.
    _blocks: Option<File>,
}

impl Recorded {
    /// The records beside `dest`, as far as there are any that can be read. `None` if they are those of other contents.
    pub(crate) fn read(file: &RemoteFile, dest: &Path) -> Result<Option<Self>> {
        let blocks = fastar_files::open(&blocks_path(dest), OpenOptions::new().read(true)).ok();
        let mut known = None;
        if let Some(blocks) = &blocks {
            match locks::shared(blocks) {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(busy(dest, blocks)),
                // A file system without locks has no other reader's either.
                Err(TryLockError::Error(error)) => {
                    tracing::debug!(%error, "reading without a lock")
                }
            }
            known = load(blocks).ok();
        }
        if known
            .as_ref()
            .is_some_and(|(header, _)| header.replaces || !header.describes(file))
        {
            return Ok(None);
        }
        Ok(Some(Self {
            records: known.map(|(_, records)| records).unwrap_or_default(),
            file: file.clone(),
            _blocks: blocks,
        }))
    }

    /// Whether there is a record of every block.
    pub(crate) fn is_complete(&self) -> bool {
        check::is_recorded(&self.records, self.file.bytes)
    }

    /// Reads the file's `data` through.
    pub(crate) fn check(
        &self,
        data: &File,
        failed: impl Fn(io::Error) -> Error,
        step: impl FnMut(u64) -> Result<()>,
    ) -> Result<Checked> {
        check::check(data, &self.file, &self.records, failed, step)
    }
}

fn busy(dest: &Path, blocks: &File) -> Error {
    // Readers do not leave their number.
    let written = blocks.try_lock_shared().is_err();
    Error::Busy {
        path: dest.to_owned(),
        pid: load(blocks)
            .ok()
            .map(|(header, _)| header.owner)
            .filter(|_| written),
    }
}

fn lock(dest: &Path) -> Result<File> {
    let path = blocks_path(dest);
    let open = || {
        let mut made = OpenOptions::new();
        made.read(true).write(true).create(true).truncate(false);
        fastar_files::open(&path, &mut made)
    };
    let blocks = match open() {
        // Somebody else's file in a folder of ours must not block us.
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied
                && std::fs::remove_file(&path).is_ok() =>
        {
            open()
        }
        other => other,
    }
    .map_err(|error| Error::io("write", &path, error))?;
    match locks::alone(&blocks) {
        Ok(()) => Ok(blocks),
        Err(TryLockError::WouldBlock) => Err(busy(dest, &blocks)),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", &path, error)),
    }
}

fn modified(found: &std::fs::Metadata) -> i128 {
    i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn file_of(bytes: u64) -> RemoteFile {
        RemoteFile {
            repo: "acme/tiny".into(),
            revision: "1".into(),
            path: "a".into(),
            bytes,
            sha256: None,
            git_oid: None,
        }
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_never_waited_for() {
        let file = file_of(7);
        for name in [".a.blocks", "a.partial", "a"] {
            let folder = tempfile::tempdir().unwrap();
            let dest = folder.path().join("a");
            let pipe = folder.path().join(name);
            let made = std::process::Command::new("mkfifo").arg(&pipe).status();
            assert!(made.unwrap().success());
            assert_ne!(presence(&file, &dest), Presence::Whole);
            let error = open(&file, &dest, false).err().unwrap().to_string();
            assert!(error.contains(pipe.to_str().unwrap()), "{error}");
            assert!(error.lines().count() == 1, "{error}");
            assert!(Recorded::read(&file, &dest).is_ok());
        }
    }

    #[test]
    fn nothing_is_written_where_a_link_leads() {
        let file = file_of(7);
        for name in [".a.blocks", "a.partial", "a"] {
            for victim in ["seven77", "of another length", ""] {
                let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
                let target = home.path().join("victim");
                if !victim.is_empty() {
                    std::fs::write(&target, victim).unwrap();
                }
                std::os::unix::fs::symlink(&target, folder.path().join(name)).unwrap();
                let dest = folder.path().join("a");
                let error = open(&file, &dest, false).err().unwrap().to_string();
                assert!(error.contains(folder.path().to_str().unwrap()), "{error}");
                let left = std::fs::read_to_string(&target).unwrap_or_default();
                assert_eq!(left, victim, "{name}: {error}");
                assert_eq!(target.exists(), !victim.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn a_block_that_has_begun_is_continued_and_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let dest = folder.path().join("a");
        let file = file_of(10 * BLOCK + 7);
        let begun = || match open(&file, &dest, false).unwrap() {
            Opened::Partial(table) => table,
            _ => unreachable!("nothing is finished"),
        };
        let table = begun();
        let mut cursor = table.cursor(5).unwrap();
        table.append(&mut cursor, &[3; 100_000]).unwrap();
        assert_eq!(presence(&file, &dest), Presence::Partial(100_000));
        drop(table);
        let table = begun();
        assert_eq!(table.present(), 100_000);
        assert_eq!(table.claim(16), Some((0, 5)));
        assert_eq!(table.claim(16), Some((5, 11)));
        assert_eq!(table.claim(16), None);
        assert_eq!(table.cursor(5).unwrap().position(), 5 * BLOCK + 100_000);
        drop(table);
        // Bytes that the disk lost or changed before they were synced are not believed.
        File::options()
            .write(true)
            .open(partial_path(&dest))
            .unwrap()
            .write_all_at(&[4], 5 * BLOCK)
            .unwrap();
        assert_eq!(begun().present(), 0);
    }
}
