//! Promises about conversations that branch: nothing is lost, what is shown is what the model is asked, and every answer is the one
//! that a fresh timeline would give.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scripted;

use std::path::Path;
use std::sync::Arc;

use fastar_api::{
    Attachment, Chat, Draft, Edit, ErrorCode, ExportFormat, Finish, GenerationEvent, Message,
    MessageStatus, NewMessage, Role, Thinking,
};
use fastar_app::inference::{Model, Source, load};
use fastar_app::{App, Listener};
use fastar_engine::{Cancel, Conversation, Sampling};
use scripted::{Script, Step, hear, hear_until, loaded, next};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Lets the scripted model say one text and end.
fn say(script: &Script, text: &str, mut listener: Listener) -> Message {
    script.say(text);
    script.step(Step::End);
    hear(&mut listener).answer().clone()
}

fn texts(chat: &Chat) -> Vec<&str> {
    chat.messages.iter().map(|m| m.text.as_str()).collect()
}

fn started(listener: &mut Listener) -> (Option<Message>, Message, Option<String>) {
    match next(listener) {
        Some(GenerationEvent::Started {
            user,
            answer,
            after,
            ..
        }) => (user, answer, after),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_edited_question_keeps_the_old_one_and_all_that_followed_it() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let first = say(&script, "one", app.message_send(None, "a").unwrap());
    let id = first.chat_id.clone();
    let second = say(&script, "two", app.message_send(Some(&id), "b").unwrap());
    say(&script, "three", app.message_send(Some(&id), "c").unwrap());
    let question = app.chat_open(&id).unwrap().messages[2].clone();

    let mut listener = app.message_edit(&question.id, "B").unwrap();
    let (user, answer, after) = started(&mut listener);
    let user = user.unwrap();
    assert_eq!(after.as_deref(), Some(first.id.as_str()));
    assert_eq!(user.versions, [question.id.as_str(), user.id.as_str()]);
    assert_eq!(answer.versions, [""; 0]);
    // One that comes later has the question already.
    let mut late = app.generation_attach(&answer.id).unwrap();
    assert_eq!(started(&mut late).2.as_deref(), Some(user.id.as_str()));
    script.say("TWO");
    script.step(Step::End);
    while next(&mut listener).is_some() {}
    let chat = app.chat_open(&id).unwrap();
    assert_eq!(texts(&chat), ["a", "one", "B", "TWO"]);
    assert_eq!(
        chat.messages[2].versions,
        [question.id.as_str(), user.id.as_str()]
    );
    assert_eq!(
        script.asked()[3].conversation,
        ["User: a", "Assistant: one", "User: B"]
    );

    // The walker leads back to the very rows, and forth again.
    let back = app.version_show(&question.id).unwrap();
    assert_eq!(texts(&back), ["a", "one", "b", "two", "c", "three"]);
    assert_eq!(back.messages[3].id, second.id);
    assert_eq!(
        texts(&app.version_show(&user.id).unwrap()),
        ["a", "one", "B", "TWO"]
    );
    // A message out of sight leads to its branch; what is in sight stays as it is.
    let third = back.messages[5].id.clone();
    assert_eq!(texts(&app.version_show(&third).unwrap()), texts(&back));
    assert_eq!(texts(&app.version_show(&third).unwrap()), texts(&back));

    // The first message can have versions too.
    say(
        &script,
        "I",
        app.message_edit(&back.messages[0].id, "A").unwrap(),
    );
    let chat = app.chat_open(&id).unwrap();
    assert_eq!(texts(&chat), ["A", "I"]);
    assert_eq!(chat.messages[0].versions.len(), 2);
    assert_eq!(app.chat_list().unwrap()[0].title, "a");
    assert_eq!(
        texts(&app.version_show(&back.messages[0].id).unwrap()),
        texts(&back)
    );
}

#[test]
fn regenerating_in_the_middle_keeps_both_ways_and_an_empty_attempt_leaves_nothing() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let first = say(&script, "one", app.message_send(None, "a").unwrap());
    let id = first.chat_id.clone();
    say(&script, "two", app.message_send(Some(&id), "b").unwrap());
    let mut listener = app.message_regenerate(&first.id, Thinking::Off).unwrap();
    let (user, _, after) = started(&mut listener);
    assert_eq!(user, None);
    let question = app.chat_open(&id).unwrap().messages[0].id.clone();
    assert_eq!(after, Some(question));
    app.generation_stop(listener.answer_id()).unwrap();
    while next(&mut listener).is_some() {}
    let empty = app.chat_open(&id).unwrap().messages.pop().unwrap();
    assert_eq!((empty.text.as_str(), empty.versions.len()), ("", 2));
    let again = say(
        &script,
        "uno",
        app.message_regenerate(&empty.id, Thinking::Off).unwrap(),
    );
    let chat = app.chat_open(&id).unwrap();
    assert_eq!(texts(&chat), ["a", "uno"]);
    assert_eq!(
        chat.messages[1].versions,
        [first.id.as_str(), again.id.as_str()]
    );
    assert_eq!(
        texts(&app.version_show(&first.id).unwrap()),
        ["a", "one", "b", "two"]
    );
    assert_eq!(
        app.version_show(&empty.id).unwrap_err().code,
        ErrorCode::NotFound
    );
}

