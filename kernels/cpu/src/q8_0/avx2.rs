//! AVX2: one row for one token; two rows and four tokens in registers for many.
//!
//! `vpmaddubsw` wants its first factor unsigned: that is the weights' magnitude, and their sign goes to the activations. Pairs are at most 2 * 128 * 127,
//! which fits 16 bits.

// Loops over indices become registers; iterators over small arrays of them sometimes do not. No closures with registers in them: one that is not inlined is
// compiled without the instruction set.
#![allow(clippy::needless_range_loop)]

use std::arch::x86_64::*;
use std::hint::black_box;

use super::{BLOCK_BYTES, SUMS};
use crate::activations::{BLOCK, Tile};
use crate::fused::tree;

/// Rows taken together for many tokens.
pub(super) const ROWS: usize = 2;
/// How far ahead memory is asked for.
const AHEAD: usize = 16384;

/// A row times the only token of a tile.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn row_product(row: &[u8], x: Tile<'_>) -> f32 {
    let (blocks, _) = row.as_chunks::<BLOCK_BYTES>();
    let (mut even, mut odd) = (_mm256_setzero_ps(), _mm256_setzero_ps());
    let (pairs, last) = blocks.as_chunks::<2>();
    let q = x.q.as_chunks::<2>().0.iter();
    for (blocks, (q, d)) in pairs.iter().zip(q.zip(x.scale.as_chunks::<2>().0)) {
        prefetch(&blocks[0]);
        even = add_block(even, &blocks[0], &q[0], d[0]);
        odd = add_block(odd, &blocks[1], &q[1], d[1]);
    }
    if let ([block], [.., q], [.., d]) = (last, x.q, x.scale) {
        even = add_block(even, block, q, *d);
    }
    let mut sums = [0.0; SUMS];
    let (halves, _) = sums.as_chunks_mut::<8>();
    store(&mut halves[0], even);
    store(&mut halves[1], odd);
    tree(sums)
}

/// `total + words * (scale * d)`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_block(total: __m256, block: &[u8; BLOCK_BYTES], q: &[i8; BLOCK], d: f32) -> __m256 {
    let weights = weights(block);
    let words = words(_mm256_abs_epi8(weights), weights, load(q));
    let scale = _mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(scale(block))));
    let factor = _mm256_mul_ps(_mm256_broadcastss_ps(scale), _mm256_set1_ps(d));
    _mm256_fmadd_ps(_mm256_cvtepi32_ps(words), factor, total)
}

/// `out[t * width + i]` gets row `i` of two times token `t`, for all tokens of a tile; four are computed together. `count` of the rows are wanted.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn rows_product(
    rows: [&[u8]; ROWS],
    count: usize,
    x: Tile<'_>,
    out: &mut [f32],
    width: usize,
) {
    let [a, b] = rows;
    let rows = [
        a.as_chunks::<BLOCK_BYTES>().0,
        b.as_chunks::<BLOCK_BYTES>().0,
    ];
    match x.tokens {
        4 => tokens_product::<4>(rows, count, x, 0, out, width),
        tokens => {
            for t in 0..tokens {
                tokens_product::<1>(rows, count, x, t, out, width);
            }
        }
    }
}

/// The same for `T` tokens from `first` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tokens_product<const T: usize>(
    rows: [&[[u8; BLOCK_BYTES]]; ROWS],
    count: usize,
    x: Tile<'_>,
    first: usize,
    out: &mut [f32],
    width: usize,
) {
    let even = every_other_block::<T>(rows, x, first, 0);
    let odd = every_other_block::<T>(rows, x, first, 1);
    for t in 0..T {
        for r in 0..count.min(ROWS) {
            let mut sums = [0.0; SUMS];
            let (halves, _) = sums.as_chunks_mut::<8>();
            store(&mut halves[0], even[t][r]);
            store(&mut halves[1], odd[t][r]);
            out[(first + t) * width + r] = tree(sums);
        }
    }
}

