//! Matrices in their stored precision.
//!
//! A [`Matrix`] borrows raw little-endian bytes as they lie in the container; nothing is expanded ahead of time. How it is multiplied is the business
//! of [`product`](crate::product): F32, BF16 and FP8 with vectors of `f32` at the speed of memory or of the arithmetic units
//! ([`dense`](crate::dense)), packets of FP4 and Q8_0 with vectors of eight bits just so ([`mxfp4`], [`q8_0`]). Everything else is expanded here, a row
//! at a time, to the last bit: the truth that those fast products are held against, and what reads experts not stored for them.

use std::ops::Range;

use crate::dispatch::{wide, wide_at};
use crate::format::{E2M1_PAIRS, E4M3, bf16, e8m0, f16};
use crate::{mxfp4, q8_0};

/// Edge of the square blocks that share one scale in FP8 matrices.
pub const FP8_BLOCK: usize = 128;
/// Elements of a row that share one scale in FP4 matrices.
pub const FP4_BLOCK: usize = 32;
/// Bytes of a block of FP4 with its scale in front.
const FP4_BLOCK_BYTES: usize = 1 + FP4_BLOCK / 2;

/// Storage of a matrix. All bytes little-endian, rows one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Elements<'a> {
    /// 4 bytes an element.
    F32(&'a [u8]),
    /// 2 bytes an element.
    Bf16(&'a [u8]),
    /// e4m3 codes, scales for blocks of 128 x 128 (the last blocks may be partial).
    Fp8(&'a [u8], Scales<'a>),
    /// e2m1 nibbles, the low one first, and one e8m0 scale for each 32 elements of a row.
    Fp4(&'a [u8], &'a [u8]),
    /// The same, each scale in front of its 16 bytes of nibbles: blocks of 17 bytes (the original FaStar's files).
    Fp4Blocks(&'a [u8]),
    /// The same in packets of eight rows ([`mxfp4`]).
    Fp4Packets(&'a [u8]),
    /// Blocks of 34 bytes: a half-precision scale and 32 integers ([`q8_0`]).
    Q8(&'a [u8]),
}

/// Scales of an FP8 matrix, [ceil(rows / 128), ceil(columns / 128)].
#[derive(Clone, Copy, Debug)]
pub enum Scales<'a> {
    /// Powers of two, a byte each.
    E8m0(&'a [u8]),
    /// `f32`, four bytes each.
    F32(&'a [u8]),
}

impl Scales<'_> {
    fn len(&self) -> usize {
        match self {
            Scales::E8m0(b) => b.len(),
            Scales::F32(b) => b.len() / 4,
        }
    }

    #[inline(always)]
    fn get(&self, i: usize) -> f32 {
        match self {
            Scales::E8m0(b) => e8m0(b[i]),
            Scales::F32(b) => {
                let b = &b[4 * i..4 * i + 4];
                f32::from_le_bytes([b[0], b[1], b[2], b[3]])
            }
        }
    }
}

/// A matrix [rows, columns] in its stored precision: `y = W x`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    rows: usize,
    columns: usize,
    elements: Elements<'a>,
}

impl<'a> Matrix<'a> {
    /// Checks that the bytes are exactly those of a [rows, columns] matrix; none if they are not.
    pub fn new(rows: usize, columns: usize, elements: Elements<'a>) -> Option<Self> {
        let count = rows.checked_mul(columns)?;
        let fits = match elements {
            Elements::F32(data) => data.len() == count.checked_mul(4)?,
            Elements::Bf16(data) => data.len() == count.checked_mul(2)?,
            Elements::Fp8(data, scales) => {
                data.len() == count
                    && scales.len() == rows.div_ceil(FP8_BLOCK) * columns.div_ceil(FP8_BLOCK)
            }
            Elements::Fp4(data, scales) => {
                columns.is_multiple_of(FP4_BLOCK)
                    && data.len() == count / 2
                    && scales.len() == count / FP4_BLOCK
            }
            Elements::Fp4Blocks(data) => {
                columns.is_multiple_of(FP4_BLOCK)
                    && data.len() == (count / FP4_BLOCK).checked_mul(FP4_BLOCK_BYTES)?
            }
            Elements::Fp4Packets(data) => data.len() == mxfp4::packed_bytes(rows, columns)?,
            Elements::Q8(data) => {
                columns.is_multiple_of(q8_0::BLOCK)
                    && data.len() == (count / q8_0::BLOCK).checked_mul(q8_0::BLOCK_BYTES)?
            }
        };
        fits.then_some(Self {
            rows,
            columns,
            elements,
        })
    }

    /// Output width.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input width.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Expands one row to `f32`; exact for every format. `out` is [columns].
    pub fn row(&self, row: usize, out: &mut [f32]) {
        expand(*self, row, out);
    }

    /// How it is stored.
    pub(crate) fn elements(&self) -> Elements<'a> {
        self.elements
    }
}

/// Most columns that are expanded at once on the stack.
const STACK_COLUMNS: usize = 4096;

wide_at! {
    /// Some rows of the product: x [n, columns], out [n, rows.len()].
    pub(crate) fn expanded_product<S>(m: Matrix<'_>, rows: Range<usize>, x: &[f32], out: &mut [f32]) {
        let mut stack = [0.0f32; STACK_COLUMNS];
        let mut heap = Vec::new();
        let row = if m.columns <= STACK_COLUMNS {
            &mut stack[..m.columns]
        } else {
            heap.resize(m.columns, 0.0);
            &mut heap[..]
        };
        let width = rows.len();
        for (i, r) in rows.enumerate() {
            expand_inline(m, r, row);
            for (out, x) in out.chunks_exact_mut(width).zip(x.chunks_exact(m.columns)) {
                out[i] = S::dot(row, x);
            }
        }
    }
}

wide! {
    fn expand<S>(m: Matrix<'_>, row: usize, out: &mut [f32]) {
        expand_inline(m, row, out);
    }
}

#[inline(always)]
fn expand_inline(m: Matrix<'_>, row: usize, out: &mut [f32]) {
    let c = m.columns;
    match m.elements {
        Elements::F32(data) => {
            let (values, _) = data[4 * row * c..4 * (row + 1) * c].as_chunks::<4>();
            for (o, b) in out.iter_mut().zip(values) {
                *o = f32::from_le_bytes(*b);
            }
        }
        Elements::Bf16(data) => {
            let (values, _) = data[2 * row * c..2 * (row + 1) * c].as_chunks::<2>();
            for (o, b) in out.iter_mut().zip(values) {
                *o = bf16(u16::from_le_bytes(*b));
            }
        }
        Elements::Fp8(data, scales) => {
            let codes = &data[row * c..(row + 1) * c];
            let first_scale = row / FP8_BLOCK * c.div_ceil(FP8_BLOCK);
            for (b, (out, codes)) in out
                .chunks_mut(FP8_BLOCK)
                .zip(codes.chunks(FP8_BLOCK))
                .enumerate()
            {
                let scale = scales.get(first_scale + b);
                for (o, code) in out.iter_mut().zip(codes) {
                    *o = E4M3[*code as usize] * scale;
                }
            }
        }
        Elements::Fp4(data, scales) => {
            let packed = &data[row * c / 2..(row + 1) * c / 2];
            let scales = &scales[row * c / FP4_BLOCK..(row + 1) * c / FP4_BLOCK];
            for ((out, packed), scale) in out
                .chunks_exact_mut(FP4_BLOCK)
                .zip(packed.chunks_exact(FP4_BLOCK / 2))
                .zip(scales)
            {
                expand_fp4(packed, *scale, out);
            }
        }
        Elements::Fp4Blocks(data) => {
            let bytes = c / FP4_BLOCK * FP4_BLOCK_BYTES;
            let (blocks, _) = data[row * bytes..(row + 1) * bytes].as_chunks::<FP4_BLOCK_BYTES>();
            for (out, [scale, packed @ ..]) in out.chunks_exact_mut(FP4_BLOCK).zip(blocks) {
                expand_fp4(packed, *scale, out);
            }
        }
        Elements::Fp4Packets(data) => {
            for (b, out) in out.chunks_exact_mut(FP4_BLOCK).enumerate() {
                let (packed, scale) = mxfp4::block(data, c, row, b);
                expand_fp4(&packed, scale, out);
            }
        }
        Elements::Q8(data) => {
            let bytes = c / q8_0::BLOCK * q8_0::BLOCK_BYTES;
            let row = &data[row * bytes..(row + 1) * bytes];
            let (blocks, _) = row.as_chunks::<{ q8_0::BLOCK_BYTES }>();
            for (out, [a, b, integers @ ..]) in out.chunks_exact_mut(q8_0::BLOCK).zip(blocks) {
                let scale = f16(u16::from_le_bytes([*a, *b]));
                for (o, i) in out.iter_mut().zip(integers) {
                    *o = scale * f32::from(*i as i8);
                }
            }
        }
    }
}

#[inline(always)]
fn expand_fp4(packed: &[u8], scale: u8, out: &mut [f32]) {
    let scale = e8m0(scale);
    for (pair, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(packed) {
        let [low, high] = E2M1_PAIRS[*byte as usize];
        *pair = [low * scale, high * scale];
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
