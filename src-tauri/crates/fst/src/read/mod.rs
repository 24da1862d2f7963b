//! An open container: checked, and read from.

mod checked;
mod file;
mod open;
mod places;
mod seen;

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use serde_json::Value;
use twox_hash::xxhash3_64::Hasher;

use crate::error::{Error, Result, shown_path};
use crate::format::{Entry, HEADER_BYTES, Metadata};
use crate::layout::{EffortTable, ExpertLayout, Tensor};
use crate::remedy::Remedy;

use file::is_version_2;
pub(crate) use file::{Bytes, open};
pub use places::{DensePlace, Records};
pub(crate) use seen::Seen;

/// An open container; cheap to share between threads.
///
/// What opening it does not need is read when it is asked for, by the number of the open file: another file that takes its name (as
/// [`convert`](crate::convert) does) changes nothing, and one that was cut short meanwhile is an error.
pub struct Container {
    bytes: Bytes,
    /// The file, for error messages.
    name: String,
    version: u32,
    identity: u64,
    config: Value,
    config_text: Vec<u8>,
    tokenizer: Text,
    metadata: Metadata,
    entries: Vec<Entry>,
    /// Which file each entry is in: 0 is this one, then `sidecars`. Empty when all are here.
    sources: Vec<usize>,
    sidecars: Vec<Bytes>,
    /// What follows the main file's name in theirs.
    suffixes: Vec<&'static str>,
    records: Records,
    /// Where their checksums are; version 2 has none.
    checksums: Option<Range<u64>>,
    /// Indices into `entries`, ordered by tensor name.
    by_name: Vec<usize>,
    layers: usize,
    experts: usize,
    /// One bit per expert: checksum seen to match. For bytes in memory, which cannot change.
    verified: Vec<AtomicU64>,
}

/// tokenizer.json: a part of the file with its checksum, or a file of its own.
enum Text {
    Here(Range<u64>, u64),
    Own(Option<Vec<u8>>),
}

/// Whether a damaged tokenizer is an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tokenizer {
    Whole,
    Any,
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
        let bytes = open(path)?;
        if is_version_2(&bytes.start(8)?) {
            return Self::version_2(path, bytes, name);
        }
        Self::new(bytes, name, tokenizer)
    }

    /// The same for a container that is already in memory (the embedded demo).
    pub fn from_static(bytes: &'static [u8]) -> Result<Self> {
        Self::new(
            Bytes::Static(bytes),
            "The built-in model".to_owned(),
            Tokenizer::Whole,
        )
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
    pub fn tokenizer(&self) -> Result<Option<Cow<'_, [u8]>>> {
        match &self.tokenizer {
            Text::Here(range, _) if range.is_empty() => Ok(None),
            Text::Here(range, checksum) => {
                let text = self.bytes.read(range.clone())?;
                match Hasher::oneshot(&text) == *checksum {
                    true => Ok(Some(text)),
                    false => Err(Error::Checksum {
                        name: self.name.clone(),
                        what: "its tokenizer".into(),
                        remedy: self.remedy(),
                    }),
                }
            }
            Text::Own(text) => Ok(text.as_deref().map(Cow::Borrowed)),
        }
    }

    /// Bytes of tokenizer.json, if the checkpoint had one.
    pub fn tokenizer_bytes(&self) -> Option<u64> {
        match &self.tokenizer {
            Text::Here(range, _) => Some(range.end - range.start).filter(|bytes| *bytes > 0),
            Text::Own(text) => text.as_ref().map(|text| text.len() as u64),
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
                "This file has no weights for the lightning indexer, so it is exact for {} tokens and limited to them; convert the original checkpoint for longer chats.",
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

    /// All bytes of a container in memory, in which every record and tensor has its place; none for a file.
    pub fn in_memory(&self) -> Option<&'static [u8]> {
        match self.bytes {
            Bytes::Static(bytes) => Some(bytes),
            Bytes::File { .. } => None,
        }
    }

    /// Bytes of the main file, without sidecars.
    pub fn length(&self) -> u64 {
        self.bytes.length()
    }

    /// Size in bytes, sidecars included.
    pub fn file_bytes(&self) -> u64 {
        self.sidecars
            .iter()
            .chain([&self.bytes])
            .map(Bytes::length)
            .sum()
    }

    /// Identity of this container: a hash over header, directory and all checksums (for version 2, which has none, over the directory, some
    /// weights and the sidecars). Equal files have equal identities.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// What helps where a checksum does not match.
    pub fn remedy(&self) -> Remedy {
        self.records.remedy
    }

    /// Keeps other FaStars from deleting or rewriting the file for as long as this container is there, however the process ends. Where the file
    /// system has no locks, nothing does.
    pub fn hold(&self) {
        if let Some(Err(error)) = self.file().map(std::fs::File::try_lock_shared) {
            tracing::debug!(%error, "the model file is not held");
        }
    }

    /// Version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The bytes of the header.
    pub(crate) fn start(&self) -> Result<Vec<u8>> {
        Ok(self.bytes.start(HEADER_BYTES as u64)?.into_owned())
    }

    /// Fills `buffer` with the bytes of the main file from `at` on.
    pub(crate) fn fill(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        self.bytes.fill(buffer, at)
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Where the records begin, and how far apart they are.
    pub(crate) fn record_places(&self) -> (u64, u64) {
        (self.records.first, self.records.stride)
    }

    /// Where the checksums of the records are; version 2 has none.
    pub(crate) fn checksums_place(&self) -> Option<u64> {
        self.checksums.as_ref().map(|range| range.start)
    }

    /// Where tokenizer.json is in this file, if it is in it.
    pub(crate) fn tokenizer_place(&self) -> Option<Range<u64>> {
        match &self.tokenizer {
            Text::Here(range, _) if !range.is_empty() => Some(range.clone()),
            _ => None,
        }
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
        Tensor {
            dtype: entry.dtype,
            shape: &entry.shape,
            bytes: entry.bytes,
        }
    }

    /// The file that an entry is in.
    fn source(&self, index: usize) -> &Bytes {
        match self.sources.get(index) {
            None | Some(0) => &self.bytes,
            Some(sidecar) => &self.sidecars[sidecar - 1],
        }
    }
}