#[test]
fn the_models_answer_can_be_edited_and_is_what_the_model_then_reads() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let first = say(&script, "wrong", app.message_send(None, "a").unwrap());
    let chat = app.answer_edit(&first.id, "right").unwrap();
    assert_eq!(texts(&chat), ["a", "right"]);
    let edited = &chat.messages[1];
    assert!(edited.edited && edited.status == MessageStatus::Done && edited.stats.is_none());
    assert_eq!(edited.model, first.model);
    assert_eq!(edited.versions, [first.id.as_str(), edited.id.as_str()]);
    say(
        &script,
        "yes",
        app.message_send(Some(&first.chat_id), "b").unwrap(),
    );
    assert_eq!(
        script.asked()[1].conversation,
        ["User: a", "Assistant: right", "User: b"]
    );
    for empty in ["", " \n"] {
        let refused = app.answer_edit(&edited.id, empty).unwrap_err();
        assert_eq!(refused.code, ErrorCode::BadRequest);
    }
    let user = &app.chat_open(&first.chat_id).unwrap().messages[0]
        .id
        .clone();
    assert_eq!(
        app.answer_edit(user, "x").unwrap_err().code,
        ErrorCode::NotFound
    );
    assert_eq!(
        app.message_edit(&edited.id, "x").err().unwrap().code,
        ErrorCode::NotFound
    );
}

#[test]
fn a_cut_off_answer_is_continued_in_its_place_and_its_numbers_are_summed() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "count").unwrap();
    script.say("1 ");
    script.say("2 ");
    script.step(Step::Full);
    let cut = hear(&mut listener).answer().clone();
    assert_eq!(cut.stats.as_ref().unwrap().finish, Finish::Length);

    // The scripted model counts bytes, and five around each turn.
    let prompt = || {
        app.message_count(Some(&cut.chat_id), "more")
            .unwrap()
            .prompt
    };
    let before = prompt();
    assert_eq!(before, 5 + 11 + 5 + 15 + 5 + 6 + 4);

    let mut listener = app.answer_continue(&cut.id).unwrap();
    let (user, answer, after) = started(&mut listener);
    assert_eq!((user, answer.id.as_str()), (None, cut.id.as_str()));
    assert_eq!(
        (answer.text.as_str(), answer.status),
        ("1 2 ", MessageStatus::Writing)
    );
    let question = app.chat_open(&cut.chat_id).unwrap().messages[0].id.clone();
    assert_eq!(after, Some(question));
    script.say("3 ");
    script.step(Step::End);
    while next(&mut listener).is_some() {}
    let chat = app.chat_open(&cut.chat_id).unwrap();
    assert_eq!(texts(&chat), ["count", "1 2 3 "]);
    assert_eq!(prompt(), before + 2);
    let stats = chat.messages[1].stats.clone().unwrap();
    assert_eq!((stats.answer_tokens, stats.decode_ms), (3, 1000.0));
    assert_eq!((stats.first_token_ms, stats.finish), (25.0, Finish::End));
    // Two tokens with one interval, one token with none: one interval in a second.
    assert_eq!(stats.tokens_per_second, Some(1.0));
    assert_eq!(
        script.asked()[1].conversation,
        ["User: count", "Assistant: 1 2 "]
    );

    // Only at the end, and only where there is something.
    say(
        &script,
        "x",
        app.message_send(Some(&cut.chat_id), "more").unwrap(),
    );
    let refused = app.answer_continue(&cut.id).err().unwrap();
    assert_eq!(refused.code, ErrorCode::BadRequest);
}

#[test]
fn a_continued_answer_that_is_interrupted_keeps_what_it_had() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "count").unwrap();
    script.say("1 2 ");
    script.step(Step::Full);
    let cut = hear(&mut listener).answer().clone();
    let mut listener = app.answer_continue(&cut.id).unwrap();
    script.say("3 ");
    hear_until(&mut listener, "1 2 3 ");
    app.shut_down();
    drop((app, listener));
    let app = script.app(folder.path());
    let answer = app.chat_open(&cut.chat_id).unwrap().messages.pop().unwrap();
    assert_eq!(
        (answer.text.as_str(), answer.status),
        ("1 2 3 ", MessageStatus::Interrupted)
    );
}

#[test]
fn a_continued_answer_that_was_stopped_or_failed_before_it_went_on_keeps_its_numbers() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "count").unwrap();
    script.say("1 2 ");
    script.step(Step::Full);
    let cut = hear(&mut listener).answer().clone();
    assert_eq!(cut.stats.as_ref().unwrap().answer_tokens, 1);
    // While it waits for its turn ...
    let mut other = app.message_send(None, "other").unwrap();
    script.wait_asked(2);
    let mut listener = app.answer_continue(&cut.id).unwrap();
    started(&mut listener);
    app.generation_stop(&cut.id).unwrap();
    while next(&mut listener).is_some() {}
    let now = || app.chat_open(&cut.chat_id).unwrap().messages.remove(1);
    assert_eq!(now().status, MessageStatus::Stopped);
    assert_eq!(now().stats, cut.stats);
    script.step(Step::End);
    hear(&mut other);
    // ... and when the engine refuses.
    let mut listener = app.answer_continue(&cut.id).unwrap();
    script.step(Step::Fail(fastar_engine::Error::ContextFull {
        needed: 5000,
        context: 4096,
    }));
    while next(&mut listener).is_some() {}
    assert_eq!(now().status, MessageStatus::Failed);
    assert_eq!(now().stats, cut.stats);
}

