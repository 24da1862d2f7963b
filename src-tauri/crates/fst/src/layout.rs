//! Types of tensors and the layout of expert records.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Rows and columns one FP8 scale stands for.
pub(crate) const FP8_BLOCK: usize = 128;
/// Elements along a row one FP4 scale stands for.
pub(crate) const FP4_BLOCK: usize = 32;
/// The layout of version 3.
pub(crate) const ROW_MAJOR: &str = "row-major";
/// The layout of version 2.
pub(crate) const FP4_BLOCKS: &str = "fp4-blocks";
/// Bytes of an FP4 block with its scale in front.
pub(crate) const FP4_BLOCK_BYTES: usize = 1 + FP4_BLOCK / 2;

/// Which effort texts a model was trained with. Nothing in its config.json or tokenizer.json tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EffortTable {
    /// DeepSeek-V4-Flash of April, its DSpark edition, and V4-Pro: only the highest effort has a text.
    #[default]
    #[serde(rename = "preview")]
    Preview,
    /// DeepSeek-V4-Flash-0731 and Vision-Exp: the second effort has the preview's text of the highest, and the highest one of its own.
    #[serde(rename = "0731")]
    V0731,
}

/// Storage type of a tensor, as in the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Dtype {
    /// bfloat16, little endian.
    #[serde(rename = "BF16")]
    Bf16,
    /// IEEE single, little endian.
    F32,
    /// 32-bit signed integer, little endian.
    I32,
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

impl Dtype {
    /// Bytes of one entry of a tensor's shape (a packed FP4 entry is one byte, two elements).
    pub fn bytes(self) -> usize {
        match self {
            Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::Bf16 => 2,
            Self::F8E4m3 | Self::F8E8m0 | Self::Fp4Packed => 1,
        }
    }

    /// The checkpoint's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::F32 => "F32",
            Self::I32 => "I32",
            Self::I64 => "I64",
            Self::F8E4m3 => "F8_E4M3",
            Self::F8E8m0 => "F8_E8M0",
            Self::Fp4Packed => "I8",
        }
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Bf16 => 1,
            Self::F32 => 2,
            Self::I64 => 3,
            Self::F8E4m3 => 4,
            Self::F8E8m0 => 5,
            Self::Fp4Packed => 6,
            Self::I32 => 7,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Bf16,
            2 => Self::F32,
            3 => Self::I64,
            4 => Self::F8E4m3,
            5 => Self::F8E8m0,
            6 => Self::Fp4Packed,
            7 => Self::I32,
            _ => return None,
        })
    }
}

/// Bytes of a tensor; none on overflow.
pub(crate) fn tensor_bytes(dtype: Dtype, shape: &[usize]) -> Option<usize> {
    shape
        .iter()
        .try_fold(dtype.bytes(), |bytes, &size| bytes.checked_mul(size))
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
    pub data: Range<usize>,
    /// Storage type and byte range of the scales, for FP8 (128 x 128 blocks) and FP4 (32 along a row).
    pub scale: Option<(Dtype, Range<usize>)>,
}

/// How every expert record of a container is laid out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertLayout {
    /// Layout id. `row-major`: each matrix as in the checkpoint, gate | up | down, data then scales. `fp4-blocks`, only in files of version
    /// 2: gate | up | down, each a row of 17-byte blocks of a scale and the 32 FP4 codes it is for, and no scales of their own.
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

/// How one matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    pub dtype: Dtype,
    pub scale: Option<Dtype>,
}

impl Storage {
    /// Shapes of weights and scales for a matrix of `rows` x `columns` elements; none if this storage cannot hold such a matrix.
    pub fn shapes(self, rows: usize, columns: usize) -> Option<([usize; 2], Option<[usize; 2]>)> {
        match (self.dtype, self.scale) {
            (Dtype::Bf16 | Dtype::F32, None) => Some(([rows, columns], None)),
            (Dtype::F8E4m3, Some(Dtype::F8E8m0 | Dtype::F32)) => Some((
                [rows, columns],
                Some([rows.div_ceil(FP8_BLOCK), columns.div_ceil(FP8_BLOCK)]),
            )),
            (Dtype::Fp4Packed, Some(Dtype::F8E8m0)) if columns.is_multiple_of(FP4_BLOCK) => {
                Some(([rows, columns / 2], Some([rows, columns / FP4_BLOCK])))
            }
            _ => None,
        }
    }
}

impl ExpertLayout {
    /// The `row-major` layout of experts of `hidden` x `intermediate`; none when a matrix cannot be stored that way or its size overflows.
    pub(crate) fn row_major(
        hidden: usize,
        intermediate: usize,
        gate: Storage,
        up: Storage,
        down: Storage,
    ) -> Option<Self> {
        let mut at = 0usize;
        let mut matrix = |storage: Storage, rows: usize, columns: usize| {
            if storage.dtype == Dtype::F32 {
                return None;
            }
            let (weights, scales) = storage.shapes(rows, columns)?;
            let mut part = |dtype: Dtype, shape: &[usize]| {
                let start = at;
                at = at.checked_add(tensor_bytes(dtype, shape)?)?;
                Some(start..at)
            };
            Some(ExpertMatrix {
                dtype: storage.dtype,
                rows,
                columns,
                data: part(storage.dtype, &weights)?,
                scale: match (storage.scale, scales) {
                    (Some(dtype), Some(shape)) => Some((dtype, part(dtype, &shape)?)),
                    _ => None,
                },
            })
        };
        let gate = matrix(gate, intermediate, hidden)?;
        let up = matrix(up, intermediate, hidden)?;
        let down = matrix(down, hidden, intermediate)?;
        Some(Self {
            id: ROW_MAJOR.to_owned(),
            gate,
            up,
            down,
            bytes: at,
        })
    }

