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

use std::fs::{File, OpenOptions, TryLockError};
use std::hash::Hasher as _;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use twox_hash::xxhash3_64::Hasher;

use crate::{Error, RemoteFile, Result};

/// Bytes of a block: the unit of repair, and more than a kill can lose on one connection.
pub const BLOCK: u64 = 4 << 20;
const HEADER: usize = 4096;
const RECORD: usize = 16;
const FORMAT: &str = "fastar-hub blocks 1";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    format: String,
    repo: String,
    revision: String,
    path: String,
    bytes: u64,
    sha256: Option<String>,
    /// What the server called these contents; a change means other contents.
    identity: Option<String>,
    /// Process that has or had the lock, for the message only.
    owner: u32,
    /// An older file of ours lies under the final name and may be replaced.
    replaces: bool,
    /// Modification time of the finished file when its hash was checked, in ns since 1970.
    verified: Option<i128>,
}

impl Header {
    fn new(file: &RemoteFile) -> Self {
        Self {
            format: FORMAT.to_owned(),
            repo: file.repo.clone(),
            revision: file.revision.clone(),
            path: file.path.clone(),
            bytes: file.bytes,
            sha256: file.sha256.clone(),
            identity: None,
            owner: std::process::id(),
            replaces: false,
            verified: None,
        }
    }

