//! Chats as files: Markdown to read, and JSON with every version, which can be imported again.
//!
//! A file that is imported may come from anywhere: its size, its structure and every reference in it are checked before anything is
//! written, and it is written as a whole or not at all. Ids in it mean something within the file only; everything gets new ones.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;

use fastar_api::{
    AnswerStats, ApiError, Attachment, Chat, ExportFormat, Exported, Message, MessageStatus,
    NewMessage, Role, Thinking,
};
use rusqlite::{Transaction, params};
use serde::{Deserialize, Serialize};

use super::rows::{COLUMNS, message, new_id};
use super::{Chats, notes, title, tree};
use crate::error::{Error, Result};
use crate::generation::check_message;
use crate::language::Language;

/// Largest file that is imported, and that is written to be imported again, in bytes.
pub const MAX_IMPORT_BYTES: usize = 256_000_000;
/// Most messages of one chat of a file, and most versions of one message: more than anyone writes, and few enough to be shown.
const MOST_MESSAGES: usize = 100_000;
const MOST_VERSIONS: usize = 10_000;
const FORMAT: &str = "fastar-chats";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    version: u32,
    chats: Vec<FileChat>,
}

#[derive(Serialize, Deserialize)]
struct FileChat {
    title: String,
    created_at: i64,
    updated_at: i64,
    #[serde(default)]
    pinned: bool,
    #[serde(default)]
    folder: Option<String>,
    #[serde(default)]
    system: String,
    messages: Vec<FileMessage>,
}

#[derive(Serialize, Deserialize)]
struct FileMessage {
    id: String,
    /// The message it stands behind; none at the beginning.
    #[serde(default)]
    parent: Option<String>,
    /// Whether it is of the versions that are shown.
    shown: bool,
    role: Role,
    text: String,
    status: MessageStatus,
    created_at: i64,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    stats: Option<AnswerStats>,
    #[serde(default)]
    error: Option<ApiError>,
    #[serde(default)]
    reasoning: Option<String>,
    #[serde(default)]
    reasoning_ms: Option<f64>,
    #[serde(default)]
    thinking: Thinking,
    #[serde(default)]
    attachments: Vec<Attachment>,
    #[serde(default)]
    edited: bool,
}

impl Chats {
    /// One chat, or (none) all of them, as a file.
    pub(crate) fn export(
        &self,
        id: Option<&str>,
        format: ExportFormat,
        language: Language,
    ) -> Result<Exported> {
        self.export_within(MAX_IMPORT_BYTES, id, format, language)
    }

    /// The same, with the most bytes of a file that is to be imported again.
    pub(super) fn export_within(
        &self,
        most: usize,
        id: Option<&str>,
        format: ExportFormat,
        language: Language,
    ) -> Result<Exported> {
        let ids = match id {
            Some(id) => vec![id.to_owned()],
            None => self.list()?.into_iter().map(|chat| chat.id).collect(),
        };
        let chats: Vec<Chat> = ids.iter().map(|id| self.chat(id)).collect::<Result<_>>()?;
        let name = match (id, chats.first()) {
            (Some(_), Some(chat)) => file_name(&chat.summary.title),
            _ => match language {
                Language::English => "FaStar chats".to_owned(),
                Language::Chinese => "FaStar 对话".to_owned(),
            },
        };
        let (ending, text) = match format {
            ExportFormat::Markdown => (
                "md",
                chats
                    .iter()
                    .map(|chat| markdown(chat, language))
                    .collect::<Vec<_>>()
                    .join("\n"),
            ),
            ExportFormat::Json => {
                let chats = chats
                    .iter()
                    .map(|chat| self.file_chat(chat))
                    .collect::<Result<_>>()?;
                let file = File {
                    format: FORMAT.into(),
                    version: VERSION,
                    chats,
                };
                let text = serde_json::to_string_pretty(&file).map_err(|error| {
                    Error::BadRequest(format!("The chat could not be written: {error}."))
                })?;
                // Else it would be found out when the copy is needed.
                if text.len() + 1 > most {
                    let what = match id {
                        Some(_) => {
                            "This chat is too long for that. Export it to be read (Markdown)."
                        }
                        None => "Export the chats one by one.",
                    };
                    return Err(Error::BadRequest(format!(
                        "The file would have {} bytes, and FaStar imports none of more than {most}. {what}",
                        text.len() + 1
                    )));
                }
                ("json", text + "\n")
            }
        };
        Ok(Exported {
            file_name: format!("{name}.{ending}"),
            text,
        })
    }

