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

/// Whether the model thinks before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// The answer at once.
    #[default]
    Off,
    /// As much as the model finds right.
    On,
    /// As much as it can. The instruction for it stands before everything else, so the whole conversation is read anew when it changes.
    Max,
}

/// What an answer cost. That of a continued answer is the sum of its parts, as far as they have numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct AnswerStats {
    /// Tokens of the whole prompt, earlier turns included.
    pub prompt_tokens: u32,
    /// How many of those were still in the session and not computed again.
    pub reused_tokens: u32,
    /// Tokens the model wrote, thinking included.
    pub answer_tokens: u32,
    /// Those of them that were thinking.
    #[serde(default)]
    pub reasoning_tokens: u32,
    /// From the request (after any queue) to the first token of the answer.
    pub first_token_ms: f64,
    /// Reading the prompt.
    pub prefill_ms: f64,
    /// Writing the answer.
    pub decode_ms: f64,
    /// Of reading the prompt, the time in which nothing could be done but wait for the disk; none when all of the model is in memory.
    #[serde(default)]
    pub prefill_waited_ms: Option<f64>,
    /// The same of writing the answer.
    #[serde(default)]
    pub decode_waited_ms: Option<f64>,
    /// Decode speed; none when fewer than two tokens were written.
    pub tokens_per_second: Option<f64>,
    /// Positions used after this answer.
    pub context_used: u32,
    /// Positions there are.
    pub context_size: u32,
    /// Why it ended.
    pub finish: Finish,
}

/// A text file that belongs to a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Attachment {
    /// File name, without its folders.
    pub name: String,
    /// All of its text.
    pub text: String,
}

/// What the person has begun to write and not sent: in one chat, or for a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Draft {
    /// What stands in the field for the next message.
    pub text: String,
    /// Files that are to go with it.
    #[serde(default)]
    pub attachments: Vec<Attachment>,
    /// A message that is open to be changed.
    #[serde(default)]
    pub edit: Option<Edit>,
}

/// A message of a chat that is being changed, and what it has become so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Edit {
    /// The message as it was sent or answered.
    pub message_id: String,
    /// Its new text so far.
    pub text: String,
}

/// A message that is to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct NewMessage {
    /// Its text. May be empty where there are attachments.
    pub text: String,
    /// Files that belong to it.
    #[serde(default)]
    pub attachments: Vec<Attachment>,
    /// Whether the model thinks before it answers this.
    #[serde(default)]
    pub thinking: Thinking,
    /// Instructions for the whole conversation, where this message begins one; ignored in a chat that exists.
    #[serde(default)]
    pub system: String,
}

impl From<&str> for NewMessage {
    /// A text alone, to be answered without thinking.
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..Self::default()
        }
    }
}

/// Saved instructions with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Preset {
    /// Id, unique in the app.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// The instructions.
    pub text: String,
}

/// How much of the context a message would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct TokenCount {
    /// Tokens of the text and the attachments by themselves.
    pub message: u32,
    /// Tokens of the whole prompt, with the conversation before.
    pub prompt: u32,
    /// Positions there are.
    pub context_size: u32,
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
    /// What the model thought before it answered.
    pub reasoning: Option<String>,
    /// How long it thought.
    pub reasoning_ms: Option<f64>,
    /// How it was asked to think (assistant only).
    pub thinking: Thinking,
    /// Files that belong to it (user only).
    pub attachments: Vec<Attachment>,
    /// The person has changed what the model wrote.
    pub edited: bool,
    /// Ids of all versions of it in the order they were made, this one among them; empty when there is only one.
    pub versions: Vec<String>,
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
    /// Stays at the top of the list.
    pub pinned: bool,
    /// Name of the folder it is in.
    pub folder: Option<String>,
}

/// A chat with its messages, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Chat {
    /// Title and times.
    pub summary: ChatSummary,
    /// Messages of the versions that are shown, oldest first.
    pub messages: Vec<Message>,
    /// Instructions that stand before the conversation; empty when there are none.
    pub system: String,
    /// What the person has begun to write.
    pub draft: Draft,
}

/// A message that was found, with the words around the place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Found {
    /// The chat.
    pub chat: ChatSummary,
    /// The message; none when the title was found.
    pub message_id: Option<String>,
    /// Who wrote it.
    pub role: Option<Role>,
    /// The words before the match.
    pub before: String,
    /// The match as it is written there.
    pub matched: String,
    /// The words after it.
    pub after: String,
}

/// In which form a chat leaves the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum ExportFormat {
    /// To read: the versions that are shown.
    Markdown,
    /// All versions with everything about them; can be imported.
    Json,
}

/// A chat on its way into a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Exported {
    /// A file name that fits the chat.
    pub file_name: String,
    /// The whole file.
    pub text: String,
}

/// What a listener of an answer hears, in this order: one `started`, any number of `queued`, `prefill`, `reasoning`, `text` and `pace`, one
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
        /// Id of the message that these rows stand behind; what else stood there is no longer shown. None at the beginning of a chat.
        after: Option<String>,
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
        /// Seconds to the end at the speed of the last pieces; none before that is known.
        seconds_left: Option<f64>,
    },
    /// More of what the model thinks before it answers, to append.
    Reasoning {
        /// Whole characters only.
        text: String,
    },
    /// More text, to append.
    Text {
        /// Whole characters only.
        text: String,
    },
    /// How fast it is being written, now and then.
    Pace {
        /// Tokens a second of the last few.
        tokens_per_second: f64,
    },
    /// The answer's row as it now is; nothing follows.
    Finished {
        /// The chat, with its new time.
        chat: ChatSummary,
        /// The answer.
        answer: Message,
    },
}
