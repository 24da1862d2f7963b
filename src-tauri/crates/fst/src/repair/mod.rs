//! Mends a container in place: fetches the tensors of damaged parts from where the container was made of, and writes them only when they
//! have the checksum the index asks for. A kill at any moment leaves at worst the same part damaged, and nothing else touched.

mod source;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::hash::Hasher as _;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::SpooledTempFile;
use twox_hash::xxhash3_64::Hasher;

use crate::error::{Error, Result, shown};
use crate::read::Container;
use crate::verify::{CheckedPart, Damage, Part};

pub use source::{CheckpointFolder, RemoteCheckpoint, TensorSource};

/// A part up to this size is kept in memory until it is whole, a larger one in a nameless file beside the container.
const MOST_IN_MEMORY: usize = 64 << 20;
const PIECE_BYTES: usize = 1 << 20;

/// Replaces damaged parts of the container at `path`, as [`verify`](crate::verify()) has listed them. `progress` gets bytes mended and to mend.
///
/// # Errors
/// When the source has other tensors than the container was made of, or cannot give them: then nothing is written for that part, and the
/// parts before it stay mended.
pub fn repair(
    path: &Path,
    damaged: &[Damage],
    source: &mut dyn TensorSource,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let jobs = jobs(path, damaged)?;
    let total = jobs.iter().map(|(part, _)| part.bytes).sum();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|e| Error::io("open", path, e))?;
    let mut done = 0;
    progress(0, total);
    for (part, tensors) in jobs {
        let mut fetched = fetch(path, &part, &tensors, source, cancel)?;
        put(&mut file, &part, &mut fetched).map_err(|e| Error::io("write", path, e))?;
        file.sync_all().map_err(|e| Error::io("write", path, e))?;
        done += part.bytes;
        progress(done, total);
        tracing::info!(part = %part.part, "repaired");
    }
    Ok(())
}

/// What to write and which tensors it is made of. The container is closed again: it is about to be written to.
fn jobs(path: &Path, damaged: &[Damage]) -> Result<Vec<(CheckedPart, Vec<String>)>> {
    let container = Container::open_with_any_tokenizer(path)?;
    let mut parts: Vec<CheckedPart> = container
        .checked_parts()
        .filter(|part| damaged.iter().any(|damage| damage.part == part.part))
        .collect();
    if let Some(unknown) = damaged
        .iter()
        .find(|damage| !parts.iter().any(|part| part.part == damage.part))
    {
        return Err(Error::NoSuchTensor {
            name: crate::error::shown_path(path),
            tensor: unknown.part.to_string(),
        });
    }
    parts.sort_by_key(|part| part.offset);
    Ok(parts
        .into_iter()
        .map(|part| {
            let tensors = match &part.part {
                Part::Tokenizer => Vec::new(),
                Part::Tensor(name) => vec![name.clone()],
                Part::Expert { layer, expert } => {
                    container.expert_layout().tensor_names(*layer, *expert)
                }
            };
            (part, tensors)
        })
        .collect())
}

/// Gets the part's bytes and compares them with the index.
fn fetch(
    path: &Path,
    part: &CheckedPart,
    tensors: &[String],
    source: &mut dyn TensorSource,
    cancel: &AtomicBool,
) -> Result<SpooledTempFile> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut kept = tempfile::spooled_tempfile_in(MOST_IN_MEMORY, folder);
    let mut hasher = Hasher::new();
    let mut length = 0u64;
    let place = place(tensors, source);
    let other = || Error::OtherWeights {
        name: crate::error::shown_path(path),
        what: part.part.to_string(),
        place: place.clone(),
    };
    let mut take = |piece: &[u8]| {
        if cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        length += piece.len() as u64;
        if length > part.bytes {
            return Err(other());
        }
        hasher.write(piece);
        kept.write_all(piece)
            .map_err(|e| Error::io("keep a part of", path, e))
    };
    if part.part == Part::Tokenizer {
        take(&source.tokenizer()?.unwrap_or_default())?;
    }
    for tensor in tensors {
        source.read(tensor, &mut take).map_err(|error| {
            // A source that was interrupted by the same wish tells of it in its own words.
            if cancel.load(Ordering::Relaxed) {
                Error::Cancelled
            } else {
                error
            }
        })?;
    }
    if length != part.bytes || hasher.finish() != part.checksum {
        return Err(other());
    }
    Ok(kept)
}

/// Where the source has these tensors, for people.
fn place(tensors: &[String], source: &dyn TensorSource) -> String {
    let Some((first, others)) = tensors.split_first() else {
        return "its tokenizer.json".into();
    };
    let shards: BTreeSet<String> = tensors
        .iter()
        .filter_map(|tensor| source.shard(tensor))
        .map(|shard| shown(&shard))
        .collect();
    let shards = match shards.len() {
        0 => "it".to_owned(),
        _ => shards.into_iter().collect::<Vec<_>>().join(" and "),
    };
    match others.len() {
        0 => shards,
        n => format!("{shards} (tensor {} and {n} more)", shown(first)),
    }
}

fn put(file: &mut File, part: &CheckedPart, from: &mut SpooledTempFile) -> io::Result<()> {
    from.seek(SeekFrom::Start(0))?;
    file.seek(SeekFrom::Start(part.offset))?;
    let mut piece = vec![0; PIECE_BYTES.min(part.bytes as usize)];
    let mut left = part.bytes;
    while left > 0 {
        let piece = &mut piece[..left.min(PIECE_BYTES as u64) as usize];
        from.read_exact(piece)?;
        file.write_all(piece)?;
        left -= piece.len() as u64;
    }
    Ok(())
}
