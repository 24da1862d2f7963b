//! An open container: mapped, checked, borrowed from.

use std::fs::{self, File};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::Mmap;
use serde_json::Value;
use twox_hash::xxhash3_64::Hasher;

use crate::error::{Error, Result, shown, shown_path};
use crate::format::{
    Entry, HEADER_BYTES, Header, MAGIC, Metadata, Source, VERSION, decode_directory, index_checksum,
};
use crate::layout::{EffortTable, ExpertLayout, Tensor};
use crate::upgrade::is_unfinished;
use crate::v2;
use crate::verify::{CheckedPart, Part};

/// An open container, mapped read-only; cheap to share between threads.
///
/// The file must not be truncated by anyone while it is open: the system answers a read behind the new end by ending the process.
/// Replacing the file (as [`convert`](crate::convert) does) is safe, the old content stays readable.
pub struct Container {
    bytes: Bytes,
    /// The file, for error messages.
    name: String,
    version: u32,
    identity: u64,
    config: Value,
    config_text: Vec<u8>,
    tokenizer: Text,
    tokenizer_checksum: u64,
    metadata: Metadata,
    entries: Vec<Entry>,
    /// Which file each entry is in: 0 is this one, then `sidecars`. Empty when all are here.
    sources: Vec<usize>,
    sidecars: Vec<Bytes>,
    /// What follows the main file's name in theirs.
    suffixes: Vec<&'static str>,
    /// Where the records begin.
    records: u64,
    /// Where their checksums are; version 2 has none.
    checksums: Option<Range<u64>>,
    /// Indices into `entries`, ordered by tensor name.
    by_name: Vec<usize>,
    layers: usize,
    experts: usize,
    stride: usize,
    /// One bit per expert: checksum seen to match.
    verified: Vec<AtomicU64>,
}

/// A whole file.
pub(crate) enum Bytes {
    Mapped(Mmap),
    Static(&'static [u8]),
}

/// tokenizer.json: a part of the file, or one of its own.
enum Text {
    Here(Range<u64>),
    Own(Option<Vec<u8>>),
}

/// Whether a damaged tokenizer is an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tokenizer {
    Whole,
    Any,
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Static(bytes) => bytes,
        }
    }
}

