//! AVX-512 with VNNI and VBMI: one group in the words of half a register for one token, two groups in a whole one for many.
//!
//! `vpermb` uses six bits of an index, so a table of 64 that repeats needs no masking of what is beside the nibble; `vpdpbusd` multiplies and adds four
//! bytes at once, exactly.

use std::arch::x86_64::*;

use super::avx2::{CODES, add_scaled, load, prefetch, scale, store};
use super::{GROUP, NIBBLES, packets};
use crate::activations::{BLOCK, Tile};

/// Sums [tokens][8 rows] of two groups, the second of which may be empty.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub(super) fn products(
    groups: (&[u8], &[u8]),
    x: Tile<'_>,
    [first, second]: [&mut [[f32; GROUP]]; 2],
) {
    match (first, second) {
        ([a], [b]) => {
            one_token(groups.0, x, a);
            one_token(groups.1, x, b);
        }
        (first, second) => {
            // A missing group is computed from the first and overwritten by nothing: its sums are not used.
            let other = if groups.1.is_empty() {
                groups.0
            } else {
                groups.1
            };
            many_tokens(groups.0, other, x, first, second);
        }
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn one_token(group: &[u8], x: Tile<'_>, sum: &mut [f32; GROUP]) {
    // SAFETY: the load covers the sixteen bytes.
    let codes = unsafe { _mm_loadu_si128(CODES.as_ptr().cast()) };
    let codes = _mm256_broadcastsi128_si256(codes);
    let mut total = _mm256_setzero_ps();
    let mut first = 0;
    for packet in packets(group) {
        let x = x.starting_at(first);
        first += packet.nibbles.len();
        let x = x.q.iter().zip(x.scale).zip(x.offset);
        let weights = packet.nibbles.iter().zip(packet.scales);
        for (b, ((nibbles, scales), ((q, d), s))) in weights.zip(x).enumerate() {
            prefetch(&packet, b);
            // Two chains of dependent sums instead of one.
            let mut even = _mm256_set1_epi32(*s);
            let mut odd = _mm256_setzero_si256();
            let (q, _) = q.as_chunks::<4>();
            for (j, bytes) in nibbles.as_chunks::<32>().0.iter().enumerate() {
                // SAFETY: the load covers the 32 bytes, at any alignment.
                let bytes = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
                let low = _mm256_permutexvar_epi8(bytes, codes);
                let high = _mm256_permutexvar_epi8(_mm256_srli_epi16::<4>(bytes), codes);
                even = _mm256_dpbusd_epi32(even, low, _mm256_set1_epi32(word(q[2 * j])));
                odd = _mm256_dpbusd_epi32(odd, high, _mm256_set1_epi32(word(q[2 * j + 1])));
            }
            let dot = _mm256_add_epi32(even, odd);
            total = add_scaled(total, dot, scale(scales), *d);
        }
    }
    store(sum, total);
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn many_tokens(
    first: &[u8],
    second: &[u8],
    x: Tile<'_>,
    sums_of_first: &mut [[f32; GROUP]],
    sums_of_second: &mut [[f32; GROUP]],
) {
    sums_of_first.fill([0.0; GROUP]);
    sums_of_second.fill([0.0; GROUP]);
    let mut at = 0;
    for (a, b) in packets(first).zip(packets(second)) {
        let tile = x.starting_at(at);
        at += a.nibbles.len();
        let blocks = tile
            .q
            .chunks_exact(x.tokens)
            .zip(tile.scale.chunks_exact(x.tokens));
        let blocks = blocks.zip(tile.offset.chunks_exact(x.tokens));
        let nibbles = a.nibbles.iter().zip(b.nibbles);
        let weights = nibbles.zip(a.scales.iter().zip(b.scales));
        for (((a, b), scales), ((q, d), s)) in weights.zip(blocks) {
            let weights = decode(a, b);
            let scale = join(scale(scales.0), scale(scales.1));
            let tokens = q.iter().zip(d).zip(s);
            let sums = sums_of_first.iter_mut().zip(sums_of_second.iter_mut());
            for (((q, d), s), (a, b)) in tokens.zip(sums) {
                let factor = _mm512_mul_ps(scale, _mm512_set1_ps(*d));
                let dot = _mm512_cvtepi32_ps(dot(&weights, q, *s));
                let total = _mm512_fmadd_ps(dot, factor, join(load(a), load(b)));
                store(a, _mm512_castps512_ps256(total));
                store(b, _mm512_extractf32x8_ps::<1>(total));
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn join(a: __m256, b: __m256) -> __m512 {
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(a), b)
}

/// Four activations, as the word that meets four weights of every row.
#[inline(always)]
fn word(q: [i8; 4]) -> i32 {
    i32::from_le_bytes(q.map(|v| v as u8))
}

/// Twice the weights plus 12 of a block of two groups.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn decode(a: &[u8; NIBBLES], b: &[u8; NIBBLES]) -> [__m512i; 8] {
    // SAFETY: the load covers the sixteen bytes.
    let codes = unsafe { _mm_loadu_si128(CODES.as_ptr().cast()) };
    let codes = _mm512_broadcast_i32x4(codes);
    let mut out = [codes; 8];
    let halves = a.as_chunks::<32>().0.iter().zip(b.as_chunks::<32>().0);
    for (out, (a, b)) in out.as_chunks_mut::<2>().0.iter_mut().zip(halves) {
        // SAFETY: each load covers 32 bytes, at any alignment.
        let (a, b) = unsafe {
            (
                _mm256_loadu_si256(a.as_ptr().cast()),
                _mm256_loadu_si256(b.as_ptr().cast()),
            )
        };
        let bytes = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b);
        out[0] = _mm512_permutexvar_epi8(bytes, codes);
        out[1] = _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(bytes), codes);
    }
    out
}

/// `sum of (2 w) q` for each of the sixteen rows.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn dot(weights: &[__m512i; 8], q: &[i8; BLOCK], offset: i32) -> __m512i {
    let mut even = _mm512_set1_epi32(offset);
    let mut odd = _mm512_setzero_si512();
    for (w, q) in weights.as_chunks::<2>().0.iter().zip(q.as_chunks::<8>().0) {
        let (q, _) = q.as_chunks::<4>();
        even = _mm512_dpbusd_epi32(even, w[0], _mm512_set1_epi32(word(q[0])));
        odd = _mm512_dpbusd_epi32(odd, w[1], _mm512_set1_epi32(word(q[1])));
    }
    _mm512_add_epi32(even, odd)
}
