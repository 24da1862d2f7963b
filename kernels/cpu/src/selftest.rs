//! Whether an instruction set computes on this machine what the baseline computes.
//!
//! Each kernel multiplies a small matrix, with whole and partial groups, packets, blocks and lines in it, once for one token and once for several,
//! and everything between the products runs on vectors of odd lengths; every bit of every result must be that of the baseline. It takes
//! about a millisecond.

use crate::activations::Activations;
use crate::dispatch::Level;
use crate::matrix::{Elements, Matrix, Scales};
use crate::product::{Arithmetic, times};
use crate::{attention, mxfp4, q8_0, vector};

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
    }) && between_products(level) == between_products(Level::Baseline)
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

/// Attention, norms, activations, the router's scores, pooling and the sampler's exponentials, on vectors with whole and partial registers.
fn between_products(level: Level) -> Vec<Vec<u32>> {
    const WIDTH: usize = 3 * 64 + 11;
    const HEADS: usize = 5;
    const COUNT: usize = attention::ROWS - 1;
    let all = vectors(HEADS + COUNT + 4, WIDTH);
    let (q, rest) = all.split_at(HEADS * WIDTH);
    let (rows, rest) = rest.split_at(COUNT * WIDTH);
    let rows: Vec<&[f32]> = rows.chunks_exact(WIDTH).collect();
    let (x, rest) = rest.split_at(WIDTH);
    let (y, rest) = rest.split_at(WIDTH);
    let (z, _) = rest.split_at(WIDTH);
    let mut results = Vec::new();

    let mut scores = vec![0.0; HEADS * COUNT];
    attention::dots::at(level, q, WIDTH, &rows, &mut scores, COUNT);
    let mut sums = q.to_vec();
    attention::add_rows::at(level, &scores, COUNT, &rows, WIDTH, &mut sums);
    results.extend([bits(&scores), bits(&sums)]);

    let top = vector::largest::at(level, x, f32::NEG_INFINITY);
    let mut heat = vec![0.0; WIDTH];
    vector::boltzmann::at(level, x, top, 0.7, &mut heat);
    let heat = heat
        .iter()
        .flat_map(|v| [v.to_bits() as u32, (v.to_bits() >> 32) as u32]);
    results.extend([bits(&[top, vector::dot::at(level, x, y)]), heat.collect()]);

    let mut columns = vec![0.0; COUNT];
    vector::positive_sum::at(level, &scores, COUNT, &x[..HEADS], &mut columns);
    let (mut sum, mut pooled) = (y.to_vec(), z.to_vec());
    let mut most = x.to_vec();
    vector::max_into::at(level, &mut most, y);
    vector::pool::at(level, x, &most, z, &mut sum, &mut pooled);
    results.extend([columns, most, sum, pooled].map(|v| bits(&v)));

    let changed = |change: &dyn Fn(&mut [f32])| {
        let mut out = x.to_vec();
        change(&mut out);
        bits(&out)
    };
    let (cos, sin) = (&y[..WIDTH / 2], &z[..WIDTH / 2]);
    let even = WIDTH / 2 * 2;
    results.extend([
        changed(&|out| vector::add_scaled::at(level, out, 0.3, y)),
        changed(&|out| vector::scale_by::at(level, out, 0.3)),
        changed(&|out| vector::rms_in_place::at(level, out, 1e-6)),
        changed(&|out| vector::rms::at(level, y, 1e-6, out)),
        changed(&|out| vector::rms_norm::at(level, y, z, 1e-6, out)),
        changed(&|out| vector::rms_norm_in_place::at(level, out, z, 1e-6)),
        changed(&|out| vector::rotate::at(level, &mut out[..even], cos, sin)),
        changed(&|out| vector::rotate_back::at(level, &mut out[..even], cos, sin)),
        changed(&|out| vector::sqrt_softplus::at(level, out)),
        changed(&|out| vector::swiglu::at(level, out, y, 1.5, 0.7)),
        changed(&|out| out[0] = vector::exp_sum::at(level, &mut out[1..], top)),
    ]);
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
    fn what_lies_between_products_is_computed_with_every_function() {
        let results = between_products(Level::Baseline);
        assert_eq!(results.len(), 19);
        for (i, result) in results.iter().enumerate() {
            // The exponentials of the sampler come as the halves of wider numbers.
            let ordinary = i == 3 || result.iter().all(|b| f32::from_bits(*b).is_finite());
            assert!(ordinary && result.iter().any(|b| *b << 1 != 0), "{i}");
            assert!(results[..i].iter().all(|other| other != result), "{i}");
        }
    }

    #[test]
    fn every_supported_level_agrees() {
        for level in Level::ALL {
            assert!(agrees(level.available()), "{level:?}");
        }
    }
}
