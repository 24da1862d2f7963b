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
//! A line of FP8 is 24 operations of 256 bits for AVX2 (16 to decode, 8 to multiply), six cycles of a Zen 4 with its four units; from the second-level cache it
//! takes 8.3, and one core does 25 GB/s where it reads 32. Measured and left: e4m3 by way of half precision 15 cycles, by shifts instead of
//! multiplications 9.5, with a load for each byte of a word 10; vectors that are not aligned to cache lines one to two cycles more; two rows together from
//! memory 22 GB/s; prefetching into the first-level cache 16 to 18; prefetching a fixed distance ahead in several rows, which leaves the start of every row
//! unasked for, 10.

// Loops over indices become registers; iterators over small arrays of them sometimes do not.
#![allow(clippy::needless_range_loop)]

use std::hint::black_box;
use std::ops::Range;

use crate::dispatch::{Level, wide_at};
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
/// How far ahead, at least, one token's product asks for memory.
const AHEAD: usize = 16384;
/// Vectors are multiplied by 2^60 before they meet FP8 weights, which are 2^120 too small: so a product is in the middle of what `f32` can hold.
const FP8_RAISE: i32 = 60;

/// Blocks of a row that one token's product takes together: the wait for the sums of one is filled with the weights of another. Two rows together would
/// do the same, but memory is then read in two places at once, which is slower.
const TOGETHER: usize = 2;
/// What sums of FP8 weights, 2^120 too small, with raised vectors are multiplied by beside their scale.
const OF_SMALL: f32 = power_of_two(-FP8_SMALL - FP8_RAISE);
/// [`E8M0`] times that.
static E8M0_OF_SMALL: [f32; 256] = {
    let mut table = E8M0;
    let mut code = 0;
    while code < 256 {
        table[code] *= OF_SMALL;
        code += 1;
    }
    table
};

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
/// Lines of a block of FP8.
const FP8_LINES: usize = BLOCK * FP8 / LINE;

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
        match scales {
            Scales::E8m0(codes) => codes.of(i),
            Scales::F32(bytes) => bytes.as_chunks::<4>().0.of(i),
        }
    }
}

/// Blocks of all tokens of a tile that are arranged in one go.
const ARRANGED_TOGETHER: usize = 8;

/// Numbers of one token that meet a block of weights. Aligned, because a load that lies on two cache lines costs two.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Block([f32; BLOCK]);

impl Block {
    #[inline(always)]
    fn vectors(&self) -> &[[f32; WIDTH]] {
        self.0.as_chunks().0
    }
}

/// Puts x [n, columns] in the order in which [`product`] meets it: [tile][block][token of the tile], the last block filled up with zeros. Tokens
/// lie side by side because, a whole vector apart, the same block of all of them would fall into few sets of the caches.
pub(crate) fn arrange(level: Level, bytes: usize, columns: usize, x: &[f32], out: &mut Vec<Block>) {
    let (n, blocks) = (x.len() / columns, columns.div_ceil(BLOCK));
    out.resize(n * blocks, Block([0.0; BLOCK]));
    // Parts of whole blocks lie one after the other, each a task.
    let together = blocks.div_ceil(ARRANGED_TOGETHER);
    let parts = out
        .chunks_mut(TILE * blocks)
        .enumerate()
        .flat_map(|(tile, out)| {
            let tokens = out.len() / blocks;
            let parts = out.chunks_mut(ARRANGED_TOGETHER * tokens);
            parts.enumerate().map(move |part| (tile, tokens, part))
        });
    let part = |(tile, tokens, (part, out)): (usize, usize, (usize, &mut [Block]))| {
        for (i, out) in out.iter_mut().enumerate() {
            let (block, t) = (
                part * ARRANGED_TOGETHER + i / tokens,
                tile * TILE + i % tokens,
            );
            let from = t * columns + block * BLOCK;
            let to = (t + 1) * columns;
            let x = &x[from..to.min(from + BLOCK)];
            arrange_block(level, bytes, n, x, &mut out.0);
        }
    };
    if n == 1 {
        return parts.for_each(part);
    }
    team::for_each_of(n.div_ceil(TILE) * together, parts, part);
}

