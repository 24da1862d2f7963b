//! How long passes take, layer by layer: two looks at the clock for each layer, next to milliseconds of work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a model has computed since it was loaded, and how long that took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Tokens that were computed in chunks: of prompts.
    pub together: u64,
    /// Tokens that were computed alone: those of answers, and the last of a prompt.
    pub alone: u64,
    /// Time for tokens that were computed in chunks, waiting for experts included.
    pub together_time: Duration,
    /// The same for those that were computed alone.
    pub alone_time: Duration,
    /// Time in each layer for all tokens, waiting for experts included.
    pub layers: Vec<Duration>,
}

/// The counters behind [`Activity`].
#[derive(Default)]
pub struct Times {
    together: AtomicU64,
    alone: AtomicU64,
    together_time: AtomicU64,
    alone_time: AtomicU64,
    layers: Vec<AtomicU64>,
}

impl Times {
    pub fn new(layers: usize) -> Self {
        Self {
            layers: (0..layers).map(|_| AtomicU64::new(0)).collect(),
            ..Self::default()
        }
    }

    /// A layer took so long.
    pub fn layer(&self, layer: usize, time: Duration) {
        if let Some(sum) = self.layers.get(layer) {
            add(sum, time);
        }
    }

    /// A pass of so many tokens came to its end.
    pub fn pass(&self, tokens: usize, time: Duration) {
        if tokens == 1 {
            self.alone.fetch_add(1, Ordering::Relaxed);
            add(&self.alone_time, time);
        } else {
            self.together.fetch_add(tokens as u64, Ordering::Relaxed);
            add(&self.together_time, time);
        }
    }

    pub fn snapshot(&self) -> Activity {
        // Relaxed: each number stands for itself.
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Activity {
            together: get(&self.together),
            alone: get(&self.alone),
            together_time: Duration::from_nanos(get(&self.together_time)),
            alone_time: Duration::from_nanos(get(&self.alone_time)),
            layers: self
                .layers
                .iter()
                .map(|time| Duration::from_nanos(get(time)))
                .collect(),
        }
    }
}

fn add(to: &AtomicU64, time: Duration) {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    to.fetch_add(nanoseconds, Ordering::Relaxed);
}
