//! Types of tensors and the layout of expert records.

use std::ops::Range;

use fastar_kernels::{mxfp4, q8_0};
use serde::{Deserialize, Serialize};

/// Rows and columns one FP8 scale stands for.
pub(crate) const FP8_BLOCK: usize = 128;
/// Elements along a row one FP4 scale stands for.
pub(crate) const FP4_BLOCK: usize = 32;
/// The layout of experts that are not FP4, and of FP4 ones in files made before there were packets.
pub(crate) const ROW_MAJOR: &str = "row-major";
/// The layout of FP4 experts.
pub(crate) const FP4_PACKETS: &str = "fp4-packets";
/// The layout of version 2.
pub(crate) const FP4_BLOCKS: &str = "fp4-blocks";
/// Elements along a row one scale of Q8_0 stands for.
const Q8_0_BLOCK: usize = 32;
/// Most bytes of a record of packets.
const MOST_PACKED_BYTES: usize = 256 << 20;
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

/// Storage type of a tensor.
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
    /// Blocks of 34 bytes, a half-precision scale and the 32 signed bytes it is for, as in GGUF. `shape` counts elements, and the last axis
    /// has whole blocks.
    #[serde(rename = "Q8_0")]
    Q8_0,
    /// A matrix of FP4 with its scales, in packets of eight rows ([`fastar_kernels::mxfp4`]). Only in expert records.
    #[serde(rename = "MXFP4")]
    Fp4Packets,
}

impl Dtype {
    /// What is stored together along the last axis of a tensor's shape: so many entries in so many bytes. None for packets, which are no
    /// tensors.
    fn block(self) -> Option<(usize, usize)> {
        Some(match self {
            Self::I64 => (1, 8),
            Self::F32 | Self::I32 => (1, 4),
            Self::Bf16 => (1, 2),
            Self::F8E4m3 | Self::F8E8m0 | Self::Fp4Packed => (1, 1),
            Self::Q8_0 => (Q8_0_BLOCK, q8_0::BLOCK_BYTES),
            Self::Fp4Packets => return None,
        })
    }

    /// The checkpoint's name for it, or the field's for what no checkpoint has.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::F32 => "F32",
            Self::I32 => "I32",
            Self::I64 => "I64",
            Self::F8E4m3 => "F8_E4M3",
            Self::F8E8m0 => "F8_E8M0",
            Self::Fp4Packed => "I8",
            Self::Q8_0 => "Q8_0",
            Self::Fp4Packets => "MXFP4",
        }
    }

    /// What a directory calls it; none for packets, which are not for a directory.
    pub(crate) fn code(self) -> Option<u8> {
        Some(match self {
            Self::Bf16 => 1,
            Self::F32 => 2,
            Self::I64 => 3,
            Self::F8E4m3 => 4,
            Self::F8E8m0 => 5,
            Self::Fp4Packed => 6,
            Self::I32 => 7,
            Self::Q8_0 => 8,
            Self::Fp4Packets => return None,
        })
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
            8 => Self::Q8_0,
            _ => return None,
        })
    }
}

/// Bytes of a tensor; none on overflow, for a last axis that is not made of whole blocks, and for what is no tensor.
pub fn tensor_bytes(dtype: Dtype, shape: &[usize]) -> Option<usize> {
    let (entries, bytes) = dtype.block()?;
    let (last, outer) = shape.split_last().unwrap_or((&1, &[]));
    if !last.is_multiple_of(entries) {
        return None;
    }
    outer
        .iter()
        .try_fold(last / entries, |blocks, &size| blocks.checked_mul(size))?
        .checked_mul(bytes)
}

/// What a container says of a tensor in it.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Storage type.
    pub dtype: Dtype,
    /// Sizes, outermost first.
    pub shape: &'a [usize],
    /// How many bytes it has, little-endian.
    pub bytes: u64,
}

impl Tensor<'_> {
    /// How many numbers it holds.
    pub fn elements(&self) -> u64 {
        // By its bytes: a shape with a zero in it may have any other sizes.
        let bytes = self.bytes;
        match (self.dtype, self.dtype.block()) {
            (Dtype::Fp4Packed, _) => bytes * 2,
            (_, Some((entries, size))) => bytes / size as u64 * entries as u64,
            (_, None) => 0,
        }
    }
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
    /// Storage type and byte range of the scales, for FP8 (128 x 128 blocks) and FP4 (32 along a row); none where they are among the data.
    pub scale: Option<(Dtype, Range<usize>)>,
}

