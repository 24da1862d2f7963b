//! Settings: every one there is, its value, and when a change counts. And what a change of the largest one would mean before it is made.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ts_rs::TS;

/// When a changed setting counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum SettingScope {
    /// At once.
    Live,
    /// From the next message on.
    NextMessage,
    /// Once the model is loaded again.
    ReloadModel,
    /// Once the app is started again.
    RestartApp,
}

/// Where a setting is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum SettingSection {
    /// What the window looks like.
    Appearance,
    /// How answers are written.
    Answers,
    /// How much of the computer a model gets.
    Performance,
    /// Where models are and how they are fetched.
    Models,
    /// The local server of the window.
    Server,
    /// What is written down about the app itself.
    Logs,
}

/// What values a setting takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SettingKind {
    /// An address on the web.
    Address,
    /// A path that a dialog of the desktop chooses. A face can only reset it.
    Path,
    /// A text that goes in and never comes out: the value says whether there is one.
    Secret,
    /// A whole number.
    Whole {
        /// The least.
        #[ts(type = "number")]
        min: u64,
        /// The most.
        #[ts(type = "number")]
        max: u64,
    },
    /// A number.
    Decimal {
        /// The least.
        min: f64,
        /// The most.
        max: f64,
    },
    /// Yes or no.
    Switch,
    /// One of some words.
    Choice {
        /// The words.
        options: Vec<String>,
    },
}

/// One setting as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Setting {
    /// Names it in a request, in the file, and in errors.
    pub key: String,
    /// Where it is shown.
    pub section: SettingSection,
    /// What values it takes.
    #[serde(flatten)]
    #[ts(flatten)]
    pub kind: SettingKind,
    /// When a change counts.
    pub scope: SettingScope,
    /// What it does, in one or two sentences.
    pub help: String,
    /// What counts while nothing is chosen; none where the app finds the best by itself.
    #[ts(type = "boolean | number | string | null")]
    pub default: Value,
    /// What is chosen, or the default.
    #[ts(type = "boolean | number | string | null")]
    pub value: Value,
    /// Something is chosen.
    pub is_set: bool,
    /// What the model in use really works with, where that is known.
    #[ts(type = "boolean | number | string | null")]
    pub in_use: Value,
    /// The choice waits for its scope: the model in use was loaded with another one.
    pub pending: bool,
    /// What was given when FaStar was started: it comes before the choice until FaStar is closed. None where nothing was.
    #[ts(type = "boolean | number | string | null")]
    pub given: Value,
    /// Why what is in the file does not count, or not as it was meant, a sentence.
    pub problem: Option<String>,
}

/// What a cache for experts of some size would be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct CachePlan {
    /// Bytes it would take.
    #[ts(type = "number")]
    pub cache_bytes: u64,
    /// Experts that would fit.
    #[ts(type = "number")]
    pub slots: u64,
    /// Experts there are.
    #[ts(type = "number")]
    pub experts: u64,
    /// Bytes of the weights that are in memory in any case.
    #[ts(type = "number")]
    pub dense_bytes: u64,
    /// Why it is not what was asked for, a sentence.
    pub note: Option<String>,
    /// The smallest cache that works, in bytes.
    #[ts(type = "number")]
    pub fewest_bytes: u64,
    /// The largest one that fits now.
    #[ts(type = "number")]
    pub most_bytes: u64,
    /// One for every expert.
    #[ts(type = "number")]
    pub all_bytes: u64,
    /// About how many tokens a second answers would get; none before enough was measured.
    pub tokens_per_second: Option<f64>,
    /// About what share of the experts asked for would be in memory, from 0 to 1.
    pub hit_rate: Option<f64>,
}
