//! What helps when something is not as it should be: the computer as the app sees it, and what the app wrote down about itself.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// The computer, as far as this process may use it. None where the system does not say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Hardware {
    /// Operating system, its version, and the processor's kind.
    pub system: String,
    /// Name of the processor.
    pub processor: String,
    /// The instructions that are computed with.
    pub instructions: Instructions,
    /// Processors this process may run on.
    pub processors: u32,
    /// Cores among them; two processors of one core share its arithmetic.
    pub cores: u32,
    /// How many processors' time this process is granted, where that is limited.
    pub quota: Option<f64>,
    /// Threads that are used when nothing else is chosen.
    pub threads: u32,
    /// Memory of the computer.
    #[ts(type = "number | null")]
    pub memory_bytes: Option<u64>,
    /// Memory that this process may still take.
    #[ts(type = "number | null")]
    pub available_bytes: Option<u64>,
    /// Where chats and settings are.
    pub data: Disk,
    /// Where models are.
    pub models: Disk,
    /// A neural processor was found. It is not used yet.
    pub npu: bool,
}

/// Instructions for arithmetic, the slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Instructions {
    /// What every processor of its kind has.
    Baseline,
    /// AVX2.
    Avx2,
    /// AVX-512.
    Avx512,
}

/// A folder and the disk it is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Disk {
    /// The folder.
    pub folder: String,
    /// Space left there.
    #[ts(type = "number | null")]
    pub free_bytes: Option<u64>,
}

/// What this computer would do with the recommended model of the catalogue, before anything of it is here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct MachinePlan {
    /// When memory and disk were measured, in milliseconds since 1970; none where they were not.
    #[ts(type = "number | null")]
    pub measured_at: Option<u64>,
    /// The entry of the catalogue.
    pub entry: String,
    /// Its name, for people.
    pub name: String,
    /// The computer.
    pub hardware: Hardware,
    /// Bytes to fetch, without the drafter.
    #[ts(type = "number")]
    pub download_bytes: u64,
    /// Most bytes on the disk while it is fetched and made.
    #[ts(type = "number")]
    pub peak_bytes: u64,
    /// Whether the disk for models has room for that; none where the system does not say.
    pub fits_disk: Option<bool>,
    /// Bytes of memory for weights that every token reads.
    #[ts(type = "number")]
    pub dense_bytes: u64,
    /// Bytes of memory for experts.
    #[ts(type = "number")]
    pub cache_bytes: u64,
    /// Experts that fit into them.
    #[ts(type = "number")]
    pub slots: u64,
    /// Experts there are.
    #[ts(type = "number")]
    pub experts: u64,
    /// Whether the memory is enough to load it at all; none where the system does not say.
    pub fits_memory: Option<bool>,
    /// What a person should know of the memory, a sentence.
    pub memory_note: Option<String>,
    /// How fast answers would be written; none before memory and disk were measured.
    pub speed: Option<SpeedEstimate>,
    /// Why they could not be measured, a sentence.
    pub not_measured: Option<String>,
}

/// How fast answers would be written, worked out from what memory and disk do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct SpeedEstimate {
    /// Tokens a second where nothing is read ahead, ...
    pub least: f64,
    /// ... and where reading and computing always go on at once.
    pub most: f64,
    /// Bytes a second that all threads together read from memory, measured.
    pub memory_rate: f64,
    /// Bytes a second that were read from the disk for models, measured.
    pub disk_rate: f64,
    /// About what share of the experts asked for would be in memory, from 0 to 1.
    pub hit_rate: f64,
}

/// How grave a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What happened.
    Info,
    /// Details.
    Debug,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct LogLine {
    /// Grows by one with every line.
    #[ts(type = "number")]
    pub number: u64,
    /// When.
    #[ts(type = "number")]
    pub at: i64,
    /// How grave.
    pub level: LogLevel,
    /// Which part of the app.
    pub target: String,
    /// What.
    pub text: String,
}

/// The newest lines of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct LogPage {
    /// The oldest first.
    pub lines: Vec<LogLine>,
    /// The number of the newest line; what comes after it is asked for with it.
    #[ts(type = "number")]
    pub next: u64,
    /// The file that holds them all.
    pub file: String,
    /// False when that file cannot be written.
    pub written: bool,
}
