//! Header, metadata and directory between bytes and values. The byte layout is documented at the top of the crate.

use std::hash::Hasher as _;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use twox_hash::xxhash3_64::Hasher;

use crate::layout::{Dtype, EffortTable, ExpertLayout, tensor_bytes};

pub(crate) const MAGIC: [u8; 4] = *b"FST\0";
pub(crate) const VERSION: u32 = 3;
pub(crate) const HEADER_BYTES: usize = 128;
pub(crate) const RECORD_ALIGNMENT: u64 = 4096;
pub(crate) const TENSOR_ALIGNMENT: u64 = 64;
/// Most bytes of config.json and of the metadata: bounds what parsing them can allocate.
pub(crate) const MOST_JSON_BYTES: u64 = 1 << 20;
const RESERVED_AT: usize = 112;
const CHECKSUM_AT: usize = 120;
const MOST_DIMENSIONS: usize = 4;
const MOST_NAME_BYTES: usize = 256;
/// Where in a directory entry its type is.
const TYPE_AT: usize = 24;
/// Bytes of a directory entry before its dimensions.
const ENTRY_BYTES: usize = 32;

/// The numbers in the header that are not derived from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub file_bytes: u64,
    pub config_bytes: u64,
    pub metadata_bytes: u64,
    pub directory_bytes: u64,
    pub tensors: u64,
    pub tokenizer_bytes: u64,
    pub tokenizer_checksum: u64,
    pub layers: u64,
    pub experts: u64,
    pub record_bytes: u64,
    pub record_stride: u64,
    pub records_offset: u64,
    pub index_offset: u64,
    pub index_checksum: u64,
}

/// Where every part of a file lies but the dense tensors, which the directory places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub config: Range<u64>,
    pub metadata: Range<u64>,
    pub directory: Range<u64>,
    pub checksums: Range<u64>,
    pub tokenizer: Range<u64>,
    pub records: Range<u64>,
}

/// What is in the metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Metadata {
    /// Program and version.
    pub creator: String,
    /// Where the weights came from.
    pub source: Source,
    /// Which effort texts the model was trained with, where that is known.
    pub effort: Option<EffortTable>,
    /// Layout of the expert records.
    pub layout: ExpertLayout,
    /// Made in place from a file of version 2: what is no longer used lies between the parts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub upgraded: bool,
    /// The lightning indexer's weights are there. Files of version 2 never had them.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub indexer: bool,
}

fn yes() -> bool {
    true
}
fn is_true(value: &bool) -> bool {
    *value
}
fn is_false(value: &bool) -> bool {
    !*value
}

/// Where the weights came from, as far as the folder told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// Name of the checkpoint's folder.
    pub folder: Option<String>,
    /// `owner/name`.
    pub repository: Option<String>,
    /// Commit.
    pub revision: Option<String>,
}

/// One tensor of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub offset: u64,
    pub bytes: u64,
    pub checksum: u64,
}

pub(crate) fn align(value: u64, to: u64) -> Option<u64> {
    value.checked_next_multiple_of(to)
}

impl Header {
    fn fields(&self) -> [u64; 13] {
        [
            self.file_bytes,
            self.config_bytes,
            self.metadata_bytes,
            self.directory_bytes,
            self.tensors,
            self.tokenizer_bytes,
            self.tokenizer_checksum,
            self.layers,
            self.experts,
            self.record_bytes,
            self.record_stride,
            self.records_offset,
            self.index_offset,
        ]
    }

