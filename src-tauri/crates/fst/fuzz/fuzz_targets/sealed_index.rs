//! A whole container whose header and index are changed and sealed again, so that what lies behind the checksum is reached. The input is a
//! container; its length and its checksum are made right before it is read.
#![no_main]

mod read;

use std::hash::Hasher as _;

use twox_hash::xxhash3_64::Hasher;

const FILE: usize = 8;
const CHECKSUM: usize = 120;
const HEADER: usize = 128;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    if bytes.len() < HEADER {
        return;
    }
    bytes[..8].copy_from_slice(b"FST\0\x03\0\0\0");
    let length = bytes.len() as u64;
    bytes[FILE..FILE + 8].copy_from_slice(&length.to_le_bytes());
    if let Some(index) = index(&bytes) {
        let mut hasher = Hasher::new();
        hasher.write(&bytes[..CHECKSUM]);
        hasher.write(&bytes[index]);
        let sum = hasher.finish();
        bytes[CHECKSUM..HEADER].copy_from_slice(&sum.to_le_bytes());
    }
    read::read_everything(&bytes);
});

/// Where the header says the index lies, if that is in the file.
fn index(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let field =
        |at: usize| -> Option<u64> { Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?)) };
    let up = |n: u64| n.checked_next_multiple_of(8);
    let start = field(104)?;
    let config = start.checked_add(field(16)?)?;
    let metadata = up(config)?.checked_add(field(24)?)?;
    let directory = up(metadata)?.checked_add(field(32)?)?;
    let table = field(64)?.checked_mul(field(72)?)?.checked_mul(8)?;
    let end = up(directory)?.checked_add(table)?;
    let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
    bytes.get(range.clone())?;
    Some(range)
}
