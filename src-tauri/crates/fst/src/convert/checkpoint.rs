//! The files of a checkpoint without its weights: config.json, tokenizer.json, the index and the headers of the shards. Read from a folder
//! here, or by range from anywhere else by the caller. What they mean is not known here.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{MOST_JSON_BYTES, Source};
use crate::layout::EffortTable;

pub(crate) const CONFIG: &str = "config.json";
pub(crate) const TOKENIZER: &str = "tokenizer.json";
pub(crate) const SINGLE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// What a container names as its maker.
pub const CREATOR: &str = concat!("fastar ", env!("CARGO_PKG_VERSION"));
/// The safetensors format's own limit.
const MOST_HEADER_BYTES: u64 = 100_000_000;
pub(crate) const MOST_INDEX_BYTES: u64 = 256 << 20;
pub(crate) const MOST_TOKENIZER_BYTES: u64 = 128 << 20;

/// A Hugging Face checkpoint in DeepSeek's tensor names, without the weights: enough to plan a [`Conversion`](crate::Conversion) before
/// the first shard is there.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// Its folder, or `owner/name` of its repository: what errors call it.
    pub place: PathBuf,
    /// config.json byte for byte.
    pub config: Vec<u8>,
    /// tokenizer.json byte for byte, if there is one.
    pub tokenizer: Option<Vec<u8>>,
    /// model.safetensors.index.json byte for byte, if there is one.
    pub index: Option<Vec<u8>>,
    /// The shards that are there, in any order.
    pub shards: Vec<ShardHeader>,
    /// Shards that are there and cannot be used: name, and why as the rest of a sentence that begins with it.
    pub unusable: Vec<(String, String)>,
    /// `owner/name`, where known. For a folder of the hub's cache, its name tells.
    pub repository: Option<String>,
    /// Commit, where known.
    pub revision: Option<String>,
    /// Which effort texts the model was trained with. When not given, the repository's or folder's name decides.
    pub effort: Option<EffortTable>,
    /// Leave the drafter (`mtp.*`) out; shards with nothing else in them need not be there.
    pub without_drafter: bool,
    /// The program that began the conversion, [`CREATOR`] when none. The container names it; a later version goes on with what an earlier one
    /// has begun only under the earlier one's name.
    pub creator: Option<String>,
}

/// What is known of a shard before its weights are there.
#[derive(Clone, Debug, Default)]
pub struct ShardHeader {
    /// Name of the file.
    pub name: String,
    /// Length of the file.
    pub file_bytes: u64,
    /// The JSON text that follows the first eight bytes.
    pub header: Vec<u8>,
    /// Anything that is another when the file's content is (a checksum, a time of change), if known: an unfinished conversion goes on only
    /// where this is the same.
    pub version: Option<String>,
}

impl ShardHeader {
    /// Length of the header of a safetensors file, which its first eight bytes tell; an error says why it cannot be such a file.
    pub fn length(prefix: [u8; 8], file_bytes: u64) -> std::result::Result<u64, String> {
        let length = u64::from_le_bytes(prefix);
        if length > MOST_HEADER_BYTES {
            return Err(format!(
                "is not a safetensors file: its header would have {length} bytes"
            ));
        }
        if length > file_bytes.saturating_sub(8) {
            return Err(format!(
                "is incomplete: its header has {length} bytes and the file {file_bytes}"
            ));
        }
        Ok(length)
    }

    /// Reads the header of a shard on disk. An error is the rest of a sentence that begins with the name.
    pub(crate) fn read(path: &Path, name: &str) -> std::result::Result<Self, String> {
        let about = fs::metadata(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => "is missing".to_owned(),
            _ => format!("could not be opened: {e}"),
        })?;
        if !about.is_file() {
            return Err("is not a regular file".into());
        }
        let mut file = File::open(path).map_err(|e| format!("could not be opened: {e}"))?;
        let mut shard = Self {
            name: name.to_owned(),
            header: read_header(&mut file, about.len())?,
            file_bytes: about.len(),
            version: None,
        };
        if let Ok(time) = about.modified()
            && let Ok(since) = time.duration_since(std::time::UNIX_EPOCH)
        {
            shard.version = Some(format!("changed {}", since.as_nanos()));
        }
        Ok(shard)
    }
}

/// The JSON text of a safetensors file of `length` bytes that is read from its start.
pub(crate) fn read_header(
    file: &mut impl Read,
    length: u64,
) -> std::result::Result<Vec<u8>, String> {
    let mut prefix = [0; 8];
    if length < 8 {
        return Err(format!("is not a safetensors file: it has {length} bytes"));
    }
    file.read_exact(&mut prefix)
        .map_err(|e| format!("could not be read: {e}"))?;
    let mut header = vec![0; ShardHeader::length(prefix, length)? as usize];
    file.read_exact(&mut header)
        .map_err(|e| format!("could not be read: {e}"))?;
    Ok(header)
}

