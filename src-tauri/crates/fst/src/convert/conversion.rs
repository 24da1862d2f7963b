//! One conversion: planned from headers alone, fed a shard at a time, finished when all are in.

use std::fmt;
use std::hash::Hasher as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use twox_hash::xxhash3_64::Hasher;

use super::checkpoint::{CREATOR, Checkpoint, TOKENIZER};
use super::config::Dimensions;
use super::inventory::{self, Selection};
use super::journal::{Journal, Unusable};
use super::output::{Output, Partial, forget_pages, remove, size};
use super::tensors::Tensors;
use super::tokenizer;
use crate::error::{Error, Result, shown, shown_path};
use crate::format::{Entry, Metadata, fits_directory};
use crate::read::Container;
use crate::write::{Contents, Plan};

/// Bytes after which what was copied is put on the disk and noted, also within a shard.
const NOTE_BYTES: u64 = 1 << 30;
const PIECE_BYTES: usize = 1 << 20;

/// A container in the making.
///
/// The file grows under a temporary name (`OUT.partial`) beside the target, with a small journal (`OUT.partial.state`). Both stay when the
/// work is stopped, fails or is killed; the next [`open`](Self::open) with the same checkpoint, options and program goes on where it was.
/// Shards may be added in any order, and the result is the same to the byte.
pub struct Conversion {
    tensors: Tensors,
    plan: Plan,
    parts: Parts,
    output: Output,
    partial: Option<Partial>,
    journal: Journal,
    start: Start,
    warnings: Vec<String>,
    bytes_done: u64,
    note_bytes: u64,
}

/// What [`Conversion::open`] found at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing: this is a new conversion.
    New,
    /// The same conversion, unfinished; it goes on.
    Resumed {
        /// Bytes of weights that are done.
        bytes_done: u64,
    },
    /// Something that cannot be gone on with, and why; it was replaced.
    Over {
        /// A sentence.
        reason: String,
    },
    /// The same conversion, finished; only its journal had not been removed.
    Finished,
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("Started."),
            Self::Resumed { bytes_done } => write!(
                f,
                "Went on with an unfinished conversion: {} were done already.",
                size(*bytes_done)
            ),
            Self::Over { reason } => f.write_str(reason),
            Self::Finished => f.write_str("This conversion was finished already."),
        }
    }
}

/// Where each tensor of the checkpoint goes.
struct Parts {
    /// Offset in the container for each tensor of the checkpoint; none for what is left out.
    target: Vec<Option<u64>>,
    /// Bytes of all that is not left out.
    bytes: u64,
    selection: Selection,
}

impl Conversion {
    /// Checks the checkpoint and plans the container. Everything that is wrong with the checkpoint is found here and said at once, before
    /// anything is written. Then takes up what an unfinished conversion to `out` has left.
    ///
    /// # Errors
    /// A checkpoint that is not whole, not consistent or not ours; a target that cannot be; no room on the disk; another conversion that
    /// writes to the same target.
    pub fn open(checkpoint: Checkpoint, out: &Path) -> Result<Self> {
        let config: serde_json::Value =
            serde_json::from_slice(&checkpoint.config).map_err(|e| Error::Config {
                path: checkpoint.config_path(),
                problem: format!("it is not valid JSON ({e})."),
            })?;
        let dimensions = Dimensions::read(&config, &checkpoint.config_path())?;
        let mut warnings = Vec::new();
        let (tensors, problem) = Tensors::read(&checkpoint)?;
        let mut problems: Vec<Error> = problem.into_iter().collect();
        match &checkpoint.tokenizer {
            Some(text) => {
                let path = checkpoint.place.join(TOKENIZER);
                problems.extend(tokenizer::check(text, &path, dimensions.vocab, &config).err());
            }
            None => warnings.push(
                "The checkpoint has no tokenizer.json: the model can be used with token ids only, not for chats.".to_owned(),
            ),
        }
        let selection = match inventory::select(&dimensions, &tensors, checkpoint.without_drafter) {
            Ok(selection) => selection,
            Err(problem) => {
                problems.push(problem);
                None
            }
        };
        let selection = match selection {
            Some(selection) if problems.is_empty() => selection,
            _ => return Err(Error::several(problems, &checkpoint.place)),
        };
        warnings.extend(selection.warnings.iter().cloned());
        let output = Output::prepare(out, &checkpoint.files())?;
        let too_large = || Error::Checkpoint {
            path: checkpoint.place.clone(),
            problem: "it is too large for a container.".into(),
        };
        let plan = Plan::new(Contents {
            metadata: Metadata {
                creator: checkpoint.creator.clone().unwrap_or_else(|| CREATOR.into()),
                effort: checkpoint.effort_table(),
                source: checkpoint.source(),
                layout: selection.layout.clone(),
                upgraded: false,
                indexer: true,
            },
            tensors: entries(&selection, &tensors)?,
            layers: dimensions.layers,
            experts: dimensions.experts,
            config: checkpoint.config,
            tokenizer: checkpoint.tokenizer,
        })
        .ok_or_else(too_large)?;
        let parts = Parts::new(selection, &plan, &tensors);
        let fingerprint = fingerprint(&plan, &tensors);
        let mut conversion = Self {
            journal: Journal::new(output.journal.clone(), fingerprint, tensors.all.len()),
            tensors,
            plan,
            parts,
            output,
            partial: None,
            start: Start::New,
            warnings,
            bytes_done: 0,
            note_bytes: NOTE_BYTES,
        };
        conversion.take_up(fingerprint)?;
        tracing::info!(
            bytes = conversion.bytes(),
            done = conversion.bytes_done,
            start = %conversion.start,
            "conversion opened"
        );
        Ok(conversion)
    }

