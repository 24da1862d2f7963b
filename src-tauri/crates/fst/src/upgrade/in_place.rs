//! The upgrade in place.
//!
//! 1. Everything is checked: the whole set of files, that every block has content, that all files can be written, that there is room.
//! 2. The journal is written and renamed. Until here the model is untouched.
//! 3. The highest bit of the main file's version is set, so that nothing reads it as a model.
//! 4. Record by record: the new record goes into the journal, the journal's state says so, the record goes over its block. A journal whose
//!    record does not match its state was being overwritten with the next one, so the one before is done.
//! 5. Sidecars move to the end of the main file in pieces of at most a record, from their ends, and are cut as they go: their length says
//!    what is left. Dense tensors of the main file stay where they are.
//! 6. The index with tokenizer.json goes behind them, then the header of version 3 over the old one, and last that bit is
//!    cleared: from here on it is a model.
//! 7. Sidecars and journal are removed.
//!
//! A file of version 3 has no sidecars; its old index stays where it was and belongs to nothing afterwards. Its checksums are compared
//! before a record is replaced and before the new index is written.
//!
//! Every step is on the disk before the next begins, and may be done twice.

use std::fs::{self, File, OpenOptions};
use std::hash::Hasher as _;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use fastar_files::holders;
use twox_hash::xxhash3_64::Hasher;

use super::disk::Disk;
use super::journal::{Journal, Move, Plan, Planned};
use super::relay::Relay;
use super::{UNFINISHED, is_unfinished, metadata, of_version_2, target};
use crate::error::{Error, Result, shown, shown_path};
use crate::format::{
    Entry, Header, MAGIC, TENSOR_ALIGNMENT, VERSION, align, encode_directory, index_checksum,
};
use crate::layout::ExpertLayout;
use crate::read::Container;
use crate::remedy::Remedy;

/// The highest byte of the version: one byte is written or it is not.
const MARK_AT: u64 = 7;
const MARK: [u8; 1] = [(UNFINISHED >> 24) as u8];

type Progress<'a> = dyn FnMut(u64, u64) -> Result<()> + 'a;

fn problem(message: String) -> Error {
    Error::Original { message }
}

/// False if there was nothing to do.
pub(super) fn upgrade(
    path: &Path,
    disk: &mut dyn Disk,
    progress: &mut Progress<'_>,
) -> Result<bool> {
    let about = fs::symlink_metadata(path).map_err(|e| Error::io("open", path, e))?;
    if about.is_symlink() {
        return Err(problem(format!(
            "{} is a link, and an upgrade in place would change the file it leads to; give --out with a new file, or the file's own path.",
            shown_path(path)
        )));
    }
    let version = version_of(path)?;
    let journal = if version.is_some_and(is_unfinished) {
        Journal::open(path)?.ok_or_else(|| {
            problem(format!(
                "The upgrade of {} was interrupted and its journal {} is missing; put it back into the same folder to go on.",
                shown_path(path),
                shown_path(&super::journal::path_of(path))
            ))
        })?
    } else {
        let from = Container::open(path)?;
        if version == Some(VERSION)
            && let Some(journal) = Journal::open(path)?
            && journal.plan.layout().as_ref() == Some(from.expert_layout())
        {
            return clean(path, &journal, disk).map(|()| true);
        }
        let Some(layout) = target(&from)? else {
            return Ok(false);
        };
        let plan = plan(path, &from, layout, progress)?;
        drop(from);
        let lock = writable(path)?;
        room(path, &plan)?;
        let journal = Journal::create(path, plan, disk)?;
        drop(lock);
        journal
    };
    let lock = writable(path)?;
    let result = go_on(path, journal, disk, progress);
    drop(lock);
    result.map(|()| true)
}

fn version_of(path: &Path) -> Result<Option<u32>> {
    let start = crate::read::open(path)?.start(8)?;
    Ok(start
        .first_chunk::<8>()
        .filter(|start| start.starts_with(&MAGIC))
        .map(|start| u32::from_le_bytes([start[4], start[5], start[6], start[7]])))
}

/// Opens for writing, and keeps others from doing the same.
fn writable(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|e| Error::io("write", path, e))?;
    holders::alone_with(file).map_err(|_| {
        problem(format!(
            "{} is in use: another program upgrades it, or has it loaded. Try again once that has ended.",
            shown_path(path)
        ))
    })
}

