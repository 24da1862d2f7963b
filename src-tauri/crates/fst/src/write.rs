//! Where everything in a container to be lies, and the bytes of its header and index. Writing them is the conversion's business.

use twox_hash::xxhash3_64::Hasher;

use crate::format::{
    Entry, HEADER_BYTES, Header, Map, Metadata, RECORD_ALIGNMENT, TENSOR_ALIGNMENT, align,
    encode_directory, index_checksum,
};

/// Everything about a container but the bytes of its weights.
pub(crate) struct Contents {
    pub config: Vec<u8>,
    pub tokenizer: Option<Vec<u8>>,
    pub metadata: Metadata,
    /// Dense tensors in file order; offsets are filled in here.
    pub tensors: Vec<Entry>,
    pub layers: usize,
    pub experts: usize,
}

/// A container ready to be written: sizes and places are known.
pub(crate) struct Plan {
    contents: Contents,
    metadata: Vec<u8>,
    header: Header,
    map: Map,
}

impl Plan {
    /// Places everything; none when sizes overflow.
    pub fn new(mut contents: Contents) -> Option<Self> {
        let metadata = serde_json::to_vec(&contents.metadata).ok()?;
        let record_bytes = contents.metadata.layout.bytes as u64;
        let tokenizer = contents.tokenizer.as_deref().unwrap_or_default();
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
        let map = header.map().ok()?;
        header.file_bytes = map.records.end;
        Some(Self {
            contents,
            metadata,
            header,
            map,
        })
    }

    /// Size of the file to come.
    pub fn file_bytes(&self) -> u64 {
        self.header.file_bytes
    }

    /// Where the parts are to lie.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Dense tensors with their places.
    pub fn tensors(&self) -> &[Entry] {
        &self.contents.tensors
    }

    /// Number of expert records.
    pub fn records(&self) -> usize {
        self.contents.layers * self.contents.experts
    }

    /// Where the record with this number, layer by layer, begins.
    pub fn record(&self, number: usize) -> u64 {
        self.map.records.start + number as u64 * self.header.record_stride
    }

    /// The tokenizer's bytes, none or many.
    pub fn tokenizer(&self) -> &[u8] {
        self.contents.tokenizer.as_deref().unwrap_or_default()
    }

    /// Everything but weights and tokenizer: the header, and the index behind it, once the checksums of dense tensors and records are known.
    pub fn index(&self, tensors: &[u64], records: &[u64]) -> ([u8; HEADER_BYTES], Vec<u8>) {
        let mut entries = self.contents.tensors.clone();
        for (entry, &checksum) in entries.iter_mut().zip(tensors) {
            entry.checksum = checksum;
        }
        let records: Vec<u8> = records.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let mut index = vec![0; (self.map.checksums.end - HEADER_BYTES as u64) as usize];
        for (range, bytes) in [
            (&self.map.config, self.contents.config.as_slice()),
            (&self.map.metadata, &self.metadata),
            (&self.map.directory, &encode_directory(&entries)),
            (&self.map.checksums, &records),
        ] {
            index[range.start as usize - HEADER_BYTES..range.end as usize - HEADER_BYTES]
                .copy_from_slice(bytes);
        }
        let mut header = self.header;
        header.index_checksum = index_checksum(&header.encode(), &index);
        (header.encode(), index)
    }
}