    /// The header's bytes, index checksum included.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&VERSION.to_le_bytes());
        for (at, field) in out[8..].chunks_exact_mut(8).zip(self.fields()) {
            at.copy_from_slice(&field.to_le_bytes());
        }
        out[CHECKSUM_AT..].copy_from_slice(&self.index_checksum.to_le_bytes());
        out
    }

    /// Reads the fields after magic and version, which the caller has checked. Only the reserved bytes are looked at.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, String> {
        let field = |at: usize| {
            let mut raw = [0; 8];
            raw.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(raw)
        };
        if bytes[RESERVED_AT..CHECKSUM_AT].iter().any(|&b| b != 0) {
            return Err("reserved header bytes are not zero".into());
        }
        Ok(Self {
            file_bytes: field(8),
            config_bytes: field(16),
            metadata_bytes: field(24),
            directory_bytes: field(32),
            tensors: field(40),
            tokenizer_bytes: field(48),
            tokenizer_checksum: field(56),
            layers: field(64),
            experts: field(72),
            record_bytes: field(80),
            record_stride: field(88),
            records_offset: field(96),
            index_offset: field(104),
            index_checksum: field(CHECKSUM_AT),
        })
    }

    /// Where the parts lie; an error names the field that makes the file larger than 2^64 bytes or is out of its bounds.
    pub fn map(&self) -> Result<Map, String> {
        fn part(from: u64, to: u64, bytes: u64, name: &str) -> Result<Range<u64>, String> {
            let start = align(from, to);
            let end = start.and_then(|s| s.checked_add(bytes));
            match (start, end) {
                (Some(start), Some(end)) => Ok(start..end),
                _ => Err(format!("the size of its {name} ({bytes}) is impossible")),
            }
        }
        for (bytes, name) in [
            (self.config_bytes, "config"),
            (self.metadata_bytes, "metadata"),
        ] {
            if bytes > MOST_JSON_BYTES {
                return Err(format!(
                    "its {name} has {bytes} bytes and at most {MOST_JSON_BYTES} are allowed"
                ));
            }
        }
        if align(self.record_bytes, RECORD_ALIGNMENT) != Some(self.record_stride) {
            return Err(format!(
                "expert records of {} bytes cannot be {} apart",
                self.record_bytes, self.record_stride
            ));
        }
        let records = self
            .layers
            .checked_mul(self.experts)
            .filter(|n| n.checked_mul(8).is_some())
            .ok_or_else(|| {
                format!(
                    "{} layers of {} experts are impossible",
                    self.layers, self.experts
                )
            })?;
        let bank = records.checked_mul(self.record_stride).ok_or_else(|| {
            format!(
                "{records} expert records of {} bytes are impossible",
                self.record_stride
            )
        })?;
        if self.index_offset < HEADER_BYTES as u64 || !self.index_offset.is_multiple_of(8) {
            return Err(format!("its index cannot be at {}", self.index_offset));
        }
        if self.records_offset < HEADER_BYTES as u64
            || !self.records_offset.is_multiple_of(RECORD_ALIGNMENT)
        {
            return Err(format!(
                "its expert records cannot be at {}",
                self.records_offset
            ));
        }
        let config = part(self.index_offset, 1, self.config_bytes, "config")?;
        let metadata = part(config.end, 8, self.metadata_bytes, "metadata")?;
        let directory = part(metadata.end, 8, self.directory_bytes, "directory")?;
        let checksums = part(directory.end, 8, records * 8, "checksum table")?;
        let tokenizer = match self.tokenizer_bytes {
            0 => checksums.end..checksums.end,
            bytes => part(checksums.end, TENSOR_ALIGNMENT, bytes, "tokenizer")?,
        };
        let records = part(self.records_offset, 1, bank, "expert records")?;
        Ok(Map {
            config,
            metadata,
            directory,
            checksums,
            tokenizer,
            records,
        })
    }
}

/// Checksum over the header, but for the checksum itself, and the index.
pub(crate) fn index_checksum(header: &[u8; HEADER_BYTES], index: &[u8]) -> u64 {
    let mut hasher = Hasher::new();
    hasher.write(&header[..CHECKSUM_AT]);
    hasher.write(index);
    hasher.finish()
}

