//! Products against f64, with weights decoded here.

use super::*;
use crate::dispatch::{Level, level};
use crate::format::{E2M1, e4m3_nan};
use crate::product::{Arithmetic, Product, Vectors, multiply, times};
use crate::team::Team;

/// Deterministic bytes that avoid NaN codes.
fn bytes(count: usize, mut seed: u32, limit: u8) -> Vec<u8> {
    (0..count)
        .map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8 % limit
        })
        .collect()
}

fn vectors(n: usize, columns: usize) -> Vec<f32> {
    bytes(n * columns, 5, 255)
        .iter()
        .map(|b| (f32::from(*b) - 127.0) / 64.0)
        .collect()
}

/// Products in f64, with weights decoded here from the definitions and not by the code under test.
fn check(matrix: Matrix<'_>, weight: impl Fn(usize, usize) -> f64) {
    let (rows, columns) = (matrix.rows(), matrix.columns());
    for n in [1, 2, 5] {
        let x = vectors(n, columns);
        let out = times(level(), matrix, Arithmetic::Exact, &x);
        for t in 0..n {
            for r in 0..rows {
                let terms = (0..columns).map(|k| weight(r, k) * f64::from(x[t * columns + k]));
                let (sum, size) =
                    terms.fold((0.0, 0.0), |(s, a): (f64, f64), v| (s + v, a + v.abs()));
                let ours = f64::from(out[t * rows + r]);
                assert!(
                    (ours - sum).abs() <= 1e-6 * size + 1e-30,
                    "row {r}: {ours} {sum}"
                );
            }
        }
        // Some of the rows are the same numbers.
        let (from, to) = (rows / 3, rows - 1);
        let mut some = vec![0.0; n * (to - from)];
        let mut prepared = Vectors::default();
        prepared.prepare(&x, columns, [matrix.form(Arithmetic::Exact)]);
        let rows_of = Product::of_rows(matrix, from..to, Arithmetic::Exact, &prepared, &mut some);
        multiply(&mut [rows_of]);
        for t in 0..n {
            assert_eq!(
                some[t * (to - from)..(t + 1) * (to - from)],
                out[t * rows + from..t * rows + to]
            );
        }
    }
}

#[test]
fn bf16_and_f32_products_are_right() {
    let (rows, columns) = (37, 75);
    let data = bytes(4 * rows * columns, 1, 120);
    let at = |i: usize| {
        [
            data[4 * i],
            data[4 * i + 1],
            data[4 * i + 2],
            data[4 * i + 3],
        ]
    };
    let m = Matrix::new(rows, columns, Elements::F32(&data)).unwrap();
    check(m, |r, k| f64::from(f32::from_le_bytes(at(r * columns + k))));
    let data = &data[..2 * rows * columns];
    let m = Matrix::new(rows, columns, Elements::Bf16(data)).unwrap();
    check(m, |r, k| {
        let i = 2 * (r * columns + k);
        let high = u32::from(u16::from_le_bytes([data[i], data[i + 1]])) << 16;
        f64::from(f32::from_bits(high))
    });
}

#[test]
fn fp8_products_use_the_scale_of_their_block_partial_blocks_included() {
    let (rows, columns) = (200, 300);
    let data = bytes(rows * columns, 2, 0x7F);
    let scales = [120u8, 125, 127, 130, 126, 121];
    let value = |code: u8| {
        let (e, m) = (i32::from(code >> 3 & 15), f64::from(code & 7));
        if e == 0 {
            m * 2f64.powi(-9)
        } else {
            (1.0 + m / 8.0) * 2f64.powi(e - 7)
        }
    };
    let m = Matrix::new(rows, columns, Elements::Fp8(&data, Scales::E8m0(&scales))).unwrap();
    check(m, |r, k| {
        let scale = scales[r / 128 * 3 + k / 128];
        value(data[r * columns + k]) * 2f64.powi(i32::from(scale) - 127)
    });
    let floats: Vec<u8> = [0.5f32, 0.3, 2.0, 1.0, 0.1, 7.0]
        .iter()
        .flat_map(|s| s.to_le_bytes())
        .collect();
    let m = Matrix::new(rows, columns, Elements::Fp8(&data, Scales::F32(&floats))).unwrap();
    check(m, |r, k| {
        let scale = [0.5f32, 0.3, 2.0, 1.0, 0.1, 7.0][r / 128 * 3 + k / 128];
        value(data[r * columns + k]) * f64::from(scale)
    });
}