#[test]
fn while_an_answer_is_being_written_the_shown_versions_stay() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let first = say(&script, "one", app.message_send(None, "a").unwrap());
    say(
        &script,
        "two",
        app.message_regenerate(&first.id, Thinking::Off).unwrap(),
    );
    let mut listener = app.message_send(Some(&first.chat_id), "b").unwrap();
    for refused in [
        app.version_show(&first.id).unwrap_err(),
        app.answer_continue(&first.id).err().unwrap(),
        app.message_regenerate(&first.id, Thinking::Off)
            .err()
            .unwrap(),
    ] {
        assert_eq!(refused.code, ErrorCode::Busy, "{refused}");
    }
    script.step(Step::End);
    hear(&mut listener);
    app.version_show(&first.id).unwrap();
    // Of a deleted chat nothing is shown.
    app.chat_delete(&first.chat_id).unwrap();
    assert_eq!(
        app.version_show(&first.id).unwrap_err().code,
        ErrorCode::NotFound
    );
}

#[test]
fn thinking_is_asked_for_per_message_told_apart_from_the_answer_and_kept() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let thinking = |text: &str, thinking| NewMessage {
        thinking,
        ..NewMessage::from(text)
    };
    let mut listener = app.message_send(None, thinking("a", Thinking::On)).unwrap();
    started(&mut listener);
    script.step(Step::Think("Hm. ".into()));
    script.step(Step::Think("So.".into()));
    script.say("Done.");
    script.step(Step::End);
    let (mut thoughts, mut text) = (String::new(), String::new());
    let answer = loop {
        match next(&mut listener).unwrap() {
            GenerationEvent::Reasoning { text } => thoughts.push_str(&text),
            GenerationEvent::Text { text: more } => text.push_str(&more),
            GenerationEvent::Finished { answer, .. } => break answer,
            _ => {}
        }
    };
    assert_eq!((thoughts.as_str(), text.as_str()), ("Hm. So.", "Done."));
    assert_eq!(answer.reasoning.as_deref(), Some("Hm. So."));
    assert!(answer.reasoning_ms.unwrap() > 0.0);
    assert_eq!(answer.stats.as_ref().unwrap().reasoning_tokens, 2);
    assert_eq!(app.chat_open(&answer.chat_id).unwrap().messages[1], answer);

    let chat = Some(answer.chat_id.as_str());
    say(
        &script,
        "x",
        app.message_send(chat, thinking("b", Thinking::Max))
            .unwrap(),
    );
    say(&script, "y", app.message_send(chat, "c").unwrap());
    use fastar_engine::{Effort, Thinking as Asked};
    let asked: Vec<_> = script.asked().into_iter().map(|a| a.thinking).collect();
    assert_eq!(
        asked,
        [
            Asked::On(Effort::Default),
            Asked::On(Effort::Max),
            Asked::Off
        ]
    );
}

#[test]
fn instructions_stand_before_the_conversation_and_can_be_kept_under_a_name() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let with = NewMessage {
        system: "Be brief.".into(),
        ..NewMessage::from("a")
    };
    let first = say(&script, "one", app.message_send(None, with).unwrap());
    let chat = Some(first.chat_id.as_str());
    app.chat_system_set(&first.chat_id, "Be kind.").unwrap();
    say(&script, "two", app.message_send(chat, "b").unwrap());
    app.chat_system_set(&first.chat_id, " ").unwrap();
    say(&script, "three", app.message_send(chat, "c").unwrap());
    let firsts: Vec<_> = script
        .asked()
        .into_iter()
        .map(|asked| asked.conversation[0].clone())
        .collect();
    assert_eq!(firsts, ["System: Be brief.", "System: Be kind.", "User: a"]);
    assert_eq!(
        app.chat_system_set(&first.chat_id, &"x".repeat(200_001))
            .unwrap_err()
            .code,
        ErrorCode::BadRequest
    );

    let saved = app.preset_save(None, " Brief\n ", "Be brief.").unwrap();
    assert_eq!(saved.name, "Brief");
    app.preset_save(None, "a preset", "Other.").unwrap();
    app.preset_save(Some(&saved.id), "Short", "Be short.")
        .unwrap();
    let names: Vec<_> = app
        .preset_list()
        .unwrap()
        .into_iter()
        .map(|preset| (preset.name, preset.text))
        .collect();
    assert_eq!(
        names,
        [
            ("a preset".into(), "Other.".into()),
            ("Short".to_owned(), "Be short.".to_owned())
        ]
    );
    app.preset_delete(&saved.id).unwrap();
    assert_eq!(
        app.preset_delete(&saved.id).unwrap_err().code,
        ErrorCode::NotFound
    );
    for (name, text) in [("", "x"), ("x", " "), (&"x".repeat(81), "x")] {
        let refused = app.preset_save(None, name, text).unwrap_err();
        assert_eq!(refused.code, ErrorCode::BadRequest);
    }
}

