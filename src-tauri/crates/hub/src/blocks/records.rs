//! The state file: its header, its records, and what they can be believed to say.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use super::BLOCK;
use crate::RemoteFile;

pub(super) const HEADER: usize = 4096;
pub(super) const RECORD: usize = 16;
const FORMAT: &str = "fastar-hub blocks 1";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) format: String,
    pub(super) repo: String,
    pub(super) revision: String,
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) sha256: Option<String>,
    /// What the server called these contents; a change means other contents.
    pub(super) identity: Option<String>,
    /// Process that has or had the lock, for the message only.
    pub(super) owner: u32,
    /// An older file of ours lies under the final name and may be replaced.
    pub(super) replaces: bool,
    /// Modification time of the finished file when its hash was checked, in ns since 1970.
    pub(super) verified: Option<i128>,
}

impl Header {
    pub(super) fn new(file: &RemoteFile) -> Self {
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
    pub(super) fn describes(&self, file: &RemoteFile) -> bool {
        let same = match (&self.sha256, &file.sha256) {
            (Some(a), Some(b)) => a == b,
            _ => self.repo == file.repo && self.revision == file.revision && self.path == file.path,
        };
        same && self.bytes == file.bytes
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) written: u32,
    pub(super) synced: bool,
    pub(super) hash: u64,
}

impl Record {
    pub(super) fn to_bytes(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..4].copy_from_slice(&self.written.to_le_bytes());
        bytes[4] = self.synced.into();
        bytes[8..].copy_from_slice(&self.hash.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
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

/// Bytes of a record that can be there at all.
pub(super) fn kept(record: Record, block: u64, bytes: u64, length: u64) -> u64 {
    let written = u64::from(record.written);
    if written <= block_len(block, bytes) && block * BLOCK + written <= length {
        written
    } else {
        0
    }
}

pub(super) fn block_len(block: u64, bytes: u64) -> u64 {
    bytes.saturating_sub(block * BLOCK).min(BLOCK)
}

pub(super) fn load(blocks: &File) -> io::Result<(Header, Vec<Record>)> {
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
