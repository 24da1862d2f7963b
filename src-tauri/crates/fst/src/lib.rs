//! The `.fst` model container, version 3: everything a model needs in one file.
//!
//! (Face agreed with the engine; the implementation replaces this file.)

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Errors; every one is one sentence naming the file, the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Placeholder.
    #[error("{0}")]
    Placeholder(String),
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Storage type of a tensor, as in the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dtype {
    /// bfloat16, little endian.
    #[serde(rename = "BF16")]
    Bf16,
    /// IEEE single, little endian.
    F32,
    /// 64-bit signed integer, little endian.
    I64,
    /// e4m3fn codes.
    #[serde(rename = "F8_E4M3")]
    F8E4m3,
    /// Power-of-two scales, 2^(b-127).
    #[serde(rename = "F8_E8M0")]
    F8E8m0,
    /// Two e2m1 codes per byte, low nibble first. `shape` counts bytes along the last axis, as the checkpoint does.
    #[serde(rename = "I8")]
    Fp4Packed,
}

/// A tensor inside a container: borrowed, never copied.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Storage type.
    pub dtype: Dtype,
    /// Sizes, outermost first.
    pub shape: &'a [usize],
    /// Raw little-endian bytes; no alignment is promised to callers.
    pub data: &'a [u8],
}

/// One matrix of an expert inside its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertMatrix {
    /// Storage type of the weights.
    pub dtype: Dtype,
    /// Output rows.
    pub rows: usize,
    /// Input columns in elements (not bytes).
    pub columns: usize,
    /// Byte range of the weights in the record.
    pub data: std::ops::Range<usize>,
    /// Storage type and byte range of the scales, for FP8 (128 x 128 blocks) and FP4 (32 along a row).
    pub scale: Option<(Dtype, std::ops::Range<usize>)>,
}

/// How every expert record of a container is laid out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertLayout {
    /// Layout id; `row-major` is the only one yet: each matrix as in the checkpoint, gate | up | down, data then scales.
    pub id: String,
    /// w1.
    pub gate: ExpertMatrix,
    /// w3.
    pub up: ExpertMatrix,
    /// w2.
    pub down: ExpertMatrix,
    /// Used bytes of a record (the file pads it to 4096).
    pub bytes: usize,
}

/// An open container, mapped read-only; cheap to share between threads.
pub struct Container {
    _private: (),
}

impl Container {
    /// Opens and checks structure, header checksum and every offset; reads no weights.
    pub fn open(_path: &Path) -> Result<Self> {
        Err(Error::Placeholder("not yet".into()))
    }
    /// The same for a container that is already in memory (the embedded demo).
    pub fn from_static(_bytes: &'static [u8]) -> Result<Self> {
        Err(Error::Placeholder("not yet".into()))
    }
    /// The checkpoint's config.json as it was.
    pub fn config(&self) -> &serde_json::Value {
        unreachable!()
    }
    /// tokenizer.json, if the checkpoint had one.
    pub fn tokenizer(&self) -> Option<&[u8]> {
        None
    }
    /// A dense tensor by its original name (`layers.0.attn.wq_a.weight`), scales by theirs (`....scale`).
    pub fn tensor(&self, _name: &str) -> Option<Tensor<'_>> {
        None
    }
    /// All dense tensors, in file order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Tensor<'_>)> {
        std::iter::empty()
    }
    /// Layout of the expert records.
    pub fn expert_layout(&self) -> &ExpertLayout {
        unreachable!()
    }
    /// Number of layers with experts and experts per layer.
    pub fn expert_counts(&self) -> (usize, usize) {
        (0, 0)
    }
    /// One expert's record, exactly `expert_layout().bytes` long. Its checksum is verified on the first call for each
    /// expert; a damaged record is an error naming layer and expert.
    pub fn expert(&self, _layer: usize, _expert: usize) -> Result<&[u8]> {
        Err(Error::Placeholder("not yet".into()))
    }
    /// Size of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        0
    }
    /// Identity of this container: a hash over header, directory and all checksums. Equal files have equal identities.
    pub fn identity(&self) -> u64 {
        0
    }
}

/// Converts a Hugging Face checkpoint folder into a container. Written under a temporary name in the target's folder and renamed when
/// whole. Returns warnings for a person (for example: no tokenizer.json).
pub fn convert(
    _checkpoint: &Path,
    _out: &Path,
    _progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<String>> {
    Err(Error::Placeholder("not yet".into()))
}
