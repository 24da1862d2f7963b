//! Going back in a session, and going on with a saved one, equals a cold run bit for bit.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{Converted, Expected, convert, fixture, open};
use fastar_engine::{Cancel, Engine, Options, Session};

/// A small model with a window of 8 and blocks of 4 and 16, and one with Flash's own window and ratios.
fn models() -> Vec<(Converted, Engine, Vec<u32>)> {
    ["a_mixed_bf16", "b_flash_ratios_bf16"]
        .into_iter()
        .map(|name| {
            let model = convert(&fixture(name));
            let engine = open(&model, &Options::default());
            (model, engine, Expected::of(name).ids("prompt"))
        })
        .collect()
}

fn read(session: &mut Session, tokens: &[u32]) -> Vec<f32> {
    session
        .prefill(tokens, &Cancel::default(), &mut |_| {})
        .unwrap()
        .to_vec()
}

/// The one judge: a fresh session that reads `tokens` and nothing else. Returns the logits after the last `rows` tokens.
fn cold(engine: &Engine, tokens: &[u32], rows: usize) -> Vec<f32> {
    let mut session = engine.session();
    let (body, tail) = tokens.split_at(tokens.len() - rows);
    if !body.is_empty() {
        read(&mut session, body);
    }
    let mut out = Vec::new();
    for token in tail {
        out.extend_from_slice(session.decode(*token).unwrap());
    }
    out
}

/// Positions within two of every edge of the windows and blocks in use.
fn edges(length: usize) -> Vec<usize> {
    (1..length)
        .filter(|p| [8, 16, 128].iter().any(|edge| (p + 2) % edge <= 4))
        .collect()
}

#[test]
fn rewinding_to_any_edge_and_going_on_differently_equals_a_cold_run() {
    for (_model, engine, prompt) in models() {
        let mut session = engine.session();
        read(&mut session, &prompt);
        // From the end backwards, so that near ones truncate and far ones read again.
        for position in edges(prompt.len()).into_iter().rev() {
            session.rewind(position).unwrap();
            assert_eq!(session.position(), position);
            let other = [(prompt[position] + 1) % 96, 5, 7, 11, 2];
            let ours = session.verify(&other).unwrap().to_vec();
            let mut tokens = prompt[..position].to_vec();
            tokens.extend(other);
            assert!(
                ours == cold(&engine, &tokens, other.len()),
                "position {position} of {}",
                prompt.len()
            );
        }
    }
}

#[test]
fn a_block_is_verified_as_if_decoded_one_by_one_and_taken_back_exactly() {
    for (_model, engine, prompt) in models() {
        for at in [1, 3, 7, 8, 15, 16, 40] {
            for block in 1..=8 {
                let mut session = engine.session();
                read(&mut session, &prompt[..at]);
                let tokens = &prompt[at..at + block];
                let verified = session.verify(tokens).unwrap().to_vec();
                assert!(
                    verified == cold(&engine, &prompt[..at + block], block),
                    "block of {block} at {at}"
                );
                // Accept half of it, as a draft that was half right.
                let accepted = at + block / 2;
                let before = session.computed();
                session.rewind(accepted).unwrap();
                assert_eq!(
                    session.computed(),
                    before,
                    "a short way back reads nothing again"
                );
                let next = session.decode(3).unwrap().to_vec();
                let mut cold_tokens = prompt[..accepted].to_vec();
                cold_tokens.push(3);
                assert!(next == cold(&engine, &cold_tokens, 1));
            }
        }
    }
}

#[test]
fn a_checkpoint_makes_a_far_way_back_free() {
    let (_model, engine, prompt) = models().pop().unwrap();
    let long: Vec<u32> = prompt.iter().cycle().take(900).copied().collect();
    let run = |checkpoint: bool| {
        let mut session = engine.session();
        read(&mut session, &long[..131]);
        if checkpoint {
            session.checkpoint();
        }
        read(&mut session, &long[131..]);
        session.rewind(131).unwrap();
        let again = session.computed() - long.len() as u64;
        let next = session.decode(9).unwrap().to_vec();
        (again, next)
    };
    let ((free, with), (read_again, without)) = (run(true), run(false));
    assert_eq!((free, read_again), (0, 131));
    assert!(with == without);
    let mut tokens = long[..131].to_vec();
    tokens.push(9);
    assert!(with == cold(&engine, &tokens, 1));
}