    fn file_chat(&self, chat: &Chat) -> Result<FileChat> {
        let id = &chat.summary.id;
        let others: Vec<(i64, Message, Option<String>)> = self.read(|connection| {
            connection
                .prepare_cached(&format!(
                    "SELECT {COLUMNS}, parent FROM other_versions WHERE chat_id = ?1"
                ))?
                .query_map([id], |row| {
                    let (position, message) = message(row)?;
                    Ok((position, message, row.get(15)?))
                })?
                .collect()
        })?;
        let shown: Vec<(i64, Message)> = self.read(|connection| {
            connection
                .prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM messages WHERE chat_id = ?1 ORDER BY position"
                ))?
                .query_map([id], message)?
                .collect()
        })?;
        let mut all: Vec<(i64, FileMessage)> = Vec::new();
        let mut parent = None;
        for (position, message) in shown {
            let next = Some(message.id.clone());
            all.push((position, file_message(message, parent, true)));
            parent = next;
        }
        for (position, message, parent) in others {
            all.push((position, file_message(message, parent, false)));
        }
        // By position: whatever a message stands behind comes before it.
        all.sort_by_key(|(position, _)| *position);
        Ok(FileChat {
            title: chat.summary.title.clone(),
            created_at: chat.summary.created_at,
            updated_at: chat.summary.updated_at,
            pinned: chat.summary.pinned,
            folder: chat.summary.folder.clone(),
            system: chat.system.clone(),
            messages: all.into_iter().map(|(_, message)| message).collect(),
        })
    }

    /// Adds the chats of a file that [`Chats::export`] wrote, all or none. Returns how many there are.
    pub(crate) fn import(&self, text: &str, now: i64) -> Result<u32> {
        if text.len() > MAX_IMPORT_BYTES {
            return Err(Error::BadRequest(format!(
                "The file has {} bytes, and {MAX_IMPORT_BYTES} is the limit.",
                text.len()
            )));
        }
        let file: File =
            serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(|error| {
                Error::BadRequest(format!(
                    "This is no file of chats that FaStar has exported: {error}."
                ))
            })?;
        if file.format != FORMAT {
            return Err(Error::BadRequest(
                "This is no file of chats that FaStar has exported.".into(),
            ));
        }
        if file.version > VERSION {
            return Err(Error::BadRequest(
                "This file was exported by a newer version of FaStar. Update FaStar to import it."
                    .into(),
            ));
        }
        for (n, chat) in file.chats.iter().enumerate() {
            check(chat)
                .map_err(|why| Error::BadRequest(format!("Chat {} of the file: {why}", n + 1)))?;
        }
        self.write(|transaction| {
            file.chats
                .iter()
                .try_for_each(|chat| add(transaction, chat, now))
        })?;
        Ok(u32::try_from(file.chats.len()).unwrap_or(u32::MAX))
    }
}

fn file_message(message: Message, parent: Option<String>, shown: bool) -> FileMessage {
    FileMessage {
        id: message.id,
        parent,
        shown,
        role: message.role,
        text: message.text,
        // The file does not grow with an answer that is being written.
        status: match message.status {
            MessageStatus::Writing => MessageStatus::Interrupted,
            other => other,
        },
        created_at: message.created_at,
        model: message.model,
        stats: message.stats,
        error: message.error,
        reasoning: message.reasoning,
        reasoning_ms: message.reasoning_ms,
        thinking: message.thinking,
        attachments: message.attachments,
        edited: message.edited,
    }
}

/// Writes an exported file under the name the person chose: whole, or not at all.
pub(crate) fn write(path: &Path, exported: &Exported) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(exported.text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(Error::file(path))
}

/// What is wrong with a chat of a file, if something is.
fn check(chat: &FileChat) -> std::result::Result<(), String> {
    let characters = title::one_line(&chat.title).chars().count();
    if characters == 0 || chat.title.chars().count() > title::LONGEST {
        return Err(format!(
            "its title must have from 1 to {} characters.",
            title::LONGEST
        ));
    }
    if let Some(folder) = &chat.folder {
        notes::checked_name(folder, "folder").map_err(|error| error.to_string())?;
    }
    notes::check_system(&chat.system).map_err(|error| error.to_string())?;
    // Role, and whether it is shown, of those before.
    let mut known: HashMap<&str, (Role, bool)> = HashMap::new();
    let mut shown_behind: HashSet<Option<&str>> = HashSet::new();
    let mut versions: HashMap<Option<&str>, usize> = HashMap::new();
    if chat.messages.len() > MOST_MESSAGES {
        return Err(format!(
            "it has {} messages, and {MOST_MESSAGES} is the limit.",
            chat.messages.len()
        ));
    }
    for (n, message) in chat.messages.iter().enumerate() {
        let refuse = |why: &str| Err(format!("message {} {why}", n + 1));
        let parent = message.parent.as_deref();
        // An answer without a word is not kept when its question is changed, so a question may stand behind a question.
        let (may_answer, parent_shown) = match parent.map(|id| known.get(id)) {
            None => (false, true),
            Some(None) => return refuse("stands behind one that does not come before it."),
            Some(Some((role, shown))) => (*role == Role::User, *shown),
        };
        if message.role == Role::Assistant && !may_answer {
            return refuse("is not written by whose turn it is.");
        }
        let number = versions.entry(parent).or_default();
        *number += 1;
        if *number > MOST_VERSIONS {
            return refuse("is one version too many of the same message.");
        }
        // What could not be sent could not be edited either.
        if message.role == Role::User {
            let sent = NewMessage {
                text: message.text.clone(),
                attachments: message.attachments.clone(),
                thinking: message.thinking,
                system: String::new(),
            };
            check_message(&sent).map_err(|why| format!("message {} cannot be: {why}", n + 1))?;
        } else if !message.attachments.is_empty() {
            return refuse("is an answer with files.");
        }
        if message.shown && (!parent_shown || !shown_behind.insert(parent)) {
            return refuse("cannot be shown: another one is, or the one before it is not.");
        }
        if message
            .reasoning_ms
            .is_some_and(|ms| !(0.0..1e12).contains(&ms))
        {
            return refuse("has an impossible time of thinking.");
        }
        if known
            .insert(&message.id, (message.role, message.shown))
            .is_some()
        {
            return refuse("has the id of another one.");
        }
    }
    if !chat.messages.is_empty() && !shown_behind.contains(&None) {
        return Err("none of its messages is shown.".into());
    }
    Ok(())
}