#[test]
fn fp4_products_are_right_and_long_rows_too() {
    for (rows, columns) in [(65, 96), (70, 8192)] {
        let data = bytes(rows * columns / 2, 3, 255);
        let scales: Vec<u8> = bytes(rows * columns / 32, 4, 10)
            .iter()
            .map(|b| 120 + b)
            .collect();
        let m = Matrix::new(rows, columns, Elements::Fp4(&data, &scales)).unwrap();
        check(m, |r, k| {
            let i = r * columns + k;
            let nibble = data[i / 2] >> (4 * (i % 2)) & 15;
            f64::from(E2M1[nibble as usize]) * 2f64.powi(i32::from(scales[i / 32]) - 127)
        });
    }
}

#[test]
fn fp4_blocks_with_the_scale_in_front_give_the_same_bits() {
    let (rows, columns) = (65, 96);
    let data = bytes(rows * columns / 2, 3, 255);
    let scales = bytes(rows * columns / 32, 4, 254);
    let blocks: Vec<u8> = scales
        .iter()
        .zip(data.chunks_exact(16))
        .flat_map(|(scale, packed)| std::iter::once(*scale).chain(packed.iter().copied()))
        .collect();
    let a = Matrix::new(rows, columns, Elements::Fp4(&data, &scales)).unwrap();
    let b = Matrix::new(rows, columns, Elements::Fp4Blocks(&blocks)).unwrap();
    let (mut x, mut y) = (vec![0.0; columns], vec![1.0; columns]);
    for row in 0..rows {
        a.row(row, &mut x);
        b.row(row, &mut y);
        assert!(x.iter().zip(&y).all(|(x, y)| x.to_bits() == y.to_bits()));
    }
    assert!(Matrix::new(rows, columns, Elements::Fp4Blocks(&blocks[1..])).is_none());
}

#[test]
fn the_number_of_vectors_and_threads_changes_no_bit() {
    let (rows, columns, n) = (300, 512, 7);
    let data = bytes(rows * columns / 2, 3, 255);
    let scales = vec![125; rows * columns / 32];
    let m = Matrix::new(rows, columns, Elements::Fp4(&data, &scales)).unwrap();
    let x = vectors(n, columns);
    let run = |threads| {
        let team = Team::new(threads, threads, |_| {}).unwrap();
        team.run(|| times(level(), m, Arithmetic::Exact, &x))
    };
    let one = run(1);
    assert_eq!(one, run(3));
    for t in 0..n {
        let x = &x[t * columns..(t + 1) * columns];
        let alone = times(level(), m, Arithmetic::Exact, x);
        assert_eq!(alone, one[t * rows..(t + 1) * rows]);
    }
}

#[test]
fn bytes_that_do_not_make_the_matrix_are_refused() {
    let b = [0u8; 4096];
    assert!(Matrix::new(3, 5, Elements::F32(&b[..61])).is_none());
    assert!(Matrix::new(3, 5, Elements::Bf16(&b[..28])).is_none());
    assert!(Matrix::new(2, 33, Elements::Fp4(&b[..33], &b[..2])).is_none());
    assert!(Matrix::new(2, 64, Elements::Fp4(&b[..64], &b[..3])).is_none());
    assert!(Matrix::new(2, 64, Elements::Fp8(&b[..128], Scales::E8m0(&b[..2]))).is_none());
    assert!(Matrix::new(usize::MAX, 2, Elements::F32(&b)).is_none());
}

