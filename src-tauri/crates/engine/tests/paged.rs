//! A model on disk, with memory for few of its experts or many: the same answers, and numbers that are true.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use fastar_engine::{Cancel, Engine, Error, Options, Session};
use fastar_testkit::{Tiny, tiny};

/// Bytes of one expert of these models, as a slot takes them.
fn slot(engine: &Engine) -> u64 {
    engine.facts().memory.cache_bytes / engine.facts().memory.slots as u64
}

fn with_cache(bytes: u64) -> Options {
    Options {
        threads: Some(1),
        cache_bytes: Some(bytes),
        ..Options::default()
    }
}

/// The bits of the logits of every token of a prompt and of a greedy continuation.
fn run(session: &mut Session, prompt: &[u32], tokens: usize) -> (Vec<u32>, Vec<u32>) {
    let mut bits = Vec::new();
    let mut greedy = Vec::new();
    let mut add = |logits: &[f32]| -> u32 {
        bits.extend(logits.iter().map(|v| v.to_bits()));
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
        best.unwrap() as u32
    };
    let mut next = add(session
        .prefill(prompt, &Cancel::default(), &mut |_| {})
        .unwrap());
    for _ in 0..tokens {
        greedy.push(next);
        next = add(session.decode(next).unwrap());
    }
    (bits, greedy)
}

fn prompt(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| 2 + i * 37 % 250).collect()
}

#[test]
fn every_budget_gives_the_same_bits() {
    let model = tiny(&Tiny::default()).convert();
    let all = Engine::open(&model.path(), &with_cache(u64::MAX)).unwrap();
    assert_eq!(all.facts().memory.slots, 32);
    let expected = run(&mut all.session(), &prompt(150), 20);
    let (one, floor) = (slot(&all), 2 * slot(&all));
    for (budget, slots) in [
        (0, 2),
        (1, 2),
        (one, 2),
        (floor - 1, 2),
        (floor, 2),
        (3 * one, 3),
        (11 * one + 5, 11),
        (32 * one, 32),
    ] {
        for (threads, without_guesses) in [(1, false), (3, true)] {
            let options = Options {
                threads: Some(threads),
                without_guesses,
                ..with_cache(budget)
            };
            let engine = Engine::open(&model.path(), &options).unwrap();
            let memory = &engine.facts().memory;
            assert_eq!(memory.slots, slots, "{budget}");
            assert_eq!(
                memory.note.is_some(),
                budget < floor,
                "{budget}: {memory:?}"
            );
            let found = run(&mut engine.session(), &prompt(150), 20);
            assert!(found == expected, "budget {budget}, {threads} threads");
        }
    }
}

#[test]
fn a_container_in_memory_gives_the_bits_of_one_on_disk() {
    let model = tiny(&Tiny::default()).convert();
    let bytes: &'static [u8] = std::fs::read(model.path()).unwrap().leak();
    let in_memory = Engine::from_static(bytes, &Options::default()).unwrap();
    assert!(in_memory.statistics().is_none());
    let paged = Engine::open(&model.path(), &with_cache(0)).unwrap();
    let expected = run(&mut in_memory.session(), &prompt(20), 5);
    assert!(run(&mut paged.session(), &prompt(20), 5) == expected);
}

#[test]
fn the_numbers_add_up() {
    let model = tiny(&Tiny::default()).convert();
    let engine = Engine::open(&model.path(), &with_cache(u64::MAX)).unwrap();
    let before = engine.statistics().unwrap();
    assert_eq!((before.tokens, before.hits, before.demand_bytes), (0, 0, 0));
    let mut session = engine.session();
    run(&mut session, &prompt(150), 10);
    let after = engine.statistics().unwrap();
    assert_eq!(after.tokens, 160);
    // With room for all, an expert is read once at most: on demand or ahead.
    let read = after.demand_bytes + after.ahead_bytes + after.warm_bytes;
    assert_eq!(read, after.filled * after.expert_bytes);
    assert_eq!(after.misses * after.expert_bytes, after.demand_bytes);
    assert_eq!(after.wasted, 0);
    let by_layer: u64 = after
        .layers
        .iter()
        .map(|l| l.hits + l.misses + l.late)
        .sum();
    assert_eq!(by_layer, after.hits + after.misses + after.late);
    // The last step is one token: two experts in each of four layers.
    assert_eq!(after.last.tokens, 1);
    assert_eq!(after.last.hits + after.last.misses + after.last.late, 8);
    assert!(after.hit_rate().unwrap() > 0.5);
}

