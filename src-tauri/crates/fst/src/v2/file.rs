//! Header and directory of a file of version 2, checked before anything is believed.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::layout::Dtype;
use crate::read::Bytes;

pub(crate) const HEADER_BYTES: usize = 128;
const ENTRY_BYTES: u64 = 64;
const PAGE: u64 = 4096;
/// The directory is read as a whole; that of DeepSeek V4 Flash has less than 100,000.
const MOST_DIRECTORY_BYTES: u64 = 64 << 20;
/// Layer number of what belongs to the whole model.
pub(crate) const GLOBAL: u16 = 0xFFFF;

/// Kind, layer and half of a tensor: the only thing a directory may be searched by.
pub(crate) type Key = (u32, u16, u16);

/// How the values of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// All scales, then all codes; only in draft files.
    Q8,
    Plain(Dtype),
}

/// One tensor.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub stored: Stored,
    pub shape: Vec<usize>,
    pub offset: u64,
    pub bytes: u64,
}

/// A file's header and directory. Heads, KV heads, head size and the expert width of the header are not kept: they are not to be trusted.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub layers: u64,
    pub experts: u64,
    pub experts_per_token: u64,
    pub eps: f32,
    pub theta: f32,
    pub vocab: u64,
    pub bank: u64,
    pub block: u64,
    pub stride: u64,
    pub blocks: u64,
    pub r1: u64,
    pub r2: u64,
    pub directory_end: u64,
    pub entries: BTreeMap<Key, Entry>,
}

