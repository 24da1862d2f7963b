//! What makes a container of a partial file in which every tensor is.

use std::hash::Hasher as _;
use std::sync::atomic::{AtomicBool, Ordering};

use twox_hash::xxhash3_64::Hasher;

use super::super::output::remove;
use super::super::tensors::{LISTED, listed};
use super::places::Place;
use super::{Conversion, Start};
use crate::error::{Error, Result, shown};
use crate::read::Container;

const PIECE_BYTES: usize = 1 << 20;

impl Conversion {
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

    /// Compares everything in the file with what was read from the shards. Returns the checksums of the dense tensors and of the records.
    fn read_back(
        &mut self,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Vec<u64>, Vec<u64>)> {
        let mut damaged = Vec::new();
        let mut done = 0;
        let all = self.parts.bytes;
        let dense = self.parts.selection.dense.clone();
        let mut tensors = Vec::with_capacity(dense.len());
        for (index, _) in dense {
            let mut hasher = Hasher::new();
            self.read(index, cancel, &mut |piece| hasher.write(piece))?;
            done += self.tensors.all[index].bytes;
            progress(done, all);
            let sum = hasher.finish();
            tensors.push(sum);
            if sum != self.journal.sum(index) {
                damaged.push(index);
            }
        }
        let count = self.parts.selection.records();
        let mut records = Vec::with_capacity(count);
        for record in 0..count {
            records.push(
                self.read_record(record, &mut damaged, cancel, &mut |bytes| {
                    done += bytes;
                    progress(done, all);
                })?,
            );
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
            tensors: listed(&names, ", ", LISTED),
        })
    }

    /// Compares one record with what was read from the shards and returns its checksum.
    fn read_record(
        &mut self,
        record: usize,
        damaged: &mut Vec<usize>,
        cancel: &AtomicBool,
        told: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let mut whole = Hasher::new();
        let mut compare = |index: usize, sum: u64, conversion: &Self| {
            if sum != conversion.journal.sum(index) {
                damaged.push(index);
            }
            told(conversion.tensors.all[index].bytes);
        };
        if self.parts.matrices.is_empty() {
            for index in self.parts.selection.record(record).to_vec() {
                let mut hasher = Hasher::new();
                self.read(index, cancel, &mut |piece| {
                    hasher.write(piece);
                    whole.write(piece);
                })?;
                compare(index, hasher.finish(), self);
            }
            return Ok(whole.finish());
        }
        for number in 3 * record..3 * record + 3 {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let (matrix, shape) = self.parts.matrix(number);
            let mut packing = std::mem::take(&mut self.packing);
            packing.shape(shape);
            let read = self.read_back_at(matrix.at, &mut packing.packets);
            if read.is_ok() {
                packing.unpack();
                whole.write(&packing.packets);
                for (index, bytes) in [
                    (matrix.weight, &packing.weight),
                    (matrix.scale, &packing.scale),
                ] {
                    compare(index, Hasher::oneshot(bytes), self);
                }
            }
            self.packing = packing;
            read?;
        }
        Ok(whole.finish())
    }

    /// Reads out of the partial file.
    pub(super) fn read_back_at(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        let Some(partial) = &mut self.partial else {
            return Ok(());
        };
        partial
            .read(at, into)
            .map_err(|e| Error::io("read back", &self.output.partial, e))
    }

    /// Reads a tensor that is stored as it is out of the partial file.
    fn read(
        &mut self,
        index: usize,
        cancel: &AtomicBool,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let bytes = self.tensors.all[index].bytes;
        let Some(Place::Whole(start)) = self.parts.place[index] else {
            return Ok(());
        };
        let mut piece = vec![0; PIECE_BYTES.min(bytes as usize)];
        let mut at = 0;
        while at < bytes {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let length = piece.len().min((bytes - at) as usize);
            self.read_back_at(start + at, &mut piece[..length])?;
            sink(&piece[..length]);
            at += length as u64;
        }
        Ok(())
    }
}