    /// Whether the bytes described are those of `file`: the same hash wherever it came from, else the same file of the same commit.
    fn describes(&self, file: &RemoteFile) -> bool {
        let same = match (&self.sha256, &file.sha256) {
            (Some(a), Some(b)) => a == b,
            _ => self.repo == file.repo && self.revision == file.revision && self.path == file.path,
        };
        same && self.bytes == file.bytes
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Record {
    written: u32,
    synced: bool,
    hash: u64,
}

impl Record {
    fn to_bytes(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..4].copy_from_slice(&self.written.to_le_bytes());
        bytes[4] = self.synced.into();
        bytes[8..].copy_from_slice(&self.hash.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let mut fields = [[0; 4]; 4];
        for (field, chunk) in fields.iter_mut().zip(bytes.chunks_exact(4)) {
            field.copy_from_slice(chunk);
        }
        let [written, synced, low, high] = fields.map(u32::from_le_bytes);
        Self {
            written,
            synced: synced == 1,
            hash: u64::from(low) | u64::from(high) << 32,
        }
    }
}

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

/// What a check of the contents found.
pub(crate) struct Checked {
    pub(crate) sha256: String,
    /// Blocks whose bytes are not those that were written.
    pub(crate) bad: Vec<u64>,
}

struct State {
    header: Header,
    records: Vec<Record>,
    claimed: Vec<bool>,
}

/// One file, locked.
pub(crate) struct Table {
    pub(crate) file: RemoteFile,
    pub(crate) dest: PathBuf,
    /// Where the data is now.
    at: PathBuf,
    data: File,
    blocks: File,
    state: Mutex<State>,
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

/// The place of the next byte of a block.
pub(crate) struct Cursor {
    pub(crate) block: u64,
    written: u64,
    hash: Hasher,
}

impl Cursor {
    pub(crate) fn position(&self) -> u64 {
        self.block * BLOCK + self.written
    }
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
    if std::fs::metadata(dest).is_ok_and(|found| found.is_file() && found.len() == file.bytes) {
        return Presence::Whole;
    }
    let Ok(found) = std::fs::metadata(partial_path(dest)) else {
        return Presence::Absent;
    };
    let state = File::open(blocks_path(dest)).and_then(|blocks| load(&blocks));
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

/// Bytes of a record that can be there at all.
fn kept(record: Record, block: u64, bytes: u64, length: u64) -> u64 {
    let written = u64::from(record.written);
    if written <= block_len(block, bytes) && block * BLOCK + written <= length {
        written
    } else {
        0
    }
}

fn block_len(block: u64, bytes: u64) -> u64 {
    bytes.saturating_sub(block * BLOCK).min(BLOCK)
}

fn load(blocks: &File) -> io::Result<(Header, Vec<Record>)> {
    let mut text = [0; HEADER];
    blocks.read_exact_at(&mut text, 0)?;
    let header: Header = serde_json::from_slice(&text).map_err(io::Error::other)?;
    let count = header.bytes.div_ceil(BLOCK);
    let length = blocks.metadata()?.len();
    if header.format != FORMAT
        || Some(length)
            != count
                .checked_mul(RECORD as u64)
                .and_then(|bytes| bytes.checked_add(HEADER as u64))
    {
        return Err(io::Error::other("another format"));
    }
    // The count is now bounded by the length of the file.
    let mut bytes = vec![0; length as usize - HEADER];
    blocks.read_exact_at(&mut bytes, HEADER as u64)?;
    Ok((
        header,
        bytes.chunks_exact(RECORD).map(Record::from_bytes).collect(),
    ))
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
                let data = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(dest)
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
    let at = partial_path(dest);
    let data = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&at)
        .map_err(|error| Error::io("write", &at, error))?;
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

fn lock(dest: &Path) -> Result<File> {
    let path = blocks_path(dest);
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
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
    match blocks.try_lock() {
        Ok(()) => Ok(blocks),
        Err(TryLockError::WouldBlock) => Err(Error::Busy {
            path: dest.to_owned(),
            pid: load(&blocks).ok().map(|(header, _)| header.owner),
        }),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", &path, error)),
    }
}

fn modified(found: &std::fs::Metadata) -> i128 {
    i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec())
}

impl Table {
    fn new(
        file: &RemoteFile,
        dest: &Path,
        at: PathBuf,
        data: File,
        blocks: File,
        known: Option<(Header, Vec<Record>)>,
    ) -> Self {
        let count = file.bytes.div_ceil(BLOCK) as usize;
        let (mut header, records) =
            known.unwrap_or_else(|| (Header::new(file), vec![Record::default(); count]));
        header.owner = std::process::id();
        let state = State {
            header,
            records,
            claimed: vec![false; count],
        };
        Self {
            file: file.clone(),
            dest: dest.to_owned(),
            at,
            data,
            blocks,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrote(&self) -> impl Fn(io::Error) -> Error + '_ {
        |error| Error::io("write", &self.at, error)
    }

    fn read(&self) -> impl Fn(io::Error) -> Error + '_ {
        |error| Error::io("read", &self.at, error)
    }

    /// Bytes that are on the disk.
    pub(crate) fn present(&self) -> u64 {
        self.state()
            .records
            .iter()
            .map(|record| u64::from(record.written))
            .sum()
    }

    pub(crate) fn identity(&self) -> Option<String> {
        self.state().header.identity.clone()
    }

    pub(crate) fn set_identity(&self, identity: &str) -> Result<()> {
        let mut state = self.state();
        if identity.len() <= 300 && state.header.identity.as_deref() != Some(identity) {
            state.header.identity = Some(identity.to_owned());
            self.write_header(&state.header)?;
        }
        Ok(())
    }

    fn save_header(&self) -> Result<()> {
        let state = self.state();
        self.blocks
            .set_len((HEADER + state.records.len() * RECORD) as u64)
            .map_err(self.wrote())?;
        self.write_header(&state.header)
    }

    fn write_header(&self, header: &Header) -> Result<()> {
        let mut text =
            serde_json::to_vec(header).map_err(|error| self.wrote()(io::Error::other(error)))?;
        if text.len() > HEADER {
            return Err(self.wrote()(io::Error::other("its name is too long")));
        }
        text.resize(HEADER, b' ');
        self.blocks.write_all_at(&text, 0).map_err(self.wrote())
    }

    fn save_records(&self, state: &State) -> Result<()> {
        let bytes: Vec<u8> = state
            .records
            .iter()
            .flat_map(|record| record.to_bytes())
            .collect();
        self.blocks
            .write_all_at(&bytes, HEADER as u64)
            .map_err(self.wrote())
    }

    /// Forgets everything.
    pub(crate) fn restart(&self) -> Result<()> {
        {
            let mut state = self.state();
            state.records.fill(Record::default());
            state.header.identity = None;
            self.save_records(&state)?;
        }
        self.save_header()?;
        self.data.set_len(0).map_err(self.wrote())
    }

    /// Takes over bytes without records as far as they can belong to the file.
    fn adopt(&self) -> Result<()> {
        let length = self
            .data
            .metadata()
            .map_err(self.read())?
            .len()
            .min(self.file.bytes);
        self.data.set_len(length).map_err(self.wrote())?;
        self.save_header()?;
        let mut block = 0;
        while block * BLOCK < length {
            let written = block_len(block, length);
            let hash = self.hash(block, written)?.finish();
            self.put(
                block,
                Record {
                    written: written as u32,
                    synced: false,
                    hash,
                },
            )?;
            block += 1;
        }
        Ok(())
    }

    /// Believes synced records, checks the others, and writes the state as it is now.
    fn trust(&self) -> Result<()> {
        let length = self.data.metadata().map_err(self.read())?.len();
        let records = self.state().records.clone();
        for (i, record) in records.into_iter().enumerate() {
            let block = i as u64;
            let written = kept(record, block, self.file.bytes, length);
            let right =
                record.synced || written == 0 || self.hash(block, written)?.finish() == record.hash;
            if written == 0 || !right {
                self.state().records[i] = Record::default();
            }
        }
        if length > self.file.bytes {
            self.data.set_len(self.file.bytes).map_err(self.wrote())?;
        }
        self.save_header()?;
        let state = self.state();
        self.save_records(&state)
    }

    fn hash(&self, block: u64, written: u64) -> Result<Hasher> {
        let mut hash = Hasher::new();
        let mut buffer = vec![0; 256 << 10];
        let mut from = 0;
        while from < written {
            let piece = &mut buffer[..(written - from).min(256 << 10) as usize];
            self.data
                .read_exact_at(piece, block * BLOCK + from)
                .map_err(self.read())?;
            hash.write(piece);
            from += piece.len() as u64;
        }
        Ok(hash)
    }

    fn put(&self, block: u64, record: Record) -> Result<()> {
        self.state().records[block as usize] = record;
        self.blocks
            .write_all_at(&record.to_bytes(), HEADER as u64 + block * RECORD as u64)
            .map_err(self.wrote())
    }

    /// The next blocks that nobody fetches, at most `most` in a row, as first and end. A block that has begun is the
    /// first of its row: a range goes on at the end of its first block and fills the others from their beginning.
    pub(crate) fn claim(&self, most: u64) -> Option<(u64, u64)> {
        let mut state = self.state();
        let State {
            records, claimed, ..
        } = &mut *state;
        let free = |i: usize| {
            !claimed[i] && u64::from(records[i].written) < block_len(i as u64, self.file.bytes)
        };
        let first = (0..records.len()).find(|i| free(*i))?;
        let end = (first..records.len())
            .take(most as usize)
            .take_while(|i| free(*i) && (*i == first || records[*i].written == 0))
            .last()?
            + 1;
        claimed[first..end].fill(true);
        Some((first as u64, end as u64))
    }

    pub(crate) fn release(&self, (first, end): (u64, u64)) {
        self.state().claimed[first as usize..end as usize].fill(false);
    }

    /// Where block `block` goes on.
    pub(crate) fn cursor(&self, block: u64) -> Result<Cursor> {
        let written = u64::from(self.state().records[block as usize].written);
        Ok(Cursor {
            block,
            written,
            hash: self.hash(block, written)?,
        })
    }

    /// Writes at the cursor and moves it, over block ends; a full block is synced.
    pub(crate) fn append(&self, cursor: &mut Cursor, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let whole = block_len(cursor.block, self.file.bytes);
            let piece = &bytes[..bytes.len().min((whole - cursor.written) as usize)];
            if piece.is_empty() {
                return Err(self.wrote()(io::Error::other(
                    "more bytes than the file has",
                )));
            }
            #[cfg(test)]
            crate::tests::disk_fault(&self.at).map_err(self.wrote())?;
            self.data
                .write_all_at(piece, cursor.position())
                .map_err(self.wrote())?;
            cursor.hash.write(piece);
            cursor.written += piece.len() as u64;
            bytes = &bytes[piece.len()..];
            let full = cursor.written == whole;
            if full {
                self.data.sync_data().map_err(self.wrote())?;
            }
            self.put(
                cursor.block,
                Record {
                    written: cursor.written as u32,
                    synced: full,
                    hash: cursor.hash.finish(),
                },
            )?;
            // At the end of the file it stays behind the last byte.
            if full && cursor.position() < self.file.bytes {
                *cursor = Cursor {
                    block: cursor.block + 1,
                    written: 0,
                    hash: Hasher::new(),
                };
            }
        }
        Ok(())
    }

    /// Reads the whole file: its sha256, and the blocks that are not what their records say. `step` is told the bytes read and may stop it.
    pub(crate) fn check(&self, mut step: impl FnMut(u64) -> Result<()>) -> Result<Checked> {
        let records = self.state().records.clone();
        let mut whole = Sha256::new();
        let mut bad = Vec::new();
        let mut buffer = vec![0; 1 << 20];
        for (i, record) in records.iter().enumerate() {
            let block = i as u64;
            let length = block_len(block, self.file.bytes);
            let mut hash = Hasher::new();
            let mut from = 0;
            while from < length {
                let piece = &mut buffer[..(length - from).min(1 << 20) as usize];
                self.data
                    .read_exact_at(piece, block * BLOCK + from)
                    .map_err(self.read())?;
                whole.update(&*piece);
                hash.write(piece);
                from += piece.len() as u64;
                step(piece.len() as u64)?;
            }
            if u64::from(record.written) != length || record.hash != hash.finish() {
                bad.push(block);
            }
        }
        Ok(Checked {
            sha256: hex(&whole.finalize()),
            bad,
        })
    }

    /// Whether there is a record of every block, made when it was written.
    pub(crate) fn has_records(&self) -> bool {
        self.state()
            .records
            .iter()
            .enumerate()
            .all(|(i, record)| u64::from(record.written) == block_len(i as u64, self.file.bytes))
    }

    /// Records of a file that was found whole.
    pub(crate) fn record_all(&self) -> Result<()> {
        for block in 0..self.file.bytes.div_ceil(BLOCK) {
            let written = block_len(block, self.file.bytes);
            let hash = self.hash(block, written)?.finish();
            self.put(
                block,
                Record {
                    written: written as u32,
                    synced: true,
                    hash,
                },
            )?;
        }
        Ok(())
    }

    /// Marks blocks as missing; the bytes stay until others replace them.
    pub(crate) fn forget(&self, blocks: impl IntoIterator<Item = u64>) -> Result<()> {
        blocks
            .into_iter()
            .try_for_each(|block| self.put(block, Record::default()))
    }

    /// The hashes of all blocks as they were written.
    pub(crate) fn hashes(&self) -> Vec<u64> {
        self.state()
            .records
            .iter()
            .map(|record| record.hash)
            .collect()
    }

    /// Makes a checked file final: synced, renamed, folder synced.
    pub(crate) fn finish(&self) -> Result<()> {
        self.data.sync_all().map_err(self.wrote())?;
        if self.at != self.dest {
            std::fs::rename(&self.at, &self.dest)
                .map_err(|error| Error::io("write", &self.dest, error))?;
        }
        let found = self.data.metadata().map_err(self.read())?;
        let mut state = self.state();
        state.header.verified = Some(modified(&found));
        state.header.replaces = false;
        self.write_header(&state.header)?;
        self.blocks.sync_all().map_err(self.wrote())?;
        let folder = crate::folder_of(&self.dest);
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| Error::io("write", &self.dest, error))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_has_begun_is_continued_and_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let dest = folder.path().join("a");
        let file = RemoteFile {
            repo: "acme/tiny".into(),
            revision: "1".into(),
            path: "a".into(),
            bytes: 10 * BLOCK + 7,
            sha256: None,
        };
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
