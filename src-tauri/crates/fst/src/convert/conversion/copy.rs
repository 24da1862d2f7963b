//! From the shards into the partial file.

use std::collections::HashMap;
use std::hash::Hasher as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use twox_hash::xxhash3_64::Hasher;

use super::super::output::forget_pages;
use super::super::tensors::ShardFile;
use super::Conversion;
use super::places::{PackedMatrix, Place};
use crate::error::{Error, Result, shown};
use crate::packing::Packing;

/// A step of copying a shard.
enum Step {
    /// This tensor to this place.
    Copy(usize, u64),
    /// Into the packets of this matrix, its weights, its scales or both.
    Pack {
        matrix: usize,
        tensors: [Option<usize>; 2],
    },
}

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
        let todo: Vec<usize> = self
            .todo()
            .filter(|&tensor| self.tensors.all[tensor].shard == number)
            .collect();
        if todo.is_empty() {
            return Ok(());
        }
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
        for step in self.steps(todo) {
            let before = done;
            let mut told = |bytes: u64| {
                done += bytes;
                progress(done, all);
            };
            match step {
                Step::Copy(index, at) => {
                    let sum = self.copy_tensor(&mut file, index, at, cancel, &mut told)?;
                    noted.push((index, sum));
                }
                Step::Pack { matrix, tensors } => {
                    self.pack(&mut file, matrix, tensors, noted, cancel, &mut told)?;
                }
            }
            since += done - before;
            if since >= self.note_bytes {
                self.keep(noted)?;
                forget_pages(file.file());
                since = 0;
            }
        }
        forget_pages(file.file());
        Ok(())
    }

    /// What to do for the tensors of one shard: as they lie there, so that the disk reads forwards.
    fn steps(&self, todo: &[usize]) -> Vec<Step> {
        let mut todo = todo.to_vec();
        todo.sort_by_key(|&tensor| self.tensors.all[tensor].offset);
        let mut steps = Vec::with_capacity(todo.len());
        // Steps by matrix: both its tensors may be here.
        let mut packing = HashMap::new();
        for index in todo {
            match self.parts.place[index] {
                None => {}
                Some(Place::Whole(at)) => steps.push(Step::Copy(index, at)),
                Some(Place::Matrix(matrix)) => {
                    let half = usize::from(self.parts.matrices[matrix].scale == index);
                    let step = *packing.entry(matrix).or_insert_with(|| {
                        steps.push(Step::Pack {
                            matrix,
                            tensors: [None; 2],
                        });
                        steps.len() - 1
                    });
                    if let Step::Pack { tensors, .. } = &mut steps[step] {
                        tensors[half] = Some(index);
                    }
                }
            }
        }
        steps
    }

    /// Copies a tensor to its place and returns its checksum.
    fn copy_tensor(
        &mut self,
        file: &mut ShardFile,
        index: usize,
        mut at: u64,
        cancel: &AtomicBool,
        told: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let tensor = self.tensors.all[index].clone();
        let mut hasher = Hasher::new();
        file.copy(&tensor, &mut |piece| {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            hasher.write(piece);
            self.write(at, piece)?;
            at += piece.len() as u64;
            told(piece.len() as u64);
            Ok(())
        })?;
        Ok(hasher.finish())
    }

    /// Packs a matrix of which this shard has weights, scales or both, into its place. A half that was written before is taken from there, and
    /// one that is still to come counts as zeros.
    fn pack(
        &mut self,
        file: &mut ShardFile,
        number: usize,
        tensors: [Option<usize>; 2],
        noted: &mut Vec<(usize, u64)>,
        cancel: &AtomicBool,
        told: &mut dyn FnMut(u64),
    ) -> Result<()> {
        if cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        let (matrix, shape) = self.parts.matrix(number);
        let mut packing = std::mem::take(&mut self.packing);
        packing.shape(shape);
        let result = self.pack_halves(&mut packing, file, matrix, tensors);
        self.packing = packing;
        for (index, sum) in result?.into_iter().flatten() {
            noted.push((index, sum));
            told(self.tensors.all[index].bytes);
        }
        Ok(())
    }

    fn pack_halves(
        &mut self,
        packing: &mut Packing,
        file: &mut ShardFile,
        matrix: PackedMatrix,
        tensors: [Option<usize>; 2],
    ) -> Result<[Option<(usize, u64)>; 2]> {
        let kept = [(0, matrix.weight), (1, matrix.scale)]
            .map(|(half, index)| tensors[half].is_none() && self.journal.is_done(index));
        if kept.contains(&true) {
            self.read_back_at(matrix.at, &mut packing.packets)?;
            packing.unpack();
        }
        let mut sums = [None; 2];
        for (half, into) in [&mut packing.weight, &mut packing.scale]
            .into_iter()
            .enumerate()
        {
            match tensors[half] {
                Some(index) => {
                    file.read(&self.tensors.all[index], into)?;
                    sums[half] = Some((index, Hasher::oneshot(into)));
                }
                None if kept[half] => {}
                None => into.fill(0),
            }
        }
        packing.pack();
        self.write(matrix.at, &packing.packets)?;
        Ok(sums)
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