impl Container {
    /// Opens and checks structure, header checksum and every offset; reads no weights but the few that tell whether the files of version 2
    /// belong together.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_file(path, Tokenizer::Whole)
    }

    /// Opens a container to find out what is damaged: the tokenizer may be.
    pub(crate) fn open_with_any_tokenizer(path: &Path) -> Result<Self> {
        Self::open_file(path, Tokenizer::Any)
    }

    fn open_file(path: &Path, tokenizer: Tokenizer) -> Result<Self> {
        let name = shown_path(path);
        let bytes = map(path)?;
        if is_version_2(&bytes) {
            return Self::version_2(path, bytes, name);
        }
        Self::new(bytes, name, tokenizer)
    }

    fn version_2(path: &Path, bytes: Bytes, name: String) -> Result<Self> {
        let model = v2::open(path, &bytes)?;
        let (sources, entries): (Vec<_>, Vec<_>) = model.entries.into_iter().unzip();
        let config_text = model.config.to_string().into_bytes();
        Ok(Self {
            version: v2::VERSION,
            identity: model.identity,
            config: model.config,
            config_text,
            tokenizer: Text::Own(model.tokenizer),
            tokenizer_checksum: 0,
            metadata: Metadata {
                creator: "the original FaStar".to_owned(),
                source: Source::default(),
                effort: Some(EffortTable::Preview),
                layout: model.layout,
                upgraded: false,
                indexer: false,
            },
            by_name: by_name(&entries),
            entries,
            sources,
            sidecars: model.sidecars,
            suffixes: model.suffixes,
            records: model.bank,
            checksums: None,
            layers: model.layers,
            experts: model.experts,
            stride: model.stride as usize,
            verified: seen(model.layers * model.experts),
            bytes,
            name,
        })
    }

    /// The same for a container that is already in memory (the embedded demo).
    pub fn from_static(bytes: &'static [u8]) -> Result<Self> {
        Self::new(
            Bytes::Static(bytes),
            "The built-in model".to_owned(),
            Tokenizer::Whole,
        )
    }

    fn new(bytes: Bytes, name: String, required: Tokenizer) -> Result<Self> {
        let damaged = |what: String| Error::Damaged {
            name: name.clone(),
            what,
        };
        let header_bytes = check_start(&bytes, &name)?;
        let header = Header::decode(header_bytes).map_err(damaged)?;
        let actual = bytes.len() as u64;
        if header.file_bytes != actual {
            return Err(Error::Length {
                name,
                expected: header.file_bytes,
                actual,
            });
        }
        let map = header.map().map_err(damaged)?;
        let index = map.index();
        if index.end > actual || map.records.end > actual {
            return Err(damaged(format!(
                "its parts end at {} and the file at {actual}",
                index.end.max(map.records.end)
            )));
        }
        // The index and the records are inside the file; the tensors are checked with the directory.
        let part = |range: &Range<u64>| {
            usize::try_from(range.start)
                .ok()
                .zip(usize::try_from(range.end).ok())
                .and_then(|(start, end)| bytes.get(start..end))
                .ok_or_else(|| damaged("a part lies outside the file".into()))
        };
        let index = part(&(map.config.start..map.checksums.end))?;
        if index_checksum(header_bytes, index) != header.index_checksum {
            return Err(Error::Checksum {
                name,
                what: "its header and directory".into(),
            });
        }
        let config: Value = serde_json::from_slice(part(&map.config)?)
            .map_err(|e| damaged(format!("its config is not valid JSON ({e})")))?;
        let metadata: Metadata = serde_json::from_slice(part(&map.metadata)?)
            .map_err(|e| damaged(format!("its metadata is not readable ({e})")))?;
        if !metadata.layout.is_consistent() {
            return Err(damaged(format!(
                "its expert layout {} is unknown or contradicts itself",
                shown(&metadata.layout.id)
            )));
        }
        if metadata.layout.bytes as u64 != header.record_bytes {
            return Err(damaged(format!(
                "its expert layout has {} bytes and its records {}",
                metadata.layout.bytes, header.record_bytes
            )));
        }
        for (field, there_are) in [
            ("num_hidden_layers", header.layers),
            ("n_routed_experts", header.experts),
        ] {
            if there_are == 0 || config[field].as_u64() != Some(there_are) {
                return Err(damaged(format!(
                    "it has {} layers of {} experts, and its config another {field}",
                    header.layers, header.experts
                )));
            }
        }
        let tokenizer = part(&map.tokenizer)?;
        let tokenizer_checksum = match tokenizer {
            [] => 0,
            text => Hasher::oneshot(text),
        };
        if required == Tokenizer::Whole && tokenizer_checksum != header.tokenizer_checksum {
            return Err(Error::Checksum {
                name,
                what: "its tokenizer".into(),
            });
        }
        let entries =
            decode_directory(part(&map.directory)?, header.tensors, actual).map_err(damaged)?;
        map.check_places(&entries, actual, metadata.upgraded)
            .map_err(damaged)?;
        let by_name = by_name(&entries);
        if let Some(twice) = by_name
            .windows(2)
            .find(|pair| entries[pair[0]].name == entries[pair[1]].name)
        {
            return Err(damaged(format!(
                "tensor {} is listed twice",
                shown(&entries[twice[0]].name)
            )));
        }
        // Bounded by the file: the checksum table and the records of layers x experts are inside it.
        let counts = |value: u64| {
            usize::try_from(value).map_err(|_| damaged("it is too large for this machine".into()))
        };
        let (layers, experts) = (counts(header.layers)?, counts(header.experts)?);
        let stride = counts(header.record_stride)?;
        tracing::debug!(
            tensors = entries.len(),
            layers,
            experts,
            bytes = actual,
            "container opened"
        );
        Ok(Self {
            version: VERSION,
            identity: header.index_checksum,
            config_text: part(&map.config)?.to_vec(),
            config,
            tokenizer: Text::Here(map.tokenizer),
            tokenizer_checksum: header.tokenizer_checksum,
            metadata,
            entries,
            sources: Vec::new(),
            sidecars: Vec::new(),
            suffixes: Vec::new(),
            by_name,
            records: map.records.start,
            checksums: Some(map.checksums),
            layers,
            experts,
            stride,
            verified: seen(layers * experts),
            bytes,
            name,
        })
    }

    /// The checkpoint's config.json, parsed.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// The checkpoint's config.json byte for byte; made from the tensors for version 2, which has none.
    pub fn config_text(&self) -> &[u8] {
        &self.config_text
    }

    /// tokenizer.json byte for byte, if the checkpoint had one.
    pub fn tokenizer(&self) -> Option<&[u8]> {
        match &self.tokenizer {
            Text::Here(range) => Some(self.part(range)).filter(|text| !text.is_empty()),
            Text::Own(text) => text.as_deref(),
        }
    }

    /// A dense tensor by its original name (`layers.0.attn.wq_a.weight`), scales by theirs (`....scale`).
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.find(name).map(|index| self.view(index))
    }

    /// All dense tensors, in file order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Tensor<'_>)> {
        self.entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (entry.name.as_str(), self.view(index)))
    }

    /// Checks one dense tensor against its checksum, every time it is called: reads all its bytes. Call it once, when loading.
    pub fn verify_tensor(&self, name: &str) -> Result<()> {
        let index = self.find(name).ok_or_else(|| Error::NoSuchTensor {
            name: self.name.clone(),
            tensor: name.to_owned(),
        })?;
        self.verify_entry(index)
    }

    /// Checks every dense tensor and every expert against its checksum: reads the whole file. `progress` gets bytes done and bytes in all.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let total = self.entries.iter().map(|entry| entry.bytes).sum::<u64>()
            + (self.layers * self.experts) as u64 * self.metadata.layout.bytes as u64;
        let mut done = 0;
        for (index, entry) in self.entries.iter().enumerate() {
            self.verify_entry(index)?;
            done += entry.bytes;
            progress(done, total);
        }
        for layer in 0..self.layers {
            for expert in 0..self.experts {
                self.check_record(layer, expert, self.record(layer, expert))?;
                done += self.metadata.layout.bytes as u64;
                progress(done, total);
            }
        }
        Ok(())
    }

    /// Which effort texts the model was trained with, where that is known.
    pub fn effort_table(&self) -> Option<EffortTable> {
        self.metadata.effort
    }

    /// Whether the lightning indexer's weights are there.
    pub fn has_indexer(&self) -> bool {
        self.metadata.indexer
    }

    /// Positions for which the model is exact, where that is fewer than its config says. Without the indexer's weights nothing can pick
    /// among compressed rows, and nothing has to as long as there are no more rows than it would pick: `index_topk` rows of four positions.
    pub fn exact_positions(&self) -> Option<usize> {
        let layers = self.config["compress_ratios"].as_array()?;
        let indexed = layers
            .iter()
            .take(self.layers)
            .any(|ratio| ratio.as_u64() == Some(4));
        if self.metadata.indexer || !indexed {
            return None;
        }
        let picked = self.config["index_topk"].as_u64().unwrap_or(0);
        usize::try_from(picked.saturating_mul(4)).ok()
    }

    /// What this file cannot do and what to do about it, a sentence for people.
    pub fn limit(&self) -> Option<String> {
        self.exact_positions().map(|positions| {
            format!(
                "This file has no weights for the lightning indexer, so it is exact for {} positions and limited to them; convert the original checkpoint for longer chats.",
                crate::inspect::grouped(positions as u64)
            )
        })
    }

    /// Layout of the expert records.
    pub fn expert_layout(&self) -> &ExpertLayout {
        &self.metadata.layout
    }

    /// Number of layers with experts and experts per layer.
    pub fn expert_counts(&self) -> (usize, usize) {
        (self.layers, self.experts)
    }

    /// One expert's record, exactly `expert_layout().bytes` long. Its checksum is verified on the first call for each
    /// expert; a damaged record is an error naming layer and expert.
    pub fn expert(&self, layer: usize, expert: usize) -> Result<&[u8]> {
        if layer >= self.layers || expert >= self.experts {
            return Err(Error::NoSuchExpert {
                name: self.name.clone(),
                layer,
                expert,
                layers: self.layers,
                experts: self.experts,
            });
        }
        let record = self.record(layer, expert);
        let index = layer * self.experts + expert;
        let (word, bit) = (&self.verified[index / 64], 1u64 << (index % 64));
        // Relaxed: the bit says something about bytes that never change; two threads may both verify, with the same outcome.
        if word.load(Ordering::Relaxed) & bit == 0 {
            self.check_record(layer, expert, record)?;
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(record)
    }

    /// All bytes of the file. Every record and tensor is a slice of them, so a user can remember where its tensors lie, except those that
    /// version 2 keeps in sidecars.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Size in bytes, sidecars included.
    pub fn file_bytes(&self) -> u64 {
        self.sidecars
            .iter()
            .chain([&self.bytes])
            .map(|bytes| bytes.len() as u64)
            .sum()
    }

    /// Identity of this container: a hash over header, directory and all checksums (for version 2, which has none, over the directory, some
    /// weights and the sidecars). Equal files have equal identities.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Every part that has a checksum of its own, in the order of the index; none for version 2.
    pub(crate) fn checked_parts(&self) -> impl Iterator<Item = CheckedPart> + '_ {
        let tokenizer = match (&self.tokenizer, &self.checksums) {
            (Text::Here(range), Some(_)) if !range.is_empty() => Some(CheckedPart {
                part: Part::Tokenizer,
                offset: range.start,
                bytes: range.end - range.start,
                checksum: self.tokenizer_checksum,
                dtype: None,
            }),
            _ => None,
        };
        let checksums = self.checksums.clone();
        let entries = match checksums {
            Some(_) => self.entries.as_slice(),
            None => &[],
        };
        let dense = entries.iter().map(|entry| CheckedPart {
            part: Part::Tensor(entry.name.clone()),
            offset: entry.offset,
            bytes: entry.bytes,
            checksum: entry.checksum,
            dtype: Some(entry.dtype),
        });
        let (sums, _) = self.part(&checksums.unwrap_or(0..0)).as_chunks::<8>();
        let records = sums.iter().enumerate().map(|(number, sum)| CheckedPart {
            part: Part::Expert {
                layer: number / self.experts,
                expert: number % self.experts,
            },
            offset: self.records + (number * self.stride) as u64,
            bytes: self.metadata.layout.bytes as u64,
            checksum: u64::from_le_bytes(*sum),
            dtype: None,
        });
        tokenizer.into_iter().chain(dense).chain(records)
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Where the records begin, and how far apart they are.
    pub(crate) fn record_places(&self) -> (u64, u64) {
        (self.records, self.stride as u64)
    }

    /// All dense tensors with the suffix of the sidecar they are in; none for this file.
    pub(crate) fn places(&self) -> impl Iterator<Item = (Option<&'static str>, &Entry)> {
        self.entries.iter().enumerate().map(|(index, entry)| {
            let source = self.sources.get(index).copied().unwrap_or(0);
            let suffix = source.checked_sub(1).map(|sidecar| self.suffixes[sidecar]);
            (suffix, entry)
        })
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.by_name
            .binary_search_by(|&index| self.entries[index].name.as_str().cmp(name))
            .ok()
            .map(|found| self.by_name[found])
    }

    fn view(&self, index: usize) -> Tensor<'_> {
        let entry = &self.entries[index];
        let bytes: &[u8] = match self.sources.get(index) {
            None | Some(0) => &self.bytes,
            Some(sidecar) => &self.sidecars[sidecar - 1],
        };
        Tensor {
            dtype: entry.dtype,
            shape: &entry.shape,
            data: &bytes[entry.offset as usize..(entry.offset + entry.bytes) as usize],
        }
    }

    fn verify_entry(&self, index: usize) -> Result<()> {
        let entry = &self.entries[index];
        if self.checksums.is_none() || Hasher::oneshot(self.view(index).data) == entry.checksum {
            return Ok(());
        }
        Err(Error::Checksum {
            name: self.name.clone(),
            what: format!("tensor {}", shown(&entry.name)),
        })
    }

    fn check_record(&self, layer: usize, expert: usize, record: &[u8]) -> Result<()> {
        let Some(checksums) = &self.checksums else {
            // Version 2 has none, but its converter wrote zeros for an expert it did not find.
            return match record.iter().any(|&b| b != 0) {
                true => Ok(()),
                false => Err(Error::Original {
                    message: format!(
                        "{} has nothing but zeros for expert {expert} of layer {layer}: it was missing when the file was made. Download the file again, or convert the original checkpoint with `fastar convert`.",
                        self.name
                    ),
                }),
            };
        };
        let at = (layer * self.experts + expert) as u64 * 8 + checksums.start;
        let stored = self.part(&(at..at + 8));
        if Hasher::oneshot(record).to_le_bytes() == stored {
            return Ok(());
        }
        Err(Error::Checksum {
            name: self.name.clone(),
            what: format!("expert {expert} of layer {layer}"),
        })
    }

    fn record(&self, layer: usize, expert: usize) -> &[u8] {
        let start = self.records as usize + (layer * self.experts + expert) * self.stride;
        &self.bytes[start..start + self.metadata.layout.bytes]
    }

    /// A part whose range was checked against the file when it was opened.
    fn part(&self, range: &Range<u64>) -> &[u8] {
        &self.bytes[range.start as usize..range.end as usize]
    }
}

