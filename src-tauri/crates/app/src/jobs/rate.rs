//! How fast bytes come and when the rest will be there, over the last seconds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(10);
/// No speed is told of a shorter time.
const LEAST: Duration = Duration::from_secs(1);
/// Nothing came for so long: nothing moves.
const STILL: Duration = Duration::from_secs(5);

/// A moving window over how far something is.
#[derive(Debug, Default)]
pub struct Rate {
    seen: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// What stands at `done` at `now`. A number below the last one begins anew: another phase has its own count.
    pub fn note(&mut self, now: Instant, done: u64) {
        match self.seen.back() {
            Some((_, last)) if done < *last => self.seen.clear(),
            Some((_, last)) if done == *last => return,
            _ => {}
        }
        self.seen.push_back((now, done));
        while self.seen.len() > 2
            && self
                .seen
                .front()
                .is_some_and(|(at, _)| now.saturating_duration_since(*at) > WINDOW)
        {
            self.seen.pop_front();
        }
    }

    /// Bytes a second; none before it is known and when nothing moves.
    pub fn per_second(&self, now: Instant) -> Option<f64> {
        let ((from, before), (until, after)) = (*self.seen.front()?, *self.seen.back()?);
        let time = until.saturating_duration_since(from);
        if time < LEAST || now.saturating_duration_since(until) > STILL {
            return None;
        }
        Some((after - before) as f64 / time.as_secs_f64()).filter(|rate| *rate > 0.0)
    }

    /// Seconds until `left` bytes more are there; none when that cannot be said.
    pub fn seconds_left(&self, now: Instant, left: u64) -> Option<u64> {
        let seconds = left as f64 / self.per_second(now)?;
        // More than a year is no estimate.
        (seconds < 31_536_000.0).then_some(seconds.ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_is_that_of_the_last_seconds_and_is_not_told_when_nothing_moves() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut rate = Rate::default();
        rate.note(at(0), 5_000);
        assert_eq!(rate.per_second(at(0)), None);
        for second in 1..=30_u64 {
            // 100 a second, and 300 in the last ten seconds.
            let done = 5_000 + 100 * second + 200 * second.saturating_sub(20);
            rate.note(at(second), done);
        }
        assert_eq!(rate.per_second(at(30)), Some(300.0));
        assert_eq!(rate.seconds_left(at(30), 1_000), Some(4));
        assert_eq!(rate.per_second(at(36)), None);
        assert_eq!(rate.seconds_left(at(36), 1_000), None);
        // The next phase counts from its own beginning.
        rate.note(at(37), 0);
        assert_eq!(rate.per_second(at(38)), None);
    }
}
