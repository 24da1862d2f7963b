//! Whatever a session has been through, its next answer is that of a process that has seen nothing else.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use fastar_engine::{
    Cancel, Conversation, Effort, Engine, Options, Reply, Sampling, Session, Thinking, Turn,
};
use fastar_testkit::{Tiny, cold_run, tiny};

const ANSWER: usize = 12;

/// One answer in the session, judged by a fresh process.
fn answer(
    engine: &Engine,
    model: &Path,
    session: &mut Session,
    conversation: &Conversation,
) -> Reply {
    let sampling = Sampling {
        max_tokens: Some(ANSWER),
        ..Sampling::default()
    };
    let answer = engine
        .reply(
            session,
            conversation,
            &sampling,
            &Cancel::default(),
            &mut |_| {},
        )
        .unwrap();
    // The session holds the prompt and every token of the answer but the last, which was not fed.
    let (prompt, written) = session.tokens().split_at(answer.prompt_tokens);
    let fastar = Path::new(env!("CARGO_BIN_EXE_fastar"));
    let cold = cold_run(fastar, model, prompt, answer.answer_tokens);
    assert_eq!(written, &cold[..written.len()], "{conversation:?}");
    assert_eq!(written.len() + 1, answer.answer_tokens);
    Reply {
        reasoning: Some(answer.reasoning),
        content: answer.text,
        calls: Vec::new(),
    }
}

#[test]
fn sending_resending_editing_deleting_and_new_chats_equal_a_fresh_process() {
    let model = tiny(&Tiny::default()).convert();
    let engine = Engine::open(&model.path(), &Options::default()).unwrap();
    let mut seed = 2026u64;
    let mut random = move |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    // One session for everything, as the app has one for the chat in use.
    let mut session = engine.session();
    let mut turns: Vec<Turn> = Vec::new();
    for step in 0..60 {
        // Lengths around the edges of windows (8) and blocks (4 and 16): a byte is a token.
        let edge = [4, 8, 16, 32, 48][random(5)];
        let text = "abcdefghij".repeat(8)[..edge + random(5) - 2].to_owned();
        match random(6) {
            // Another chat.
            0 => turns = vec![Turn::User(text)],
            // The same again: a regenerated answer.
            1 if !turns.is_empty() => {
                turns.pop();
            }
            // An earlier message is changed, and what followed it is gone.
            2 if turns.len() > 2 => {
                let k = 2 * random(turns.len() / 2);
                turns.truncate(k);
                turns.push(Turn::User(text));
            }
            // The last question and its answer are gone.
            3 if turns.len() > 3 => {
                turns.truncate(turns.len() - 3);
            }
            _ => turns.push(Turn::User(text)),
        }
        if turns.is_empty() || matches!(turns.last(), Some(Turn::Assistant(_))) {
            turns.push(Turn::User(format!("step {step}")));
        }
        let thinking = match random(3) {
            0 => Thinking::On(Effort::Default),
            _ => Thinking::Off,
        };
        let conversation = Conversation {
            turns: turns.clone(),
            thinking,
            ..Conversation::default()
        };
        let reply = answer(&engine, &model.path(), &mut session, &conversation);
        turns.push(Turn::Assistant(reply));
    }
}

#[test]
fn a_new_chat_really_forgets_at_every_length() {
    let model = tiny(&Tiny::default()).convert();
    let engine = Engine::open(&model.path(), &Options::default()).unwrap();
    let mut session = engine.session();
    for length in [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17] {
        let chat = |text: String| Conversation {
            turns: vec![Turn::User(text)],
            ..Conversation::default()
        };
        answer(&engine, &model.path(), &mut session, &chat("x".repeat(300)));
        session.reset();
        answer(
            &engine,
            &model.path(),
            &mut session,
            &chat("y".repeat(length)),
        );
        session.reset();
        session.reset();
    }
}
