//! Vectors rounded to eight bits, one scale per 32 elements: what MXFP4 and Q8_0 matrices are multiplied with.
//!
//! With `d = max|x| / 127` over a block, `q = round(x * (127 / max|x|))`, ties to even, so `|x - d q| <= 0.5001 d`: half a step, and the
//! little that the three roundings of the division and the products add. For a matrix `W` this moves a product `y = W x` by at most
//!
//! ```text
//! |error| <= 0.5001 sum_b d_b sum_{k in b} |w_k|
//! ```
//!
//! beside the rounding of the sum itself. The model was trained with inputs rounded to FP8 e4m3, four significant bits, scaled
//! per 128: a coarser step for all but the smallest elements of a block.
//!
//! A block that holds a NaN or an infinity gets a scale of NaN, so that it is noticed in whatever is computed from it. A block whose
//! largest magnitude is below 2^-100 counts as zero.
//!
//! Blocks of up to [`TILE`] tokens lie side by side, because a decoded block of weights meets all of them before the next.

use std::ops::Range;

use crate::dispatch::{Level, level, wide_at};

/// Elements that share one scale.
pub const BLOCK: usize = 32;
/// Tokens whose blocks lie side by side. 64 x 4096 bytes stay in a second-level cache of 512 KiB.
pub const TILE: usize = 64;

/// What the products of MXFP4 add to make their weights unsigned, to be taken off again with the sum of the integers.
pub(crate) const OFFSET: i32 = -12;

/// Order of the elements inside each eight: the even ones, then the odd ones. A byte of MXFP4 holds an even element in its low half and
/// an odd one in its high half, so four bytes of it, masked or shifted, meet four bytes of this.
const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// [`ORDER`] for a whole block.
pub(crate) const BLOCK_ORDER: [usize; BLOCK] = {
    let mut order = [0; BLOCK];
    let mut i = 0;
    while i < BLOCK {
        order[i] = i / 8 * 8 + ORDER[i % 8];
        i += 1;
    }
    order
};

/// Vectors of equal length in eight bits. Reused: quantising anew keeps the memory.
#[derive(Clone, Debug, Default)]
pub struct Activations {
    tokens: usize,
    columns: usize,
    /// [tile][block][token of the tile].
    blocks: Blocks,
}

/// Parallel arrays, an element for each block of each token.
#[derive(Clone, Debug, Default)]
struct Blocks {
    /// The 32 integers in [`BLOCK_ORDER`], each within -127..=127.
    q: Vec<[i8; BLOCK]>,
    /// `d`.
    scale: Vec<f32>,
    /// The sum of the 32 integers times [`OFFSET`].
    offset: Vec<i32>,
}

/// Up to [`TILE`] tokens. Each slice is [block][token].
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a> {
    pub tokens: usize,
    pub q: &'a [[i8; BLOCK]],
    pub scale: &'a [f32],
    pub offset: &'a [i32],
}

impl<'a> Tile<'a> {
    /// The blocks from `first` on.
    #[inline(always)]
    pub fn starting_at(self, first: usize) -> Self {
        let at = first * self.tokens;
        Self {
            tokens: self.tokens,
            q: &self.q[at..],
            scale: &self.scale[at..],
            offset: &self.offset[at..],
        }
    }
}

impl Activations {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rounds x [n, columns] in place of what was here. False, and empty, if `columns` is not a multiple of [`BLOCK`] or `x` not of
    /// `columns`.
    #[must_use]
    pub fn quantize(&mut self, x: &[f32], columns: usize) -> bool {
        self.quantize_at(level(), x, columns)
    }

    pub(crate) fn quantize_at(&mut self, level: Level, x: &[f32], columns: usize) -> bool {
        let fits = columns > 0 && columns.is_multiple_of(BLOCK) && x.len().is_multiple_of(columns);
        self.resize(if fits { x.len() / columns } else { 0 }, columns);
        if fits {
            for (i, tile) in x.chunks(TILE * columns).enumerate() {
                let range = self.tile_range(i);
                quantize_tile(
                    level,
                    tile,
                    columns,
                    &mut self.blocks.q[range.clone()],
                    &mut self.blocks.scale[range.clone()],
                    &mut self.blocks.offset[range],
                );
            }
        }
        fits
    }

