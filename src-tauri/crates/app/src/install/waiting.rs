//! Questions to the hub that may have to wait: the person hears why and how long.

use std::panic::resume_unwind;
use std::time::Duration;

use fastar_api::JobPhase;

use super::Tell;
use crate::jobs::{Report, Steering};

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Does `ask` on a thread of its own, and tells when it waits before it asks again.
pub(super) fn told<T: Send>(
    steering: &Steering,
    tell: Tell<'_>,
    ask: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        let asking = scope.spawn(ask);
        let mut since_last = LOOK_EVERY;
        while !asking.is_finished() {
            if since_last >= LOOK_EVERY {
                since_last = Duration::ZERO;
                tell(Report {
                    phase: phase(steering),
                    done_bytes: 0,
                    total_bytes: None,
                });
            }
            // Short, because most questions are answered in a moment.
            let pause = Duration::from_millis(5);
            std::thread::sleep(pause);
            since_last += pause;
        }
        asking.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn phase(steering: &Steering) -> JobPhase {
    match steering.transfer().waiting() {
        Some((seconds, reason)) => JobPhase::Retrying {
            seconds: u32::try_from(seconds).unwrap_or(u32::MAX),
            reason,
        },
        None => JobPhase::Resolving,
    }
}