#[test]
fn files_go_to_the_model_before_the_text_and_stay_with_their_message() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let file = |name: &str, text: &str| Attachment {
        name: name.into(),
        text: text.into(),
    };
    let message = NewMessage {
        attachments: vec![file("a.txt", "alpha"), file("b.md", "beta")],
        ..NewMessage::from("Sum up.")
    };
    let answer = say(
        &script,
        "ok",
        app.message_send(None, message.clone()).unwrap(),
    );
    assert_eq!(
        script.asked()[0].conversation,
        [
            "User: [file name]: a.txt\n[file content begin]\nalpha\n[file content end]\n[file name]: b.md\n\
             [file content begin]\nbeta\n[file content end]\nSum up."
        ]
    );
    let chat = app.chat_open(&answer.chat_id).unwrap();
    assert_eq!(chat.messages[0].attachments, message.attachments);
    assert_eq!(
        (chat.summary.title.as_str(), texts(&chat)[0]),
        ("Sum up.", "Sum up.")
    );

    // A file alone is a message, and names its chat.
    let alone = NewMessage {
        attachments: vec![file("report.txt", "gamma")],
        ..NewMessage::default()
    };
    let answer = say(&script, "ok", app.message_send(None, alone).unwrap());
    assert_eq!(
        app.chat_open(&answer.chat_id).unwrap().summary.title,
        "report.txt"
    );
    let many = vec![file("x", "y"); 21];
    for refused in [
        vec![file("", "x")],
        vec![file("a\nb", "x")],
        vec![file("empty", "")],
        vec![file("long", &"x".repeat(2_000_001))],
        many,
    ] {
        let message = NewMessage {
            attachments: refused,
            ..NewMessage::default()
        };
        let error = app.message_send(None, message).err().unwrap();
        assert_eq!(error.code, ErrorCode::BadRequest, "{error}");
    }
}

fn draft(text: &str) -> Draft {
    Draft {
        text: text.into(),
        ..Draft::default()
    }
}

#[test]
fn drafts_are_kept_per_chat_with_their_files_and_the_open_edit() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let answer = say(&script, "x", app.message_send(None, "a").unwrap());
    let file = |name: &str, text: &str| Attachment {
        name: name.into(),
        text: text.into(),
    };
    let question = app.chat_open(&answer.chat_id).unwrap().messages[0]
        .id
        .clone();
    // Names that would lead out of a folder are names: they are kept, and no file is made of them.
    let new = Draft {
        attachments: vec![
            file("../../etc/passwd", "x"),
            file("C:\\con", "\u{feff}\u{202e}修\r\n"),
            file("../../etc/passwd", "y"),
        ],
        ..draft("a new idea")
    };
    let there = Draft {
        edit: Some(Edit {
            message_id: question,
            text: "a, but better".into(),
        }),
        ..draft("")
    };
    // Without the note of what is going on: it is written beside itself and renamed whenever a thread gets to it.
    let names_in = |folder: &Path| {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with("doing."))
            .collect();
        names.sort();
        names
    };
    let before = names_in(folder.path());
    app.draft_save(None, &new).unwrap();
    app.draft_save(Some(&answer.chat_id), &there).unwrap();
    assert_eq!(names_in(folder.path()), before);
    drop(app);

    let app = script.app(folder.path());
    assert_eq!(app.draft_new().unwrap(), new);
    assert_eq!(app.chat_open(&answer.chat_id).unwrap().draft, there);
    // The text changes and the files stay; then the other way round.
    let longer = Draft {
        text: "a new idea, longer".into(),
        ..new.clone()
    };
    app.draft_save(None, &longer).unwrap();
    assert_eq!(app.draft_new().unwrap(), longer);
    let alone = Draft {
        attachments: vec![file("b.txt", "x")],
        ..draft("")
    };
    app.draft_save(None, &alone).unwrap();
    assert_eq!(app.draft_new().unwrap(), alone);
    for chat in [None, Some(answer.chat_id.as_str())] {
        app.draft_save(chat, &draft("")).unwrap();
    }
    assert_eq!(app.draft_new().unwrap(), Draft::default());
    let chat = app.chat_open(&answer.chat_id).unwrap();
    assert_eq!(chat.draft, Draft::default());
}

#[test]
fn a_draft_with_more_than_a_message_may_have_is_refused_and_the_one_before_stays() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let file = |name: &str, bytes: usize| Attachment {
        name: name.into(),
        text: "x".repeat(bytes),
    };
    let with = |attachments: Vec<Attachment>| Draft {
        attachments,
        ..draft("12345")
    };
    let answer = say(&script, "x", app.message_send(None, "a").unwrap());
    let question = app.chat_open(&answer.chat_id).unwrap().messages[0]
        .id
        .clone();
    let edited = Draft {
        edit: Some(Edit {
            message_id: question,
            text: "x".repeat(2_000_001),
        }),
        ..draft("")
    };
    let most = with(vec![file("a", 1_000_000), file("b", 999_995)]);
    app.draft_save(None, &most).unwrap();
    for refused in [
        draft(&"x".repeat(2_000_001)),
        with(vec![file("a", 1_999_996)]),
        with(vec![file("a", 1); 21]),
        with(vec![file("", 1)]),
        with(vec![file("a\nb", 1)]),
        with(vec![file(&"n".repeat(256), 1)]),
        edited,
    ] {
        let error = app.draft_save(None, &refused).unwrap_err();
        assert_eq!(error.code, ErrorCode::BadRequest, "{error}");
        assert_eq!(app.draft_new().unwrap(), most);
    }
    app.draft_save(None, &with(vec![file("a", 1); 20])).unwrap();
}

