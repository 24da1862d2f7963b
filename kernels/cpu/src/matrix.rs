//! Matrices in their stored precision, and their product with one or many vectors.
//!
//! A [`Matrix`] borrows raw little-endian bytes as they lie in the container; nothing is expanded ahead of time. A product takes one
//! row at a time, expands it to `f32` in a buffer that stays in the first-level cache, and takes its dot product with every vector.
//! Each output is one dot product of fixed order, so neither threads nor the number of vectors can change it.

use std::ops::Range;

use rayon::prelude::*;

use crate::dispatch::wide;
use crate::format::{E2M1_PAIRS, E4M3, bf16, e8m0};

/// Edge of the square blocks that share one scale in FP8 matrices.
pub const FP8_BLOCK: usize = 128;
/// Elements of a row that share one scale in FP4 matrices.
pub const FP4_BLOCK: usize = 32;
/// Bytes of a block of FP4 with its scale in front.
const FP4_BLOCK_BYTES: usize = 1 + FP4_BLOCK / 2;
/// Multiplications below which a product stays on the calling thread: handing work over costs about as much as this many.
const PARALLEL_FROM: usize = 1 << 17;
/// Rows a thread takes at a time.
const ROWS_PER_TASK: usize = 32;

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

    /// `out[t] = W x[t]` for each of the vectors in `x`: x is [n, columns], out [n, rows].
    ///
    /// Runs on the current rayon pool when there is enough to do. `scratch` is reused between calls and never shrinks.
    pub fn apply(&self, x: &[f32], out: &mut [f32], scratch: &mut Vec<f32>) {
        self.apply_rows(0..self.rows, x, out, scratch);
    }

    /// The same for some of the rows: out is [n, rows.len()].
    pub fn apply_rows(
        &self,
        rows: Range<usize>,
        x: &[f32],
        out: &mut [f32],
        scratch: &mut Vec<f32>,
    ) {
        let n = x.len() / self.columns.max(1);
        debug_assert!(rows.end <= self.rows);
        debug_assert_eq!(x.len(), n * self.columns);
        debug_assert_eq!(out.len(), n * rows.len());
        if n == 0 {
            return;
        }
        let parallel = rows.len() * self.columns * n >= PARALLEL_FROM && rows.len() > ROWS_PER_TASK;
        if n == 1 {
            // One vector: the output is contiguous by rows already.
            if parallel {
                out.par_chunks_mut(ROWS_PER_TASK)
                    .enumerate()
                    .for_each(|(i, part)| {
                        rows_times(*self, rows.start + i * ROWS_PER_TASK, x, 1, part)
                    });
            } else {
                rows_times(*self, rows.start, x, 1, out);
            }
            return;
        }
        // Many vectors: compute [rows, n], then transpose. Rows are what threads share out.
        scratch.clear();
        scratch.resize(rows.len() * n, 0.0);
        if parallel {
            scratch
                .par_chunks_mut(ROWS_PER_TASK * n)
                .enumerate()
                .for_each(|(i, part)| {
                    rows_times(*self, rows.start + i * ROWS_PER_TASK, x, n, part)
                });
        } else {
            rows_times(*self, rows.start, x, n, scratch);
        }
        for (t, token) in out.chunks_exact_mut(rows.len()).enumerate() {
            for (r, v) in token.iter_mut().enumerate() {
                *v = scratch[r * n + t];
            }
        }
    }
}

/// Most columns that are expanded at once on the stack.
const STACK_COLUMNS: usize = 4096;

