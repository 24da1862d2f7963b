//! From the shards into the partial file.

use std::hash::Hasher as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use twox_hash::xxhash3_64::Hasher;

use super::super::output::forget_pages;
use super::Conversion;
use crate::error::{Error, Result, shown};

impl Conversion {
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
}