#[test]
fn a_draft_for_what_is_not_there_is_refused() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let first = say(&script, "x", app.message_send(None, "a").unwrap());
    let second = say(&script, "x", app.message_send(None, "b").unwrap());
    let question = |chat: &str| app.chat_open(chat).unwrap().messages[0].id.clone();
    let (here, elsewhere) = (question(&first.chat_id), question(&second.chat_id));
    let editing = |message: &str| Draft {
        edit: Some(Edit {
            message_id: message.into(),
            text: "c".into(),
        }),
        ..draft("half")
    };
    let chat = Some(first.chat_id.as_str());
    app.draft_save(chat, &editing(&here)).unwrap();
    for (chat, draft) in [
        (Some("no such chat"), draft("half")),
        (Some(""), draft("half")),
        (chat, editing("no such message")),
        (chat, editing(&elsewhere)),
        (None, editing(&here)),
    ] {
        let error = app.draft_save(chat, &draft).unwrap_err();
        assert_eq!(error.code, ErrorCode::NotFound, "{error}");
    }
    let kept = app.chat_open(&first.chat_id).unwrap().draft;
    assert_eq!(kept, editing(&here));
    assert_eq!(app.draft_new().unwrap(), Draft::default());
    // Another version of a message is one of the chat as well, shown or not.
    say(&script, "y", app.message_edit(&here, "d").unwrap());
    app.draft_save(chat, &editing(&here)).unwrap();
    app.chat_delete(&first.chat_id).unwrap();
    let error = app.draft_save(chat, &draft("late")).unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound, "{error}");
}

#[test]
fn words_are_found_in_every_language_version_and_thought() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let send =
        |text: &str, answer: &str| say(&script, answer, app.message_send(None, text).unwrap());
    let fox = send("Tell me of a Fox", "The quick brown FOX jumps.");
    let quantum = send("用中文解释", "量子计算使用量子比特。");
    send("100% of _names_", "\"quoted\" OR not");
    let found = |query: &str| -> Vec<(String, String)> {
        app.chat_search(query)
            .unwrap()
            .into_iter()
            .map(|found| (found.chat.title, found.matched))
            .collect()
    };
    let of = |title: &str, matched: &str| (title.to_owned(), matched.to_owned());
    // The title, then messages, the latest first.
    let title = "Tell me of a Fox";
    assert_eq!(
        found("fox"),
        [of(title, "Fox"), of(title, "FOX"), of(title, "Fox")]
    );
    assert_eq!(found("brown fox j"), [of(title, "brown FOX j")]);
    let chinese = "用中文解释";
    assert_eq!(found("量子"), [of(chinese, "量子")]);
    assert_eq!(found("子计算"), [of(chinese, "子计算")]);
    assert_eq!(found("比"), [of(chinese, "比")]);
    // Nothing in a query is an operator.
    assert_eq!(
        found("\"quoted\" OR"),
        [of("100% of _names_", "\"quoted\" OR")]
    );
    assert_eq!(
        found("0%"),
        [of("100% of _names_", "0%"), of("100% of _names_", "0%")]
    );
    assert_eq!(found("_n").len(), 2);
    // Upper and lower case are the same in every script, in titles and for the shortest words too.
    let uber = send("übrigens", "ЭХ, ÄÖ!");
    app.chat_rename(&uber.chat_id, "Über Привет").unwrap();
    let renamed = "Über Привет";
    for (query, matched) in [
        ("über", &["Über"][..]),
        ("ÜBER ПРИВЕТ", &["Über Привет"]),
        ("привет", &["Привет"]),
        ("ПР", &["Пр"]),
        ("ü", &["Ü", "ü"]),
        ("эх", &["ЭХ"]),
        ("Эх", &["ЭХ"]),
        ("äö", &["ÄÖ"]),
        ("Ö", &["Ö"]),
    ] {
        let expected: Vec<_> = matched.iter().map(|matched| of(renamed, matched)).collect();
        assert_eq!(found(query), expected, "{query}");
    }
    for nothing in [
        "fox\0",
        "\"\0\"",
        "fox OR jumps",
        "NEAR(",
        "*",
        "zebra",
        "",
        "  ",
        "text:fox",
    ] {
        assert_eq!(found(nothing), [], "{nothing}");
    }
    let answer = &app.chat_search("quick brown").unwrap()[0];
    assert_eq!(answer.message_id.as_deref(), Some(fox.id.as_str()));
    assert_eq!(answer.role, Some(Role::Assistant));
    assert_eq!(
        (answer.before.as_str(), answer.after.as_str()),
        ("The ", " FOX jumps.")
    );

    // A version out of sight is found, and so are thoughts; a deleted chat is not.
    let mut listener = app.message_regenerate(&fox.id, Thinking::On).unwrap();
    script.step(Step::Think("Perhaps a badger?".into()));
    script.say("A wolf.");
    script.step(Step::End);
    hear(&mut listener);
    assert_eq!(found("brown"), [of(title, "brown")]);
    assert_eq!(found("badger"), [of(title, "badger")]);
    assert_eq!(found("wolf"), [of(title, "wolf")]);
    app.chat_delete(&quantum.chat_id).unwrap();
    assert_eq!(found("量子"), []);
    assert_eq!(
        app.chat_search(&"x".repeat(201)).unwrap_err().code,
        ErrorCode::BadRequest
    );
}