pub(crate) fn encode_directory(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    for entry in entries {
        out.extend_from_slice(&entry.offset.to_le_bytes());
        out.extend_from_slice(&entry.bytes.to_le_bytes());
        out.extend_from_slice(&entry.checksum.to_le_bytes());
        // What has no code has no place in a directory: nothing reads a type of zero.
        out.push(entry.dtype.code().unwrap_or(0));
        // The converter checks both against the limits below.
        out.push(entry.shape.len() as u8);
        out.extend_from_slice(&(entry.name.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for &size in &entry.shape {
            out.extend_from_slice(&(size as u64).to_le_bytes());
        }
        out.extend_from_slice(entry.name.as_bytes());
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out
}

/// Whether a name and shape fit into a directory entry.
pub(crate) fn fits_directory(name: &str, dimensions: usize) -> bool {
    (1..=MOST_NAME_BYTES).contains(&name.len()) && dimensions <= MOST_DIMENSIONS
}

impl Map {
    /// The index with the tokenizer behind it.
    pub fn index(&self) -> Range<u64> {
        self.config.start..self.tokenizer.end
    }

    /// Checks that nothing overlaps and that the last part ends with the file. `entries` are ordered by offset. Unless `gaps` are allowed,
    /// only what alignment needs may lie between two parts.
    pub fn check_places(
        &self,
        entries: &[Entry],
        file_bytes: u64,
        gaps: bool,
    ) -> Result<(), String> {
        let mut fixed = [
            (self.index(), "its index"),
            (self.records.clone(), "its expert records"),
        ];
        fixed.sort_by_key(|(range, _)| range.start);
        let mut fixed = fixed.into_iter().peekable();
        let mut free_from = HEADER_BYTES as u64;
        let mut tensors = entries
            .iter()
            .map(|entry| (entry.offset..entry.offset + entry.bytes, entry));
        let mut tensor = tensors.next();
        loop {
            // Whichever comes next in the file.
            let before = match (&tensor, fixed.peek()) {
                (Some((range, _)), Some((part, _))) => range.start < part.start,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => break,
            };
            let (range, name) = if before {
                let Some((range, entry)) = tensor.take() else {
                    break;
                };
                tensor = tensors.next();
                (
                    range,
                    format!("tensor {}", crate::error::shown(&entry.name)),
                )
            } else {
                let Some((range, name)) = fixed.next() else {
                    break;
                };
                (range, name.to_owned())
            };
            if range.start < free_from {
                return Err(format!("{name} overlaps the part before it"));
            }
            if !gaps && range.start - free_from >= RECORD_ALIGNMENT {
                return Err(format!(
                    "{} bytes before {name} belong to nothing",
                    range.start - free_from
                ));
            }
            free_from = range.end;
        }
        if free_from != file_bytes {
            return Err(format!(
                "its parts end at {free_from} and the file at {file_bytes}"
            ));
        }
        Ok(())
    }
}

/// Reads the directory and checks that every tensor has exactly the bytes its type and shape need, starts aligned and not before the one
/// that is listed before it, and ends within `file_bytes`.
pub(crate) fn decode_directory(
    mut bytes: &[u8],
    count: u64,
    file_bytes: u64,
) -> Result<Vec<Entry>, String> {
    // Every entry has at least ENTRY_BYTES and a name: a count beyond that is a lie and must not become an allocation.
    if count > (bytes.len() / (ENTRY_BYTES + 8)) as u64 {
        return Err(format!(
            "its directory of {} bytes cannot hold {count} tensors",
            bytes.len()
        ));
    }
    let mut entries = Vec::with_capacity(count as usize);
    let mut last = 0;
    for index in 0..count {
        if let Some(&code) = bytes.get(TYPE_AT)
            && Dtype::from_code(code).is_none()
        {
            return Err(format!(
                "entry {index} of its directory has type {code}, which is none of a dense tensor"
            ));
        }
        let (entry, rest) = decode_entry(bytes)
            .ok_or_else(|| format!("entry {index} of its directory is not readable"))?;
        bytes = rest;
        let name = crate::error::shown(&entry.name);
        if tensor_bytes(entry.dtype, &entry.shape).map(|n| n as u64) != Some(entry.bytes) {
            return Err(format!(
                "tensor {name} of shape {:?} and type {} cannot have {} bytes",
                entry.shape,
                entry.dtype.name(),
                entry.bytes
            ));
        }
        if !entry.offset.is_multiple_of(TENSOR_ALIGNMENT) {
            return Err(format!(
                "tensor {name} at offset {} is not aligned to {TENSOR_ALIGNMENT} bytes",
                entry.offset
            ));
        }
        if entry
            .offset
            .checked_add(entry.bytes)
            .is_none_or(|end| end > file_bytes)
        {
            return Err(format!(
                "tensor {name} ({} bytes at offset {}) lies outside the file",
                entry.bytes, entry.offset
            ));
        }
        if entry.offset < last {
            return Err(format!(
                "tensor {name} lies before the one listed before it"
            ));
        }
        last = entry.offset;
        entries.push(entry);
    }
    if !bytes.is_empty() {
        return Err(format!(
            "its directory has {} bytes after the last tensor",
            bytes.len()
        ));
    }
    Ok(entries)
}

fn decode_entry(bytes: &[u8]) -> Option<(Entry, &[u8])> {
    let (head, mut rest) = bytes.split_first_chunk::<ENTRY_BYTES>()?;
    let field = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?))
    };
    let dtype = Dtype::from_code(head[TYPE_AT])?;
    let dimensions = usize::from(head[25]);
    let name_bytes = usize::from(u16::from_le_bytes([head[26], head[27]]));
    if head[28..] != [0; 4]
        || dimensions > MOST_DIMENSIONS
        || !(1..=MOST_NAME_BYTES).contains(&name_bytes)
    {
        return None;
    }
    let mut shape = Vec::with_capacity(dimensions);
    for _ in 0..dimensions {
        let (size, after) = rest.split_first_chunk::<8>()?;
        shape.push(usize::try_from(u64::from_le_bytes(*size)).ok()?);
        rest = after;
    }
    let (name, rest) = rest.split_at_checked(name_bytes.next_multiple_of(8))?;
    let (name, padding) = name.split_at_checked(name_bytes)?;
    if padding.iter().any(|&b| b != 0) {
        return None;
    }
    let entry = Entry {
        name: std::str::from_utf8(name).ok()?.to_owned(),
        dtype,
        shape,
        offset: field(0)?,
        bytes: field(8)?,
        checksum: field(16)?,
    };
    Some((entry, rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_header_survives_its_bytes() {
        let header = Header {
            file_bytes: 1,
            config_bytes: 2,
            metadata_bytes: 3,
            directory_bytes: 4,
            tensors: 5,
            tokenizer_bytes: 6,
            tokenizer_checksum: 7,
            layers: 8,
            experts: 9,
            record_bytes: 10,
            record_stride: 11,
            records_offset: 12,
            index_offset: 13,
            index_checksum: 14,
        };
        let bytes = header.encode();
        assert_eq!(&bytes[..8], b"FST\0\x03\0\0\0");
        assert_eq!(Header::decode(&bytes), Ok(header));
    }

    #[test]
    fn checksums_are_the_published_xxh3_64() {
        // From the XXH3 specification's sanity values: the empty input and seed 0.
        assert_eq!(Hasher::oneshot(&[]), 0x2d06_8005_38d3_94c2);
        let mut split = Hasher::new();
        split.write(b"gate|");
        split.write(b"up");
        assert_eq!(split.finish(), Hasher::oneshot(b"gate|up"));
    }
}
