//! The tensors of a checkpoint: which there are, in which shard, of which type and shape, and whether shards and index agree. What the
//! tensors mean is the inventory's business.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use safetensors::Dtype as StoredType;
use safetensors::tensor::{Metadata as ShardMetadata, TensorInfo};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use twox_hash::xxhash3_64::Hasher;

use super::checkpoint::{Checkpoint, INDEX, ShardHeader, read_header};
use crate::error::{Error, Result, json_problem, shown};

const PIECE_BYTES: usize = 1 << 20;
/// Problems of one kind that are listed by name.
pub(crate) const LISTED: usize = 3;
/// Shards and entries of the index that are listed by name.
const LISTED_FILES: usize = 12;

/// All tensors of a checkpoint.
pub(crate) struct Tensors {
    /// What errors call the checkpoint.
    pub place: PathBuf,
    pub shards: Vec<Shard>,
    /// By shard, and by place within it.
    pub all: Vec<StoredTensor>,
    by_name: HashMap<String, usize>,
    /// Tensors that the index lists in shards which cannot be looked into.
    unseen: BTreeSet<String>,
}

/// A shard that can be used.
pub(crate) struct Shard {
    pub name: String,
    pub file_bytes: u64,
    /// Stands for name, length, header and version.
    pub fingerprint: u64,
    header: u64,
}

/// One tensor in a shard.
#[derive(Clone, Debug)]
pub(crate) struct StoredTensor {
    pub name: String,
    pub dtype: StoredType,
    pub shape: Vec<usize>,
    /// Length in bytes.
    pub bytes: u64,
    pub shard: usize,
    /// In the shard's file.
    pub offset: u64,
}

