//! Small vector functions: dot products, norms, rotations, and the scalar functions of the network.

use crate::dispatch::wide;
use crate::lanes::LANES;

wide! {
    /// Dot product of two slices of equal length, over [`LANES`] partial sums.
    pub fn dot<S>(a: &[f32], b: &[f32]) -> f32 {
        S::dot(a, b)
    }
}

wide! {
    /// `out += factor * x`.
    pub fn add_scaled<S>(out: &mut [f32], factor: f32, x: &[f32]) {
        for (o, v) in out.iter_mut().zip(x) {
            *o += factor * v;
        }
    }
}

/// `1 / sqrt(mean(x^2) + eps)`.
pub fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    1.0 / (dot(x, x) / x.len() as f32 + eps).sqrt()
}

/// RMS norm without a weight, in place.
pub fn rms_in_place(x: &mut [f32], eps: f32) {
    let r = inverse_rms(x, eps);
    for v in x {
        *v *= r;
    }
}

/// RMS norm with a weight: `out = x / rms(x) * weight`.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let r = inverse_rms(x, eps);
    for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
        *o = v * r * w;
    }
}

/// RMS norm with a weight, in place.
pub fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
    let r = inverse_rms(x, eps);
    for (v, w) in x.iter_mut().zip(weight) {
        *v = *v * r * w;
    }
}

/// Rotates the last `2 * cos.len()` channels of `x` in interleaved pairs (2i, 2i+1): `(a, b) -> (a cos - b sin, a sin + b cos)`.
pub fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let from = x.len() - 2 * cos.len();
    let (pairs, _) = x[from..].as_chunks_mut::<2>();
    for ((pair, c), s) in pairs.iter_mut().zip(cos).zip(sin) {
        let [a, b] = *pair;
        *pair = [a * c - b * s, a * s + b * c];
    }
}

/// The inverse of [`rotate`].
pub fn rotate_back(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let from = x.len() - 2 * cos.len();
    let (pairs, _) = x[from..].as_chunks_mut::<2>();
    for ((pair, c), s) in pairs.iter_mut().zip(cos).zip(sin) {
        let [a, b] = *pair;
        *pair = [a * c + b * s, b * c - a * s];
    }
}

/// `e^x`, the same bits on every machine.
#[inline]
pub fn exp(x: f32) -> f32 {
    libm::expf(x)
}

/// Logistic function, without overflow on either side.
#[inline]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + libm::expf(-x))
}

/// `ln(1 + e^x)`, without overflow on either side.
#[inline]
pub fn softplus(x: f32) -> f32 {
    x.max(0.0) + libm::log1pf(libm::expf(-x.abs()))
}

/// `x * sigmoid(x)`.
#[inline]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// Whether every value is finite.
pub fn all_finite(x: &[f32]) -> bool {
    // Zero times anything finite is zero; times NaN or infinity it is NaN. Addition keeps NaN, so one pass without branches.
    let zeros = [0.0f32; LANES];
    let (blocks, tail) = x.as_chunks::<LANES>();
    let mut lanes = zeros;
    for block in blocks {
        for l in 0..LANES {
            lanes[l] += block[l] * 0.0;
        }
    }
    lanes.iter().chain(tail).all(|v| v.is_finite())
}
