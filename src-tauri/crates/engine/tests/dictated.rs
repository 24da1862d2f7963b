//! Answers of models made for the purpose: what is dictated comes out, and nothing else.
#![allow(clippy::unwrap_used, missing_docs)]

use fastar_engine::{
    Answer, Cancel, Conversation, Effort, Engine, Error, Event, Finish, Message, Options, Reply,
    Role, Sampling, Thinking, Tool, Turn,
};
use fastar_testkit::{Chain, Checkpoint, Tiny, tiny};
use serde_json::json;

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
fn a_tokenizer_with_parts_that_v4_has_not_is_refused() {
    type Change = fn(&mut serde_json::Value);
    let cases: [(&str, Change); 7] = [
        (
            "normalizer",
            |t| t["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ),
        (
            "normalizer",
            |t| t["normalizer"] = json!({"type": "Sequence", "normalizers": [{"type": "NFC"}]}),
        ),
        ("pre-tokenizer", |t| {
            t["pre_tokenizer"] = json!({"type": "Metaspace"})
        }),
        ("dropout", |t| t["model"]["dropout"] = json!(1.0)),
        ("not BPE", |t| t["model"]["type"] = json!("WordLevel")),
        ("byte-level", |t| {
            t["decoder"] = json!({"type": "WordPiece"})
        }),
        ("twice", |t| {
            let again = t["added_tokens"][3].clone();
            t["added_tokens"].as_array_mut().unwrap().push(again);
        }),
    ];
    for (says, change) in cases {
        let mut checkpoint = tiny(&Tiny::default());
        change(checkpoint.tokenizer.as_mut().unwrap());
        let model = checkpoint.convert();
        let error = Engine::open(&model.path(), &Options::default())
            .err()
            .unwrap();
        assert!(error.to_string().contains(says), "{says}: {error}");
    }
}

/// Comparisons with what is not a number are false, so a bound or a maximum can swallow it; none may.
#[test]
fn no_weight_that_is_not_a_number_goes_unnoticed() {
    let names: Vec<String> = tiny(&Tiny::default()).tensors.keys().cloned().collect();
    let prompt: Vec<u32> = (0..200).map(|i| 3 + i % 200).collect();
    let mut tried = 0;
    for name in names {
        // One layer of each kind, and everything outside the layers. Rows of the head and of embeddings are met only by their token.
        let elsewhere = name.starts_with("layers.3.")
            || name.contains("experts.") && !name.contains("shared_experts");
        if elsewhere || name == "head.weight" || name == "embed.weight" || name.ends_with("tid2eid")
        {
            continue;
        }
        let mut checkpoint = tiny(&Tiny::default());
        let (dtype, _, bytes) = checkpoint.tensors.get_mut(&name).unwrap();
        let nan: Vec<u8> = match dtype.bitsize() / 8 {
            2 => 0x7FC0u16.to_le_bytes().to_vec(),
            _ => f32::NAN.to_le_bytes().to_vec(),
        };
        for value in bytes.chunks_exact_mut(nan.len()) {
            value.copy_from_slice(&nan);
        }
        let engine = open(&checkpoint);
        let result = fastar_engine::diagnostic::logits(&engine, &prompt, None, 0);
        assert!(matches!(result, Err(Error::NotFinite(_))), "{name}");
        tried += 1;
    }
    assert!(tried > 60, "{tried}");
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

/// Asks with thinking on; a chain's script then begins behind `<think>`.
fn think(engine: &Engine, sampling: &Sampling) -> Answer {
    let conversation = Conversation {
        turns: vec![Turn::User("?".into())],
        thinking: Thinking::On(Effort::Default),
        ..Conversation::default()
    };
    let (mut reasoning, mut text) = (String::new(), String::new());
    let answer = engine
        .reply(
            &mut engine.session(),
            &conversation,
            sampling,
            &Cancel::default(),
            &mut |event| match event {
                Event::Reasoning(more) => reasoning.push_str(more),
                Event::Text(more) => text.push_str(more),
                _ => {}
            },
        )
        .unwrap();
    assert_eq!((&answer.reasoning, &answer.text), (&reasoning, &text));
    answer
}

#[test]
fn reasoning_ends_at_its_tag_written_as_one_token_or_letter_by_letter() {
    let mut as_token = Chain::new(&[b"abc", b"xyz"]);
    let v = &as_token.vocabulary;
    let script = [
        v.control("<think>"),
        v.id("abc"),
        v.control("</think>"),
        v.id("xyz"),
        v.eos(),
    ];
    as_token.follow(&script);
    let mut as_letters = Chain::new(&[b"abc", b"xyz"]);
    let v = &as_letters.vocabulary;
    let mut script = vec![v.control("<think>"), v.id("abc")];
    script.extend("</think>".bytes().map(|b| v.id([b])));
    script.extend([v.id("xyz"), v.eos()]);
    as_letters.follow(&script);
    for (chain, reasoning_tokens) in [(as_token, 2), (as_letters, 9)] {
        let answer = think(&open(&chain.checkpoint(256)), &Sampling::default());
        assert_eq!(
            (answer.reasoning.as_str(), answer.text.as_str()),
            ("abc", "xyz")
        );
        assert_eq!(answer.finish, Finish::End);
        assert_eq!(answer.reasoning_tokens, reasoning_tokens);
    }
}

#[test]
fn a_limit_met_while_thinking_is_told_as_such() {
    let mut chain = Chain::new(&[b"hmm ", b"well "]);
    let v = &chain.vocabulary;
    let script = [
        v.control("<think>"),
        v.id("hmm "),
        v.id("well "),
        v.id("hmm "),
    ];
    chain.follow(&script);
    let sampling = Sampling {
        max_tokens: Some(10),
        ..Sampling::default()
    };
    let answer = think(&open(&chain.checkpoint(256)), &sampling);
    assert_eq!((answer.text.as_str(), answer.finish), ("", Finish::Length));
    assert_eq!((answer.answer_tokens, answer.reasoning_tokens), (10, 10));
}

#[test]
fn letters_of_a_tag_stay_text_when_thinking_is_off() {
    let pieces: Vec<[u8; 1]> = "<think>".bytes().map(|b| [b]).collect();
    let pieces: Vec<&[u8]> = pieces.iter().map(|p| p.as_slice()).collect();
    let engine = open(&Chain::answering(&pieces).checkpoint(256));
    assert_eq!(
        ask(&engine, &Sampling::default()).unwrap().0.text,
        "<think>"
    );
}

#[test]
fn stop_strings_are_found_across_tokens_and_nothing_before_them_is_lost() {
    let pieces: [&[u8]; 7] = [b"The", b" quick", b" br", b"own", b" fo", b"x ", b"ab"];
    let engine = open(&Chain::answering(&pieces).checkpoint(256));
    let whole = "The quick brown fox ab";
    for (stops, expected) in [
        (vec!["own fox"], "The quick br"),
        (vec!["ox"], "The quick brown f"),
        (vec!["b fox"], whole),
        (vec!["brown", "quick"], "The "),
        (vec![" "], "The"),
        (vec![""], whole),
        (vec!["ab!"], whole),
        (vec!["1", "2", "3", "4", "n f"], "The quick brow"),
    ] {
        let sampling = Sampling {
            stop: stops.iter().map(|s| (*s).to_owned()).collect(),
            ..Sampling::default()
        };
        let (answer, pieces) = ask(&engine, &sampling).unwrap();
        assert_eq!(answer.text, expected, "{stops:?}");
        assert_eq!(answer.finish, Finish::End, "{stops:?}");
        // What was given out early was never more than the answer.
        assert_eq!(pieces.concat(), expected);
    }
    let emoji: Vec<[u8; 1]> = "ok🙂no"
        .bytes()
        .filter(|b| *b != b'o')
        .map(|b| [b])
        .collect();
    let emoji: Vec<&[u8]> = emoji.iter().map(|p| p.as_slice()).collect();
    let engine = open(&Chain::answering(&emoji).checkpoint(256));
    let sampling = Sampling {
        stop: vec!["🙂".into()],
        ..Sampling::default()
    };
    assert_eq!(ask(&engine, &sampling).unwrap().0.text, "k");
}

#[test]
fn a_tool_call_is_given_whole_and_a_cut_one_is_never_an_empty_call() {
    let tool = || {
        Tool::new(r#"{"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}"#).unwrap()
    };
    let open_block = "\n\n<";
    let rest = [
        "tool_calls>\n",
        "<",
        "invoke name=\"f\">\n",
        "parameter name=\"n\" string=\"false\">2</",
        "parameter>\n</",
        "invoke>\n</",
        "tool_calls>",
    ];
    // Every DSML mark is the same token and would have many followers, so the bars are written as letters here.
    let bars = "｜DSML｜";
    let text = format!(
        "{open_block}{bars}{}{}{bars}{}<{bars}{}{bars}{}{bars}{}{bars}{}",
        rest[0], rest[1], rest[2], rest[3], rest[4], rest[5], rest[6]
    );
    // Pieces of different lengths are different words.
    let mut pieces: Vec<&[u8]> = Vec::new();
    let (mut at, mut length) = (0, 2);
    while at < text.len() {
        let end = (at + length).min(text.len());
        pieces.push(&text.as_bytes()[at..end]);
        (at, length) = (end, length + 1);
    }
    let engine = open(&Chain::answering(&pieces).checkpoint(1024));
    let conversation = Conversation {
        turns: vec![Turn::User("?".into())],
        tools: vec![tool()],
        ..Conversation::default()
    };
    for limit in 1..=pieces.len() + 1 {
        let sampling = Sampling {
            max_tokens: Some(limit),
            ..Sampling::default()
        };
        let mut broken = Vec::new();
        let answer = engine
            .reply(
                &mut engine.session(),
                &conversation,
                &sampling,
                &Cancel::default(),
                &mut |event| {
                    if let Event::BrokenCall { text, .. } = event {
                        broken.push(text.to_owned());
                    }
                },
            )
            .unwrap();
        // A tag that the limit cut in two is only text; a whole one never is.
        assert!(!answer.text.contains(bars), "{}", answer.text);
        if answer.finish == Finish::End {
            assert_eq!(answer.calls.len(), 1);
            assert_eq!(
                (
                    answer.calls[0].name.as_str(),
                    answer.calls[0].arguments.as_str()
                ),
                ("f", r#"{"n": 2}"#)
            );
        } else {
            assert!(
                answer.calls.iter().all(|c| c.arguments == r#"{"n": 2}"#),
                "{limit}"
            );
        }
    }
}

/// Old reasoning is left out when the next turn is written down, so the timeline differs right behind that turn's `<Assistant>`.
#[test]
fn only_what_differs_is_read_again_after_thinking_regenerating_editing_and_branching() {
    let engine = open(&tiny(&Tiny::default()));
    let sampling = Sampling {
        max_tokens: Some(40),
        ..Sampling::default()
    };
    let long = "a question of some length ".repeat(20);
    let ask = |turns: Vec<Turn>, thinking| Conversation {
        turns,
        thinking,
        ..Conversation::default()
    };
    let run = |session: &mut fastar_engine::Session, conversation: &Conversation| {
        let before = session.computed();
        let answer = engine
            .reply(
                session,
                conversation,
                &sampling,
                &Cancel::default(),
                &mut |_| {},
            )
            .unwrap();
        let cold = engine
            .reply(
                &mut engine.session(),
                conversation,
                &sampling,
                &Cancel::default(),
                &mut |_| {},
            )
            .unwrap();
        assert_eq!(
            (&answer.text, &answer.reasoning),
            (&cold.text, &cold.reasoning)
        );
        // The last token written is not fed.
        let prompt_read = session.computed() - before + 1 - answer.answer_tokens as u64;
        assert_eq!(
            prompt_read as usize,
            answer.prompt_tokens - answer.reused_tokens
        );
        answer
    };
    let mut session = engine.session();
    let on = Thinking::On(Effort::Default);
    let first = run(&mut session, &ask(vec![Turn::User(long.clone())], on));
    assert_eq!(first.reused_tokens, 0);
    let reply = Turn::Assistant(Reply {
        reasoning: Some(first.reasoning.clone()),
        content: "short".into(),
        calls: Vec::new(),
    });
    let second = ask(
        vec![
            Turn::User(long.clone()),
            reply.clone(),
            Turn::User("and now?".into()),
        ],
        on,
    );
    let answer = run(&mut session, &second);
    assert_eq!(
        answer.reused_tokens,
        first.prompt_tokens - 1,
        "up to and with <Assistant>"
    );

    // The same again: all but the last token is there.
    let again = run(&mut session, &second);
    assert_eq!(again.reused_tokens, again.prompt_tokens - 1);

    // Another last message: what stands before it is there.
    let edited = ask(
        vec![
            Turn::User(long.clone()),
            reply.clone(),
            Turn::User("or then, which is longer?".into()),
        ],
        on,
    );
    let answer = run(&mut session, &edited);
    assert!(answer.reused_tokens >= first.prompt_tokens - 1);

    // Back to the first branch.
    let answer = run(&mut session, &second);
    assert!(answer.reused_tokens >= first.prompt_tokens - 1);

    // Another first message: only BOS and <User> are shared.
    let other = ask(vec![Turn::User("something else".into())], on);
    assert!(run(&mut session, &other).reused_tokens <= 2);
}
