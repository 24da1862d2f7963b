//! The dot product on each instruction set.
//!
//! Left to itself the compiler keeps 32 partial sums in 32 scalar registers, so the inner loop is written out for each set. All versions
//! multiply and add the same pairs in the same order and round each step (no fused operations): the bits are equal, which a test checks.

use crate::fused::Fused;

/// Partial sums a dot product keeps: enough independent chains to hide the latency of an addition on any of our targets. Part of the
/// definition of every result; changing it changes last bits.
pub const LANES: usize = 32;

/// One instruction set's dot product.
pub(crate) trait Lanes: Fused {
    /// Products of elements whose index is equal modulo [`LANES`] are added one after the other, starting from zero; then the 32 sums as a
    /// balanced tree: `l` and `l + 16`, then `l` and `l + 8`, down to 0 and 1. Slices of equal length.
    fn dot(a: &[f32], b: &[f32]) -> f32;
}

/// What the compiler's target guarantees; the definition.
pub(crate) struct Plain;

impl Lanes for Plain {
    #[inline(always)]
    fn dot(a: &[f32], b: &[f32]) -> f32 {
        let mut sums = [0.0; LANES];
        let (a, a_tail) = a.as_chunks::<LANES>();
        let (b, b_tail) = b.as_chunks::<LANES>();
        for (x, y) in a.iter().zip(b) {
            for l in 0..LANES {
                sums[l] += x[l] * y[l];
            }
        }
        finish(sums, a_tail, b_tail)
    }
}

/// The elements after the last whole block, and the tree.
#[inline(always)]
fn finish(mut sums: [f32; LANES], a_tail: &[f32], b_tail: &[f32]) -> f32 {
    for ((sum, x), y) in sums.iter_mut().zip(a_tail).zip(b_tail) {
        *sum += x * y;
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

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{LANES, Lanes, finish};

    /// The tree over the last eight sums.
    ///
    /// # Safety
    /// AVX2 is there.
    #[inline(always)]
    unsafe fn tree_of_eight(s: __m256) -> f32 {
        // SAFETY: promised by the caller; these work on registers only.
        unsafe {
            let s = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
            let s = _mm_add_ps(s, _mm_movehl_ps(s, s));
            _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)))
        }
    }

    /// Four registers of eight. Only used inside functions compiled for AVX2.
    pub(crate) struct Avx2;

    impl Lanes for Avx2 {
        #[inline(always)]
        fn dot(a: &[f32], b: &[f32]) -> f32 {
            let (a, a_tail) = a.as_chunks::<LANES>();
            let (b, b_tail) = b.as_chunks::<LANES>();
            // SAFETY: `dispatch::wide_at` uses this type only after it has found AVX2; every load and store covers eight of the 32 values of
            // one block, and unaligned addresses are allowed.
            unsafe {
                let zero = _mm256_setzero_ps();
                let (mut s0, mut s1, mut s2, mut s3) = (zero, zero, zero, zero);
                for (x, y) in a.iter().zip(b) {
                    let (x, y) = (x.as_ptr(), y.as_ptr());
                    let p0 = _mm256_mul_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(y));
                    let p1 = _mm256_mul_ps(_mm256_loadu_ps(x.add(8)), _mm256_loadu_ps(y.add(8)));
                    let p2 = _mm256_mul_ps(_mm256_loadu_ps(x.add(16)), _mm256_loadu_ps(y.add(16)));
                    let p3 = _mm256_mul_ps(_mm256_loadu_ps(x.add(24)), _mm256_loadu_ps(y.add(24)));
                    s0 = _mm256_add_ps(s0, p0);
                    s1 = _mm256_add_ps(s1, p1);
                    s2 = _mm256_add_ps(s2, p2);
                    s3 = _mm256_add_ps(s3, p3);
                }
                if a_tail.is_empty() {
                    let s = _mm256_add_ps(_mm256_add_ps(s0, s2), _mm256_add_ps(s1, s3));
                    return tree_of_eight(s);
                }
                let mut sums = [0.0; LANES];
                let out = sums.as_mut_ptr();
                _mm256_storeu_ps(out, s0);
                _mm256_storeu_ps(out.add(8), s1);
                _mm256_storeu_ps(out.add(16), s2);
                _mm256_storeu_ps(out.add(24), s3);
                finish(sums, a_tail, b_tail)
            }
        }
    }

    /// Two registers of sixteen. Only used inside functions compiled for AVX-512.
    pub(crate) struct Avx512;

    impl Lanes for Avx512 {
        #[inline(always)]
        fn dot(a: &[f32], b: &[f32]) -> f32 {
            let (a, a_tail) = a.as_chunks::<LANES>();
            let (b, b_tail) = b.as_chunks::<LANES>();
            // SAFETY: `dispatch::wide_at` uses this type only after it has found AVX-512 F, BW, VL and DQ; every load and store covers
            // sixteen of the 32 values of one block, and unaligned addresses are allowed.
            unsafe {
                let (mut s0, mut s1) = (_mm512_setzero_ps(), _mm512_setzero_ps());
                for (x, y) in a.iter().zip(b) {
                    let (x, y) = (x.as_ptr(), y.as_ptr());
                    let p0 = _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_loadu_ps(y));
                    let p1 = _mm512_mul_ps(_mm512_loadu_ps(x.add(16)), _mm512_loadu_ps(y.add(16)));
                    s0 = _mm512_add_ps(s0, p0);
                    s1 = _mm512_add_ps(s1, p1);
                }
                if a_tail.is_empty() {
                    let s = _mm512_add_ps(s0, s1);
                    let low = _mm512_castps512_ps256(s);
                    let high = _mm512_extractf32x8_ps::<1>(s);
                    return tree_of_eight(_mm256_add_ps(low, high));
                }
                let mut sums = [0.0; LANES];
                _mm512_storeu_ps(sums.as_mut_ptr(), s0);
                _mm512_storeu_ps(sums.as_mut_ptr().add(16), s1);
                finish(sums, a_tail, b_tail)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_gives_the_bits_of_the_definition() {
        let values = |seed: u32| -> Vec<f32> {
            (0..32 * 9 + 31)
                .map(|i| ((seed + i * 101) % 997) as f32 / 313.0 - 1.5)
                .collect()
        };
        let (a, b) = (values(3), values(500));
        for length in [0, 1, 31, 32, 33, 64, 95, 256, 300, a.len()] {
            let (a, b) = (&a[..length], &b[..length]);
            // Written out once more, kept from the optimiser's hands.
            let mut sums = [0.0f32; LANES];
            for i in 0..length {
                let product = std::hint::black_box(a[i] * b[i]);
                sums[i % LANES] = std::hint::black_box(sums[i % LANES] + product);
            }
            for width in [16, 8, 4, 2, 1] {
                for l in 0..width {
                    sums[l] += sums[l + width];
                }
            }
            let bits = sums[0].to_bits();
            assert_eq!(Plain::dot(a, b).to_bits(), bits, "plain, {length}");
            #[cfg(target_arch = "x86_64")]
            {
                if std::arch::is_x86_feature_detected!("avx2") {
                    assert_eq!(Avx2::dot(a, b).to_bits(), bits, "AVX2, {length}");
                }
                if std::arch::is_x86_feature_detected!("avx512dq") {
                    assert_eq!(Avx512::dot(a, b).to_bits(), bits, "AVX-512, {length}");
                }
            }
        }
    }
}
