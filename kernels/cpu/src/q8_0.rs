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
//! that. Many tokens: each has code of its own, which keeps the sums of some rows and tokens in registers, so that a block of weights is read and its
//! scale worked out once for all of these.

use std::cell::RefCell;
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
    let data = &data[rows.start * bytes..rows.end * bytes];
    for (tile, out) in x.tiles().zip(out.chunks_mut(TILE * width)) {
        // AVX-512 takes four rows and two blocks together and reads the activations half as often: putting them side by side does not pay.
        if tile.tokens <= TOKENS || level.available() == Level::Avx512 {
            tile_product(level, data, bytes, tile, out);
            continue;
        }
        FEW.with_borrow_mut(|few| {
            for (i, out) in out.chunks_mut(TOKENS * width).enumerate() {
                tile_product(level, data, bytes, few.take(tile, i * TOKENS), out);
            }
        });
    }
}

/// Tokens that are multiplied together.
const TOKENS: usize = 4;

thread_local! {
    /// Reused, so that nothing is allocated.
    static FEW: RefCell<Few> = const { RefCell::new(Few { q: Vec::new(), scale: Vec::new() }) };
}

/// Blocks of a few tokens of a tile, one after the other: in the tile, where those of all its tokens are between them, they would fall into few sets of
/// the first-level cache.
struct Few {
    q: Vec<[i8; BLOCK]>,
    scale: Vec<f32>,
}

impl Few {
    /// The next tokens from `first` on, up to [`TOKENS`].
    fn take<'a>(&'a mut self, tile: Tile<'a>, first: usize) -> Tile<'a> {
        let few = first..tile.tokens.min(first + TOKENS);
        self.q.clear();
        self.scale.clear();
        for q in tile.q.chunks_exact(tile.tokens) {
            self.q.extend_from_slice(&q[few.clone()]);
        }
        for scale in tile.scale.chunks_exact(tile.tokens) {
            self.scale.extend_from_slice(&scale[few.clone()]);
        }
        Tile {
            tokens: few.len(),
            q: &self.q,
            scale: &self.scale,
            offset: &[],
        }
    }
}

/// All rows of `data`, each so many bytes, times each token.
fn tile_product(level: Level, data: &[u8], bytes: usize, x: Tile<'_>, out: &mut [f32]) {
    let width = out.len() / x.tokens;
    let row = |i: usize| &data[i * bytes..(i + 1) * bytes];
    #[cfg(target_arch = "x86_64")]
    match (level.available(), x.tokens) {
        (Level::Baseline, _) => {}
        (_, 1) => {
            for (i, o) in out.iter_mut().enumerate() {
                // SAFETY: an available level means that this processor has what the function is compiled for.
                *o = unsafe { avx2::row_product(row(i), x) };
            }
            return;
        }
        (level, _) => {
            let mut done = 0;
            if level == Level::Avx512 {
                while done + avx512::ROWS <= width {
                    let four = std::array::from_fn(|i| row(done + i));
                    // SAFETY: as above.
                    unsafe { avx512::rows_product(four, x, &mut out[done..], width) };
                    done += avx512::ROWS;
                }
            }
            while done < width {
                // A last row without a second one goes together with itself.
                let two = [row(done), row((done + 1).min(width - 1))];
                let count = avx2::ROWS.min(width - done);
                // SAFETY: as above.
                unsafe { avx2::rows_product(two, count, x, &mut out[done..], width) };
                done += count;
            }
            return;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    let mut sums = [[0.0; SUMS]; TILE];
    let sums = &mut sums[..x.tokens];
    for i in 0..width {
        plain_row_product(row(i), x, sums);
        for (out, sums) in out.chunks_exact_mut(width).zip(&*sums) {
            out[i] = tree(*sums);
        }
    }
}

/// The definition, written out.
fn plain_row_product(row: &[u8], x: Tile<'_>, sums: &mut [[f32; SUMS]]) {
    sums.fill([0.0; SUMS]);
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
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

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
