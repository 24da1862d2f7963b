//! Writes a container: data first, header and index last, so that a file that was not finished has no magic.

use std::fs::File;
use std::hash::Hasher as _;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use twox_hash::xxhash3_64::Hasher;

use crate::error::{Error, Result};
use crate::format::{
    Entry, HEADER_BYTES, Header, Metadata, RECORD_ALIGNMENT, TENSOR_ALIGNMENT, align,
    encode_directory, index_checksum,
};

/// Everything about a container but the bytes of its weights.
pub(crate) struct Contents<'a> {
    pub config: &'a [u8],
    pub tokenizer: Option<&'a [u8]>,
    pub metadata: Metadata,
    /// Dense tensors in file order; offsets and checksums are filled in here.
    pub tensors: Vec<Entry>,
    pub layers: usize,
    pub experts: usize,
}

/// Where the bytes of the weights come from.
pub(crate) trait Weights {
    /// Hands all bytes of the dense tensor `index` to `sink`, in pieces.
    fn dense(&mut self, index: usize, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
    /// Fills `record` with one expert in the order of the layout.
    fn expert(&mut self, layer: usize, expert: usize, record: &mut [u8]) -> Result<()>;
}

/// A container ready to be written: sizes and places are known.
pub(crate) struct Plan<'a> {
    contents: Contents<'a>,
    metadata: Vec<u8>,
    header: Header,
}

impl<'a> Plan<'a> {
    /// Places everything; none when sizes overflow.
    pub fn new(mut contents: Contents<'a>) -> Option<Self> {
        let metadata = serde_json::to_vec(&contents.metadata).ok()?;
        let record_bytes = contents.metadata.layout.bytes as u64;
        let tokenizer = contents.tokenizer.unwrap_or_default();
        let mut header = Header {
            config_bytes: contents.config.len() as u64,
            metadata_bytes: metadata.len() as u64,
            directory_bytes: encode_directory(&contents.tensors).len() as u64,
            tensors: contents.tensors.len() as u64,
            tokenizer_bytes: tokenizer.len() as u64,
            tokenizer_checksum: match tokenizer {
                [] => 0,
                text => Hasher::oneshot(text),
            },
            layers: contents.layers as u64,
            experts: contents.experts as u64,
            record_bytes,
            record_stride: align(record_bytes, RECORD_ALIGNMENT)?,
            // Moved behind the tensors once their places are known.
            records_offset: RECORD_ALIGNMENT,
            index_offset: HEADER_BYTES as u64,
            ..Header::default()
        };
        let mut at = header.map().ok()?.index().end;
        for tensor in &mut contents.tensors {
            tensor.offset = align(at, TENSOR_ALIGNMENT)?;
            at = tensor.offset.checked_add(tensor.bytes)?;
        }
        header.records_offset = align(at, RECORD_ALIGNMENT)?;
        header.file_bytes = header.map().ok()?.records.end;
        Some(Self {
            contents,
            metadata,
            header,
        })
    }

    /// Size of the file to come.
    pub fn file_bytes(&self) -> u64 {
        self.header.file_bytes
    }

    /// Writes the file. `progress` gets bytes done and bytes in all, and may end the work with an error.
    pub fn write(
        mut self,
        file: &mut File,
        path: &Path,
        weights: &mut dyn Weights,
        progress: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let io = |source| Error::io("write", path, source);
        let Ok(map) = self.header.map() else {
            return Err(Error::Output {
                path: path.to_owned(),
                problem: "the container would be too large.".into(),
            });
        };
        let total = self.header.file_bytes;
        progress(0, total)?;
        // The length at once: gaps read as zeros, and a file system that cannot hold such a file says so now.
        file.set_len(total).map_err(io)?;
        let mut put = |at: u64, bytes: &[u8]| {
            file.seek(SeekFrom::Start(at))
                .and_then(|_| file.write_all(bytes))
                .map_err(io)
        };
        put(
            map.tokenizer.start,
            self.contents.tokenizer.unwrap_or_default(),
        )?;
        for (index, tensor) in self.contents.tensors.iter_mut().enumerate() {
            let mut hasher = Hasher::new();
            let mut at = tensor.offset;
            weights.dense(index, &mut |piece| {
                hasher.write(piece);
                put(at, piece)?;
                at += piece.len() as u64;
                progress(at, total)
            })?;
            tensor.checksum = hasher.finish();
        }
        let mut record = vec![0; self.contents.metadata.layout.bytes];
        let mut checksums = Vec::with_capacity((map.checksums.end - map.checksums.start) as usize);
        let mut at = map.records.start;
        for layer in 0..self.contents.layers {
            for expert in 0..self.contents.experts {
                weights.expert(layer, expert, &mut record)?;
                checksums.extend_from_slice(&Hasher::oneshot(&record).to_le_bytes());
                put(at, &record)?;
                at += self.header.record_stride;
                progress(at, total)?;
            }
        }
        let mut index = vec![0; map.checksums.end as usize - HEADER_BYTES];
        for (range, bytes) in [
            (&map.config, self.contents.config),
            (&map.metadata, &self.metadata),
            (&map.directory, &encode_directory(&self.contents.tensors)),
            (&map.checksums, &checksums),
        ] {
            index[range.start as usize - HEADER_BYTES..range.end as usize - HEADER_BYTES]
                .copy_from_slice(bytes);
        }
        self.header.index_checksum = index_checksum(&self.header.encode(), &index);
        put(HEADER_BYTES as u64, &index)?;
        file.sync_all().map_err(io)?;
        // Last of all, so that a power cut before here leaves no magic.
        file.seek(SeekFrom::Start(0))
            .and_then(|_| file.write_all(&self.header.encode()))
            .and_then(|()| file.sync_all())
            .map_err(io)
    }
}