impl Tensors {
    /// Reads all headers. What is wrong with shards and index comes second, one error for all of it.
    pub fn read(checkpoint: &Checkpoint) -> Result<(Self, Option<Error>)> {
        let mut tensors = Self {
            place: checkpoint.place.clone(),
            shards: Vec::new(),
            all: Vec::new(),
            by_name: HashMap::new(),
            unseen: BTreeSet::new(),
        };
        let mut problems = Vec::new();
        let index = checkpoint.weight_map()?;
        for (name, why) in &checkpoint.unusable {
            problems.push(format!("{} {why}", shown(name)));
        }
        let mut shards: Vec<_> = checkpoint.shards.iter().collect();
        shards.sort_by(|a, b| a.name.cmp(&b.name));
        for shard in shards {
            if index
                .as_ref()
                .is_none_or(|index| index.values().any(|name| *name == shard.name))
            {
                tensors.add(shard, &mut problems);
            }
        }
        match &index {
            Some(index) => tensors.compare(index, checkpoint, &mut problems),
            None if checkpoint.shards.len() + checkpoint.unusable.len() == 1 => {}
            None => problems.push(format!(
                "it has {} safetensors files but no {INDEX}",
                checkpoint.shards.len() + checkpoint.unusable.len()
            )),
        }
        let problem = (!problems.is_empty()).then(|| Error::Checkpoint {
            path: checkpoint.place.clone(),
            problem: format!("{}.", listed(&problems, "; ", LISTED_FILES)),
        });
        Ok((tensors, problem))
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Whether the index lists it in a shard that cannot be looked into, so that nothing can be said about it.
    pub fn is_unseen(&self, name: &str) -> bool {
        self.unseen.contains(name)
    }

    /// Opens a shard's file and checks that it is the one its header was read of.
    pub fn open(&self, shard: usize, path: &Path) -> Result<ShardFile> {
        let shard = &self.shards[shard];
        let fail = |problem: String| Error::Checkpoint {
            path: path.to_owned(),
            problem: format!("it {problem}."),
        };
        let mut file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        let about = file.metadata().map_err(|e| Error::io("open", path, e))?;
        if !about.is_file() {
            return Err(fail("is not a regular file".into()));
        }
        if about.len() != shard.file_bytes {
            return Err(fail(format!(
                "has {} bytes and {} has {}",
                about.len(),
                shown(&shard.name),
                shard.file_bytes
            )));
        }
        let header = read_header(&mut file, about.len()).map_err(fail)?;
        if Hasher::oneshot(&header) != shard.header {
            return Err(fail(format!(
                "is not {}: its header is another",
                shown(&shard.name)
            )));
        }
        Ok(ShardFile {
            file,
            path: path.to_owned(),
            piece: Vec::new(),
        })
    }

    fn add(&mut self, shard: &ShardHeader, problems: &mut Vec<String>) {
        let shard_name = shown(&shard.name);
        let found = match parse(shard) {
            Ok(found) => found,
            Err(problem) => {
                problems.push(format!("{shard_name} {problem}"));
                return;
            }
        };
        let number = self.shards.len();
        self.shards.push(Shard::new(shard));
        for mut tensor in found {
            tensor.shard = number;
            if let Some(&first) = self.by_name.get(&tensor.name) {
                let other = self.all[first].shard;
                problems.push(if other == number {
                    format!("tensor {} is twice in {shard_name}", shown(&tensor.name))
                } else {
                    format!(
                        "tensor {} is both in {} and in {shard_name}",
                        shown(&tensor.name),
                        shown(&self.shards[other].name)
                    )
                });
                continue;
            }
            self.by_name.insert(tensor.name.clone(), self.all.len());
            self.all.push(tensor);
        }
    }

    /// What index and shards say must be the same.
    fn compare(
        &mut self,
        index: &BTreeMap<String, String>,
        checkpoint: &Checkpoint,
        problems: &mut Vec<String>,
    ) {
        let usable: BTreeSet<&str> = self
            .shards
            .iter()
            .map(|shard| shard.name.as_str())
            .collect();
        let given: BTreeSet<&str> = checkpoint
            .shards
            .iter()
            .map(|shard| shard.name.as_str())
            .chain(checkpoint.unusable.iter().map(|(name, _)| name.as_str()))
            .collect();
        // Whether a shard that is not there matters: one that holds only a drafter nobody wants does not.
        let mut missing: BTreeMap<&str, bool> = BTreeMap::new();
        let mut unseen = BTreeSet::new();
        for (name, shard) in index {
            if !usable.contains(shard.as_str()) {
                unseen.insert(name.clone());
                if !given.contains(shard.as_str()) {
                    *missing.entry(shard).or_default() |=
                        !(checkpoint.without_drafter && name.starts_with("mtp."));
                }
                continue;
            }
            match self.find(name).map(|found| &self.all[found]) {
                None => problems.push(format!(
                    "the index lists tensor {} in {}, which does not have it",
                    shown(name),
                    shown(shard)
                )),
                Some(tensor) if self.shards[tensor.shard].name != *shard => {
                    problems.push(format!(
                        "the index lists tensor {} in {}, but it is in another shard",
                        shown(name),
                        shown(shard)
                    ));
                }
                Some(_) => {}
            }
        }
        for (shard, matters) in missing {
            if matters {
                problems.push(format!("the file {} is missing", shown(shard)));
            }
        }
        for tensor in &self.all {
            if !index.contains_key(&tensor.name) {
                problems.push(format!(
                    "tensor {} is in {} but not in the index",
                    shown(&tensor.name),
                    shown(&self.shards[tensor.shard].name)
                ));
            }
        }
        self.unseen = unseen;
    }
}

impl Checkpoint {
    /// Tensor name to shard, if there is an index. Without one there must be a single file.
    pub(crate) fn weight_map(&self) -> Result<Option<BTreeMap<String, String>>> {
        #[derive(Deserialize)]
        struct Index {
            weight_map: BTreeMap<String, String>,
        }
        let fail = |problem: String| Error::Checkpoint {
            path: self.place.clone(),
            problem,
        };
        let Some(text) = &self.index else {
            return Ok(None);
        };
        let index: Index = serde_json::from_slice(text).map_err(|e| {
            fail(format!(
                "{INDEX} is not a shard index: it {}.",
                json_problem(&e)
            ))
        })?;
        if index.weight_map.is_empty() {
            return Err(fail(format!("{INDEX} lists no tensors.")));
        }
        // A name that leads out of the folder is an attack or a mistake; either way not a shard of this checkpoint.
        if let Some(odd) = index
            .weight_map
            .values()
            .find(|name| !is_plain_file_name(name))
        {
            return Err(fail(format!(
                "{INDEX} names {}, which is not a file in this folder.",
                shown(odd)
            )));
        }
        Ok(Some(index.weight_map))
    }
}

impl Shard {
    fn new(shard: &ShardHeader) -> Self {
        use std::hash::Hasher as _;
        let header = Hasher::oneshot(&shard.header);
        let mut all = Hasher::new();
        all.write(shard.name.as_bytes());
        all.write(&shard.file_bytes.to_le_bytes());
        all.write(&header.to_le_bytes());
        all.write(shard.version.as_deref().unwrap_or_default().as_bytes());
        Self {
            name: shard.name.clone(),
            file_bytes: shard.file_bytes,
            fingerprint: all.finish(),
            header,
        }
    }
}

/// A shard's file, open for reading.
pub(crate) struct ShardFile {
    file: File,
    path: PathBuf,
    piece: Vec<u8>,
}

impl ShardFile {
    /// Hands all bytes of a tensor to `sink`, in pieces.
    pub fn copy(
        &mut self,
        tensor: &StoredTensor,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.piece.resize(PIECE_BYTES, 0);
        let mut left = tensor.bytes;
        self.file
            .seek(SeekFrom::Start(tensor.offset))
            .map_err(|e| Error::io("read", &self.path, e))?;
        while left > 0 {
            let piece = &mut self.piece[..left.min(PIECE_BYTES as u64) as usize];
            self.file
                .read_exact(piece)
                .map_err(|e| Error::io("read", &self.path, e))?;
            sink(piece)?;
            left -= piece.len() as u64;
        }
        Ok(())
    }