#[test]
fn pins_and_folders_are_kept() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let id = say(&script, "x", app.message_send(None, "a").unwrap()).chat_id;
    assert!(app.chat_pin(&id, true).unwrap().pinned);
    assert_eq!(
        app.chat_move(&id, Some(" My\nwork "))
            .unwrap()
            .folder
            .as_deref(),
        Some("My work")
    );
    drop(app);
    let app = script.app(folder.path());
    let chat = app.chat_list().unwrap().remove(0);
    assert_eq!(
        (chat.pinned, chat.folder.as_deref()),
        (true, Some("My work"))
    );
    assert_eq!(app.chat_move(&id, None).unwrap().folder, None);
    assert!(!app.chat_pin(&id, false).unwrap().pinned);
    assert_eq!(
        app.chat_move(&id, Some(" ")).unwrap_err().code,
        ErrorCode::BadRequest
    );
    assert_eq!(
        app.chat_pin("nonsense", true).unwrap_err().code,
        ErrorCode::NotFound
    );
}

/// All that a chat holds, without what is its own in each app.
fn essence(app: &App, id: &str) -> serde_json::Value {
    let exported = app.chat_export(Some(id), ExportFormat::Json).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&exported.text).unwrap();
    let messages = value["chats"][0]["messages"].as_array_mut().unwrap();
    let ids: Vec<serde_json::Value> = messages.iter().map(|m| m["id"].clone()).collect();
    for message in messages {
        for key in ["id", "parent"] {
            let number = ids.iter().position(|id| *id == message[key]);
            message[key] = number.into();
        }
    }
    value
}

#[test]
fn an_exported_chat_comes_back_whole_in_another_app() {
    let (a, b, script) = (folder(), folder(), Script::new());
    let app = script.app(a.path());
    let message = NewMessage {
        attachments: vec![Attachment {
            name: "a.txt".into(),
            text: "with ``` in it".into(),
        }],
        system: "Be brief.".into(),
        ..NewMessage::from("Was? 修复")
    };
    let first = say(
        &script,
        "**eins**",
        app.message_send(None, message).unwrap(),
    );
    let id = first.chat_id.clone();
    say(
        &script,
        "zwei",
        app.message_send(Some(&id), "und?").unwrap(),
    );
    let mut listener = app.message_regenerate(&first.id, Thinking::On).unwrap();
    script.step(Step::Think("Hm.".into()));
    script.say("uno");
    script.step(Step::End);
    hear(&mut listener);
    app.chat_pin(&id, true).unwrap();
    app.chat_move(&id, Some("Work")).unwrap();

    let exported = app.chat_export(Some(&id), ExportFormat::Json).unwrap();
    assert_eq!(exported.file_name, "Was- 修复.json");
    let other = script.app(b.path());
    assert_eq!(other.chat_import(&exported.text).unwrap(), 1);
    let copy = other.chat_list().unwrap().remove(0);
    assert_ne!(copy.id, id);
    assert_eq!(essence(&other, &copy.id), essence(&app, &id));
    let chat = other.chat_open(&copy.id).unwrap();
    assert_eq!(texts(&chat), ["Was? 修复", "uno"]);
    let old = &chat.messages[1].versions[0];
    assert_eq!(
        texts(&other.version_show(old).unwrap()),
        ["Was? 修复", "**eins**", "und?", "zwei"]
    );
    assert_eq!(other.chat_search("zwei").unwrap().len(), 1);
    // Twice is two chats.
    other.chat_import(&exported.text).unwrap();
    assert_eq!(other.chat_list().unwrap().len(), 2);

    app.setting_set("language", &"zh".into()).unwrap();
    let markdown = app.chat_export(Some(&id), ExportFormat::Markdown).unwrap();
    assert!(
        markdown
            .text
            .starts_with("# Was? 修复\n\n## 指令\n\nBe brief.\n\n## 我\n\na.txt:"),
        "{}",
        markdown.text
    );
    // What a machine reads is the same in every language.
    let json = app.chat_export(Some(&id), ExportFormat::Json).unwrap();
    assert_eq!(json.text, exported.text);
    app.setting_set("language", &"en".into()).unwrap();
    let markdown = app.chat_export(Some(&id), ExportFormat::Markdown).unwrap();
    assert_eq!(
        markdown.text,
        "# Was? 修复\n\n## Instructions\n\nBe brief.\n\n## You\n\na.txt:\n\n````\nwith ``` in it\n````\n\nWas? 修复\n\n\
         ## Demo model\n\n> Hm.\n\nuno\n"
    );
    let all = other.chat_export(None, ExportFormat::Json).unwrap();
    assert_eq!(all.file_name, "FaStar chats.json");
    assert_eq!(app.chat_import(&all.text).unwrap(), 2);
}