#[test]
fn the_next_layer_is_guessed_unless_that_is_switched_off() {
    // No layer goes by a table, so nothing is certain.
    let options = Tiny {
        hash_layers: 0,
        ..Tiny::default()
    };
    let model = tiny(&options).convert();
    let all = Engine::open(&model.path(), &with_cache(u64::MAX)).unwrap();
    for without_guesses in [true, false] {
        let options = Options {
            without_guesses,
            ..with_cache(12 * slot(&all))
        };
        let engine = Engine::open(&model.path(), &options).unwrap();
        let mut session = engine.session();
        let mut rounds = 0;
        while rounds < 20 && engine.statistics().unwrap().useful == 0 {
            session.rewind(0).unwrap();
            run(&mut session, &prompt(10), 40);
            rounds += 1;
        }
        let numbers = engine.statistics().unwrap();
        let guessed = (numbers.ahead_bytes > 0, numbers.useful > 0);
        assert_eq!(guessed, (!without_guesses, !without_guesses));
    }
}

#[test]
fn progress_counts_the_layers_a_piece_has_come_through() {
    let model = tiny(&Tiny::default()).convert();
    let engine = Engine::open(&model.path(), &with_cache(u64::MAX)).unwrap();
    // 24 tokens for each of eight experts, of which a token takes two, are fewer than the shortest piece.
    assert_eq!(engine.facts().memory.chunk, 128);
    let mut heard = Vec::new();
    let mut session = engine.session();
    session
        .prefill(&prompt(300), &Cancel::default(), &mut |n| heard.push(n))
        .unwrap();
    // Four layers, so quarters of 128, 128 and 44.
    assert_eq!(
        heard,
        [32, 64, 96, 128, 160, 192, 224, 256, 267, 278, 289, 300]
    );
}

#[test]
fn a_prompt_reads_an_expert_once_for_each_chunk() {
    let model = tiny(&Tiny::default()).convert();
    // Room for one layer.
    let engine = Engine::open(&model.path(), &with_cache(0)).unwrap();
    let engine = Engine::open(&model.path(), &with_cache(8 * slot(&engine))).unwrap();
    let mut session = engine.session();
    session
        .prefill(&prompt(128), &Cancel::default(), &mut |_| {})
        .unwrap();
    let numbers = engine.statistics().unwrap();
    // A chunk of 128 tokens takes all eight experts of each of four layers.
    assert_eq!(
        numbers.demand_bytes + numbers.ahead_bytes,
        32 * numbers.expert_bytes
    );
}

#[test]
fn a_damaged_or_cut_file_ends_the_answer_and_the_session_goes_on_when_it_is_mended() {
    let model = tiny(&Tiny::default()).convert();
    let engine = Engine::open(&model.path(), &with_cache(0)).unwrap();
    let mut session = engine.session();
    let mut reference = engine.session();
    let expected = run(&mut reference, &prompt(40), 5);
    session
        .prefill(&prompt(10), &Cancel::default(), &mut |_| {})
        .unwrap();
    let whole = std::fs::read(model.path()).unwrap();
    let cut = |bytes: u64| {
        let file = std::fs::File::options()
            .write(true)
            .open(model.path())
            .unwrap();
        file.set_len(bytes).unwrap();
    };
    // The last layer's experts are gone.
    cut(whole.len() as u64 - 8 * slot(&engine));
    let error = session
        .prefill(&prompt(40)[10..], &Cancel::default(), &mut |_| {})
        .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Read(_)), "{text}");
    assert!(
        text.contains("of layer 3") && text.contains("ends before it"),
        "{text}"
    );
    assert_eq!(session.position(), 10);

    // Filled up with zeros: the checksum notices.
    cut(whole.len() as u64);
    let error = session
        .prefill(&prompt(40)[10..], &Cancel::default(), &mut |_| {})
        .unwrap_err();
    assert!(
        error.to_string().contains("of layer 3 does not match"),
        "{error}"
    );
    assert_eq!(session.position(), 10);

    // Nothing but the beginning is left: not even a token's row of the embedding.
    cut(4096);
    let error = session
        .prefill(&prompt(40)[10..], &Cancel::default(), &mut |_| {})
        .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Read(_)), "{text}");
    assert!(
        text.contains("the embedding") && text.contains("ends before it"),
        "{text}"
    );
    assert_eq!(session.position(), 10);

    // As it was.
    use std::io::Write as _;
    let mut file = std::fs::File::options()
        .write(true)
        .open(model.path())
        .unwrap();
    file.write_all(&whole).unwrap();
    drop(file);
    session.rewind(0).unwrap();
    assert!(run(&mut session, &prompt(40), 5) == expected);
}