    /// Reads a whole tensor; `into` has its length.
    pub fn read(&mut self, tensor: &StoredTensor, into: &mut [u8]) -> Result<()> {
        self.file
            .seek(SeekFrom::Start(tensor.offset))
            .and_then(|_| self.file.read_exact(into))
            .map_err(|e| Error::io("read", &self.path, e))
    }

    pub fn file(&self) -> &File {
        &self.file
    }
}

fn damaged_header(error: &serde_json::Error) -> String {
    format!("has a damaged header: it {}", json_problem(error))
}

/// Reads and checks the header of a shard. The library's own reader is not used on whole files: it adds up hostile offsets without a
/// check, keeps only the last of two tensors of one name, and needs the file in memory.
fn parse(shard: &ShardHeader) -> std::result::Result<Vec<StoredTensor>, String> {
    let Header(mut tensors) =
        serde_json::from_slice(&shard.header).map_err(|e| damaged_header(&e))?;
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    // Checks that offsets follow each other without gaps and every length fits shape and type.
    ShardMetadata::new(None, tensors.clone()).map_err(|e| format!("has a damaged header: {e}"))?;
    let data = 8 + shard.header.len() as u64;
    let end = tensors
        .last()
        .map_or(0, |(_, info)| info.data_offsets.1 as u64);
    let expected = data
        .checked_add(end)
        .ok_or_else(|| format!("has a damaged header: a tensor ends at {end}"))?;
    if expected != shard.file_bytes {
        return Err(format!(
            "is incomplete or damaged: it has {} bytes and its header says {expected}",
            shard.file_bytes
        ));
    }
    Ok(tensors
        .into_iter()
        .map(|(name, info)| {
            let (start, end) = info.data_offsets;
            StoredTensor {
                name,
                dtype: info.dtype,
                shape: info.shape,
                bytes: (end - start) as u64,
                shard: 0,
                offset: data + start as u64,
            }
        })
        .collect())
}

/// The header of a shard with every entry kept, so that a name that occurs twice is seen.
struct Header(Vec<(String, TensorInfo)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Header, A::Error> {
                let mut tensors = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        tensors.push((name, map.next_value()?));
                    }
                }
                Ok(Header(tensors))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

fn is_plain_file_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(parts.next(), Some(std::path::Component::Normal(part)) if part == name)
        && parts.next().is_none()
}

/// The first `most` of a list and how many more there are.
pub(crate) fn listed(all: &[String], between: &str, most: usize) -> String {
    let mut text = all[..all.len().min(most)].join(between);
    if all.len() > most {
        text.push_str(&format!(" and {} more", all.len() - most));
    }
    text
}
