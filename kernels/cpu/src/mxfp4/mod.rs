//! MXFP4 matrices in packets of eight interleaved rows, times activations of eight bits.
//!
//! **Layout.** Rows go in groups of eight; the last group of a matrix whose rows are not a multiple of eight is filled up with rows of
//! zeros. A group is a run of packets, each 1024 columns (the last one those that remain; columns are a multiple of 32, as the format
//! has it): first the nibbles, then the scales. With `t` blocks of 32 columns in the packet:
//!
//! ```text
//! byte 128 b + 32 j + 4 r + i      columns 32 b + 8 j + 2 i (low half) and + 1 (high half) of row r      b < t, j < 4, r < 8, i < 4
//! byte 128 t + 8 b + r             e8m0 scale of block b of row r
//! ```
//!
//! A full packet is 8192 weights, 4096 + 256 bytes, 68 cache lines. The four bytes `i` are those of the checkpoint: packing moves
//! whole words and touches no nibble, and the size is that of the checkpoint when rows are a multiple of eight. A 32-byte register is a word of each
//! of eight rows, so a product needs no sums across a register and scales eight rows at once.
//!
//! **Definition of a result.** `dot_b = sum over the block of (2 w) q`, an exact integer; `y = fma(dot_b, s_b d_b, y)` over the blocks in
//! order, from zero; then half of it. No other rounding, so neither the instruction set, the number of threads nor the tokens computed together
//! can change a bit. A scale code of 255 (not a number) makes the result infinite or NaN.
//!
//! **Error** against `f32` activations: `0.5001 sum_b d_b sum_k |w_k|` from rounding them ([`activations`](crate::activations)), and at most
//! `(b + 2) 2^-24 sum_b |dot_b s_b d_b| / 2` from the sum.
//!
//! Measured and left (share of read bandwidth, one token): rows one after the other 0.6, four such rows at once 0.4; this layout without prefetching
//! 0.5, prefetching 6 KiB ahead into the first-level cache 0.75, two groups at once 0.5; 16 KiB ahead into the second-level cache, as it is, 0.85 to 0.9.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod pack;
mod scalar;

use std::ops::Range;

use crate::activations::{Activations, BLOCK, TILE, Tile};
use crate::dispatch::Level;

pub use pack::{pack, unpack};

/// Rows that are interleaved.
pub const GROUP: usize = 8;
/// Columns of a full packet.
pub const PACKET_COLUMNS: usize = 1024;
/// Bytes of the nibbles of a block of 32 columns of a group.
const NIBBLES: usize = GROUP * BLOCK / 2;
/// Bytes of such a block with its scales.
const BLOCK_BYTES: usize = NIBBLES + GROUP;
/// Blocks of a full packet.
const PACKET_BLOCKS: usize = PACKET_COLUMNS / BLOCK;
/// Bytes of a full packet.
const PACKET_BYTES: usize = PACKET_BLOCKS * BLOCK_BYTES;

/// Bytes of a packed matrix; none if the columns are not whole blocks or the number overflows.
pub fn packed_bytes(rows: usize, columns: usize) -> Option<usize> {
    if !columns.is_multiple_of(BLOCK) {
        return None;
    }
    rows.div_ceil(GROUP)
        .checked_mul(columns / BLOCK)?
        .checked_mul(BLOCK_BYTES)
}

/// Bytes of a group of packed rows.
#[inline(always)]
fn group_bytes(columns: usize) -> usize {
    columns / BLOCK * BLOCK_BYTES
}

/// One packet: as many blocks of nibbles as of scales.
#[derive(Clone, Copy)]
struct Packet<'a> {
    nibbles: &'a [[u8; NIBBLES]],
    scales: &'a [[u8; GROUP]],
}

/// The packets of a group's bytes in order.
#[inline(always)]
fn packets(group: &[u8]) -> impl Iterator<Item = Packet<'_>> {
    group.chunks(PACKET_BYTES).map(|packet| {
        let (nibbles, scales) = packet.split_at(packet.len() / BLOCK_BYTES * NIBBLES);
        Packet {
            nibbles: nibbles.as_chunks().0,
            scales: scales.as_chunks().0,
        }
    })
}