    /// Size of the container to come.
    pub fn file_bytes(&self) -> u64 {
        self.plan.file_bytes()
    }

    /// Bytes of weights to convert in all.
    pub fn bytes(&self) -> u64 {
        self.parts.bytes
    }

    /// Bytes of weights that are done.
    pub fn bytes_done(&self) -> u64 {
        self.bytes_done
    }

    /// What was found at the target.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// Things a person should know about the checkpoint, sentences.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Names of the shards that have still to be added, in order. Shards that hold nothing for the container are never among them.
    pub fn missing(&self) -> Vec<&str> {
        let mut missing = vec![false; self.tensors.shards.len()];
        for tensor in self.todo() {
            missing[self.tensors.all[tensor].shard] = true;
        }
        self.tensors
            .shards
            .iter()
            .zip(missing)
            .filter(|(_, missing)| *missing)
            .map(|(shard, _)| shard.name.as_str())
            .collect()
    }

    /// Copies what the container needs of a shard, whose file is at `path` whatever its name there. When this returns without an error,
    /// all of it is on the disk and noted, and the caller may delete the file. A shard that is done already is not read.
    ///
    /// `progress` gets bytes of weights done and in all. After an error or `cancel`, what was done stays done.
    pub fn add(
        &mut self,
        shard: &str,
        path: &Path,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let Some(number) = self.tensors.shards.iter().position(|s| s.name == shard) else {
            return Err(Error::Checkpoint {
                path: self.tensors.place.clone(),
                problem: format!("it has no shard {}.", shown(shard)),
            });
        };
        let mut todo: Vec<usize> = self
            .todo()
            .filter(|&tensor| self.tensors.all[tensor].shard == number)
            .collect();
        if todo.is_empty() {
            return Ok(());
        }
        // As they lie in the shard, so that the disk reads forwards.
        todo.sort_by_key(|&tensor| self.tensors.all[tensor].offset);
        let mut noted = Vec::new();
        let copied = self.copy(number, path, &todo, &mut noted, cancel, progress);
        // Whatever stopped the work, what is copied need not be copied again.
        let kept = self.keep(&mut noted);
        copied.and(kept)
    }

