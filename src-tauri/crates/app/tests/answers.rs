//! Promises about answers: rows first, nothing lost, nobody in the way of anybody, and every end has a name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scripted;

use fastar_api::{ErrorCode, Finish, GenerationEvent, MessageStatus, Role, Thinking};
use fastar_app::{App, Listener};
use scripted::{Script, Step, hear, hear_until, next, wait_until};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Regenerates the last answer of a chat.
fn regenerate(app: &App, chat: &str) -> Listener {
    let last = app.chat_open(chat).unwrap().messages.pop().unwrap();
    app.message_regenerate(&last.id, Thinking::Off).unwrap()
}

#[test]
fn the_rows_exist_before_the_first_token_and_the_answer_ends_in_its_row() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "Tell me\nabout foxes").unwrap();

    let chats = app.chat_list().unwrap();
    assert_eq!(chats.len(), 1);
    assert_eq!(chats[0].title, "Tell me about foxes");
    let chat = app.chat_open(&chats[0].id).unwrap();
    let rows: Vec<_> = chat
        .messages
        .iter()
        .map(|m| (m.role, m.text.as_str(), m.status))
        .collect();
    assert_eq!(
        rows,
        [
            (Role::User, "Tell me\nabout foxes", MessageStatus::Done),
            (Role::Assistant, "", MessageStatus::Writing)
        ]
    );

    script.step(Step::Prefill(10, 10));
    script.say("Foxes ");
    script.say("run.");
    script.step(Step::End);
    let heard = hear(&mut listener);
    assert_eq!(heard.user.as_ref().unwrap().text, "Tell me\nabout foxes");
    assert_eq!(heard.text(), "Foxes run.");
    let answer = heard.answer();
    assert_eq!(
        (answer.status, answer.text.as_str()),
        (MessageStatus::Done, "Foxes run.")
    );
    assert_eq!(answer.model.as_deref(), Some("Demo model"));
    let stats = answer.stats.as_ref().unwrap();
    assert_eq!(
        (
            stats.prompt_tokens,
            stats.reused_tokens,
            stats.answer_tokens
        ),
        (10, 4, 2)
    );
    assert_eq!(
        (stats.context_used, stats.context_size, stats.finish),
        (12, 4096, Finish::End)
    );
    assert_eq!(
        (stats.prefill_ms, stats.first_token_ms, stats.decode_ms),
        (20.0, 25.0, 500.0)
    );
    // Two tokens, one interval of half a second.
    assert_eq!(stats.tokens_per_second, Some(2.0));
    assert_eq!(&app.chat_open(&chats[0].id).unwrap().messages[1], answer);
}

#[test]
fn a_late_listener_gets_the_text_so_far_and_the_rest_without_a_gap() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut first = app.message_send(None, "hi").unwrap();
    let id = first.answer_id().to_owned();
    let words: Vec<String> = (0..2000).map(|n| format!("w{n} ")).collect();
    let whole = words.concat();
    let writer = {
        let script = script.clone();
        std::thread::spawn(move || {
            for word in words {
                script.say(&word);
            }
            script.step(Step::End);
        })
    };
    let late: Vec<_> = (0..8)
        .map(|n| {
            std::thread::sleep(std::time::Duration::from_millis(n));
            let mut listener = app.generation_attach(&id).unwrap();
            std::thread::spawn(move || hear(&mut listener).text())
        })
        .collect();
    writer.join().unwrap();
    assert_eq!(hear(&mut first).text(), whole);
    for listener in late {
        assert_eq!(listener.join().unwrap(), whole);
    }
    // After the end as well.
    let after = hear(&mut app.generation_attach(&id).unwrap());
    assert_eq!(
        (after.text(), after.answer().status),
        (whole, MessageStatus::Done)
    );
    assert_eq!(
        app.generation_attach("nonsense").err().unwrap().code,
        ErrorCode::NotFound
    );
}

