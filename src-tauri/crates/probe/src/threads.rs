//! Threads to measure with.

use std::fmt;
use std::time::Instant;

use fastar_kernels::processors::{Processors, stay_on};
use fastar_kernels::team::Team;
use fastar_kernels::threads::Refused;

/// Threads where an engine with as many has its own, which stay on a core each where the engine's do. What they can do at most is then a limit for the
/// engine.
pub struct Threads(Team);

impl Threads {
    /// So many of them.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn new(count: usize) -> Result<Self, Refused> {
        Self::on(Processors::find(), count)
    }

    fn on(processors: Processors, count: usize) -> Result<Self, Refused> {
        let at_once = processors.affordable(processors.allowed);
        let begin = move |thread| {
            if let Some(processor) = processors.place(thread, count) {
                stay_on(processor);
            }
        };
        Team::new(count, at_once, begin).map(Self)
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Processors the calling thread may run on, as the system writes them.
    fn allowed() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    }

    #[test]
    fn threads_stay_on_the_cores_of_the_engine_where_they_are_as_many() {
        let mut processors = Processors::find();
        processors.quota = None;
        // Fast cores need not have the lowest numbers.
        processors.cores.reverse();
        let (first, free) = (processors.cores[0].to_string(), allowed());
        for count in 1..=processors.cores.len() + 1 {
            let seen = std::sync::Mutex::new(String::new());
            let threads = Threads::on(processors.clone(), count).unwrap();
            threads.seconds(|| *seen.lock().unwrap() = allowed());
            let expected = match count == processors.cores.len() {
                true => &first,
                false => &free,
            };
            assert_eq!(seen.lock().unwrap().as_str(), expected, "{count}");
        }
    }
}