impl Checkpoint {
    /// Reads a folder. Only what makes it no checkpoint at all is an error here; what is wrong with its shards is found when a
    /// [`Conversion`](crate::Conversion) is opened, and listed together.
    pub fn open(folder: &Path) -> Result<Self> {
        let fail = |problem: String| Error::Checkpoint {
            path: folder.to_owned(),
            problem,
        };
        if !folder.is_dir() {
            return Err(fail(
                "it is not a folder. Give the folder that holds config.json and the safetensors files.".into(),
            ));
        }
        let mut checkpoint = Self {
            place: folder.to_owned(),
            config: read_file(&folder.join(CONFIG), MOST_JSON_BYTES)?
                .ok_or_else(|| fail("it has no config.json.".into()))?,
            tokenizer: read_file(&folder.join(TOKENIZER), MOST_TOKENIZER_BYTES)?,
            index: read_file(&folder.join(INDEX), MOST_INDEX_BYTES)?,
            ..Self::default()
        };
        let names: BTreeSet<String> = match checkpoint.weight_map()? {
            Some(map) => map.into_values().collect(),
            None if folder.join(SINGLE).exists() => [SINGLE.to_owned()].into(),
            None => return Err(fail(unindexed(folder)?)),
        };
        for name in names {
            match ShardHeader::read(&folder.join(&name), &name) {
                Ok(shard) => checkpoint.shards.push(shard),
                // Noticed by comparing with the index, as for any other place.
                Err(why) if why == "is missing" => {}
                Err(why) => checkpoint.unusable.push((name, why)),
            }
        }
        Ok(checkpoint)
    }

    /// Every file the checkpoint is made of, or may be, if its place is a folder.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        [CONFIG, TOKENIZER, INDEX]
            .into_iter()
            .chain(self.shards.iter().map(|shard| shard.name.as_str()))
            .map(|name| self.place.join(name))
            .collect()
    }

    /// Where the weights came from: what the caller knows, else what the folder's name tells. The hub's cache names folders
    /// `models--owner--name/snapshots/revision`.
    pub(crate) fn source(&self) -> Source {
        if self.repository.is_some() {
            return Source {
                folder: None,
                repository: self.repository.clone(),
                revision: self.revision.clone(),
            };
        }
        let parts: Vec<_> = self
            .place
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        let mut source = Source {
            folder: parts.last().cloned(),
            revision: self.revision.clone(),
            ..Source::default()
        };
        if let [.., repository, snapshots, revision] = parts.as_slice()
            && snapshots == "snapshots"
            && let Some((owner, name)) = repository
                .strip_prefix("models--")
                .and_then(|rest| rest.split_once("--"))
        {
            source.repository = Some(format!("{owner}/{name}"));
            source.revision = Some(revision.clone());
        }
        source
    }

    /// The effort table that was given, else that of DeepSeek's own repositories; none for a name that tells nothing.
    pub(crate) fn effort_table(&self) -> Option<EffortTable> {
        self.effort.or_else(|| {
            let source = self.source();
            let name = source.repository.or(source.folder)?;
            if name.contains("0731") || name.contains("Vision-Exp") {
                Some(EffortTable::V0731)
            } else if name.contains("DeepSeek-V4") {
                Some(EffortTable::Preview)
            } else {
                None
            }
        })
    }
}

/// What to say of a folder with neither an index nor a single file of the usual name.
fn unindexed(folder: &Path) -> Result<String> {
    let others = fs::read_dir(folder)
        .map_err(|e| Error::io("read", folder, e))?
        .filter_map(|entry| entry.ok())
        .filter(|e| e.path().extension().is_some_and(|x| x == "safetensors"))
        .count();
    Ok(match others {
        0 => format!("it has neither {SINGLE} nor {INDEX}."),
        n => format!(
            "it has {n} safetensors file{} but no {INDEX}, so nobody can tell whether all are there. Download the index too.",
            if n == 1 { "" } else { "s" }
        ),
    })
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn at(place: &str) -> Checkpoint {
        Checkpoint {
            place: place.into(),
            ..Checkpoint::default()
        }
    }

    #[test]
    fn the_effort_table_follows_the_names_of_the_published_repositories() {
        let of = |path: &str| at(path).effort_table();
        let hub = "/c/models--deepseek-ai--DeepSeek-V4-Flash-0731/snapshots/60d8d707";
        assert_eq!(of(hub), Some(EffortTable::V0731));
        assert_eq!(
            of("/m/DeepSeek-V4-Flash-Vision-Exp"),
            Some(EffortTable::V0731)
        );
        assert_eq!(
            of("/m/DeepSeek-V4-Flash-DSpark"),
            Some(EffortTable::Preview)
        );
        assert_eq!(of("/m/DeepSeek-V4-Flash"), Some(EffortTable::Preview));
        assert_eq!(of("/m/checkpoint"), None);
    }

    #[test]
    fn the_hub_cache_tells_repository_and_revision() {
        let found = at("/c/hub/models--deepseek-ai--DeepSeek-V4-Flash/snapshots/9e165c30").source();
        assert_eq!(
            found.repository.as_deref(),
            Some("deepseek-ai/DeepSeek-V4-Flash")
        );
        assert_eq!(found.revision.as_deref(), Some("9e165c30"));
        let plain = at("/models/flash").source();
        assert_eq!(plain.folder.as_deref(), Some("flash"));
        assert_eq!(plain.repository, None);
    }

    #[test]
    fn what_the_caller_knows_goes_before_what_a_name_tells() {
        let known = Checkpoint {
            repository: Some("deepseek-ai/DeepSeek-V4-Flash-0731".into()),
            revision: Some("7872f01b".into()),
            ..at("/some/folder")
        };
        assert_eq!(known.effort_table(), Some(EffortTable::V0731));
        let source = known.source();
        assert_eq!(source.folder, None);
        assert_eq!(source.revision.as_deref(), Some("7872f01b"));
        let told = Checkpoint {
            effort: Some(EffortTable::Preview),
            ..known
        };
        assert_eq!(told.effort_table(), Some(EffortTable::Preview));
    }
}