#[test]
fn every_chat_that_can_come_about_can_be_exported_and_imported_again() {
    let (a, b, script) = (folder(), folder(), Script::new());
    let app = script.app(a.path());
    // Stopped before the first word, edited, and one step back: a question without an answer, and one writes on.
    let mut listener = app.message_send(None, "first").unwrap();
    let (question, answer, _) = started(&mut listener);
    let question = question.unwrap();
    script.wait_asked(1);
    app.generation_stop(&answer.id).unwrap();
    while next(&mut listener).is_some() {}
    say(
        &script,
        "one",
        app.message_edit(&question.id, "second").unwrap(),
    );
    assert_eq!(texts(&app.version_show(&question.id).unwrap()), ["first"]);
    let id = question.chat_id;
    say(
        &script,
        "two",
        app.message_send(Some(&id), "third").unwrap(),
    );
    // The same at the end of a chat, twice.
    for n in ["fourth", "fifth"] {
        let mut listener = app.message_send(Some(&id), n).unwrap();
        let (question, answer, _) = started(&mut listener);
        let asked = script.asked().len();
        script.wait_asked(asked.max(4));
        app.generation_stop(&answer.id).unwrap();
        while next(&mut listener).is_some() {}
        let question = question.unwrap();
        say(&script, n, app.message_edit(&question.id, "again").unwrap());
        app.version_show(&question.id).unwrap();
    }
    assert_eq!(
        texts(&app.chat_open(&id).unwrap()),
        ["first", "third", "two", "fourth", "fifth"]
    );
    let all = app.chat_export(None, ExportFormat::Json).unwrap();
    let other = script.app(b.path());
    assert_eq!(other.chat_import(&all.text).unwrap(), 1);
    let copy = other.chat_list().unwrap().remove(0).id;
    assert_eq!(essence(&other, &copy), essence(&app, &id));
    assert_eq!(
        texts(&other.chat_open(&copy).unwrap()),
        ["first", "third", "two", "fourth", "fifth"]
    );
}

#[test]
fn a_file_that_is_not_ours_or_not_whole_is_refused_and_nothing_of_it_stays() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let message = |id: &str, parent: Option<&str>, role: &str, shown: bool| serde_json::json!({"id": id, "parent": parent, "role": role, "shown": shown, "text": "x", "status": "writing", "created_at": 99_999_999_999_999_i64});
    let with = |mut message: serde_json::Value, change: serde_json::Value| {
        for (key, value) in change.as_object().unwrap() {
            message[key] = value.clone();
        }
        message
    };
    let file = |messages: Vec<serde_json::Value>| {
        let good =
            serde_json::json!({"title": "good", "created_at": 1, "updated_at": 1, "messages": []});
        serde_json::json!({"format": "fastar-chats", "version": 1, "chats": [good,
            {"title": "bad", "created_at": 1, "updated_at": i64::MAX, "messages": messages}]})
    };
    let bad = [
        file(vec![message("a", Some("nobody"), "user", true)]),
        file(vec![message("a", Some("a"), "user", true)]),
        file(vec![message("a", None, "assistant", true)]),
        file(vec![
            message("a", None, "user", true),
            message("a", Some("a"), "assistant", true),
        ]),
        file(vec![
            message("a", None, "user", true),
            message("b", Some("a"), "assistant", true),
            message("c", Some("b"), "assistant", true),
        ]),
        file(vec![
            message("a", None, "user", true),
            message("b", None, "user", true),
        ]),
        // What could not be sent cannot be imported either.
        file(vec![with(
            message("a", None, "user", true),
            serde_json::json!({"text": " \n"}),
        )]),
        file(vec![with(
            message("a", None, "user", true),
            serde_json::json!({"text": "x".repeat(2_000_001)}),
        )]),
        file(vec![with(
            message("a", None, "user", true),
            serde_json::json!({"attachments": [{"name": "a\nb", "text": "x"}]}),
        )]),
        file(vec![with(
            message("a", None, "user", true),
            serde_json::json!({"attachments": vec![serde_json::json!({"name": "a", "text": "x"}); 21]}),
        )]),
        file(vec![
            message("a", None, "user", true),
            with(
                message("b", Some("a"), "assistant", true),
                serde_json::json!({"attachments": [{"name": "a", "text": "x"}]}),
            ),
        ]),
        file(
            (0..10_001)
                .map(|n| message(&n.to_string(), None, "user", n == 0))
                .collect(),
        ),
        file(vec![message("a", None, "user", false)]),
        file(vec![
            message("a", None, "user", false),
            message("b", Some("a"), "assistant", true),
        ]),
        serde_json::json!({"format": "fastar-chats", "version": 2, "chats": []}),
        serde_json::json!({"format": "other", "version": 1, "chats": []}),
        serde_json::json!({"format": "fastar-chats", "version": 1, "chats": [{"title": "\n", "created_at": 1, "updated_at": 1, "messages": []}]}),
        serde_json::json!([]),
    ];
    for file in bad {
        let error = app.chat_import(&file.to_string()).unwrap_err();
        assert_eq!(error.code, ErrorCode::BadRequest, "{file}");
        assert_eq!(app.chat_list().unwrap(), [], "{file}");
    }
    for text in ["", "{", "\0", &"[".repeat(100_000)] {
        assert_eq!(
            app.chat_import(text).unwrap_err().code,
            ErrorCode::BadRequest
        );
    }
    // Good as it is; times that have not come yet and answers that nobody writes are set right.
    let whole = file(vec![
        message("a", None, "user", true),
        message("b", Some("a"), "assistant", true),
    ]);
    assert_eq!(app.chat_import(&whole.to_string()).unwrap(), 2);
    let chats = app.chat_list().unwrap();
    let now = chats[0].updated_at;
    assert!(
        (1_700_000_000_000..99_999_999_999_999).contains(&now),
        "{now}"
    );
    let answer = app.chat_open(&chats[0].id).unwrap().messages.pop().unwrap();
    assert_eq!(answer.status, MessageStatus::Interrupted);
}

