//! The trained demo model against the numpy reference: ids of ten prompts and a second turn, and the likeliest first tokens.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::{Path, PathBuf};

use common::{Converted, convert, open};
use fastar_engine::{Cancel, Event, Finish, Message, Options, Role, Sampling, diagnostic};
use serde::Deserialize;

#[derive(Deserialize)]
struct Row {
    prompt: String,
    ids: Vec<u32>,
    greedy: Vec<u32>,
    text: String,
    #[serde(default)]
    top8: Vec<(u32, f32)>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../app/demo")
}

fn demo() -> Converted {
    convert(&folder())
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(folder().join("expected.json")).unwrap();
    let rows: Vec<Row> = serde_json::from_str(&text).unwrap();
    assert_eq!(rows.len(), 11);
    rows
}

fn user(text: &str) -> Message {
    Message {
        role: Role::User,
        text: text.into(),
    }
}

fn assistant(text: &str) -> Message {
    Message {
        role: Role::Assistant,
        text: text.into(),
    }
}

#[test]
fn greedy_ids_and_the_eight_likeliest_tokens_equal_the_reference() {
    let demo = demo();
    let options = Options {
        exact: true,
        ..Options::default()
    };
    let engine = open(&demo, &options);
    let mut largest = 0f32;
    for row in rows() {
        // The last greedy id is never fed, so one less is enough.
        let out = diagnostic::logits(&engine, &row.ids, None, row.greedy.len()).unwrap();
        assert_eq!(out.greedy, row.greedy, "{}", row.prompt);
        let last = &out.prefill[out.prefill.len() - out.vocab..];
        for (id, logit) in &row.top8 {
            let difference = (last[*id as usize] - logit).abs();
            largest = largest.max(difference);
            assert!(
                difference < 1e-3,
                "{}: token {id} differs by {difference}",
                row.prompt
            );
        }
    }
    println!("largest difference of a top-8 logit: {largest:.2e}");
}

#[test]
fn answers_are_the_reference_text_and_the_second_turn_reuses_the_first() {
    let demo = demo();
    let engine = open(&demo, &Options::default());
    let rows = rows();
    let (second, first) = rows.split_last().unwrap();
    for row in first {
        let mut session = engine.session();
        let mut streamed = String::new();
        let answer = engine
            .answer(
                &mut session,
                &[user(&row.prompt)],
                &Sampling::default(),
                &Cancel::default(),
                &mut |event| {
                    if let Event::Text(text) = event {
                        streamed.push_str(text);
                    }
                },
            )
            .unwrap();
        assert_eq!(answer.text, row.text, "{}", row.prompt);
        assert_eq!(streamed, answer.text);
        assert_eq!(answer.prompt_tokens, row.ids.len());
        assert_eq!(answer.answer_tokens, row.greedy.len());
        let ended = row.greedy.last() == Some(&1);
        assert_eq!(answer.finish == Finish::End, ended);

        if row.prompt == "My name is Zoe." {
            let turns = [
                user(&row.prompt),
                assistant(&answer.text),
                user("What is my name?"),
            ];
            let held = session.position();
            let reply = engine
                .answer(
                    &mut session,
                    &turns,
                    &Sampling::default(),
                    &Cancel::default(),
                    &mut |_| {},
                )
                .unwrap();
            assert_eq!(reply.text, second.text);
            assert_eq!(reply.prompt_tokens, second.ids.len());
            assert_eq!(
                reply.reused_tokens, held,
                "the first turn is not read again"
            );
            let mut cold = engine.session();
            let fresh = engine
                .answer(
                    &mut cold,
                    &turns,
                    &Sampling::default(),
                    &Cancel::default(),
                    &mut |_| {},
                )
                .unwrap();
            assert_eq!(fresh.text, reply.text);
            assert_eq!(fresh.reused_tokens, 0);
        }
    }
}

#[test]
fn text_of_a_person_never_becomes_a_control_token() {
    let demo = demo();
    let engine = open(&demo, &Options::default());
    let controls = [
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<think>",
        "</think>",
        "｜DSML｜",
        "<tool_result>",
        "</tool_result>",
    ];
    for control in controls {
        let answer = |text: &str| {
            engine
                .answer(
                    &mut engine.session(),
                    &[user(text)],
                    &Sampling {
                        max_tokens: Some(1),
                        ..Sampling::default()
                    },
                    &Cancel::default(),
                    &mut |_| {},
                )
                .unwrap()
                .prompt_tokens
        };
        // One control token would count as one; spelled out as text it takes several.
        let with = answer(&format!("a{control}b"));
        let without = answer("ab");
        assert!(with >= without + 3, "{control}: {with} against {without}");
    }
}

#[test]
fn a_stop_keeps_the_text_so_far_and_the_session_stays_usable() {
    let demo = demo();
    let engine = open(&demo, &Options::default());
    let story = rows().into_iter().nth(2).unwrap();
    let mut session = engine.session();
    let cancel = Cancel::default();
    let mut pieces = 0;
    let answer = engine
        .answer(
            &mut session,
            &[user(&story.prompt)],
            &Sampling::default(),
            &cancel,
            &mut |event| {
                if let Event::Text(_) = event {
                    pieces += 1;
                    if pieces == 5 {
                        cancel.cancel();
                    }
                }
            },
        )
        .unwrap();
    assert_eq!(answer.finish, Finish::Cancelled);
    assert_eq!(answer.answer_tokens, 5);
    assert!(story.text.starts_with(&answer.text) && !answer.text.is_empty());
    let whole = engine
        .answer(
            &mut session,
            &[user(&story.prompt)],
            &Sampling::default(),
            &Cancel::default(),
            &mut |_| {},
        )
        .unwrap();
    assert_eq!(whole.text, story.text);

    // A stop while the prompt is being read.
    let stopped = Cancel::default();
    stopped.cancel();
    let nothing = engine
        .answer(
            &mut session,
            &[user("Hello!")],
            &Sampling::default(),
            &stopped,
            &mut |_| {},
        )
        .unwrap();
    assert_eq!(
        (nothing.finish, nothing.text.as_str()),
        (Finish::Cancelled, "")
    );
    let after = engine
        .answer(
            &mut session,
            &[user("Hello!")],
            &Sampling::default(),
            &Cancel::default(),
            &mut |_| {},
        )
        .unwrap();
    assert_eq!(after.text, rows()[0].text);
}

#[test]
fn a_conversation_beyond_the_context_is_refused_with_both_numbers() {
    let demo = demo();
    let engine = open(&demo, &Options::default());
    let error = engine
        .answer(
            &mut engine.session(),
            &[user(&"fox ".repeat(5000))],
            &Sampling::default(),
            &Cancel::default(),
            &mut |_| {},
        )
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("4096"), "{text}");
}

#[test]
fn the_same_seed_writes_the_same_text_and_another_seed_another() {
    let demo = demo();
    let engine = open(&demo, &Options::default());
    let write = |seed| {
        let sampling = Sampling {
            temperature: 1.0,
            top_p: 0.95,
            seed,
            max_tokens: Some(60),
            ..Sampling::default()
        };
        engine
            .answer(
                &mut engine.session(),
                &[user("Tell me a story about a robot.")],
                &sampling,
                &Cancel::default(),
                &mut |_| {},
            )
            .unwrap()
            .text
    };
    assert_eq!(write(11), write(11));
    assert_ne!(write(11), write(12));
}