#[test]
fn instruction_set_threads_and_batch_change_no_bit_of_any_format() {
    for (rows, columns, n) in [(200, 300, 100), (70, 4096, 7), (9, 75, 3), (130, 128, 2)] {
        let data = bytes(4 * rows * columns, 1, 120);
        let codes = bytes(rows * columns, 2, 255);
        let blocks = rows.div_ceil(128) * columns.div_ceil(128);
        let e8m0 = bytes(blocks, 3, 9)
            .iter()
            .map(|b| b + 120)
            .collect::<Vec<u8>>();
        let floats = bytes(blocks, 4, 250)
            .iter()
            .flat_map(|b| (f32::from(*b) / 77.0 - 1.0).to_le_bytes())
            .collect::<Vec<u8>>();
        let x = vectors(n, columns);
        for elements in [
            Elements::F32(&data),
            Elements::Bf16(&data[..2 * rows * columns]),
            Elements::Fp8(&codes, Scales::E8m0(&e8m0)),
            Elements::Fp8(&codes, Scales::F32(&floats)),
        ] {
            let m = Matrix::new(rows, columns, elements).unwrap();
            let product = |level, x: &[f32]| -> Vec<u32> {
                let out = times(level, m, Arithmetic::Exact, x);
                out.iter().map(|v| v.to_bits()).collect()
            };
            let truth = product(Level::Baseline, &x);
            for level in Level::ALL {
                for threads in [1, 3] {
                    let team = Team::new(threads, threads, |_| {}).unwrap();
                    let all = team.run(|| product(level, &x));
                    assert!(all == truth, "{level:?}, {threads} threads");
                }
                for batch in [1, 2, 97] {
                    let parts = x.chunks(batch * columns).flat_map(|x| product(level, x));
                    assert!(parts.eq(truth.iter().copied()), "{level:?}, by {batch}");
                }
            }
        }
    }
}

#[test]
fn fp8_products_hold_with_small_vectors_and_subnormal_weights() {
    let (rows, columns) = (5, 256);
    // Every code but NaN; those below 8 are subnormal.
    let codes = bytes(rows * columns, 7, 0x7F);
    let small = bytes(rows * columns, 8, 8);
    for (codes, size) in [(&codes, 1e-20f32), (&small, 1.0), (&small, 1e15)] {
        let m = Matrix::new(
            rows,
            columns,
            Elements::Fp8(codes, Scales::E8m0(&[127, 120])),
        )
        .unwrap();
        let x: Vec<f32> = vectors(2, columns).iter().map(|v| v * size).collect();
        let out = times(level(), m, Arithmetic::Exact, &x);
        for (t, r) in (0..2).flat_map(|t| (0..rows).map(move |r| (t, r))) {
            let (mut sum, mut sizes) = (0.0, 0.0);
            for k in 0..columns {
                let code = codes[r * columns + k];
                let (e, mantissa) = (i32::from(code >> 3), f64::from(code & 7));
                let w = if e == 0 {
                    mantissa / 512.0
                } else {
                    (1.0 + mantissa / 8.0) * 2f64.powi(e - 7)
                };
                let w = w * if k < 128 { 1.0 } else { 1.0 / 128.0 };
                sum += w * f64::from(x[t * columns + k]);
                sizes += (w * f64::from(x[t * columns + k])).abs();
            }
            let y = f64::from(out[t * rows + r]);
            assert!(
                (y - sum).abs() <= 14.0 * 2f64.powi(-24) * sizes,
                "{y} {sum}"
            );
        }
    }
}

#[test]
fn a_nan_among_fp8_codes_is_found_where_it_is() {
    let mut codes = bytes(10_000, 7, 0x7F);
    assert_eq!(e4m3_nan(&codes), None);
    codes[9_000] = 0xFF;
    assert_eq!(e4m3_nan(&codes), Some(9_000));
    codes[4_095] = 0x7F;
    assert_eq!(e4m3_nan(&codes), Some(4_095));
    assert_eq!(e4m3_nan(&[]), None);
}