    /// The `fp4-blocks` layout; none when a row is not made of whole blocks or sizes overflow.
    pub(crate) fn fp4_blocks(hidden: usize, intermediate: usize) -> Option<Self> {
        let mut at = 0usize;
        let mut matrix = |rows: usize, columns: usize| {
            let bytes = columns
                .is_multiple_of(FP4_BLOCK)
                .then(|| (columns / FP4_BLOCK).checked_mul(rows))??
                .checked_mul(FP4_BLOCK_BYTES)?;
            let start = at;
            at = at.checked_add(bytes)?;
            Some(ExpertMatrix {
                dtype: Dtype::Fp4Packed,
                rows,
                columns,
                data: start..at,
                scale: None,
            })
        };
        Some(Self {
            id: FP4_BLOCKS.to_owned(),
            gate: matrix(intermediate, hidden)?,
            up: matrix(intermediate, hidden)?,
            down: matrix(hidden, intermediate)?,
            bytes: at,
        })
    }

    /// Whether this is exactly the layout its own sizes and types lead to.
    pub(crate) fn is_consistent(&self) -> bool {
        let storage = |m: &ExpertMatrix| Storage {
            dtype: m.dtype,
            scale: m.scale.as_ref().map(|(dtype, _)| *dtype),
        };
        Self::row_major(
            self.gate.columns,
            self.gate.rows,
            storage(&self.gate),
            storage(&self.up),
            storage(&self.down),
        )
        .is_some_and(|expected| expected == *self)
    }

    /// Names of the checkpoint's tensors that a record consists of, in its order.
    pub(crate) fn tensor_names(&self, layer: usize, expert: usize) -> Vec<String> {
        self.parts()
            .into_iter()
            .flat_map(|(part, matrix)| {
                let kinds: &[_] = match matrix.scale {
                    Some(_) => &["weight", "scale"],
                    None => &["weight"],
                };
                kinds
                    .iter()
                    .map(move |kind| format!("layers.{layer}.ffn.experts.{expert}.{part}.{kind}"))
            })
            .collect()
    }

    /// Name of each matrix in a checkpoint, in record order.
    pub(crate) fn parts(&self) -> [(&'static str, &ExpertMatrix); 3] {
        [("w1", &self.gate), ("w3", &self.up), ("w2", &self.down)]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    const FP4: Storage = Storage {
        dtype: Dtype::Fp4Packed,
        scale: Some(Dtype::F8E8m0),
    };

    #[test]
    fn a_flash_record_has_13_369_344_bytes() {
        let layout = ExpertLayout::row_major(4096, 2048, FP4, FP4, FP4).unwrap();
        // By hand: 2048 x 4096 / 2 weights and 2048 x 4096 / 32 scales, three times.
        assert_eq!(layout.bytes, 13_369_344);
        assert_eq!(layout.bytes % 4096, 0);
        assert_eq!(layout.gate.data, 0..4_194_304);
        assert_eq!(
            layout.gate.scale,
            Some((Dtype::F8E8m0, 4_194_304..4_456_448))
        );
        assert_eq!(layout.up.data.start, 4_456_448);
        assert_eq!(
            layout.down.scale,
            Some((Dtype::F8E8m0, 13_107_200..13_369_344))
        );
    }

    #[test]
    fn fp8_scales_cover_blocks_rounded_up() {
        let fp8 = Storage {
            dtype: Dtype::F8E4m3,
            scale: Some(Dtype::F32),
        };
        // The base model: F8 experts of 2048 x 4096 with F32 scales of 16 x 32.
        assert_eq!(fp8.shapes(2048, 4096), Some(([2048, 4096], Some([16, 32]))));
        assert_eq!(fp8.shapes(129, 1), Some(([129, 1], Some([2, 1]))));
    }

    #[test]
    fn a_layout_that_does_not_follow_from_its_sizes_is_not_consistent() {
        let layout = ExpertLayout::row_major(64, 32, FP4, FP4, FP4).unwrap();
        assert!(layout.is_consistent());
        for change in [
            |l: &mut ExpertLayout| l.bytes += 1,
            |l: &mut ExpertLayout| l.gate.data.end -= 1,
            |l: &mut ExpertLayout| l.up.rows = usize::MAX,
            |l: &mut ExpertLayout| l.gate.columns = 33,
            |l: &mut ExpertLayout| l.down.scale = None,
            |l: &mut ExpertLayout| l.gate.dtype = Dtype::I64,
            |l: &mut ExpertLayout| l.id = "interleaved".into(),
        ] {
            let mut changed = layout.clone();
            change(&mut changed);
            assert!(!changed.is_consistent(), "{changed:?}");
        }
    }
}
