//! Starting threads where the system may not give them, which a limit on processes, a control group or a limit on memory can be the reason
//! of: what starts one gets it or an error that says how many there can be. Standard ways to start several panic instead, and runtimes wait
//! for ever for a thread that never came.

use std::fmt;
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// That the system starts no more threads: a sentence with what to do.
#[derive(Debug)]
pub struct Refused {
    /// Threads this program can have.
    can: Option<usize>,
    /// Threads it needs at once.
    needs: Option<usize>,
    source: io::Error,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.can {
            Some(1) => f.write_str("This computer lets FaStar start only 1 thread")?,
            Some(can) => write!(f, "This computer lets FaStar start only {can} threads")?,
            None => f.write_str("This computer lets FaStar start no more threads")?,
        }
        match self.needs {
            Some(needs) => write!(f, ", and it needs {needs}")?,
            None => f.write_str(", and it needs another")?,
        }
        let text = self.source.to_string();
        let reason = text.split(" (os error").next().unwrap_or_default();
        write!(
            f,
            " ({reason}). Raise the limit on processes (`ulimit -u`, or pids.max of the control group) or on memory (`ulimit -v`), or end other programs, and try again."
        )
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Threads this program has now, as far as the system tells.
fn running() -> Option<usize> {
    std::fs::read_dir("/proc/self/task")
        .ok()
        .map(Iterator::count)
}

/// Starts a thread.
///
/// # Errors
/// When the system does not start one.
pub fn start<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Refused> {
    start_with(Builder::new().name(name.into()), work)
}

/// The same with more choices than a name.
///
/// # Errors
/// When the system does not start one.
pub fn start_with<T: Send + 'static>(
    thread: Builder,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Refused> {
    thread.spawn(work).map_err(|source| Refused {
        can: running(),
        needs: None,
        source,
    })
}

/// Starts a thread that ends before the scope does.
///
/// # Errors
/// When the system does not start one.
pub fn start_scoped<'scope, T: Send + 'scope>(
    thread: Builder,
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Refused> {
    thread.spawn_scoped(scope, work).map_err(|source| Refused {
        can: running(),
        needs: None,
        source,
    })
}

/// Finds out whether so many more threads can be started, for what cannot tell that it was given fewer: they are all started, and end.
///
/// # Errors
/// When fewer can be.
pub fn room(more: usize) -> Result<(), Refused> {
    room_for(more, Builder::new)
}

fn room_for(more: usize, thread: impl Fn() -> Builder) -> Result<(), Refused> {
    let before = running();
    let all_there = (Mutex::new(false), Condvar::new());
    let wait = || {
        let mut go = all_there.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !*go {
            go = all_there.1.wait(go).unwrap_or_else(PoisonError::into_inner);
        }
    };
    std::thread::scope(|scope| {
        let mut outcome = Ok(());
        for started in 0..more {
            if let Err(source) = thread().spawn_scoped(scope, wait) {
                outcome = Err(Refused {
                    can: before.map(|before| before + started),
                    needs: before.map(|before| before + more),
                    source,
                });
                break;
            }
        }
        *all_there.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        all_there.1.notify_all();
        outcome
    })
}

/// Does the same work on so many threads, or on as many of them as the system starts: on the calling one where that is none. For work that is
/// shared out piece by piece, so that whoever there is does all of it.
pub fn share(threads: usize, work: impl Fn() + Sync) {
    share_with(threads, Builder::new, work);
}

fn share_with(threads: usize, thread: impl Fn() -> Builder, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        let started = (0..threads)
            .take_while(|_| thread().spawn_scoped(scope, &work).is_ok())
            .count();
        if started == 0 {
            work();
        }
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A thread that no system starts: its stack is larger than any memory.
    fn impossible() -> Builder {
        Builder::new().stack_size(1 << 60)
    }

    fn is_told(refused: &Refused) {
        let text = refused.to_string();
        assert!(
            text.starts_with("This computer lets FaStar start "),
            "{text}"
        );
        assert!(
            text.contains("ulimit -u") && text.ends_with("try again."),
            "{text}"
        );
        assert!(!text.contains("os error"), "{text}");
    }

    #[test]
    fn a_thread_that_cannot_be_is_an_error_with_what_to_do() {
        assert_eq!(start("one", || 7).unwrap().join().unwrap(), 7);
        is_told(&start_with(impossible(), || ()).unwrap_err());
        std::thread::scope(|scope| {
            let started = start_scoped(Builder::new(), scope, || 7).unwrap();
            assert_eq!(started.join().unwrap(), 7);
            is_told(&start_scoped(impossible(), scope, || ()).unwrap_err());
        });
    }

    #[test]
    fn room_is_for_as_many_as_can_be_at_once() {
        room(12).unwrap();
        // The first three can be.
        let number = Cell::new(0);
        let refused = room_for(5, || {
            number.set(number.get() + 1);
            match number.get() {
                ..=3 => Builder::new(),
                _ => impossible(),
            }
        })
        .unwrap_err();
        is_told(&refused);
        assert_eq!(number.get(), 4);
        if let (Some(can), Some(needs)) = (refused.can, refused.needs) {
            assert_eq!(needs - can, 2);
        }
    }

    #[test]
    fn shared_work_is_done_whoever_there_is() {
        for possible in [0, 1, 3] {
            let (number, done, next) = (Cell::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
            let thread = || {
                number.set(number.get() + 1);
                match number.get() <= possible {
                    true => Builder::new(),
                    false => impossible(),
                }
            };
            share_with(4, thread, || {
                while next.fetch_add(1, Ordering::Relaxed) < 100 {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert_eq!(done.into_inner(), 100, "{possible}");
        }
    }
}
