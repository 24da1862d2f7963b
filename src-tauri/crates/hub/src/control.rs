//! How a person steers a transfer while it runs: pause, resume, cancel, and how many bytes a second it may take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// What the person wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Go,
    Pause,
    Cancel,
}

/// The controls of one transfer. Clones steer the same transfer; every method may be called at any time from any thread.
#[derive(Debug, Clone)]
pub struct Control {
    wish: Arc<watch::Sender<Wish>>,
    limiter: Limiter,
    waits: Waits,
}

/// When the next attempts are due, and why the last ones failed; one of each call that waits now.
type Waits = Arc<Mutex<Vec<Arc<(Instant, String)>>>>;

/// Takes a wait off the list, however it ends.
struct Waiting<'a> {
    waits: &'a Waits,
    wait: Arc<(Instant, String)>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|wait| !Arc::ptr_eq(wait, &self.wait));
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

impl Control {
    /// Running, without a limit.
    #[must_use]
    pub fn new() -> Self {
        Self::sharing(Limiter::default())
    }

    /// Running, under a limit that other transfers may share.
    #[must_use]
    pub fn sharing(limiter: Limiter) -> Self {
        Self {
            wish: Arc::new(watch::Sender::new(Wish::Go)),
            limiter,
            waits: Waits::default(),
        }
    }

    /// Closes the connections and waits. The call that transfers stays blocked until [`resume`](Self::resume) or [`cancel`](Self::cancel).
    pub fn pause(&self) {
        self.set(Wish::Pause);
    }

    /// Goes on from the byte where [`pause`](Self::pause) stopped.
    pub fn resume(&self) {
        self.set(Wish::Go);
    }

    /// Ends the transfer with [`Error::Cancelled`](crate::Error::Cancelled), for good. What has arrived stays until it is [discarded](crate::discard).
    pub fn cancel(&self) {
        self.wish.send_replace(Wish::Cancel);
    }

    /// Whether it waits for [`resume`](Self::resume).
    #[must_use]
    pub fn is_paused(&self) -> bool {
        *self.wish.borrow() == Wish::Pause
    }

    /// Whether it was ended.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.wish.borrow() == Wish::Cancel
    }

    /// The most bytes a second, all connections together; `None` is no limit.
    pub fn set_limit(&self, bytes_per_second: Option<u64>) {
        self.limiter.set(bytes_per_second);
    }

    /// While a [`snapshot`](crate::Hub::snapshot) or [`read`](crate::Hub::read) with this control waits before its next attempt: the seconds
    /// until then, rounded up, and why the last one failed, in the words of [`Phase::Waiting`](crate::Phase::Waiting). Of several, the one
    /// that is due first.
    #[must_use]
    pub fn waiting(&self) -> Option<(u64, String)> {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let first = waits.iter().min_by_key(|wait| wait.0)?;
        let left = first.0.saturating_duration_since(Instant::now());
        Some((left.as_secs_f64().ceil() as u64, first.1.clone()))
    }

    /// Waits before the next attempt, and tells so meanwhile.
    pub(crate) async fn wait(&self, wait: Duration, why: String) {
        let waiting = Waiting {
            waits: &self.waits,
            wait: Arc::new((Instant::now() + wait, why)),
        };
        self.waits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(waiting.wait.clone());
        tokio::time::sleep(wait).await;
    }

    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Wish> {
        self.wish.subscribe()
    }

    fn set(&self, wanted: Wish) {
        self.wish.send_if_modified(|wish| {
            let changes = *wish != Wish::Cancel && *wish != wanted;
            if changes {
                *wish = wanted;
            }
            changes
        });
    }
}

/// A limit in bytes a second. Clones are the same limit, so that several transfers can share a line.
#[derive(Debug, Clone, Default)]
pub struct Limiter(Arc<Bucket>);

#[derive(Debug, Default)]
struct Bucket {
    /// Bytes a second; 0 is no limit.
    rate: AtomicU64,
    level: Mutex<Option<(f64, Instant)>>,
}

impl Limiter {
    /// `None` (and 0) is no limit. Takes effect at once.
    pub fn set(&self, bytes_per_second: Option<u64>) {
        self.0
            .rate
            .store(bytes_per_second.unwrap_or(0), Ordering::Relaxed);
    }

    /// Waits until `bytes` more may be taken from the network.
    pub(crate) async fn pass(&self, bytes: usize) {
        // Short waits, so that a new limit counts within a tenth of a second.
        while let Some(wait) = self.take(bytes, Instant::now()) {
            tokio::time::sleep(wait.min(Duration::from_millis(100))).await;
        }
    }

    /// A token bucket of a quarter second that may go into debt by one piece: `None` if the bytes were taken.
    fn take(&self, bytes: usize, now: Instant) -> Option<Duration> {
        let rate = self.0.rate.load(Ordering::Relaxed) as f64;
        let mut level = self.0.level.lock().unwrap_or_else(PoisonError::into_inner);
        if rate == 0.0 {
            *level = None;
            return None;
        }
        let (tokens, since) = level.unwrap_or((0.0, now));
        let tokens =
            (tokens + now.saturating_duration_since(since).as_secs_f64() * rate).min(rate / 4.0);
        let taken = tokens >= 0.0;
        *level = Some((if taken { tokens - bytes as f64 } else { tokens }, now));
        (!taken).then(|| Duration::from_secs_f64((-tokens / rate).min(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_a_thousand_bytes_a_second_lets_ten_thousand_pass_in_ten_seconds() {
        let limiter = Limiter::default();
        limiter.set(Some(1000));
        let start = Instant::now();
        let mut now = start;
        let mut passed = 0;
        while now < start + Duration::from_secs(10) {
            match limiter.take(100, now) {
                None => passed += 100,
                Some(wait) => now += wait.max(Duration::from_millis(1)),
            }
        }
        assert!((9_800..=10_350).contains(&passed), "{passed}");
        limiter.set(None);
        assert_eq!(limiter.take(1 << 30, now), None);
        assert_eq!(limiter.take(1 << 30, now), None);
    }

    #[test]
    fn cancel_is_for_good_and_pause_is_not() {
        let control = Control::new();
        control.pause();
        assert!(control.clone().is_paused());
        control.resume();
        assert!(!control.is_paused());
        control.cancel();
        control.resume();
        control.pause();
        assert!(control.is_cancelled());
    }
}
