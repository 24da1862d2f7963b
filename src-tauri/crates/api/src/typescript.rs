//! The TypeScript of this contract.

use ts_rs::{Config, TS};

use crate::{
    Activity, AnswerStats, ApiError, AppInfo, Attachment, CachePlan, CatalogueEntry, Chat,
    ChatSummary, Condition, Disk, DownloadRequest, Draft, Edit, ErrorCode, ExportFormat, Exported,
    Face, Finish, Found, GenerationEvent, Hardware, Instructions, Job, JobKind, JobPhase, JobState,
    Library, LogLevel, LogLine, LogPage, MachinePlan, Message, MessageStatus, ModelFile, ModelInfo,
    ModelMemory, ModelState, Monitor, NewMessage, Paging, PagingLayer, PagingStep, Preset, Process,
    Role, ServerState, Setting, SettingKind, SettingScope, SettingSection, SpeedEstimate, Thinking,
    TokenCount, TraceFile,
};

/// The whole text of `ui/src/lib/api/types.ts`.
pub fn typescript() -> String {
    let config = Config::default();
    let mut out = String::from(
        "// Generated from the crate fastar-api by `cargo xtask types`. Do not edit.\n",
    );
    macro_rules! declare {
        ($($t:ty),* $(,)?) => {$(
            out.push_str("\nexport ");
            out.push_str(&<$t>::decl(&config));
            out.push('\n');
        )*};
    }
    declare!(
        ErrorCode,
        ApiError,
        Face,
        AppInfo,
        ModelInfo,
        ModelState,
        PagingStep,
        PagingLayer,
        Paging,
        ModelMemory,
        Role,
        MessageStatus,
        Finish,
        Thinking,
        AnswerStats,
        Attachment,
        Edit,
        Draft,
        NewMessage,
        Preset,
        TokenCount,
        Message,
        ChatSummary,
        Chat,
        Found,
        ExportFormat,
        Exported,
        GenerationEvent,
        Condition,
        ModelFile,
        CatalogueEntry,
        Library,
        DownloadRequest,
        JobKind,
        JobState,
        JobPhase,
        Job,
        SettingScope,
        SettingSection,
        SettingKind,
        Setting,
        CachePlan,
        ServerState,
        Activity,
        Process,
        TraceFile,
        Monitor,
        Instructions,
        Disk,
        Hardware,
        SpeedEstimate,
        MachinePlan,
        LogLevel,
        LogLine,
        LogPage,
    );
    out
}