/// How every expert record of a container is laid out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertLayout {
    /// Layout id; each is gate | up | down without gaps. `fp4-packets`: each matrix in packets, as the kernels read it, its scales among them.
    /// `row-major`: each matrix as in the checkpoint, data then scales. `fp4-blocks`, only in files of version 2: each a row of 17-byte
    /// blocks of a scale and the 32 FP4 codes it is for.
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

    /// The `fp4-packets` layout of experts of `hidden` x `intermediate`; none when one of them is not a multiple of 32, or a record would have
    /// more than 256 MiB (those of V4 Pro have 35 MB): who packs a matrix has it in memory. Rows are whole groups, as both sizes are columns
    /// of some matrix: no record has room that is not used.
    pub fn fp4_packets(hidden: usize, intermediate: usize) -> Option<Self> {
        let bytes = mxfp4::packed_bytes;
        Self::with_scales_inside(FP4_PACKETS, Dtype::Fp4Packets, hidden, intermediate, bytes)
            .filter(|layout| layout.bytes <= MOST_PACKED_BYTES)
    }

    /// The `row-major` layout of the experts of a layout of packets.
    pub(crate) fn in_rows(&self) -> Option<Self> {
        (self.id == FP4_PACKETS).then(|| Self::fp4_rows(self.gate.columns, self.gate.rows))?
    }

    /// The `row-major` layout of FP4 experts; none where there is none.
    pub(crate) fn fp4_rows(hidden: usize, intermediate: usize) -> Option<Self> {
        let fp4 = Storage {
            dtype: Dtype::Fp4Packed,
            scale: Some(Dtype::F8E8m0),
        };
        Self::row_major(hidden, intermediate, fp4, fp4, fp4)
    }

    /// The same experts in packets, if these are FP4 in another layout and packets can hold them.
    pub(crate) fn in_packets(&self) -> Option<Self> {
        let (hidden, intermediate) = (self.gate.columns, self.gate.rows);
        let is_fp4 = |layout: Option<Self>| layout.is_some_and(|layout| layout == *self);
        (is_fp4(Self::fp4_rows(hidden, intermediate))
            || is_fp4(Self::fp4_blocks(hidden, intermediate)))
        .then(|| Self::fp4_packets(hidden, intermediate))?
    }

    /// The `fp4-blocks` layout; none when a row is not made of whole blocks or sizes overflow.
    pub(crate) fn fp4_blocks(hidden: usize, intermediate: usize) -> Option<Self> {
        let bytes = |rows: usize, columns: usize| {
            columns
                .is_multiple_of(FP4_BLOCK)
                .then(|| (columns / FP4_BLOCK).checked_mul(rows))??
                .checked_mul(FP4_BLOCK_BYTES)
        };
        Self::with_scales_inside(FP4_BLOCKS, Dtype::Fp4Packed, hidden, intermediate, bytes)
    }

    fn with_scales_inside(
        id: &str,
        dtype: Dtype,
        hidden: usize,
        intermediate: usize,
        bytes: impl Fn(usize, usize) -> Option<usize>,
    ) -> Option<Self> {
        let mut at = 0usize;
        let mut matrix = |rows: usize, columns: usize| {
            let start = at;
            at = at.checked_add(bytes(rows, columns)?)?;
            Some(ExpertMatrix {
                dtype,
                rows,
                columns,
                data: start..at,
                scale: None,
            })
        };
        Some(Self {
            id: id.to_owned(),
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
        let (hidden, intermediate) = (self.gate.columns, self.gate.rows);
        let expected = match self.id.as_str() {
            FP4_PACKETS => Self::fp4_packets(hidden, intermediate),
            ROW_MAJOR => Self::row_major(
                hidden,
                intermediate,
                storage(&self.gate),
                storage(&self.up),
                storage(&self.down),
            ),
            _ => None,
        };
        expected.is_some_and(|expected| expected == *self)
    }

    /// Names of the checkpoint's tensors that a record consists of, in its order.
    pub(crate) fn tensor_names(&self, layer: usize, expert: usize) -> Vec<String> {
        self.parts()
            .into_iter()
            .flat_map(|(part, matrix)| {
                let kinds: &[_] = match (matrix.dtype, &matrix.scale) {
                    (Dtype::Fp4Packets, _) | (_, Some(_)) => &["weight", "scale"],
                    _ => &["weight"],
                };
                kinds
                    .iter()
                    .map(move |kind| format!("layers.{layer}.ffn.experts.{expert}.{part}.{kind}"))
            })
            .collect()
    }

    /// The matrices that are stored in packets, in record order: all three or none.
    pub(crate) fn packed_matrices(&self) -> impl Iterator<Item = &ExpertMatrix> {
        [&self.gate, &self.up, &self.down]
            .into_iter()
            .filter(|matrix| matrix.dtype == Dtype::Fp4Packets)
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
    fn a_flash_record_in_packets_has_the_size_of_the_checkpoints_tensors() {
        let layout = ExpertLayout::fp4_packets(4096, 2048).unwrap();
        // By hand: gate and up are 256 groups of 8 rows, each 4 packets of 4096 + 256 bytes; down is 512 groups of 2 packets.
        assert_eq!(layout.bytes, 13_369_344);
        assert_eq!(layout.gate.data, 0..4_456_448);
        assert_eq!(layout.up.data, 4_456_448..8_912_896);
        assert_eq!(layout.down.data, 8_912_896..13_369_344);
        assert_eq!((layout.down.rows, layout.down.columns), (4096, 2048));
        for (_, matrix) in layout.parts() {
            assert_eq!((matrix.dtype, &matrix.scale), (Dtype::Fp4Packets, &None));
        }
        assert!(layout.is_consistent());
    }

    #[test]
    fn packets_need_whole_blocks_both_ways() {
        // By hand: 96 / 8 groups of 2 blocks, 64 / 8 groups of 3, each block 8 x 16 + 8 bytes.
        let layout = ExpertLayout::fp4_packets(64, 96).unwrap();
        assert_eq!(layout.bytes, 2 * 12 * 2 * 136 + 8 * 3 * 136);
        assert_eq!(ExpertLayout::fp4_packets(64, 40), None);
        assert_eq!(ExpertLayout::fp4_packets(40, 64), None);
        assert_eq!(ExpertLayout::fp4_packets(1 << 40, 1 << 40), None);
        // 3 x 2^24 x 32 weights of 17 / 32 bytes are 816 MiB.
        assert_eq!(ExpertLayout::fp4_packets(1 << 24, 32), None);
    }

    #[test]
    fn experts_of_fp4_in_any_layout_have_one_of_packets() {
        let packets = ExpertLayout::fp4_packets(64, 32);
        let rows = ExpertLayout::fp4_rows(64, 32).unwrap();
        assert_eq!(rows.in_packets(), packets);
        let blocks = ExpertLayout::fp4_blocks(64, 32).unwrap();
        assert_eq!(blocks.in_packets(), packets);
        assert_eq!(packets.unwrap().in_packets(), None);
        let bf16 = Storage {
            dtype: Dtype::Bf16,
            scale: None,
        };
        for (gate, down) in [(bf16, FP4), (FP4, bf16)] {
            let mixed = ExpertLayout::row_major(64, 32, gate, FP4, down).unwrap();
            assert_eq!(mixed.in_packets(), None);
        }
    }

    #[test]
    fn q8_0_has_34_bytes_for_32_elements_of_a_row() {
        assert_eq!(tensor_bytes(Dtype::Q8_0, &[3, 64]), Some(3 * 2 * 34));
        assert_eq!(tensor_bytes(Dtype::Q8_0, &[64]), Some(68));
        // Elements in all are not enough: a row has whole blocks.
        for shape in [&[32, 3][..], &[64, 33], &[33], &[]] {
            assert_eq!(tensor_bytes(Dtype::Q8_0, shape), None, "{shape:?}");
        }
        assert_eq!(tensor_bytes(Dtype::Q8_0, &[usize::MAX, 64]), None);
        assert_eq!(tensor_bytes(Dtype::Fp4Packets, &[8, 32]), None);
        assert_eq!(tensor_bytes(Dtype::F32, &[]), Some(4));
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
        let row_major = ExpertLayout::row_major(64, 32, FP4, FP4, FP4).unwrap();
        let packets = ExpertLayout::fp4_packets(64, 32).unwrap();
        for layout in [&row_major, &packets] {
            assert!(layout.is_consistent());
            for change in [
                |l: &mut ExpertLayout| l.bytes += 1,
                |l: &mut ExpertLayout| l.gate.data.end -= 1,
                |l: &mut ExpertLayout| l.up.rows = usize::MAX,
                |l: &mut ExpertLayout| l.up.columns = 32,
                |l: &mut ExpertLayout| l.gate.columns = 33,
                |l: &mut ExpertLayout| l.gate.rows = 33,
                |l: &mut ExpertLayout| l.gate.dtype = Dtype::I64,
                |l: &mut ExpertLayout| l.id = "interleaved".into(),
                |l: &mut ExpertLayout| l.id = FP4_BLOCKS.into(),
            ] {
                let mut changed = layout.clone();
                change(&mut changed);
                assert!(!changed.is_consistent(), "{changed:?}");
            }
        }
        for (layout, other) in [(&row_major, &packets), (&packets, &row_major)] {
            let mut changed = layout.clone();
            changed.id = other.id.clone();
            assert!(!changed.is_consistent(), "{changed:?}");
            let mut changed = layout.clone();
            changed.down = other.down.clone();
            assert!(!changed.is_consistent(), "{changed:?}");
            let mut changed = layout.clone();
            changed.down.scale = other.down.scale.clone();
            assert!(!changed.is_consistent(), "{changed:?}");
        }
    }
}