wide_at! {
    fn arrange_block<S>(bytes: usize, n: usize, x: &[f32], out: &mut [f32; BLOCK]) {
        const UP: f32 = power_of_two(FP8_RAISE);
        const DOWN: f32 = power_of_two(-FP8_RAISE);
        let mut last = [0.0; BLOCK];
        let x = match x.as_array() {
            Some(x) => x,
            None => {
                last[..x.len()].copy_from_slice(x);
                &last
            }
        };
        match bytes {
            F32 => *out = *x,
            BF16 => by_words::<2>(x, out, |v| v),
            // One vector meets weights as they come, many meet weights 2^60 larger. What a raised vector loses to infinity is lost for both.
            _ if n == 1 => by_words::<4>(x, out, |v| v * UP),
            _ => by_words::<4>(x, out, |v| v * UP * DOWN),
        }
    }
}

/// In each line of `16 P` elements, first the first of each word of `P`, then the second.
#[inline(always)]
fn by_words<const P: usize>(x: &[f32; BLOCK], out: &mut [f32; BLOCK], f: impl Fn(f32) -> f32) {
    let (x, _) = x.as_chunks::<P>();
    let (lines, _) = out.as_chunks_mut::<WIDTH>();
    for (x, out) in x
        .as_chunks::<WIDTH>()
        .0
        .iter()
        .zip(lines.as_chunks_mut::<P>().0)
    {
        for i in 0..P {
            for l in 0..WIDTH {
                out[i][l] = f(x[l][i]);
            }
        }
    }
}

