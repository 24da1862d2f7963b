//! How fast an answer is being written.

use std::collections::VecDeque;
use std::time::Duration;

/// Looks that count: the first of them is where tokens and time are counted from.
const LOOKS: usize = 6;

/// Looks at the engine's own counters: tokens computed one by one, and the time that took.
#[derive(Default)]
pub(super) struct Pace(VecDeque<(u64, Duration)>);

impl Pace {
    /// Notes what is counted now, and returns the tokens a second of the last looks; none before a token came between two of them. A look at
    /// which nothing has come counts for nothing, so a slow model has its last few tokens and not none.
    pub(super) fn look(&mut self, tokens: u64, time: Duration) -> Option<f64> {
        match self.0.back() {
            // Another model, loaded meanwhile, counts from the beginning.
            Some(&(before, _)) if tokens < before => self.0.clear(),
            _ => {}
        }
        if self.0.back().is_none_or(|&(before, _)| tokens > before) {
            self.0.push_back((tokens, time));
        }
        if self.0.len() > LOOKS {
            self.0.pop_front();
        }
        let (&(from, since), &(to, until)) = (self.0.front()?, self.0.back()?);
        let seconds = until.saturating_sub(since).as_secs_f64();
        (to > from && seconds > 0.0).then(|| (to - from) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_the_last_looks() {
        let mut pace = Pace::default();
        let mut look = |tokens, seconds| pace.look(tokens, Duration::from_secs(seconds));
        assert_eq!(look(100, 10), None);
        assert_eq!(look(104, 12), Some(2.0));
        // Nothing came: what was, stays.
        assert_eq!(look(104, 12), Some(2.0));
        // Five more looks with one token in four seconds each: what was before counts no more.
        for n in 1..=5 {
            look(104 + n, 12 + 4 * n);
        }
        assert_eq!(look(109, 32), Some(0.25));
        // Another model.
        assert_eq!(look(3, 1), None);
        assert_eq!(look(9, 2), Some(6.0));
    }
}
