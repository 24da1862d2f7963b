//! A conversation as a tree: versions of messages, and which of them are shown.
//!
//! The table `messages` holds exactly the messages that are shown, from the first to the last: what a FaStar without versions reads and
//! writes. All others are in `other_versions`, each with the id of the message it stands behind. So showing another version moves rows
//! between the two; a row keeps its position, and a later message always has the higher one.

use std::collections::HashMap;

use fastar_api::{Message, MessageStatus, NewMessage, Role, Thinking};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::rows::{COLUMNS, find_chat, find_shown, json, new_id, word};
use super::{Begun, Chats, touch};
use crate::error::{Error, Result};

impl Chats {
    /// Writes a new version of the person's message and the empty row of its answer; what stood there is no longer shown.
    pub(crate) fn begin_edited(
        &self,
        message_id: &str,
        new: &NewMessage,
        model: Option<&str>,
        now: i64,
    ) -> Result<Begun> {
        self.change_shown(message_id, Role::User, |transaction, position, old| {
            hide(transaction, &old.chat_id, position)?;
            let user = insert(transaction, &row_of(&old.chat_id, new, now))?;
            let answer = insert(
                transaction,
                &empty_answer(&old.chat_id, model, new.thinking, now),
            )?;
            begun(transaction, Some(user), answer, now)
        })
    }

    /// Writes an empty row as a new version of an answer; what stood there is no longer shown.
    pub(crate) fn begin_again(
        &self,
        answer_id: &str,
        thinking: Thinking,
        model: Option<&str>,
        now: i64,
    ) -> Result<Begun> {
        self.change_shown(answer_id, Role::Assistant, |transaction, position, old| {
            hide(transaction, &old.chat_id, position)?;
            let answer = empty_answer(&old.chat_id, model, thinking, now);
            let answer = insert(transaction, &answer)?;
            begun(transaction, None, answer, now)
        })
    }

    /// Opens an answer that was cut off, so that more can be written to its end. It must be the last message.
    pub(crate) fn begin_continued(
        &self,
        answer_id: &str,
        model: Option<&str>,
        now: i64,
    ) -> Result<Begun> {
        let last =
            self.change_shown(answer_id, Role::Assistant, |transaction, position, old| {
                let later: bool = transaction.query_row(
                    "SELECT EXISTS (SELECT 1 FROM messages WHERE chat_id = ?1 AND position > ?2)",
                    params![old.chat_id, position],
                    |row| row.get(0),
                )?;
                if later || is_empty(&old) {
                    return Ok(None);
                }
                transaction.execute(
                "UPDATE messages SET status = 'writing', model = ?2, error = NULL WHERE id = ?1",
                params![old.id, model],
            )?;
                let Some((_, answer)) = find_shown(transaction, &old.id)? else {
                    return Ok(None);
                };
                begun(transaction, None, answer, now).map(Some)
            })?;
        last.ok_or_else(|| {
            Error::BadRequest(
                "Only an answer at the end of the chat, with some words, can be continued.".into(),
            )
        })
    }

    /// Writes what the person made of an answer as a new version of it.
    pub(crate) fn edit_answer(&self, answer_id: &str, text: &str, now: i64) -> Result<String> {
        self.change_shown(answer_id, Role::Assistant, |transaction, position, old| {
            hide(transaction, &old.chat_id, position)?;
            let edited = Message {
                text: text.to_owned(),
                status: MessageStatus::Done,
                created_at: now,
                stats: None,
                error: None,
                edited: true,
                versions: Vec::new(),
                id: new_id(),
                ..old
            };
            insert(transaction, &edited)?;
            touch(transaction, &edited.chat_id, now)?;
            Ok(edited.chat_id)
        })
    }

    /// Shows another version of a message, with what stood behind it when it was last shown. Returns its chat.
    pub(crate) fn show_version(&self, message_id: &str) -> Result<String> {
        self.write(|transaction| show(transaction, message_id))?
            .ok_or(Error::AnswerNotFound)
    }

    /// Which chat a message of any version is in.
    pub(crate) fn chat_of(&self, message_id: &str) -> Result<String> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT chat_id FROM messages WHERE id = ?1
                     UNION ALL SELECT chat_id FROM other_versions WHERE id = ?1",
                )?
                .query_row([message_id], |row| row.get(0))
                .optional()
        })?
        .ok_or(Error::AnswerNotFound)
    }

    /// Runs a change on a message that is shown, of a chat that is not deleted.
    fn change_shown<T>(
        &self,
        message_id: &str,
        role: Role,
        change: impl FnOnce(&Transaction<'_>, i64, Message) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.write(|transaction| {
            let Some((position, message)) = find_shown(transaction, message_id)? else {
                return Ok(None);
            };
            if message.role != role || find_chat(transaction, &message.chat_id)?.is_none() {
                return Ok(None);
            }
            change(transaction, position, message).map(Some)
        })?
        .ok_or(Error::AnswerNotFound)
    }
}

