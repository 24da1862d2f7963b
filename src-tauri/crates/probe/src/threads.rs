//! Threads to measure with.

use std::fmt;
use std::io;
use std::time::Instant;

use fastar_kernels::team::Team;

/// Threads that each stay on a processor of their own: two that take turns on one tell nothing about two.
pub struct Threads(Team);

impl Threads {
    /// So many of them.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn new(count: usize) -> io::Result<Self> {
        Team::new(count, count, stay_on).map(Self)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.threads()
    }

    /// Seconds that `work` takes, which shares out what it does among them.
    pub fn seconds(&self, work: impl FnOnce() + Send) -> f64 {
        self.0.run(|| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count() {
            1 => f.write_str("1 thread"),
            n => write!(f, "{n} threads"),
        }
    }
}

/// Keeps the calling thread on one of the processors this process may use.
fn stay_on(thread: usize) {
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
                tracing::debug!(%error, "a thread cannot be kept on one processor");
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = thread;
}
