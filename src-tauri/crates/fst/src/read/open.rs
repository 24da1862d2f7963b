//! From bytes to a container whose every offset, length and name is checked.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use serde_json::Value;
use twox_hash::xxhash3_64::Hasher;

use super::file::{Bytes, check_start};
use super::places::codes;
use super::{Container, Records, Text, Tokenizer};
use crate::error::{Error, Result, json_problem, shown};
use crate::format::{
    Entry, HEADER_BYTES, Header, Metadata, Source, VERSION, decode_directory, index_checksum,
};
use crate::layout::EffortTable;
use crate::remedy::Remedy;
use crate::v2;

/// Most bytes of the index, which is read as a whole: that of DeepSeek V4 Flash has less than one million.
const MOST_INDEX_BYTES: u64 = 256 << 20;
/// Most bytes of tokenizer.json; that of DeepSeek V4 has 8 million.
const MOST_TOKENIZER_BYTES: u64 = 256 << 20;

impl Container {
    pub(super) fn version_2(path: &Path, bytes: Bytes, name: String) -> Result<Self> {
        let model = v2::open(path, &bytes)?;
        let (sources, entries): (Vec<_>, Vec<_>) = model.entries.into_iter().unzip();
        let config_text = model.config.to_string().into_bytes();
        let records = Records {
            name: name.as_str().into(),
            first: model.bank,
            stride: model.stride,
            bytes: model.layout.bytes,
            experts: model.experts,
            checksums: None,
            remedy: Remedy::Copy,
            codes: codes(&model.layout),
        };
        Ok(Self {
            version: v2::VERSION,
            identity: model.identity,
            config: model.config,
            config_text,
            tokenizer: Text::Own(model.tokenizer),
            metadata: Metadata {
                creator: "the original FaStar".to_owned(),
                source: Source::default(),
                effort: Some(EffortTable::Preview),
                layout: model.layout,
                upgraded: false,
                indexer: false,
            },
            by_name: by_name(&entries),
            entries,
            sources,
            sidecars: model.sidecars,
            suffixes: model.suffixes,
            records,
            checksums: None,
            layers: model.layers,
            experts: model.experts,
            verified: seen(model.layers * model.experts),
            bytes,
            name,
        })
    }