fn by_name(entries: &[Entry]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_unstable_by(|&a, &b| entries[a].name.cmp(&entries[b].name));
    order
}

fn seen(records: usize) -> Vec<AtomicU64> {
    (0..records.div_ceil(64))
        .map(|_| AtomicU64::new(0))
        .collect()
}

fn is_version_2(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) && bytes.get(4..8) == Some(&v2::VERSION.to_le_bytes())
}

/// Maps a file that may be a container.
pub(crate) fn map(path: &Path) -> Result<Bytes> {
    let io = |source| Error::io("open", path, source);
    // Before opening: a named pipe would wait for a writer for ever.
    let about = fs::metadata(path).map_err(io)?;
    let name = shown_path(path);
    if !about.is_file() {
        return Err(Error::NotAContainer {
            name,
            found: if about.is_dir() {
                "is a folder".into()
            } else {
                "is not a regular file".into()
            },
        });
    }
    if about.len() == 0 {
        return Err(Error::NotAContainer {
            name,
            found: "is empty".into(),
        });
    }
    let file = File::open(path).map_err(io)?;
    // SAFETY: the mapping is read-only and private to its owner, and the crate's contract (documented on `Container`) is that
    // nobody truncates or rewrites the file in place while it is open; our own converter only ever replaces files by rename.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    Ok(Bytes::Mapped(map))
}

