//! A checkpoint on the hub, known from its small files and the headers of its shards.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastar_fst::{Checkpoint, ShardHeader};
use fastar_hub::{Hub, Options, RemoteFile, Snapshot};
use fastar_kernels::threads;
use serde::Deserialize;

use super::Result;
use crate::data::write_whole;
use crate::error::{Error, lock};
use crate::jobs::{Order, Steering};
use crate::library::free_bytes;

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
/// Tensors of the drafter begin with it.
const DRAFTER: &str = "mtp.";
/// Read of every shard at once: the header of a shard of Flash has about 200 kB.
const FIRST_READ: u64 = 256 << 10;
/// Headers that are asked for at the same time.
const READS_AT_ONCE: usize = 8;

/// What a download would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The commit.
    pub revision: String,
    /// Files to fetch.
    pub files: usize,
    /// Bytes to fetch.
    pub download_bytes: u64,
    /// Most bytes on the disk at once.
    pub peak_bytes: u64,
    /// Bytes free where the model goes; none when the system does not say.
    pub free_bytes: Option<u64>,
}

pub(super) fn survey(hub: &Hub, order: &Order, steering: &Steering) -> Result<Survey> {
    let snapshot = hub.snapshot(&order.repository, &order.revision, steering.transfer())?;
    check_kind(&snapshot)?;
    let files: Vec<&RemoteFile> = if super::set::is_set(&snapshot) {
        super::set::wanted(&snapshot, order.drafter)
    } else {
        let names = match snapshot.file(INDEX) {
            Ok(file) => shards(
                &read_whole(hub, file, steering)?,
                order.drafter,
                &snapshot.repo,
            )?,
            Err(_) => [SINGLE.to_owned()].into(),
        };
        present(&snapshot, &names)
    };
    let download_bytes = files.iter().map(|file| file.bytes).sum();
    let beside = if super::set::is_set(&snapshot) {
        0
    } else {
        two_largest(files.iter().map(|file| file.bytes))
    };
    Ok(Survey {
        revision: snapshot.revision.clone(),
        files: files.len(),
        download_bytes,
        peak_bytes: download_bytes + beside,
        free_bytes: free_bytes(&order.folder),
    })
}

/// Refuses what cannot become a model.
pub(super) fn check_kind(snapshot: &Snapshot) -> Result<()> {
    let ends = |ending: &str| {
        snapshot
            .files
            .iter()
            .any(|file| file.path.ends_with(ending))
    };
    let refuse = |what: &str| {
        Err(Error::BadRequest(format!(
            "{} holds {what}. FaStar needs a DeepSeek V4 checkpoint in safetensors files.",
            snapshot.repo
        )))
    };
    if super::set::is_set(snapshot) {
        return Ok(());
    }
    if !ends(".safetensors") {
        return refuse(if ends(".gguf") {
            "GGUF files, which are of another program"
        } else {
            "no safetensors files"
        });
    }
    // Without it nobody could say later that the weights are right.
    let unchecked =
        |file: &&RemoteFile| file.path.ends_with(".safetensors") && file.sha256.is_none();
    match snapshot.files.iter().find(unchecked) {
        Some(file) => Err(Error::BadRequest(format!(
            "The hub gives no checksum of {} in {}, so nobody could say whether it is right. Try the hub itself, or another mirror.",
            file.path, snapshot.repo
        ))),
        None => Ok(()),
    }
}

/// Bytes of the two largest: so much lies beside the container at most.
pub(super) fn two_largest(bytes: impl Iterator<Item = u64>) -> u64 {
    let mut bytes: Vec<u64> = bytes.collect();
    bytes.sort_unstable();
    bytes.iter().rev().take(2).sum()
}