#[test]
fn random_walks_back_and_forth_equal_a_cold_run() {
    let mut seed = 12345u64;
    let mut random = move |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for (_model, engine, _) in models() {
        for _ in 0..20 {
            let mut session = engine.session();
            for _ in 0..12 {
                match random(6) {
                    0 if session.position() > 0 => {
                        let to = random(session.position() + 1);
                        session.rewind(to).unwrap();
                    }
                    1 => session.checkpoint(),
                    2 if random(4) == 0 => session.reset(),
                    _ => {
                        let tokens: Vec<u32> =
                            (0..1 + random(150)).map(|_| random(96) as u32).collect();
                        read(&mut session, &tokens);
                    }
                }
            }
            let mut tokens = session.tokens().to_vec();
            tokens.push(random(96) as u32);
            let ours = session.decode(*tokens.last().unwrap()).unwrap().to_vec();
            assert!(
                ours == cold(&engine, &tokens, 1),
                "after {} tokens",
                tokens.len()
            );
        }
    }
}

#[test]
fn a_stop_leaves_the_session_at_the_last_whole_piece() {
    let (_model, engine, prompt) = models().pop().unwrap();
    let mut session = engine.session();
    let cancel = Cancel::default();
    let stopped = session
        .prefill(&prompt, &cancel.clone(), &mut |done| {
            if done == 128 {
                cancel.cancel();
            }
        })
        .is_err();
    assert!(stopped);
    assert_eq!(session.position(), 128);
    let logits = read(&mut session, &prompt[128..]);
    assert!(logits == cold(&engine, &prompt, 1));
}

#[test]
fn a_session_goes_back_no_further_than_it_went() {
    let (_model, engine, prompt) = models().remove(0);
    let mut session = engine.session();
    read(&mut session, &prompt[..10]);
    let error = session.rewind(11).unwrap_err().to_string();
    assert!(error.contains("11") && error.contains("10"), "{error}");
    session.rewind(0).unwrap();
    assert_eq!(session.position(), 0);
    assert!(read(&mut session, &prompt) == cold(&engine, &prompt, 1));
}

#[test]
fn a_saved_session_goes_on_in_another_engine_without_reading_again() {
    for (model, engine, prompt) in models() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.session");
        for at in [0, 1, 3, 4, 7, 15, 16, 17, 60] {
            let mut session = engine.session();
            if at > 2 {
                read(&mut session, &prompt[..at - 2]);
                session.checkpoint();
                read(&mut session, &prompt[at - 2..at]);
            } else if at > 0 {
                read(&mut session, &prompt[..at]);
            }
            session.save(&path).unwrap();

            let other = open(&model, &Options::default());
            let mut resumed = other.session();
            resumed.load(&path).unwrap();
            assert_eq!(resumed.tokens(), &prompt[..at]);
            let mut tokens = prompt[..at].to_vec();
            tokens.extend([1, 2, 3]);
            let ours = resumed.verify(&[1, 2, 3]).unwrap().to_vec();
            assert!(ours == cold(&engine, &tokens, 3), "saved at {at}");
            assert_eq!(resumed.computed(), 3);
            // The checkpoint came along.
            if at > 2 {
                resumed.rewind(at - 2).unwrap();
                let next = resumed.decode(4).unwrap().to_vec();
                let mut tokens = prompt[..at - 2].to_vec();
                tokens.push(4);
                assert!(next == cold(&engine, &tokens, 1));
                assert_eq!(resumed.computed(), 4);
            }
        }
        // Nothing but the file is left behind.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_damaged_or_foreign_session_file_is_refused_and_the_session_still_works() {
    let all = models();
    let (_model, engine, prompt) = &all[0];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let mut session = engine.session();
    read(&mut session, &prompt[..21]);
    session.save(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let refused = |bytes: &[u8], engine: &Engine, what: &str| {
        std::fs::write(&path, bytes).unwrap();
        let mut session = engine.session();
        let error = session.load(&path).expect_err(what).to_string();
        assert!(error.contains("a.session"), "{what}: {error}");
        assert_eq!(session.position(), 0, "{what}");
        session.decode(1).unwrap();
    };
    // One flipped bit anywhere.
    for at in (0..whole.len()).step_by(whole.len() / 150) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        refused(&bytes, engine, &format!("a flipped bit at {at}"));
    }
    for length in (0..whole.len()).step_by(whole.len() / 60) {
        refused(&whole[..length], engine, &format!("cut to {length}"));
    }
    let mut longer = whole.clone();
    longer.push(0);
    refused(&longer, engine, "one byte too many");
    refused(&whole, &all[1].1, "a file of another model");
    // A claim of very many tokens does not reserve memory for them.
    let mut bytes = whole.clone();
    bytes[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
    refused(&bytes, engine, "a false count");

    let mut session = engine.session();
    let missing = session.load(&folder.path().join("none.session"));
    assert!(missing.is_err());
    let unwritable = session.save(&folder.path().join("no/such/folder/a.session"));
    assert!(
        unwritable
            .unwrap_err()
            .to_string()
            .contains("could not be written")
    );
}
