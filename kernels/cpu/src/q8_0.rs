//! Q8_0 matrices times activations of eight bits.
//!
//! **Layout**: that of GGUF. A row is blocks of 34 bytes: a half-precision scale and the 32 integers it is for.
//!
//! **Definition of a result.** A block's 32 products are added in eights words of four, exactly: word `j` holds elements `j / 2 * 8 + j % 2 + 2 i` for
//! `i < 4` (the order [`Activations`] have). Sixteen sums, those of even blocks and those of odd ones:
//! `y[b % 2][j] = fma(word_j, s_b d_b, y[b % 2][j])` over the blocks in order; then they are added as a tree, 8 apart first. No other rounding, so
//! neither the instruction set, the number of threads nor the tokens computed together can change a bit.
//!
//! **Error** against `f32` activations: `0.5001 sum_b d_b sum_k |w_k|` from rounding them ([`activations`](crate::activations)), and at most
//! `(b / 2 + 6) 2^-24 sum_b sum_j |word_j s_b d_b|` from the sum.
//!
//! One token: a core of a Zen 4 does 27 GB/s of the 33 it can read, bound by arithmetic. AVX-512 runs the same code: what it would save is small beside
//! that. Many tokens: AVX-512 has code of its own.

use std::ops::Range;

use crate::activations::{Activations, BLOCK_ORDER, TILE, Tile};
use crate::dispatch::Level;
use crate::format::f16;
use crate::fused::tree;

pub use crate::activations::BLOCK;

/// Bytes of a block: its scale and 32 integers.
pub const BLOCK_BYTES: usize = 2 + BLOCK;
/// Running sums of a row: a word of even blocks, a word of odd blocks.
const SUMS: usize = 16;

/// Some rows of a matrix times each token of `x`: out is [tokens, rows.len()].
pub(crate) fn part(
    level: Level,
    columns: usize,
    data: &[u8],
    rows: Range<usize>,
    x: &Activations,
    out: &mut [f32],
) {
    let (width, bytes) = (rows.len(), columns / BLOCK * BLOCK_BYTES);
    let mut sums = [[0.0; SUMS]; TILE];
    for (tile, out) in x.tiles().zip(out.chunks_mut(TILE * width)) {
        let sums = &mut sums[..tile.tokens];
        #[allow(unused_mut)]
        let mut done = 0;
        #[cfg(target_arch = "x86_64")]
        if tile.tokens > 1 && level.available() >= Level::Avx512 {
            while done + avx512::ROWS <= width {
                let row = |i: usize| &data[(rows.start + done + i) * bytes..][..bytes];
                let four = std::array::from_fn(row);
                // SAFETY: the level is available, so this processor has what the function is compiled for.
                unsafe { avx512::rows_product(four, tile, &mut out[done..], width) };
                done += avx512::ROWS;
            }
        }
        for (i, r) in rows.clone().enumerate().skip(done) {
            row_product(level, &data[r * bytes..(r + 1) * bytes], tile, sums);
            for (out, sums) in out.chunks_exact_mut(width).zip(&*sums) {
                out[i] = tree(*sums);
            }
        }
    }
}

