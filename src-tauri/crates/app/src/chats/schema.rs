//! The database's shape, its numbered steps from one shape to the next, and opening a file of any age.
//!
//! Steps only add (tables, columns with defaults, indexes), so that an older FaStar can still open a newer file: it ignores what
//! it does not know. A step that cannot keep that promise raises `compatibility.oldest_reader` to its own number, and
//! older versions then refuse the file with a sentence instead of damaging it. The shapes that were ever released are frozen as files in
//! `tests/schemas/`; a test opens each of them.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};

use crate::data::set_aside;
use crate::error::{Error, Result, is_damage, is_other_shape, is_without_index};

/// One step: its number is its place in the list, counted from 1.
pub(super) type Step = &'static str;

/// Never change a released step; add one.
pub(super) const STEPS: &[Step] = &[
    "
    CREATE TABLE compatibility (oldest_reader INTEGER NOT NULL) STRICT;
    INSERT INTO compatibility VALUES (1);
    CREATE TABLE chats (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        deleted_at INTEGER
    ) STRICT;
    CREATE TABLE messages (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        chat_id TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        status TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        model TEXT,
        stats TEXT,
        error TEXT
    ) STRICT;
    CREATE INDEX messages_of_chat ON messages (chat_id, position);
",
    "
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY,
        state TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        work TEXT NOT NULL,
        job TEXT NOT NULL
    ) STRICT;
