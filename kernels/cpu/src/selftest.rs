//! Whether an instruction set computes on this machine what the baseline computes.
//!
//! Each kernel multiplies a small matrix, with whole and partial groups, packets, blocks and lines in it, once for one token and once for several;
//! every bit of every result must be that of the baseline. It takes about a millisecond.

use crate::activations::Activations;
use crate::dispatch::Level;
use crate::matrix::{Elements, Matrix, Scales};
use crate::product::{Arithmetic, times};
use crate::{mxfp4, q8_0};

/// A group of eight and five rows, so that two groups meet and one is partial.
const ROWS: usize = 13;
/// A whole packet of 1024 and a partial one.
const COLUMNS: usize = 1056;
/// Columns for formats without blocks of 32: the last line and block are partial.
const ODD_COLUMNS: usize = 331;
/// More than any kernel takes at once, and one left over.
const TOKENS: usize = 7;

/// Whether `level` gives the bits of the baseline. Asks for no level itself, because it runs while that is being decided.
pub(crate) fn agrees(level: Level) -> bool {
    [1, TOKENS].into_iter().all(|n| {
        let results = |level| eight_bit(level, n).into_iter().chain(f32_vectors(level, n));
        results(level).eq(results(Level::Baseline))
    })
}

fn bits(out: &[f32]) -> Vec<u32> {
    out.iter().map(|v| v.to_bits()).collect()
}

/// Bytes without a pattern. Numbers made of them are ordinary: no NaN, no subnormal numbers.
fn bytes(count: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn vectors(n: usize, columns: usize) -> Vec<f32> {
    let values = bytes(n * columns, 5).into_iter();
    values.map(|b| (f32::from(b) - 127.0) / 64.0).collect()
}

/// MXFP4 and Q8_0, and the activations they are multiplied with.
fn eight_bit(level: Level, n: usize) -> Vec<Vec<u32>> {
    let mut activations = Activations::new();
    let x = vectors(n, COLUMNS);
    let mut results = Vec::new();
    if !activations.quantize_at(level, &x, COLUMNS) {
        return results;
    }
    let values = (0..COLUMNS).map(|k| activations.value(n - 1, k).to_bits());
    results.push(values.collect());

    let scales: Vec<u8> = bytes(ROWS * COLUMNS / 32, 7)
        .iter()
        .map(|b| 100 + b % 50)
        .collect();
    let mut packed = vec![0; mxfp4::packed_bytes(ROWS, COLUMNS).unwrap_or(0)];
    let nibbles = bytes(ROWS * COLUMNS / 2, 6);
    let mut blocks = bytes(ROWS * COLUMNS / 32 * q8_0::BLOCK_BYTES, 8);
    for block in blocks.as_chunks_mut::<{ q8_0::BLOCK_BYTES }>().0 {
        block[1] = 0x20 | block[1] & 0x8F; // Scales of 2^-7 to 2^-3 and either sign.
    }
    let fits = mxfp4::pack(ROWS, COLUMNS, &nibbles, &scales, &mut packed);
    let packets = fits.then_some(Elements::Fp4Packets(&packed));
    for elements in packets.into_iter().chain([Elements::Q8(&blocks)]) {
        if let Some(m) = Matrix::new(ROWS, COLUMNS, elements) {
            results.push(bits(&times(level, m, Arithmetic::Fast, &x)));
        }
    }
    results
}

/// FP8 with both kinds of scales, BF16, F32, and what is expanded row by row.
fn f32_vectors(level: Level, n: usize) -> Vec<Vec<u32>> {
    let codes = bytes(ROWS * ODD_COLUMNS, 9);
    let mut data = bytes(4 * ROWS * ODD_COLUMNS, 10);
    for word in data.as_chunks_mut::<2>().0 {
        word[1] = 0x3E | word[1] & 0x81; // The upper half of a number between 2^-4 and 8, either sign.
    }
    let e8m0 = [120, 131, 126];
    let floats: Vec<u8> = [0.3f32, -1.7, 0.011]
        .into_iter()
        .flat_map(f32::to_le_bytes)
        .collect();
    let nibbles = bytes(ROWS * COLUMNS / 2, 11);
    let scales = vec![121; ROWS * COLUMNS / 32];
    let matrices = [
        (ODD_COLUMNS, Elements::Fp8(&codes, Scales::E8m0(&e8m0))),
        (ODD_COLUMNS, Elements::Fp8(&codes, Scales::F32(&floats))),
        (ODD_COLUMNS, Elements::Bf16(&data[..2 * ROWS * ODD_COLUMNS])),
        (ODD_COLUMNS, Elements::F32(&data)),
        (COLUMNS, Elements::Fp4(&nibbles, &scales)),
    ];
    let mut results = Vec::new();
    for (columns, elements) in matrices {
        if let Some(m) = Matrix::new(ROWS, columns, elements) {
            results.push(bits(&times(
                level,
                m,
                Arithmetic::Exact,
                &vectors(n, columns),
            )));
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_self_test_multiplies_with_every_kernel_and_its_numbers_are_finite() {
        for n in [1, TOKENS] {
            let results: Vec<_> = eight_bit(Level::Baseline, n)
                .into_iter()
                .chain(f32_vectors(Level::Baseline, n))
                .collect();
            assert_eq!(results.len(), 8);
            for result in results {
                assert!(result.iter().all(|b| f32::from_bits(*b).is_finite()));
                assert!(result.iter().any(|b| f32::from_bits(*b) != 0.0));
            }
        }
    }

    #[test]
    fn every_supported_level_agrees() {
        for level in Level::ALL {
            assert!(agrees(level.available()), "{level:?}");
        }
    }
}