#[test]
fn a_listener_that_never_reads_or_goes_away_holds_up_nothing_and_takes_nothing() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut slow = app.message_send(None, "hi").unwrap();
    let id = slow.answer_id().to_owned();
    drop(app.generation_attach(&id).unwrap());
    let mut quick = app.generation_attach(&id).unwrap();
    for _ in 0..20_000 {
        script.say("0123456789");
    }
    script.step(Step::End);
    assert_eq!(hear(&mut quick).text().len(), 200_000);
    // The slow one begins to read when all is over; it gets everything, in few pieces.
    let heard = hear(&mut slow);
    assert_eq!(heard.text().len(), 200_000);
    assert!(heard.after.len() <= 1, "{} pieces", heard.after.len());
}

#[test]
fn tokens_reach_a_listener_in_few_pieces() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "hi").unwrap();
    for _ in 0..10_000 {
        script.say("x");
    }
    script.step(Step::End);
    let heard = hear(&mut listener);
    assert_eq!(heard.text().len(), 10_000);
    assert!(
        heard.after.len() < 1_000,
        "{} pieces for 10,000 tokens",
        heard.after.len()
    );
}

#[test]
fn an_answer_nobody_listens_to_is_written_to_its_end() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let listener = app.message_send(None, "hi").unwrap();
    let id = listener.answer_id().to_owned();
    drop(listener);
    script.say("all of it");
    script.step(Step::End);
    let heard = hear(&mut app.generation_attach(&id).unwrap());
    assert_eq!(
        (heard.answer().text.as_str(), heard.answer().status),
        ("all of it", MessageStatus::Done)
    );
}

#[test]
fn text_is_in_the_row_while_it_is_being_written() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let _listener = app.message_send(None, "hi").unwrap();
    let chat = app.chat_list().unwrap().remove(0).id;
    script.say("so far");
    wait_until("the row has the text", || {
        let answer = app.chat_open(&chat).unwrap().messages.remove(1);
        answer.text == "so far" && answer.status == MessageStatus::Writing
    });
}

#[test]
fn stop_keeps_the_text_and_the_next_turn_knows_it() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "one").unwrap();
    let id = listener.answer_id().to_owned();
    script.say("half an");
    hear_until(&mut listener, "half an");
    app.generation_stop(&id).unwrap();
    let Some(GenerationEvent::Finished { chat, answer }) = next(&mut listener) else {
        panic!()
    };
    assert_eq!(
        (answer.text.as_str(), answer.status),
        ("half an", MessageStatus::Stopped)
    );
    assert_eq!(answer.stats.unwrap().finish, Finish::Stopped);
    // Again, and after the end: nothing happens.
    app.generation_stop(&id).unwrap();
    assert_eq!(
        app.generation_stop("nonsense").unwrap_err().code,
        ErrorCode::NotFound
    );

    let mut listener = app.message_send(Some(&chat.id), "two").unwrap();
    script.step(Step::End);
    hear(&mut listener);
    let asked = script.asked();
    assert_eq!(
        asked[1].conversation,
        ["User: one", "Assistant: half an", "User: two"]
    );
    // The same timeline goes on: only what is new is computed.
    assert_eq!(asked[0].timeline, asked[1].timeline);
    assert_eq!(asked[1].temperature, 0.6);
    assert_ne!(asked[0].seed, asked[1].seed);
}