impl File {
    /// Reads header and directory.
    pub fn parse(bytes: &Bytes, name: &str) -> Result<Self> {
        let length = bytes.length();
        let start = bytes.start(HEADER_BYTES as u64)?;
        let Some(header) = start.first_chunk::<HEADER_BYTES>() else {
            return Err(Error::Length {
                name: name.to_owned(),
                expected: HEADER_BYTES as u64,
                actual: length,
            });
        };
        let damaged = |what: String| Error::Damaged {
            name: name.to_owned(),
            what,
        };
        let word = |at: usize| {
            let mut raw = [0; 4];
            raw.copy_from_slice(&header[at..at + 4]);
            u32::from_le_bytes(raw)
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if header[..4] != crate::format::MAGIC || word(4) != super::VERSION {
            return Err(damaged("it is not a file of version 2".into()));
        }
        let (layers, experts) = (u64::from(word(12)), u64::from(word(16)));
        let (directory, count) = (long(64), long(72));
        let (bank, block, stride, blocks) = (long(80), long(88), long(96), long(104));
        // A sidecar has no blocks, whatever its expert count says.
        if layers == 0 || layers >= u64::from(GLOBAL) || experts == 0 {
            return Err(damaged(format!(
                "{layers} layers of {experts} experts are impossible"
            )));
        }
        if blocks != 0 && Some(blocks) != layers.checked_mul(experts) {
            return Err(damaged(format!(
                "it says it has {blocks} expert blocks, which is not {layers} layers of {experts}"
            )));
        }
        let directory_end = count
            .checked_mul(ENTRY_BYTES)
            .and_then(|size| size.checked_add(directory));
        let Some(directory_end) = directory_end.filter(|&end| {
            directory >= HEADER_BYTES as u64
                && end <= length
                && end - directory <= MOST_DIRECTORY_BYTES
        }) else {
            return Err(damaged(format!(
                "its directory of {count} tensors at {directory} does not fit into {length} bytes"
            )));
        };
        let mut file = Self {
            layers,
            experts,
            experts_per_token: word(20).into(),
            eps: f32::from_bits(word(56)),
            theta: f32::from_bits(word(60)),
            vocab: long(48),
            bank,
            block,
            stride,
            blocks,
            r1: long(112),
            r2: long(120),
            directory_end,
            entries: BTreeMap::new(),
        };
        let mut places = vec![(0, directory_end, "its directory".to_owned())];
        if blocks > 0 {
            if block == 0
                || stride < block
                || !stride.is_multiple_of(PAGE)
                || !bank.is_multiple_of(PAGE)
            {
                return Err(damaged(format!(
                    "expert blocks of {block} bytes cannot be {stride} apart from {bank} on"
                )));
            }
            match blocks
                .checked_mul(stride)
                .and_then(|size| size.checked_add(bank))
            {
                Some(end) if end <= length => {
                    places.push((bank, end, "its expert blocks".to_owned()));
                }
                Some(end) => {
                    return Err(Error::Length {
                        name: name.to_owned(),
                        expected: end,
                        actual: length,
                    });
                }
                None => {
                    return Err(damaged(format!(
                        "{blocks} expert blocks of {stride} bytes are impossible"
                    )));
                }
            }
        }
        let raw = bytes.read(directory..directory_end)?;
        for (index, raw) in raw
            .as_chunks::<{ ENTRY_BYTES as usize }>()
            .0
            .iter()
            .enumerate()
        {
            let (key, entry) = decode(raw)
                .map_err(|what| damaged(format!("entry {index} of its directory {what}")))?;
            let end = entry.offset.checked_add(entry.bytes);
            let Some(end) = end.filter(|&end| end <= length) else {
                return Err(match end {
                    // A cut file is the usual reason.
                    Some(end) if end < 1 << 50 => Error::Length {
                        name: name.to_owned(),
                        expected: end,
                        actual: length,
                    },
                    _ => damaged(format!(
                        "entry {index} of its directory lies outside the file"
                    )),
                });
            };
            places.push((
                entry.offset,
                end,
                format!("tensor {} of layer {}", key.0, key.1),
            ));
            // The original's converter lists a tied head a second time.
            if file.entries.insert(key, entry).is_some() && key.0 != 2 {
                return Err(damaged(format!(
                    "tensor {} of layer {} is listed twice",
                    key.0, key.1
                )));
            }
        }
        places.sort();
        if let Some(pair) = places
            .windows(2)
            .find(|pair| pair[1].0 < pair[0].1 && pair[1] != pair[0])
        {
            return Err(damaged(format!("{} overlaps {}", pair[1].2, pair[0].2)));
        }
        Ok(file)
    }

    pub fn get(&self, tid: u32, layer: u16, sub: u16) -> Option<&Entry> {
        self.entries.get(&(tid, layer, sub))
    }
}

fn decode(raw: &[u8; ENTRY_BYTES as usize]) -> std::result::Result<(Key, Entry), String> {
    let half = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
    let long = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&raw[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let key = (
        u32::from(half(0)) | u32::from(half(2)) << 16,
        half(4),
        half(6),
    );
    let dimensions = usize::from(half(10));
    let all = [long(16), long(24), long(32)];
    if !(1..=3).contains(&dimensions) || all[dimensions..].iter().any(|&size| size != 1) {
        return Err(format!("has {dimensions} dimensions and the sizes {all:?}"));
    }
    let (offset, bytes) = (long(40), long(48));
    let count = all.iter().try_fold(1u64, |n, &size| n.checked_mul(size));
    let (stored, expected) = match half(8) {
        1 => (
            Stored::Q8,
            count
                .filter(|n| n.is_multiple_of(32))
                .and_then(|n| (n / 32).checked_mul(34)),
        ),
        2 => (
            Stored::Plain(Dtype::Bf16),
            count.and_then(|n| n.checked_mul(2)),
        ),
        3 => (
            Stored::Plain(Dtype::F32),
            count.and_then(|n| n.checked_mul(4)),
        ),
        other => {
            return Err(format!(
                "has type {other}, which no model of version 2 uses"
            ));
        }
    };
    if expected != Some(bytes) || bytes == 0 {
        return Err(format!(
            "has {bytes} bytes, which is not what its sizes {all:?} need"
        ));
    }
    if !offset.is_multiple_of(PAGE) {
        return Err(format!("lies at {offset}, which is not on a page"));
    }
    let shape = all[..dimensions]
        .iter()
        .map(|&size| size as usize)
        .collect();
    Ok((
        key,
        Entry {
            stored,
            shape,
            offset,
            bytes,
        },
    ))
}
