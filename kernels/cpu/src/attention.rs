//! Many query heads against rows they share: scores, and sums of rows.
//!
//! A row is read once for several heads, and its numbers stay in registers or in the first-level cache meanwhile: with one read for each head, attention over
//! some hundred rows is bound by the second-level cache and not by arithmetic. Callers give a handful of rows at a time ([`ROWS`]).
//!
//! **Definition of a result.** A score is sixteen sums, lane `l` taking the elements `l, l + 16, ...` in order by `fma`, added as a tree. A sum of rows
//! takes them in order by `fma`. Nothing else decides the bits.

// Loops over indices become registers; iterators over small arrays of them sometimes do not.
#![allow(clippy::needless_range_loop)]

use crate::dispatch::wide;
use crate::fused::{Fused, MOST_PARTS, WIDTH, tree};

/// Rows to give at a time, so that they stay in the first-level cache while heads go over them: 8 x 512 numbers are 16 KiB.
pub const ROWS: usize = 8;
/// Heads that meet a row in registers.
const HEADS: usize = 4;

wide! {
    /// out [heads, stride] gets the products of q [heads, width] with each row, [width], in its first `rows.len()` columns.
    pub fn dots<S>(q: &[f32], width: usize, rows: &[&[f32]], out: &mut [f32], stride: usize) {
        let heads = q.chunks(HEADS * width).zip(out.chunks_mut(HEADS * stride));
        for (q, out) in heads {
            let (fours, fewer) = rows.as_chunks::<4>();
            let mut at = 0;
            for rows in fours {
                if S::TOKENS == 6 {
                    dots_of::<S, 4>(q, width, rows, &mut out[at..], stride);
                } else {
                    let (a, b) = rows.split_at(2);
                    for (i, rows) in a.as_chunks().0.iter().chain(b.as_chunks().0).enumerate() {
                        dots_of::<S, 2>(q, width, rows, &mut out[at + 2 * i..], stride);
                    }
                }
                at += 4;
            }
            for row in fewer {
                dots_of::<S, 1>(q, width, &[*row], &mut out[at..], stride);
                at += 1;
            }
        }
    }
}

/// Up to [`HEADS`] heads and `R` rows.
#[inline(always)]
fn dots_of<S: Fused, const R: usize>(
    q: &[f32],
    width: usize,
    rows: &[&[f32]; R],
    out: &mut [f32],
    stride: usize,
) {
    if q.len() == HEADS * width {
        return dots_tile::<S, R, HEADS>(q, width, rows, out, stride);
    }
    for (q, out) in q.chunks_exact(width).zip(out.chunks_mut(stride)) {
        dots_tile::<S, R, 1>(q, width, rows, out, stride);
    }
}

#[inline(always)]
fn dots_tile<S: Fused, const R: usize, const H: usize>(
    q: &[f32],
    width: usize,
    rows: &[&[f32]; R],
    out: &mut [f32],
    stride: usize,
) {
    let q: [(&[[f32; WIDTH]], &[f32]); H] =
        std::array::from_fn(|h| q[h * width..(h + 1) * width].as_chunks());
    let rows: [(&[[f32; WIDTH]], &[f32]); R] =
        std::array::from_fn(|r| rows[r][..width].as_chunks());
    let steps = width / WIDTH;
    let mut sums = [[[0.0; WIDTH]; R]; H];
    for part in 0..S::PARTS {
        let mut p = [[S::zero(); R]; H];
        for step in 0..steps {
            let mut row = [S::zero(); R];
            for r in 0..R {
                row[r] = S::load(&rows[r].0[step], part);
            }
            for h in 0..H {
                let q = S::load(&q[h].0[step], part);
                for r in 0..R {
                    p[h][r] = S::fma(q, row[r], p[h][r]);
                }
            }
        }
        for h in 0..H {
            for r in 0..R {
                S::store(p[h][r], &mut sums[h][r], part);
            }
        }
    }
    for h in 0..H {
        for r in 0..R {
            for (l, (a, b)) in q[h].1.iter().zip(rows[r].1).enumerate() {
                sums[h][r][l] = a.mul_add(*b, sums[h][r][l]);
            }
            out[h * stride + r] = tree(sums[h][r]);
        }
    }
}

/// Vectors of a row that meet [`HEADS`] heads in registers.
const VECTORS: usize = 2;

