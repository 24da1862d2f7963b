//! The two roundings that belong to the model (it was trained with them), and the Hadamard transform before the second.
//!
//! Both are round trips: the result is again `f32`, restricted to what the low format can hold. Scales are powers of two, the
//! smallest that keeps the largest magnitude of the block in range.

use crate::format::{E2M1, E4M3, e2m1_encode, e4m3_encode};

/// Channels that share one scale when a KV row is rounded to FP8.
pub const KV_BLOCK: usize = 64;
/// Channels that share one scale when index vectors are rounded to FP4.
pub const INDEX_BLOCK: usize = 32;

/// Smallest power of two `s` with `amax / s <= largest`.
fn power_of_two_scale(amax: f32, largest: f32) -> f32 {
    // In f64 the quotient is exact enough that log2 of a true power of two is an integer.
    libm::exp2(libm::ceil(libm::log2(amax as f64 / largest as f64))) as f32
}

/// e4m3 round trip, one scale per `block` channels (the last block may be shorter).
pub fn fp8_round_trip(x: &mut [f32], block: usize) {
    for part in x.chunks_mut(block) {
        let amax = part.iter().fold(1e-4f32, |a, v| a.max(v.abs()));
        let scale = power_of_two_scale(amax, 448.0);
        for v in part {
            *v = E4M3[e4m3_encode(*v / scale) as usize] * scale;
        }
    }
}

/// e2m1 round trip, one scale per [`INDEX_BLOCK`] channels.
pub fn fp4_round_trip(x: &mut [f32]) {
    const SMALLEST: f32 = 6.0 * f32::MIN_POSITIVE; // 6 * 2^-126
    for part in x.chunks_mut(INDEX_BLOCK) {
        let amax = part.iter().fold(SMALLEST, |a, v| a.max(v.abs()));
        let scale = power_of_two_scale(amax, 6.0);
        // The format has no code for what is not a number; it stays as it is, so that it is noticed.
        for v in part.iter_mut().filter(|v| !v.is_nan()) {
            *v = E2M1[e2m1_encode(*v / scale) as usize] * scale;
        }
    }
}

/// Walsh-Hadamard transform in Sylvester order, times `n^-0.5`, in place. `x.len()` is a power of two.
pub fn hadamard(x: &mut [f32]) {
    let n = x.len();
    debug_assert!(n.is_power_of_two());
    let mut half = 1;
    while half < n {
        for pair in x.chunks_exact_mut(2 * half) {
            let (a, b) = pair.split_at_mut(half);
            for (p, q) in a.iter_mut().zip(b) {
                (*p, *q) = (*p + *q, *p - *q);
            }
        }
        half *= 2;
    }
    let scale = (1.0 / (n as f64).sqrt()) as f32;
    for v in x {
        *v *= scale;
    }
}
