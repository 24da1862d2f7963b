//! What the machine can do at most: reading memory, and fused multiply-adds.

use std::hint::black_box;

use fastar_kernels::team;

/// Bytes a thread reads at a time.
const PART: usize = 1 << 18;

/// Reserves memory in huge pages where the system gives them: with small ones, looking up addresses costs a quarter of the speed and more.
pub fn reserve_huge(data: &mut Vec<u8>, bytes: usize) {
    data.reserve_exact(bytes);
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let start = data.as_mut_ptr().cast::<std::ffi::c_void>();
        let skip = start.align_offset(PAGE);
        if let Some(length) = bytes.checked_sub(skip) {
            // SAFETY: the range lies in memory just reserved and not yet used; the advice changes how it is mapped, not what it holds.
            let advised = unsafe {
                let advice = rustix::mm::Advice::LinuxHugepage;
                rustix::mm::madvise(start.byte_add(skip), length / PAGE * PAGE, advice)
            };
            if let Err(error) = advised {
                eprintln!("No huge pages: {error}.");
            }
        }
    }
}

/// Keeps the calling thread on one of the processors this process may use: two threads that take turns on one tell nothing about two.
pub fn stay_on(thread: usize) {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let Ok(allowed) = sched_getaffinity(None) else {
            return;
        };
        let mut processors = (0..CpuSet::MAX_CPU).filter(|p| allowed.is_set(*p));
        if let Some(processor) = processors.nth(thread) {
            let mut one = CpuSet::new();
            one.set(processor);
            if let Err(error) = sched_setaffinity(None, &one) {
                eprintln!("A thread cannot be kept on one processor: {error}.");
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = thread;
}

/// Reads every byte once, with the whole team of the current thread.
pub fn read(bytes: &[u8]) {
    let parts: Vec<&[u8]> = bytes.chunks(PART).collect();
    team::for_each(parts.len(), |i| {
        black_box(sum(parts[i]));
    });
}

/// Adds up eight-byte words, with the widest registers there are and the memory asked for ahead, as the kernels do.
fn sum(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 has just been found.
        return unsafe { sum_avx2(bytes) };
    }
    let (words, _) = bytes.as_chunks::<8>();
    words
        .iter()
        .fold(0, |a, w| a.wrapping_add(u64::from_le_bytes(*w)))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> u64 {
    use std::arch::x86_64::*;
    let mut sums = [_mm256_setzero_si256(); 4];
    for block in bytes.as_chunks::<128>().0 {
        let ahead = block.as_ptr().wrapping_add(4096);
        _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64).cast());
        for (sum, part) in sums.iter_mut().zip(block.as_chunks::<32>().0) {
            // SAFETY: the load covers the 32 bytes.
            let part = unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
            *sum = _mm256_add_epi64(*sum, part);
        }
    }
    let [a, b, c, d] = sums;
    let sum = _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d));
    _mm256_extract_epi64::<0>(sum) as u64
}

/// Does about this many multiply-adds on the calling thread, as fast as the registers allow, and says how many.
pub fn multiply_add(about: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: AVX2 and FMA have just been found.
        return unsafe { multiply_add_avx2(about) };
    }
    let mut sums = [0.0f32; 64];
    for _ in 0..about / 64 {
        for s in &mut sums {
            *s = s.mul_add(black_box(0.5), 1.0);
        }
    }
    black_box(sums);
    about / 64 * 64
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_add_avx2(about: usize) -> usize {
    use std::arch::x86_64::*;
    // Twelve chains hide the latency of four cycles on two units, with room to spare.
    let mut sums = [_mm256_set1_ps(1.0); 12];
    let (a, b) = (
        black_box(_mm256_set1_ps(0.5)),
        black_box(_mm256_set1_ps(0.25)),
    );
    let rounds = about / (12 * 8);
    for _ in 0..rounds {
        for s in &mut sums {
            *s = _mm256_fmadd_ps(*s, a, b);
        }
    }
    black_box(sums);
    rounds * 12 * 8
}
