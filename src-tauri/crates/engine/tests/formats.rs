//! Number formats against tables and vectors of the numpy reference.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::Expected;
use fastar_kernels::format::{E2M1, E4M3, e2m1_encode, e4m3_encode, e8m0};
use fastar_kernels::matrix::{Elements, Matrix};
use fastar_kernels::rounding::{fp4_round_trip, fp8_round_trip, hadamard};

#[test]
fn all_256_e4m3_codes_equal_the_reference() {
    let table = Expected::of("c_fp8_fp4").floats("units.e4m3_table");
    assert_eq!(table.len(), 256);
    for (code, value) in table.iter().enumerate() {
        let ours = E4M3[code];
        // The fixture stores the two NaN codes as 0.
        if code & 0x7F == 0x7F {
            assert!(ours.is_nan(), "code {code}");
            continue;
        }
        assert_eq!(ours.to_bits(), value.to_bits(), "code {code}");
        assert_eq!(
            e4m3_encode(*value),
            code as u8,
            "code {code} does not round-trip"
        );
    }
}

/// Every value of every scale but NaN, worked out in f64 from the definition: e2m1 times 2^(b - 127). The few beyond the range of f32
/// (scales 253 and 254) are infinite, as the nearest f32 is.
#[test]
fn all_16_x_255_mxfp4_values_equal_their_definition() {
    let table = Expected::of("c_fp8_fp4").floats("units.e2m1_table");
    for scale in 0..=254u8 {
        assert_eq!(
            f64::from(e8m0(scale)),
            2f64.powi(i32::from(scale) - 127),
            "scale {scale}"
        );
        for code in 0..16u8 {
            // One block of 32 with the code in every place, low and high nibble.
            let packed = [code | code << 4; 16];
            let scales = [scale];
            let matrix = Matrix::new(1, 32, Elements::Fp4(&packed, &scales)).unwrap();
            let mut row = [0.0; 32];
            matrix.row(0, &mut row);
            let exact = f64::from(table[code as usize]) * 2f64.powi(i32::from(scale) - 127);
            let exact = exact as f32;
            for v in row {
                assert_eq!(v, exact, "code {code} scale {scale}");
                assert_eq!(v.is_sign_negative(), code >= 8, "sign of code {code}");
            }
        }
    }
}

#[test]
fn fp4_takes_the_low_nibble_first_and_one_scale_for_each_32() {
    let packed: Vec<u8> = (0..32).map(|j| (j % 16) | ((15 - j % 16) << 4)).collect();
    let scales = [127, 129];
    let matrix = Matrix::new(1, 64, Elements::Fp4(&packed, &scales)).unwrap();
    let mut row = [0.0; 64];
    matrix.row(0, &mut row);
    for j in 0..32 {
        let scale = if j < 16 { 1.0 } else { 4.0 };
        assert_eq!(row[2 * j], E2M1[j % 16] * scale);
        assert_eq!(row[2 * j + 1], E2M1[15 - j % 16] * scale);
    }
}

#[test]
fn the_unit_vectors_of_the_reference_come_out_exactly() {
    let expected = Expected::of("c_fp8_fp4");
    let x = expected.floats("units.x");
    let check = |name: &str, round: &dyn Fn(&mut [f32])| {
        let image = expected.floats(name);
        for (row, image) in x.chunks_exact(128).zip(image.chunks_exact(128)) {
            let mut row = row.to_vec();
            round(&mut row);
            assert_eq!(row, image, "{name}");
        }
    };
    check("units.fp8_block64", &|r| fp8_round_trip(r, 64));
    check("units.fp8_block128", &|r| fp8_round_trip(r, 128));
    check("units.fp4_block32", &fp4_round_trip);
    let image = expected.floats("units.hadamard128");
    for (row, image) in x.chunks_exact(128).zip(image.chunks_exact(128)) {
        let mut row = row.to_vec();
        hadamard(&mut row);
        let amax = image.iter().fold(0f32, |a, v| a.max(v.abs()));
        assert!(common::largest_difference(&row, image) <= 1e-6 * amax);
    }
}

#[test]
fn encoding_rounds_to_nearest_with_ties_to_the_even_code() {
    // Between 1 and 1.125 (codes 0x38, 0x39): the middle goes to the even 0x38; between 1.125 and 1.25 to the even 0x3A.
    assert_eq!(e4m3_encode(1.0625), 0x38);
    assert_eq!(e4m3_encode(1.1875), 0x3A);
    assert_eq!(e4m3_encode(-1.0625), 0xB8);
    assert_eq!(e4m3_encode(1e9), 0x7E);
    assert_eq!(e4m3_encode(f32::NEG_INFINITY), 0xFE);
    assert_eq!(e4m3_encode(2f32.powi(-10)), 0x00);
    assert_eq!(e4m3_encode(3.0 * 2f32.powi(-10)), 0x02);
    assert!(E4M3[e4m3_encode(f32::NAN) as usize].is_nan());
    // 0.25 lies between 0 and 0.5: even is 0. 2.5 between 2 (4) and 3 (5): even is 4. 5 between 4 (6) and 6 (7): even is 6.
    assert_eq!(e2m1_encode(0.25), 0);
    assert_eq!(e2m1_encode(2.5), 4);
    assert_eq!(e2m1_encode(5.0), 6);
    assert_eq!(e2m1_encode(-7.0), 15);
}
