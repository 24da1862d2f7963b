-- Frozen: the database as the first FaStar wrote it. Never change this file.
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
INSERT INTO chats VALUES ('c1', 'Old chat', 1000, 2000, NULL), ('c2', 'Deleted chat', 1000, 1500, 1600);
INSERT INTO messages VALUES
    (1, 'm1', 'c1', 'user', 'Frage? 修复', 'done', 1000, NULL, NULL, NULL),
    (2, 'm2', 'c1', 'assistant', 'Antwort.', 'done', 1001, 'Demo model',
     '{"prompt_tokens":6,"reused_tokens":0,"answer_tokens":3,"first_token_ms":1.0,"prefill_ms":1.0,"decode_ms":2.0,"tokens_per_second":1000.0,"context_used":9,"context_size":4096,"finish":"end"}', NULL),
    (3, 'm3', 'c1', 'user', 'Again', 'done', 1500, NULL, NULL, NULL),
    (4, 'm4', 'c1', 'assistant', 'cut o', 'writing', 1501, 'Demo model', NULL, NULL),
    (5, 'm5', 'c2', 'user', 'gone', 'done', 1000, NULL, NULL, NULL),
    (6, 'm6', 'c2', 'assistant', '', 'failed', 1000, NULL, NULL,
     '{"code":"context_full","message":"Too long.","hint":null,"details":null}');
PRAGMA user_version = 1;
