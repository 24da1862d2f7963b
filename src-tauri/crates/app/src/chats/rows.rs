//! Rows as the contract's types, and back.

use fastar_api::{
    AnswerStats, ApiError, Attachment, ChatSummary, Message, MessageStatus, Role, Thinking,
};
use rusqlite::{Connection, OptionalExtension, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What makes a message, in both tables that hold some; in the order of [`message`].
pub(super) const COLUMNS: &str = "position, id, chat_id, role, text, status, created_at, model, stats, error, \
     reasoning, reasoning_ms, thinking, attachments, edited";

pub(super) const CHAT_COLUMNS: &str = "id, title, created_at, updated_at, pinned, folder";

pub(super) fn new_id() -> String {
    // Version 7 begins with the time: ids sort as they were made.
    uuid::Uuid::now_v7().to_string()
}

pub(super) fn summary(row: &Row<'_>) -> rusqlite::Result<ChatSummary> {
    Ok(ChatSummary {
        id: row.get(0)?,
        title: row.get(1)?,
        created_at: row.get(2)?,
        updated_at: row.get(3)?,
        pinned: row.get(4)?,
        folder: row.get(5)?,
    })
}

/// A message with its position; its versions are filled in elsewhere.
pub(super) fn message(row: &Row<'_>) -> rusqlite::Result<(i64, Message)> {
    let role: String = row.get(3)?;
    let status: String = row.get(5)?;
    let json = |column: usize| row.get::<_, Option<String>>(column);
    let message = Message {
        id: row.get(1)?,
        chat_id: row.get(2)?,
        role: from_word(&role).unwrap_or(Role::Assistant),
        text: row.get(4)?,
        // A word of a newer version: the text is there, and nobody is writing it.
        status: from_word(&status).unwrap_or(MessageStatus::Done),
        created_at: row.get(6)?,
        model: row.get(7)?,
        stats: json(8)?.and_then(|text| from_json::<AnswerStats>(&text)),
        error: json(9)?.and_then(|text| from_json::<ApiError>(&text)),
        reasoning: row.get(10)?,
        reasoning_ms: row.get(11)?,
        thinking: json(12)?
            .and_then(|word| from_word(&word))
            .unwrap_or(Thinking::Off),
        attachments: json(13)?
            .and_then(|text| from_json::<Vec<Attachment>>(&text))
            .unwrap_or_default(),
        edited: row.get(14)?,
        versions: Vec::new(),
    };
    Ok((row.get(0)?, message))
}

pub(super) fn find_chat(
    connection: &Connection,
    id: &str,
) -> rusqlite::Result<Option<ChatSummary>> {
    connection
        .prepare_cached(&format!(
            "SELECT {CHAT_COLUMNS} FROM chats WHERE id = ?1 AND deleted_at IS NULL"
        ))?
        .query_row([id], summary)
        .optional()
}

/// A message that is shown, and its position.
pub(super) fn find_shown(
    connection: &Connection,
    id: &str,
) -> rusqlite::Result<Option<(i64, Message)>> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM messages WHERE id = ?1"))?
        .query_row([id], message)
        .optional()
}

/// The contract's own word for an enum value.
pub(super) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

pub(super) fn from_word<T: DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::from(word)).ok()
}

pub(super) fn json(value: &impl Serialize) -> Option<String> {
    serde_json::to_string(value).ok()
}

pub(super) fn from_json<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}
