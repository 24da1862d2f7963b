//! One conversion: planned from headers alone, fed a shard at a time, finished when all are in.

mod copy;
mod finish;
mod places;
mod start;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use super::checkpoint::{CONFIG, CREATOR, Checkpoint, TOKENIZER};
use super::config::Dimensions;
use super::inventory;
use super::journal::Journal;
use super::output::{Output, Partial};
use super::tensors::Tensors;
use super::tokenizer;
use crate::error::{Error, Result, json_problem};
use crate::format::Metadata;
use crate::layout::ExpertLayout;
use crate::packing::Packing;
use crate::write::{Contents, Plan};

use places::{Parts, entries, fingerprint};
pub use start::Start;
use start::is_begun;

/// Bytes after which what was copied is put on the disk and noted, also within a shard.
const NOTE_BYTES: u64 = 1 << 30;

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
    /// The matrix that is being packed or was read back.
    packing: Packing,
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
                problem: format!("it {}.", json_problem(&e)),
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
        let mut selection = match selection {
            Some(selection) if problems.is_empty() => selection,
            _ => return Err(Error::several(problems, &checkpoint.place)),
        };
        warnings.extend(selection.warnings.iter().cloned());
        let output = Output::prepare(out, &checkpoint.files())?;
        let too_large = || Error::Checkpoint {
            path: checkpoint.place.clone(),
            problem: "it is too large for a container.".into(),
        };
        let (creator, effort) = (&checkpoint.creator, checkpoint.effort_table());
        let entries = entries(&selection, &tensors)?;
        let planned = |layout: &ExpertLayout| {
            let plan = Plan::new(Contents {
                metadata: Metadata {
                    creator: creator.clone().unwrap_or_else(|| CREATOR.into()),
                    effort,
                    source: checkpoint.source(),
                    layout: layout.clone(),
                    upgraded: false,
                    indexer: true,
                },
                tensors: entries.clone(),
                layers: dimensions.layers,
                experts: dimensions.experts,
                config: checkpoint.config.clone(),
                tokenizer: checkpoint.tokenizer.clone(),
            })
            .ok_or_else(too_large)?;
            let fingerprint = fingerprint(&plan, &tensors);
            Ok((plan, fingerprint))
        };
        let (mut plan, mut fingerprint) = planned(&selection.layout)?;
        // Versions before there were packets stored FP4 in rows. What they began goes on as it began.
        if let Some(rows) = selection.layout.in_rows()
            && let (older, its_fingerprint) = planned(&rows)?
            && is_begun(&output, &older, its_fingerprint, tensors.all.len())?
        {
            (plan, fingerprint) = (older, its_fingerprint);
            selection.layout = rows;
        }
        let parts = Parts::new(selection, &plan, &tensors);
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
            packing: Packing::default(),
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

    /// Removes everything that was done.
    pub fn discard(mut self) -> Result<()> {
        self.partial = None;
        self.output.discard()?;
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
            .filter(move |&index| !finished && self.parts.place[index].is_some())
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
        self.place.join(CONFIG)
    }
}
