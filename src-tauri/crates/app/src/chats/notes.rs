//! What belongs to chats besides messages: instructions, presets of them, drafts, pins and folders.

use fastar_api::{ChatSummary, Draft, Edit, Preset};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::rows::{find_chat, from_json, json, new_id};
use super::{Chats, title};
use crate::error::{Error, Result};

/// Longest instructions, in bytes.
pub(crate) const MAX_SYSTEM_BYTES: usize = 200_000;
/// Longest name of a preset or folder, in characters.
const LONGEST_NAME: usize = 80;
/// More presets than anyone looks through.
const MOST_PRESETS: i64 = 500;

impl Chats {
    /// Sets the instructions that stand before a conversation; they count from the next answer on.
    pub(crate) fn set_system(&self, id: &str, text: &str) -> Result<()> {
        check_system(text)?;
        self.change_chat(id, "system = ?2", &text).map(|_| ())
    }

    /// Keeps a chat at the top of the list, or no longer.
    pub(crate) fn pin(&self, id: &str, pinned: bool) -> Result<ChatSummary> {
        self.change_chat(id, "pinned = ?2", &pinned)
    }

    /// Moves a chat into a folder, or out of all. A folder is there as long as something is in it.
    pub(crate) fn move_to(&self, id: &str, folder: Option<&str>) -> Result<ChatSummary> {
        let folder = folder
            .map(|name| checked_name(name, "folder"))
            .transpose()?;
        self.change_chat(id, "folder = ?2", &folder)
    }

    fn change_chat(
        &self,
        id: &str,
        assignment: &str,
        value: &dyn rusqlite::ToSql,
    ) -> Result<ChatSummary> {
        self.write(|transaction| {
            transaction.execute(
                &format!("UPDATE chats SET {assignment} WHERE id = ?1 AND deleted_at IS NULL"),
                params![id, value],
            )?;
            find_chat(transaction, id)
        })?
        .ok_or(Error::ChatNotFound)
    }

    /// Saved instructions, by name.
    pub(crate) fn presets(&self) -> Result<Vec<Preset>> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT id, name, text FROM presets ORDER BY name COLLATE NOCASE, id",
                )?
                .query_map([], |row| {
                    Ok(Preset {
                        id: row.get(0)?,
                        name: row.get(1)?,
                        text: row.get(2)?,
                    })
                })?
                .collect()
        })
    }

    /// Saves instructions under a name; without an id, as a new preset.
    pub(crate) fn save_preset(&self, id: Option<&str>, name: &str, text: &str) -> Result<Preset> {
        check_system(text)?;
        if text.trim().is_empty() {
            return Err(Error::BadRequest("The instructions are empty.".into()));
        }
        let name = checked_name(name, "preset")?;
        let saved = self.write(|transaction| {
            let id = match id {
                None => {
                    let there: i64 =
                        transaction.query_row("SELECT count(*) FROM presets", [], |row| row.get(0))?;
                    if there >= MOST_PRESETS {
                        return Ok(Err(Error::BadRequest(format!(
                            "There are {there} presets already, and more are not kept. Delete one first."
                        ))));
                    }
                    let id = new_id();
                    transaction.execute(
                        "INSERT INTO presets (id, name, text) VALUES (?1, ?2, ?3)",
                        params![id, name, text],
                    )?;
                    id
                }
                Some(id) => {
                    let changed = transaction.execute(
                        "UPDATE presets SET name = ?2, text = ?3 WHERE id = ?1",
                        params![id, name, text],
                    )?;
                    if changed == 0 {
                        return Ok(Err(Error::PresetNotFound));
                    }
                    id.to_owned()
                }
            };
            Ok(Ok(id))
        })?;
        Ok(Preset {
            id: saved?,
            name,
            text: text.to_owned(),
        })
    }

    /// Deletes a preset; chats keep the instructions they have.
    pub(crate) fn delete_preset(&self, id: &str) -> Result<()> {
        let gone = self
            .write(|transaction| transaction.execute("DELETE FROM presets WHERE id = ?1", [id]))?;
        match gone {
            0 => Err(Error::PresetNotFound),
            _ => Ok(()),
        }
    }

    /// Keeps what the person has begun to write, in a chat or (none) for a new one. Refused for a chat that is not there, and with an edit of a
    /// message that is not in the chat: nobody would ever see it again.
    pub(crate) fn save_draft(&self, chat_id: Option<&str>, draft: &Draft) -> Result<()> {
        let id = chat_id.unwrap_or_default();
        self.write(|transaction| {
            if chat_id.is_some() && find_chat(transaction, id)?.is_none() {
                return Ok(Err(Error::ChatNotFound));
            }
            if let Some(edit) = &draft.edit
                && !has_message(transaction, id, &edit.message_id)?
            {
                return Ok(Err(Error::MessageNotFound));
            }
            put_draft(transaction, id, draft).map(Ok)
        })?
    }

    /// What the person has begun to write for a new chat.
    pub(crate) fn new_draft(&self) -> Result<Draft> {
        self.read(|connection| draft(connection, ""))
    }
}

