//! One file that is being fetched, locked: who fetches which block, and what is written.

use std::fs::File;
use std::hash::Hasher as _;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fastar_files::holders;
use twox_hash::xxhash3_64::Hasher;

use super::check::{self, Checked};
use super::records::{HEADER, Header, RECORD, Record, block_len, kept};
use super::{BLOCK, modified};
use crate::{Error, RemoteFile, Result};

pub(super) struct State {
    pub(super) header: Header,
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

impl Table {
    pub(super) fn new(
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

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
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

    pub(super) fn save_header(&self) -> Result<()> {
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
    pub(super) fn adopt(&self) -> Result<()> {
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
    pub(super) fn trust(&self) -> Result<()> {
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

    /// Reads the whole file: its promised hash, and the blocks that are not what their records say. `step` is told the bytes read and may stop it.
    pub(crate) fn check(&self, step: impl FnMut(u64) -> Result<()>) -> Result<Checked> {
        let records = self.state().records.clone();
        check::check(&self.data, &self.file, &records, self.read(), step)
    }

    /// Whether there is a record of every block, made when it was written.
    pub(crate) fn has_records(&self) -> bool {
        check::is_recorded(&self.state().records, self.file.bytes)
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
            let _alone = holders::alone(&self.dest).map_err(|holder| Error::Loaded {
                path: self.dest.clone(),
                holder,
            })?;
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