/// The person's message as a row.
pub(super) fn row_of(chat_id: &str, new: &NewMessage, now: i64) -> Message {
    Message {
        id: new_id(),
        chat_id: chat_id.to_owned(),
        role: Role::User,
        text: new.text.clone(),
        status: MessageStatus::Done,
        created_at: now,
        model: None,
        stats: None,
        error: None,
        reasoning: None,
        reasoning_ms: None,
        thinking: new.thinking,
        attachments: new.attachments.clone(),
        edited: false,
        versions: Vec::new(),
    }
}

/// The row of an answer that is about to be written.
pub(super) fn empty_answer(
    chat_id: &str,
    model: Option<&str>,
    thinking: Thinking,
    now: i64,
) -> Message {
    Message {
        role: Role::Assistant,
        status: MessageStatus::Writing,
        model: model.map(str::to_owned),
        thinking,
        ..row_of(chat_id, &NewMessage::default(), now)
    }
}

fn is_empty(message: &Message) -> bool {
    message.text.is_empty() && message.reasoning.as_deref().unwrap_or_default().is_empty()
}

/// Appends a row to the messages that are shown, and nothing more.
pub(super) fn write(transaction: &Transaction<'_>, message: &Message) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(&format!(
            "INSERT INTO messages ({COLUMNS}) VALUES (NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
        ))?
        .execute(params![
            message.id,
            message.chat_id,
            word(&message.role),
            message.text,
            word(&message.status),
            message.created_at,
            message.model,
            message.stats.as_ref().map(json),
            message.error.as_ref().map(json),
            message.reasoning,
            message.reasoning_ms,
            word(&message.thinking),
            (!message.attachments.is_empty()).then(|| json(&message.attachments)),
            message.edited,
        ])?;
    Ok(())
}

/// Appends a row to the messages that are shown, and returns it with its versions.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    message: &Message,
) -> rusqlite::Result<Message> {
    write(transaction, message)?;
    let mut written = message.clone();
    let parent = before(
        transaction,
        &message.chat_id,
        transaction.last_insert_rowid(),
    )?;
    let mut versions: Vec<String> = transaction
        .prepare_cached(
            "SELECT id FROM other_versions WHERE chat_id = ?1 AND parent IS ?2 ORDER BY position",
        )?
        .query_map(params![message.chat_id, parent], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    if !versions.is_empty() {
        versions.push(message.id.clone());
    }
    written.versions = versions;
    Ok(written)
}

/// The message that is shown before a position.
pub(super) fn before(
    connection: &Connection,
    chat_id: &str,
    position: i64,
) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached(
            "SELECT id FROM messages WHERE chat_id = ?1 AND position < ?2 ORDER BY position DESC LIMIT 1",
        )?
        .query_row(params![chat_id, position], |row| row.get(0))
        .optional()
}

/// What is told of rows that were just written at the end of a chat.
pub(super) fn begun(
    transaction: &Transaction<'_>,
    user: Option<Message>,
    answer: Message,
    now: i64,
) -> rusqlite::Result<Begun> {
    let first = user.as_ref().unwrap_or(&answer);
    let position: i64 = transaction.query_row(
        "SELECT position FROM messages WHERE id = ?1",
        [&first.id],
        |row| row.get(0),
    )?;
    let after = before(transaction, &answer.chat_id, position)?;
    let chat =
        touch(transaction, &answer.chat_id, now)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    Ok(Begun {
        chat,
        user,
        answer,
        after,
    })
}

/// Fills in which messages have other versions. `messages` are all that are shown, with their positions.
pub(super) fn fill_versions(
    connection: &Connection,
    chat_id: &str,
    messages: &mut [(i64, Message)],
) -> rusqlite::Result<()> {
    let mut others: HashMap<Option<String>, Vec<(i64, String)>> = HashMap::new();
    let mut statement = connection
        .prepare_cached("SELECT parent, position, id FROM other_versions WHERE chat_id = ?1")?;
    let mut rows = statement.query([chat_id])?;
    while let Some(row) = rows.next()? {
        others
            .entry(row.get(0)?)
            .or_default()
            .push((row.get(1)?, row.get(2)?));
    }
    let mut parent = None;
    for (position, message) in messages {
        if let Some(mut all) = others.remove(&parent) {
            all.push((*position, message.id.clone()));
            all.sort();
            message.versions = all.into_iter().map(|(_, id)| id).collect();
        }
        parent = Some(message.id.clone());
    }
    Ok(())
}

