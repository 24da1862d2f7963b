//! Chats and messages in SQLite. What is written here survives a kill at any moment.
//!
//! A user's message and the (still empty) row of its answer are written and synced before the model sees them; the answer's
//! text is written again and again while it grows. Rows that are still `writing` when the file is opened were cut off by the
//! end of the process and become `interrupted`. Not here: who writes the answers ([`crate::generation`]).

mod schema;
#[cfg(test)]
mod tests;
pub(crate) mod title;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use fastar_api::{AnswerStats, ApiError, Chat, ChatSummary, Message, MessageStatus, Role};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result, lock};

/// Deleted chats can be restored for so long, and are then removed at the next start.
const KEPT_AFTER_DELETE_MS: i64 = 7 * 24 * 60 * 60 * 1000;

pub(crate) struct Chats {
    file: PathBuf,
    connection: Mutex<Connection>,
}

/// Rows that exist before an answer is written.
pub(crate) struct Begun {
    pub(crate) chat: ChatSummary,
    /// The message that was sent; none when an answer is written again.
    pub(crate) user: Option<Message>,
    pub(crate) answer: Message,
}

/// Whether a write must survive a power cut, or only the end of the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Process,
    PowerCut,
}

impl Chats {
    /// Opens the database in `folder`. The second value is a sentence for the person when a damaged file was set aside.
    pub(crate) fn open(folder: &Path, now: i64) -> Result<(Self, Option<String>)> {
        Self::open_with(folder, schema::STEPS, now)
    }

    fn open_with(
        folder: &Path,
        steps: &[schema::Step],
        now: i64,
    ) -> Result<(Self, Option<String>)> {
        let (connection, notice) = schema::open(folder, steps, &crate::clock::file_date(now))?;
        let chats = Self {
            file: folder.join("chats.db"),
            connection: Mutex::new(connection),
        };
        chats.write(|transaction| {
            transaction.execute(
                "UPDATE messages SET status = 'interrupted' WHERE status = 'writing'",
                [],
            )?;
            transaction.execute(
                "DELETE FROM chats WHERE deleted_at < ?1",
                [now.saturating_sub(KEPT_AFTER_DELETE_MS)],
            )
        })?;
        Ok((chats, notice))
    }

