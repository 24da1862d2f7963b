//! Between the checkpoint's rows and packets.

use super::{GROUP, NIBBLES, PACKET_BLOCKS, group_bytes, packed_bytes};
use crate::activations::BLOCK;

/// Bytes of a block's nibbles in a row, and of a word of them.
const ROW_BLOCK: usize = BLOCK / 2;
const WORD: usize = 4;

/// Packs a [rows, columns] matrix: nibbles [rows, columns / 2] and scales [rows, columns / 32] as in the checkpoint. False, and nothing written,
/// if a length does not fit the shape ([`packed_bytes`] is that of `out`). Rows missing from the last group become zeros.
#[must_use]
pub fn pack(rows: usize, columns: usize, nibbles: &[u8], scales: &[u8], out: &mut [u8]) -> bool {
    if !fits(rows, columns, nibbles.len(), scales.len(), out.len()) {
        return false;
    }
    let blocks = columns / BLOCK;
    for (g, group) in out
        .chunks_exact_mut(group_bytes(columns).max(1))
        .enumerate()
    {
        let rows = GROUP.min(rows - g * GROUP);
        if rows < GROUP {
            group.fill(0);
        }
        let first = g * GROUP * blocks;
        for_each_packet(blocks, |packet, start, count| {
            let (to, to_scales) =
                group[packet..][..count * (NIBBLES + GROUP)].split_at_mut(count * NIBBLES);
            for r in 0..rows {
                let at = first + r * blocks + start;
                let (from, _) = nibbles[at * ROW_BLOCK..][..count * ROW_BLOCK].as_chunks();
                for (to, from) in to.as_chunks_mut::<NIBBLES>().0.iter_mut().zip(from) {
                    scatter(to, r, from);
                }
                let (to, _) = to_scales.as_chunks_mut::<GROUP>();
                for (to, from) in to.iter_mut().zip(&scales[at..at + count]) {
                    to[r] = *from;
                }
            }
        });
    }
    true
}

/// The reverse of [`pack`].
#[must_use]
pub fn unpack(
    rows: usize,
    columns: usize,
    packed: &[u8],
    nibbles: &mut [u8],
    scales: &mut [u8],
) -> bool {
    if !fits(rows, columns, nibbles.len(), scales.len(), packed.len()) {
        return false;
    }
    let blocks = columns / BLOCK;
    for (g, group) in packed.chunks_exact(group_bytes(columns).max(1)).enumerate() {
        let rows = GROUP.min(rows - g * GROUP);
        let first = g * GROUP * blocks;
        for_each_packet(blocks, |packet, start, count| {
            let (from, from_scales) =
                group[packet..][..count * (NIBBLES + GROUP)].split_at(count * NIBBLES);
            for r in 0..rows {
                let at = first + r * blocks + start;
                let (to, _) = nibbles[at * ROW_BLOCK..][..count * ROW_BLOCK].as_chunks_mut();
                for (to, from) in to.iter_mut().zip(from.as_chunks::<NIBBLES>().0) {
                    gather(to, r, from);
                }
                let (from, _) = from_scales.as_chunks::<GROUP>();
                for (to, from) in scales[at..at + count].iter_mut().zip(from) {
                    *to = from[r];
                }
            }
        });
    }
    true
}

/// Calls with (byte in the group, first block, blocks) of each packet.
#[inline(always)]
fn for_each_packet(blocks: usize, mut f: impl FnMut(usize, usize, usize)) {
    for start in (0..blocks).step_by(PACKET_BLOCKS) {
        let count = PACKET_BLOCKS.min(blocks - start);
        f(start * (NIBBLES + GROUP), start, count);
    }
}

/// The four words of a block of row `r` into their places among those of the group.
#[inline(always)]
fn scatter(to: &mut [u8; NIBBLES], r: usize, from: &[u8; ROW_BLOCK]) {
    for (j, word) in from.as_chunks::<WORD>().0.iter().enumerate() {
        let at = (j * GROUP + r) * WORD;
        to[at..at + WORD].copy_from_slice(word);
    }
}

#[inline(always)]
fn gather(to: &mut [u8; ROW_BLOCK], r: usize, from: &[u8; NIBBLES]) {
    for (j, word) in to.as_chunks_mut::<WORD>().0.iter_mut().enumerate() {
        let at = (j * GROUP + r) * WORD;
        word.copy_from_slice(&from[at..at + WORD]);
    }
}

fn fits(rows: usize, columns: usize, nibbles: usize, scales: usize, packed: usize) -> bool {
    let blocks = rows.checked_mul(columns / BLOCK);
    packed_bytes(rows, columns) == Some(packed)
        && blocks == Some(scales)
        && blocks.and_then(|b| b.checked_mul(ROW_BLOCK)) == Some(nibbles)
}