#[test]
fn a_trace_records_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    let model = tiny(&Tiny::default()).convert();
    let options = Options {
        trace: Some(file.clone()),
        ..with_cache(0)
    };
    let engine = Engine::open(&model.path(), &options).unwrap();
    let mut session = engine.session();
    let (_, greedy) = run(&mut session, &prompt(20), 3);
    drop((session, engine));
    use fastar_engine::routing::{Kind, Trace};
    let trace = Trace::read(std::fs::File::open(&file).unwrap()).unwrap();
    let shape = (trace.shape.layers, trace.shape.experts, trace.shape.taken);
    assert_eq!((shape, trace.tokens(), trace.cut), ((4, 8, 2), 23, false));
    assert_eq!(trace.kinds()[0], Kind::First);
    assert!(
        trace.kinds()[1..20]
            .iter()
            .all(|kind| *kind == Kind::Prefill)
    );
    assert!(trace.kinds()[20..].iter().all(|kind| *kind == Kind::Decode));
    // The first layer goes by a table: token t takes experts 7t and 7t + 1.
    for (t, token) in prompt(20).iter().chain(&greedy).enumerate() {
        let mut taken = [(token * 7 % 8) as u16, ((token * 7 + 1) % 8) as u16];
        taken.sort_unstable();
        assert_eq!(trace.picked(t, 0), taken, "token {t}");
    }
}

#[test]
fn a_warm_start_reads_what_was_hot() {
    let folder = tempfile::tempdir().unwrap();
    let lists = folder.path().join("hot");
    let model = tiny(&Tiny::default()).convert();
    let first = Engine::open(&model.path(), &with_cache(0)).unwrap();
    let options = Options {
        hot_lists: Some(lists.clone()),
        ..with_cache(6 * slot(&first))
    };
    let engine = Engine::open(&model.path(), &options).unwrap();
    let (bits, _) = run(&mut engine.session(), &prompt(30), 10);
    assert!(!lists.exists());
    drop(engine);
    let list = std::fs::read_dir(&lists)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();

    let engine = Engine::open(&model.path(), &options).unwrap();
    let since = Instant::now();
    while engine.statistics().unwrap().warm_bytes < 6 * engine.statistics().unwrap().expert_bytes {
        assert!(since.elapsed() < Duration::from_secs(60), "nothing is read");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(run(&mut engine.session(), &prompt(30), 10).0 == bits);
    drop(engine);
    // Damage is as good as no list.
    std::fs::write(&list, b"what").unwrap();
    let engine = Engine::open(&model.path(), &options).unwrap();
    assert!(run(&mut engine.session(), &prompt(30), 10).0 == bits);
}

#[test]
fn what_was_hot_is_kept_while_the_model_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let lists = folder.path().join("hot");
    let model = fastar_testkit::Chain::answering(&[b"a", b"b"]).model();
    let all = Engine::open(&model.path(), &with_cache(0)).unwrap();
    let options = Options {
        hot_lists: Some(lists.clone()),
        ..with_cache(slot(&all))
    };
    let engine = Engine::open(&model.path(), &options).unwrap();
    let message = fastar_engine::Message {
        role: fastar_engine::Role::User,
        text: "?".into(),
    };
    assert!(!lists.exists());
    engine
        .answer(
            &mut engine.session(),
            &[message],
            &fastar_engine::Sampling::default(),
            &fastar_engine::Cancel::default(),
            &mut |_| {},
        )
        .unwrap();
    // Whatever ends the process now.
    let kept: Vec<_> = std::fs::read_dir(&lists).unwrap().collect();
    assert_eq!(kept.len(), 1);
}

#[test]
fn a_model_that_is_not_there_is_an_error() {
    assert!(Engine::open(Path::new("no such file"), &Options::default()).is_err());
}

/// Through a mapping, a file that someone cuts short ends the process.
#[cfg(target_os = "linux")]
#[test]
fn no_file_of_a_model_is_mapped() {
    let model = tiny(&Tiny::default()).convert();
    let folder = tempfile::tempdir().unwrap();
    let set = fastar_testkit::Original::of(&fastar_testkit::original_checkpoint(1, 4));
    for path in [model.path(), set.save(folder.path())] {
        let engine = Engine::open(&path, &with_cache(0)).unwrap();
        run(&mut engine.session(), &prompt(4), 1);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let parent = path.parent().unwrap().to_str().unwrap();
        assert!(!maps.contains(parent), "{maps}");
    }
}
