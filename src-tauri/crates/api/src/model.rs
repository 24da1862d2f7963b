//! What the app says about itself and about the model it runs.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use crate::ApiError;

/// Which face of the app is asking; decides what the interface offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Face {
    /// The desktop window: file dialogs and links through the system.
    Desktop,
    /// A browser talking to `fastar serve`.
    Web,
}

/// Facts about the running app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct AppInfo {
    /// The app's version, for example `0.1.0`.
    pub version: String,
    /// Which face is asking.
    pub face: Face,
    /// Where chats are kept.
    pub data_folder: String,
    /// What was repaired, set aside or interrupted before this start, a sentence or two each; shown once.
    pub notices: Vec<String>,
}

/// The model in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ModelInfo {
    /// Name for people: the file name without its ending, or `Demo model`.
    pub name: String,
    /// The small model that ships inside the app.
    pub is_demo: bool,
    /// File of the model; none for the embedded demo.
    pub path: Option<String>,
    /// Size of the container in bytes.
    #[ts(type = "number")]
    pub file_bytes: u64,
    /// Parameters in all.
    #[ts(type = "number")]
    pub parameters: u64,
    /// Transformer layers.
    pub layers: u32,
    /// Routed experts in each layer.
    pub experts: u32,
    /// Positions one conversation may have.
    pub context_size: u32,
    /// Threads the engine computes on.
    pub threads: u32,
    /// What the file cannot do and what to do about it, a sentence; none when it can do everything.
    pub limit: Option<String>,
}

/// Where the model is on its way from file to answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ModelState {
    /// Being read and checked.
    Loading {
        /// Name for people.
        name: String,
    },
    /// Answers can be written.
    Ready {
        /// The model.
        model: ModelInfo,
    },
    /// Could not be loaded; the error says why and what to do.
    Failed {
        /// Name for people.
        name: String,
        /// Why.
        error: ApiError,
        /// The model that writes answers meanwhile: the one before, or the demo. None when there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        in_use: Option<ModelInfo>,
    },
}

/// What of the model in use is in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct ModelMemory {
    /// Bytes of the weights that are always in memory.
    #[ts(type = "number")]
    pub dense_bytes: u64,
    /// Bytes that experts may take.
    #[ts(type = "number")]
    pub cache_bytes: u64,
    /// Experts that fit.
    #[ts(type = "number")]
    pub slots: u64,
    /// Experts there are.
    #[ts(type = "number")]
    pub experts: u64,
    /// Why the cache is not what was asked for, a sentence.
    pub note: Option<String>,
    /// What was read so far; none for the embedded demo, which is in memory as a whole.
    pub paging: Option<Paging>,
}

/// What the pager of the experts did since the model was loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Paging {
    /// Slots that hold an expert.
    #[ts(type = "number")]
    pub filled: u64,
    /// Bytes of one expert.
    #[ts(type = "number")]
    pub expert_bytes: u64,
    /// Tokens computed.
    #[ts(type = "number")]
    pub tokens: u64,
    /// Experts that were in memory when a layer asked for them.
    #[ts(type = "number")]
    pub hits: u64,
    /// Experts that were read because a layer asked for them.
    #[ts(type = "number")]
    pub misses: u64,
    /// Experts that were just being read ahead when a layer asked for them.
    #[ts(type = "number")]
    pub late: u64,
    /// Time in which the computation waited for experts.
    pub waited_ms: f64,
    /// Bytes read on demand.
    #[ts(type = "number")]
    pub demand_bytes: u64,
    /// Bytes read ahead.
    #[ts(type = "number")]
    pub ahead_bytes: u64,
    /// Bytes read to fill the cache after the start.
    #[ts(type = "number")]
    pub warm_bytes: u64,
    /// Experts read ahead that were used then.
    #[ts(type = "number")]
    pub useful: u64,
    /// Experts read ahead that left again unused.
    #[ts(type = "number")]
    pub wasted: u64,
    /// The latest step: one token of an answer, or one piece of a prompt.
    pub last: PagingStep,
    /// Each layer.
    pub layers: Vec<PagingLayer>,
}

/// One step, with the meanings of [`Paging`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct PagingStep {
    /// Its tokens.
    #[ts(type = "number")]
    pub tokens: u64,
    /// See [`Paging`].
    #[ts(type = "number")]
    pub hits: u64,
    /// See [`Paging`].
    #[ts(type = "number")]
    pub misses: u64,
    /// See [`Paging`].
    #[ts(type = "number")]
    pub late: u64,
    /// See [`Paging`].
    pub waited_ms: f64,
    /// See [`Paging`].
    #[ts(type = "number")]
    pub demand_bytes: u64,
}

/// One layer, with the meanings of [`Paging`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct PagingLayer {
    /// See [`Paging`].
    #[ts(type = "number")]
    pub hits: u64,
    /// See [`Paging`].
    #[ts(type = "number")]
    pub misses: u64,
    /// See [`Paging`].
    #[ts(type = "number")]
    pub late: u64,
    /// See [`Paging`].
    pub waited_ms: f64,
}
