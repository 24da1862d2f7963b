//! A checkpoint folder: config.json, one or many safetensors shards, tokenizer.json. Finds, checks and reads; knows nothing of what
//! the tensors mean.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use safetensors::Dtype as StoredType;
use safetensors::tensor::{Metadata as ShardHeader, TensorInfo};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::error::{Error, Result, shown, shown_path};
use crate::format::MOST_JSON_BYTES;

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// The safetensors format's own limit.
const MOST_HEADER_BYTES: u64 = 100_000_000;
const MOST_INDEX_BYTES: u64 = 256 << 20;
const MOST_TOKENIZER_BYTES: u64 = 128 << 20;
const PIECE_BYTES: usize = 1 << 20;
/// Problems of one kind that are listed by name.
pub(crate) const LISTED: usize = 3;

/// An open checkpoint whose shards were found whole.
pub(crate) struct Checkpoint {
    folder: PathBuf,
    config_text: Vec<u8>,
    config: Value,
    shards: Vec<Shard>,
    tensors: Vec<StoredTensor>,
    by_name: HashMap<String, usize>,
    piece: Vec<u8>,
}

struct Shard {
    path: PathBuf,
    file: File,
}

/// One tensor in a shard.
pub(crate) struct StoredTensor {
    pub name: String,
    pub dtype: StoredType,
    pub shape: Vec<usize>,
    /// Length in bytes.
    pub bytes: u64,
    shard: usize,
    /// In the shard's file.
    offset: u64,
}

