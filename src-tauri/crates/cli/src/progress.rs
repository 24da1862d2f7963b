//! How far long work is, as people read it.

use std::time::Instant;

use fastar_app::jobs::Rate;

use crate::terminal;

/// How fast bytes go by, and how long the rest will take.
#[derive(Default)]
pub struct Speed {
    rate: Rate,
}

impl Speed {
    /// `12 % of 156 GB, 850 MB/s, 2 min 41 s left`, after a bar where a person watches.
    pub fn line(&mut self, done: u64, all: u64) -> String {
        let percent = share(done, all);
        let mut text = format!("{percent} % of {}", fastar_fst::size(all));
        if terminal::is_watched() {
            text = format!("{} {text}", bar(percent));
        }
        if let (Some(per_second), left) = self.numbers(done, all) {
            text.push_str(&format!(", {}/s", fastar_fst::size(per_second as u64)));
            if let Some(left) = left {
                text.push_str(&format!(", {} left", duration(left)));
            }
        }
        text
    }

    /// Bytes a second and seconds left, once they are known and while something moves.
    pub fn numbers(&mut self, done: u64, all: u64) -> (Option<f64>, Option<u64>) {
        let now = Instant::now();
        self.rate.note(now, done);
        let left = all.saturating_sub(done);
        (self.rate.per_second(now), self.rate.seconds_left(now, left))
    }
}

/// One sign for each five percent.
fn bar(percent: u64) -> String {
    let full = (percent / 5).min(20) as usize;
    format!("[{}{}]", "#".repeat(full), "-".repeat(20 - full))
}

/// Whole percent, 100 only when all is done.
fn share(done: u64, all: u64) -> u64 {
    (u128::from(done) * 100)
        .checked_div(u128::from(all))
        .map_or(100, |percent| percent.min(100) as u64)
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} days {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_durations_are_read_at_a_glance() {
        assert_eq!(
            (share(0, 0), share(0, 3), share(2, 3), share(3, 3)),
            (100, 0, 66, 100)
        );
        assert_eq!(share(u64::MAX - 1, u64::MAX), 99);
        assert_eq!(bar(0), "[--------------------]");
        assert_eq!(bar(99), "[###################-]");
        assert_eq!(bar(100), "[####################]");
        assert_eq!(duration(59), "59 s");
        assert_eq!(duration(61), "1 min 1 s");
        assert_eq!(duration(7260), "2 h 1 min");
        assert_eq!(duration(180_000), "2 days 2 h");
    }
}