/// What a timeline that has seen nothing answers at temperature 0.
fn cold(model: &Arc<dyn Model>, messages: &[Message]) -> (String, usize) {
    let turns: Vec<fastar_engine::Message> = messages
        .iter()
        .filter(|m| !m.text.is_empty())
        .map(|m| fastar_engine::Message {
            role: match m.role {
                Role::User => fastar_engine::Role::User,
                Role::Assistant => fastar_engine::Role::Assistant,
            },
            text: m.text.clone(),
        })
        .collect();
    let conversation = Conversation::of(&turns).unwrap();
    let answer = model
        .timeline()
        .reply(
            &conversation,
            &Sampling::default(),
            &Cancel::default(),
            &mut |_| {},
        )
        .unwrap();
    (answer.text, answer.prompt_tokens)
}

#[test]
fn whatever_is_edited_regenerated_or_walked_to_every_answer_is_that_of_a_cold_run() {
    let folder = folder();
    let mut options = Script::new().options(folder.path());
    options.loader = Arc::new(load);
    options.sampling.temperature = Some(0.0);
    let app = App::open(options).unwrap();
    loaded(&app);
    let model = load(&Source::Demo, &fastar_engine::Options::default()).unwrap();
    let prompts = [
        "Hello!",
        "Who are you?",
        "My name is Zoe.",
        "What is my name?",
        "Tell me a story about a fox.",
        "Another one!",
    ];
    // A fixed sequence of pseudorandom choices.
    let mut state = 12_345_u64;
    let mut pick = |n: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % n
    };
    let first = hear(&mut app.message_send(None, "Hello!").unwrap());
    let id = first.answer().chat_id.clone();
    let mut reused = 0;
    for round in 0..24 {
        let chat = app.chat_open(&id).unwrap();
        let users: Vec<_> = chat
            .messages
            .iter()
            .filter(|m| m.role == Role::User)
            .collect();
        let answers: Vec<_> = chat
            .messages
            .iter()
            .filter(|m| m.role == Role::Assistant)
            .collect();
        let prompt = prompts[pick(prompts.len())];
        let mut listener = match pick(5) {
            0 | 1 if users.len() < 6 => {
                let count = app.message_count(Some(&id), prompt).unwrap();
                let listener = app.message_send(Some(&id), prompt).unwrap();
                let messages = app.chat_open(&id).unwrap().messages;
                let (_, tokens) = cold(&model, &messages[..messages.len() - 1]);
                assert_eq!(count.prompt as usize, tokens, "the count of round {round}");
                listener
            }
            2 => app
                .message_edit(&users[pick(users.len())].id, prompt)
                .unwrap(),
            3 => app
                .message_regenerate(&answers[pick(answers.len())].id, Thinking::Off)
                .unwrap(),
            _ => {
                let many: Vec<_> = chat
                    .messages
                    .iter()
                    .filter(|m| !m.versions.is_empty())
                    .collect();
                if let Some(message) = many.get(pick(many.len().max(1))) {
                    let version = &message.versions[pick(message.versions.len())];
                    app.version_show(version).unwrap();
                }
                let last = app.chat_open(&id).unwrap().messages.pop().unwrap();
                app.message_regenerate(&last.id, Thinking::Off).unwrap()
            }
        };
        let heard = hear(&mut listener);
        let messages = app.chat_open(&id).unwrap().messages;
        let (last, before) = messages.split_last().unwrap();
        assert_eq!(&last.id, &heard.answer().id);
        let (text, tokens) = cold(&model, before);
        let stats = heard.answer().stats.clone().unwrap();
        assert_eq!(heard.text(), text, "round {round}");
        assert_eq!(stats.prompt_tokens as usize, tokens, "round {round}");
        assert_eq!(
            (stats.prefill_waited_ms, stats.decode_waited_ms),
            (None, None)
        );
        reused += stats.reused_tokens;
    }
    assert!(reused > 100, "only {reused} tokens were reused in all");
}