fn put_draft(transaction: &Transaction<'_>, id: &str, draft: &Draft) -> rusqlite::Result<()> {
    if *draft == Draft::default() {
        // Its files and its edit go with it.
        transaction.execute("DELETE FROM drafts WHERE chat_id = ?1", [id])?;
        return Ok(());
    }
    transaction.execute(
        "INSERT INTO drafts (chat_id, text) VALUES (?1, ?2)
         ON CONFLICT (chat_id) DO UPDATE SET text = excluded.text",
        params![id, draft.text],
    )?;
    match json(&draft.attachments).filter(|_| !draft.attachments.is_empty()) {
        // The same files again are not written again.
        Some(files) => transaction.execute(
            "INSERT INTO draft_files (chat_id, attachments) VALUES (?1, ?2)
             ON CONFLICT (chat_id) DO UPDATE SET attachments = excluded.attachments
             WHERE attachments <> excluded.attachments",
            params![id, files],
        ),
        None => transaction.execute("DELETE FROM draft_files WHERE chat_id = ?1", [id]),
    }?;
    match &draft.edit {
        Some(edit) => transaction.execute(
            "INSERT OR REPLACE INTO draft_edits (chat_id, message_id, text) VALUES (?1, ?2, ?3)",
            params![id, edit.message_id, edit.text],
        ),
        None => transaction.execute("DELETE FROM draft_edits WHERE chat_id = ?1", [id]),
    }
    .map(|_| ())
}

/// Whether a message is in a chat, shown or as another version.
fn has_message(connection: &Connection, chat_id: &str, id: &str) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM messages WHERE id = ?2 AND chat_id = ?1)
                 OR EXISTS (SELECT 1 FROM other_versions WHERE id = ?2 AND chat_id = ?1)",
        )?
        .query_row([chat_id, id], |row| row.get(0))
}

pub(super) fn draft(connection: &Connection, chat_id: &str) -> rusqlite::Result<Draft> {
    let found = connection
        .prepare_cached(
            "SELECT drafts.text, attachments, message_id, draft_edits.text FROM drafts
             LEFT JOIN draft_files USING (chat_id) LEFT JOIN draft_edits USING (chat_id)
             WHERE chat_id = ?1",
        )?
        .query_row([chat_id], |row| {
            let files: Option<String> = row.get(1)?;
            let message: Option<String> = row.get(2)?;
            Ok(Draft {
                text: row.get(0)?,
                attachments: files.and_then(|text| from_json(&text)).unwrap_or_default(),
                edit: match (message, row.get(3)?) {
                    (Some(message_id), Some(text)) => Some(Edit { message_id, text }),
                    _ => None,
                },
            })
        })
        .optional()?;
    Ok(found.unwrap_or_default())
}

/// Refuses instructions that are too long.
pub(crate) fn check_system(text: &str) -> Result<()> {
    if text.len() > MAX_SYSTEM_BYTES {
        return Err(Error::BadRequest(format!(
            "The instructions have {} bytes, and {MAX_SYSTEM_BYTES} is the limit.",
            text.len()
        )));
    }
    Ok(())
}

/// A name on one line, neither empty nor endless.
pub(super) fn checked_name(name: &str, of: &str) -> Result<String> {
    let line = title::one_line(name);
    let characters = line.chars().count();
    if line.is_empty() {
        return Err(Error::BadRequest(format!("The name of the {of} is empty.")));
    }
    if characters > LONGEST_NAME {
        return Err(Error::BadRequest(format!(
            "The name of the {of} has {characters} characters, and {LONGEST_NAME} is the limit."
        )));
    }
    Ok(line)
}
