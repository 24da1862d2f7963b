//! The contract between the app and every face of it: the desktop window, the web page and the tests.
//!
//! Types only, no behaviour. `ui/src/lib/api/types.ts` is generated from here (`cargo xtask types`); a test fails when
//! that file is stale. Times are milliseconds since 1970 (UTC), durations milliseconds, sizes bytes, lengths tokens.

mod chat;
mod error;
mod help;
mod job;
mod library;
mod model;
mod monitor;
mod server;
mod setting;
mod typescript;

pub use chat::{
    AnswerStats, Attachment, Chat, ChatSummary, Draft, Edit, ExportFormat, Exported, Finish, Found,
    GenerationEvent, Message, MessageStatus, NewMessage, Preset, Role, Thinking, TokenCount,
};
pub use error::{ApiError, ErrorCode};
pub use help::{
    Disk, Hardware, Instructions, LogLevel, LogLine, LogPage, MachinePlan, SpeedEstimate,
};
pub use job::{Job, JobKind, JobPhase, JobState};
pub use library::{CatalogueEntry, Condition, DownloadRequest, Library, ModelFile};
pub use model::{
    AppInfo, Face, ModelInfo, ModelMemory, ModelState, Paging, PagingLayer, PagingStep,
};
pub use monitor::{Activity, Monitor, Process, TraceFile};
pub use server::ServerState;
pub use setting::{CachePlan, Setting, SettingKind, SettingScope, SettingSection};
pub use typescript::typescript;