/// Everything that planning needs. Small files are fetched into the folder `small`, and headers are kept in `headers`, so that going on asks
/// the network for nothing it gave before.
pub(super) fn checkpoint(
    hub: &Hub,
    snapshot: &Snapshot,
    drafter: bool,
    (small, kept): (&Path, &Path),
    steering: &Steering,
) -> Result<Checkpoint> {
    let files: Vec<RemoteFile> = [CONFIG, TOKENIZER, INDEX]
        .into_iter()
        .filter_map(|name| snapshot.file(name).ok().cloned())
        .collect();
    hub.fetch_set(
        &files,
        small,
        &Options::default(),
        steering.transfer(),
        |_| {},
    )?;
    let there = |name: &str| -> Result<Option<Vec<u8>>> {
        if snapshot.file(name).is_err() {
            return Ok(None);
        }
        let path = small.join(name);
        fs::read(&path).map(Some).map_err(Error::file(&path))
    };
    let index = there(INDEX)?;
    let names = match &index {
        Some(text) => shards(text, true, &snapshot.repo)?,
        None => [SINGLE.to_owned()].into(),
    };
    let files = present(snapshot, &names);
    let headers = headers(hub, &files, kept, steering)?;
    Ok(Checkpoint {
        place: snapshot.repo.clone().into(),
        // Whether it is there is noticed when it is read.
        config: there(CONFIG)?.ok_or_else(|| {
            Error::BadRequest(format!(
                "{} has no {CONFIG}: it is not a checkpoint.",
                snapshot.repo
            ))
        })?,
        tokenizer: there(TOKENIZER)?,
        index,
        shards: headers,
        repository: Some(snapshot.repo.clone()),
        revision: Some(snapshot.revision.clone()),
        without_drafter: !drafter,
        ..Checkpoint::default()
    })
}

/// The files of the snapshot with these names; what is missing is found when the conversion is planned.
fn present<'a>(snapshot: &'a Snapshot, names: &BTreeSet<String>) -> Vec<&'a RemoteFile> {
    snapshot
        .files
        .iter()
        .filter(|file| names.contains(&file.path))
        .collect()
}

/// Names of the shards that the index names; without the drafter, those that hold something else too.
fn shards(index: &[u8], drafter: bool, repo: &str) -> Result<BTreeSet<String>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: HashMap<String, String>,
    }
    let index: Index = serde_json::from_slice(index).map_err(|error| {
        Error::BadRequest(format!("{INDEX} of {repo} cannot be used: {error}."))
    })?;
    Ok(index
        .weight_map
        .into_iter()
        .filter(|(tensor, _)| drafter || !tensor.starts_with(DRAFTER))
        .map(|(_, shard)| shard)
        .collect())
}

fn read_whole(hub: &Hub, file: &RemoteFile, steering: &Steering) -> Result<Vec<u8>> {
    Ok(hub.read(file, 0..file.bytes, steering.transfer())?)
}

/// The headers of all shards, several asked for at once.
fn headers(
    hub: &Hub,
    files: &[&RemoteFile],
    folder: &Path,
    steering: &Steering,
) -> Result<Vec<ShardHeader>> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, Result<ShardHeader>)>> = Mutex::default();
    threads::share(READS_AT_ONCE.min(files.len()), || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(number) else {
                return;
            };
            let header = header(hub, file, folder, steering);
            let failed = header.is_err();
            lock(&found).push((number, header));
            if failed {
                // The others stop soon.
                next.store(files.len(), Ordering::Relaxed);
            }
        }
    });
    let mut found = found
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, header)| header).collect()
}

fn header(hub: &Hub, file: &RemoteFile, folder: &Path, steering: &Steering) -> Result<ShardHeader> {
    let kept = folder.join(format!("{}.header", file.path));
    let shard = |header| ShardHeader {
        name: file.path.clone(),
        file_bytes: file.bytes,
        header,
        version: Some(file.sha256.clone().unwrap_or_else(|| file.revision.clone())),
    };
    // A pipe in its place would be waited for.
    if kept.is_file()
        && let Ok(header) = fs::read(&kept)
    {
        return Ok(shard(header));
    }
    let wrong = |why: String| Error::BadRequest(format!("{} of {} {why}.", file.path, file.repo));
    let mut bytes = hub.read(file, 0..file.bytes.min(FIRST_READ), steering.transfer())?;
    let prefix = bytes.first_chunk().copied().ok_or_else(|| {
        wrong(format!(
            "is not a safetensors file: it has {} bytes",
            file.bytes
        ))
    })?;
    let end = 8 + ShardHeader::length(prefix, file.bytes).map_err(wrong)?;
    let there = bytes.len() as u64;
    if there < end {
        bytes.extend(hub.read(file, there..end, steering.transfer())?);
    }
    let header = bytes
        .get(8..usize::try_from(end).unwrap_or(usize::MAX))
        .ok_or_else(|| wrong("came shorter than it is".to_owned()))?
        .to_vec();
    if let Some(folder) = kept.parent() {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
    }
    write_whole(&kept, &header)?;
    Ok(shard(header))
}
