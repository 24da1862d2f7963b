"""Fills the database of an app that has run once: CHATS short chats, and one of TURNS turns of WORDS words each side."""
import sqlite3
import sys

path, chats, turns, words = sys.argv[1], *map(int, sys.argv[2:5])
database = sqlite3.connect(path)
database.execute("PRAGMA foreign_keys = ON")
# The system's SQLite may be too old for the index of words that the app keeps; it stays without these chats.
(trigger,) = database.execute("SELECT sql FROM sqlite_schema WHERE name = 'words_of_new'").fetchone()
database.execute("DROP TRIGGER words_of_new")
vocabulary = "the fox ran over a hill and saw that every stone of it had been moved by someone in the night".split()


def text(seed, length):
    out = []
    for i in range(length):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(vocabulary[(seed >> 33) % len(vocabulary)])
        if i % 60 == 59:
            out.append("\n\n" if i % 240 != 239 else "\n\n```rust\nlet x = 1; // step\n```\n\n")
    return " ".join(out)


def chat(name, title, updated, pairs):
    database.execute(
        "INSERT INTO chats (id, title, created_at, updated_at) VALUES (?, ?, ?, ?)", (name, title, updated, updated)
    )
    for n, (question, answer) in enumerate(pairs):
        for role, words in (("user", question), ("assistant", answer)):
            database.execute(
                "INSERT INTO messages (id, chat_id, role, text, status, created_at, model) VALUES (?, ?, ?, ?, 'done', ?, ?)",
                (f"{name}-{n}-{role}", name, role, words, updated, None if role == "user" else "Demo model"),
            )


for n in range(chats):
    chat(f"short-{n}", f"Chat number {n}", 1_700_000_000_000 + n, [(text(n, 20), text(n + 1, 200))])
if turns > 0:
    pairs = [(f"Question {n + 1}? " + text(n, 30), text(n + 7, words) + f"\n\nAnswer {n + 1}.") for n in range(turns)]
    chat("long", "The long one", 1_800_000_000_000, pairs)
database.execute(trigger)
database.commit()
database.close()
