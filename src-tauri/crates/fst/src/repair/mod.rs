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
use crate::layout::ExpertMatrix;
use crate::packing::Packing;
use crate::read::{Container, Seen};
use crate::verify::{CheckedPart, Damage, Part};

pub use source::{CheckpointFolder, RemoteCheckpoint, TensorSource};

/// A part up to this size is kept in memory until it is whole, a larger one in a nameless file beside the container.
const MOST_IN_MEMORY: usize = 64 << 20;
const PIECE_BYTES: usize = 1 << 20;

/// Replaces damaged parts of the container at `path`, as [`verify`](crate::verify()) has listed them. `progress` gets bytes mended and to mend.
///
/// # Errors
/// When the source has other tensors than the container was made of, or cannot give them, or the file was changed by others: then nothing is
/// written for that part, and the parts before it stay mended.
pub fn repair(
    path: &Path,
    damaged: &[Damage],
    source: &mut dyn TensorSource,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let (jobs, mut seen) = jobs(path, damaged)?;
    let total = jobs.iter().map(|job| job.part.bytes).sum();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|e| Error::io("open", path, e))?;
    let mut done = 0;
    progress(0, total);
    let mut packing = Packing::default();
    for job in jobs {
        let mut fetched = fetch(path, &job, source, &mut packing, cancel)?;
        let part = job.part;
        // Its place is that of the index as it was.
        seen.still()?;
        put(&mut file, &part, &mut fetched).map_err(|e| Error::io("write", path, e))?;
        file.sync_all().map_err(|e| Error::io("write", path, e))?;
        if part.part == Part::Tokenizer {
            seen.tokenizer_became(part.checksum);
        }
        done += part.bytes;
        progress(done, total);
        tracing::info!(part = %part.part, "repaired");
    }
    seen.still()
}

/// What to write, and what it is made of.
struct Job {
    part: CheckedPart,
    /// Tensors of the checkpoint, in order.
    tensors: Vec<String>,
    /// The matrices of which each two of them make one in packets; none where tensors are stored as they are.
    packed: Vec<ExpertMatrix>,
}

/// The container is closed again: it is about to be written to.
fn jobs(path: &Path, damaged: &[Damage]) -> Result<(Vec<Job>, Seen)> {
    let container = Container::open_with_any_tokenizer(path)?;
    let seen = Seen::of(path, &container);
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
    let layout = container.expert_layout();
    let jobs = parts
        .into_iter()
        .map(|part| {
            let (tensors, packed) = match &part.part {
                Part::Tokenizer | Part::Padding(_) => (Vec::new(), Vec::new()),
                Part::Tensor(name) => (vec![name.clone()], Vec::new()),
                Part::Expert { layer, expert } => (
                    layout.tensor_names(*layer, *expert),
                    layout.packed_matrices().cloned().collect(),
                ),
            };
            Job {
                part,
                tensors,
                packed,
            }
        })
        .collect();
    Ok((jobs, seen))
}

/// Gets the part's bytes and compares them with the index.
fn fetch(
    path: &Path,
    job: &Job,
    source: &mut dyn TensorSource,
    packing: &mut Packing,
    cancel: &AtomicBool,
) -> Result<SpooledTempFile> {
    let Job {
        part,
        tensors,
        packed,
    } = job;
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
    let go_on = || match cancel.load(Ordering::Relaxed) {
        true => Err(Error::Cancelled),
        false => Ok(()),
    };
    let mut take = |piece: &[u8]| {
        go_on()?;
        length += piece.len() as u64;
        if length > part.bytes {
            return Err(other());
        }
        hasher.write(piece);
        kept.write_all(piece)
            .map_err(|e| Error::io("keep a part of", path, e))
    };
    let mut read = |tensor: &String, sink: &mut dyn FnMut(&[u8]) -> Result<()>| {
        // A source that was interrupted by the same wish tells of it in its own words.
        source
            .read(tensor, sink)
            .map_err(|error| go_on().err().unwrap_or(error))
    };
    if packed.is_empty() {
        for tensor in tensors {
            read(tensor, &mut take)?;
        }
    }
    for (matrix, tensors) in packed.iter().zip(tensors.as_chunks::<2>().0) {
        packing.shape(matrix);
        for (tensor, into) in tensors
            .iter()
            .zip([&mut packing.weight, &mut packing.scale])
        {
            let mut rest = into.as_mut_slice();
            read(tensor, &mut |piece| {
                go_on()?;
                let (to, after) = std::mem::take(&mut rest)
                    .split_at_mut_checked(piece.len())
                    .ok_or_else(other)?;
                to.copy_from_slice(piece);
                rest = after;
                Ok(())
            })?;
            if !rest.is_empty() {
                return Err(other());
            }
        }
        packing.pack();
        take(&packing.packets)?;
    }
    if let Part::Padding(_) = part.part {
        for _ in 0..part.bytes {
            take(&[0])?;
        }
    }
    if part.part == Part::Tokenizer {
        take(&source.tokenizer()?.unwrap_or_default())?;
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
