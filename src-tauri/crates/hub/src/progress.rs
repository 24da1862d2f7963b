//! What a transfer does right now, counted by the bytes on the disk and never by those that went over the line.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A moment of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Bytes of the set that are on the disk, those of earlier runs included; a finished file counts whole.
    pub done: u64,
    /// Bytes of the set.
    pub total: u64,
    /// Bytes that came over the line in this run.
    pub fetched: u64,
    /// What it is doing.
    pub phase: Phase,
    /// Bytes a second over the last ten seconds, while downloading.
    pub speed: Option<f64>,
    /// Time to the last byte at that speed.
    pub left: Option<Duration>,
}

/// What the transfer is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Asking for addresses.
    Connecting,
    /// Bytes arrive.
    Downloading,
    /// Connected, and nothing has come for this many seconds.
    Stalled {
        /// Seconds.
        seconds: u64,
    },
    /// Retrying by itself.
    Waiting {
        /// Until the next attempt.
        seconds: u64,
        /// Why the last one failed.
        why: String,
    },
    /// Reading finished files to compare their hash.
    Verifying {
        /// Bytes read.
        done: u64,
        /// Bytes to read.
        total: u64,
    },
    /// Until somebody resumes.
    Paused,
}

#[derive(Debug, Clone)]
pub(crate) enum Activity {
    Connecting,
    Receiving(Instant),
    Waiting(Instant, String),
    Verifying { done: u64, total: u64 },
}

/// The counters that all connections of a transfer share.
#[derive(Default)]
pub(crate) struct Board {
    pub(crate) done: AtomicU64,
    pub(crate) fetched: AtomicU64,
    activities: Mutex<HashMap<u64, Activity>>,
    next: AtomicU64,
}

/// One connection's or check's line on the board; wiped off when dropped.
pub(crate) struct Line {
    board: Arc<Board>,
    id: u64,
}

impl Line {
    pub(crate) fn new(board: &Arc<Board>) -> Self {
        let line = Self {
            board: board.clone(),
            id: board.next.fetch_add(1, Ordering::Relaxed),
        };
        line.set(Activity::Connecting);
        line
    }

    pub(crate) fn set(&self, activity: Activity) {
        self.board
            .activities
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(self.id, activity);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.board
            .activities
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
    }
}

impl Board {
    fn phase(&self, now: Instant, patience: Duration) -> Phase {
        let activities = self
            .activities
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut silent = None;
        let mut wait: Option<(Duration, &str)> = None;
        let mut verifying: Option<(u64, u64)> = None;
        for activity in activities.values() {
            match activity {
                Activity::Receiving(last) => {
                    let since = now.saturating_duration_since(*last);
                    if since < patience {
                        return Phase::Downloading;
                    }
                    silent = Some(silent.map_or(since, |least: Duration| least.min(since)));
                }
                Activity::Waiting(until, why) => {
                    let left = until.saturating_duration_since(now);
                    if wait.is_none_or(|(least, _)| left < least) {
                        wait = Some((left, why));
                    }
                }
                Activity::Verifying { done, total } => {
                    let (sum, of) = verifying.unwrap_or_default();
                    verifying = Some((sum + done, of + total));
                }
                Activity::Connecting => {}
            }
        }
        if let Some((done, total)) = verifying {
            Phase::Verifying { done, total }
        } else if let Some(since) = silent {
            Phase::Stalled {
                seconds: since.as_secs(),
            }
        } else if let Some((left, why)) = wait {
            Phase::Waiting {
                seconds: left.as_secs_f64().ceil() as u64,
                why: why.to_owned(),
            }
        } else {
            Phase::Connecting
        }
    }
}

/// Turns the board into [`Progress`], with a moving window for the speed.
pub(crate) struct Meter {
    board: Arc<Board>,
    total: u64,
    patience: Duration,
    window: VecDeque<(Instant, u64)>,
}

const WINDOW: Duration = Duration::from_secs(10);

impl Meter {
    pub(crate) fn new(board: &Arc<Board>, total: u64, stall: Duration) -> Self {
        Self {
            board: board.clone(),
            total,
            patience: (stall / 2).min(Duration::from_secs(10)),
            window: VecDeque::new(),
        }
    }

    pub(crate) fn now(&mut self, paused: bool) -> Progress {
        self.at(Instant::now(), paused)
    }

    fn at(&mut self, now: Instant, paused: bool) -> Progress {
        let done = self.board.done.load(Ordering::Relaxed).min(self.total);
        let fetched = self.board.fetched.load(Ordering::Relaxed);
        let phase = if paused {
            Phase::Paused
        } else {
            self.board.phase(now, self.patience)
        };
        if paused {
            self.window.clear();
        }
        self.window.push_back((now, fetched));
        while self.window.len() > 2
            && self
                .window
                .get(1)
                .is_some_and(|(at, _)| now.saturating_duration_since(*at) > WINDOW)
        {
            self.window.pop_front();
        }
        let speed = self.window.front().and_then(|(at, then)| {
            let seconds = now.saturating_duration_since(*at).as_secs_f64();
            (phase == Phase::Downloading && seconds >= 0.5)
                .then(|| fetched.saturating_sub(*then) as f64 / seconds)
        });
        let left = speed.filter(|speed| *speed >= 1.0).map(|speed| {
            Duration::from_secs((self.total.saturating_sub(done) as f64 / speed).ceil() as u64)
        });
        Progress {
            done,
            total: self.total,
            fetched,
            phase,
            speed,
            left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_and_time_left_come_from_the_last_ten_seconds_and_are_absent_while_nothing_arrives() {
        let board = Arc::new(Board::default());
        let line = Line::new(&board);
        let mut meter = Meter::new(&board, 100_000, Duration::from_secs(45));
        let start = Instant::now();
        for second in 0..=20_u64 {
            let now = start + Duration::from_secs(second);
            board.fetched.store(second * 1000, Ordering::Relaxed);
            board.done.store(second * 1000, Ordering::Relaxed);
            line.set(Activity::Receiving(now));
            let progress = meter.at(now, false);
            assert_eq!(progress.phase, Phase::Downloading);
            if second > 0 {
                assert_eq!(progress.speed, Some(1000.0));
                assert_eq!(progress.left, Some(Duration::from_secs(100 - second)));
            }
        }
        let late = start + Duration::from_secs(32);
        let progress = meter.at(late, false);
        assert_eq!(
            (progress.phase, progress.speed, progress.left),
            (Phase::Stalled { seconds: 12 }, None, None)
        );
        line.set(Activity::Waiting(
            late + Duration::from_millis(1500),
            "the hub asks for a pause".into(),
        ));
        assert_eq!(
            meter.at(late, false).phase,
            Phase::Waiting {
                seconds: 2,
                why: "the hub asks for a pause".into()
            }
        );
        drop(line);
        assert_eq!(meter.at(late, true).phase, Phase::Paused);
    }
}
