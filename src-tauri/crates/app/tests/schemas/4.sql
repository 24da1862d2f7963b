-- Frozen: the database as the first FaStar that keeps the files of drafts wrote it. Never change this file.
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
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    work TEXT NOT NULL,
    job TEXT NOT NULL
) STRICT;
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
CREATE TABLE draft_files (
    chat_id TEXT PRIMARY KEY REFERENCES drafts (chat_id) ON DELETE CASCADE,
    attachments TEXT NOT NULL
) STRICT;
CREATE TABLE draft_edits (
    chat_id TEXT PRIMARY KEY REFERENCES drafts (chat_id) ON DELETE CASCADE,
    message_id TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;
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
INSERT INTO chats (id, title, created_at, updated_at, deleted_at, system, pinned, folder) VALUES
    ('c1', 'Old chat', 1000, 2000, NULL, 'Be brief.', 1, 'Work'), ('c2', 'Deleted chat', 1000, 1500, 1600, '', 0, NULL);
INSERT INTO messages (position, id, chat_id, role, text, status, created_at, model, stats, error, reasoning, reasoning_ms, thinking, attachments, edited) VALUES
    (1, 'm1', 'c1', 'user', 'Frage? 修复', 'done', 1000, NULL, NULL, NULL, NULL, NULL, 'on', '[{"name":"a.txt","text":"inside"}]', 0),
    (4, 'm4', 'c1', 'assistant', 'Zweite Antwort.', 'done', 1003, 'Demo model', NULL, NULL, 'Let me see.', 1500.0, 'on', NULL, 0),
    (5, 'm5', 'c2', 'user', 'gone', 'done', 1000, NULL, NULL, NULL, NULL, NULL, 'off', NULL, 0),
    (6, 'm6', 'c2', 'assistant', 'too', 'done', 1000, NULL, NULL, NULL, NULL, NULL, 'off', NULL, 1);
INSERT INTO other_versions (position, id, chat_id, role, text, status, created_at, model, stats, error, reasoning, reasoning_ms, thinking, attachments, edited, parent, hidden) VALUES
    (2, 'm2', 'c1', 'assistant', 'Erste Antwort.', 'stopped', 1001, 'Demo model', NULL, NULL, NULL, NULL, 'off', NULL, 0, 'm1', 1),
    (3, 'm3', 'c1', 'user', 'Noch etwas', 'done', 1002, NULL, NULL, NULL, NULL, NULL, 'off', NULL, 0, 'm2', 1);
INSERT INTO presets VALUES ('p1', 'Brief', 'Be brief.');
INSERT INTO drafts VALUES ('c1', 'half a sent'), ('', 'a new idea');
INSERT INTO draft_files VALUES ('', '[{"name":"b.txt","text":"with it"}]');
INSERT INTO draft_edits VALUES ('c1', 'm1', 'Frage!');
PRAGMA user_version = 4;
