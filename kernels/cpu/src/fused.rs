//! Sixteen `f32` in one or two registers, with the fused multiply-add, and the stored formats loaded into them.
//!
//! What the products of [`dense`](crate::dense) are made of. A fused operation rounds once, by definition and everywhere, so every
//! implementation gives the same bits; a test checks it.
//!
//! Weights come a cache line at a time: lane `l` holds the elements of its word `l`, one after the other, because taking the
//! same byte out of every word needs shifts and masks only, while spreading bytes in order needs shuffles, of which there are few units. Whoever
//! multiplies puts the vector into the same order once.

use crate::dispatch::Level;

/// Numbers in a vector.
pub(crate) const WIDTH: usize = 16;
/// Most registers a vector takes.
pub(crate) const MOST_PARTS: usize = 2;
/// Bytes of a cache line: a word for each lane.
pub(crate) const LINE: usize = 4 * WIDTH;

/// FP8 weights come 2^-120 too small out of [`Fused::fp8`].
pub(crate) const FP8_SMALL: i32 = -120;

/// One instruction set's registers and what is done with them. A vector of sixteen is one or two of them: its parts.
pub(crate) trait Fused {
    /// The set.
    const LEVEL: Level;
    /// One register.
    type Part: Copy;
    /// Parts of a vector, at most [`MOST_PARTS`].
    const PARTS: usize;
    /// Tokens whose sums of one part, for four rows, fit the registers together.
    const TOKENS: usize;

    fn zero() -> Self::Part;
    fn splat(x: f32) -> Self::Part;
    fn load(x: &[f32; WIDTH], part: usize) -> Self::Part;
    fn store(v: Self::Part, to: &mut [f32; WIDTH], part: usize);
    fn mul(a: Self::Part, b: Self::Part) -> Self::Part;
    /// `a * b + c`, rounded once.
    fn fma(a: Self::Part, b: Self::Part, c: Self::Part) -> Self::Part;
    /// A part of e4m3 codes as [`small_fp8`].
    fn fp8(line: &[u8; LINE], part: usize) -> [Self::Part; 4];
    /// The same of BF16.
    fn bf16(line: &[u8; LINE], part: usize) -> [Self::Part; 2];
    /// The same of F32.
    fn f32(line: &[u8; LINE], part: usize) -> Self::Part;
    /// Asks for the line `ahead` bytes after the start of `at`, which may lie beyond its end, to come into the second-level cache.
    fn prefetch(at: &[u8], ahead: usize);
}

/// Lanes `l` and `l + 8` are added, then `l` and `l + 4`, down to 0 and 1.
#[inline(always)]
pub(crate) fn tree(mut v: [f32; WIDTH]) -> f32 {
    for width in [8, 4, 2, 1] {
        for l in 0..width {
            v[l] += v[l + width];
        }
    }
    v[0]
}

/// An e4m3 code times 2^-120, exactly: its exponent put where `f32` has its own, without moving the bias from 7 to 127. What is subnormal in
/// e4m3 is subnormal in `f32`. The two NaN codes come out as +-480 (see [`e4m3_nan`](crate::format::e4m3_nan)).
#[inline(always)]
fn small_fp8(code: u8) -> f32 {
    f32::from_bits(u32::from(code & 0x80) << 24 | u32::from(code & 0x7F) << 20)
}

impl Fused for crate::lanes::Plain {
    const LEVEL: Level = Level::Baseline;
    type Part = [f32; WIDTH];
    const PARTS: usize = 1;
    const TOKENS: usize = 1;