wide_at! {
    /// Some rows of the product with `n` vectors, [`arranged`](arrange): out [n, rows.len()].
    pub(crate) fn product<S>(m: Rows<'_>, rows: Range<usize>, x: &[Block], out: &mut [f32]) {
        let n = x.len() / m.columns.div_ceil(BLOCK);
        match (m.data, n) {
            (Data::F32(_), 1) => one_token::<S, F32, { BLOCK * F32 / LINE }>(m, rows, x, out),
            (Data::Bf16(_), 1) => one_token::<S, BF16, { BLOCK * BF16 / LINE }>(m, rows, x, out),
            (Data::Fp8(_, scales), 1) => one_token_fp8::<S>(m, scales, rows, x, out),
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

/// The bytes of the last block of a row, filled up with zeros.
#[inline(always)]
fn padded(rest: &[u8]) -> [u8; BLOCK * F32] {
    let mut block = [0; BLOCK * F32];
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// What the sums of the blocks of a row are multiplied by. One type for each kind of scales, so that the loop over blocks has no branches.
trait Factors: Copy {
    fn of(&self, block: usize) -> f32;
}

/// No scales.
#[derive(Clone, Copy)]
struct One;

impl Factors for One {
    #[inline(always)]
    fn of(&self, _: usize) -> f32 {
        1.0
    }
}

impl Factors for &[u8] {
    #[inline(always)]
    fn of(&self, block: usize) -> f32 {
        E8M0_OF_SMALL[usize::from(self[block])]
    }
}

impl Factors for &[[u8; 4]] {
    #[inline(always)]
    fn of(&self, block: usize) -> f32 {
        f32::from_le_bytes(self[block]) * OF_SMALL
    }
}

#[inline(always)]
fn one_token<S: Fused, const BYTES: usize, const LINES: usize>(
    m: Rows<'_>,
    rows: Range<usize>,
    x: &[Block],
    out: &mut [f32],
) {
    for (row, o) in rows.zip(out) {
        *o = row_times::<S, BYTES, LINES, _>(m.row(row, BYTES), One, x);
    }
}

/// The same for FP8.
#[inline(always)]
fn one_token_fp8<S: Fused>(
    m: Rows<'_>,
    scales: Scales<'_>,
    rows: Range<usize>,
    x: &[Block],
    out: &mut [f32],
) {
    for (row, o) in rows.zip(out) {
        let (bytes, first) = (m.row(row, FP8), row / FP8_BLOCK * x.len());
        *o = match scales {
            Scales::E8m0(codes) => {
                row_times::<S, FP8, FP8_LINES, _>(bytes, &codes[first..first + x.len()], x)
            }
            Scales::F32(scales) => {
                let scales = &scales.as_chunks::<4>().0[first..first + x.len()];
                row_times::<S, FP8, FP8_LINES, _>(bytes, scales, x)
            }
        };
    }
}

/// One row times one vector. `LINES` are those of a block.
#[inline(always)]
fn row_times<S: Fused, const BYTES: usize, const LINES: usize, F: Factors>(
    row: &[u8],
    factors: F,
    x: &[Block],
) -> f32 {
    const { assert!(LINES * LINE == BLOCK * BYTES) };
    // The same place of rows to come, so that every line is asked for once.
    let ahead = row.len() * AHEAD.div_ceil(row.len());
    let (lines, _) = row.as_chunks::<LINE>();
    let (blocks, _) = lines.as_chunks::<LINES>();
    let (x, rest) = x.split_at(blocks.len());
    let mut totals = [S::zero(); MOST_PARTS];
    let (groups, few) = blocks.as_chunks::<TOGETHER>();
    let (x, x_of_few) = x.as_chunks::<TOGETHER>();
    for (i, (blocks, x)) in groups.iter().zip(x).enumerate() {
        blocks_times::<S, BYTES, LINES, TOGETHER, F>(
            blocks,
            factors,
            i * TOGETHER,
            x,
            ahead,
            &mut totals,
        );
    }
    let done = groups.len() * TOGETHER;
    for (i, (block, x)) in few.iter().zip(x_of_few).enumerate() {
        let (block, x) = (std::array::from_ref(block), std::array::from_ref(x));
        blocks_times::<S, BYTES, LINES, 1, F>(block, factors, done + i, x, ahead, &mut totals);
    }
    if let [x] = rest {
        let block = padded(&row[blocks.len() * BLOCK * BYTES..]);
        let (lines, _) = block.as_chunks::<LINE>();
        if let ([block, ..], _) = lines.as_chunks::<LINES>() {
            let (block, x) = (std::array::from_ref(block), std::array::from_ref(x));
            let first = blocks.len();
            blocks_times::<S, BYTES, LINES, 1, F>(block, factors, first, x, 0, &mut totals);
        }
    }
    let mut sums = [0.0; WIDTH];
    for part in 0..S::PARTS {
        S::store(totals[part], &mut sums, part);
    }
    tree(sums)
}

/// Adds `T` blocks of a row, from number `first` on, to its totals.
#[inline(always)]
fn blocks_times<S: Fused, const BYTES: usize, const LINES: usize, const T: usize, F: Factors>(
    blocks: &[[[u8; LINE]; LINES]; T],
    factors: F,
    first: usize,
    x: &[Block; T],
    ahead: usize,
    totals: &mut [S::Part; MOST_PARTS],
) {
    // Before the sums: a check of a bound after them would have the compiler put them off, and keep what they are made of in memory meanwhile.
    let factors: [f32; T] = std::array::from_fn(|k| factors.of(first + k));
    let mut p = [[S::zero(); MOST_PARTS]; T];
    for i in 0..LINES {
        for k in 0..T {
            let line = &blocks[k][i];
            S::prefetch(line, ahead);
            let x = &x[k].vectors()[i * (F32 / BYTES)..];
            for part in 0..S::PARTS {
                let w = weights::<S, BYTES>(line, part);
                for j in 0..F32 / BYTES {
                    p[k][part] = S::fma(w[j], S::load(&x[j], part), p[k][part]);
                }
            }
        }
    }
    for k in 0..T {
        for part in 0..S::PARTS {
            totals[part] = S::fma(p[k][part], S::splat(factors[k]), totals[part]);
        }
    }
}

#[inline(always)]
fn many_tokens<S: Fused, const BYTES: usize>(
    m: Rows<'_>,
    rows: Range<usize>,
    x: &[Block],
    out: &mut [f32],
) {
    let (width, blocks) = (rows.len(), m.columns.div_ceil(BLOCK));
    let raise = S::splat(if BYTES == FP8 {
        power_of_two(FP8_RAISE)
    } else {
        1.0
    });
    let mut totals = [[[0.0; WIDTH]; ROWS]; TILE];
    let mut w = [Block([0.0; BLOCK]); ROWS];
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
                    for (line, w) in lines
                        .iter()
                        .zip(w[r].0.chunks_exact_mut(WIDTH * F32 / BYTES))
                    {
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
        w: &[Block; ROWS],
        scale: &[f32; ROWS],
        x: &[Block],
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
    w: &[Block; ROWS],
    scale: &[f32; ROWS],
    x: &[Block],
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
    w: &[Block; ROWS],
    scale: &[f32; ROWS],
    x: &[Block; T],
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
                numbers[t] = S::load(&x[t].vectors()[step], part);
            }
            for r in 0..R {
                let w = S::load(&w[first + r].vectors()[step], part);
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
