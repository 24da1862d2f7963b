#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::language::Language;
use fastar_api::{Draft, ErrorCode, ExportFormat, Finish, MessageStatus};

const FROZEN_1: &str = include_str!("../../tests/schemas/1.sql");
const FROZEN_2: &str = include_str!("../../tests/schemas/2.sql");
const FROZEN_3: &str = include_str!("../../tests/schemas/3.sql");
const FROZEN_4: &str = include_str!("../../tests/schemas/4.sql");
const DAY: i64 = 24 * 60 * 60 * 1000;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn frozen(folder: &Path) {
    freeze(folder, FROZEN_1);
}

fn frozen_3(folder: &Path) {
    freeze(folder, FROZEN_3);
}

fn freeze(folder: &Path, frozen: &str) {
    Connection::open(folder.join("chats.db"))
        .unwrap()
        .execute_batch(frozen)
        .unwrap();
}

/// What tables and indexes a file has, in SQLite's own words but for spaces.
fn shape(file: &Path) -> (i64, Vec<String>) {
    let connection = Connection::open(file).unwrap();
    let number = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shape = connection
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY name")
        .unwrap()
        .query_map([], |row| row.get(0).map(words))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    (number, shape)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_database_of_the_first_version_opens_with_all_it_holds() {
    let folder = folder();
    frozen(folder.path());
    let (chats, notice) = Chats::open(folder.path(), 3000).unwrap();
    assert_eq!(notice, None);
    let chat = chats.chat("c1").unwrap();
    assert_eq!(chat.summary.title, "Old chat");
    let texts: Vec<_> = chat
        .messages
        .iter()
        .map(|m| (m.text.as_str(), m.status))
        .collect();
    assert_eq!(
        texts,
        [
            ("Frage? 修复", MessageStatus::Done),
            ("Antwort.", MessageStatus::Done),
            ("Again", MessageStatus::Done),
            ("cut o", MessageStatus::Interrupted),
        ]
    );
    let stats = chat.messages[1].stats.as_ref().unwrap();
    assert_eq!((stats.prompt_tokens, stats.finish), (6, Finish::End));
    chats.restore("c2").unwrap();
    let failed = &chats.chat("c2").unwrap().messages[1];
    assert_eq!(failed.error.as_ref().unwrap().code, ErrorCode::ContextFull);
}

#[test]
fn every_released_shape_becomes_the_newest_one_and_a_copy_of_the_old_file_is_kept() {
    let newest = folder();
    drop(Chats::open(newest.path(), 1).unwrap());
    let newest = shape(&newest.path().join("chats.db"));
    assert_eq!(newest.0, 4);
    for (number, frozen, kept) in [
        (1, FROZEN_1, 6),
        (2, FROZEN_2, 2),
        (3, FROZEN_3, 4),
        (4, FROZEN_4, 4),
    ] {
        let folder = folder();
        freeze(folder.path(), frozen);
        let before = shape(&folder.path().join("chats.db"));
        drop(Chats::open(folder.path(), 40 * DAY).unwrap());
        assert_eq!(shape(&folder.path().join("chats.db")), newest);
        let copy = folder
            .path()
            .join(format!("backups/chats-1970-02-10-000000-shape-{number}.db"));
        assert_eq!(copy.exists(), number < newest.0);
        if copy.exists() {
            assert_eq!(shape(&copy), before);
            let messages: i64 = Connection::open(&copy)
                .unwrap()
                .query_row("SELECT count(*) FROM messages", [], |row| row.get(0))
                .unwrap();
            assert_eq!(messages, kept);
        }
    }
}

/// The statements that the versions before this one run, as they were released.
#[test]
fn a_version_without_versions_of_messages_reads_and_writes_what_is_shown() {
    let folder = folder();
    frozen_3(folder.path());
    let file = folder.path().join("chats.db");
    let older = Connection::open(&file).unwrap();
    older
        .execute_batch(
            "PRAGMA foreign_keys = ON;
             UPDATE messages SET status = 'interrupted' WHERE status = 'writing';
             DELETE FROM chats WHERE deleted_at < 1600;",
        )
        .unwrap();
    let shown: Vec<String> = older
        .prepare(
            "SELECT id, chat_id, role, text, status, created_at, model, stats, error FROM messages WHERE chat_id = 'c1' ORDER BY position",
        )
        .unwrap()
        .query_map([], |row| row.get(3))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    assert_eq!(shown, ["Frage? 修复", "Zweite Antwort."]);
    older
        .execute_batch(
            "DELETE FROM messages WHERE chat_id = 'c1' AND position > 1;
             INSERT INTO messages (id, chat_id, role, text, status, created_at, model)
                VALUES ('old', 'c1', 'assistant', '', 'writing', 3000, 'Demo model');
             UPDATE messages SET text = 'Dritte' WHERE id = 'old' AND status = 'writing';
             UPDATE messages SET text = 'Dritte Antwort.', status = 'done', model = 'Demo model', stats = NULL, error = NULL WHERE id = 'old';
             DELETE FROM chats WHERE id = 'c2';",
        )
        .unwrap();
    drop(older);

    let (chats, notice) = Chats::open(folder.path(), 4000).unwrap();
    assert_eq!(notice, None);
    let chat = chats.chat("c1").unwrap();
    let texts: Vec<_> = chat.messages.iter().map(|m| m.text.as_str()).collect();
    assert_eq!(texts, ["Frage? 修复", "Dritte Antwort."]);
    assert_eq!(chat.messages[1].versions, ["m2", "old"]);
    assert_eq!(
        (chat.system.as_str(), chat.draft.text.as_str()),
        ("Be brief.", "half a sent")
    );
    assert_eq!(chats.show_version("m2").unwrap(), "c1");
    assert_eq!(chats.chat("c1").unwrap().messages[2].text, "Noch etwas");
    // What it wrote is found, what it deleted is not.
    let found = |words: &str| chats.search(words).unwrap().len();
    assert_eq!((found("Dritte"), found("Zweite"), found("too")), (1, 0, 0));
}

#[test]
fn a_database_with_versions_opens_with_all_it_holds() {
    let folder = folder();
    frozen_3(folder.path());
    let (chats, notice) = Chats::open(folder.path(), 3000).unwrap();
    assert_eq!(notice, None);
    let chat = chats.chat("c1").unwrap();
    assert!(chat.summary.pinned);
    assert_eq!(chat.summary.folder.as_deref(), Some("Work"));
    assert_eq!(chat.messages[0].attachments[0].text, "inside");
    let answer = &chat.messages[1];
    assert_eq!(answer.thinking, fastar_api::Thinking::On);
    assert_eq!(answer.reasoning.as_deref(), Some("Let me see."));
    assert_eq!(answer.reasoning_ms, Some(1500.0));
    assert_eq!(answer.versions, ["m2", "m4"]);
    assert_eq!(chats.presets().unwrap()[0].name, "Brief");
    // A draft of before there were files with drafts.
    let draft = Draft {
        text: "a new idea".into(),
        ..Draft::default()
    };
    assert_eq!(chats.new_draft().unwrap(), draft);
}

#[test]
fn the_files_of_a_draft_are_kept_and_go_with_it_in_an_older_version_too() {
    let folder = folder();
    freeze(folder.path(), FROZEN_4);
    let (chats, notice) = Chats::open(folder.path(), 3000).unwrap();
    assert_eq!(notice, None);
    let new = chats.new_draft().unwrap();
    assert_eq!(
        (
            new.text.as_str(),
            new.attachments[0].name.as_str(),
            new.attachments[0].text.as_str()
        ),
        ("a new idea", "b.txt", "with it")
    );
    let edit = chats.chat("c1").unwrap().draft.edit.unwrap();
    assert_eq!(
        (edit.message_id.as_str(), edit.text.as_str()),
        ("m1", "Frage!")
    );
    drop(chats);

    // As it was released: it knows of the text only.
    let older = Connection::open(folder.path().join("chats.db")).unwrap();
    older
        .execute_batch(
            "PRAGMA foreign_keys = ON;
             INSERT INTO drafts (chat_id, text) VALUES ('c1', 'more') ON CONFLICT (chat_id) DO UPDATE SET text = excluded.text;
             DELETE FROM drafts WHERE chat_id = '';",
        )
        .unwrap();
    drop(older);
    let (chats, _) = Chats::open(folder.path(), 3000).unwrap();
    assert_eq!(chats.new_draft().unwrap(), Draft::default());
    chats
        .save_draft(
            None,
            &Draft {
                text: "afresh".into(),
                ..Draft::default()
            },
        )
        .unwrap();
    assert_eq!(chats.new_draft().unwrap().attachments, []);
    let draft = chats.chat("c1").unwrap().draft;
    assert_eq!((draft.text.as_str(), draft.edit), ("more", Some(edit)));
}

#[test]
fn a_step_to_a_new_shape_copies_the_database_first_and_keeps_three_copies() {
    let folder = folder();
    frozen(folder.path());
    let mut steps = schema::STEPS.to_vec();
    for n in 5..=8 {
        steps.push(
            [
                "ALTER TABLE chats ADD COLUMN x4 TEXT",
                "ALTER TABLE chats ADD COLUMN x5 TEXT",
                "ALTER TABLE chats ADD COLUMN x6 TEXT",
                "ALTER TABLE chats ADD COLUMN x7 TEXT",
            ][n - 5],
        );
        let (chats, _) = Chats::open_with(folder.path(), &steps, DAY * n as i64).unwrap();
        assert_eq!(chats.chat("c1").unwrap().messages.len(), 4);
    }
    let backups = folder.path().join("backups");
    assert_eq!(
        names(&backups),
        [
            "chats-1970-01-07-000000-shape-5.db",
            "chats-1970-01-08-000000-shape-6.db",
            "chats-1970-01-09-000000-shape-7.db",
        ]
    );
    let copy = Connection::open(backups.join("chats-1970-01-09-000000-shape-7.db")).unwrap();
    let (count, shape): (i64, i64) = copy
        .query_row(
            "SELECT count(*), (SELECT user_version FROM pragma_user_version) FROM messages",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!((count, shape), (6, 7));
}

#[cfg(unix)]
#[test]
fn a_copy_before_a_step_is_made_where_no_link_leads() {
    let folder = folder();
    frozen(folder.path());
    let backups = folder.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    let nowhere = folder.path().join("nowhere");
    std::os::unix::fs::symlink(&nowhere, backups.join("partial.db")).unwrap();
    let mut steps = schema::STEPS.to_vec();
    steps.push("ALTER TABLE chats ADD COLUMN more TEXT");
    Chats::open_with(folder.path(), &steps, 5000).unwrap();
    assert!(!nowhere.exists());
    for name in names(&backups) {
        let copy = std::fs::symlink_metadata(backups.join(&name)).unwrap();
        assert!(copy.is_file() && copy.len() > 0, "{name}");
    }
}

#[test]
fn a_step_that_fails_leaves_the_old_shape_whole() {
    let folder = folder();
    frozen(folder.path());
    let mut steps = schema::STEPS.to_vec();
    steps.push("CREATE TABLE half (x TEXT) STRICT; CREATE TABLE chats (y TEXT) STRICT;");
    assert!(Chats::open_with(folder.path(), &steps, 5000).is_err());
    let (chats, notice) = Chats::open(folder.path(), 5000).unwrap();
    assert_eq!(
        (chats.chat("c1").unwrap().messages.len(), notice),
        (4, None)
    );
    let half: i64 = chats
        .read(|c| {
            c.query_row(
                "SELECT count(*) FROM sqlite_schema WHERE name = 'half'",
                [],
                |r| r.get(0),
            )
        })
        .unwrap();
    assert_eq!(half, 0);
}

#[test]
fn a_newer_database_opens_when_it_allows_that_and_is_left_alone_when_not() {
    let folder = folder();
    frozen(folder.path());
    let mut steps = schema::STEPS.to_vec();
    steps.push("ALTER TABLE messages ADD COLUMN later TEXT NOT NULL DEFAULT 'x'");
    drop(Chats::open_with(folder.path(), &steps, 5000).unwrap());
    let (older, _) = Chats::open(folder.path(), 5000).expect("a compatible newer file opens");
    older
        .begin(Some("c1"), &"from the older version".into(), None, 6000)
        .unwrap();
    drop(older);

    steps.push("UPDATE compatibility SET oldest_reader = 5");
    drop(Chats::open_with(folder.path(), &steps, 5000).unwrap());
    let error = Chats::open(folder.path(), 5000).err().expect("refused");
    assert!(error.to_string().contains("newer version"), "{error}");
    let (newest, _) = Chats::open_with(folder.path(), &steps, 5000).unwrap();
    assert_eq!(newest.chat("c1").unwrap().messages.len(), 6);
}

#[test]
fn a_damaged_file_is_set_aside_with_its_date_and_never_deleted() {
    let garbage: Vec<u8> = (0..20_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let folder = folder();
    std::fs::write(folder.path().join("chats.db"), &garbage).unwrap();
    let (chats, notice) = Chats::open(folder.path(), 1_796_000_000_000).unwrap();
    let aside = folder.path().join("chats-damaged-2026-11-30-005320.db");
    assert_eq!(std::fs::read(&aside).unwrap(), garbage);
    assert!(notice.unwrap().contains(&aside.display().to_string()));
    chats
        .begin(None, &"a new beginning".into(), None, 1)
        .unwrap();
    drop(chats);
    let (chats, notice) = Chats::open(folder.path(), 1_796_000_001_000).unwrap();
    assert_eq!((chats.list().unwrap().len(), notice), (1, None));
}

#[test]
fn damage_inside_a_database_is_found_at_the_start() {
    let folder = folder();
    let (chats, _) = Chats::open(folder.path(), 1).unwrap();
    for n in 0..200 {
        chats
            .begin(
                None,
                &format!("message {n} {}", "long ".repeat(100))
                    .as_str()
                    .into(),
                None,
                n,
            )
            .unwrap();
    }
    drop(chats);
    let path = folder.path().join("chats.db");
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 40_000, "{}", bytes.len());
    bytes[8192..24_576].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let (chats, notice) = Chats::open(folder.path(), 1).unwrap();
    assert!(notice.is_some());
    assert_eq!(chats.list().unwrap(), []);
    let aside = folder.path().join("chats-damaged-1970-01-01-000000.db");
    assert_eq!(std::fs::read(aside).unwrap(), bytes);
}

#[test]
fn a_deleted_chat_is_hidden_can_be_restored_and_goes_after_seven_days() {
    let folder = folder();
    let now = 100 * DAY;
    let (chats, _) = Chats::open(folder.path(), now).unwrap();
    let begun = chats.begin(None, &"keep me".into(), None, now).unwrap();
    let (id, answer) = (begun.chat.id, begun.answer.id);
    chats.delete(&id, now).unwrap();
    assert_eq!(chats.list().unwrap(), []);
    assert!(matches!(chats.chat(&id), Err(Error::ChatNotFound)));
    assert!(matches!(chats.delete(&id, now), Err(Error::ChatNotFound)));
    assert!(matches!(chats.rename(&id, "x"), Err(Error::ChatNotFound)));
    assert!(matches!(
        chats.begin(Some(&id), &"x".into(), None, now),
        Err(Error::ChatNotFound)
    ));
    assert!(matches!(
        chats.begin_again(&answer, fastar_api::Thinking::Off, None, now),
        Err(Error::AnswerNotFound)
    ));
    chats.restore(&id).unwrap();
    assert_eq!(chats.chat(&id).unwrap().messages.len(), 2);

    chats.delete(&id, now).unwrap();
    drop(chats);
    let (chats, _) = Chats::open(folder.path(), now + 7 * DAY).unwrap();
    chats.restore(&id).expect("still there on the seventh day");
    chats.delete(&id, now).unwrap();
    drop(chats);
    let (chats, _) = Chats::open(folder.path(), now + 7 * DAY + 1).unwrap();
    assert!(matches!(chats.restore(&id), Err(Error::ChatNotFound)));
    let left: i64 = chats
        .read(|c| c.query_row("SELECT count(*) FROM messages", [], |r| r.get(0)))
        .unwrap();
    assert_eq!(left, 0);
}

#[test]
fn titles_are_one_line_neither_empty_nor_endless() {
    let folder = folder();
    let (chats, _) = Chats::open(folder.path(), 1).unwrap();
    let id = chats.begin(None, &"x".into(), None, 1).unwrap().chat.id;
    assert_eq!(chats.rename(&id, "  a\n\tb\0c ").unwrap().title, "a b c");
    for empty in ["", " \n", "\0"] {
        assert!(matches!(
            chats.rename(&id, empty),
            Err(Error::BadRequest(_))
        ));
    }
    let error = chats.rename(&id, &"ö".repeat(201)).unwrap_err().to_string();
    assert!(error.contains("201") && error.contains("200"), "{error}");
    assert_eq!(chats.list().unwrap()[0].title, "a b c");
}

#[test]
fn the_list_is_sorted_by_the_last_change_even_when_the_clock_was_set_back() {
    let folder = folder();
    let (chats, _) = Chats::open(folder.path(), 1).unwrap();
    let first = chats
        .begin(None, &"first".into(), None, 1000)
        .unwrap()
        .chat
        .id;
    let second = chats.begin(None, &"second".into(), None, 2000).unwrap();
    let order = || {
        chats
            .list()
            .unwrap()
            .into_iter()
            .map(|c| c.title)
            .collect::<Vec<_>>()
    };
    assert_eq!(order(), ["second", "first"]);
    chats
        .begin(Some(&first), &"again".into(), None, 3000)
        .unwrap();
    assert_eq!(order(), ["first", "second"]);
    let mut answer = second.answer;
    answer.status = MessageStatus::Done;
    assert_eq!(chats.finish(&answer, 500).unwrap().updated_at, 2000);
}

#[test]
fn text_saved_late_never_overwrites_the_end_of_an_answer() {
    let folder = folder();
    let (chats, _) = Chats::open(folder.path(), 1).unwrap();
    let mut answer = chats.begin(None, &"x".into(), None, 1).unwrap().answer;
    chats
        .save_text(&answer.id, None, "so f", Durability::Process)
        .unwrap();
    answer.text = "so far and to the end".into();
    answer.status = MessageStatus::Done;
    chats.finish(&answer, 2).unwrap();
    chats
        .save_text(&answer.id, None, "so far", Durability::PowerCut)
        .unwrap();
    assert_eq!(
        chats.message(&answer.id).unwrap().1.text,
        "so far and to the end"
    );
}

#[test]
fn a_file_without_its_tables_or_its_number_is_set_aside_and_kept() {
    for harm in [
        "DROP TABLE messages",
        "DROP TABLE compatibility",
        "ALTER TABLE chats DROP COLUMN title",
        "PRAGMA user_version = 0",
        "DROP TABLE compatibility; PRAGMA user_version = 9",
    ] {
        let folder = folder();
        frozen(folder.path());
        let path = folder.path().join("chats.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch(harm)
            .unwrap();
        let (chats, notice) = Chats::open(folder.path(), 1).expect(harm);
        let aside = folder.path().join("chats-damaged-1970-01-01-000000.db");
        assert!(notice.expect(harm).contains(&aside.display().to_string()));
        let kept: i64 = Connection::open(&aside)
            .unwrap()
            .query_row("SELECT count(*) FROM chats", [], |row| row.get(0))
            .unwrap();
        assert_eq!(kept, 2, "{harm}");
        chats
            .begin(None, &"a new beginning".into(), None, 1)
            .unwrap();
        drop(chats);
        let (chats, notice) = Chats::open(folder.path(), 2).unwrap();
        assert_eq!((chats.list().unwrap().len(), notice), (1, None));
    }
}

#[test]
fn a_file_too_large_to_be_imported_again_is_not_written_as_if_it_were_a_copy() {
    let folder = folder();
    let (chats, _) = Chats::open(folder.path(), 1000).unwrap();
    let begun = chats
        .begin(
            None,
            &NewMessage::from("x".repeat(1000).as_str()),
            None,
            1000,
        )
        .unwrap();
    let json = ExportFormat::Json;
    let size = chats
        .export(None, json, Language::English)
        .unwrap()
        .text
        .len();
    assert!(size > 1000);
    assert_eq!(
        chats
            .export_within(size, None, json, Language::English)
            .unwrap()
            .text
            .len(),
        size
    );
    let refused = |id: Option<&str>| {
        let error = chats
            .export_within(size - 1, id, json, Language::English)
            .err()
            .unwrap();
        error.to_string()
    };
    assert_eq!(
        refused(None),
        format!(
            "The file would have {size} bytes, and FaStar imports none of more than {}. Export the chats one by one.",
            size - 1
        )
    );
    assert!(refused(Some(&begun.chat.id)).ends_with("Export it to be read (Markdown)."));
    // What is only read has no such limit.
    chats
        .export_within(1, None, ExportFormat::Markdown, Language::English)
        .unwrap();
}

#[test]
fn the_work_of_an_import_grows_with_the_file_and_not_with_its_square() {
    let steps = |versions: usize| {
        let folder = folder();
        let (chats, _) = Chats::open(folder.path(), 1000).unwrap();
        let messages: Vec<_> = (0..versions)
            .map(|n| {
                serde_json::json!({"id": n.to_string(), "shown": n == 0, "role": "user", "text": "x", "status": "done", "created_at": 1})
            })
            .collect();
        let file = serde_json::json!({"format": "fastar-chats", "version": 1, "chats": [
            {"title": "t", "created_at": 1, "updated_at": 1, "messages": messages}]});
        let hundreds = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = std::sync::Arc::clone(&hundreds);
        // Steps of the database's machine, and not seconds.
        lock(&chats.connection)
            .progress_handler(
                100,
                Some(move || {
                    counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    false
                }),
            )
            .unwrap();
        assert_eq!(chats.import(&file.to_string(), 1000).unwrap(), 1);
        let chat = chats.chat(&chats.list().unwrap()[0].id).unwrap();
        assert_eq!(chat.messages[0].versions.len(), versions);
        hundreds.load(std::sync::atomic::Ordering::Relaxed)
    };
    let (few, many) = (steps(500), steps(4000));
    assert!(many < 12 * few, "{few} and {many}");
}

#[test]
fn whoever_is_marked_as_being_written_at_the_start_was_cut_off_whether_shown_or_not() {
    let folder = folder();
    let (chats, _) = Chats::open(folder.path(), 1000).unwrap();
    let begun = chats
        .begin(None, &NewMessage::from("x"), None, 1000)
        .unwrap();
    chats
        .save_text(&begun.answer.id, None, "half", Durability::Process)
        .unwrap();
    let again = chats
        .begin_again(&begun.answer.id, fastar_api::Thinking::Off, None, 1000)
        .unwrap();
    chats
        .save_text(&again.answer.id, None, "other", Durability::Process)
        .unwrap();
    drop(chats);
    let (chats, _) = Chats::open(folder.path(), 2000).unwrap();
    for id in [&begun.answer.id, &again.answer.id] {
        chats.show_version(id).unwrap();
        let (_, message, _) = chats.message(id).unwrap();
        assert_eq!(
            message.status,
            MessageStatus::Interrupted,
            "{}",
            message.text
        );
    }
    // A text whose row is not where it is to be written is not believed to be saved.
    chats.show_version(&begun.answer.id).unwrap();
    assert!(chats.finish(&again.answer, 3000).is_err());
}

#[cfg(unix)]
#[test]
fn without_room_for_its_index_the_file_opens_and_chats_are_read_and_written() {
    let folder = folder();
    let (chats, _) = Chats::open(folder.path(), 1000).unwrap();
    let begun = chats
        .begin(None, &NewMessage::from("hi"), None, 1000)
        .unwrap();
    drop(chats);
    // Nothing can be made of that name, as on a full disk.
    let index = folder.path().join("chats.db-shm");
    std::os::unix::fs::symlink(folder.path().join("nowhere/index"), &index).unwrap();
    let (chats, notice) = Chats::open(folder.path(), 2000).unwrap();
    assert_eq!(notice, None);
    let read = chats.chat(&begun.chat.id).unwrap();
    assert_eq!(read.messages[0].text, "hi");
    assert_eq!(read.messages[1].status, MessageStatus::Interrupted);
    chats.rename(&begun.chat.id, "renamed").unwrap();
    drop(chats);
    // The database may have removed it itself.
    let _ = std::fs::remove_file(&index);
    let (chats, _) = Chats::open(folder.path(), 3000).unwrap();
    assert_eq!(chats.list().unwrap()[0].title, "renamed");
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_the_chats_whatever_the_folder_allows() {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    allow(folder.path(), 0o755);
    let file = folder.path().join("chats.db");
    // One that is made, and one that was left open to others by an older version.
    for _ in 0..2 {
        let (chats, notice) = Chats::open(folder.path(), DAY).unwrap();
        assert_eq!(notice, None);
        assert!(file.exists());
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{:?}", entry.file_name());
        }
        drop(chats);
        allow(&file, 0o644);
    }
}
