//! What two looks at the pager's counters say of the time between them. Arithmetic only.

use fastar_engine::Statistics;

/// How much longer reading may take than computing, or the other way round, when both are called equally busy.
const BALANCED: std::ops::Range<f64> = 0.8..1.25;

/// What the pager did between two looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Between {
    /// Bytes of an expert.
    record: f64,
    misses: f64,
    useful: f64,
    wasted: f64,
    /// Bytes that were read, waited for or ahead.
    read: f64,
    demand: f64,
}

impl Between {
    pub fn new(before: &Statistics, after: &Statistics) -> Self {
        let since = |of: fn(&Statistics) -> u64| of(after).saturating_sub(of(before)) as f64;
        Self {
            record: after.expert_bytes as f64,
            misses: since(|s| s.misses),
            useful: since(|s| s.useful),
            wasted: since(|s| s.wasted),
            read: since(|s| s.demand_bytes + s.ahead_bytes),
            demand: since(|s| s.demand_bytes),
        }
    }

    /// GB that were asked for and had to come from the disk: what was missing, and what had been read ahead or was just being (late, which is
    /// counted as useful too). What was read for nothing is not among them.
    pub fn needed(&self) -> f64 {
        (self.misses + self.useful) * self.record / 1e9
    }

    /// GB that were read.
    pub fn read(&self) -> f64 {
        self.read / 1e9
    }

    /// Bytes read over those that had to come from the disk.
    pub fn read_of_needed(&self) -> f64 {
        self.read / 1e9 / self.needed()
    }

    /// Bytes read ahead for nothing over those that were waited for; over one expert where nothing was.
    pub fn wasted(&self) -> f64 {
        self.wasted * self.record / self.demand.max(self.record)
    }
}

/// What a time is made of that disk and processor shared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shared {
    /// Seconds it took.
    pub seconds: f64,
    /// Seconds that computing takes alone.
    pub computing: f64,
    /// Seconds that reading what was needed takes alone.
    pub reading: f64,
}

impl Shared {
    /// This, and then that.
    pub fn and(self, then: Self) -> Self {
        Self {
            seconds: self.seconds + then.seconds,
            computing: self.computing + then.computing,
            reading: self.reading + then.reading,
        }
    }

    /// The shortest it can take.
    pub fn least(&self) -> f64 {
        self.computing.max(self.reading)
    }

    /// How many times as long it took.
    pub fn share(&self) -> f64 {
        self.seconds / self.least()
    }

    /// Reading over computing.
    pub fn ratio(&self) -> f64 {
        self.reading / self.computing
    }

    /// Whether both were about equally busy. Only then does the share say how well they go on at once.
    pub fn is_balanced(&self) -> bool {
        BALANCED.contains(&self.ratio())
    }

    /// How far from balance, whichever way.
    pub fn distance(&self) -> f64 {
        self.ratio().ln().abs()
    }
}

/// Looks for the number of slots with which disk and processor are equally busy: more slots, less to read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Search {
    /// Known to read too much, or as few as there can be.
    few: u64,
    /// Known to read too little: with all experts in memory nothing is read.
    many: u64,
}

impl Search {
    /// Among the sizes from `fewest` to `all`.
    pub fn new(fewest: u64, all: u64) -> Self {
        Self {
            few: fewest.saturating_sub(1),
            many: all,
        }
    }

    /// The nearest number of slots that is still open; none when there is no such number.
    pub fn nearest(&self, slots: u64) -> Option<u64> {
        (self.few + 1 < self.many).then(|| slots.clamp(self.few + 1, self.many - 1))
    }

    /// The next number of slots after a try with some gave this ratio of reading to computing; none when all are tried.
    pub fn next(&mut self, slots: u64, ratio: f64) -> Option<u64> {
        if ratio < 1.0 {
            self.many = self.many.min(slots);
        } else {
            self.few = self.few.max(slots);
        }
        self.nearest(self.few.midpoint(self.many))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks() -> (Statistics, Statistics) {
        let before = Statistics {
            expert_bytes: 10_000_000,
            misses: 5,
            late: 1,
            useful: 4,
            wasted: 1,
            demand_bytes: 50_000_000,
            ahead_bytes: 60_000_000,
            ..Statistics::default()
        };
        // 20 missed, 30 read ahead were used, 6 of them while they were being read, 4 were never used.
        let after = Statistics {
            misses: 25,
            late: 7,
            useful: 34,
            wasted: 5,
            demand_bytes: 250_000_000,
            ahead_bytes: 400_000_000,
            ..before.clone()
        };
        (before, after)
    }

    #[test]
    fn what_was_needed_is_counted_once() {
        let (before, after) = looks();
        let between = Between::new(&before, &after);
        // (20 + 30) x 10 MB; those that were late are among the 30.
        assert_eq!(between.needed(), 0.5);
        // 200 MB + 340 MB.
        assert_eq!(between.read(), 0.54);
        assert_eq!(between.read_of_needed(), 1.08);
        // 4 x 10 MB of 200 MB.
        assert_eq!(between.wasted(), 0.2);
        // Nothing waited for: of one expert.
        let idle = Statistics {
            wasted: 2,
            ..before.clone()
        };
        assert_eq!(Between::new(&before, &idle).wasted(), 1.0);
    }

    #[test]
    fn the_longer_of_both_is_the_least_and_balance_is_from_either_side() {
        let of = |seconds, computing, reading| Shared {
            seconds,
            computing,
            reading,
        };
        let shared = of(6.0, 4.0, 5.0);
        assert_eq!((shared.least(), shared.share()), (5.0, 1.2));
        assert_eq!(shared.ratio(), 1.25);
        assert!(!shared.is_balanced());
        assert!(of(6.0, 5.0, 4.0).is_balanced());
        assert!(of(6.0, 5.0, 6.2).is_balanced());
        assert!(!of(6.0, 5.0, 3.9).is_balanced());
        assert!(!of(6.0, 5.0, 0.0).is_balanced());
        assert_eq!(of(6.0, 4.0, 5.0).and(of(1.0, 2.0, 3.0)), of(7.0, 6.0, 8.0));
        assert_eq!(of(1.0, 1.0, 2.0).distance(), of(1.0, 2.0, 1.0).distance());
    }

    #[test]
    fn the_search_ends_at_the_size_where_reading_is_as_long_as_computing() {
        // Reading falls with slots as it might; balance lies at 140 of 192.
        let ratio = |slots: u64| (192 - slots) as f64 / 52.0;
        let mut search = Search::new(6, 192);
        let (mut slots, mut tries) = (search.nearest(20), 0);
        while let Some(now) = slots.filter(|now| !(0.95..1.05).contains(&ratio(*now))) {
            slots = search.next(now, ratio(now));
            tries += 1;
        }
        assert!(slots.is_some_and(|slots| (138..=142).contains(&slots)));
        assert!(tries <= 7, "{tries}");
        // A disk that is always faster, and one that is always slower: every size is ruled out, and that is the end.
        for (always, last) in [(0.3, 6), (3.0, 191)] {
            let mut search = Search::new(6, 192);
            let (mut slots, mut tried) = (search.nearest(100), Vec::new());
            while let Some(now) = slots {
                tried.push(now);
                slots = search.next(now, always);
            }
            assert_eq!(tried.last(), Some(&last));
            assert!(tried.len() <= 9, "{tried:?}");
        }
        assert_eq!(Search::new(6, 6).nearest(6), None);
    }
}
