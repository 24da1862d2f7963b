//! The embedded demo model, through the real engine, answers as the reference does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scripted;

use fastar_api::{Finish, MessageStatus, ModelState};
use fastar_app::{App, inference};
use scripted::{Script, hear, loaded};

/// Prompts and texts of the numpy reference in float64; the last is a second turn after "My name is Zoe.".
fn expected() -> Vec<(String, String)> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/expected.json");
    let entries: Vec<serde_json::Value> =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    entries
        .iter()
        .map(|entry| (text(&entry["prompt"]), text(&entry["text"])))
        .collect()
}

#[test]
fn the_demo_answers_as_the_reference_does_and_reuses_the_first_turn() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Script::new().options(folder.path());
    options.loader = std::sync::Arc::new(inference::load);
    options.sampling.temperature = Some(0.0);
    let app = App::open(options).unwrap();
    let ModelState::Ready { model } = loaded(&app) else {
        panic!("{:?}", app.model_state());
    };
    assert!(model.is_demo);
    assert_eq!(
        (model.layers, model.experts, model.context_size),
        (6, 16, 4096)
    );

    let mut expected = expected();
    assert_eq!(expected.len(), 11);
    let (second_turn, second_text) = expected.pop().unwrap();
    for (prompt, text) in &expected {
        let heard = hear(&mut app.message_send(None, prompt.as_str()).unwrap());
        assert_eq!(&heard.text(), text, "{prompt}");
        assert_eq!(heard.answer().status, MessageStatus::Done);
        let stats = heard.answer().stats.clone().unwrap();
        assert_eq!((stats.finish, stats.reused_tokens), (Finish::End, 0));
    }

    let first = hear(&mut app.message_send(None, "My name is Zoe.").unwrap());
    let chat = &first.answer().chat_id;
    let prompt = second_turn.strip_prefix("(second turn) ").unwrap();
    let second = hear(&mut app.message_send(Some(chat), prompt).unwrap());
    assert_eq!(second.text(), second_text);
    let stats = second.answer().stats.clone().unwrap();
    // 27 tokens in all; the 9 of the first prompt and the 9 of its answer at least were there.
    assert_eq!(stats.prompt_tokens, 27);
    assert!(stats.reused_tokens >= 18, "{}", stats.reused_tokens);
}

#[test]
fn a_chat_opened_after_a_restart_goes_on_without_reading_its_conversation_again() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let mut options = Script::new().options(folder.path());
        options.loader = std::sync::Arc::new(inference::load);
        options.sampling.temperature = Some(0.0);
        let app = App::open(options).unwrap();
        loaded(&app);
        app
    };
    let ask = |app: &App, chat: Option<&str>, text: &str| {
        let heard = hear(&mut app.message_send(chat, text).unwrap());
        let stats = heard.answer().stats.clone().unwrap();
        (heard.answer().chat_id.clone(), heard.text(), stats)
    };
    let app = open();
    let (zoe, ..) = ask(&app, None, "My name is Zoe.");
    // Another chat takes the place in memory, and is itself kept at the end.
    let (fox, ..) = ask(&app, None, "Tell me a story about a fox.");
    drop(app);

    let app = open();
    let (_, text, stats) = ask(&app, Some(&zoe), "What is my name?");
    assert_eq!(text, expected().pop().unwrap().1);
    assert!(stats.reused_tokens >= 18, "{stats:?}");
    let (_, _, stats) = ask(&app, Some(&fox), "Another one!");
    assert!(stats.reused_tokens >= 80, "{stats:?}");

    // A deleted chat leaves nothing, and a damaged file only costs time.
    app.chat_delete(&zoe).unwrap();
    drop(app);
    let kept: Vec<_> = std::fs::read_dir(folder.path().join("sessions"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(kept.len(), 1);
    let mut bytes = std::fs::read(&kept[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&kept[0], bytes).unwrap();
    let app = open();
    let (_, _, stats) = ask(&app, Some(&fox), "And one more!");
    assert_eq!(stats.reused_tokens, 0);
}
