//! AVX-512 with VNNI for many tokens: four rows and four tokens in registers, two blocks in each.
//!
//! `vpdpbusd` wants one unsigned factor: activations plus 128, taken off again with 128 times the sum of the weights, which is worked out once for the
//! four tokens. The lower half of a register is an even block and the upper one the odd block after it, as the sums of the definition are.

// Loops over indices become registers; iterators over small arrays of them sometimes do not.
#![allow(clippy::needless_range_loop)]

use std::arch::x86_64::*;

use super::{BLOCK_BYTES, SUMS};
use crate::activations::{BLOCK, Tile};
use crate::fused::tree;

/// Rows taken together.
pub(super) const ROWS: usize = 4;
/// Tokens taken together.
const TOKENS: usize = 4;

/// `out[t * width + i]` gets row `i` of four times token `t`, for all tokens of a tile.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn rows_product(rows: [&[u8]; ROWS], x: Tile<'_>, out: &mut [f32], width: usize) {
    let whole = x.tokens / TOKENS * TOKENS;
    for t in (0..whole).step_by(TOKENS) {
        tokens_product::<TOKENS>(rows, x, t, out, width);
    }
    for t in whole..x.tokens {
        tokens_product::<1>(rows, x, t, out, width);
    }
}

/// The same for `T` tokens from `first` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tokens_product<const T: usize>(
    rows: [&[u8]; ROWS],
    x: Tile<'_>,
    first: usize,
    out: &mut [f32],
    width: usize,
) {
    let blocks = rows.map(|row| row.as_chunks::<BLOCK_BYTES>().0);
    let count = blocks[0].len();
    let mut sums = [[_mm512_setzero_ps(); T]; ROWS];
    const NOTHING: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    for even in (0..count).step_by(2) {
        let odd = even + 1;
        let mut weights = [_mm512_setzero_si512(); ROWS];
        let mut correction = weights;
        let mut scale = [_mm512_setzero_ps(); ROWS];
        for r in 0..ROWS {
            let other = if odd < count {
                &blocks[r][odd]
            } else {
                &NOTHING
            };
            (weights[r], scale[r]) = load(&blocks[r][even], other);
            let sum =
                _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(-128), weights[r]);
            correction[r] = _mm512_sub_epi32(_mm512_setzero_si512(), sum);
        }
        for t in 0..T {
            let at = even * x.tokens + first + t;
            let (next, d) = if odd < count {
                (&x.q[at + x.tokens], x.scale[at + x.tokens])
            } else {
                (&[0; BLOCK], 0.0)
            };
            let q = join(&x.q[at], next);
            let q = _mm512_xor_si512(q, _mm512_set1_epi8(-128));
            let d = _mm512_mask_mov_ps(_mm512_set1_ps(x.scale[at]), 0xFF00, _mm512_set1_ps(d));
            for r in 0..ROWS {
                let words = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(correction[r], q, weights[r]));
                sums[r][t] = _mm512_fmadd_ps(words, _mm512_mul_ps(scale[r], d), sums[r][t]);
            }
        }
    }
    for t in 0..T {
        for r in 0..ROWS {
            let mut lanes = [0.0; SUMS];
            // SAFETY: the store covers the sixteen numbers, at any alignment.
            unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), sums[r][t]) };
            out[(first + t) * width + r] = tree(lanes);
        }
    }
}

/// The integers of two blocks in the order of activations, and their scales, each eight times.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
fn load(even: &[u8; BLOCK_BYTES], odd: &[u8; BLOCK_BYTES]) -> (__m512i, __m512) {
    // In each eight the even ones, then the odd ones.
    let order = _mm_set_epi64x(0x0F0D_0B09_0E0C_0A08, 0x0705_0301_0604_0200);
    let ([a, b, even @ ..], [c, d, odd @ ..]) = (even, odd);
    let weights = _mm512_shuffle_epi8(join(even, odd), _mm512_broadcast_i32x4(order));
    let half = |a: u8, b: u8| i16::from_le_bytes([a, b]);
    let scales = _mm256_set_m128i(_mm_set1_epi16(half(*c, *d)), _mm_set1_epi16(half(*a, *b)));
    (weights, _mm512_cvtph_ps(scales))
}

/// Two blocks in one register.
#[inline]
#[target_feature(enable = "avx512f")]
fn join<T>(a: &[T; BLOCK], b: &[T; BLOCK]) -> __m512i {
    const { assert!(size_of::<T>() == 1) };
    // SAFETY: each load covers the 32 bytes, at any alignment.
    unsafe {
        let a = _mm256_loadu_si256(a.as_ptr().cast());
        let b = _mm256_loadu_si256(b.as_ptr().cast());
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b)
    }
}
