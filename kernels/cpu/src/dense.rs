//! Products of F32, BF16 and FP8 matrices with `f32` vectors.
//!
//! **Definition of a result.** Columns go in blocks of 128. A block of a row is lines of 64 bytes, sixteen words of four bytes; lane `l` of sixteen
//! takes the elements of word `l` of each line, in order, by `p[l] = fma(w, x, p[l])` from zero; after the block, `total[l] = fma(p[l], s, total[l])`
//! with the block's scale (one, where there is none). The sixteen totals are added as a tree. Missing columns of the last block count as
//! zeros. Nothing else decides the bits: one token and five hundred, one thread and many give the same.
//!
//! **Error** against exact arithmetic on the same weights and vectors: at most `(8 + b + 4) 2^-24 sum_k |w_k x_k|` for `b` blocks, and for FP8, whose sums run 2^-60
//! too small, `2^-89 s` for each column beside it. FP8 wants `|x| < 2^67` and scales below 2^67: beyond, results are infinite.
//!
//! **One token** is bound by memory: codes become `f32` in registers on their way to the sum. **Many tokens** are bound by arithmetic: eight rows of a
//! block are decoded into the first-level cache and meet [`TILE`] tokens there, four rows and a few tokens at a time in registers.
//!
//! Measured and left (one core of a Zen 4 that reads 32 GB/s): e4m3 by way of half precision 13 GB/s, by shifts instead of multiplications 18, as it is
//! 21 to 25; prefetching into the first-level cache 16 to 18; prefetching a fixed distance ahead in several rows, which leaves the start of every
//! row unasked for, 10.

// Loops over indices become registers; iterators over small arrays of them sometimes do not.
#![allow(clippy::needless_range_loop)]

use std::hint::black_box;
use std::ops::Range;

use crate::dispatch::wide_at;
use crate::format::E8M0;
use crate::fused::{FP8_SMALL, Fused, LINE, MOST_PARTS, WIDTH, tree};
use crate::matrix::{FP8_BLOCK, Scales};
use crate::team;

/// Columns of a block.
pub(crate) const BLOCK: usize = FP8_BLOCK;
/// Vectors in a block.
const STEPS: usize = BLOCK / WIDTH;
/// Tokens that meet a decoded block. A multiple of every `Fused::TOKENS`.
const TILE: usize = 48;
/// Rows decoded together.
const ROWS: usize = 8;
/// FP8 rows that a product with one token takes together: the wait for one row's sums is filled with another's weights. More of them, or two of
/// the wider formats, are slower, for the memory is then read in more places at once.
const FP8_ROWS: usize = 2;
/// How far ahead, at least, one token's product asks for memory.
const AHEAD: usize = 16384;
/// Vectors are multiplied by 2^60 before they meet FP8 weights, which are 2^120 too small: so a product is in the middle of what `f32` can hold.
const FP8_RAISE: i32 = 60;

/// A matrix with rows of whole bytes, little-endian.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub columns: usize,
    pub data: Data<'a>,
}

/// How it is stored.
#[derive(Clone, Copy)]
pub(crate) enum Data<'a> {
    F32(&'a [u8]),
    Bf16(&'a [u8]),
    Fp8(&'a [u8], Scales<'a>),
}

/// Bytes of an element, which names a format where the data are not at hand.
pub(crate) const F32: usize = 4;
pub(crate) const BF16: usize = 2;
pub(crate) const FP8: usize = 1;

/// 2^exponent, for exponents of normal numbers.
const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}

impl<'a> Rows<'a> {
    /// Bytes of one row; `bytes` is those of an element.
    #[inline(always)]
    fn row(&self, row: usize, bytes: usize) -> &'a [u8] {
        let (Data::F32(data) | Data::Bf16(data) | Data::Fp8(data, _)) = self.data;
        let length = self.columns * bytes;
        &data[row * length..(row + 1) * length]
    }

    /// What the sums of a block are multiplied by.
    #[inline(always)]
    fn scale(&self, row: usize, block: usize) -> f32 {
        let Data::Fp8(_, scales) = self.data else {
            return 1.0;
        };
        let i = row / FP8_BLOCK * self.columns.div_ceil(FP8_BLOCK) + block;
        let scale = match scales {
            Scales::E8m0(codes) => E8M0[usize::from(codes[i])],
            Scales::F32(bytes) => f32::from_le_bytes(bytes.as_chunks::<4>().0[i]),
        };
        scale * power_of_two(-FP8_SMALL - FP8_RAISE)
    }
}