    /// Adds every missing shard from a folder.
    pub fn add_folder(
        &mut self,
        folder: &Path,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&str, u64, u64),
    ) -> Result<()> {
        let missing: Vec<String> = self.missing().into_iter().map(str::to_owned).collect();
        for shard in missing {
            self.add(&shard, &folder.join(&shard), cancel, &mut |done, all| {
                progress(&shard, done, all);
            })?;
        }
        Ok(())
    }

    /// Reads everything back, compares it with what the shards held, writes the index, and gives the file its name. `progress` gets bytes
    /// read back and in all.
    ///
    /// # Errors
    /// When shards are missing, or when the disk does not give back what was written: then those shards are missing again.
    pub fn finish(mut self, cancel: &AtomicBool, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let missing = self.missing();
        if let Some(first) = missing.first() {
            return Err(Error::Checkpoint {
                path: self.tensors.place.clone(),
                problem: format!(
                    "{} of its shards have not been converted yet, the first is {}.",
                    missing.len(),
                    shown(first)
                ),
            });
        }
        if self.start == Start::Finished {
            remove(self.journal.path())?;
            return Ok(());
        }
        let (tensors, records) = self.read_back(cancel, progress)?;
        let (header, index) = self.plan.index(&tensors, &records);
        let tokenizer = self.plan.map().tokenizer.start;
        self.write(tokenizer, self.plan.tokenizer().to_vec().as_slice())?;
        self.write(header.len() as u64, &index)?;
        self.sync()?;
        // Last of all, so that a power cut before here leaves no magic.
        self.write(0, &header)?;
        self.sync()?;
        let identity = Container::open(&self.output.partial)?.identity();
        self.journal.identity = identity;
        self.save()?;
        self.output.finish()?;
        remove(self.journal.path())?;
        tracing::info!(identity, "conversion finished");
        Ok(())
    }

    /// Removes everything that was done.
    pub fn discard(mut self) -> Result<()> {
        self.partial = None;
        self.output.discard()?;
        Ok(())
    }

    fn take_up(&mut self, fingerprint: u64) -> Result<()> {
        let count = self.tensors.all.len();
        let journal = Journal::load(self.output.journal.clone(), fingerprint, count)
            .map_err(|e| Error::io("read", &self.output.journal, e))?;
        let total = self.file_bytes();
        let partial = self.output.open()?;
        let Some(partial) = partial else {
            if let Ok(journal) = journal
                && journal.identity != 0
                && Container::open(self.output.target())
                    .is_ok_and(|there| there.identity() == journal.identity)
            {
                self.journal = journal;
                self.start = Start::Finished;
                self.bytes_done = self.parts.bytes;
                return Ok(());
            }
            self.output.check_room(total, 0)?;
            // What a journal without its file says is not so.
            remove(&self.output.journal)?;
            let partial = self.output.create()?;
            return self.begin(partial);
        };
        self.output.check_room(total, partial.room())?;
        let why = match journal {
            Ok(journal) if partial.length().is_ok_and(|length| length == total) => {
                self.journal = journal;
                self.partial = Some(partial);
                self.bytes_done = self.done().map(|t| self.tensors.all[t].bytes).sum();
                self.start = Start::Resumed {
                    bytes_done: self.bytes_done,
                };
                return Ok(());
            }
            Ok(_) => "has not the length it should have",
            Err(Unusable::Missing) => "has no record of what is in it",
            Err(Unusable::Damaged) => "has a damaged record of what is in it",
            Err(Unusable::OtherPlan) => {
                "was made of another checkpoint, with other options or by another version"
            }
        };
        self.start = Start::Over {
            reason: format!(
                "Started over: {}, left by an unfinished conversion, {why}.",
                shown_path(&self.output.partial)
            ),
        };
        remove(&self.output.journal)?;
        self.begin(partial)
    }

    fn begin(&mut self, partial: Partial) -> Result<()> {
        let total = self.file_bytes();
        partial
            .start_over(total)
            .map_err(|e| self.output.write_error(e, total))?;
        self.partial = Some(partial);
        self.save()
    }

    /// Copies tensors of a shard; those whose bytes are written are added to `noted` with their checksums.
    fn copy(
        &mut self,
        number: usize,
        path: &Path,
        todo: &[usize],
        noted: &mut Vec<(usize, u64)>,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let mut file = self.tensors.open(number, path)?;
        let all = self.parts.bytes;
        let mut done = self.bytes_done;
        let mut since = 0;
        progress(done, all);
        for &index in todo {
            let Some(mut at) = self.parts.target[index] else {
                continue;
            };
            let tensor = self.tensors.all[index].clone();
            let mut hasher = Hasher::new();
            file.copy(&tensor, &mut |piece| {
                if cancel.load(Ordering::Relaxed) {
                    return Err(Error::Cancelled);
                }
                hasher.write(piece);
                self.write(at, piece)?;
                at += piece.len() as u64;
                done += piece.len() as u64;
                progress(done, all);
                Ok(())
            })?;
            noted.push((index, hasher.finish()));
            since += tensor.bytes;
            if since >= self.note_bytes {
                self.keep(noted)?;
                forget_pages(file.file());
                since = 0;
            }
        }
        forget_pages(file.file());
        Ok(())
    }

    /// Puts on the disk what was written, then notes it.
    fn keep(&mut self, noted: &mut Vec<(usize, u64)>) -> Result<()> {
        if noted.is_empty() {
            return Ok(());
        }
        self.sync()?;
        for (index, sum) in noted.drain(..) {
            self.journal.note(index, sum);
            self.bytes_done += self.tensors.all[index].bytes;
        }
        self.save()
    }

    /// Compares everything in the file with what was read from the shards. Returns the checksums of the dense tensors and of the records.
    fn read_back(
        &mut self,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Vec<u64>, Vec<u64>)> {
        let mut damaged = Vec::new();
        let mut done = 0;
        let dense = self.parts.selection.dense.clone();
        let mut tensors = Vec::with_capacity(dense.len());
        for (index, _) in dense {
            let mut hasher = Hasher::new();
            self.read(index, cancel, &mut |piece| hasher.write(piece))?;
            done += self.tensors.all[index].bytes;
            progress(done, self.parts.bytes);
            let sum = hasher.finish();
            tensors.push(sum);
            if sum != self.journal.sum(index) {
                damaged.push(index);
            }
        }
        let count = self.parts.selection.records();
        let mut records = Vec::with_capacity(count);
        for record in 0..count {
            let mut whole = Hasher::new();
            for index in self.parts.selection.record(record).to_vec() {
                let mut hasher = Hasher::new();
                self.read(index, cancel, &mut |piece| {
                    hasher.write(piece);
                    whole.write(piece);
                })?;
                done += self.tensors.all[index].bytes;
                progress(done, self.parts.bytes);
                if hasher.finish() != self.journal.sum(index) {
                    damaged.push(index);
                }
            }
            records.push(whole.finish());
        }
        if damaged.is_empty() {
            return Ok((tensors, records));
        }
        let names: Vec<String> = damaged
            .iter()
            .map(|&index| shown(&self.tensors.all[index].name))
            .collect();
        for index in damaged {
            self.journal.forget(index);
        }
        self.save()?;
        Err(Error::ReadBack {
            path: self.output.partial.clone(),
            tensors: super::tensors::listed(&names, ", ", super::tensors::LISTED),
        })
    }

    /// Reads a tensor out of the partial file.
    fn read(
        &mut self,
        index: usize,
        cancel: &AtomicBool,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let bytes = self.tensors.all[index].bytes;
        let (Some(partial), Some(start)) = (&mut self.partial, self.parts.target[index]) else {
            return Ok(());
        };
        let mut piece = vec![0; PIECE_BYTES.min(bytes as usize)];
        let mut at = 0;
        while at < bytes {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let length = piece.len().min((bytes - at) as usize);
            partial
                .read(start + at, &mut piece[..length])
                .map_err(|e| Error::io("read back", &self.output.partial, e))?;
            sink(&piece[..length]);
            at += length as u64;
        }
        Ok(())
    }

    /// Tensors that are still to be copied.
    fn todo(&self) -> impl Iterator<Item = usize> + '_ {
        self.wanted().filter(|&index| !self.journal.is_done(index))
    }

    fn done(&self) -> impl Iterator<Item = usize> + '_ {
        self.wanted().filter(|&index| self.journal.is_done(index))
    }

    fn wanted(&self) -> impl Iterator<Item = usize> + '_ {
        let finished = self.start == Start::Finished;
        (0..self.tensors.all.len())
            .filter(move |&index| !finished && self.parts.target[index].is_some())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let Some(partial) = &mut self.partial else {
            return Ok(());
        };
        match partial.write(at, bytes) {
            Ok(()) => Ok(()),
            Err(e) => Err(self.write_error(e)),
        }
    }

    fn sync(&mut self) -> Result<()> {
        match self.partial.as_ref().map(Partial::sync) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(e)) => Err(self.write_error(e)),
        }
    }

    fn save(&self) -> Result<()> {
        self.journal.save().map_err(|e| self.write_error(e))
    }

    fn write_error(&self, source: io::Error) -> Error {
        let there = self.partial.as_ref().map_or(0, Partial::room);
        self.output
            .write_error(source, self.file_bytes().saturating_sub(there))
    }
}

