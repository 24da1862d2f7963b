//! Reading a file through: its sha256, and which of its blocks are not what their records say. Nothing is written.

use std::fs::File;
use std::hash::Hasher as _;
use std::io;
use std::os::unix::fs::FileExt;

use sha2::{Digest, Sha256};
use twox_hash::xxhash3_64::Hasher;

use super::BLOCK;
use super::records::{Record, block_len};
use crate::Result;

const PIECE: usize = 1 << 20;

/// What a check of the contents found.
pub(crate) struct Checked {
    pub(crate) sha256: String,
    /// Blocks whose bytes are not those that were written.
    pub(crate) bad: Vec<u64>,
}

/// Reads all of `data`, of `bytes` bytes. `step` is told the bytes read and may stop it.
pub(super) fn check(
    data: &File,
    bytes: u64,
    records: &[Record],
    failed: impl Fn(io::Error) -> crate::Error,
    mut step: impl FnMut(u64) -> Result<()>,
) -> Result<Checked> {
    let mut whole = Sha256::new();
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
            whole.update(&*piece);
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
        sha256: hex(&whole.finalize()),
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