/// Blocks of all tokens of a tile that are arranged in one go.
const ARRANGED_TOGETHER: usize = 8;

/// Puts x [n, columns] in the order in which [`product`] meets it: [tile][block][token of the tile], the last block filled up with zeros. Tokens
/// lie side by side because, a whole vector apart, the same block of all of them would fall into few sets of the caches.
pub(crate) fn arrange(bytes: usize, columns: usize, x: &[f32], out: &mut Vec<f32>) {
    let (n, blocks) = (x.len() / columns, columns.div_ceil(BLOCK));
    out.resize(n * blocks * BLOCK, 0.0);
    // Parts of whole blocks lie one after the other, each a task.
    let together = blocks.div_ceil(ARRANGED_TOGETHER);
    let parts = out
        .chunks_mut(TILE * blocks * BLOCK)
        .enumerate()
        .flat_map(|(tile, out)| {
            let tokens = out.len() / (blocks * BLOCK);
            let parts = out.chunks_mut(ARRANGED_TOGETHER * tokens * BLOCK);
            parts.enumerate().map(move |part| (tile, tokens, part))
        });
    let part = |(tile, tokens, (part, out)): (usize, usize, (usize, &mut [f32]))| {
        for (i, out) in out.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            let (block, t) = (
                part * ARRANGED_TOGETHER + i / tokens,
                tile * TILE + i % tokens,
            );
            let from = t * columns + block * BLOCK;
            let to = (t + 1) * columns;
            arrange_block(bytes, n, &x[from..to.min(from + BLOCK)], out);
        }
    };
    if n == 1 {
        return parts.for_each(part);
    }
    team::for_each_of(n.div_ceil(TILE) * together, parts, part);
}

fn arrange_block(bytes: usize, n: usize, x: &[f32], out: &mut [f32; BLOCK]) {
    const UP: f32 = power_of_two(FP8_RAISE);
    const DOWN: f32 = power_of_two(-FP8_RAISE);
    if x.len() < BLOCK {
        out.fill(0.0);
    }
    match bytes {
        F32 => out[..x.len()].copy_from_slice(x),
        BF16 => by_words::<2>(x, out, |v| v),
        // One vector meets weights as they come, many meet weights 2^60 larger. What a raised vector loses to infinity is lost for both.
        _ if n == 1 => by_words::<4>(x, out, |v| v * UP),
        _ => by_words::<4>(x, out, |v| v * UP * DOWN),
    }
}

/// In each line of `16 P` elements, first the first of each word of `P`, then the second.
#[inline(always)]
fn by_words<const P: usize>(x: &[f32], out: &mut [f32], f: impl Fn(f32) -> f32) {
    for (x, out) in x.chunks(WIDTH * P).zip(out.chunks_exact_mut(WIDTH * P)) {
        for (l, word) in x.chunks(P).enumerate() {
            for (i, v) in word.iter().enumerate() {
                out[i * WIDTH + l] = f(*v);
            }
        }
    }
}

wide_at! {
    /// Some rows of the product with `n` vectors, [`arranged`](arrange): out [n, rows.len()].
    pub(crate) fn product<S>(m: Rows<'_>, rows: Range<usize>, x: &[f32], out: &mut [f32]) {
        let x = x.as_chunks::<BLOCK>().0;
        let n = x.len() / m.columns.div_ceil(BLOCK);
        match (m.data, n) {
            (Data::F32(_), 1) => one_token::<S, F32, 1>(m, rows, x, out),
            (Data::Bf16(_), 1) => one_token::<S, BF16, 1>(m, rows, x, out),
            (Data::Fp8(..), 1) => one_token::<S, FP8, FP8_ROWS>(m, rows, x, out),
            (Data::F32(_), _) => many_tokens::<S, F32>(m, rows, x, out),
            (Data::Bf16(_), _) => many_tokens::<S, BF16>(m, rows, x, out),
            (Data::Fp8(..), _) => many_tokens::<S, FP8>(m, rows, x, out),
        }
    }
}

/// One part of the weights of a line: as many registers as a word has elements, the rest zeros.
#[inline(always)]
fn weights<S: Fused, const BYTES: usize>(line: &[u8; LINE], part: usize) -> [S::Part; F32] {
    match BYTES {
        F32 => [S::f32(line, part), S::zero(), S::zero(), S::zero()],
        BF16 => {
            let [a, b] = S::bf16(line, part);
            [a, b, S::zero(), S::zero()]
        }
        _ => S::fp8(line, part),
    }
}