",
    "
    ALTER TABLE chats ADD COLUMN system TEXT NOT NULL DEFAULT '';
    ALTER TABLE chats ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE chats ADD COLUMN folder TEXT;
    ALTER TABLE messages ADD COLUMN reasoning TEXT;
    ALTER TABLE messages ADD COLUMN reasoning_ms REAL;
    ALTER TABLE messages ADD COLUMN thinking TEXT;
    ALTER TABLE messages ADD COLUMN attachments TEXT;
    ALTER TABLE messages ADD COLUMN edited INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE other_versions (
        position INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        chat_id TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        status TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        model TEXT,
        stats TEXT,
        error TEXT,
        reasoning TEXT,
        reasoning_ms REAL,
        thinking TEXT,
        attachments TEXT,
        edited INTEGER NOT NULL,
        parent TEXT,
        hidden INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX other_versions_of_chat ON other_versions (chat_id, parent);
    CREATE TABLE presets (id TEXT PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL) STRICT;
    CREATE TABLE drafts (chat_id TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT;
    CREATE VIRTUAL TABLE words USING fts5(text, content = '', contentless_delete = 1, tokenize = 'trigram');
    CREATE TRIGGER words_of_new AFTER INSERT ON messages
    WHEN new.status <> 'writing' AND NOT EXISTS (SELECT 1 FROM other_versions WHERE position = new.position) BEGIN
        INSERT INTO words (rowid, text) VALUES (new.position, new.text || char(10) || coalesce(new.reasoning, ''));
    END;
    CREATE TRIGGER words_of_changed AFTER UPDATE OF text, status ON messages WHEN new.status <> 'writing' BEGIN
        DELETE FROM words WHERE rowid = new.position;
        INSERT INTO words (rowid, text) VALUES (new.position, new.text || char(10) || coalesce(new.reasoning, ''));
    END;
    CREATE TRIGGER words_of_gone AFTER DELETE ON messages
    WHEN NOT EXISTS (SELECT 1 FROM other_versions WHERE position = old.position) BEGIN
        DELETE FROM words WHERE rowid = old.position;
    END;
    CREATE TRIGGER words_of_other AFTER INSERT ON other_versions
    WHEN NOT EXISTS (SELECT 1 FROM messages WHERE position = new.position) BEGIN
        INSERT INTO words (rowid, text) VALUES (new.position, new.text || char(10) || coalesce(new.reasoning, ''));
    END;
    CREATE TRIGGER words_of_other_gone AFTER DELETE ON other_versions
    WHEN NOT EXISTS (SELECT 1 FROM messages WHERE position = old.position) BEGIN
        DELETE FROM words WHERE rowid = old.position;
    END;
    INSERT INTO words (rowid, text) SELECT position, text FROM messages WHERE status <> 'writing';
",
    // Beside the text, which is written again with every pause of the person: files are large, and rarely change. They go with their
    // draft, also where an older version removes it.
    "
    CREATE TABLE draft_files (
        chat_id TEXT PRIMARY KEY REFERENCES drafts (chat_id) ON DELETE CASCADE,
        attachments TEXT NOT NULL
    ) STRICT;
    CREATE TABLE draft_edits (
        chat_id TEXT PRIMARY KEY REFERENCES drafts (chat_id) ON DELETE CASCADE,
        message_id TEXT NOT NULL,
        text TEXT NOT NULL
    ) STRICT;
",
];

/// What every file has had since the first step: the columns that this version reads and writes.
const ALWAYS_THERE: &[&str] = &[
    "SELECT oldest_reader FROM compatibility",
    "SELECT id, title, created_at, updated_at, deleted_at FROM chats",
    "SELECT position, id, chat_id, role, text, status, created_at, model, stats, error FROM messages",
];

/// Copies made before a step; older ones are removed.
const BACKUPS_KEPT: usize = 3;

/// Opens the database in `folder`, repairs or sets aside what must be, and brings it to the newest shape. The second value is a
/// sentence for the person when something was set aside.
pub(super) fn open(
    folder: &Path,
    steps: &[Step],
    date: &str,
) -> Result<(Connection, Option<String>)> {
    let file = folder.join("chats.db");
    match open_checked(&file, steps, date) {
        Ok(connection) => Ok((connection, None)),
        Err(Error::Database { source, .. }) if is_damage(&source) => replace(&file, steps, date),
        Err(Error::Damaged { .. }) => replace(&file, steps, date),
        Err(error) => Err(error),
    }
}

fn replace(file: &Path, steps: &[Step], date: &str) -> Result<(Connection, Option<String>)> {
    let aside = set_aside(file, date)?;
    // The write-ahead files belong to the damaged one: without them it would lose what is still whole.
    for ending in ["-wal", "-shm"] {
        let companion = with_ending(file, ending);
        if companion.exists() {
            let target = with_ending(&aside, ending);
            std::fs::rename(&companion, target).map_err(Error::file(&companion))?;
        }
    }
    let connection = open_checked(file, steps, date)?;
    let notice = format!(
        "The file with your chats was damaged, so a new one was begun. The old file is kept as {}.",
        aside.display()
    );
    Ok((connection, Some(notice)))
}

fn with_ending(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Only its owner may read the chats, also where the folder was there before and is open to others. What SQLite puts beside the file gets the
/// same rights from it.
fn keep_private(file: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
        let made = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(file)
            .map_err(Error::file(file))?;
        let rights = made.metadata().map_err(Error::file(file))?.permissions();
        if rights.mode() & 0o077 != 0 {
            let private = std::fs::Permissions::from_mode(0o600);
            // Where it is somebody else's file, it stays as they want it.
            if let Err(error) = made.set_permissions(private) {
                tracing::warn!(%error, file = %file.display(), "others may read the chats");
            }
        }
    }
    Ok(())
}

fn open_checked(file: &Path, steps: &[Step], date: &str) -> Result<Connection> {
    keep_private(file)?;
    let on_error = Error::database(file);
    let mut connection = match connect(file, "NORMAL") {
        Err(error) if is_without_index(&error) => {
            tracing::warn!(%error, "the chats are opened without a shared index");
            connect(file, "EXCLUSIVE")
        }
        connected => connected,
    }
    .map_err(&on_error)?;
    let verdict: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(&on_error)?;
    if verdict != "ok" {
        return Err(Error::Damaged {
            path: file.display().to_string(),
            details: verdict,
        });
    }
    bring_up_to_date(&mut connection, file, steps, date)?;
    Ok(connection)
}

/// The shared index beside the file is made by the first look into it, which a full disk has no room for. Alone with the file, and that is what
/// the lock of the folder makes us, one does without: chats can be read, and models deleted to make room.
fn connect(file: &Path, locking: &str) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.execute_batch(&format!(
        "PRAGMA locking_mode = {locking};
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA busy_timeout = 2000;
         SELECT count(*) FROM sqlite_schema;"
    ))?;
    Ok(connection)
}

