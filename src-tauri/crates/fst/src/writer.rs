//! Writing a container of weights that are made rather than converted, for measuring and for tests: tensors and then records, in file
//! order, each once. What a conversion needs beyond that (going on after an interruption, reading back) is not here.

use std::fs;
use std::hash::Hasher as _;
use std::path::Path;

use twox_hash::xxhash3_64::Hasher;

use crate::convert::{CREATOR, Output, Partial, remove};
use crate::error::{Error, Result};
use crate::format::{Entry, Metadata, Source};
use crate::layout::{Dtype, ExpertLayout, tensor_bytes};
use crate::write::{Contents, Plan};

/// Bytes written at a time: whole rows, at least one.
const PIECE_BYTES: usize = 4 << 20;

/// What a container is to hold.
pub struct NewContainer {
    /// config.json.
    pub config: Vec<u8>,
    /// Where the weights come from, for people.
    pub source: String,
    /// Dense tensors: name, type, sizes outermost first.
    pub tensors: Vec<(String, Dtype, Vec<usize>)>,
    /// Layers with routed experts.
    pub layers: usize,
    /// Routed experts in each.
    pub experts: usize,
    /// Their layout.
    pub layout: ExpertLayout,
}

/// A container being written. Dropped before [`Writer::finish`], it leaves nothing behind.
pub struct Writer {
    plan: Plan,
    output: Output,
    partial: Partial,
    tensors: Vec<u64>,
    records: Vec<u64>,
    finished: bool,
}

impl Writer {
    /// Places everything and begins a partial file beside `out`.
    ///
    /// # Errors
    /// When sizes overflow, the disk has no room, or something is in the way.
    pub fn create(out: &Path, contents: NewContainer) -> Result<Self> {
        let output = Output::prepare(out, &[])?;
        output.may_begin()?;
        let fail = |problem: &str| Error::Output {
            path: out.to_owned(),
            problem: problem.to_owned(),
        };
        let entries = contents.tensors.into_iter().map(|(name, dtype, shape)| {
            Some(Entry {
                bytes: tensor_bytes(dtype, &shape)? as u64,
                name,
                dtype,
                shape,
                offset: 0,
                checksum: 0,
            })
        });
        let plan = entries.collect::<Option<Vec<_>>>().and_then(|tensors| {
            Plan::new(Contents {
                config: contents.config,
                tokenizer: None,
                metadata: Metadata {
                    creator: CREATOR.to_owned(),
                    source: Source {
                        folder: Some(contents.source),
                        ..Source::default()
                    },
                    effort: None,
                    layout: contents.layout,
                    upgraded: false,
                    indexer: true,
                },
                tensors,
                layers: contents.layers,
                experts: contents.experts,
            })
        });
        let plan = plan.ok_or_else(|| fail("a model of these sizes is larger than any file."))?;
        output.check_room(plan.file_bytes(), 0)?;
        if fs::symlink_metadata(&output.partial).is_ok() {
            return Err(output.in_the_way());
        }
        let partial = output.create()?;
        let writer = Self {
            plan,
            output,
            partial,
            tensors: Vec::new(),
            records: Vec::new(),
            finished: false,
        };
        writer
            .partial
            .start_over(writer.file_bytes())
            .map_err(|e| writer.failed(e))?;
        Ok(writer)
    }

    /// Size of the file.
    pub fn file_bytes(&self) -> u64 {
        self.plan.file_bytes()
    }

    /// Writes the next tensor. `fill` is called with one piece of its bytes after the other, each of whole rows.
    ///
    /// # Panics
    /// If every tensor has been written.
    pub fn tensor(&mut self, fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let entry = &self.plan.tensors()[self.tensors.len()];
        let (mut at, end) = (entry.offset, entry.offset + entry.bytes);
        let rows = entry.shape.first().map_or(1, |rows| (*rows).max(1));
        let row = (entry.bytes as usize / rows).max(1);
        let mut piece = vec![0; row * (PIECE_BYTES / row).clamp(1, rows)];
        let mut hasher = Hasher::new();
        while at < end {
            let length = piece.len().min((end - at) as usize);
            let piece = &mut piece[..length];
            fill(piece);
            hasher.write(piece);
            self.put(at, piece)?;
            at += length as u64;
        }
        self.tensors.push(hasher.finish());
        Ok(())
    }

    /// Writes the next record; they go layer by layer.
    ///
    /// # Panics
    /// If it has not the bytes of a record, or every record has been written.
    pub fn record(&mut self, bytes: &[u8]) -> Result<()> {
        let number = self.records.len();
        assert!(number < self.plan.records());
        assert_eq!(bytes.len(), self.plan.record_bytes());
        self.put(self.plan.record(number), bytes)?;
        self.records.push(Hasher::oneshot(bytes));
        Ok(())
    }

    /// Writes the index and gives the file its name. Everything is on the disk then, and not in memory.
    ///
    /// # Panics
    /// If a tensor or record is missing.
    pub fn finish(mut self) -> Result<()> {
        assert_eq!(self.tensors.len(), self.plan.tensors().len());
        assert_eq!(self.records.len(), self.plan.records());
        let (header, index) = self.plan.index(&self.tensors, &self.records);
        self.put(header.len() as u64, &index)?;
        self.put(0, &header)?;
        self.partial.sync().map_err(|e| self.failed(e))?;
        self.output.finish()?;
        self.finished = true;
        Ok(())
    }

    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.partial.write(at, bytes).map_err(|e| self.failed(e))
    }

    fn failed(&self, error: std::io::Error) -> Error {
        Error::io("write", &self.output.partial, error)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished
            && let Err(error) = remove(&self.output.partial)
        {
            tracing::warn!(%error, "an unfinished file is left");
        }
    }
}
