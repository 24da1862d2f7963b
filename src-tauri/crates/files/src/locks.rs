//! Locks on files, taken at once or not at all; but for one wait. A program that another thread is just starting has all open files of this one
//! for a moment, and the locks of those that are closed meanwhile with them: such a lock is nobody's, and soon gone.

use std::fs::{File, TryLockError};
use std::time::Duration;

const TRIES: u32 = 10;
const BETWEEN: Duration = Duration::from_millis(10);

/// Locks it for this one alone.
///
/// # Errors
/// As [`File::try_lock`].
pub fn alone(file: &File) -> Result<(), TryLockError> {
    within(TRIES, || file.try_lock())
}

/// Locks it together with others that do the same.
///
/// # Errors
/// As [`File::try_lock_shared`].
pub fn shared(file: &File) -> Result<(), TryLockError> {
    within(TRIES, || file.try_lock_shared())
}

fn within(tries: u32, lock: impl Fn() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    let mut tries = 0..tries;
    loop {
        match lock() {
            Err(TryLockError::WouldBlock) if tries.next().is_some() => std::thread::sleep(BETWEEN),
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_program_that_has_it_for_a_moment_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.fst");
        std::fs::write(&path, "x").unwrap();
        let held = File::open(&path).unwrap();
        held.try_lock_shared().unwrap();
        // It gets the open file as every program does that is being started, and keeps it until its input ends.
        let mut program = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(held)
            .spawn()
            .unwrap();
        let file = File::open(&path).unwrap();
        let refused = within(1, || file.try_lock());
        assert!(matches!(refused, Err(TryLockError::WouldBlock)));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| within(6000, || file.try_lock()).is_ok());
            std::thread::sleep(2 * BETWEEN);
            drop(program.stdin.take());
            assert!(waits.join().unwrap());
        });
        program.wait().unwrap();
        // And one that is really held is not waited for without end, shared or alone.
        let other = File::open(&path).unwrap();
        assert!(matches!(alone(&other), Err(TryLockError::WouldBlock)));
        assert!(matches!(shared(&other), Err(TryLockError::WouldBlock)));
    }
}