fn add(transaction: &Transaction<'_>, chat: &FileChat, now: i64) -> rusqlite::Result<()> {
    let chat_id = new_id();
    // A time that has not come yet would keep the chat at the top.
    let past = |time: i64| time.clamp(0, now);
    transaction.execute(
        "INSERT INTO chats (id, title, created_at, updated_at, system, pinned, folder) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            chat_id,
            title::one_line(&chat.title),
            past(chat.created_at),
            past(chat.updated_at),
            chat.system,
            chat.pinned,
            chat.folder.as_deref().map(title::one_line)
        ],
    )?;
    let mut ids: HashMap<&str, String> = HashMap::new();
    for message in &chat.messages {
        let id = new_id();
        let row = Message {
            id: id.clone(),
            chat_id: chat_id.clone(),
            role: message.role,
            text: message.text.clone(),
            status: match (message.role, message.status) {
                (Role::User, _) => MessageStatus::Done,
                (Role::Assistant, MessageStatus::Writing) => MessageStatus::Interrupted,
                (Role::Assistant, other) => other,
            },
            created_at: past(message.created_at),
            model: message.model.clone(),
            stats: message.stats.clone(),
            error: message.error.clone(),
            reasoning: message.reasoning.clone(),
            reasoning_ms: message.reasoning_ms,
            thinking: message.thinking,
            attachments: message.attachments.clone(),
            edited: message.edited,
            versions: Vec::new(),
        };
        tree::write(transaction, &row)?;
        if !message.shown {
            let parent = message.parent.as_deref().and_then(|id| ids.get(id));
            tree::set_aside(transaction, &id, parent.map(String::as_str))?;
        }
        ids.insert(&message.id, id);
    }
    Ok(())
}

fn markdown(chat: &Chat, language: Language) -> String {
    let (instructions, you, answer) = match language {
        Language::English => ("Instructions", "You", "Answer"),
        Language::Chinese => ("指令", "我", "回答"),
    };
    let mut out = format!("# {}\n", chat.summary.title);
    if !chat.system.is_empty() {
        out += &format!("\n## {instructions}\n\n{}\n", chat.system.trim_end());
    }
    for message in &chat.messages {
        let who = match (message.role, &message.model) {
            (Role::User, _) => you,
            (Role::Assistant, Some(model)) => model,
            (Role::Assistant, None) => answer,
        };
        out += &format!("\n## {who}\n");
        if let Some(reasoning) = message.reasoning.as_deref().filter(|text| !text.is_empty()) {
            out += "\n";
            for line in reasoning.trim().lines() {
                out += format!("> {line}").trim_end();
                out += "\n";
            }
        }
        for file in &message.attachments {
            let fence = "`".repeat(longest_run(&file.text).max(2) + 1);
            out += &format!(
                "\n{}:\n\n{fence}\n{}\n{fence}\n",
                file.name,
                file.text.trim_end()
            );
        }
        if !message.text.is_empty() {
            out += &format!("\n{}\n", message.text.trim_end());
        }
    }
    out
}

/// The longest run of backticks: a fence must be longer.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// A name that every file system takes.
fn file_name(title: &str) -> String {
    let plain: String = title
        .chars()
        .map(|c| match c {
            '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' => '-',
            c if c.is_control() => ' ',
            c => c,
        })
        .take(60)
        .collect();
    match plain.trim().trim_matches('.').trim() {
        "" => "Chat".to_owned(),
        name => name.to_owned(),
    }
}
