//! What the app is doing at this moment, for a picture of it: asked for once a second while somebody looks.
//!
//! Numbers that grow are sums since the model was loaded or the app was started; whoever draws takes differences.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// One look at the app at work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Monitor {
    /// When it was taken: milliseconds of a clock that never jumps.
    pub at_ms: f64,
    /// Differs for every load of a model; none while there is no model.
    #[ts(type = "number | null")]
    pub load: Option<u64>,
    /// What the model computed so far; none while there is no model.
    pub activity: Option<Activity>,
    /// Every expert, one text for each layer and one character for each expert: `.` on the disk, `0` to `7` in memory (7 used most of late), `x` taken by
    /// the layer that is computed. Empty where all of the model is in memory anyway.
    pub experts: Vec<String>,
    /// What this process takes of the computer.
    pub process: Process,
    /// The recording under way, if there is one.
    pub recording: Option<TraceFile>,
}

/// What a model computed since it was loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Activity {
    /// Tokens computed in chunks: of prompts.
    #[ts(type = "number")]
    pub prompt_tokens: u64,
    /// Tokens computed one by one: those of answers, and the last of each prompt.
    #[ts(type = "number")]
    pub answer_tokens: u64,
    /// Time for those of prompts, waiting for experts included.
    pub prompt_ms: f64,
    /// The same for those of answers.
    pub answer_ms: f64,
    /// Time in each layer, waiting for experts included.
    pub layers_ms: Vec<f64>,
}

/// What this process takes of the computer; none where the system does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
pub struct Process {
    /// Memory it has in use.
    #[ts(type = "number | null")]
    pub resident_bytes: Option<u64>,
    /// Memory it may still take.
    #[ts(type = "number | null")]
    pub available_bytes: Option<u64>,
    /// Processor time it has used, of all threads together.
    pub cpu_ms: Option<f64>,
    /// Processors it may use.
    pub processors: u32,
    /// Bytes it has read from disks.
    #[ts(type = "number | null")]
    pub read_bytes: Option<u64>,
}

/// A recording of which experts every token takes, for `fastar simulate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct TraceFile {
    /// Where it is.
    pub path: String,
    /// Its bytes so far.
    #[ts(type = "number")]
    pub bytes: u64,
    /// False when the disk refused some of it: it ends before that.
    pub whole: bool,
}