/// Removes what an unfinished conversion to `out` has left, so that the next one begins anew. Returns whether there was anything.
pub fn discard_unfinished(out: &Path) -> Result<bool> {
    Output::prepare(out, &[])?.discard()
}

impl Checkpoint {
    fn config_path(&self) -> PathBuf {
        self.place.join(super::checkpoint::CONFIG)
    }
}

impl Parts {
    fn new(selection: Selection, plan: &Plan, tensors: &Tensors) -> Self {
        let mut target = vec![None; tensors.all.len()];
        for (&(index, _), entry) in selection.dense.iter().zip(plan.tensors()) {
            target[index] = Some(entry.offset);
        }
        for record in 0..selection.records() {
            let mut at = plan.record(record);
            // The parts of a record follow each other without gaps, in this order.
            for &index in selection.record(record) {
                target[index] = Some(at);
                at += tensors.all[index].bytes;
            }
        }
        let bytes = tensors
            .all
            .iter()
            .zip(&target)
            .filter(|(_, target)| target.is_some())
            .map(|(tensor, _)| tensor.bytes)
            .sum();
        Self {
            target,
            bytes,
            selection,
        }
    }
}

/// Stands for everything that decides the container's bytes, and for the shards they come from.
fn fingerprint(plan: &Plan, tensors: &Tensors) -> u64 {
    let mut hasher = Hasher::new();
    let (header, index) = plan.index(&[], &vec![0; plan.records()]);
    hasher.write(&header);
    hasher.write(&index);
    hasher.write(plan.tokenizer());
    for shard in &tensors.shards {
        hasher.write(&shard.fingerprint.to_le_bytes());
    }
    hasher.finish()
}