wide! {
    /// out [heads, width] += weights [heads, stride] times rows: the weight of row `i` is in column `i`.
    pub fn add_rows<S>(weights: &[f32], stride: usize, rows: &[&[f32]], width: usize, out: &mut [f32]) {
        let heads = out.chunks_mut(HEADS * width).zip(weights.chunks(HEADS * stride));
        for (out, weights) in heads {
            if out.len() == HEADS * width {
                add_rows_tile::<S, HEADS>(weights, stride, rows, width, out);
            } else {
                for (out, weights) in out.chunks_exact_mut(width).zip(weights.chunks(stride)) {
                    add_rows_tile::<S, 1>(weights, stride, rows, width, out);
                }
            }
        }
    }
}

#[inline(always)]
fn add_rows_tile<S: Fused, const H: usize>(
    weights: &[f32],
    stride: usize,
    rows: &[&[f32]],
    width: usize,
    out: &mut [f32],
) {
    const STEP: usize = VECTORS * WIDTH;
    let whole = width / STEP * STEP;
    for from in (0..whole).step_by(STEP) {
        let mut sums = [[[S::zero(); MOST_PARTS]; VECTORS]; H];
        for h in 0..H {
            let (vectors, _) = out[h * width + from..][..STEP].as_chunks::<WIDTH>();
            for v in 0..VECTORS {
                for part in 0..S::PARTS {
                    sums[h][v][part] = S::load(&vectors[v], part);
                }
            }
        }
        for (r, row) in rows.iter().enumerate() {
            let (vectors, _) = row[from..from + STEP].as_chunks::<WIDTH>();
            for h in 0..H {
                let weight = S::splat(weights[h * stride + r]);
                for v in 0..VECTORS {
                    for part in 0..S::PARTS {
                        let x = S::load(&vectors[v], part);
                        sums[h][v][part] = S::fma(weight, x, sums[h][v][part]);
                    }
                }
            }
        }
        for h in 0..H {
            let (vectors, _) = out[h * width + from..][..STEP].as_chunks_mut::<WIDTH>();
            for v in 0..VECTORS {
                for part in 0..S::PARTS {
                    S::store(sums[h][v][part], &mut vectors[v], part);
                }
            }
        }
    }
    for h in 0..H {
        let out = &mut out[h * width + whole..(h + 1) * width];
        for (r, row) in rows.iter().enumerate() {
            for (o, x) in out.iter_mut().zip(&row[whole..]) {
                *o = weights[h * stride + r].mul_add(*x, *o);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: usize, seed: usize) -> Vec<f32> {
        (0..n)
            .map(|i| ((i * 131 + seed) % 997) as f32 / 301.0 - 1.6)
            .collect()
    }

    #[test]
    fn scores_and_sums_are_those_of_their_definition() {
        for (heads, width, count) in [(1, 16, 1), (4, 512, 8), (7, 40, 5), (64, 33, 3), (6, 96, 7)]
        {
            let (q, k) = (values(heads * width, 3), values(count * width, 500));
            let rows: Vec<&[f32]> = k.chunks_exact(width).collect();
            let stride = count + 2;
            let mut scores = vec![f32::NAN; heads * stride];
            dots(&q, width, &rows, &mut scores, stride);
            let mut out = values(heads * width, 9);
            let before = out.clone();
            add_rows(&scores, stride, &rows, width, &mut out);
            for h in 0..heads {
                for (r, row) in rows.iter().enumerate() {
                    let mut sums = [0.0f32; 16];
                    for (i, v) in row.iter().enumerate() {
                        sums[i % 16] = q[h * width + i].mul_add(*v, sums[i % 16]);
                    }
                    for half in [8, 4, 2, 1] {
                        for l in 0..half {
                            sums[l] += sums[l + half];
                        }
                    }
                    assert_eq!(scores[h * stride + r].to_bits(), sums[0].to_bits());
                }
                assert!(
                    scores[h * stride + count..(h + 1) * stride]
                        .iter()
                        .all(|v| v.is_nan())
                );
                for i in 0..width {
                    let mut sum = before[h * width + i];
                    for (r, row) in rows.iter().enumerate() {
                        sum = scores[h * stride + r].mul_add(row[i], sum);
                    }
                    assert_eq!(out[h * width + i].to_bits(), sum.to_bits());
                }
            }
        }
    }
}
