//! Between the checkpoint's rows and packets.

use super::{GROUP, group_bytes, packed_bytes, place};
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
    out.fill(0);
    for_each_word(
        rows,
        columns,
        |row_at, scale_at, packed_at, packed_scale| {
            out[packed_at..packed_at + WORD].copy_from_slice(&nibbles[row_at..row_at + WORD]);
            out[packed_scale] = scales[scale_at];
        },
    );
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
    for_each_word(
        rows,
        columns,
        |row_at, scale_at, packed_at, packed_scale| {
            nibbles[row_at..row_at + WORD].copy_from_slice(&packed[packed_at..packed_at + WORD]);
            scales[scale_at] = packed[packed_scale];
        },
    );
    true
}

fn fits(rows: usize, columns: usize, nibbles: usize, scales: usize, packed: usize) -> bool {
    let blocks = rows.checked_mul(columns / BLOCK);
    packed_bytes(rows, columns) == Some(packed)
        && blocks == Some(scales)
        && blocks.and_then(|b| b.checked_mul(ROW_BLOCK)) == Some(nibbles)
}

/// Calls with (byte of the word in the rows, byte of its scale, byte of the word in the packets, byte of its scale), in the order of the packets.
fn for_each_word(rows: usize, columns: usize, mut f: impl FnMut(usize, usize, usize, usize)) {
    let blocks = columns / BLOCK;
    for first in (0..rows).step_by(GROUP) {
        let start = first / GROUP * group_bytes(columns);
        for block in 0..blocks {
            for word in 0..ROW_BLOCK / WORD {
                for r in 0..GROUP.min(rows - first) {
                    let in_rows = (first + r) * blocks + block;
                    let (nibbles, scale) = place(columns, r, block, word);
                    f(
                        in_rows * ROW_BLOCK + word * WORD,
                        in_rows,
                        start + nibbles,
                        start + scale,
                    );
                }
            }
        }
    }
}
