//! Where everything in a container to be lies, and the bytes of its header and index. Writing them is the conversion's business.

use twox_hash::xxhash3_64::Hasher;

use crate::format::{
    Entry, HEADER_BYTES, Header, Map, Metadata, RECORD_ALIGNMENT, TENSOR_ALIGNMENT, align,
    encode_directory, index_checksum,
};
use crate::layout::tensor_bytes;

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
    /// Places everything; none when sizes overflow, or when a tensor cannot be of its type.
    pub fn new(mut contents: Contents) -> Option<Self> {
        let fits = |tensor: &Entry| {
            tensor_bytes(tensor.dtype, &tensor.shape).map(|bytes| bytes as u64)
                == Some(tensor.bytes)
        };
        if !contents.tensors.iter().all(fits) {
            return None;
        }
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

    /// What the container says about itself.
    pub fn metadata(&self) -> &Metadata {
        &self.contents.metadata
    }

    /// Dense tensors with their places.
    pub fn tensors(&self) -> &[Entry] {
        &self.contents.tensors
    }

    /// Number of expert records.
    pub fn records(&self) -> usize {
        self.contents.layers * self.contents.experts
    }

    /// Bytes of one of them, its padding left out.
    pub fn record_bytes(&self) -> usize {
        self.contents.metadata.layout.bytes
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::format::Source;
    use crate::layout::{Dtype, ExpertLayout};
    use crate::read::Container;

    fn entry(name: &str, dtype: Dtype, shape: &[usize], bytes: u64) -> Entry {
        Entry {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            offset: 0,
            bytes,
            checksum: 0,
        }
    }

    fn contents(tensors: Vec<Entry>) -> Contents {
        Contents {
            config: br#"{"num_hidden_layers": 1, "n_routed_experts": 2}"#.to_vec(),
            tokenizer: None,
            metadata: Metadata {
                creator: "a test".into(),
                source: Source::default(),
                effort: None,
                layout: ExpertLayout::fp4_packets(64, 32).unwrap(),
                upgraded: false,
                indexer: true,
            },
            tensors,
            layers: 1,
            experts: 2,
        }
    }

    #[test]
    fn what_was_placed_is_read_back_packets_and_q8_0_too() {
        let plan = Plan::new(contents(vec![
            entry("a", Dtype::Q8_0, &[3, 64], 204),
            entry("b", Dtype::F32, &[1], 4),
        ]))
        .unwrap();
        let dense = [vec![7u8; 204], vec![0; 4]];
        // By hand: 4 groups of 2 blocks for gate and up each, 8 groups of 1 block for down, each block 136 bytes.
        let record = |expert: u8| (0..24 * 136).map(|i| i as u8 ^ expert).collect::<Vec<u8>>();
        let records = [record(1), record(2)];
        let sums = |parts: &[Vec<u8>]| -> Vec<u64> {
            parts.iter().map(|part| Hasher::oneshot(part)).collect()
        };
        let (header, index) = plan.index(&sums(&dense), &sums(&records));
        let mut bytes = vec![0; plan.file_bytes() as usize];
        let mut put =
            |at: u64, part: &[u8]| bytes[at as usize..][..part.len()].copy_from_slice(part);
        put(0, &header);
        put(HEADER_BYTES as u64, &index);
        for (tensor, data) in plan.tensors().iter().zip(&dense) {
            put(tensor.offset, data);
        }
        for (number, record) in records.iter().enumerate() {
            put(plan.record(number), record);
        }
        let container = Container::from_static(bytes.leak()).unwrap();
        assert_eq!(container.expert_layout().id, "fp4-packets");
        assert_eq!(container.expert(0, 1).unwrap(), records[1]);
        let q8_0 = container.tensor("a").unwrap();
        assert_eq!((q8_0.dtype, q8_0.shape), (Dtype::Q8_0, &[3, 64][..]));
        assert_eq!((q8_0.bytes, q8_0.elements()), (204, 192));
        assert_eq!(container.read("a").unwrap(), dense[0]);
        container.verify(&mut |_, _| {}).unwrap();
        let about = container.inspect();
        // The tensors and twice three matrices of 32 x 64.
        assert_eq!(about.parameters, 192 + 1 + 2 * 3 * 2048);
        assert!(about.to_string().contains("MXFP4"), "{about}");
    }

    #[test]
    fn what_nobody_could_read_is_not_written() {
        for wrong in [
            entry("a", Dtype::Q8_0, &[3, 33], 105),
            entry("a", Dtype::Q8_0, &[3, 64], 192),
            entry("a", Dtype::Fp4Packets, &[8, 32], 136),
        ] {
            assert!(
                Plan::new(contents(vec![wrong.clone()])).is_none(),
                "{wrong:?}"
            );
        }
    }
}