fn sidecar(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Checks the set and plans where everything goes.
fn plan(
    path: &Path,
    from: &Container,
    layout: ExpertLayout,
    progress: &mut Progress<'_>,
) -> Result<Plan> {
    let name = shown_path(path);
    let blocks = from.expert_layout().clone();
    let (layers, experts) = from.expert_counts();
    let (bank, stride) = from.record_places();
    if align(blocks.bytes as u64, 4096) != Some(stride) {
        return Err(problem(format!(
            "The expert blocks of {name} are {stride} bytes apart, where an upgrade in place needs the next page after {} bytes; give --out with a new file.",
            blocks.bytes
        )));
    }
    let main_bytes = from.length();
    for (name, _) in from.tensors() {
        from.read_in_pieces(name, &mut |_| progress(0, main_bytes))?;
    }
    for (layer, expert) in (0..layers).flat_map(|l| (0..experts).map(move |e| (l, e))) {
        progress(0, main_bytes)?;
        from.expert(layer, expert)?;
    }
    let mut plan = Plan {
        main_bytes,
        layers,
        experts,
        bank,
        stride,
        header: from.start()?,
        config: String::from_utf8_lossy(from.config_text()).into_owned(),
        tensors: Vec::new(),
        moves: Vec::new(),
        sidecars: Default::default(),
        tokenizer: from.tokenizer()?.map(|text| Hasher::oneshot(&text)),
        tokenizer_at: from.tokenizer_place(),
        metadata: Some(metadata(from, path, layout, true)),
        checksums: from.checksums_place(),
        blocks,
    };
    let too_large = || problem(format!("{name} is too large."));
    let mut end = main_bytes;
    for (sidecar, entry) in from.places() {
        let mut offset = entry.offset;
        if let Some(suffix) = sidecar {
            offset = align(end, TENSOR_ALIGNMENT).ok_or_else(too_large)?;
            end = offset.checked_add(entry.bytes).ok_or_else(too_large)?;
            let (mut from, mut to, mut left) = (entry.offset, offset, entry.bytes);
            while left > 0 {
                let bytes = left.min(plan.blocks.bytes as u64);
                plan.moves.push(Move {
                    sidecar: suffix.to_owned(),
                    from,
                    to,
                    bytes,
                });
                (from, to, left) = (from + bytes, to + bytes, left - bytes);
            }
        }
        plan.tensors.push(Planned {
            name: entry.name.clone(),
            dtype: entry.dtype,
            shape: entry.shape.clone(),
            offset,
            bytes: entry.bytes,
            checksum: plan.checksums.map(|_| entry.checksum),
        });
    }
    // From the ends, so that a sidecar can be cut behind what is left.
    plan.moves
        .sort_by(|a, b| (&a.sidecar, b.from).cmp(&(&b.sidecar, a.from)));
    plan.tensors.sort_by_key(|tensor| tensor.offset);
    for step in &plan.moves {
        let at = sidecar(path, &step.sidecar);
        if plan.sidecars.contains_key(&step.sidecar) {
            continue;
        }
        let about = fs::symlink_metadata(&at).map_err(|e| Error::io("open", &at, e))?;
        if !about.is_file() {
            return Err(problem(format!(
                "{} is a link, and an upgrade in place would change the file it leads to; give --out with a new file.",
                shown_path(&at)
            )));
        }
        writable(&at)?;
        plan.sidecars.insert(step.sidecar.clone(), about.len());
    }
    Ok(plan)
}

/// Room for the journal, and later, without the journal's record, for the index.
fn room(path: &Path, plan: &Plan) -> Result<()> {
    let tokenizer = match &plan.tokenizer_at {
        Some(range) => range.end - range.start,
        None => fs::metadata(tokenizer_path(path)).map_or(0, |about| about.len()),
    };
    let index = tokenizer + plan.config.len() as u64 + 8 * (plan.layers * plan.experts) as u64;
    let json = 200 * plan.tensors.len() as u64;
    let needed = (plan.blocks.bytes as u64).max(index) + 4 * json + index + (1 << 16);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    match crate::convert::free_bytes(folder) {
        Some(free) if free < needed => Err(Error::NoSpace {
            message: format!(
                "Not enough space to upgrade {}: it needs {} and {} has {} free. Free some space; nothing was changed.",
                shown_path(path),
                crate::convert::size(needed),
                shown_path(folder),
                crate::convert::size(free)
            ),
        }),
        _ => Ok(()),
    }
}

fn tokenizer_path(path: &Path) -> PathBuf {
    path.with_file_name("tokenizer.json")
}

fn go_on(
    path: &Path,
    mut journal: Journal,
    disk: &mut dyn Disk,
    progress: &mut Progress<'_>,
) -> Result<()> {
    let mut main = File::open(path).map_err(|e| Error::io("read", path, e))?;
    let total = journal.plan.main_bytes;
    disk.write(path, MARK_AT, &MARK)?;
    disk.sync(path)?;
    if !journal.state.records_done {
        records(path, &mut main, &mut journal, disk, &mut |done| {
            progress(done, total)
        })?;
    }
    journal.records_done(disk)?;
    for step in &journal.plan.moves {
        progress(total, total)?;
        move_piece(path, step, disk)?;
    }
    finish(path, &mut main, &journal, disk)?;
    clean(path, &journal, disk)
}

fn records(
    path: &Path,
    main: &mut File,
    journal: &mut Journal,
    disk: &mut dyn Disk,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let (bank, stride) = (journal.plan.bank, journal.plan.stride);
    let place = |index: u64| bank + index * stride;
    if journal.state.begun > 0
        && let Some(record) = journal.record()?
    {
        disk.write(path, place(journal.state.begun - 1), &record)?;
        disk.sync(path)?;
    }
    let layout = new_layout(path, &journal.plan)?;
    let mut relay = Relay::new(&journal.plan.blocks, &layout);
    let mut block = vec![0; journal.plan.blocks.bytes];
    let mut record = vec![0; journal.plan.blocks.bytes];
    let count = (journal.plan.layers * journal.plan.experts) as u64;
    while journal.state.begun < count {
        let at = place(journal.state.begun);
        progress(at)?;
        read(path, main, at, &mut block)?;
        if let Some(table) = journal.plan.checksums {
            let mut expected = [0; 8];
            read(path, main, table + 8 * journal.state.begun, &mut expected)?;
            let sum = Hasher::oneshot(&block);
            same(path, sum, u64::from_le_bytes(expected), || {
                let experts = journal.plan.experts as u64;
                let (layer, expert) =
                    (journal.state.begun / experts, journal.state.begun % experts);
                format!("expert {expert} of layer {layer}")
            })?;
        }
        relay.record(&block, &mut record);
        journal.begin(&record, disk)?;
        disk.write(path, at, &record)?;
        disk.sync(path)?;
    }
    Ok(())
}

/// Layout of the records after.
fn new_layout(path: &Path, plan: &Plan) -> Result<ExpertLayout> {
    plan.layout()
        .filter(|layout| layout.is_consistent() && layout.bytes == plan.blocks.bytes)
        .ok_or_else(|| {
            problem(format!(
                "The experts of {} are too large.",
                shown_path(path)
            ))
        })
}

/// Compares with a checksum of a file that has them.
fn same(path: &Path, sum: u64, expected: u64, what: impl FnOnce() -> String) -> Result<()> {
    if sum == expected {
        return Ok(());
    }
    Err(Error::Checksum {
        name: shown_path(path),
        what: what(),
        // Half upgraded it is no container that could be mended.
        remedy: Remedy::Copy,
    })
}

fn read(path: &Path, file: &mut File, at: u64, bytes: &mut [u8]) -> Result<()> {
    file.seek(SeekFrom::Start(at))
        .and_then(|_| file.read_exact(bytes))
        .map_err(|e| Error::io("read", path, e))
}

fn move_piece(path: &Path, step: &Move, disk: &mut dyn Disk) -> Result<()> {
    let at = sidecar(path, &step.sidecar);
    let io = |e| Error::io("read", &at, e);
    let mut file = File::open(&at).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    if length <= step.from {
        return Ok(()); // Moved before.
    }
    if length < step.from + step.bytes {
        return Err(problem(format!(
            "{} was changed while it was being upgraded: it has {length} bytes where at least {} are needed. Put it back and run the upgrade again.",
            shown_path(&at),
            step.from + step.bytes
        )));
    }
    let mut piece = vec![0; step.bytes as usize];
    read(&at, &mut file, step.from, &mut piece)?;
    drop(file);
    disk.write(path, step.to, &piece)?;
    disk.sync(path)?;
    disk.set_length(&at, step.from)?;
    disk.sync(&at)
}

/// Index, then header.
fn finish(path: &Path, main: &mut File, journal: &Journal, disk: &mut dyn Disk) -> Result<()> {
    let plan = &journal.plan;
    let tokenizer = tokenizer(path, main, plan)?;
    let mut entries = Vec::with_capacity(plan.tensors.len());
    let mut buffer = vec![0; 1 << 20];
    for tensor in &plan.tensors {
        let mut hasher = Hasher::new();
        let mut done = 0;
        while done < tensor.bytes {
            let piece = (tensor.bytes - done).min(buffer.len() as u64) as usize;
            read(path, main, tensor.offset + done, &mut buffer[..piece])?;
            hasher.write(&buffer[..piece]);
            done += piece as u64;
        }
        let sum = hasher.finish();
        same(path, sum, tensor.checksum.unwrap_or(sum), || {
            format!("tensor {}", shown(&tensor.name))
        })?;
        entries.push(Entry {
            name: tensor.name.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            offset: tensor.offset,
            bytes: tensor.bytes,
            checksum: sum,
        });
    }
    let too_large = || problem(format!("{} is too large.", shown_path(path)));
    let about = match &plan.metadata {
        Some(metadata) => metadata.clone(),
        // Of a version before there were packets, which planned only for files of version 2.
        None => of_version_2(path, new_layout(path, plan)?, true),
    };
    let text = serde_json::to_vec(&about).map_err(|_| too_large())?;
    let directory = encode_directory(&entries);
    let end = entries
        .iter()
        .map(|entry| entry.offset + entry.bytes)
        .chain([plan.main_bytes])
        .max()
        .unwrap_or(0);
    let mut header = Header {
        config_bytes: plan.config.len() as u64,
        metadata_bytes: text.len() as u64,
        directory_bytes: directory.len() as u64,
        tensors: entries.len() as u64,
        tokenizer_bytes: tokenizer.len() as u64,
        tokenizer_checksum: plan.tokenizer.unwrap_or(0),
        layers: plan.layers as u64,
        experts: plan.experts as u64,
        record_bytes: plan.blocks.bytes as u64,
        record_stride: plan.stride,
        records_offset: plan.bank,
        index_offset: align(end, TENSOR_ALIGNMENT).ok_or_else(too_large)?,
        ..Header::default()
    };
    let map = header.map().map_err(|_| too_large())?;
    header.file_bytes = map.index().end;
    let start = map.config.start;
    let mut index = vec![0; (map.index().end - start) as usize];
    for (range, bytes) in [
        (&map.config, plan.config.as_bytes()),
        (&map.metadata, &text),
        (&map.directory, &directory),
        (&map.checksums, &journal.checksums()?),
        (&map.tokenizer, &tokenizer),
    ] {
        index[(range.start - start) as usize..(range.end - start) as usize].copy_from_slice(bytes);
    }
    let hashed = (map.checksums.end - start) as usize;
    header.index_checksum = index_checksum(&header.encode(), &index[..hashed]);
    disk.write(path, start, &index)?;
    disk.sync(path)?;
    let mut encoded = header.encode();
    encoded[MARK_AT as usize] = MARK[0];
    disk.write(path, 0, &encoded)?;
    disk.sync(path)?;
    disk.write(path, MARK_AT, &[0])?;
    disk.sync(path)
}

/// tokenizer.json, from its own file or out of the old index.
fn tokenizer(path: &Path, main: &mut File, plan: &Plan) -> Result<Vec<u8>> {
    let Some(checksum) = plan.tokenizer else {
        return Ok(Vec::new());
    };
    if let Some(range) = &plan.tokenizer_at {
        let length = range.end.saturating_sub(range.start);
        let mut text = vec![0; length.min(plan.main_bytes) as usize];
        read(path, main, range.start, &mut text)?;
        same(path, Hasher::oneshot(&text), checksum, || {
            "its tokenizer".to_owned()
        })?;
        return Ok(text);
    }
    fs::read(tokenizer_path(path))
        .ok()
        .filter(|text| Hasher::oneshot(text) == checksum)
        .ok_or_else(|| {
            problem(format!(
                "{} was changed or removed while the model was being upgraded; put it back and run `fastar upgrade {}` again.",
                shown_path(&tokenizer_path(path)),
                shown_path(path)
            ))
        })
}

/// Removes what the whole file does not need any more; the journal, which says what that is, last.
fn clean(path: &Path, journal: &Journal, disk: &mut dyn Disk) -> Result<()> {
    for suffix in journal.plan.sidecars.keys() {
        let at = sidecar(path, suffix);
        if at.exists() {
            disk.remove(&at)?;
        }
    }
    disk.remove(&journal.path)
}
