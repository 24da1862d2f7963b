//! When to try again: exponential, with jitter, reset by progress, and never sooner than the server asks.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};

/// A server may ask for this long and no longer.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);

pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    pub(crate) fn progress(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last progress.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// The wait before the next attempt: between half and all of the doubled time, and at least what the server asked for.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let whole = self
            .first
            .saturating_mul(1 << self.failures.min(20))
            .min(self.longest);
        self.failures = self.failures.saturating_add(1);
        whole
            .mul_f64(0.5 + fastrand::f64() / 2.0)
            .max(asked.unwrap_or_default().min(LONGEST_ASKED))
    }
}

/// `Retry-After` in seconds or as a date.
pub(crate) fn asked(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // A date has whole seconds: one more, so as not to come too early.
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default() + Duration::from_secs(1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_start_over_after_progress() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
        for whole in [1, 2, 4, 8, 10, 10] {
            let wait = backoff.next(None).as_secs_f64();
            assert!(
                (f64::from(whole) / 2.0..=f64::from(whole)).contains(&wait),
                "{whole}: {wait}"
            );
        }
        backoff.progress();
        assert!(backoff.next(None) <= Duration::from_secs(1));
        assert_eq!(
            backoff.next(Some(Duration::from_secs(30))),
            Duration::from_secs(30)
        );
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        let now = httpdate::parse_http_date("Mon, 30 Nov 2026 05:00:00 GMT").unwrap();
        for (value, seconds) in [
            ("2", Some(2)),
            ("Mon, 30 Nov 2026 05:00:10 GMT", Some(11)),
            ("Mon, 30 Nov 2026 04:00:00 GMT", Some(1)),
            ("soon", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            assert_eq!(
                asked(&headers, now),
                seconds.map(Duration::from_secs),
                "{value}"
            );
        }
    }
}