    pub(super) fn new(bytes: Bytes, name: String, required: Tokenizer) -> Result<Self> {
        let damaged = |what: String| Error::Damaged {
            name: name.clone(),
            what,
        };
        let start = bytes.start(HEADER_BYTES as u64)?;
        let header_bytes = check_start(&start, &name)?;
        let header = Header::decode(header_bytes).map_err(damaged)?;
        let actual = bytes.length();
        if header.file_bytes != actual {
            return Err(Error::Length {
                name,
                expected: header.file_bytes,
                actual,
            });
        }
        let map = header.map().map_err(damaged)?;
        let end = map.index().end.max(map.records.end);
        if end > actual {
            return Err(damaged(format!(
                "its parts end at {end} and the file at {actual}"
            )));
        }
        // The index and the records are inside the file; the tensors are checked with the directory.
        let place = map.config.start..map.checksums.end;
        if place.end - place.start > MOST_INDEX_BYTES {
            return Err(damaged(format!(
                "its index has {} bytes and at most {MOST_INDEX_BYTES} are allowed",
                place.end - place.start
            )));
        }
        let index = bytes.read(place.clone())?;
        let part = |range: &Range<u64>| {
            let [start, end] = [range.start, range.end].map(|at| at.checked_sub(place.start));
            let range = start
                .zip(end)
                .map(|(start, end)| start as usize..end as usize);
            range
                .and_then(|range| index.get(range))
                .ok_or_else(|| damaged("a part lies outside its index".into()))
        };
        if index_checksum(header_bytes, &index) != header.index_checksum {
            return Err(Error::Index { name });
        }
        let config: Value = serde_json::from_slice(part(&map.config)?)
            .map_err(|e| damaged(format!("its config {}", json_problem(&e))))?;
        let metadata: Metadata = serde_json::from_slice(part(&map.metadata)?)
            .map_err(|e| damaged(format!("its metadata {}", json_problem(&e))))?;
        if !metadata.layout.is_consistent() {
            return Err(damaged(format!(
                "its expert layout {} is unknown or contradicts itself",
                shown(&metadata.layout.id)
            )));
        }
        if metadata.layout.bytes as u64 != header.record_bytes {
            return Err(damaged(format!(
                "its expert layout has {} bytes and its records {}",
                metadata.layout.bytes, header.record_bytes
            )));
        }
        for (field, there_are) in [
            ("num_hidden_layers", header.layers),
            ("n_routed_experts", header.experts),
        ] {
            if there_are == 0 || config[field].as_u64() != Some(there_are) {
                return Err(damaged(format!(
                    "it has {} layers of {} experts, and its config another {field}",
                    header.layers, header.experts
                )));
            }
        }
        let remedy = match (&bytes, &metadata.source) {
            (Bytes::Static(_), _) => Remedy::Copy,
            (_, source) if source.repository.is_some() && source.revision.is_some() => {
                Remedy::Repository
            }
            _ => Remedy::Checkpoint,
        };
        let (sums, _) = part(&map.checksums)?.as_chunks::<8>();
        let records = Records {
            name: name.as_str().into(),
            first: map.records.start,
            stride: header.record_stride,
            bytes: metadata.layout.bytes,
            experts: usize::try_from(header.experts).unwrap_or(usize::MAX),
            checksums: Some(sums.iter().map(|sum| u64::from_le_bytes(*sum)).collect()),
            remedy,
            codes: codes(&metadata.layout),
        };
        if header.tokenizer_bytes > MOST_TOKENIZER_BYTES {
            return Err(damaged(format!(
                "its tokenizer has {} bytes and at most {MOST_TOKENIZER_BYTES} are allowed",
                header.tokenizer_bytes
            )));
        }
        if required == Tokenizer::Whole {
            let checksum = match header.tokenizer_bytes {
                0 => 0,
                _ => Hasher::oneshot(&bytes.read(map.tokenizer.clone())?),
            };
            if checksum != header.tokenizer_checksum {
                return Err(Error::Checksum {
                    name,
                    what: "its tokenizer".into(),
                    remedy,
                });
            }
        }
        let entries =
            decode_directory(part(&map.directory)?, header.tensors, actual).map_err(damaged)?;
        map.check_places(&entries, actual, metadata.upgraded)
            .map_err(damaged)?;
        let by_name = by_name(&entries);
        if let Some(twice) = by_name
            .windows(2)
            .find(|pair| entries[pair[0]].name == entries[pair[1]].name)
        {
            return Err(damaged(format!(
                "tensor {} is listed twice",
                shown(&entries[twice[0]].name)
            )));
        }
        // Bounded by the file: the checksum table and the records of layers x experts are inside it.
        let counts = |value: u64| {
            usize::try_from(value).map_err(|_| damaged("it is too large for this machine".into()))
        };
        let (layers, experts) = (counts(header.layers)?, counts(header.experts)?);
        tracing::debug!(
            tensors = entries.len(),
            layers,
            experts,
            bytes = actual,
            "container opened"
        );
        Ok(Self {
            version: VERSION,
            identity: header.index_checksum,
            config_text: part(&map.config)?.to_vec(),
            config,
            tokenizer: Text::Here(map.tokenizer, header.tokenizer_checksum),
            metadata,
            entries,
            sources: Vec::new(),
            sidecars: Vec::new(),
            suffixes: Vec::new(),
            by_name,
            records,
            checksums: Some(map.checksums),
            layers,
            experts,
            verified: seen(layers * experts),
            bytes,
            name,
        })
    }
}

fn by_name(entries: &[Entry]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_unstable_by(|&a, &b| entries[a].name.cmp(&entries[b].name));
    order
}

fn seen(records: usize) -> Vec<AtomicU64> {
    (0..records.div_ceil(64))
        .map(|_| AtomicU64::new(0))
        .collect()
}
