//! Promises that need a look inside: a disk that is full.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../tests/scripted/mod.rs"]
mod scripted;

use fastar_api::{ErrorCode, GenerationEvent, MessageStatus, Thinking};
use scripted::{Script, Step, hear, next};

#[test]
fn a_full_disk_refuses_a_message_before_the_model_sees_it() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    app.0.chats.pretend_the_disk_is_full(true);
    let error = app
        .message_send(None, "long ".repeat(10_000).as_str())
        .err()
        .unwrap();
    assert_eq!(error.code, ErrorCode::Storage);
    assert!(
        error.message.contains("disk is full") && error.message.contains("chats.db"),
        "{error}"
    );
    assert!(error.hint.is_some());
    assert_eq!(app.chat_list().unwrap(), []);
    app.0.chats.pretend_the_disk_is_full(false);
    let mut listener = app.message_send(None, "now").unwrap();
    script.step(Step::End);
    assert_eq!(hear(&mut listener).answer().status, MessageStatus::Done);
    assert_eq!(script.asked().len(), 1);
}

#[test]
fn an_answer_that_cannot_be_saved_is_shown_with_the_reason_and_saved_when_there_is_room() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "hi").unwrap();
    let Some(GenerationEvent::Started { chat, .. }) = next(&mut listener) else {
        panic!()
    };
    app.0.chats.pretend_the_disk_is_full(true);
    let text = "word ".repeat(20_000);
    script.say(&text);
    script.step(Step::End);
    let mut last = None;
    while let Some(event) = next(&mut listener) {
        last = Some(event);
    }
    let Some(GenerationEvent::Finished { answer, .. }) = last else {
        panic!()
    };
    assert_eq!(
        (answer.status, answer.text.len()),
        (MessageStatus::Failed, text.len())
    );
    assert_eq!(answer.error.as_ref().unwrap().code, ErrorCode::Storage);
    let shown = app.chat_open(&chat.id).unwrap().messages.remove(1);
    assert_eq!(
        (shown.status, shown.text.len()),
        (MessageStatus::Failed, text.len())
    );

    app.0.chats.pretend_the_disk_is_full(false);
    let saved = app.chat_open(&chat.id).unwrap().messages.remove(1);
    assert_eq!(
        (saved.status, saved.error, saved.text),
        (MessageStatus::Done, None, text.clone())
    );
    drop(app);
    let app = script.app(folder.path());
    assert_eq!(app.chat_open(&chat.id).unwrap().messages[1].text, text);
}

#[test]
fn an_answer_that_is_in_memory_only_is_not_moved_away_from_its_row() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "hi").unwrap();
    let Some(GenerationEvent::Started {
        chat, user, answer, ..
    }) = next(&mut listener)
    else {
        panic!()
    };
    // Room for a small change, and none for the answer.
    app.0.chats.pretend_the_disk_has(12);
    let text = "word ".repeat(100_000);
    script.say(&text);
    script.step(Step::End);
    while next(&mut listener).is_some() {}
    let question = user.unwrap().id;
    let refused = [
        app.message_regenerate(&answer.id, Thinking::Off).err(),
        app.message_edit(&question, "ho").err(),
        app.message_send(Some(&chat.id), "ho").err(),
        app.answer_continue(&answer.id).err(),
        app.answer_edit(&answer.id, "mine").err(),
        app.version_show(&question).err(),
    ];
    for (n, error) in refused.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("{n} was taken"));
        assert_eq!(error.code, ErrorCode::Storage, "{n}: {error}");
    }
    // Another chat is another matter.
    let mut other = app.message_send(None, "there").unwrap();
    script.step(Step::End);
    assert_eq!(hear(&mut other).answer().status, MessageStatus::Done);

    app.0.chats.pretend_the_disk_is_full(false);
    let mut again = app.message_regenerate(&answer.id, Thinking::Off).unwrap();
    script.say("new");
    script.step(Step::End);
    assert_eq!(hear(&mut again).text(), "new");
    let old = app.version_show(&answer.id).unwrap().messages.remove(1);
    assert_eq!((old.status, old.text), (MessageStatus::Done, text));
}
