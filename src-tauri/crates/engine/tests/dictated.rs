//! Answers of models made for the purpose: what is dictated comes out, and nothing else.
#![allow(clippy::unwrap_used, missing_docs)]

use fastar_engine::{
    Answer, Cancel, Engine, Error, Event, Finish, Message, Options, Role, Sampling,
};
use fastar_testkit::{Chain, Checkpoint, Tiny, tiny};

fn ask(engine: &Engine, sampling: &Sampling) -> fastar_engine::Result<(Answer, Vec<String>)> {
    let mut pieces = Vec::new();
    let question = Message {
        role: Role::User,
        text: "?".into(),
    };
    let answer = engine.answer(
        &mut engine.session(),
        &[question],
        sampling,
        &Cancel::default(),
        &mut |event| {
            if let Event::Text(text) = event {
                pieces.push(text.to_owned());
            }
        },
    )?;
    assert_eq!(pieces.concat(), answer.text);
    Ok((answer, pieces))
}

fn open(checkpoint: &Checkpoint) -> Engine {
    let model = checkpoint.convert();
    Engine::open(&model.path(), &Options::default()).unwrap()
}

#[test]
fn characters_come_whole_though_each_byte_is_a_token() {
    let text = "修复🙂é";
    let bytes: Vec<[u8; 1]> = text.bytes().map(|b| [b]).collect();
    let pieces: Vec<&[u8]> = bytes.iter().map(|b| b.as_slice()).collect();
    let engine = open(&Chain::answering(&pieces).checkpoint(256));
    let (answer, pieces) = ask(&engine, &Sampling::default()).unwrap();
    assert_eq!(answer.text, text);
    assert_eq!(pieces, ["修", "复", "🙂", "é"]);
    assert_eq!(answer.finish, Finish::End);
    assert_eq!(answer.answer_tokens, text.len() + 1);
}

#[test]
fn a_character_that_is_never_finished_is_replaced_at_the_end() {
    let engine = open(&Chain::answering(&[b"ok", b"\xe4", b"\xbd"]).checkpoint(256));
    assert_eq!(
        ask(&engine, &Sampling::default()).unwrap().0.text,
        "ok\u{FFFD}"
    );
}

#[test]
fn end_and_role_tokens_end_the_answer_and_are_never_text() {
    for control in ["<｜User｜>", "end"] {
        let mut chain = Chain::new(&[b"Hi", b"never"]);
        let v = &chain.vocabulary;
        let ends = match control {
            "end" => v.eos(),
            text => v.control(text),
        };
        let script = [v.control("</think>"), v.id("Hi"), ends, v.id("never")];
        chain.follow(&script);
        let (answer, _) = ask(&open(&chain.checkpoint(256)), &Sampling::default()).unwrap();
        assert_eq!(
            (answer.text.as_str(), answer.finish),
            ("Hi", Finish::End),
            "{control}"
        );
    }
}

#[test]
fn an_answer_without_an_end_stops_at_the_limit_and_at_the_context() {
    let mut chain = Chain::new(&[b"one ", b"two ", b"three "]);
    let v = &chain.vocabulary;
    let (one, two, three) = (v.id("one "), v.id("two "), v.id("three "));
    chain.follow(&[chain.vocabulary.control("</think>"), one, two, three, one]);
    let engine = open(&chain.checkpoint(64));
    for limit in 0..=7 {
        let sampling = Sampling {
            max_tokens: Some(limit),
            ..Sampling::default()
        };
        let (answer, _) = ask(&engine, &sampling).unwrap();
        assert_eq!(
            (answer.answer_tokens, answer.finish),
            (limit, Finish::Length)
        );
        assert_eq!(answer.text.split_whitespace().count(), limit);
    }
    let (answer, _) = ask(&engine, &Sampling::default()).unwrap();
    assert_eq!(answer.finish, Finish::Length);
    // BOS, user, one byte, assistant and </think> are in front.
    assert_eq!(answer.prompt_tokens, 5);
    assert_eq!(answer.prompt_tokens + answer.answer_tokens, 64);
}

#[test]
fn a_head_row_that_is_not_a_number_is_never_chosen() {
    let mut checkpoint = tiny(&Tiny::default());
    let (_, shape, bytes) = checkpoint.tensors.get_mut("head.weight").unwrap();
    let width = 2 * shape[1];
    // Rows of the letters a to h.
    for row in b'a'..=b'h' {
        let at = (3 + row as usize) * width;
        for pair in bytes[at..at + width].chunks_exact_mut(2) {
            pair.copy_from_slice(&0x7FC0u16.to_le_bytes());
        }
    }
    let engine = open(&checkpoint);
    for temperature in [0.0, 0.8, 3.0] {
        let sampling = Sampling {
            temperature,
            seed: 5,
            max_tokens: Some(200),
            ..Sampling::default()
        };
        let (answer, _) = ask(&engine, &sampling).unwrap();
        assert!(
            !answer.text.contains(|c| ('a'..='h').contains(&c)),
            "{}",
            answer.text
        );
    }
}

#[test]
fn a_layer_that_computes_no_numbers_is_named_and_the_engine_lives() {
    for (tensor, layer) in [
        ("layers.0.ffn.shared_experts.w2.weight", 0),
        ("layers.2.attn.kv_norm.weight", 2),
    ] {
        let mut checkpoint = tiny(&Tiny::default());
        let (_, _, bytes) = checkpoint.tensors.get_mut(tensor).unwrap();
        bytes[..2].copy_from_slice(&0x7F80u16.to_le_bytes()); // infinity
        let engine = open(&checkpoint);
        for temperature in [0.0, 0.8] {
            let sampling = Sampling {
                temperature,
                ..Sampling::default()
            };
            let error = ask(&engine, &sampling).unwrap_err();
            assert!(matches!(error, Error::NotFinite(_)));
            assert!(
                error.to_string().contains(&format!("Layer {layer} ")),
                "{error}"
            );
        }
    }
    let mut checkpoint = tiny(&Tiny::default());
    let (_, _, bytes) = checkpoint.tensors.get_mut("norm.weight").unwrap();
    bytes[..2].copy_from_slice(&0x7FC0u16.to_le_bytes());
    let error = ask(&open(&checkpoint), &Sampling::default()).unwrap_err();
    assert!(
        error.to_string().contains("head computed no number"),
        "{error}"
    );
}

#[test]
fn tiny_temperatures_write_what_zero_writes_whatever_the_seed() {
    let engine = open(&tiny(&Tiny::default()));
    let write = |temperature, seed| {
        let sampling = Sampling {
            temperature,
            seed,
            max_tokens: Some(64),
            ..Sampling::default()
        };
        ask(&engine, &sampling).unwrap().0.text
    };
    let greedy = write(0.0, 0);
    for temperature in [0.0, 1e-6, 1e-30, 1e-45] {
        for seed in [1, 2] {
            assert_eq!(write(temperature, seed), greedy, "{temperature}");
        }
    }
    assert_ne!(write(5.0, 1), greedy);
}
