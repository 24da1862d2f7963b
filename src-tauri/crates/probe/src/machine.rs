//! What processor and memory can do at most: reading, and fused multiply-adds. And what they are called.

use std::hint::black_box;

use fastar_kernels::dispatch::Level;
use fastar_kernels::team;

use crate::Threads;

/// Bytes a thread reads at a time.
const PART: usize = 1 << 18;

/// Processor time in seconds that those threads of this process have used whose names begin so; 0 where the system does not tell.
pub fn thread_seconds(prefix: &str) -> f64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return 0.0;
    };
    let used = threads.flatten().filter_map(|thread| {
        let text = |name: &str| std::fs::read_to_string(thread.path().join(name)).ok();
        // Time on a processor in nanoseconds, then other numbers.
        let time =
            text("schedstat").filter(|_| text("comm").is_some_and(|n| n.starts_with(prefix)))?;
        time.split_whitespace().next()?.parse::<u64>().ok()
    });
    used.sum::<u64>() as f64 / 1e9
}

/// Bytes of memory that this process has in use, as far as the system tells.
pub fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = value(&text, "VmRSS")?.strip_suffix(" kB")?;
    kilobytes.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// GB/s at which threads read `data`.
pub fn reading(threads: &Threads, data: &[u8]) -> f64 {
    data.len() as f64 / threads.seconds(|| read(data)) / 1e9
}

/// GFLOP/s of multiply-adds in `f32` on one thread, with the instruction set of `level`.
pub fn multiplying(thread: &Threads, level: Level) -> f64 {
    let mut done = 0;
    let seconds = thread.seconds(|| done = multiply_add(level, 1 << 29));
    2.0 * done as f64 / seconds / 1e9
}

/// Name of the processor, as far as the system tells.
pub fn processor() -> String {
    std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| value(&text, "model name").map(str::to_owned))
        .unwrap_or_else(|| format!("a processor of kind {}", std::env::consts::ARCH))
}

/// Bytes of memory of this machine, as far as the system tells.
pub fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes = value(&text, "MemTotal")?.strip_suffix(" kB")?;
    kilobytes.parse::<u64>().ok()?.checked_mul(1024)
}

/// The value of the first line `name : value`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

/// Reads every byte once, with the whole team of the current thread.
fn read(bytes: &[u8]) {
    let parts: Vec<&[u8]> = bytes.chunks(PART).collect();
    team::for_each(parts.len(), |i| {
        black_box(sum(parts[i]));
    });
}

/// Adds up eight-byte words, with the memory asked for ahead, as the kernels do. Registers of AVX2 are wide enough to wait for memory.
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
    let lanes = [
        _mm256_extract_epi64::<0>(sum),
        _mm256_extract_epi64::<1>(sum),
        _mm256_extract_epi64::<2>(sum),
        _mm256_extract_epi64::<3>(sum),
    ];
    lanes
        .iter()
        .fold(0, |a, lane| a.wrapping_add(lane.cast_unsigned()))
}

/// Does about this many multiply-adds on the calling thread, as fast as the registers of `level` allow, and says how many.
fn multiply_add(level: Level, about: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    match level.available() {
        // SAFETY: an available level means that this processor has the features the function is compiled for.
        Level::Avx512 => return unsafe { multiply_add_avx512(about) },
        // SAFETY: as above.
        Level::Avx2 => return unsafe { multiply_add_avx2(about) },
        Level::Baseline => {}
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
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

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn multiply_add_avx512(about: usize) -> usize {
    use std::arch::x86_64::*;
    let mut sums = [_mm512_set1_ps(1.0); 12];
    let (a, b) = (
        black_box(_mm512_set1_ps(0.5)),
        black_box(_mm512_set1_ps(0.25)),
    );
    let rounds = about / (12 * 16);
    for _ in 0..rounds {
        for s in &mut sums {
            *s = _mm512_fmadd_ps(*s, a, b);
        }
    }
    black_box(sums);
    rounds * 12 * 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_whole_name() {
        let text = "MemTotalX: 1 kB\nMemTotal:       24 kB\nMemFree: 2 kB\n";
        assert_eq!(value(text, "MemTotal"), Some("24 kB"));
        assert_eq!(value(text, "Mem"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_in_use_is_that_of_this_process() {
        // Other tests take and give back memory meanwhile, but none of them nearly as much.
        let kept = black_box(vec![1u8; 256 << 20]);
        let with = resident_bytes();
        drop(kept);
        let without = resident_bytes();
        let more = with.zip(without).map(|(a, b)| a.saturating_sub(b));
        assert!(more.is_some_and(|bytes| bytes >= 128 << 20), "{more:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_time_of_threads_is_counted_by_name() {
        if !std::path::Path::new("/proc/thread-self/schedstat").exists() {
            // This system does not tell.
            assert_eq!(thread_seconds(""), 0.0);
            return;
        }
        let named = std::thread::Builder::new().name("probe-test".into());
        let busy = named.spawn(|| {
            let begin = std::time::Instant::now();
            let mut used = 0.0;
            // Far longer than it takes; only so that a defect ends.
            while used < 0.01 && begin.elapsed().as_secs() < 300 {
                multiply_add(Level::Baseline, 1 << 16);
                used = thread_seconds("probe-test");
            }
            used
        });
        let used = busy.ok().and_then(|thread| thread.join().ok());
        assert!(used.is_some_and(|seconds| seconds >= 0.01), "{used:?}");
        assert_eq!(thread_seconds("no thread has this name"), 0.0);
    }

    #[test]
    fn as_many_multiply_adds_are_done_as_are_told() {
        for level in Level::ALL {
            let done = multiply_add(level, 10_000);
            assert!((9_000..=10_000).contains(&done), "{level:?}: {done}");
        }
    }

    #[test]
    fn every_whole_part_is_read() {
        let bytes: Vec<u8> = (0..1000).map(|i| i as u8).collect();
        let by_words = |bytes: &[u8]| {
            let (words, _) = bytes.as_chunks::<8>();
            words
                .iter()
                .fold(0u64, |a, w| a.wrapping_add(u64::from_le_bytes(*w)))
        };
        assert_eq!(sum(&bytes[..896]), by_words(&bytes[..896]));
    }
}
