//! Errors as a person and a program see them.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// What a caller can act on. A code exists only if someone acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The chat or message does not exist (any more): the list is reloaded.
    NotFound,
    /// The request itself is wrong; the message says which field.
    BadRequest,
    /// This chat already has an answer being written.
    Busy,
    /// No model is ready yet, or the last one could not be loaded: the model panel is shown.
    NoModel,
    /// The conversation does not fit the model's context: a new chat is offered.
    ContextFull,
    /// Chats or models could not be read or written (full disk, read-only folder).
    Storage,
    /// The disk has not the room a model needs: another folder is offered.
    NoSpace,
    /// A model file is damaged: a repair is offered.
    Damaged,
    /// A model file is damaged, and nothing says where its parts could be fetched again: no repair is offered.
    Spoilt,
    /// The hub wants a token, or another one: its field is shown.
    NoAccess,
    /// The hub cannot be reached or does not have what was asked for: trying again is offered.
    Hub,
    /// This face of the app cannot do that (for example a file dialog in a browser).
    Unsupported,
    /// A bug of ours; details say where.
    Internal,
}

/// One error: what happened, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ApiError {
    /// What a program can act on.
    pub code: ErrorCode,
    /// One sentence: what happened, and where.
    pub message: String,
    /// What the person can do, if there is something.
    pub hint: Option<String>,
    /// Technical text for a report; never shown first.
    pub details: Option<String>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ApiError {}
