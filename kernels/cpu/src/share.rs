//! Sharing out the rows of a product among threads.

use std::ops::Range;

use rayon::prelude::*;

/// Multiplications below which a product stays on the calling thread: handing work over costs about as much as this many.
const PARALLEL_FROM: usize = 1 << 17;
/// Rows a thread takes at a time. A multiple of every kernel's group of rows.
pub(crate) const ROWS_PER_TASK: usize = 64;

/// Fills out [n, rows] in parts of [`ROWS_PER_TASK`] rows: `product(range, part)` fills part [n, range.len()]; ranges start at 0.
///
/// Runs on the current rayon pool when there is enough to do. `scratch` is reused between calls and never shrinks.
pub(crate) fn by_rows(
    rows: usize,
    columns: usize,
    n: usize,
    out: &mut [f32],
    scratch: &mut Vec<f32>,
    product: impl Fn(Range<usize>, &mut [f32]) + Sync,
) {
    if n == 0 || rows == 0 {
        return;
    }
    let part_rows = |part: usize| part * ROWS_PER_TASK..rows.min((part + 1) * ROWS_PER_TASK);
    let parallel = rows > ROWS_PER_TASK && rows * columns.max(1) * n >= PARALLEL_FROM;
    // One vector: the output is contiguous by rows already. Many: parts first, then each token collects its own.
    let parts: &mut [f32] = if n == 1 {
        out
    } else {
        scratch.clear();
        scratch.resize(rows * n, 0.0);
        scratch
    };
    if parallel {
        parts
            .par_chunks_mut(ROWS_PER_TASK * n)
            .enumerate()
            .for_each(|(i, part)| product(part_rows(i), part));
    } else {
        for (i, part) in parts.chunks_mut(ROWS_PER_TASK * n).enumerate() {
            product(part_rows(i), part);
        }
    }
    if n == 1 {
        return;
    }
    let collect = |(t, token): (usize, &mut [f32])| {
        for (i, to) in token.chunks_mut(ROWS_PER_TASK).enumerate() {
            let from = i * ROWS_PER_TASK * n + t * to.len();
            to.copy_from_slice(&scratch[from..from + to.len()]);
        }
    };
    if parallel {
        out.par_chunks_mut(rows).enumerate().for_each(collect);
    } else {
        out.chunks_mut(rows).enumerate().for_each(collect);
    }
}
