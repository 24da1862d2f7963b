//! Chats and messages in SQLite. What is written here survives a kill at any moment.
//!
//! A user's message and the (still empty) row of its answer are written and synced before the model sees them; the answer's
//! text is written again and again while it grows. Rows that are still `writing` when the file is opened were cut off by the
//! end of the process and become `interrupted`. Not here: who writes the answers ([`crate::generation`]).

pub(crate) mod exchange;
mod notes;
mod rows;
mod schema;
mod search;
#[cfg(test)]
mod tests;
pub(crate) mod title;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use fastar_api::{Chat, ChatSummary, Message, NewMessage};
use rusqlite::{Connection, Transaction, params};

use crate::error::{Error, Result, is_no_room, lock};
pub(crate) use notes::check_system;
use rows::{CHAT_COLUMNS, COLUMNS, find_chat, json, message, new_id, summary, word};

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
    /// The message they stand behind.
    pub(crate) after: Option<String>,
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
        let tidied = chats.write(|transaction| {
            for table in ["messages", "other_versions"] {
                transaction.execute(
                    &format!("UPDATE {table} SET status = 'interrupted' WHERE status = 'writing'"),
                    [],
                )?;
            }
            transaction.execute(
                "DELETE FROM chats WHERE deleted_at < ?1",
                [now.saturating_sub(KEPT_AFTER_DELETE_MS)],
            )?;
            transaction.execute(
                "DELETE FROM drafts WHERE chat_id <> '' AND chat_id NOT IN (SELECT id FROM chats)",
                [],
            )
        });
        match tidied {
            // On a full disk the next start does it; the chats can be read.
            Err(Error::Database { source, .. }) if is_no_room(&source, folder) => {
                tracing::warn!(error = %source, "the chats were not tidied");
            }
            tidied => drop(tidied?),
        }
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
                .prepare_cached(&format!(
                    "SELECT {CHAT_COLUMNS} FROM chats WHERE deleted_at IS NULL
                     ORDER BY updated_at DESC, id DESC"
                ))?
                .query_map([], summary)?
                .collect()
        })
    }

    /// The title of a chat; none when there is no such chat.
    pub(crate) fn title(&self, id: &str) -> Option<String> {
        let found = self.read(|connection| find_chat(connection, id));
        Some(found.ok()??.title)
    }

    /// A chat with its messages, oldest first.
    pub(crate) fn chat(&self, id: &str) -> Result<Chat> {
        self.read(|connection| {
            let Some(summary) = find_chat(connection, id)? else {
                return Ok(None);
            };
            let mut messages = connection
                .prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM messages WHERE chat_id = ?1 ORDER BY position"
                ))?
                .query_map([id], message)?
                .collect::<rusqlite::Result<Vec<_>>>()?;
            tree::fill_versions(connection, id, &mut messages)?;
            let system = connection
                .prepare_cached("SELECT system FROM chats WHERE id = ?1")?
                .query_row([id], |row| row.get(0))?;
            Ok(Some(Chat {
                summary,
                messages: messages.into_iter().map(|(_, message)| message).collect(),
                system,
                draft: notes::draft(connection, id)?,
            }))
        })?
        .ok_or(Error::ChatNotFound)
    }

    /// A message that is shown, its chat, and the message before it.
    pub(crate) fn message(&self, id: &str) -> Result<(ChatSummary, Message, Option<String>)> {
        self.read(|connection| {
            let Some((position, message)) = rows::find_shown(connection, id)? else {
                return Ok(None);
            };
            let before = tree::before(connection, &message.chat_id, position)?;
            Ok(find_chat(connection, &message.chat_id)?.map(|chat| (chat, message, before)))
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
        new: &NewMessage,
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
                        "INSERT INTO chats (id, title, created_at, updated_at, system) VALUES (?1, ?2, ?3, ?3, ?4)",
                        params![id, title::from_first_message(new), now, new.system],
                    )?;
                    id
                }
            };
            let user = tree::insert(transaction, &tree::row_of(&chat_id, new, now))?;
            let answer = tree::empty_answer(&chat_id, model, new.thinking, now);
            let answer = tree::insert(transaction, &answer)?;
            tree::begun(transaction, Some(user), answer, now).map(Some)
        })?
        .ok_or(Error::ChatNotFound)
    }

    /// Writes the thoughts and the text of an answer so far. Does nothing to an answer that has ended.
    pub(crate) fn save_text(
        &self,
        id: &str,
        reasoning: Option<&str>,
        text: &str,
        durability: Durability,
    ) -> Result<()> {
        let connection = lock(&self.connection);
        let save = || {
            if durability == Durability::Process {
                // Without a sync the text is with the system, which outlives this process.
                connection.pragma_update(None, "synchronous", "NORMAL")?;
            }
            let saved = connection
                .prepare_cached(
                    "UPDATE messages SET text = ?2, reasoning = ?3 WHERE id = ?1 AND status = 'writing'",
                )
                .and_then(|mut statement| statement.execute(params![id, text, reasoning]));
            connection.pragma_update(None, "synchronous", "FULL")?;
            saved.map(|_| ())
        };
        save().map_err(Error::database(&self.file))
    }

    /// Writes an answer that has ended, and moves its chat to the top.
    pub(crate) fn finish(&self, answer: &Message, now: i64) -> Result<ChatSummary> {
        self.write(|transaction| {
            let written = transaction.execute(
                "UPDATE messages SET text = ?2, status = ?3, model = ?4, stats = ?5, error = ?6, reasoning = ?7, reasoning_ms = ?8
                 WHERE id = ?1",
                params![
                    answer.id,
                    answer.text,
                    word(&answer.status),
                    answer.model,
                    answer.stats.as_ref().map(json),
                    answer.error.as_ref().map(json),
                    answer.reasoning,
                    answer.reasoning_ms,
                ],
            )?;
            // Believed to be written, the text would be gone.
            if written == 0 {
                return Err(rusqlite::Error::QueryReturnedNoRows);
            }
            transaction.execute(
                "UPDATE chats SET updated_at = max(updated_at, ?2) WHERE id = ?1",
                params![answer.chat_id, now],
            )?;
            // A chat deleted meanwhile still has a summary here: its answer's listeners hear the end.
            transaction.query_row(
                &format!("SELECT {CHAT_COLUMNS} FROM chats WHERE id = ?1"),
                [&answer.chat_id],
                summary,
            )
        })
    }

    /// Lets the disk appear full: the database may not grow any more.
    #[cfg(test)]
    pub(crate) fn pretend_the_disk_is_full(&self, full: bool) {
        self.pretend_the_disk_has(if full { 0 } else { 1_000_000 });
    }

    /// Lets the disk appear nearly full: the database may grow by so many pages.
    #[cfg(test)]
    pub(crate) fn pretend_the_disk_has(&self, pages: i64) {
        let connection = lock(&self.connection);
        let now: i64 = connection
            .query_row("PRAGMA page_count", [], |row| row.get(0))
            .unwrap_or_default();
        // SQLite raises a limit below the present size to that size.
        let _: rusqlite::Result<i64> = connection.query_row(
            &format!("PRAGMA max_page_count = {}", now + pages),
            [],
            |row| row.get(0),
        );
    }
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