/// Checks length, magic and version, in the order that gives a person the most useful answer.
fn check_start<'a>(bytes: &'a [u8], name: &str) -> Result<&'a [u8; HEADER_BYTES]> {
    let name = name.to_owned();
    if !bytes.starts_with(&MAGIC) {
        let found = match bytes {
            [] => "is empty".into(),
            [b'G', b'G', b'U', b'F', ..] => "is a GGUF file".into(),
            [b'P', b'K', ..] => "is a ZIP archive".into(),
            [0, 0, 0, 0, ..] => "begins with zeros, so it was never finished (an interrupted conversion or download)".into(),
            [b'<', ..] => "looks like a web page, perhaps a failed download".into(),
            [_, _, _, _, _, _, _, _, b'{', ..] => "looks like a safetensors file".into(),
            other => format!(
                "starts with {:?}",
                String::from_utf8_lossy(&other[..other.len().min(4)])
            ),
        };
        return Err(Error::NotAContainer { name, found });
    }
    let version = bytes
        .get(4..8)
        .and_then(|v| <[u8; 4]>::try_from(v).ok())
        .map(u32::from_le_bytes);
    match version {
        Some(VERSION) | None => {}
        Some(v2::VERSION) => return Err(Error::OldVersion { name }),
        Some(version) if is_unfinished(version) => {
            return Err(Error::Original {
                message: format!(
                    "The upgrade of {name} was interrupted; run `fastar upgrade {name}` again."
                ),
            });
        }
        Some(found) => {
            return Err(Error::Version {
                name,
                found,
                hint: if found > VERSION {
                    "Update FaStar to open it."
                } else {
                    "Convert the original checkpoint with `fastar convert`."
                },
            });
        }
    }
    bytes.first_chunk().ok_or(Error::Length {
        name,
        expected: HEADER_BYTES as u64,
        actual: bytes.len() as u64,
    })
}