/// `p += weights * x` for a line; x is as many vectors as a word has elements.
#[inline(always)]
fn add_line<S: Fused, const BYTES: usize>(
    p: &mut [S::Part; MOST_PARTS],
    line: &[u8; LINE],
    x: &[f32],
) {
    let (x, _) = x.as_chunks();
    for part in 0..S::PARTS {
        let w = weights::<S, BYTES>(line, part);
        for j in 0..F32 / BYTES {
            p[part] = S::fma(w[j], S::load(&x[j], part), p[part]);
        }
    }
}

/// `totals += p * scale`.
#[inline(always)]
fn add_block<S: Fused>(p: [S::Part; MOST_PARTS], scale: f32, totals: &mut [f32; WIDTH]) {
    for part in 0..S::PARTS {
        let sum = S::fma(p[part], S::splat(scale), S::load(totals, part));
        S::store(sum, totals, part);
    }
}

/// The bytes of the last block of a row, filled up with zeros.
#[inline(always)]
fn padded(rest: &[u8]) -> [u8; BLOCK * F32] {
    let mut block = [0; BLOCK * F32];
    block[..rest.len()].copy_from_slice(rest);
    block
}

#[inline(always)]
fn one_token<S: Fused, const BYTES: usize, const R: usize>(
    m: Rows<'_>,
    rows: Range<usize>,
    x: &[[f32; BLOCK]],
    out: &mut [f32],
) {
    let (groups, rest) = out.as_chunks_mut::<R>();
    let first_of_rest = rows.start + groups.len() * R;
    for (i, group) in groups.iter_mut().enumerate() {
        *group = rows_times::<S, BYTES, R>(m, rows.start + i * R, x);
    }
    for (i, o) in rest.iter_mut().enumerate() {
        [*o] = rows_times::<S, BYTES, 1>(m, first_of_rest + i, x);
    }
}

/// `R` rows from `first` on, times one vector.
#[inline(always)]
fn rows_times<S: Fused, const BYTES: usize, const R: usize>(
    m: Rows<'_>,
    first: usize,
    x: &[[f32; BLOCK]],
) -> [f32; R] {
    let rows: [&[u8]; R] = std::array::from_fn(|r| m.row(first + r, BYTES));
    // The same place of rows to come, so that every line is asked for once.
    let together = R * m.columns * BYTES;
    let ahead = together * AHEAD.div_ceil(together);
    let bytes = m.columns * BYTES;
    // A number the compiler does not know keeps it from unrolling the loop over a block's lines and putting one row after the other.
    let lines = (bytes / LINE).min(BLOCK * BYTES / LINE);
    let mut totals = [[0.0; WIDTH]; R];
    let (whole, rest) = x.split_at(bytes / (BLOCK * BYTES));
    for (b, x) in whole.iter().enumerate() {
        let at = b * BLOCK * BYTES;
        let blocks: [&[[u8; LINE]]; R] =
            std::array::from_fn(|r| &rows[r][at..at + BLOCK * BYTES].as_chunks().0[..lines]);
        let mut p = [[S::zero(); MOST_PARTS]; R];
        for (i, x) in x.chunks_exact(WIDTH * F32 / BYTES).take(lines).enumerate() {
            for r in 0..R {
                let line = &blocks[r][i];
                S::prefetch(line, ahead);
                add_line::<S, BYTES>(&mut p[r], line, x);
            }
        }
        for r in 0..R {
            add_block::<S>(p[r], m.scale(first + r, b), &mut totals[r]);
        }
    }
    for x in rest {
        for r in 0..R {
            let block = padded(&rows[r][whole.len() * BLOCK * BYTES..]);
            let mut p = [S::zero(); MOST_PARTS];
            for (line, x) in block
                .as_chunks()
                .0
                .iter()
                .zip(x.chunks_exact(WIDTH * F32 / BYTES))
            {
                add_line::<S, BYTES>(&mut p, line, x);
            }
            add_block::<S>(p, m.scale(first + r, whole.len()), &mut totals[r]);
        }
    }
    totals.map(tree)
}