wide! {
    /// Rows `first..` of the product with `n` vectors; `out` is [number of rows, n].
    fn rows_times<S>(m: Matrix<'_>, first: usize, x: &[f32], n: usize, out: &mut [f32]) {
        let mut stack = [0.0f32; STACK_COLUMNS];
        let mut heap = Vec::new();
        let row = if m.columns <= STACK_COLUMNS {
            &mut stack[..m.columns]
        } else {
            heap.resize(m.columns, 0.0);
            &mut heap[..]
        };
        for (i, out) in out.chunks_exact_mut(n).enumerate() {
            expand_inline(m, first + i, row);
            for (o, x) in out.iter_mut().zip(x.chunks_exact(m.columns)) {
                *o = S::dot(row, x);
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::format::E2M1;

    /// Deterministic bytes that avoid NaN codes.
    fn bytes(count: usize, mut seed: u32, limit: u8) -> Vec<u8> {
        (0..count)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8 % limit
            })
            .collect()
    }

    fn vectors(n: usize, columns: usize) -> Vec<f32> {
        bytes(n * columns, 5, 255)
            .iter()
            .map(|b| (f32::from(*b) - 127.0) / 64.0)
            .collect()
    }

    /// Products in f64, with weights decoded here from the definitions and not by the code under test.
    fn check(matrix: Matrix<'_>, weight: impl Fn(usize, usize) -> f64) {
        let (rows, columns) = (matrix.rows(), matrix.columns());
        for n in [1, 2, 5] {
            let x = vectors(n, columns);
            let mut out = vec![0.0; n * rows];
            matrix.apply(&x, &mut out, &mut Vec::new());
            for t in 0..n {
                for r in 0..rows {
                    let terms = (0..columns).map(|k| weight(r, k) * f64::from(x[t * columns + k]));
                    let (sum, size) =
                        terms.fold((0.0, 0.0), |(s, a): (f64, f64), v| (s + v, a + v.abs()));
                    let ours = f64::from(out[t * rows + r]);
                    assert!(
                        (ours - sum).abs() <= 1e-6 * size + 1e-30,
                        "row {r}: {ours} {sum}"
                    );
                }
            }
            // Some of the rows are the same numbers.
            let (from, to) = (rows / 3, rows - 1);
            let mut some = vec![0.0; n * (to - from)];
            matrix.apply_rows(from..to, &x, &mut some, &mut Vec::new());
            for t in 0..n {
                assert_eq!(
                    some[t * (to - from)..(t + 1) * (to - from)],
                    out[t * rows + from..t * rows + to]
                );
            }
        }
    }

    #[test]
    fn bf16_and_f32_products_are_right() {
        let (rows, columns) = (37, 75);
        let data = bytes(4 * rows * columns, 1, 120);
        let at = |i: usize| {
            [
                data[4 * i],
                data[4 * i + 1],
                data[4 * i + 2],
                data[4 * i + 3],
            ]
        };
        let m = Matrix::new(rows, columns, Elements::F32(&data)).unwrap();
        check(m, |r, k| f64::from(f32::from_le_bytes(at(r * columns + k))));
        let data = &data[..2 * rows * columns];
        let m = Matrix::new(rows, columns, Elements::Bf16(data)).unwrap();
        check(m, |r, k| {
            let i = 2 * (r * columns + k);
            let high = u32::from(u16::from_le_bytes([data[i], data[i + 1]])) << 16;
            f64::from(f32::from_bits(high))
        });
    }

    #[test]
    fn fp8_products_use_the_scale_of_their_block_partial_blocks_included() {
        let (rows, columns) = (200, 300);
        let data = bytes(rows * columns, 2, 0x7F);
        let scales = [120u8, 125, 127, 130, 126, 121];
        let value = |code: u8| {
            let (e, m) = (i32::from(code >> 3 & 15), f64::from(code & 7));
            if e == 0 {
                m * 2f64.powi(-9)
            } else {
                (1.0 + m / 8.0) * 2f64.powi(e - 7)
            }
        };
        let m = Matrix::new(rows, columns, Elements::Fp8(&data, Scales::E8m0(&scales))).unwrap();
        check(m, |r, k| {
            let scale = scales[r / 128 * 3 + k / 128];
            value(data[r * columns + k]) * 2f64.powi(i32::from(scale) - 127)
        });
        let floats: Vec<u8> = [0.5f32, 0.3, 2.0, 1.0, 0.1, 7.0]
            .iter()
            .flat_map(|s| s.to_le_bytes())
            .collect();
        let m = Matrix::new(rows, columns, Elements::Fp8(&data, Scales::F32(&floats))).unwrap();
        check(m, |r, k| {
            let scale = [0.5f32, 0.3, 2.0, 1.0, 0.1, 7.0][r / 128 * 3 + k / 128];
            value(data[r * columns + k]) * f64::from(scale)
        });
    }

    #[test]
    fn fp4_products_are_right_and_long_rows_too() {
        for (rows, columns) in [(65, 96), (70, 8192)] {
            let data = bytes(rows * columns / 2, 3, 255);
            let scales: Vec<u8> = bytes(rows * columns / 32, 4, 10)
                .iter()
                .map(|b| 120 + b)
                .collect();
            let m = Matrix::new(rows, columns, Elements::Fp4(&data, &scales)).unwrap();
            check(m, |r, k| {
                let i = r * columns + k;
                let nibble = data[i / 2] >> (4 * (i % 2)) & 15;
                f64::from(E2M1[nibble as usize]) * 2f64.powi(i32::from(scales[i / 32]) - 127)
            });
        }
    }

    #[test]
    fn fp4_blocks_with_the_scale_in_front_give_the_same_bits() {
        let (rows, columns) = (65, 96);
        let data = bytes(rows * columns / 2, 3, 255);
        let scales = bytes(rows * columns / 32, 4, 254);
        let blocks: Vec<u8> = scales
            .iter()
            .zip(data.chunks_exact(16))
            .flat_map(|(scale, packed)| std::iter::once(*scale).chain(packed.iter().copied()))
            .collect();
        let a = Matrix::new(rows, columns, Elements::Fp4(&data, &scales)).unwrap();
        let b = Matrix::new(rows, columns, Elements::Fp4Blocks(&blocks)).unwrap();
        let (mut x, mut y) = (vec![0.0; columns], vec![1.0; columns]);
        for row in 0..rows {
            a.row(row, &mut x);
            b.row(row, &mut y);
            assert!(x.iter().zip(&y).all(|(x, y)| x.to_bits() == y.to_bits()));
        }
        assert!(Matrix::new(rows, columns, Elements::Fp4Blocks(&blocks[1..])).is_none());
    }

    #[test]
    fn the_number_of_vectors_and_threads_changes_no_bit() {
        let (rows, columns, n) = (300, 512, 7);
        let data = bytes(rows * columns / 2, 3, 255);
        let scales = vec![125; rows * columns / 32];
        let m = Matrix::new(rows, columns, Elements::Fp4(&data, &scales)).unwrap();
        let x = vectors(n, columns);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let mut out = vec![0.0; n * rows];
            pool.install(|| m.apply(&x, &mut out, &mut Vec::new()));
            out
        };
        let one = run(1);
        assert_eq!(one, run(3));
        for t in 0..n {
            let mut alone = vec![0.0; rows];
            m.apply(
                &x[t * columns..(t + 1) * columns],
                &mut alone,
                &mut Vec::new(),
            );
            assert_eq!(alone, one[t * rows..(t + 1) * rows]);
        }
    }

    #[test]
    fn bytes_that_do_not_make_the_matrix_are_refused() {
        let b = [0u8; 4096];
        assert!(Matrix::new(3, 5, Elements::F32(&b[..61])).is_none());
        assert!(Matrix::new(3, 5, Elements::Bf16(&b[..28])).is_none());
        assert!(Matrix::new(2, 33, Elements::Fp4(&b[..33], &b[..2])).is_none());
        assert!(Matrix::new(2, 64, Elements::Fp4(&b[..64], &b[..3])).is_none());
        assert!(Matrix::new(2, 64, Elements::Fp8(&b[..128], Scales::E8m0(&b[..2]))).is_none());
        assert!(Matrix::new(usize::MAX, 2, Elements::F32(&b)).is_none());
    }
}
