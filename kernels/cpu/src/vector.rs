//! Small vector functions: dot products, norms, rotations, and the scalar functions of the network.

use crate::dispatch::wide;
use crate::lanes::{LANES, Lanes};

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

wide! {
    /// `x *= factor`.
    pub fn scale_by<S>(x: &mut [f32], factor: f32) {
        for v in x {
            *v *= factor;
        }
    }
}

wide! {
    /// `1 / sqrt(mean(x^2) + eps)`.
    pub fn inverse_rms<S>(x: &[f32], eps: f32) -> f32 {
        inverse_rms_of::<S>(x, eps)
    }
}

/// The same for the functions here: asking for a level in one that runs at a level would not end in the self-test.
#[inline(always)]
fn inverse_rms_of<S: Lanes>(x: &[f32], eps: f32) -> f32 {
    1.0 / (S::dot(x, x) / x.len() as f32 + eps).sqrt()
}

wide! {
    /// RMS norm without a weight, in place.
    pub fn rms_in_place<S>(x: &mut [f32], eps: f32) {
        let r = inverse_rms_of::<S>(x, eps);
        for v in x {
            *v *= r;
        }
    }
}

wide! {
    /// RMS norm without a weight.
    pub fn rms<S>(x: &[f32], eps: f32, out: &mut [f32]) {
        let r = inverse_rms_of::<S>(x, eps);
        for (o, v) in out.iter_mut().zip(x) {
            *o = v * r;
        }
    }
}

wide! {
    /// RMS norm with a weight: `out = x / rms(x) * weight`.
    pub fn rms_norm<S>(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let r = inverse_rms_of::<S>(x, eps);
        for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
            *o = v * r * w;
        }
    }
}

wide! {
    /// RMS norm with a weight, in place.
    pub fn rms_norm_in_place<S>(x: &mut [f32], weight: &[f32], eps: f32) {
        let r = inverse_rms_of::<S>(x, eps);
        for (v, w) in x.iter_mut().zip(weight) {
            *v = *v * r * w;
        }
    }
}

wide! {
    /// Rotates the last `2 * cos.len()` channels of `x` in interleaved pairs (2i, 2i+1): `(a, b) -> (a cos - b sin, a sin + b cos)`.
    pub fn rotate<S>(x: &mut [f32], cos: &[f32], sin: &[f32]) {
        let from = x.len() - 2 * cos.len();
        let (pairs, _) = x[from..].as_chunks_mut::<2>();
        for ((pair, c), s) in pairs.iter_mut().zip(cos).zip(sin) {
            let [a, b] = *pair;
            *pair = [a * c - b * s, a * s + b * c];
        }
    }
}

wide! {
    /// The inverse of [`rotate`].
    pub fn rotate_back<S>(x: &mut [f32], cos: &[f32], sin: &[f32]) {
        let from = x.len() - 2 * cos.len();
        let (pairs, _) = x[from..].as_chunks_mut::<2>();
        for ((pair, c), s) in pairs.iter_mut().zip(cos).zip(sin) {
            let [a, b] = *pair;
            *pair = [a * c + b * s, b * c - a * s];
        }
    }
}

/// `e^x` within two units of the last place, the same bits on every machine and in every width of registers: only multiplications, additions and
/// selections, so a loop over it is compiled for whole vectors. Infinity above 88.3 and zero below -87.3, where an `f32` ends or is subnormal.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves an integer in the low bits.
    const LN2_HIGH: f32 = 0.693_359_4; // Few bits, so that its product with a small integer is exact.
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let (low, high) = (x < -87.3, x > 88.3);
    // What is not a number is neither, and stays.
    let inside = if low { -87.3 } else { x };
    let inside = if high { 88.3 } else { inside };
    let steps = inside * std::f32::consts::LOG2_E + ROUND;
    let n = steps - ROUND;
    let r = inside - n * LN2_HIGH - n * LN2_LOW;
    // Cephes' polynomial for |r| <= ln 2 / 2.
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let value = p * (r * r) + r + 1.0;
    let exponent = steps.to_bits().wrapping_sub(ROUND.to_bits());
    let power = f32::from_bits(exponent.wrapping_add(127) << 23);
    let value = value * power;
    let value = if low { 0.0 } else { value };
    if high { f32::INFINITY } else { value }
}

/// Logistic function, without overflow on either side.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `sqrt(ln(1 + e^x))` within a few units of the last place, without overflow on either side.
#[inline(always)]
fn sqrt_softplus_of(x: f32) -> f32 {
    // ln(1 + y) = 2 artanh(y / (2 + y)), whose series converges fast: y is at most 1, the square of its argument at most 1/9.
    let y = exp(-x.abs());
    let s = y / (2.0 + y);
    let z = s * s;
    let mut p = 1.0 / 15.0;
    for divisor in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        p = p * z + 1.0 / divisor;
    }
    let positive = if x > 0.0 { x } else { 0.0 };
    let root = (positive + 2.0 * s * p).sqrt();
    // Below, the logarithm is y itself, whose root is there where y is none any more.
    if x < -17.0 { exp(0.5 * x) } else { root }
}

