//! Questions to the hub that may have to wait: the person hears why and how long.

use std::panic::resume_unwind;
use std::thread::Builder;
use std::time::Duration;

use fastar_api::JobPhase;
use fastar_kernels::threads;

use super::{Result, Tell};
use crate::jobs::{Report, Steering};

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Does `ask` on a thread of its own, and tells when it waits before it asks again.
pub(super) fn told<T: Send>(
    steering: &Steering,
    tell: Tell<'_>,
    ask: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    told_from(Builder::new(), steering, tell, ask)
}

fn told_from<T: Send>(
    thread: Builder,
    steering: &Steering,
    tell: Tell<'_>,
    ask: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let asking = threads::start_scoped(thread, scope, ask)?;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_thread_that_cannot_be_is_an_error_and_no_panic() {
        let steering = Steering::default();
        assert_eq!(told(&steering, &mut |_| {}, || Ok(7)).unwrap(), 7);
        // No system has memory for its stack.
        let thread = Builder::new().stack_size(1 << 60);
        let error = told_from(thread, &steering, &mut |_| {}, || Ok(7)).unwrap_err();
        assert!(matches!(error, Error::Thread(_)), "{error}");
    }
}
