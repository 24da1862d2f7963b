//! The seam between jobs and what they do: what was ordered, how it is stopped, and what is heard of it.
//!
//! The real work is in [`crate::install`]; tests of the jobs put scripted work in its place, so that every moment can be reached.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastar_api::{ApiError, JobKind, JobPhase};
use fastar_hub::Control;
use serde::{Deserialize, Serialize};

/// What a person asked for; saved with the job and enough to begin it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What is to be done.
    pub kind: JobKind,
    /// The folder of the model.
    pub folder: PathBuf,
    /// Its file name there.
    pub file: String,
    /// Name for people.
    pub title: String,
    /// Repository on the hub, where one is needed; for a move, the folder that the model goes to.
    pub repository: String,
    /// Branch, tag or commit.
    pub revision: String,
    /// With the drafter.
    pub drafter: bool,
}

impl Order {
    /// The model file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.file)
    }
}

/// What work says while it is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What is being done.
    pub phase: JobPhase,
    /// Bytes done and safe.
    pub done_bytes: u64,
    /// Bytes in all, once known.
    pub total_bytes: Option<u64>,
}

/// Stops work and sets how fast it may be, at once.
#[derive(Debug, Default)]
pub struct Steering {
    stop: AtomicBool,
    /// Bytes a second; 0 is no limit.
    limit: AtomicU64,
    transfer: Control,
}

impl Steering {
    /// Asks the work to end soon; what is done stays.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.transfer.cancel();
    }

    /// Whether the work should end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// For what looks at a flag itself.
    pub fn flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// For transfers: cancelled by [`stop`](Self::stop), and under the same limit.
    pub fn transfer(&self) -> &Control {
        &self.transfer
    }

    /// Most bytes a second; none for no limit.
    pub fn set_limit(&self, bytes_per_second: Option<u64>) {
        self.limit
            .store(bytes_per_second.unwrap_or(0), Ordering::Relaxed);
        self.transfer.set_limit(bytes_per_second);
    }

    /// Most bytes a second.
    pub fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }
}

/// How work ended that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything is done; with a sentence where there is more to say.
    Done(Option<String>),
    /// It was asked to stop, and what is done is on the disk.
    Stopped,
}

/// What is on the disk of a download that has not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// What was ordered.
    pub order: Order,
    /// Bytes there are.
    pub done_bytes: u64,
    /// Bytes there will be, once known.
    pub total_bytes: Option<u64>,
}

/// Does the work. Called on threads of the jobs, one at a time for each kind.
pub trait Workshop: Send + Sync {
    /// Does what was ordered, from where it was left.
    fn work(
        &self,
        order: &Order,
        steering: &Steering,
        report: &mut dyn FnMut(Report),
    ) -> Result<Ended, ApiError>;
    /// What an unfinished download of this file has left.
    fn leftover(&self, folder: &Path, file: &str) -> Option<Leftover>;
    /// Removes what an unfinished download of this file has left.
    fn discard(&self, folder: &Path, file: &str) -> Result<(), ApiError>;
    /// Removes what has arrived of a move that was given up.
    fn discard_move(&self, _order: &Order) -> Result<(), ApiError> {
        Ok(())
    }
}