wide! {
    /// `sqrt(ln(1 + e^x))` of each number.
    pub fn sqrt_softplus<S>(x: &mut [f32]) {
        for v in x {
            *v = sqrt_softplus_of(*v);
        }
    }
}

/// `e^x` of a number that is not positive, within two units of the last place, as [`exp`] is computed. Zero below -708, where an `f64` is subnormal.
#[inline(always)]
fn exp_f64(x: f64) -> f64 {
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let low = x < -708.0;
    let inside = if low { -708.0 } else { x };
    let steps = inside * std::f64::consts::LOG2_E + ROUND;
    let n = steps - ROUND;
    let r = inside - n * LN2_HIGH - n * LN2_LOW;
    // Taylor's polynomial: with |r| <= ln 2 / 2 its first term left out is below 2^-57.
    let mut p = 1.0 / 6_227_020_800.0;
    for divisor in [
        479_001_600.0,
        39_916_800.0,
        3_628_800.0,
        362_880.0,
        40_320.0,
        5_040.0,
        720.0,
        120.0,
        24.0,
        6.0,
        2.0,
        1.0,
        1.0,
    ] {
        p = p * r + 1.0 / divisor;
    }
    let exponent = steps.to_bits().wrapping_sub(ROUND.to_bits());
    let power = f64::from_bits(exponent.wrapping_add(1023) << 52);
    if low { 0.0 } else { p * power }
}

wide! {
    /// `out = e^((x - top) / temperature)`, in `f64`; x are numbers up to `top`, or minus infinity. As many as the shorter of both.
    pub fn boltzmann<S>(x: &[f32], top: f32, temperature: f64, out: &mut [f64]) {
        for (o, v) in out.iter_mut().zip(x) {
            *o = exp_f64((f64::from(*v) - f64::from(top)) / temperature);
        }
    }
}

wide! {
    /// The largest of some numbers and `least`. What is not a number is passed over.
    pub fn largest<S>(x: &[f32], least: f32) -> f32 {
        let mut lanes = [least; LANES];
        let (blocks, tail) = x.as_chunks::<LANES>();
        for block in blocks {
            for l in 0..LANES {
                lanes[l] = if block[l] > lanes[l] { block[l] } else { lanes[l] };
            }
        }
        for (lane, v) in lanes.iter_mut().zip(tail) {
            *lane = if *v > *lane { *v } else { *lane };
        }
        lanes.iter().fold(least, |a, v| if *v > a { *v } else { a })
    }
}

wide! {
    /// `gate = silu(min(gate, limit)) * clamp(up, -limit, limit) * weight`; what is not a number stays so.
    pub fn swiglu<S>(gate: &mut [f32], up: &[f32], limit: f32, weight: f32) {
        for (g, u) in gate.iter_mut().zip(up) {
            // Not `min`, which would turn what is not a number into the limit.
            let bounded = if *g > limit { limit } else { *g };
            *g = bounded * sigmoid(bounded) * u.clamp(-limit, limit) * weight;
        }
    }
}

wide! {
    /// Turns scores into `e^(score - top)` and returns their sum, added one after the other in [`LANES`] sums and these as a tree.
    pub fn exp_sum<S>(scores: &mut [f32], top: f32) -> f32 {
        for s in scores.iter_mut() {
            *s = exp(*s - top);
        }
        let mut sums = [0.0; LANES];
        let (blocks, tail) = scores.as_chunks::<LANES>();
        for block in blocks {
            for l in 0..LANES {
                sums[l] += block[l];
            }
        }
        for (sum, v) in sums.iter_mut().zip(tail) {
            *sum += v;
        }
        let mut width = LANES / 2;
        while width > 0 {
            for l in 0..width {
                sums[l] += sums[l + width];
            }
            width /= 2;
        }
        sums[0]
    }
}

wide! {
    /// `top = max(top, x)`, of numbers.
    pub fn max_into<S>(top: &mut [f32], x: &[f32]) {
        for (t, v) in top.iter_mut().zip(x) {
            *t = if *v > *t { *v } else { *t };
        }
    }
}

wide! {
    /// One entry of a softmax for each channel: `w = e^(score - top)`, `sum += w`, `out += w x`.
    pub fn pool<S>(score: &[f32], top: &[f32], x: &[f32], sum: &mut [f32], out: &mut [f32]) {
        let entries = score.iter().zip(top).zip(x);
        for (((score, top), x), (sum, out)) in entries.zip(sum.iter_mut().zip(out)) {
            let weight = exp(score - top);
            *sum += weight;
            *out += weight * x;
        }
    }
}

