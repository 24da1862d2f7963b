//! The TypeScript of this contract.

use ts_rs::{Config, TS};

use crate::{
    Activity, AnswerStats, ApiError, AppInfo, CachePlan, CatalogueEntry, Chat, ChatSummary,
    Condition, DownloadRequest, ErrorCode, Face, Finish, GenerationEvent, Job, JobKind, JobPhase,
    JobState, Library, Message, MessageStatus, ModelFile, ModelInfo, ModelMemory, ModelState,
    Monitor, Paging, PagingLayer, PagingStep, Process, Role, Setting, SettingKind, SettingScope,
    SettingSection, TraceFile,
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
        AnswerStats,
        Message,
        ChatSummary,
        Chat,
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
        Activity,
        Process,
        TraceFile,
        Monitor,
    );
    out
}