/// Takes the messages from a position on out of sight. An answer without a word that ends them is nothing to come back to and goes.
fn hide(transaction: &Transaction<'_>, chat_id: &str, from: i64) -> rusqlite::Result<()> {
    let time: i64 = transaction.query_row(
        "SELECT coalesce(max(hidden), 0) + 1 FROM other_versions WHERE chat_id = ?1",
        [chat_id],
        |row| row.get(0),
    )?;
    transaction.execute(
        &format!(
            "INSERT INTO other_versions ({COLUMNS}, hidden, parent)
             SELECT {COLUMNS}, ?3,
                (SELECT p.id FROM messages p WHERE p.chat_id = m.chat_id AND p.position < m.position
                 ORDER BY p.position DESC LIMIT 1)
             FROM messages m WHERE chat_id = ?1 AND position >= ?2"
        ),
        params![chat_id, from, time],
    )?;
    transaction.execute(
        "DELETE FROM other_versions AS o WHERE chat_id = ?1 AND hidden = ?2 AND role = 'assistant' AND text = ''
             AND coalesce(reasoning, '') = ''
             AND NOT EXISTS (SELECT 1 FROM other_versions c WHERE c.chat_id = ?1 AND c.parent = o.id)",
        params![chat_id, time],
    )?;
    transaction.execute(
        "DELETE FROM messages WHERE chat_id = ?1 AND position >= ?2",
        params![chat_id, from],
    )?;
    Ok(())
}

/// Takes one message, the last, out of sight; it stands behind `parent`.
pub(super) fn set_aside(
    transaction: &Transaction<'_>,
    id: &str,
    parent: Option<&str>,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(&format!(
            "INSERT INTO other_versions ({COLUMNS}, hidden, parent)
             SELECT {COLUMNS}, 1, ?2 FROM messages WHERE id = ?1"
        ))?
        .execute(params![id, parent])?;
    transaction
        .prepare_cached("DELETE FROM messages WHERE id = ?1")?
        .execute([id])?;
    Ok(())
}

/// Shows a message that is out of sight. None when there is no such message, or nothing that it stands behind.
fn show(transaction: &Transaction<'_>, message_id: &str) -> rusqlite::Result<Option<String>> {
    if let Some((_, message)) = find_shown(transaction, message_id)? {
        return Ok(find_chat(transaction, &message.chat_id)?.map(|chat| chat.id));
    }
    let chat_id: Option<String> = transaction
        .query_row(
            "SELECT chat_id FROM other_versions WHERE id = ?1",
            [message_id],
            |row| row.get(0),
        )
        .optional()?;
    let Some(chat_id) = chat_id else {
        return Ok(None);
    };
    if find_chat(transaction, &chat_id)?.is_none() {
        return Ok(None);
    }
    let mut parents: HashMap<String, Option<String>> = HashMap::new();
    // The one that was in sight last comes last, and so stays in the map.
    let mut latest: HashMap<String, String> = HashMap::new();
    {
        let mut statement = transaction.prepare_cached(
            "SELECT id, parent FROM other_versions WHERE chat_id = ?1 ORDER BY hidden, position",
        )?;
        let mut rows = statement.query([&chat_id])?;
        while let Some(row) = rows.next()? {
            let (id, parent): (String, Option<String>) = (row.get(0)?, row.get(1)?);
            if let Some(parent) = parent.clone() {
                latest.insert(parent, id.clone());
            }
            parents.insert(id, parent);
        }
    }
    // Up to what is shown (each step takes a row out of the map, so a circle of a damaged file ends) ...
    let mut path = vec![message_id.to_owned()];
    let mut above = parents.remove(message_id).flatten();
    let from = loop {
        let Some(parent) = above else { break 0 };
        if let Some((position, _)) = find_shown(transaction, &parent)? {
            break position + 1;
        }
        match parents.remove(&parent) {
            Some(next) => above = next,
            None => return Ok(None),
        }
        path.push(parent);
    };
    path.reverse();
    // ... and down to the last message that stood behind it.
    let mut end = message_id;
    while let Some((_, child)) = latest
        .get_key_value(end)
        .filter(|(_, child)| parents.contains_key(*child))
    {
        parents.remove(child);
        path.push(child.clone());
        end = child;
    }
    hide(transaction, &chat_id, from)?;
    let mut moved = transaction.prepare_cached(&format!(
        "INSERT INTO messages ({COLUMNS}) SELECT {COLUMNS} FROM other_versions WHERE id = ?1"
    ))?;
    let mut gone = transaction.prepare_cached("DELETE FROM other_versions WHERE id = ?1")?;
    for id in &path {
        moved.execute([id])?;
        gone.execute([id])?;
    }
    Ok(Some(chat_id))
}