    /// Nothing again.
    pub(crate) fn clear(&mut self) {
        self.resize(0, 0);
    }

    /// Takes the given tokens of `from`, in that order, in place of what was here. False, and empty, if one is not there.
    #[must_use]
    pub fn select(&mut self, from: &Activations, tokens: &[usize]) -> bool {
        let fits = tokens.iter().all(|t| *t < from.tokens);
        self.resize(if fits { tokens.len() } else { 0 }, from.columns);
        for (to, t) in tokens.iter().take(self.tokens).enumerate() {
            for block in 0..self.columns / BLOCK {
                let (to, at) = (self.index(to, block), from.index(*t, block));
                self.blocks.q[to] = from.blocks.q[at];
                self.blocks.scale[to] = from.blocks.scale[at];
                self.blocks.offset[to] = from.blocks.offset[at];
            }
        }
        fits
    }

    /// How many vectors.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Their length.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The value an element was rounded to.
    pub fn value(&self, token: usize, column: usize) -> f32 {
        let block = self.index(token, column / BLOCK);
        // The order is its own statement of where an element went: even ones first.
        let place = (0..BLOCK).find(|i| BLOCK_ORDER[*i] == column % BLOCK);
        self.blocks.scale[block] * f32::from(self.blocks.q[block][place.unwrap_or(0)])
    }

    /// The tokens by tiles.
    pub(crate) fn tiles(&self) -> impl Iterator<Item = Tile<'_>> {
        (0..self.tokens.div_ceil(TILE)).map(|i| {
            let range = self.tile_range(i);
            Tile {
                tokens: self.tile_tokens(i),
                q: &self.blocks.q[range.clone()],
                scale: &self.blocks.scale[range.clone()],
                offset: &self.blocks.offset[range],
            }
        })
    }

    fn resize(&mut self, tokens: usize, columns: usize) {
        (self.tokens, self.columns) = (tokens, columns);
        let blocks = tokens * (columns / BLOCK);
        self.blocks.q.resize(blocks, [0; BLOCK]);
        self.blocks.scale.resize(blocks, 0.0);
        self.blocks.offset.resize(blocks, 0);
    }

    fn tile_tokens(&self, tile: usize) -> usize {
        (self.tokens - tile * TILE).min(TILE)
    }

    fn tile_range(&self, tile: usize) -> Range<usize> {
        let blocks = self.columns / BLOCK;
        let start = tile * TILE * blocks;
        start..start + self.tile_tokens(tile) * blocks
    }

    fn index(&self, token: usize, block: usize) -> usize {
        let tile = token / TILE;
        self.tile_range(tile).start + block * self.tile_tokens(tile) + token % TILE
    }
}

wide_at! {
    /// One tile: x [tokens, columns], the rest [block][token].
    fn quantize_tile<S>(x: &[f32], columns: usize, q: &mut [[i8; BLOCK]], scale: &mut [f32], offset: &mut [i32]) {
        let tokens = x.len() / columns;
        for (t, row) in x.chunks_exact(columns).enumerate() {
            for (b, block) in row.as_chunks::<BLOCK>().0.iter().enumerate() {
                let at = b * tokens + t;
                (scale[at], offset[at]) = quantize_block(block, &mut q[at]);
            }
        }
    }
}

/// Smallest magnitude of a block's largest element that does not count as zero: 2^-100, where 127 / it is far from overflow.
const SMALLEST: f32 = f32::from_bits((127 - 100) << 23);
/// Added to a magnitude below 2^22, it rounds it to an integer, ties to even, and leaves that integer in the low bits.
const TO_INTEGER: f32 = 12_582_912.0; // 1.5 * 2^23