#[test]
fn a_chat_with_an_answer_being_written_is_busy_and_other_chats_wait_their_turn() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut first = app.message_send(None, "first").unwrap();
    let chat = app.chat_list().unwrap().remove(0).id;
    script.wait_asked(1);
    assert_eq!(
        app.message_send(Some(&chat), "again").err().unwrap().code,
        ErrorCode::Busy
    );
    assert_eq!(
        app.message_regenerate(first.answer_id(), Thinking::Off)
            .err()
            .unwrap()
            .code,
        ErrorCode::Busy
    );

    let mut second = app.message_send(None, "second").unwrap();
    let mut third = app.message_send(None, "third").unwrap();
    assert!(matches!(
        next(&mut third),
        Some(GenerationEvent::Started { .. })
    ));
    assert_eq!(next(&mut third), Some(GenerationEvent::Queued { ahead: 2 }));

    // Stopping one that waits moves the next one up, and the engine never hears of it.
    app.generation_stop(second.answer_id()).unwrap();
    let stopped = hear(&mut second);
    assert_eq!(stopped.answer().status, MessageStatus::Stopped);
    assert_eq!(stopped.answer().text, "");
    assert_eq!(next(&mut third), Some(GenerationEvent::Queued { ahead: 1 }));

    script.step(Step::End);
    hear(&mut first);
    script.say("third answer");
    script.step(Step::End);
    let mut rest = String::new();
    while let Some(event) = next(&mut third) {
        if let GenerationEvent::Text { text } = event {
            rest.push_str(&text);
        }
    }
    assert_eq!(rest, "third answer");
    let asked: Vec<_> = script
        .asked()
        .into_iter()
        .map(|a| a.conversation.concat())
        .collect();
    assert_eq!(asked, ["User: first", "User: third"]);
}

#[test]
fn another_chat_gets_a_timeline_of_its_own_and_only_one_is_kept() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    for text in ["a", "b"] {
        let mut listener = app.message_send(None, text).unwrap();
        script.step(Step::End);
        hear(&mut listener);
    }
    let asked = script.asked();
    assert_ne!(asked[0].timeline, asked[1].timeline);
    assert_eq!(script.alive.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[test]
fn regenerate_replaces_the_last_answer_and_draws_anew() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "hi").unwrap();
    script.say("old");
    script.step(Step::End);
    let old = hear(&mut listener).answer().clone();

    let mut listener = app.message_regenerate(&old.id, Thinking::Off).unwrap();
    script.say("new");
    script.step(Step::End);
    let heard = hear(&mut listener);
    assert_eq!(heard.user, None);
    assert_ne!(heard.answer().id, old.id);
    let messages = app.chat_open(&old.chat_id).unwrap().messages;
    let texts: Vec<_> = messages.iter().map(|m| m.text.as_str()).collect();
    assert_eq!(texts, ["hi", "new"]);
    let asked = script.asked();
    assert_eq!(asked[1].conversation, ["User: hi"]);
    assert_ne!(asked[0].seed, asked[1].seed);
    assert_eq!(
        app.message_regenerate("nonsense", Thinking::Off)
            .err()
            .unwrap()
            .code,
        ErrorCode::NotFound
    );
}

#[test]
fn a_failed_answer_keeps_its_text_says_why_and_the_chat_goes_on() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "hi").unwrap();
    script.say("begun");
    script.step(Step::Fail(fastar_engine::Error::ContextFull {
        needed: 5000,
        context: 4096,
    }));
    let answer = hear(&mut listener).answer().clone();
    assert_eq!(
        (answer.status, answer.text.as_str()),
        (MessageStatus::Failed, "begun")
    );
    let error = answer.error.clone().unwrap();
    assert_eq!(error.code, ErrorCode::ContextFull);
    assert!(
        error.message.contains("5000") && error.message.contains("4096"),
        "{error}"
    );
    assert_eq!(app.chat_open(&answer.chat_id).unwrap().messages[1], answer);

    // A bug in the engine ends one answer, not the app.
    let mut listener = app.message_regenerate(&answer.id, Thinking::Off).unwrap();
    script.step(Step::Panic);
    let broken = hear(&mut listener).answer().clone();
    assert_eq!(broken.error.unwrap().code, ErrorCode::Internal);
    let mut listener = app.message_send(Some(&answer.chat_id), "again").unwrap();
    script.say("fine");
    script.step(Step::End);
    assert_eq!(hear(&mut listener).answer().status, MessageStatus::Done);
    // The answer that never began is no part of the conversation, nor is what it failed at.
    assert_eq!(script.asked()[2].conversation, ["User: again"]);
}