    #[inline(always)]
    fn zero() -> Self::Part {
        [0.0; WIDTH]
    }
    #[inline(always)]
    fn splat(x: f32) -> Self::Part {
        [x; WIDTH]
    }
    #[inline(always)]
    fn load(x: &[f32; WIDTH], _: usize) -> Self::Part {
        *x
    }
    #[inline(always)]
    fn store(v: Self::Part, to: &mut [f32; WIDTH], _: usize) {
        *to = v;
    }
    #[inline(always)]
    fn mul(a: Self::Part, b: Self::Part) -> Self::Part {
        std::array::from_fn(|l| a[l] * b[l])
    }
    #[inline(always)]
    fn fma(a: Self::Part, b: Self::Part, c: Self::Part) -> Self::Part {
        std::array::from_fn(|l| a[l].mul_add(b[l], c[l]))
    }
    #[inline(always)]
    fn fp8(line: &[u8; LINE], _: usize) -> [Self::Part; 4] {
        std::array::from_fn(|i| std::array::from_fn(|l| small_fp8(line[4 * l + i])))
    }
    #[inline(always)]
    fn bf16(line: &[u8; LINE], _: usize) -> [Self::Part; 2] {
        let (pairs, _) = line.as_chunks::<2>();
        let at = |i: usize| crate::format::bf16(u16::from_le_bytes(pairs[i]));
        std::array::from_fn(|i| std::array::from_fn(|l| at(2 * l + i)))
    }
    #[inline(always)]
    fn f32(line: &[u8; LINE], _: usize) -> Self::Part {
        let (fours, _) = line.as_chunks::<4>();
        std::array::from_fn(|l| f32::from_le_bytes(fours[l]))
    }
    #[inline(always)]
    fn prefetch(_: &[u8], _: usize) {}
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    // No closures in here: a closure that is not inlined is compiled without the instruction set.
    use std::arch::x86_64::*;

    use super::{Fused, LINE, Level, WIDTH};
    use crate::lanes::{Avx2, Avx512};

    #[inline(always)]
    fn prefetch(at: &[u8], ahead: usize) {
        // SAFETY: a prefetch reads nothing; any address may be given.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.as_ptr().wrapping_add(ahead).cast()) }
    }

    /// Only used inside functions compiled for AVX2 and FMA. A part is half a vector.
    impl Fused for Avx2 {
        const LEVEL: Level = Level::Avx2;
        type Part = __m256;
        const PARTS: usize = 2;
        const TOKENS: usize = 3;