/// The directory to be: dense tensors in the order of the inventory.
fn entries(selection: &Selection, tensors: &Tensors) -> Result<Vec<Entry>> {
    selection
        .dense
        .iter()
        .map(|&(index, dtype)| {
            let tensor = &tensors.all[index];
            if !fits_directory(&tensor.name, tensor.shape.len()) {
                return Err(Error::Checkpoint {
                    path: tensors.place.clone(),
                    problem: format!("the name of tensor {} is too long.", shown(&tensor.name)),
                });
            }
            Ok(Entry {
                name: tensor.name.clone(),
                dtype,
                shape: tensor.shape.clone(),
                offset: 0,
                bytes: tensor.bytes,
                checksum: 0,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::fs;

    /// A checkpoint of the tests of the engine, in one shard.
    fn checkpoint() -> PathBuf {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        crates.join("engine/tests/fixtures/c_fp8_fp4")
    }

    fn open(out: &Path) -> Conversion {
        Conversion::open(Checkpoint::open(&checkpoint()).unwrap(), out).unwrap()
    }

    fn add(conversion: &mut Conversion) -> Result<()> {
        let go_on = AtomicBool::new(false);
        conversion.add_folder(&checkpoint(), &go_on, &mut |_, _, _| {})
    }

    fn finish(conversion: Conversion) -> Result<()> {
        conversion.finish(&AtomicBool::new(false), &mut |_, _| {})
    }

    #[test]
    fn a_disk_that_fills_up_keeps_what_is_done_and_says_how_much_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let undisturbed = folder.path().join("undisturbed.fst");
        crate::convert(&checkpoint(), &undisturbed, &mut |_, _| {}).unwrap();
        let out = folder.path().join("m.fst");
        let mut conversion = open(&out);
        let room = conversion.bytes() * 7 / 10;
        conversion.partial.as_mut().unwrap().room = Some(room);
        let error = add(&mut conversion).unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("more are needed") && text.contains("is kept"),
            "{text}"
        );
        let kept = conversion.bytes_done();
        assert!(kept > room / 2 && kept <= room, "{kept} of {room}");
        assert!(!out.exists());
        drop(conversion);
        // There is room again.
        let mut conversion = open(&out);
        assert_eq!(*conversion.start(), Start::Resumed { bytes_done: kept });
        add(&mut conversion).unwrap();
        // Full once more, at the very end.
        conversion.partial.as_mut().unwrap().room = Some(0);
        let error = finish(conversion).unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        assert!(!out.exists());
        finish(open(&out)).unwrap();
        assert!(fs::read(&out).unwrap() == fs::read(&undisturbed).unwrap());
    }

    #[test]
    fn work_within_a_shard_is_noted_as_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("m.fst");
        let mut conversion = open(&out);
        conversion.note_bytes = 1;
        let path = conversion.output.journal.clone();
        let count = conversion.tensors.all.len();
        let fingerprint = fingerprint(&conversion.plan, &conversion.tensors);
        let mut most = 0;
        let go_on = AtomicBool::new(false);
        conversion
            .add_folder(&checkpoint(), &go_on, &mut |_, _, _| {
                let journal = Journal::load(path.clone(), fingerprint, count)
                    .unwrap()
                    .ok();
                let done = journal.map_or(0, |j| (0..count).filter(|&t| j.is_done(t)).count());
                assert!(done >= most);
                most = done;
            })
            .unwrap();
        // A kill would have lost one tensor at most.
        assert!(most + 2 >= count, "{most} of {count}");
    }
}