impl Checkpoint {
    /// Opens the folder; every problem with its shards is found here and named.
    pub fn open(folder: &Path) -> Result<Self> {
        if !folder.is_dir() {
            return Err(Error::Checkpoint {
                path: folder.to_owned(),
                problem: "it is not a folder. Give the folder that holds config.json and the safetensors files.".into(),
            });
        }
        let config_path = folder.join(CONFIG);
        let config_text =
            read_file(&config_path, MOST_JSON_BYTES)?.ok_or_else(|| Error::Checkpoint {
                path: folder.to_owned(),
                problem: "it has no config.json.".into(),
            })?;
        let config = serde_json::from_slice(&config_text).map_err(|e| Error::Config {
            path: config_path,
            problem: format!("it is not valid JSON ({e})."),
        })?;
        let mut checkpoint = Self {
            folder: folder.to_owned(),
            config_text,
            config,
            shards: Vec::new(),
            tensors: Vec::new(),
            by_name: HashMap::new(),
            piece: vec![0; PIECE_BYTES],
        };
        checkpoint.open_shards()?;
        Ok(checkpoint)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn config(&self) -> &Value {
        &self.config
    }

    pub fn config_text(&self) -> &[u8] {
        &self.config_text
    }

    pub fn config_path(&self) -> PathBuf {
        self.folder.join(CONFIG)
    }

    pub fn tokenizer_path(&self) -> PathBuf {
        self.folder.join(TOKENIZER)
    }

    /// tokenizer.json as it is, if there is one.
    pub fn tokenizer(&self) -> Result<Option<Vec<u8>>> {
        read_file(&self.tokenizer_path(), MOST_TOKENIZER_BYTES)
    }

    /// Every file the checkpoint is made of, or may be.
    pub fn files(&self) -> Vec<PathBuf> {
        [CONFIG, TOKENIZER, INDEX]
            .iter()
            .map(|name| self.folder.join(name))
            .chain(self.shards.iter().map(|shard| shard.path.clone()))
            .collect()
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub fn tensor(&self, index: usize) -> &StoredTensor {
        &self.tensors[index]
    }

    pub fn tensors(&self) -> &[StoredTensor] {
        &self.tensors
    }

    /// Hands all bytes of a tensor to `sink`, in pieces.
    pub fn copy(&mut self, index: usize, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Self {
            tensors,
            shards,
            piece,
            ..
        } = self;
        let tensor = &tensors[index];
        let shard = &shards[tensor.shard];
        let mut left = tensor.bytes;
        let mut at = tensor.offset;
        while left > 0 {
            let piece = &mut piece[..left.min(PIECE_BYTES as u64) as usize];
            shard.read(at, piece)?;
            sink(piece)?;
            left -= piece.len() as u64;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Reads a tensor of exactly `into.len()` bytes.
    pub fn read(&self, index: usize, into: &mut [u8]) -> Result<()> {
        let tensor = &self.tensors[index];
        self.shards[tensor.shard].read(tensor.offset, into)
    }

    fn open_shards(&mut self) -> Result<()> {
        let mut problems = Vec::new();
        let index = self.index()?;
        let names: Vec<String> = match &index {
            Some(index) => index
                .values()
                .cloned()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            None => vec![SINGLE.to_owned()],
        };
        for name in &names {
            self.open_shard(name, &mut problems);
        }
        if let Some(index) = &index {
            self.compare(index, &mut problems);
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::Checkpoint {
            path: self.folder.clone(),
            problem: format!("{}.", listed(&problems, "; ")),
        })
    }

    /// Tensor name to shard, if there is an index. Without one there must be a single file of the usual name.
    fn index(&self) -> Result<Option<BTreeMap<String, String>>> {
        #[derive(Deserialize)]
        struct Index {
            weight_map: BTreeMap<String, String>,
        }
        let fail = |problem: String| Error::Checkpoint {
            path: self.folder.clone(),
            problem,
        };
        let Some(text) = read_file(&self.folder.join(INDEX), MOST_INDEX_BYTES)? else {
            if self.folder.join(SINGLE).exists() {
                return Ok(None);
            }
            let others = fs::read_dir(&self.folder)
                .map_err(|e| Error::io("read", &self.folder, e))?
                .filter_map(|entry| entry.ok())
                .filter(|e| e.path().extension().is_some_and(|x| x == "safetensors"))
                .count();
            return Err(fail(match others {
                0 => format!("it has neither {SINGLE} nor {INDEX}."),
                n => format!(
                    "it has {n} safetensors file{} but no {INDEX}, so nobody can tell whether all are there. Download the index too.",
                    if n == 1 { "" } else { "s" }
                ),
            }));
        };
        let index: Index = serde_json::from_slice(&text)
            .map_err(|e| fail(format!("{INDEX} is not a shard index ({e}).")))?;
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

    fn open_shard(&mut self, name: &str, problems: &mut Vec<String>) {
        let path = self.folder.join(name);
        let shard_name = shown(name);
        let opened = match fs::metadata(&path) {
            Ok(about) if about.is_file() => File::open(&path).map(|file| (file, about.len())),
            Ok(_) => {
                problems.push(format!("{shard_name} is not a regular file"));
                return;
            }
            Err(e) => Err(e),
        };
        let (file, length) = match opened {
            Ok(opened) => opened,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                problems.push(format!("the file {shard_name} is missing"));
                return;
            }
            Err(e) => {
                problems.push(format!("{shard_name} could not be opened: {e}"));
                return;
            }
        };
        let shard = Shard { path, file };
        let tensors = match shard.header(length) {
            Ok(tensors) => tensors,
            Err(problem) => {
                problems.push(format!("{shard_name} {problem}"));
                return;
            }
        };
        let number = self.shards.len();
        self.shards.push(shard);
        for mut tensor in tensors {
            tensor.shard = number;
            if let Some(&first) = self.by_name.get(&tensor.name) {
                let other = self.tensors[first].shard;
                problems.push(if other == number {
                    format!("tensor {} is twice in {shard_name}", shown(&tensor.name))
                } else {
                    format!(
                        "tensor {} is both in {} and in {shard_name}",
                        shown(&tensor.name),
                        shown_path(
                            self.shards[other]
                                .path
                                .file_name()
                                .map(Path::new)
                                .unwrap_or(Path::new(""))
                        )
                    )
                });
                continue;
            }
            self.by_name.insert(tensor.name.clone(), self.tensors.len());
            self.tensors.push(tensor);
        }
    }

    /// What index and shards say must be the same.
    fn compare(&self, index: &BTreeMap<String, String>, problems: &mut Vec<String>) {
        let file_of = |tensor: &StoredTensor| self.shards[tensor.shard].path.file_name();
        let opened: BTreeSet<_> = self
            .shards
            .iter()
            .filter_map(|shard| shard.path.file_name())
            .collect();
        for (name, shard) in index {
            match self.find(name).map(|found| &self.tensors[found]) {
                // A shard that could not be read was named already.
                _ if !opened.contains(std::ffi::OsStr::new(shard)) => {}
                None => problems.push(format!(
                    "the index lists tensor {} in {}, which does not have it",
                    shown(name),
                    shown(shard)
                )),
                Some(tensor) if file_of(tensor) != Some(std::ffi::OsStr::new(shard)) => {
                    problems.push(format!(
                        "the index lists tensor {} in {}, but it is in another shard",
                        shown(name),
                        shown(shard)
                    ));
                }
                Some(_) => {}
            }
        }
        for tensor in &self.tensors {
            if !index.contains_key(&tensor.name) {
                problems.push(format!(
                    "tensor {} is in {} but not in the index",
                    shown(&tensor.name),
                    file_of(tensor)
                        .map(|name| shown(&name.to_string_lossy()))
                        .unwrap_or_default()
                ));
            }
        }
    }
}

impl Shard {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(at))
            .and_then(|_| file.read_exact(into))
            .map_err(|e| Error::io("read", &self.path, e))
    }

    /// Reads and checks the header of a file of `length` bytes. The library's own reader is not used on whole files: it adds up
    /// hostile offsets without a check, keeps only the last of two tensors of one name, and needs the file in memory.
    fn header(&self, length: u64) -> std::result::Result<Vec<StoredTensor>, String> {
        let mut prefix = [0; 8];
        if length < 8 {
            return Err(format!("is not a safetensors file: it has {length} bytes"));
        }
        self.read(0, &mut prefix).map_err(|e| e.to_string())?;
        let header_bytes = u64::from_le_bytes(prefix);
        if header_bytes > MOST_HEADER_BYTES {
            return Err(format!(
                "is not a safetensors file: its header would have {header_bytes} bytes"
            ));
        }
        if header_bytes > length - 8 {
            return Err(format!(
                "is incomplete: its header has {header_bytes} bytes and the file {length}"
            ));
        }
        let mut text = vec![0; header_bytes as usize];
        self.read(8, &mut text).map_err(|e| e.to_string())?;
        let Header(mut tensors) =
            serde_json::from_slice(&text).map_err(|e| format!("has a damaged header: {e}"))?;
        tensors.sort_by_key(|(_, info)| info.data_offsets);
        // Checks that offsets follow each other without gaps and every length fits shape and type.
        ShardHeader::new(None, tensors.clone())
            .map_err(|e| format!("has a damaged header: {e}"))?;
        let data = 8 + header_bytes;
        let end = tensors
            .last()
            .map_or(0, |(_, info)| info.data_offsets.1 as u64);
        let expected = data
            .checked_add(end)
            .ok_or_else(|| format!("has a damaged header: a tensor ends at {end}"))?;
        if expected != length {
            return Err(format!(
                "is incomplete or damaged: it has {length} bytes and its header says {expected}"
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

/// The whole file; none when it does not exist.
fn read_file(path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
    let io = |e| Error::io("read", path, e);
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            // A dangling link is not the same as no file.
            return match fs::symlink_metadata(path) {
                Ok(_) => Err(io(e)),
                Err(_) => Ok(None),
            };
        }
        Err(e) => return Err(io(e)),
    };
    if !about.is_file() || about.len() > most {
        return Err(Error::Checkpoint {
            path: path.to_owned(),
            problem: if about.is_file() {
                format!(
                    "it has {} bytes, far more than such a file has.",
                    about.len()
                )
            } else {
                "it is not a regular file.".into()
            },
        });
    }
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(most).read_to_end(&mut text))
        .map_err(io)?;
    Ok(Some(text))
}

fn is_plain_file_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(parts.next(), Some(std::path::Component::Normal(part)) if part == name)
        && parts.next().is_none()
}

/// The first few of a list and how many more there are.
pub(crate) fn listed(all: &[String], between: &str) -> String {
    let mut text = all[..all.len().min(LISTED)].join(between);
    if all.len() > LISTED {
        text.push_str(&format!(" and {} more", all.len() - LISTED));
    }
    text
}
