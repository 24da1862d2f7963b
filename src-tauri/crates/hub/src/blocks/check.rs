//! Reading a file through: the hash that the hub promises, and which of its blocks are not what their records say. Nothing is written.

use std::fs::File;
use std::hash::Hasher as _;
use std::io;
use std::os::unix::fs::FileExt;

use twox_hash::xxhash3_64::Hasher;

use super::BLOCK;
use super::records::{Record, block_len};
use crate::contents::{Compared, Contents};
use crate::{RemoteFile, Result};

const PIECE: usize = 1 << 20;

/// What a check of the contents found.
pub(crate) struct Checked {
    /// The whole, if the hub promises a hash of it.
    pub(crate) whole: Option<Compared>,
    /// Blocks whose bytes are not those that were written.
    pub(crate) bad: Vec<u64>,
}

/// Reads all of `data`, which should be `file`. `step` is told the bytes read and may stop it.
pub(super) fn check(
    data: &File,
    file: &RemoteFile,
    records: &[Record],
    failed: impl Fn(io::Error) -> crate::Error,
    mut step: impl FnMut(u64) -> Result<()>,
) -> Result<Checked> {
    let bytes = file.bytes;
    let mut whole = Contents::of(file);
    let mut bad = Vec::new();
    let mut buffer = vec![0; PIECE];
    for block in 0..bytes.div_ceil(BLOCK) {
        let length = block_len(block, bytes);
        let mut hash = Hasher::new();
        let mut from = 0;
        while from < length {
            let piece = &mut buffer[..(length - from).min(PIECE as u64) as usize];
            data.read_exact_at(piece, block * BLOCK + from)
                .map_err(&failed)?;
            if let Some(whole) = &mut whole {
                whole.update(piece);
            }
            hash.write(piece);
            from += piece.len() as u64;
            step(piece.len() as u64)?;
        }
        let record = records.get(block as usize).copied().unwrap_or_default();
        if u64::from(record.written) != length || record.hash != hash.finish() {
            bad.push(block);
        }
    }
    Ok(Checked {
        whole: whole.map(Contents::compare),
        bad,
    })
}

/// Whether there is a record of every block, made when it was written.
pub(super) fn is_recorded(records: &[Record], bytes: u64) -> bool {
    (0..bytes.div_ceil(BLOCK)).all(|block| {
        records
            .get(block as usize)
            .is_some_and(|record| u64::from(record.written) == block_len(block, bytes))
    })
}