        #[inline(always)]
        fn zero() -> __m256 {
            // SAFETY: `dispatch::wide_at` uses this type only after it has found AVX2 and FMA.
            unsafe { _mm256_setzero_ps() }
        }
        #[inline(always)]
        fn splat(x: f32) -> __m256 {
            // SAFETY: as in `zero`.
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        fn load(x: &[f32; WIDTH], part: usize) -> __m256 {
            let half = &x.as_chunks::<8>().0[part];
            // SAFETY: as in `zero`; the load covers the half, at any alignment.
            unsafe { _mm256_loadu_ps(half.as_ptr()) }
        }
        #[inline(always)]
        fn store(v: __m256, to: &mut [f32; WIDTH], part: usize) {
            let half = &mut to.as_chunks_mut::<8>().0[part];
            // SAFETY: as in `zero`; the store covers the half, at any alignment.
            unsafe { _mm256_storeu_ps(half.as_mut_ptr(), v) }
        }
        #[inline(always)]
        fn mul(a: __m256, b: __m256) -> __m256 {
            // SAFETY: as in `zero`.
            unsafe { _mm256_mul_ps(a, b) }
        }
        #[inline(always)]
        fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
            // SAFETY: as in `zero`.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        fn fp8(line: &[u8; LINE], part: usize) -> [__m256; 4] {
            let half = &line.as_chunks::<32>().0[part];
            // SAFETY: as in `zero`; the load covers the half, at any alignment.
            unsafe {
                let bytes = _mm256_loadu_si256(half.as_ptr().cast());
                // A signed byte times 16 has its seven bits where the upper half of an `f32` has them, and its sign on top. A
                // multiplication does in one operation what takes two shifts, and its units are the idle ones.
                let even = _mm256_maddubs_epi16(_mm256_set1_epi16(0x0010), bytes);
                let odd = _mm256_maddubs_epi16(_mm256_set1_epi16(0x1000), bytes);
                let keep = _mm256_set1_epi32(0x87F0_0000_u32 as i32);
                [
                    _mm256_castsi256_ps(_mm256_and_si256(_mm256_slli_epi32::<16>(even), keep)),
                    _mm256_castsi256_ps(_mm256_and_si256(_mm256_slli_epi32::<16>(odd), keep)),
                    _mm256_castsi256_ps(_mm256_and_si256(even, keep)),
                    _mm256_castsi256_ps(_mm256_and_si256(odd, keep)),
                ]
            }
        }
        #[inline(always)]
        fn bf16(line: &[u8; LINE], part: usize) -> [__m256; 2] {
            let half = &line.as_chunks::<32>().0[part];
            // SAFETY: as in `zero`; the load covers the half, at any alignment.
            unsafe {
                let pairs = _mm256_loadu_si256(half.as_ptr().cast());
                let upper = _mm256_set1_epi32(0xFFFF_0000_u32 as i32);
                [
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)),
                    _mm256_castsi256_ps(_mm256_and_si256(pairs, upper)),
                ]
            }
        }
        #[inline(always)]
        fn f32(line: &[u8; LINE], part: usize) -> __m256 {
            let half = &line.as_chunks::<32>().0[part];
            // SAFETY: as in `zero`; the load covers the half, at any alignment.
            unsafe { _mm256_loadu_ps(half.as_ptr().cast()) }
        }
        #[inline(always)]
        fn prefetch(at: &[u8], ahead: usize) {
            prefetch(at, ahead);
        }
    }

    /// Only used inside functions compiled for AVX-512 F, BW, VL and DQ. A part is a whole vector.
    impl Fused for Avx512 {
        const LEVEL: Level = Level::Avx512;
        type Part = __m512;
        const PARTS: usize = 1;
        const TOKENS: usize = 6;

        #[inline(always)]
        fn zero() -> __m512 {
            // SAFETY: `dispatch::wide_at` uses this type only after it has found AVX-512 F, BW, VL and DQ.
            unsafe { _mm512_setzero_ps() }
        }
        #[inline(always)]
        fn splat(x: f32) -> __m512 {
            // SAFETY: as in `zero`.
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        fn load(x: &[f32; WIDTH], _: usize) -> __m512 {
            // SAFETY: as in `zero`; the load covers the sixteen, at any alignment.
            unsafe { _mm512_loadu_ps(x.as_ptr()) }
        }
        #[inline(always)]
        fn store(v: __m512, to: &mut [f32; WIDTH], _: usize) {
            // SAFETY: as in `zero`; the store covers the sixteen, at any alignment.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) }
        }
        #[inline(always)]
        fn mul(a: __m512, b: __m512) -> __m512 {
            // SAFETY: as in `zero`.
            unsafe { _mm512_mul_ps(a, b) }
        }
        #[inline(always)]
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: as in `zero`.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        fn fp8(line: &[u8; LINE], _: usize) -> [__m512; 4] {
            // SAFETY: as in `zero`; the load covers the line, at any alignment.
            unsafe {
                let bytes = _mm512_loadu_si512(line.as_ptr().cast());
                // As on AVX2.
                let even = _mm512_maddubs_epi16(_mm512_set1_epi16(0x0010), bytes);
                let odd = _mm512_maddubs_epi16(_mm512_set1_epi16(0x1000), bytes);
                let keep = _mm512_set1_epi32(0x87F0_0000_u32 as i32);
                [
                    _mm512_castsi512_ps(_mm512_and_si512(_mm512_slli_epi32::<16>(even), keep)),
                    _mm512_castsi512_ps(_mm512_and_si512(_mm512_slli_epi32::<16>(odd), keep)),
                    _mm512_castsi512_ps(_mm512_and_si512(even, keep)),
                    _mm512_castsi512_ps(_mm512_and_si512(odd, keep)),
                ]
            }
        }
        #[inline(always)]
        fn bf16(line: &[u8; LINE], _: usize) -> [__m512; 2] {
            // SAFETY: as in `zero`; the load covers the line, at any alignment.
            unsafe {
                let pairs = _mm512_loadu_si512(line.as_ptr().cast());
                let upper = _mm512_set1_epi32(0xFFFF_0000_u32 as i32);
                [
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)),
                    _mm512_castsi512_ps(_mm512_and_si512(pairs, upper)),
                ]
            }
        }
        #[inline(always)]
        fn f32(line: &[u8; LINE], _: usize) -> __m512 {
            // SAFETY: as in `zero`; the load covers the line, at any alignment.
            unsafe { _mm512_loadu_ps(line.as_ptr().cast()) }
        }
        #[inline(always)]
        fn prefetch(at: &[u8], ahead: usize) {
            prefetch(at, ahead);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::wide_at;
    use crate::format::{E4M3, bf16};

    wide_at! {
        fn decode<S>(line: &[u8; LINE], out: &mut [[f32; WIDTH]; 7]) {
            let large = S::splat(2f32.powi(-FP8_SMALL));
            for part in 0..S::PARTS {
                let (fp8, bf16) = (S::fp8(line, part), S::bf16(line, part));
                for i in 0..4 {
                    S::store(S::mul(fp8[i], large), &mut out[i], part);
                }
                S::store(bf16[0], &mut out[4], part);
                S::store(bf16[1], &mut out[5], part);
                S::store(S::f32(line, part), &mut out[6], part);
            }
        }
    }

    #[test]
    fn every_code_of_every_format_is_decoded_exactly_at_every_level() {
        let mut line = [0u8; LINE];
        for round in 0..=255u8 {
            for (i, b) in line.iter_mut().enumerate() {
                *b = round.wrapping_add((i * 41) as u8);
            }
            for level in Level::ALL {
                let mut out = [[0.0; WIDTH]; 7];
                decode(level, &line, &mut out);
                for l in 0..WIDTH {
                    for i in 0..4 {
                        let value = match line[4 * l + i] {
                            0x7F => 480.0,
                            0xFF => -480.0,
                            code => E4M3[code as usize],
                        };
                        assert_eq!(out[i][l].to_bits(), value.to_bits(), "{level:?}");
                    }
                    let four = line.as_chunks::<4>().0[l];
                    for (i, pair) in four.as_chunks::<2>().0.iter().enumerate() {
                        let value = bf16(u16::from_le_bytes(*pair));
                        assert_eq!(out[4 + i][l].to_bits(), value.to_bits(), "{level:?}");
                    }
                    assert_eq!(out[6][l].to_bits(), u32::from_le_bytes(four), "{level:?}");
                }
            }
        }
    }

    wide_at! {
        fn fused<S>(a: &[f32; WIDTH], b: &[f32; WIDTH], c: &mut [f32; WIDTH]) {
            for part in 0..S::PARTS {
                let sum = S::fma(S::load(a, part), S::load(b, part), S::load(c, part));
                S::store(sum, c, part);
            }
        }
    }

    #[test]
    fn a_product_is_rounded_once_and_the_lanes_are_summed_as_a_tree() {
        // (1 + 2^-12)^2 - 1 - 2^-11 is 2^-24: rounding the square first would lose it.
        let a = [1.0 + 1.0 / 4096.0; WIDTH];
        let c: [f32; WIDTH] = std::array::from_fn(|l| -1.0 - 1.0 / 2048.0 + l as f32 * 0.37);
        for level in Level::ALL {
            let mut sums = c;
            fused(level, &a, &a, &mut sums);
            assert_eq!(sums[0], 1.0 / 16_777_216.0);
            for l in 0..WIDTH {
                let exact = f64::from(a[l]) * f64::from(a[l]) + f64::from(c[l]);
                assert_eq!(sums[l], exact as f32, "{level:?}");
            }
            let pair = |l: usize| sums[l] + sums[l + 8];
            let four = |l: usize| pair(l) + pair(l + 4);
            assert_eq!(tree(sums), (four(0) + four(2)) + (four(1) + four(3)));
        }
    }
}
