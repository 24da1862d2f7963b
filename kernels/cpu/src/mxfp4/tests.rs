//! Layout, exactness and error of packed products, against computations in f64 and bytes placed by the formula of the module's page.

use super::*;
use crate::dispatch::Level;
use crate::matrix::{Elements, Matrix};
use crate::product::{Arithmetic, times};
use crate::team::Team;

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Nibbles and scales as in the checkpoint.
fn matrix(rows: usize, columns: usize) -> (Vec<u8>, Vec<u8>) {
    let scales = bytes(rows * columns / 32, 2)
        .iter()
        .map(|b| 115 + b % 12)
        .collect();
    (bytes(rows * columns / 2, 1), scales)
}

fn packed(rows: usize, columns: usize, (nibbles, scales): &(Vec<u8>, Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0xEE; packed_bytes(rows, columns).unwrap()];
    assert!(pack(rows, columns, nibbles, scales, &mut out));
    out
}

/// Values of several sizes, so that blocks have different steps.
fn vectors(n: usize, columns: usize) -> Vec<f32> {
    let values = bytes(2 * n * columns, 3);
    let (pairs, _) = values.as_chunks::<2>();
    let value = |(i, [a, b]): (usize, &[u8; 2])| {
        let v = f32::from(i16::from_le_bytes([*a, *b])) / 8192.0;
        v * 2f32.powi((i / 32 % 7) as i32 - 3)
    };
    pairs.iter().enumerate().map(value).collect()
}

/// A weight by the definition of the format.
fn weight((nibbles, scales): &(Vec<u8>, Vec<u8>), columns: usize, row: usize, k: usize) -> f64 {
    const VALUES: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let i = row * columns + k;
    let nibble = nibbles[i / 2] >> (4 * (i % 2)) & 15;
    let sign = if nibble > 7 { -1.0 } else { 1.0 };
    sign * VALUES[usize::from(nibble & 7)] * 2f64.powi(i32::from(scales[i / 32]) - 127)
}

/// Those of Flash, and everything that is not a whole group, packet or pair of groups.
const SHAPES: [(usize, usize); 12] = [
    (2048, 4096),
    (4096, 2048),
    (96, 256),
    (256, 96),
    (1, 32),
    (7, 32),
    (8, 1024),
    (9, 1056),
    (24, 2080),
    (13, 992),
    (65, 64),
    (0, 64),
];

#[test]
fn packing_and_unpacking_give_back_the_checkpoint_in_every_shape() {
    for (rows, columns) in SHAPES {
        let m = matrix(rows, columns);
        let packed = packed(rows, columns, &m);
        if rows % 8 == 0 {
            assert_eq!(packed.len(), m.0.len() + m.1.len());
        }
        let (mut nibbles, mut scales) = (vec![0; m.0.len()], vec![0; m.1.len()]);
        assert!(unpack(rows, columns, &packed, &mut nibbles, &mut scales));
        assert!((nibbles, scales) == m, "{rows} x {columns}");
    }
    assert_eq!(3 * packed_bytes(2048, 4096).unwrap(), 13_369_344);
}

#[test]
fn every_byte_lies_where_the_page_says() {
    let (rows, columns) = (13, 1056);
    let m = matrix(rows, columns);
    let packed = packed(rows, columns, &m);
    let mut seen = vec![false; packed.len()];
    for group in 0..2 {
        for (packet, t) in [(0, 32), (1, 1)] {
            let start = group * 33 * 136 + packet * 32 * 136;
            for (b, r) in (0..t).flat_map(|b| (0..8).map(move |r| (b, r))) {
                let (row, block) = (8 * group + r, 32 * packet + b);
                let scale = start + 128 * t + 8 * b + r;
                seen[scale] = true;
                let there = row < rows;
                assert_eq!(packed[scale], if there { m.1[row * 33 + block] } else { 0 });
                for (j, i) in (0..4).flat_map(|j| (0..4).map(move |i| (j, i))) {
                    let at = start + 128 * b + 32 * j + 4 * r + i;
                    seen[at] = true;
                    let first = row * columns + 32 * block + 8 * j + 2 * i;
                    assert_eq!(packed[at], if there { m.0[first / 2] } else { 0 });
                }
            }
        }
    }
    assert!(seen.into_iter().all(|s| s));
}

#[test]
fn sizes_that_do_not_fit_are_refused_and_nothing_is_written() {
    let m = matrix(8, 64);
    let mut out = vec![7; 2 * 136];
    assert!(!pack(8, 64, &m.0[1..], &m.1, &mut out));
    assert!(!pack(8, 64, &m.0, &m.1[1..], &mut out));
    assert!(!pack(8, 64, &m.0, &m.1, &mut out[1..]));
    assert!(!pack(8, 48, &m.0, &m.1, &mut out));
    assert!(!pack(usize::MAX, 64, &m.0, &m.1, &mut out));
    assert!(out.iter().all(|b| *b == 7));
    assert!(!unpack(
        8,
        64,
        &out,
        &mut m.0.clone()[1..],
        &mut m.1.clone()
    ));
    let matrix = |rows, columns, data| Matrix::new(rows, columns, Elements::Fp4Packets(data));
    assert!(matrix(8, 64, &out[..]).is_some());
    assert!(matrix(9, 64, &out[..]).is_none());
    assert!(matrix(8, 63, &out[..]).is_none());
    assert!(matrix(usize::MAX, 32, &out[..]).is_none());
    assert!(matrix(8, 64, &out[1..]).is_none());
}