/// The packets of a packed matrix in order, to be filled: the nibbles of each and its scales.
///
/// # Panics
/// If the bytes are not those of a packed matrix of so many columns.
pub fn packets_mut(
    columns: usize,
    data: &mut [u8],
) -> impl Iterator<Item = (&mut [u8], &mut [u8])> {
    assert!(packed_bytes(GROUP, columns).is_some_and(|group| data.len().is_multiple_of(group)));
    data.chunks_mut(group_bytes(columns))
        .flat_map(|group| group.chunks_mut(PACKET_BYTES))
        .map(|packet| packet.split_at_mut(packet.len() / BLOCK_BYTES * NIBBLES))
}

/// Where in the bytes of a group the word `word` (0..4) of a block of a row lies, and where the block's scale.
#[inline(always)]
fn place(columns: usize, row: usize, block: usize, word: usize) -> (usize, usize) {
    let packet = block / PACKET_BLOCKS;
    let blocks = PACKET_BLOCKS.min(columns / BLOCK - packet * PACKET_BLOCKS);
    let (start, b) = (packet * PACKET_BYTES, block % PACKET_BLOCKS);
    let nibbles = start + b * NIBBLES + (word * GROUP + row) * 4;
    (nibbles, start + blocks * NIBBLES + b * GROUP + row)
}

/// The 16 bytes of nibbles, as in the checkpoint, and the scale of a block of 32 columns.
#[inline(always)]
pub(crate) fn block(data: &[u8], columns: usize, row: usize, block: usize) -> ([u8; 16], u8) {
    let group = &data[row / GROUP * group_bytes(columns)..];
    let mut packed = [0; 16];
    let mut scale = 0;
    for (word, to) in packed.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let (nibbles, at) = place(columns, row % GROUP, block, word);
        to.copy_from_slice(&group[nibbles..nibbles + 4]);
        scale = group[at];
    }
    (packed, scale)
}

/// Some rows of a packed matrix, from the first of a group on, times each token of `x`: out is [tokens, rows.len()].
pub(crate) fn part(
    level: Level,
    columns: usize,
    data: &[u8],
    rows: Range<usize>,
    x: &Activations,
    out: &mut [f32],
) {
    let (width, bytes) = (rows.len(), group_bytes(columns));
    let data = &data[rows.start / GROUP * bytes..rows.end.div_ceil(GROUP) * bytes];
    let mut sums = [[[0.0; GROUP]; TILE]; 2];
    for (tile, out) in x.tiles().zip(out.chunks_mut(TILE * width)) {
        for (i, pair) in data.chunks(2 * bytes).enumerate() {
            let [first, second] = &mut sums;
            let sums = [&mut first[..tile.tokens], &mut second[..tile.tokens]];
            products(level, pair.split_at(bytes), tile, sums);
            for (g, sums) in [first, second].into_iter().enumerate() {
                let from = ((2 * i + g) * GROUP).min(width);
                let count = GROUP.min(width - from);
                for (out, sums) in out.chunks_exact_mut(width).zip(sums) {
                    for (o, sum) in out[from..from + count].iter_mut().zip(sums) {
                        *o = 0.5 * *sum;
                    }
                }
            }
        }
    }
}

/// Twice the products of two groups, the second of which may be missing (empty), with a tile: sums are [tokens][8 rows].
fn products(level: Level, groups: (&[u8], &[u8]), x: Tile<'_>, sums: [&mut [[f32; GROUP]]; 2]) {
    #[cfg(target_arch = "x86_64")]
    match level.available() {
        // SAFETY: an available level means that this processor has the features the functions are compiled for.
        Level::Avx512 => return unsafe { avx512::products(groups, x, sums) },
        Level::Avx2 => {
            for (group, sums) in [groups.0, groups.1].into_iter().zip(sums) {
                // SAFETY: as above.
                unsafe { avx2::product(group, x, sums) };
            }
            return;
        }
        Level::Baseline => {}
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    for (group, sums) in [groups.0, groups.1].into_iter().zip(sums) {
        scalar::product(group, x, sums);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