    /// Asks the database something; the jobs have their rows in it as well.
    pub(crate) fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        query(&lock(&self.connection)).map_err(Error::database(&self.file))
    }

    /// Changes the database, all or nothing.
    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let mut connection = lock(&self.connection);
        let whole = || {
            let transaction = connection.transaction()?;
            let value = change(&transaction)?;
            transaction.commit()?;
            Ok(value)
        };
        whole().map_err(Error::database(&self.file))
    }

    /// Chats that are not deleted, the last changed first.
    pub(crate) fn list(&self) -> Result<Vec<ChatSummary>> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT id, title, created_at, updated_at FROM chats WHERE deleted_at IS NULL
                     ORDER BY updated_at DESC, id DESC",
                )?
                .query_map([], summary)?
                .collect()
        })
    }

    /// A chat with its messages, oldest first.
    pub(crate) fn chat(&self, id: &str) -> Result<Chat> {
        self.read(|connection| {
            let Some(summary) = find_chat(connection, id)? else {
                return Ok(None);
            };
            let messages = connection
                .prepare_cached(&format!(
                    "{SELECT_MESSAGE} WHERE chat_id = ?1 ORDER BY position"
                ))?
                .query_map([id], message)?
                .collect::<rusqlite::Result<_>>()?;
            Ok(Some(Chat { summary, messages }))
        })?
        .ok_or(Error::ChatNotFound)
    }

    /// One message and its chat.
    pub(crate) fn message(&self, id: &str) -> Result<(ChatSummary, Message)> {
        self.read(|connection| {
            let message = connection
                .prepare_cached(&format!("{SELECT_MESSAGE} WHERE id = ?1"))?
                .query_row([id], message)
                .optional()?;
            let Some(message) = message else {
                return Ok(None);
            };
            Ok(find_chat(connection, &message.chat_id)?.map(|chat| (chat, message)))
        })?
        .ok_or(Error::AnswerNotFound)
    }

    /// Sets a title. White space is joined; empty or very long titles are refused.
    pub(crate) fn rename(&self, id: &str, title: &str) -> Result<ChatSummary> {
        let characters = title.chars().count();
        if characters > title::LONGEST {
            return Err(Error::BadRequest(format!(
                "The title has {characters} characters, and {} is the limit.",
                title::LONGEST
            )));
        }
        let title = title::one_line(title);
        if title.is_empty() {
            return Err(Error::BadRequest("The title is empty.".into()));
        }
        self.write(|transaction| {
            transaction.execute(
                "UPDATE chats SET title = ?2 WHERE id = ?1 AND deleted_at IS NULL",
                params![id, title],
            )?;
            find_chat(transaction, id)
        })?
        .ok_or(Error::ChatNotFound)
    }

    /// Hides a chat; [`Chats::restore`] brings it back.
    pub(crate) fn delete(&self, id: &str, now: i64) -> Result<()> {
        let changed = self.write(|transaction| {
            transaction.execute(
                "UPDATE chats SET deleted_at = ?2 WHERE id = ?1 AND deleted_at IS NULL",
                params![id, now],
            )
        })?;
        if changed == 0 {
            Err(Error::ChatNotFound)
        } else {
            Ok(())
        }
    }

    /// Undoes [`Chats::delete`]. A chat that is not deleted stays as it is.
    pub(crate) fn restore(&self, id: &str) -> Result<ChatSummary> {
        self.write(|transaction| {
            transaction.execute("UPDATE chats SET deleted_at = NULL WHERE id = ?1", [id])?;
            find_chat(transaction, id)
        })?
        .ok_or(Error::ChatNotFound)
    }

    /// Writes a user's message and the empty row of its answer; without a chat, a new one is begun with them.
    pub(crate) fn begin(
        &self,
        chat_id: Option<&str>,
        text: &str,
        model: Option<&str>,
        now: i64,
    ) -> Result<Begun> {
        self.write(|transaction| {
            let chat_id = match chat_id {
                Some(id) if find_chat(transaction, id)?.is_none() => return Ok(None),
                Some(id) => id.to_owned(),
                None => {
                    let id = new_id();
                    transaction.execute(
                        "INSERT INTO chats (id, title, created_at, updated_at) VALUES (?1, ?2, ?3, ?3)",
                        params![id, title::from_first_message(text), now],
                    )?;
                    id
                }
            };
            let user = insert(transaction, &chat_id, Role::User, text, None, now)?;
            let answer = insert(transaction, &chat_id, Role::Assistant, "", model, now)?;
            Ok(touch(transaction, &chat_id, now)?.map(|chat| Begun { chat, user: Some(user), answer }))
        })?
        .ok_or(Error::ChatNotFound)
    }

    /// Replaces the last answer of a chat by an empty row, in one step.
    pub(crate) fn begin_again(
        &self,
        chat_id: &str,
        model: Option<&str>,
        now: i64,
    ) -> Result<Begun> {
        let found = self.write(|transaction| {
            if find_chat(transaction, chat_id)?.is_none() {
                return Ok(None);
            }
            let last_question: Option<i64> = transaction.query_row(
                "SELECT max(position) FROM messages WHERE chat_id = ?1 AND role = 'user'",
                [chat_id],
                |row| row.get(0),
            )?;
            let Some(last_question) = last_question else {
                return Ok(Some(None));
            };
            transaction.execute(
                "DELETE FROM messages WHERE chat_id = ?1 AND position > ?2",
                params![chat_id, last_question],
            )?;
            let answer = insert(transaction, chat_id, Role::Assistant, "", model, now)?;
            Ok(touch(transaction, chat_id, now)?.map(|chat| {
                Some(Begun {
                    chat,
                    user: None,
                    answer,
                })
            }))
        })?;
        found
            .ok_or(Error::ChatNotFound)?
            .ok_or_else(|| Error::BadRequest("This chat has no message to answer again.".into()))
    }

    /// Writes the text of an answer so far. Does nothing to an answer that has ended.
    pub(crate) fn save_text(&self, id: &str, text: &str, durability: Durability) -> Result<()> {
        let connection = lock(&self.connection);
        let save = || {
            if durability == Durability::Process {
                // Without a sync the text is with the system, which outlives this process.
                connection.pragma_update(None, "synchronous", "NORMAL")?;
            }
            let saved = connection
                .prepare_cached(
                    "UPDATE messages SET text = ?2 WHERE id = ?1 AND status = 'writing'",
                )
                .and_then(|mut statement| statement.execute(params![id, text]));
            connection.pragma_update(None, "synchronous", "FULL")?;
            saved.map(|_| ())
        };
        save().map_err(Error::database(&self.file))
    }

    /// Writes an answer that has ended, and moves its chat to the top.
    pub(crate) fn finish(&self, answer: &Message, now: i64) -> Result<ChatSummary> {
        self.write(|transaction| {
            transaction.execute(
                "UPDATE messages SET text = ?2, status = ?3, model = ?4, stats = ?5, error = ?6 WHERE id = ?1",
                params![
                    answer.id,
                    answer.text,
                    word(&answer.status),
                    answer.model,
                    answer.stats.as_ref().map(json),
                    answer.error.as_ref().map(json),
                ],
            )?;
            transaction.execute(
                "UPDATE chats SET updated_at = max(updated_at, ?2) WHERE id = ?1",
                params![answer.chat_id, now],
            )?;
            // A chat deleted meanwhile still has a summary here: its answer's listeners hear the end.
            transaction.query_row(
                "SELECT id, title, created_at, updated_at FROM chats WHERE id = ?1",
                [&answer.chat_id],
                summary,
            )
        })
    }

    /// Lets the disk appear full: the database may not grow any more.
    #[cfg(test)]
    pub(crate) fn pretend_the_disk_is_full(&self, full: bool) {
        let connection = lock(&self.connection);
        let pages: i64 = if full { 1 } else { 1_000_000 };
        // SQLite raises a limit below the present size to that size.
        let _: rusqlite::Result<i64> =
            connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| {
                row.get(0)
            });
    }
}