/// Scale and offset of a block, and its integers.
#[inline(always)]
fn quantize_block(x: &[f32; BLOCK], out: &mut [i8; BLOCK]) -> (f32, i32) {
    // Magnitudes compare as integers, and what is not a number is above all of them.
    let largest = x
        .iter()
        .fold(0, |a: u32, v| a.max(v.to_bits() & 0x7FFF_FFFF));
    let largest = f32::from_bits(largest);
    if !(SMALLEST..f32::INFINITY).contains(&largest) {
        *out = [0; BLOCK];
        let scale = if largest < SMALLEST { 0.0 } else { f32::NAN };
        return (scale, 0);
    }
    let steps = 127.0 / largest;
    let mut sum = 0;
    let mut integers = [0i32; BLOCK];
    for (i, v) in integers.iter_mut().zip(x) {
        let rounded = v * steps + TO_INTEGER;
        *i = rounded.to_bits() as i32 - TO_INTEGER.to_bits() as i32;
        sum += *i;
    }
    for (o, from) in out.iter_mut().zip(BLOCK_ORDER) {
        *o = integers[from] as i8;
    }
    (largest / 127.0, OFFSET * sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize) -> Vec<f32> {
        (0..n)
            .map(|i| ((i * 7919 % 1009) as f32 - 504.0) * 1.37f32.powi((i / 32 % 21) as i32 - 10))
            .collect()
    }

    #[test]
    fn every_element_is_within_half_a_step_and_every_level_rounds_alike() {
        let (n, columns) = (67, 96);
        let x = wave(n * columns);
        let mut a = Activations::new();
        assert!(a.quantize_at(Level::Baseline, &x, columns));
        assert_eq!((a.tokens(), a.columns()), (n, columns));
        for (t, row) in x.chunks_exact(columns).enumerate() {
            for (k, v) in row.iter().enumerate() {
                let block = &row[k / 32 * 32..k / 32 * 32 + 32];
                let largest = block.iter().fold(0.0f32, |a, v| a.max(v.abs()));
                let step = f64::from(largest) / 127.0;
                let error = (f64::from(a.value(t, k)) - f64::from(*v)).abs();
                assert!(error <= 0.5001 * step, "{t} {k}: {error} of {step}");
            }
        }
        for level in Level::ALL {
            let mut b = Activations::new();
            assert!(b.quantize_at(level, &x, columns));
            assert_eq!(a.blocks.q, b.blocks.q);
            assert_eq!(a.blocks.scale, b.blocks.scale);
            assert_eq!(a.blocks.offset, b.blocks.offset);
        }
    }

    #[test]
    fn selected_tokens_are_the_same_as_quantised_alone() {
        let (n, columns) = (130, 64);
        let x = wave(n * columns);
        let (mut all, mut some, mut alone) = Default::default();
        assert!(Activations::quantize(&mut all, &x, columns));
        let picked: Vec<usize> = (0..70).map(|i| (i * 37 + 5) % n).collect();
        assert!(Activations::select(&mut some, &all, &picked));
        let rows: Vec<f32> = picked
            .iter()
            .flat_map(|t| x[t * columns..(t + 1) * columns].iter().copied())
            .collect();
        assert!(Activations::quantize(&mut alone, &rows, columns));
        assert_eq!(some.blocks.q, alone.blocks.q);
        assert_eq!(some.blocks.scale, alone.blocks.scale);
        assert_eq!(some.blocks.offset, alone.blocks.offset);
        assert!(!Activations::select(&mut some, &all, &[n]));
        assert_eq!(some.tokens(), 0);
    }

    #[test]
    fn what_is_not_a_number_is_not_hidden_and_nothing_is_zero() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![1.0; 96];
            x[40] = bad;
            let mut a = Activations::new();
            assert!(a.quantize(&x, 96));
            assert!(a.value(0, 33).is_nan());
            assert_eq!(a.value(0, 3), 1.0);
            assert_eq!(a.value(0, 70), 1.0);
        }
        let mut a = Activations::new();
        assert!(a.quantize(&[1e-38; 32], 32));
        assert_eq!(a.value(0, 0), 0.0);
        assert!(!a.quantize(&[1.0; 40], 40));
        assert!(!a.quantize(&[1.0; 33], 32));
        assert!(!a.quantize(&[], 0));
    }
}
