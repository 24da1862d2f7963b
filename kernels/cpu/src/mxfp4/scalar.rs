//! The definition, written out.

use super::{GROUP, packets};
use crate::activations::Tile;
use crate::format::E2M1;

/// A scale as a product uses it: 2^(code - 127), and infinity for 255.
#[inline(always)]
pub(super) fn scale(code: u8) -> f32 {
    f32::from_bits((u32::from(code) << 23).max(1 << 22))
}

/// Sums [tokens][8 rows] of a group.
pub(super) fn product(group: &[u8], x: Tile<'_>, sums: &mut [[f32; GROUP]]) {
    sums.fill([0.0; GROUP]);
    let mut first = 0;
    for packet in packets(group) {
        let tile = x.starting_at(first);
        first += packet.nibbles.len();
        let tokens = tile
            .q
            .chunks_exact(x.tokens)
            .zip(tile.scale.chunks_exact(x.tokens));
        for ((nibbles, scales), (q, d)) in packet.nibbles.iter().zip(packet.scales).zip(tokens) {
            for ((q, d), sums) in q.iter().zip(d).zip(sums.iter_mut()) {
                for (r, (sum, code)) in sums.iter_mut().zip(scales).enumerate() {
                    let words = nibbles.as_chunks::<4>().0.iter().skip(r).step_by(GROUP);
                    let dot: i32 = words.zip(q.as_chunks::<8>().0).map(word_dot).sum();
                    *sum = (dot as f32).mul_add(scale(*code) * d, *sum);
                }
            }
        }
    }
}

/// `sum of (2 w) q` over the eight columns of a word.
fn word_dot((word, q): (&[u8; 4], &[i8; 8])) -> i32 {
    let twice = |nibble: u8| (2.0 * E2M1[nibble as usize]) as i32;
    (0..4)
        .map(|i| twice(word[i] & 15) * i32::from(q[i]) + twice(word[i] >> 4) * i32::from(q[4 + i]))
        .sum()
}