fn row_product(level: Level, row: &[u8], x: Tile<'_>, sums: &mut [[f32; SUMS]]) {
    sums.fill([0.0; SUMS]);
    #[cfg(target_arch = "x86_64")]
    if level.available() >= Level::Avx2 {
        // SAFETY: the level is available, so this processor has what the function is compiled for.
        return unsafe { avx2::row_product(row, x, sums) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    plain_row_product(row, x, sums);
}

/// The definition, written out.
fn plain_row_product(row: &[u8], x: Tile<'_>, sums: &mut [[f32; SUMS]]) {
    let blocks =
        x.q.chunks_exact(x.tokens)
            .zip(x.scale.chunks_exact(x.tokens));
    for (b, (block, (q, d))) in row
        .as_chunks::<BLOCK_BYTES>()
        .0
        .iter()
        .zip(blocks)
        .enumerate()
    {
        let scale = f16(u16::from_le_bytes([block[0], block[1]]));
        let weight = |i: usize| i32::from(block[2 + BLOCK_ORDER[i]] as i8);
        for ((q, d), sums) in q.iter().zip(d).zip(sums.iter_mut()) {
            let sums = sums[b % 2 * 8..].iter_mut().take(8);
            for (j, (sum, q)) in sums.zip(q.as_chunks::<4>().0).enumerate() {
                let word: i32 = (0..4).map(|i| weight(4 * j + i) * i32::from(q[i])).sum();
                *sum = (word as f32).mul_add(scale * d, *sum);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{BLOCK_BYTES, SUMS};
    use crate::activations::{BLOCK, Tile};

    /// How far ahead memory is asked for.
    const AHEAD: usize = 16384;

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn row_product(row: &[u8], x: Tile<'_>, sums: &mut [[f32; SUMS]]) {
        let (blocks, _) = row.as_chunks::<BLOCK_BYTES>();
        if let [sums] = sums {
            let [even, odd] = halves(sums);
            let (mut a, mut b) = (load(even), load(odd));
            let (pairs, last) = blocks.as_chunks::<2>();
            let q =
                x.q.as_chunks::<2>()
                    .0
                    .iter()
                    .zip(x.scale.as_chunks::<2>().0);
            for (blocks, (q, d)) in pairs.iter().zip(q) {
                prefetch(&blocks[0]);
                a = add_block(a, &Weights::of(&blocks[0]), &q[0], d[0]);
                b = add_block(b, &Weights::of(&blocks[1]), &q[1], d[1]);
            }
            if let ([block], [.., q], [.., d]) = (last, x.q, x.scale) {
                a = add_block(a, &Weights::of(block), q, *d);
            }
            store(even, a);
            store(odd, b);
            return;
        }
        let tokens =
            x.q.chunks_exact(x.tokens)
                .zip(x.scale.chunks_exact(x.tokens));
        for (b, (block, (q, d))) in blocks.iter().zip(tokens).enumerate() {
            prefetch(block);
            let weights = Weights::of(block);
            for ((q, d), sums) in q.iter().zip(d).zip(sums.iter_mut()) {
                let sum = &mut halves(sums)[b % 2];
                let total = add_block(load(sum), &weights, q, *d);
                store(sum, total);
            }
        }
    }

    /// A block's weights as magnitudes (unsigned, as `vpmaddubsw` wants its first factor) and signs.
    struct Weights {
        signed: __m256i,
        magnitude: __m256i,
        scale: __m256,
    }

    impl Weights {
        #[inline]
        #[target_feature(enable = "avx2,f16c")]
        fn of(block: &[u8; BLOCK_BYTES]) -> Self {
            // The even ones of each eight, then the odd ones, as activations have them.
            let order = _mm256_set1_epi64x(0x0705_0301_0604_0200);
            let order = _mm256_add_epi8(order, _mm256_set_epi64x(BASE, 0, BASE, 0));
            // SAFETY: the load covers the 32 bytes after the scale.
            let weights = unsafe { _mm256_loadu_si256(block[2..].as_ptr().cast()) };
            let signed = _mm256_shuffle_epi8(weights, order);
            let scale = i32::from(u16::from_le_bytes([block[0], block[1]]));
            Self {
                signed,
                magnitude: _mm256_abs_epi8(signed),
                scale: _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(scale))),
            }
        }
    }
    /// Eight in every byte.
    const BASE: i64 = 0x0808_0808_0808_0808;

    /// `total + words * (scale * d)`. Pairs are at most 2 * 128 * 127, which fits 16 bits.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn add_block(total: __m256, weights: &Weights, q: &[i8; BLOCK], d: f32) -> __m256 {
        // SAFETY: the load covers the 32 bytes.
        let q = unsafe { _mm256_loadu_si256(q.as_ptr().cast()) };
        let q = _mm256_sign_epi8(q, weights.signed);
        let pairs = _mm256_maddubs_epi16(weights.magnitude, q);
        let words = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        _mm256_fmadd_ps(
            words,
            _mm256_mul_ps(weights.scale, _mm256_set1_ps(d)),
            total,
        )
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn prefetch(block: &[u8; BLOCK_BYTES]) {
        let at = block.as_ptr().wrapping_add(AHEAD);
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
        _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(64).cast());
    }

    #[inline(always)]
    fn halves(sums: &mut [f32; SUMS]) -> [&mut [f32; 8]; 2] {
        let ([even, odd], _) = sums.as_chunks_mut::<8>() else {
            unreachable!("sixteen are two eights")
        };
        [even, odd]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(sums: &[f32; 8]) -> __m256 {
        // SAFETY: the load covers the eight numbers, at any alignment.
        unsafe { _mm256_loadu_ps(sums.as_ptr()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(sums: &mut [f32; 8], value: __m256) {
        // SAFETY: the store covers the eight numbers, at any alignment.
        unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), value) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::matrix::{Elements, Matrix};
    use crate::product::{Arithmetic, times};
    use crate::team::Team;

    fn bytes(count: usize, seed: u32) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..count).map(|_| next()).collect()
    }

    /// Every integer from -128 on; scales of both signs, subnormal ones among them.
    fn matrix(rows: usize, columns: usize) -> Vec<u8> {
        let mut data = bytes(rows * columns / 32 * BLOCK_BYTES, 1);
        for block in data.as_chunks_mut::<BLOCK_BYTES>().0 {
            block[1] &= 0xAF;
        }
        data
    }

    fn vectors(n: usize, columns: usize) -> Vec<f32> {
        let values = bytes(n * columns, 2).into_iter().enumerate();
        let value = |(i, b): (usize, u8)| (f32::from(b) - 127.0) * 1.3f32.powi((i / 32 % 9) as i32);
        values.map(value).collect()
    }

    fn blocks(rows: usize, columns: usize, data: &[u8]) -> Option<Matrix<'_>> {
        Matrix::new(rows, columns, Elements::Q8(data))
    }

    fn product(level: Level, m: Matrix<'_>, x: &[f32]) -> Vec<u32> {
        let out = times(level, m, Arithmetic::Fast, x);
        out.iter().map(|v| v.to_bits()).collect()
    }

    /// Half precision by its definition.
    fn half(bits: u16) -> f64 {
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let (e, m) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3FF));
        sign * if e == 0 {
            m * 2f64.powi(-24)
        } else {
            (1.0 + m / 1024.0) * 2f64.powi(e - 15)
        }
    }

    #[test]
    fn a_product_is_within_the_stated_error_of_exact_arithmetic() {
        for (rows, columns, n) in [(5, 32, 1), (13, 96, 3), (70, 1056, 2), (3, 4096, 1)] {
            let data = matrix(rows, columns);
            let m = blocks(rows, columns, &data).unwrap();
            let x = vectors(n, columns);
            for level in Level::ALL {
                let out = product(level, m, &x);
                for (t, x) in x.chunks_exact(columns).enumerate() {
                    for r in 0..rows {
                        let (mut exact, mut allowed, mut sizes) = (0.0, 0.0, 0.0);
                        for (b, x) in x.chunks_exact(32).enumerate() {
                            let at = (r * columns / 32 + b) * BLOCK_BYTES;
                            let scale = half(u16::from_le_bytes([data[at], data[at + 1]]));
                            let largest = x.iter().fold(0.0f32, |a, v| a.max(v.abs()));
                            for (i, v) in x.iter().enumerate() {
                                let w = scale * f64::from(data[at + 2 + i] as i8);
                                exact += w * f64::from(*v);
                                sizes += (w * f64::from(*v)).abs();
                                allowed += w.abs() * 0.5001 * f64::from(largest) / 127.0;
                            }
                        }
                        let y = f64::from(f32::from_bits(out[t * rows + r]));
                        let sum = (columns / 64 + 7) as f64 * 2f64.powi(-24) * (sizes + allowed);
                        assert!(
                            (y - exact).abs() <= allowed + sum,
                            "{level:?} {t} {r}: {y} {exact}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn instruction_set_threads_and_batch_change_no_bit() {
        for (rows, columns, n) in [(200, 1056, 70), (130, 2048, 9), (7, 32, 2)] {
            let data = matrix(rows, columns);
            let m = blocks(rows, columns, &data).unwrap();
            let x = vectors(n, columns);
            let truth = product(Level::Baseline, m, &x);
            for level in Level::ALL {
                for threads in [1, 3] {
                    let team = Team::new(threads, threads, |_| {}).unwrap();
                    let all = team.run(|| product(level, m, &x));
                    assert!(all == truth, "{level:?}, {threads} threads");
                }
                for batch in [1, 5, 64] {
                    let parts = x.chunks(batch * columns).flat_map(|x| product(level, m, x));
                    assert!(parts.eq(truth.iter().copied()), "{level:?}, by {batch}");
                }
            }
        }
    }

    #[test]
    fn a_row_expands_to_the_numbers_of_its_definition() {
        let (rows, columns) = (3, 96);
        let data = matrix(rows, columns);
        let m = blocks(rows, columns, &data).unwrap();
        let mut row = vec![0.0; columns];
        for r in 0..rows {
            m.row(r, &mut row);
            for (k, v) in row.iter().enumerate() {
                let block = &data[(r * columns + k) / 32 * BLOCK_BYTES..];
                let scale = half(u16::from_le_bytes([block[0], block[1]]));
                let exact = scale * f64::from(block[2 + k % 32] as i8);
                assert_eq!(f64::from(*v), exact);
            }
        }
    }

    #[test]
    fn bytes_that_do_not_make_the_matrix_are_refused() {
        let data = [0; 2 * 34];
        assert!(blocks(2, 32, &data).is_some());
        assert!(blocks(1, 64, &data).is_some());
        assert!(blocks(2, 32, &data[1..]).is_none());
        assert!(blocks(2, 33, &data).is_none());
        assert!(blocks(usize::MAX, 64, &data).is_none());
    }
}