fn bring_up_to_date(
    connection: &mut Connection,
    file: &Path,
    steps: &[Step],
    date: &str,
) -> Result<()> {
    let on_error = Error::database(file);
    let shape: usize = connection
        .query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))
        .map_err(&on_error)?
        .try_into()
        .unwrap_or(usize::MAX);
    check_tables(connection, file, shape)?;
    if shape > steps.len() {
        let oldest_reader: Option<i64> = connection
            .query_row("SELECT max(oldest_reader) FROM compatibility", [], |row| {
                row.get(0)
            })
            .optional()
            .map_err(&on_error)?
            .flatten();
        return match oldest_reader.map(usize::try_from) {
            Some(Ok(reader)) if reader <= steps.len() => Ok(()),
            _ => Err(Error::TooNew {
                file: file.display().to_string(),
            }),
        };
    }
    if shape > 0 && shape < steps.len() {
        back_up(connection, file, shape, date)?;
    }
    for (number, step) in (1_i64..).zip(steps).skip(shape) {
        let transaction = connection.transaction().map_err(&on_error)?;
        transaction.execute_batch(step).map_err(&on_error)?;
        transaction
            .pragma_update(None, "user_version", number)
            .map_err(&on_error)?;
        transaction.commit().map_err(&on_error)?;
    }
    Ok(())
}

/// Another program may have emptied the file, or lost its number: that is damage too.
fn check_tables(connection: &Connection, file: &Path, shape: usize) -> Result<()> {
    let on_error = Error::database(file);
    let damaged = |details: String| Error::Damaged {
        path: file.display().to_string(),
        details,
    };
    if shape == 0 {
        let name: Option<String> = connection
            .query_row("SELECT name FROM sqlite_schema", [], |row| row.get(0))
            .optional()
            .map_err(on_error)?;
        return match name {
            None => Ok(()),
            Some(name) => Err(damaged(format!("{name} is there, but no version"))),
        };
    }
    for query in ALWAYS_THERE {
        connection
            .prepare(query)
            .map(drop)
            .map_err(|error| match is_other_shape(&error) {
                true => damaged(error.to_string()),
                false => on_error(error),
            })?;
    }
    Ok(())
}

/// A whole copy before the shape changes, in `backups/`.
fn back_up(connection: &Connection, file: &Path, shape: usize, date: &str) -> Result<()> {
    let folder = file.with_file_name("backups");
    std::fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let copy = folder.join(format!("chats-{date}-shape-{shape}.db"));
    if !copy.exists() {
        // Under a temporary name first: a half-written copy must not look like a backup.
        let partial = folder.join("partial.db");
        match std::fs::remove_file(&partial) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::file(&partial)(error));
            }
            _ => {}
        }
        connection
            .execute("VACUUM INTO ?1", [partial.to_string_lossy()])
            .map_err(Error::database(&partial))?;
        std::fs::rename(&partial, &copy).map_err(Error::file(&copy))?;
    }
    let mut copies: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(Error::file(&folder))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("chats-"))
        })
        .collect();
    copies.sort();
    let surplus = copies.len().saturating_sub(BACKUPS_KEPT);
    for old in copies.iter().take(surplus) {
        std::fs::remove_file(old).map_err(Error::file(old))?;
    }
    Ok(())
}