#[test]
fn empty_and_oversized_messages_are_refused_and_odd_characters_arrive_whole() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    for empty in ["", " \n\t", "\0\0", "\u{3000}"] {
        assert_eq!(
            app.message_send(None, empty).err().unwrap().code,
            ErrorCode::BadRequest
        );
    }
    let error = app
        .message_send(None, "ab".repeat(1_000_001).as_str())
        .err()
        .unwrap();
    assert_eq!(error.code, ErrorCode::BadRequest);
    assert!(
        error.message.contains("2000002") && error.message.contains("2000000"),
        "{error}"
    );
    assert_eq!(app.chat_list().unwrap(), []);

    let odd = "a\0b \u{202e}\u{feff}👨‍👩‍👧 \u{10ffff}'; DROP TABLE chats; --";
    let mut listener = app.message_send(None, odd).unwrap();
    script.say("\0ok\0");
    script.step(Step::End);
    let answer = hear(&mut listener).answer().clone();
    let messages = app.chat_open(&answer.chat_id).unwrap().messages;
    assert_eq!(
        (messages[0].text.as_str(), messages[1].text.as_str()),
        (odd, "\0ok\0")
    );
    assert_eq!(
        app.message_send(Some("nonsense"), "hi").err().unwrap().code,
        ErrorCode::NotFound
    );
}

#[test]
fn the_end_of_the_app_saves_what_is_being_written_and_what_waits() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut running = app.message_send(None, "runs").unwrap();
    let mut waiting = app.message_send(None, "waits").unwrap();
    script.say("half");
    hear_until(&mut running, "half");
    app.shut_down();
    let Some(GenerationEvent::Finished { answer, .. }) = next(&mut running) else {
        panic!()
    };
    assert_eq!(
        (answer.status, answer.text.as_str()),
        (MessageStatus::Interrupted, "half")
    );
    assert_eq!(
        hear(&mut waiting).answer().status,
        MessageStatus::Interrupted
    );
    drop(app);

    let app = script.app(folder.path());
    let mut statuses: Vec<_> = app
        .chat_list()
        .unwrap()
        .into_iter()
        .map(|chat| app.chat_open(&chat.id).unwrap().messages.remove(1))
        .map(|answer| (answer.text, answer.status))
        .collect();
    statuses.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        statuses,
        [
            ("".into(), MessageStatus::Interrupted),
            ("half".into(), MessageStatus::Interrupted)
        ]
    );
}

#[test]
fn two_apps_in_one_process_do_not_disturb_each_other_but_never_share_a_folder() {
    let (a, b, script_a, script_b) = (folder(), folder(), Script::new(), Script::new());
    let (app_a, app_b) = (script_a.app(a.path()), script_b.app(b.path()));
    let mut listener_a = app_a.message_send(None, "a").unwrap();
    let mut listener_b = app_b.message_send(None, "b").unwrap();
    script_b.say("from b");
    script_b.step(Step::End);
    assert_eq!(hear(&mut listener_b).text(), "from b");
    script_a.say("from a");
    script_a.step(Step::End);
    assert_eq!(hear(&mut listener_a).text(), "from a");

    let error = fastar_app::App::open(script_a.options(a.path()))
        .err()
        .unwrap();
    assert_eq!(error.code, ErrorCode::Storage);
    assert!(error.message.contains("already running"), "{error}");
    assert!(
        error.message.contains(&std::process::id().to_string()),
        "{error}"
    );
}

#[test]
fn whoever_attaches_while_answers_begin_and_end_hears_the_end() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    // While another chat is being answered, answers are stopped in the queue; without it, they run and end.
    for another in [true, false] {
        let mut listener = app.message_send(None, "hi").unwrap();
        script.step(Step::End);
        let chat = hear(&mut listener).answer().chat_id.clone();
        let other = another.then(|| app.message_send(None, "runs all the time").unwrap());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let listening: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut heard = 0;
                        while !over.load(Ordering::SeqCst) {
                            let answer = app.chat_open(&chat).unwrap().messages.pop().unwrap();
                            match app.generation_attach(&answer.id) {
                                Ok(mut listener) => {
                                    let end = hear(&mut listener).answer().status;
                                    assert_ne!(end, MessageStatus::Writing);
                                    heard += 1;
                                }
                                // A newer answer has taken its place.
                                Err(error) => assert_eq!(error.code, ErrorCode::NotFound),
                            }
                        }
                        heard
                    })
                })
                .collect();
            for round in 0..400 {
                let mut listener = regenerate(&app, &chat);
                if another || round % 2 == 0 {
                    app.generation_stop(listener.answer_id()).unwrap();
                } else {
                    script.step(Step::End);
                }
                hear(&mut listener);
            }
            over.store(true, Ordering::SeqCst);
            for thread in listening {
                assert!(thread.join().unwrap() > 0);
            }
        });
        if let Some(mut other) = other {
            script.step(Step::End);
            hear(&mut other);
        }
    }
}

