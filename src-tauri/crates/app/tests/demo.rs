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
    options.temperature = 0.0;
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
        let heard = hear(&mut app.message_send(None, prompt).unwrap());
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