#[test]
fn a_row_of_packets_expands_to_the_row_of_the_checkpoint() {
    let (rows, columns) = (13, 1056);
    let m = matrix(rows, columns);
    let packed = packed(rows, columns, &m);
    let packets = Matrix::new(rows, columns, Elements::Fp4Packets(&packed)).unwrap();
    let plain = Matrix::new(rows, columns, Elements::Fp4(&m.0, &m.1)).unwrap();
    let (mut a, mut b) = (vec![0.0; columns], vec![1.0; columns]);
    for row in 0..rows {
        packets.row(row, &mut a);
        plain.row(row, &mut b);
        assert_eq!(a, b);
    }
}

fn packets(rows: usize, columns: usize, data: &[u8]) -> Matrix<'_> {
    Matrix::new(rows, columns, Elements::Fp4Packets(data)).unwrap()
}

/// `out` [n, rows] for one level.
fn product(level: Level, m: Matrix<'_>, x: &[f32]) -> Vec<f32> {
    times(level, m, Arithmetic::Fast, x)
}

#[test]
fn a_product_is_within_the_stated_error_of_exact_arithmetic() {
    for (rows, columns, n) in [(13, 1056, 1), (24, 2080, 3), (96, 256, 66), (40, 4096, 2)] {
        let m = matrix(rows, columns);
        let bytes = packed(rows, columns, &m);
        let p = packets(rows, columns, &bytes);
        let x = vectors(n, columns);
        let mut activations = Activations::new();
        assert!(activations.quantize(&x, columns));
        for level in Level::ALL {
            let out = product(level, p, &x);
            for (t, x) in x.chunks_exact(columns).enumerate() {
                for r in 0..rows {
                    // Against the rounded vector, where only the sum rounds, and against the vector itself.
                    let (mut rounded, mut exact, mut sizes, mut allowed) = (0.0, 0.0, 0.0, 0.0);
                    for (b, block) in x.chunks_exact(32).enumerate() {
                        let largest = block.iter().fold(0.0f32, |a, v| a.max(v.abs()));
                        let mut dot = 0.0;
                        for (i, v) in block.iter().enumerate() {
                            let k = 32 * b + i;
                            let w = weight(&m, columns, r, k);
                            dot += w * f64::from(activations.value(t, k));
                            exact += w * f64::from(*v);
                            allowed += w.abs() * 0.5001 * f64::from(largest) / 127.0;
                        }
                        rounded += dot;
                        sizes += dot.abs();
                    }
                    let y = f64::from(out[t * rows + r]);
                    let sum = (columns / 32 + 2) as f64 * 2f64.powi(-24) * sizes;
                    // Values are rounded once more when they are read back.
                    let reading = 1e-7 * allowed * 254.0;
                    assert!((y - rounded).abs() <= sum + reading, "{level:?} {t} {r}");
                    assert!((y - exact).abs() <= allowed + sum, "{level:?} {t} {r}");
                }
            }
        }
    }
}

#[test]
fn instruction_set_threads_and_batch_change_no_bit() {
    for (rows, columns, n) in [(200, 1056, 70), (136, 4096, 9), (13, 2048, 3), (8, 32, 1)] {
        let m = matrix(rows, columns);
        let bytes = packed(rows, columns, &m);
        let p = packets(rows, columns, &bytes);
        let x = vectors(n, columns);
        let bits = |out: Vec<f32>| -> Vec<u32> { out.iter().map(|v| v.to_bits()).collect() };
        let truth = bits(product(Level::Baseline, p, &x));
        for level in Level::ALL {
            for threads in [1, 2, 3] {
                let team = Team::new(threads, threads, |_| {}).unwrap();
                let all = team.run(|| bits(product(level, p, &x)));
                assert!(all == truth, "{level:?}, {threads} threads");
            }
            for batch in [1, 2, 7, 65] {
                let parts = x
                    .chunks(batch * columns)
                    .map(|x| bits(product(level, p, x)));
                assert!(
                    parts.flatten().eq(truth.iter().copied()),
                    "{level:?}, by {batch}"
                );
            }
        }
    }
}

#[test]
fn the_smallest_scale_counts_and_what_is_no_number_does_not_pass() {
    let (rows, columns) = (8, 64);
    let nibbles = vec![0x77; rows * columns / 2];
    let x = vec![1.0; columns];
    for level in Level::ALL {
        for (code, expected) in [
            (0, 6.0 * 32.0 * 2f32.powi(-127)),
            (1, 6.0 * 32.0 * 2f32.powi(-126)),
        ] {
            // One block of each row at the scale, the other all zeros.
            let mut m = (nibbles.clone(), vec![code; rows * 2]);
            m.0.as_chunks_mut::<32>()
                .0
                .iter_mut()
                .for_each(|row| row[16..].fill(0));
            let bytes = packed(rows, columns, &m);
            let out = product(level, packets(rows, columns, &bytes), &x);
            assert!(
                out.iter().all(|y| (y / expected - 1.0).abs() < 1e-6),
                "{level:?} {out:?}"
            );
        }
        let bytes = packed(rows, columns, &(nibbles.clone(), vec![255; rows * 2]));
        let p = packets(rows, columns, &bytes);
        assert!(product(level, p, &x).iter().all(|y| !y.is_finite()));
        let bytes = packed(rows, columns, &(nibbles.clone(), vec![127; rows * 2]));
        let p = packets(rows, columns, &bytes);
        let mut x = x.clone();
        x[40] = f32::NAN;
        assert!(product(level, p, &x).iter().all(|y| y.is_nan()));
    }
}