#[test]
fn a_chat_whose_answer_is_just_ending_can_be_deleted() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut running = app.message_send(None, "first").unwrap();
    script.wait_asked(1);
    for _ in 0..40 {
        let mut listener = app.message_send(None, "waits").unwrap();
        let Some(GenerationEvent::Started { chat, answer, .. }) = next(&mut listener) else {
            panic!()
        };
        std::thread::scope(|threads| {
            threads.spawn(|| {
                // Where the chat was deleted before, so is the answer.
                let _ = app.generation_stop(&answer.id);
            });
            app.chat_delete(&chat.id).unwrap();
        });
    }
    script.step(Step::End);
    hear(&mut running);
    assert_eq!(app.chat_list().unwrap().len(), 1);
}

#[test]
fn after_a_message_that_was_too_long_a_shorter_one_is_answered() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "hi").unwrap();
    script.say("hello");
    script.step(Step::End);
    let chat = hear(&mut listener).answer().chat_id.clone();
    let mut listener = app.message_send(Some(&chat), "far too long").unwrap();
    script.step(Step::Fail(fastar_engine::Error::ContextFull {
        needed: 5000,
        context: 4096,
    }));
    assert_eq!(hear(&mut listener).answer().status, MessageStatus::Failed);
    let mut listener = app.message_send(Some(&chat), "short").unwrap();
    script.say("yes");
    script.step(Step::End);
    hear(&mut listener);
    let mut listener = regenerate(&app, &chat);
    script.step(Step::End);
    hear(&mut listener);

    let short = ["User: hi", "Assistant: hello", "User: short"];
    let asked = script.asked();
    // What was read of the chat is not read again for that.
    let timelines: Vec<_> = asked.iter().map(|asked| asked.timeline).collect();
    assert_eq!(timelines, [timelines[0]; 4]);
    assert_eq!(asked[2].conversation, short);
    assert_eq!(asked[3].conversation, short);
    // The person still sees it.
    let shown = app.chat_open(&chat).unwrap().messages;
    assert_eq!((shown.len(), shown[2].text.as_str()), (6, "far too long"));

    // Answered again, the long message itself is what is asked.
    let mut listener = app.message_send(Some(&chat), "long once more").unwrap();
    script.step(Step::Panic);
    hear(&mut listener);
    let mut listener = regenerate(&app, &chat);
    script.step(Step::End);
    hear(&mut listener);
    // After a mistake of ours it is.
    assert_ne!(script.asked()[5].timeline, timelines[0]);
    assert_eq!(
        script.asked()[5].conversation,
        [
            "User: hi",
            "Assistant: hello",
            "User: short",
            "User: long once more"
        ]
    );
}

#[test]
fn so_many_answers_may_wait_and_one_more_is_refused_before_it_is_written_down() {
    let (folder, script) = (folder(), Script::new());
    let app = script.app(folder.path());
    let _running = app.message_send(None, "runs").unwrap();
    script.wait_asked(1);
    let waiting: Vec<_> = (0..64)
        .map(|_| app.message_send(None, "waits").unwrap())
        .collect();
    let error = app.message_send(None, "one too many").err().unwrap();
    assert_eq!(error.code, ErrorCode::Busy);
    assert!(error.message.contains("waiting"), "{error}");
    assert_eq!(app.chat_list().unwrap().len(), 65);
    app.generation_stop(waiting[0].answer_id()).unwrap();
    app.message_send(None, "fits").unwrap();
}
