//! Chats, messages and the events of an answer that is being written.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use crate::ApiError;

/// Who wrote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// The life of a message. User messages are always `done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum MessageStatus {
    /// Waiting for its turn or being written.
    Writing,
    /// Written to its end.
    Done,
    /// Stopped by the person; the text so far stays.
    Stopped,
    /// The app ended while it was being written; the text so far stays.
    Interrupted,
    /// An error ended it; the text so far stays and `error` says why.
    Failed,
}

/// Why the model stopped writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended its answer.
    End,
    /// The context (or the set limit of tokens) was full.
    Length,
    /// The person stopped it.
    Stopped,
}

/// What an answer cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct AnswerStats {
    /// Tokens of the whole prompt, earlier turns included.
    pub prompt_tokens: u32,
    /// How many of those were still in the session and not computed again.
    pub reused_tokens: u32,
    /// Tokens the model wrote.
    pub answer_tokens: u32,
    /// From the request (after any queue) to the first token of the answer.
    pub first_token_ms: f64,
    /// Reading the prompt.
    pub prefill_ms: f64,
    /// Writing the answer.
    pub decode_ms: f64,
    /// Decode speed; none when fewer than two tokens were written.
    pub tokens_per_second: Option<f64>,
    /// Positions used after this answer.
    pub context_used: u32,
    /// Positions there are.
    pub context_size: u32,
    /// Why it ended.
    pub finish: Finish,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Message {
    /// Id, unique in the app.
    pub id: String,
    /// The chat it belongs to.
    pub chat_id: String,
    /// Who wrote it.
    pub role: Role,
    /// Its text; Markdown for the assistant, plain for the user.
    pub text: String,
    /// Its life.
    pub status: MessageStatus,
    /// When its row was written.
    #[ts(type = "number")]
    pub created_at: i64,
    /// Model that wrote it (assistant only).
    pub model: Option<String>,
    /// What it cost (assistant only, once finished or stopped).
    pub stats: Option<AnswerStats>,
    /// Why it failed.
    pub error: Option<ApiError>,
}

/// A chat in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ChatSummary {
    /// Id, unique in the app.
    pub id: String,
    /// Title: set by the person, or the beginning of the first message.
    pub title: String,
    /// When it began.
    #[ts(type = "number")]
    pub created_at: i64,
    /// When it last changed; the list is sorted by it, newest first.
    #[ts(type = "number")]
    pub updated_at: i64,
}

/// A chat with its messages, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Chat {
    /// Title and times.
    pub summary: ChatSummary,
    /// Messages, oldest first.
    pub messages: Vec<Message>,
}

/// What a listener of an answer hears, in this order: one `started`, any number of `queued`, `prefill` and `text`, one
/// `finished`. A listener that attaches late gets `started` with the text so far and then what follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
// Events are made one at a time and sent at once: their size on the stack costs nothing.
#[allow(clippy::large_enum_variant)]
pub enum GenerationEvent {
    /// The rows exist. `answer.text` is what has been written so far.
    Started {
        /// The chat, created by this message if it was the first.
        chat: ChatSummary,
        /// The message that was sent; none for a regenerated answer or a late listener.
        user: Option<Message>,
        /// The answer's row.
        answer: Message,
    },
    /// Other answers are written first.
    Queued {
        /// How many.
        ahead: u32,
    },
    /// The prompt is being read.
    Prefill {
        /// Tokens read.
        done: u32,
        /// Tokens to read.
        total: u32,
    },
    /// More text, to append.
    Text {
        /// Whole characters only.
        text: String,
    },
    /// The answer's row as it now is; nothing follows.
    Finished {
        /// The chat, with its new time.
        chat: ChatSummary,
        /// The answer.
        answer: Message,
    },
}
