//! What the pager did, in numbers that are true: counted where it happens, readable from any thread at any time without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Numbers since the model was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Slots there are.
    pub slots: u64,
    /// Slots that hold an expert or are being filled with one.
    pub filled: u64,
    /// Bytes of one expert.
    pub expert_bytes: u64,
    /// Tokens computed, of prompts and answers; not those of a step that failed or was stopped.
    pub tokens: u64,
    /// Experts that were in memory when a layer asked for them. A chunk of a prompt asks once for each expert its tokens take.
    pub hits: u64,
    /// Experts that were not, and were read on demand.
    pub misses: u64,
    /// Experts that were just being read when a layer asked for them: ahead, or for a request that was stopped.
    pub late: u64,
    /// Time in which the computation had nothing to do but wait for an expert.
    pub waited: Duration,
    /// Bytes read because a layer waited for them.
    pub demand_bytes: u64,
    /// Bytes read ahead: of experts that were certain or likely.
    pub ahead_bytes: u64,
    /// Bytes read to fill the cache from the saved list.
    pub warm_bytes: u64,
    /// Experts read ahead that were used then.
    pub useful: u64,
    /// Experts read ahead that left again without having been used.
    pub wasted: u64,
    /// Numbers of each layer.
    pub layers: Vec<LayerStatistics>,
    /// Numbers of the latest step alone: one token of an answer, or one chunk of a prompt.
    pub last: StepStatistics,
    /// Sums over the steps of a single token, but for the latest: what writing answers costs.
    pub alone: LayerStatistics,
}

/// Numbers of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerStatistics {
    /// As in [`Statistics`].
    pub hits: u64,
    /// As in [`Statistics`].
    pub misses: u64,
    /// As in [`Statistics`].
    pub late: u64,
    /// As in [`Statistics`].
    pub waited: Duration,
}

/// Numbers of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepStatistics {
    /// Its tokens.
    pub tokens: u64,
    /// As in [`Statistics`].
    pub hits: u64,
    /// As in [`Statistics`].
    pub misses: u64,
    /// As in [`Statistics`].
    pub late: u64,
    /// As in [`Statistics`].
    pub waited: Duration,
    /// Bytes read on demand since it began.
    pub demand_bytes: u64,
}

impl Statistics {
    /// Share of the experts asked for that were in memory, from 0 to 1; none before anything was asked for.
    pub fn hit_rate(&self) -> Option<f64> {
        let all = self.hits + self.misses + self.late;
        (all > 0).then(|| self.hits as f64 / all as f64)
    }
}

/// A number that one thread adds to at a time and any may read.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    // Relaxed: each number stands for itself; nothing is published through it.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(super) struct LayerCounts {
    pub hits: Count,
    pub misses: Count,
    pub late: Count,
    pub waited: Count,
}

/// The counters behind [`Statistics`].
pub(super) struct Counts {
    pub slots: usize,
    pub expert_bytes: usize,
    pub filled: Count,
    pub tokens: Count,
    pub demand_bytes: Count,
    pub ahead_bytes: Count,
    pub warm_bytes: Count,
    pub useful: Count,
    pub wasted: Count,
    pub layers: Vec<LayerCounts>,
    /// What the sums were when the latest step began, and its tokens.
    pub before: LayerCounts,
    pub before_bytes: Count,
    pub step: Count,
    /// Sums over the steps of a single token.
    pub alone: LayerCounts,
}

impl Counts {
    pub fn new(layers: usize, slots: usize, expert_bytes: usize) -> Self {
        Self {
            slots,
            expert_bytes,
            filled: Count::default(),
            tokens: Count::default(),
            demand_bytes: Count::default(),
            ahead_bytes: Count::default(),
            warm_bytes: Count::default(),
            useful: Count::default(),
            wasted: Count::default(),
            layers: (0..layers).map(|_| LayerCounts::default()).collect(),
            before: LayerCounts::default(),
            before_bytes: Count::default(),
            step: Count::default(),
            alone: LayerCounts::default(),
        }
    }

    /// A step begins.
    pub fn step(&self, tokens: usize) {
        let was_alone = self.step.get() == 1;
        let parts: [fn(&LayerCounts) -> &Count; 4] =
            [|l| &l.hits, |l| &l.misses, |l| &l.late, |l| &l.waited];
        for part in parts {
            let sum: u64 = self.layers.iter().map(|l| part(l).get()).sum();
            if was_alone {
                part(&self.alone).add(sum.saturating_sub(part(&self.before).get()));
            }
            part(&self.before).set(sum);
        }
        self.before_bytes.set(self.demand_bytes.get());
        self.step.set(tokens as u64);
    }

    pub fn snapshot(&self) -> Statistics {
        let layers: Vec<LayerStatistics> = self
            .layers
            .iter()
            .map(|layer| LayerStatistics {
                hits: layer.hits.get(),
                misses: layer.misses.get(),
                late: layer.late.get(),
                waited: Duration::from_nanos(layer.waited.get()),
            })
            .collect();
        let hits = layers.iter().map(|l| l.hits).sum();
        let misses = layers.iter().map(|l| l.misses).sum();
        let late = layers.iter().map(|l| l.late).sum();
        let waited: Duration = layers.iter().map(|l| l.waited).sum();
        // A step may begin between two of these reads: never below zero.
        let since = |now: u64, before: &Count| now.saturating_sub(before.get());
        Statistics {
            slots: self.slots as u64,
            filled: self.filled.get(),
            expert_bytes: self.expert_bytes as u64,
            tokens: self.tokens.get(),
            hits,
            misses,
            late,
            waited,
            demand_bytes: self.demand_bytes.get(),
            ahead_bytes: self.ahead_bytes.get(),
            warm_bytes: self.warm_bytes.get(),
            useful: self.useful.get(),
            wasted: self.wasted.get(),
            last: StepStatistics {
                tokens: self.step.get(),
                hits: since(hits, &self.before.hits),
                misses: since(misses, &self.before.misses),
                late: since(late, &self.before.late),
                waited: waited.saturating_sub(Duration::from_nanos(self.before.waited.get())),
                demand_bytes: since(self.demand_bytes.get(), &self.before_bytes),
            },
            alone: LayerStatistics {
                hits: self.alone.hits.get(),
                misses: self.alone.misses.get(),
                late: self.alone.late.get(),
                waited: Duration::from_nanos(self.alone.waited.get()),
            },
            layers,
        }
    }
}
