//! The TypeScript of this contract.

use ts_rs::{Config, TS};

use crate::{
    AnswerStats, ApiError, AppInfo, Chat, ChatSummary, ErrorCode, Face, Finish, GenerationEvent,
    Message, MessageStatus, ModelInfo, ModelState, Role,
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
        Role,
        MessageStatus,
        Finish,
        AnswerStats,
        Message,
        ChatSummary,
        Chat,
        GenerationEvent,
    );
    out
}
