//! Which guesses about the next layer are worth reading.
//!
//! While a layer waits for nothing, the disk can read what the next one will probably need: its router, applied to the state at hand, names its
//! experts in order of score. How often such a guess about an expert that is not in memory comes true is measured for each rank, whether
//! it was read or not, so ranks turn themselves off and on by what the text does. The bytes of guesses that did not come true are
//! bounded by a part of the bytes read on demand.

/// A rank is read ahead while at least this share of its guesses come true.
const WORTH: f64 = 0.5;
/// Most useless bytes, as a part of the bytes read on demand.
const MOST_WASTE: f64 = 0.15;
/// How much of the past stays with each guess of a rank.
const MEMORY: f64 = 0.98;
/// Guesses a rank must have been judged by; before, it is given the benefit of the doubt.
const BELIEF: f64 = 4.0;
/// How much of the account of bytes stays with each token.
const ACCOUNT: f64 = 0.998;
/// While no rank is worth reading, the next layer is predicted for one token in so many, to see whether that has changed.
const LOOK_AGAIN: u64 = 16;

/// How one rank does.
#[derive(Clone, Copy)]
struct Rank {
    guesses: f64,
    came_true: f64,
}

impl Rank {
    fn precision(self) -> f64 {
        self.came_true / self.guesses
    }
}

/// Judges guesses.
pub struct Prefetch {
    on: bool,
    ranks: Vec<Rank>,
    /// Guesses about `layer` that concern what was not in memory: page, rank, whether it was read ahead.
    open: Vec<(u32, usize, bool)>,
    tokens: u64,
    /// In experts, fading.
    demanded: f64,
    wasted: f64,
}

impl Prefetch {
    /// For models that take so many experts.
    pub fn new(taken: usize, on: bool) -> Self {
        let start = Rank {
            guesses: BELIEF,
            came_true: 0.6 * BELIEF,
        };
        Self {
            on,
            ranks: vec![start; taken],
            open: Vec::with_capacity(taken),
            tokens: 0,
            demanded: 0.0,
            wasted: 0.0,
        }
    }

    /// A token begins.
    pub fn advance(&mut self) {
        self.tokens += 1;
        self.demanded *= ACCOUNT;
        self.wasted *= ACCOUNT;
        self.open.clear();
    }

    /// Whether predicting the next layer pays for this token.
    pub fn wants_prediction(&self) -> bool {
        let pays = self.ranks.iter().any(|rank| rank.precision() >= WORTH);
        self.on && (pays || self.tokens.is_multiple_of(LOOK_AGAIN))
    }

    /// A guess that the next layer needs `page`, which is not in memory. Says whether to read it.
    pub fn consider(&mut self, page: u32, rank: usize) -> bool {
        let Some(record) = self.ranks.get(rank) else {
            return false;
        };
        // Whatever is open may turn out wrong.
        let open = self.open.iter().filter(|(_, _, read)| *read).count() as f64;
        let may_waste = self.wasted + open + 1.0 <= MOST_WASTE * self.demanded;
        let read = record.precision() >= WORTH && may_waste;
        self.open.push((page, rank, read));
        read
    }

    /// A guess that was to be read was not after all.
    pub fn withdrawn(&mut self, page: u32) {
        for guess in self.open.iter_mut().filter(|guess| guess.0 == page) {
            guess.2 = false;
        }
    }

    /// A layer came: says of a page whether it was taken, or nothing if the page is of another layer.
    pub fn settle(&mut self, took: impl Fn(u32) -> Option<bool>) {
        for (page, rank, read) in self.open.drain(..) {
            let Some(right) = took(page) else { continue };
            let record = &mut self.ranks[rank];
            record.guesses = record.guesses * MEMORY + 1.0;
            record.came_true = record.came_true * MEMORY + f64::from(u8::from(right));
            if read && !right {
                self.wasted += 1.0;
            }
        }
    }

    /// So many experts were read on demand.
    pub fn demanded(&mut self, experts: usize) {
        self.demanded += experts as f64;
    }

    /// How likely a guess of this rank comes true.
    pub fn likelihood(&self, rank: usize) -> f64 {
        self.ranks.get(rank).map_or(0.0, |rank| rank.precision())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `tokens` of one layer each: rank 0 is right as `right` says; returns how many guesses were read and how many were wrong.
    fn run(
        prefetch: &mut Prefetch,
        tokens: usize,
        right: impl Fn(usize) -> bool,
    ) -> (usize, usize) {
        let (mut read, mut wrong) = (0, 0);
        for token in 0..tokens {
            prefetch.advance();
            prefetch.demanded(4);
            if prefetch.wants_prediction() && prefetch.consider(1, 0) {
                read += 1;
                wrong += usize::from(!right(token));
            }
            prefetch.settle(|_| Some(right(token)));
        }
        (read, wrong)
    }

    #[test]
    fn good_guesses_are_read_and_bad_ones_are_not() {
        let mut prefetch = Prefetch::new(2, true);
        let (read, _) = run(&mut prefetch, 500, |_| true);
        assert!(read > 480, "{read}");
        // It turns itself off where guesses stop coming true ...
        run(&mut prefetch, 200, |_| false);
        let (read, _) = run(&mut prefetch, 500, |_| false);
        assert_eq!(read, 0);
        // ... and on again when they come true again. Rank 1 was never judged; it keeps the prediction alive.
        run(&mut prefetch, 3000, |_| true);
        let (read, _) = run(&mut prefetch, 100, |_| true);
        assert_eq!(read, 100);
    }

    #[test]
    fn waste_stays_within_its_part_of_the_demand() {
        let mut prefetch = Prefetch::new(1, true);
        // Two of three come true: worth reading, if there were no bound.
        let (read, wrong) = run(&mut prefetch, 3000, |token| token % 3 != 0);
        assert!(read > 0);
        assert!(wrong as f64 <= MOST_WASTE * 4.0 * 3000.0, "{wrong}");
        let mut prefetch = Prefetch::new(1, true);
        prefetch.advance();
        assert!(!prefetch.consider(1, 0), "nothing was demanded yet");
    }

    #[test]
    fn while_nothing_pays_it_looks_again_now_and_then() {
        let mut prefetch = Prefetch::new(1, true);
        run(&mut prefetch, 400, |_| false);
        let looks = (0..160)
            .filter(|_| {
                prefetch.advance();
                prefetch.wants_prediction()
            })
            .count();
        assert_eq!(looks, 10);
        let mut off = Prefetch::new(1, false);
        off.advance();
        assert!(!off.wants_prediction());
    }
}
