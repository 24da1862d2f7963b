-- Frozen: the database as the first FaStar with jobs wrote it. Never change this file.
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
INSERT INTO chats VALUES ('c1', 'Old chat', 1000, 2000, NULL);
INSERT INTO messages VALUES
    (1, 'm1', 'c1', 'user', 'Frage? 修复', 'done', 1000, NULL, NULL, NULL),
    (2, 'm2', 'c1', 'assistant', 'Antwort.', 'done', 1001, 'Demo model', NULL, NULL);
INSERT INTO jobs VALUES
    ('j1', 'running', 5000,
     '{"kind":"download","folder":"/models","file":"DeepSeek-V4-Flash-0731.fst","title":"DeepSeek V4 Flash 0731","repository":"deepseek-ai/DeepSeek-V4-Flash-0731","revision":"main","drafter":true}',
     '{"id":"j1","kind":"download","title":"DeepSeek V4 Flash 0731","file":"DeepSeek-V4-Flash-0731.fst","state":"running","phase":{"phase":"retrying","seconds":12,"reason":"The connection was closed."},"done_bytes":66754614134,"total_bytes":166886535336,"bytes_per_second":null,"seconds_left":null,"error":null,"outcome":null,"created_at":5000}'),
    ('j2', 'failed', 4000,
     '{"kind":"download","folder":"/models","file":"other.fst","title":"Other","repository":"a/b","revision":"main","drafter":false}',
     '{"id":"j2","kind":"download","title":"Other","file":"other.fst","state":"failed","phase":null,"done_bytes":7,"total_bytes":null,"bytes_per_second":null,"seconds_left":null,"error":{"code":"no_space","message":"The disk is full.","hint":"Make room.","details":null},"outcome":null,"created_at":4000}'),
    ('j3', 'done', 3000,
     '{"kind":"verify","folder":"/models","file":"whole.fst","title":"whole","repository":"","revision":"","drafter":true}',
     '{"id":"j3","kind":"verify","title":"whole","file":"whole.fst","state":"done","phase":null,"done_bytes":9,"total_bytes":9,"bytes_per_second":null,"seconds_left":null,"error":null,"outcome":"All parts are as they were made.","created_at":3000}'),
    ('j4', 'cancelled', 2000,
     '{"kind":"download","folder":"/models","file":"given-up.fst","title":"Given up","repository":"a/b","revision":"main","drafter":true,"discard":true}',
     '{"id":"j4","kind":"download","title":"Given up","file":"given-up.fst","state":"cancelled","phase":null,"done_bytes":3,"total_bytes":9,"bytes_per_second":null,"seconds_left":null,"error":null,"outcome":null,"created_at":2000}');
PRAGMA user_version = 2;