const SELECT_MESSAGE: &str =
    "SELECT id, chat_id, role, text, status, created_at, model, stats, error FROM messages";

fn new_id() -> String {
    // Version 7 begins with the time: ids sort as they were made.
    uuid::Uuid::now_v7().to_string()
}

fn summary(row: &Row<'_>) -> rusqlite::Result<ChatSummary> {
    Ok(ChatSummary {
        id: row.get(0)?,
        title: row.get(1)?,
        created_at: row.get(2)?,
        updated_at: row.get(3)?,
    })
}

fn message(row: &Row<'_>) -> rusqlite::Result<Message> {
    let role: String = row.get(2)?;
    let status: String = row.get(4)?;
    Ok(Message {
        id: row.get(0)?,
        chat_id: row.get(1)?,
        role: from_word(&role).unwrap_or(Role::Assistant),
        text: row.get(3)?,
        // A word of a newer version: the text is there, and nobody is writing it.
        status: from_word(&status).unwrap_or(MessageStatus::Done),
        created_at: row.get(5)?,
        model: row.get(6)?,
        stats: row
            .get::<_, Option<String>>(7)?
            .and_then(|text| from_json::<AnswerStats>(&text)),
        error: row
            .get::<_, Option<String>>(8)?
            .and_then(|text| from_json::<ApiError>(&text)),
    })
}

fn find_chat(connection: &Connection, id: &str) -> rusqlite::Result<Option<ChatSummary>> {
    connection
        .prepare_cached(
            "SELECT id, title, created_at, updated_at FROM chats WHERE id = ?1 AND deleted_at IS NULL",
        )?
        .query_row([id], summary)
        .optional()
}

fn touch(
    transaction: &Transaction<'_>,
    id: &str,
    now: i64,
) -> rusqlite::Result<Option<ChatSummary>> {
    // A clock that was set back must not move a chat down the list.
    transaction.execute(
        "UPDATE chats SET updated_at = max(updated_at, ?2) WHERE id = ?1",
        params![id, now],
    )?;
    find_chat(transaction, id)
}

fn insert(
    transaction: &Transaction<'_>,
    chat_id: &str,
    role: Role,
    text: &str,
    model: Option<&str>,
    now: i64,
) -> rusqlite::Result<Message> {
    let status = match role {
        Role::User => MessageStatus::Done,
        Role::Assistant => MessageStatus::Writing,
    };
    let message = Message {
        id: new_id(),
        chat_id: chat_id.to_owned(),
        role,
        text: text.to_owned(),
        status,
        created_at: now,
        model: model.map(str::to_owned),
        stats: None,
        error: None,
    };
    transaction.execute(
        "INSERT INTO messages (id, chat_id, role, text, status, created_at, model) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            message.id,
            chat_id,
            word(&role),
            text,
            word(&status),
            now,
            message.model
        ],
    )?;
    Ok(message)
}

/// The contract's own word for an enum value.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

fn from_word<T: DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::from(word)).ok()
}

fn json(value: &impl Serialize) -> Option<String> {
    serde_json::to_string(value).ok()
}

fn from_json<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}
