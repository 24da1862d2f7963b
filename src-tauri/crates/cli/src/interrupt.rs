//! Ctrl+C: stops the answer that is being written; ends the program where there is none, or when pressed again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fastar_app::jobs::Steering;
use fastar_engine::Cancel;

use crate::failure::Failure;

/// 128 + SIGINT, as shells have it.
pub const EXIT_CODE: u8 = 130;

/// The work that the next Ctrl+C stops.
static CURRENT: Mutex<Option<Work>> = Mutex::new(None);
/// A folder that must not outlive the program.
static TEMPORARY: Mutex<Option<PathBuf>> = Mutex::new(None);
/// Looked at by work on model files.
static FILE_WORK: AtomicBool = AtomicBool::new(false);

enum Work {
    Answer(Cancel),
    File,
    Job(Arc<Steering>),
}

/// Takes over Ctrl+C. Called once, before anything slow.
pub fn take_over() -> Result<(), Failure> {
    ctrlc::set_handler(|| {
        let stopped = match &*current() {
            // The second time the person means the program.
            Some(Work::Answer(cancel)) if !cancel.is_cancelled() => {
                cancel.cancel();
                true
            }
            Some(Work::File) if !FILE_WORK.load(Ordering::Relaxed) => {
                FILE_WORK.store(true, Ordering::Relaxed);
                true
            }
            Some(Work::Job(steering)) if !steering.is_stopped() => {
                steering.stop();
                true
            }
            _ => false,
        };
        if !stopped {
            if let Some(folder) = temporary().take() {
                // The work may put something new into it meanwhile. What stays nevertheless the next run finds.
                let mut tries = 0..3;
                while std::fs::remove_dir_all(&folder).is_err() && tries.next().is_some() {}
            }
            std::process::exit(i32::from(EXIT_CODE));
        }
    })
    .map_err(|e| Failure::Error(format!("Ctrl+C could not be taken over: {e}.")))
}

/// While `work` runs, a Ctrl+C that ends the program at once removes this folder first.
pub fn removes<R>(folder: &Path, work: impl FnOnce() -> R) -> R {
    *temporary() = Some(folder.to_owned());
    let result = work();
    *temporary() = None;
    result
}

/// While `work` runs, Ctrl+C sets `cancel`.
pub fn stops<R>(cancel: &Cancel, work: impl FnOnce() -> R) -> R {
    *current() = Some(Work::Answer(cancel.clone()));
    let result = work();
    *current() = None;
    result
}

/// While `work` runs, Ctrl+C sets the flag it is given.
pub fn stops_work<R>(work: impl FnOnce(&'static AtomicBool) -> R) -> R {
    *current() = Some(Work::File);
    let result = work(&FILE_WORK);
    *current() = None;
    result
}

/// While `work` runs, Ctrl+C stops it.
pub fn stops_job<R>(steering: &Arc<Steering>, work: impl FnOnce() -> R) -> R {
    *current() = Some(Work::Job(Arc::clone(steering)));
    let result = work();
    *current() = None;
    result
}

fn temporary() -> std::sync::MutexGuard<'static, Option<PathBuf>> {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn current() -> std::sync::MutexGuard<'static, Option<Work>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}