#[inline(always)]
fn many_tokens<S: Fused, const BYTES: usize>(
    m: Rows<'_>,
    rows: Range<usize>,
    x: &[[f32; BLOCK]],
    out: &mut [f32],
) {
    let (width, blocks) = (rows.len(), m.columns.div_ceil(BLOCK));
    let raise = S::splat(if BYTES == FP8 {
        power_of_two(FP8_RAISE)
    } else {
        1.0
    });
    let mut totals = [[[0.0; WIDTH]; ROWS]; TILE];
    let mut w = [[0.0; BLOCK]; ROWS];
    for (x, out) in x.chunks(TILE * blocks).zip(out.chunks_mut(TILE * width)) {
        let totals = &mut totals[..x.len() / blocks];
        for first in (0..width).step_by(ROWS) {
            let count = ROWS.min(width - first);
            totals.fill([[0.0; WIDTH]; ROWS]);
            for b in 0..blocks {
                let at = b * BLOCK * BYTES;
                let mut scale = [0.0; ROWS];
                for r in 0..count {
                    let row = rows.start + first + r;
                    let bytes = &m.row(row, BYTES)[at..];
                    let rest;
                    let bytes = if bytes.len() >= BLOCK * BYTES {
                        bytes
                    } else {
                        rest = padded(bytes);
                        &rest
                    };
                    let lines = bytes[..BLOCK * BYTES].as_chunks().0;
                    for (line, w) in lines.iter().zip(w[r].chunks_exact_mut(WIDTH * F32 / BYTES)) {
                        for part in 0..S::PARTS {
                            let weights = weights::<S, BYTES>(line, part);
                            for (i, w) in w.as_chunks_mut().0.iter_mut().enumerate() {
                                let v = weights[i];
                                S::store(if BYTES == FP8 { S::mul(v, raise) } else { v }, w, part);
                            }
                        }
                    }
                    scale[r] = m.scale(row, b);
                }
                let x = &x[b * totals.len()..(b + 1) * totals.len()];
                meet(S::LEVEL, &w, &scale, x, totals);
            }
            for (totals, out) in totals.iter().zip(out.chunks_exact_mut(width)) {
                for (o, total) in out[first..first + count].iter_mut().zip(totals) {
                    *o = tree(*total);
                }
            }
        }
    }
}

wide_at! {
    /// One block of [`ROWS`] rows times all tokens of a tile.
    fn meet<S>(
        w: &[[f32; BLOCK]; ROWS],
        scale: &[f32; ROWS],
        x: &[[f32; BLOCK]],
        totals: &mut [[[f32; WIDTH]; ROWS]],
    ) {
        match S::TOKENS {
            6 => meet_by::<S, 6>(w, scale, x, totals),
            3 => meet_by::<S, 3>(w, scale, x, totals),
            _ => meet_by::<S, 1>(w, scale, x, totals),
        }
    }
}

/// `T` tokens at a time.
#[inline(always)]
fn meet_by<S: Fused, const T: usize>(
    w: &[[f32; BLOCK]; ROWS],
    scale: &[f32; ROWS],
    x: &[[f32; BLOCK]],
    totals: &mut [[[f32; WIDTH]; ROWS]],
) {
    let (groups, rest) = totals.as_chunks_mut::<T>();
    let (x, rest_of_x) = x.as_chunks::<T>();
    for (totals, x) in groups.iter_mut().zip(x) {
        rows_meet::<S, T>(w, scale, x, totals);
    }
    for (total, x) in rest.iter_mut().zip(rest_of_x) {
        let (x, total) = (std::array::from_ref(x), std::array::from_mut(total));
        rows_meet::<S, 1>(w, scale, x, total);
    }
}

#[inline(always)]
fn rows_meet<S: Fused, const T: usize>(
    w: &[[f32; BLOCK]; ROWS],
    scale: &[f32; ROWS],
    x: &[[f32; BLOCK]; T],
    totals: &mut [[[f32; WIDTH]; ROWS]; T],
) {
    // Four rows: twelve sums on AVX2, which with a weight and a number of a vector leave two registers free.
    const R: usize = 4;
    for (first, part) in (0..ROWS)
        .step_by(R)
        .flat_map(|r| (0..S::PARTS).map(move |p| (r, p)))
    {
        // The compiler must not know that these are the same numbers for the next rows: it would keep them, in more registers than there are,
        // and the sums would have to leave theirs.
        let x = black_box(x);
        let mut p = [[S::zero(); T]; R];
        for step in 0..STEPS {
            let mut numbers = [S::zero(); T];
            for t in 0..T {
                numbers[t] = S::load(&x[t].as_chunks().0[step], part);
            }
            for r in 0..R {
                let w = S::load(&w[first + r].as_chunks().0[step], part);
                for t in 0..T {
                    p[r][t] = S::fma(w, numbers[t], p[r][t]);
                }
            }
        }
        for t in 0..T {
            for r in 0..R {
                let total = &mut totals[t][first + r];
                let scale = S::splat(scale[first + r]);
                S::store(S::fma(p[r][t], scale, S::load(total, part)), total, part);
            }
        }
    }
}