wide! {
    /// The sum over heads of `max(score, 0) * weight` for each column: scores [heads, stride], out as many columns as it is long.
    pub fn positive_sum<S>(scores: &[f32], stride: usize, weights: &[f32], out: &mut [f32]) {
        out.fill(0.0);
        for (scores, weight) in scores.chunks(stride).zip(weights) {
            for (o, s) in out.iter_mut().zip(scores) {
                // Not `max`, which would turn what is not a number into zero.
                let positive = if *s < 0.0 { 0.0 } else { *s };
                *o += positive * weight;
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_of_a_router_is_near_the_exact_value_on_both_sides() {
        let x: Vec<f32> = (-16_000..=16_000)
            .map(|i| i as f32 / 100.0 + 0.003)
            .collect();
        let mut score = x.clone();
        sqrt_softplus(&mut score);
        for (x, score) in x.iter().zip(score) {
            let exact = libm::sqrt(libm::log1p(libm::exp(f64::from(*x))));
            let error = (f64::from(score) - exact).abs() / exact;
            assert!(error < 4e-7, "{x}: {score}, {exact}");
        }
        let mut edges = [0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::NAN];
        sqrt_softplus(&mut edges);
        assert_eq!(edges[0], std::f32::consts::LN_2.sqrt());
        assert_eq!(edges[1..3], [f32::INFINITY, 0.0]);
        assert_eq!(edges[3], f32::MAX.sqrt());
        assert!(edges[4].is_nan());
    }

    #[test]
    fn weights_of_tokens_are_near_the_exact_value() {
        let logits: Vec<f32> = (0..9_000).map(|i| 3.5 - i as f32 * 0.0471).collect();
        for temperature in [1.0, 0.31, 2.5, 1e-4] {
            let mut weights = vec![f64::NAN; logits.len()];
            boltzmann(&logits, 3.5, temperature, &mut weights);
            assert_eq!(weights[0], 1.0);
            for (x, weight) in logits.iter().zip(weights) {
                let exact = libm::exp((f64::from(*x) - 3.5) / temperature);
                assert!((weight - exact).abs() <= 1e-15 * exact + 1e-307, "{x}");
            }
        }
        let mut none = [1.0];
        boltzmann(&[f32::NEG_INFINITY], 0.0, 1.0, &mut none);
        assert_eq!(none, [0.0]);
    }

    #[test]
    fn the_largest_is_found_wherever_it_is_and_what_is_not_a_number_is_not_it() {
        for length in [1, 31, 32, 33, 100] {
            for at in 0..length {
                let mut x: Vec<f32> = (0..length).map(|i| -(i as f32) - 2.0).collect();
                x[at] = -1.0;
                x[(at + 1) % length] = if length > 1 { f32::NAN } else { -1.0 };
                assert_eq!(largest(&x, f32::NEG_INFINITY), -1.0);
                assert_eq!(largest(&x, -0.5), -0.5);
            }
        }
        assert_eq!(largest(&[], 3.0), 3.0);
    }

    #[test]
    fn exp_is_near_the_exact_value_and_keeps_its_edges() {
        for i in -8700..=8800 {
            let x = i as f32 / 100.0 + 0.003;
            let exact = libm::exp(f64::from(x));
            let error = (f64::from(exp(x)) / exact - 1.0).abs();
            assert!(error < 2.4e-7, "{x}: {error}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1000.0), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(100.0), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(sigmoid(-200.0), 0.0);
        assert_eq!(sigmoid(200.0), 1.0);
    }

    #[test]
    fn swiglu_bounds_what_it_should_and_hides_no_nan() {
        let mut gate = [0.0, 1.0, -1.0, 100.0, f32::NAN, 2.0, -100.0];
        let up = [1.0, 2.0, 3.0, -100.0, 1.0, f32::NAN, 5.0];
        let silu = |x: f64| x / (1.0 + libm::exp(-x));
        swiglu(&mut gate, &up, 7.0, 0.5);
        let expected = [
            0.0,
            silu(1.0),
            1.5 * silu(-1.0),
            -3.5 * silu(7.0),
            f64::NAN,
            f64::NAN,
            0.0,
        ];
        for (v, e) in gate.iter().zip(expected) {
            let near = (f64::from(*v) - e).abs() < 1e-5;
            assert!(near || e.is_nan() && v.is_nan(), "{v} {e}");
        }
    }

    #[test]
    fn every_level_gives_the_bits_of_the_baseline() {
        use crate::dispatch::Level;
        let values: Vec<f32> = (0..1000)
            .map(|i| (i * 37 % 1009) as f32 / 9.0 - 56.0)
            .collect();
        crate::dispatch::wide_at! {
            fn both<S>(x: &mut [f32], up: &[f32]) -> f32 {
                for (x, u) in x.iter_mut().zip(up) {
                    *x = exp(*x) + sigmoid(*u);
                }
                S::dot(x, up)
            }
        }
        let run = |level| {
            let mut x = values.clone();
            let sum = both(level, &mut x, &values);
            x.push(sum);
            x.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        };
        for level in Level::ALL {
            assert!(run(level) == run(Level::Baseline), "{level:?}");
        }
    }
}
