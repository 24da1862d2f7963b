//! Long work: a download, a check of a model file, a repair, a move. It has an id and a saved row, can be paused and cancelled, and goes on
//! after the app was closed or killed.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use crate::ApiError;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Fetches a model and makes its file.
    Download,
    /// Reads a model file whole and compares every checksum.
    Verify,
    /// Fetches the damaged records of a model file again.
    Repair,
    /// Moves a model to another folder.
    Move,
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits until the job before it has ended.
    Queued,
    /// At work; `phase` says on what.
    Running,
    /// Stopped by the person, or because the app ended; everything done so far is kept.
    Paused,
    /// An error ended it; everything done so far is kept, and it can be resumed.
    Failed,
    /// Did all it had to.
    Done,
    /// Given up by the person.
    Cancelled,
}

impl JobState {
    /// Whether nothing more happens in it unless the person asks.
    pub fn is_at_rest(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// What a running job does at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum JobPhase {
    /// Asks the hub what there is, and reads what is on the disk already.
    Resolving,
    /// Bytes arrive.
    Downloading,
    /// Nothing arrives any more; the connection is being made anew.
    Stalled {
        /// For how long.
        seconds: u32,
    },
    /// The hub or the network is not there; asked again after a wait.
    Retrying {
        /// How long the wait is.
        seconds: u32,
        /// Why, as one sentence.
        reason: String,
    },
    /// What has arrived is being put into the model file.
    Converting,
    /// Bytes on the disk are read and compared with their checksums, or with what they were copied from.
    Verifying,
    /// Bytes are copied from one disk to another.
    Copying,
    /// Ends what it is in the middle of, to pause or to be cancelled.
    Stopping,
}

/// One job as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Job {
    /// Id, unique in the app.
    pub id: String,
    /// What it does.
    pub kind: JobKind,
    /// Name of the model, for people.
    pub title: String,
    /// File name of the model in the model folder.
    pub file: String,
    /// Where the job is in its life.
    pub state: JobState,
    /// What it does at this moment; none unless running.
    pub phase: Option<JobPhase>,
    /// Bytes that are done and safe on the disk.
    #[ts(type = "number")]
    pub done_bytes: u64,
    /// Bytes there are to do; none before that is known.
    #[ts(type = "number | null")]
    pub total_bytes: Option<u64>,
    /// Bytes a second, over the last seconds; none when nothing moves.
    pub bytes_per_second: Option<f64>,
    /// Seconds to the end at that speed.
    #[ts(type = "number | null")]
    pub seconds_left: Option<u64>,
    /// Why it failed.
    pub error: Option<ApiError>,
    /// What came of it, as one sentence, where there is more to say than that it is done.
    pub outcome: Option<String>,
    /// When the person asked for it.
    #[ts(type = "number")]
    pub created_at: i64,
}
