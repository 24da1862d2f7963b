//! AVX2: eight rows in the words of a register.
//!
//! Twice a weight is an integer in -12..=12. A byte shuffle looks up that plus 12, which is unsigned, as `vpmaddubsw` wants its first factor;
//! the 12 is taken off with the sum of the block's activations. Pairs are at most 2 * 24 * 127, so four of them fit 16 bits.

use std::arch::x86_64::*;

use super::{BLOCK_BYTES, GROUP, NIBBLES, Packet, packets};
use crate::activations::{BLOCK, Tile};

/// How far ahead memory is asked for, into the second-level cache: the first-level cache has too few places for what is on its way.
pub(super) const AHEAD: usize = 16384;

/// What a nibble stands for: 12 + 2 w.
pub(super) const CODES: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// Sums [tokens][8 rows] of a group.
#[target_feature(enable = "avx2,fma")]
pub(super) fn product(group: &[u8], x: Tile<'_>, sums: &mut [[f32; GROUP]]) {
    match sums {
        [sum] => one_token(group, x, sum),
        _ => many_tokens(group, x, sums),
    }
}

#[target_feature(enable = "avx2,fma")]
fn one_token(group: &[u8], x: Tile<'_>, sum: &mut [f32; GROUP]) {
    let mut total = _mm256_setzero_ps();
    let mut first = 0;
    for packet in packets(group) {
        let x = x.starting_at(first);
        first += packet.nibbles.len();
        let x = x.q.iter().zip(x.scale).zip(x.offset);
        let weights = packet.nibbles.iter().zip(packet.scales);
        for (b, ((nibbles, scales), ((q, d), s))) in weights.zip(x).enumerate() {
            prefetch(&packet, b);
            let dot = dot(&decode(nibbles), q, *s);
            total = add_scaled(total, dot, scale(scales), *d);
        }
    }
    store(sum, total);
}

#[target_feature(enable = "avx2,fma")]
fn many_tokens(group: &[u8], x: Tile<'_>, sums: &mut [[f32; GROUP]]) {
    sums.fill([0.0; GROUP]);
    let mut first = 0;
    for packet in packets(group) {
        let tile = x.starting_at(first);
        first += packet.nibbles.len();
        let blocks = tile
            .q
            .chunks_exact(x.tokens)
            .zip(tile.scale.chunks_exact(x.tokens));
        let blocks = blocks.zip(tile.offset.chunks_exact(x.tokens));
        let weights = packet.nibbles.iter().zip(packet.scales);
        for (b, ((nibbles, scales), ((q, d), s))) in weights.zip(blocks).enumerate() {
            prefetch(&packet, b);
            let (weights, scale) = (decode(nibbles), scale(scales));
            for (((q, d), s), sum) in q.iter().zip(d).zip(s).zip(sums.iter_mut()) {
                let total = add_scaled(load(sum), dot(&weights, q, *s), scale, *d);
                store(sum, total);
            }
        }
    }
}

/// Asks for what comes [`AHEAD`] of a block. A block and its scales are 136 bytes, a little over two lines, so the third is sometimes asked for
/// twice; asking for the nibbles' two lines only leaves out 256 bytes of each packet, and waiting for those costs a quarter of the speed.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn prefetch(packet: &Packet<'_>, block: usize) {
    let at = packet
        .nibbles
        .as_ptr()
        .cast::<i8>()
        .wrapping_add(AHEAD + block * BLOCK_BYTES);
    _mm_prefetch::<_MM_HINT_T1>(at);
    _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(64));
    _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(128));
}

/// Twice the weights plus 12: for each eight columns the even ones, then the odd ones, a word a row.
#[inline]
#[target_feature(enable = "avx2")]
fn decode(nibbles: &[u8; NIBBLES]) -> [__m256i; 8] {
    // SAFETY: the load covers the sixteen bytes.
    let codes = unsafe { _mm_loadu_si128(CODES.as_ptr().cast()) };
    let codes = _mm256_broadcastsi128_si256(codes);
    let low = _mm256_set1_epi8(15);
    let mut out = [codes; 8];
    for (out, bytes) in out
        .as_chunks_mut::<2>()
        .0
        .iter_mut()
        .zip(nibbles.as_chunks::<32>().0)
    {
        // SAFETY: the load covers the 32 bytes, at any alignment.
        let bytes = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
        out[0] = _mm256_shuffle_epi8(codes, _mm256_and_si256(bytes, low));
        let high = _mm256_srli_epi16::<4>(bytes);
        out[1] = _mm256_shuffle_epi8(codes, _mm256_and_si256(high, low));
    }
    out
}

/// `sum of (2 w) q` for each row.
#[inline]
#[target_feature(enable = "avx2")]
fn dot(weights: &[__m256i; 8], q: &[i8; BLOCK], offset: i32) -> __m256i {
    let (q, _) = q.as_chunks::<4>();
    let pairs = |i: usize| {
        let word = i32::from_le_bytes(q[i].map(|v| v as u8));
        _mm256_maddubs_epi16(weights[i], _mm256_set1_epi32(word))
    };
    let four = |i: usize| {
        let a = _mm256_add_epi16(pairs(i), pairs(i + 1));
        let b = _mm256_add_epi16(pairs(i + 2), pairs(i + 3));
        _mm256_madd_epi16(_mm256_add_epi16(a, b), _mm256_set1_epi16(1))
    };
    let offset = _mm256_set1_epi32(offset);
    _mm256_add_epi32(_mm256_add_epi32(four(0), four(4)), offset)
}

/// Eight scales; see [`scale`](super::scalar::scale).
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn scale(codes: &[u8; GROUP]) -> __m256 {
    let codes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*codes)));
    let bits = _mm256_max_epu32(_mm256_slli_epi32::<23>(codes), _mm256_set1_epi32(1 << 22));
    _mm256_castsi256_ps(bits)
}

/// `total + dot * (scale * d)`, the product not rounded.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn add_scaled(total: __m256, dot: __m256i, scale: __m256, d: f32) -> __m256 {
    let factor = _mm256_mul_ps(scale, _mm256_set1_ps(d));
    _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, total)
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(sum: &[f32; GROUP]) -> __m256 {
    // SAFETY: the load covers the eight numbers, at any alignment.
    unsafe { _mm256_loadu_ps(sum.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(sum: &mut [f32; GROUP], value: __m256) {
    // SAFETY: the store covers the eight numbers, at any alignment.
    unsafe { _mm256_storeu_ps(sum.as_mut_ptr(), value) }
}