/// Eight sums of each token and row over the blocks from number `b` on, leaving out every other one: those of all blocks do not fit the registers. A function
/// of its own, because two copies of it in one are given fewer registers.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn every_other_block<const T: usize>(
    rows: [&[[u8; BLOCK_BYTES]]; ROWS],
    x: Tile<'_>,
    first: usize,
    mut b: usize,
) -> [[__m256; ROWS]; T] {
    let mut total = [[_mm256_setzero_ps(); ROWS]; T];
    while let (Some(one), Some(two)) = (rows[0].get(b), rows[1].get(b)) {
        let at = b * x.tokens + first;
        let (q, d) = (&x.q[at..at + T], &x.scale[at..at + T]);
        let factors = factors::<T>(one, two, d);
        // In memory, from where one of them fills a register on its way; out of another register that is an operation of its own.
        let Factors(factors) = black_box(&factors);
        let weights = [weights(one), weights(two)];
        let magnitude = [_mm256_abs_epi8(weights[0]), _mm256_abs_epi8(weights[1])];
        for t in 0..T {
            let q = load(&q[t]);
            for r in 0..ROWS {
                let words = _mm256_cvtepi32_ps(words(magnitude[r], weights[r], q));
                let factor = _mm256_set1_ps(factors[r][t]);
                total[t][r] = _mm256_fmadd_ps(words, factor, total[t][r]);
            }
        }
        b += 2;
    }
    total
}

/// What words are multiplied by: scale times `d` of each token, for two rows. Aligned, or what is stored as a whole is not there at once to be loaded in
/// parts.
#[repr(C, align(32))]
struct Factors<const T: usize>([[f32; T]; ROWS]);

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn factors<const T: usize>(
    one: &[u8; BLOCK_BYTES],
    two: &[u8; BLOCK_BYTES],
    d: &[f32],
) -> Factors<T> {
    let scales = u32::from(scale(two)) << 16 | u32::from(scale(one));
    let scales = _mm_cvtph_ps(_mm_cvtsi32_si128(scales.cast_signed()));
    let scales = [
        _mm_cvtss_f32(scales),
        _mm_cvtss_f32(_mm_movehdup_ps(scales)),
    ];
    let mut out = [[0.0; T]; ROWS];
    for r in 0..ROWS {
        for t in 0..T {
            out[r][t] = scales[r] * d[t];
        }
    }
    Factors(out)
}

/// Bits of a block's scale, a number of half precision.
#[inline(always)]
fn scale(block: &[u8; BLOCK_BYTES]) -> u16 {
    u16::from_le_bytes([block[0], block[1]])
}

/// A block's integers in the order of activations: of each eight the even ones, then the odd ones.
#[inline]
#[target_feature(enable = "avx2")]
fn weights(block: &[u8; BLOCK_BYTES]) -> __m256i {
    let order = _mm_set_epi64x(0x0F0D_0B09_0E0C_0A08, 0x0705_0301_0604_0200);
    // SAFETY: the load covers the 32 bytes after the scale.
    let weights = unsafe { _mm256_loadu_si256(block[2..].as_ptr().cast()) };
    _mm256_shuffle_epi8(weights, _mm256_broadcastsi128_si256(order))
}

/// Eight sums of four products.
#[inline]
#[target_feature(enable = "avx2")]
fn words(magnitude: __m256i, weights: __m256i, q: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(q, weights));
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}

#[inline]
#[target_feature(enable = "avx2")]
fn prefetch(block: &[u8; BLOCK_BYTES]) {
    let at = block.as_ptr().wrapping_add(AHEAD);
    _mm_prefetch::<_MM_HINT_T1>(at.cast());
    _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(64).cast());
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(q: &[i8; BLOCK]) -> __m256i {
    // SAFETY: the load covers the 32 bytes, at any alignment.
    unsafe { _mm256_loadu_si256(q.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(sums: &mut [f32; 8], value: __m256) {
    // SAFETY: the store covers the eight numbers, at any alignment.
    unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), value) }
}
