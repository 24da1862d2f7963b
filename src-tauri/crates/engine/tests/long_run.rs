//! A long answer with the fewest experts in memory, in a process of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::{Duration, Instant};

use fastar_engine::{Cancel, Engine, Finish, Message, Options, Role, Sampling};
use fastar_testkit::Chain;

/// What the system says about this process.
fn process() -> Option<(usize, usize, u64)> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    Some((count("/proc/self/task"), count("/proc/self/fd"), kib))
}

#[test]
fn a_long_answer_uses_no_more_in_the_end_than_at_the_beginning() {
    // Four words that go round for ever, with the fewest experts in memory.
    let words: [&[u8]; 4] = [b"one ", b"two ", b"three ", b"four "];
    let mut chain = Chain::new(&words);
    let mut round: Vec<u32> = words.iter().map(|w| chain.vocabulary.id(w)).collect();
    round.push(round[0]);
    let start = chain.vocabulary.control("</think>");
    chain.follow(&[start, round[0]]);
    chain.follow(&round);
    let model = chain.checkpoint(8192).convert();
    let options = Options {
        threads: Some(1),
        cache_bytes: Some(0),
        ..Options::default()
    };
    let engine = Engine::open(&model.path(), &options).unwrap();
    let mut session = engine.session();
    let sampling = Sampling {
        temperature: 0.0,
        max_tokens: Some(5000),
        ..Sampling::default()
    };
    let messages = [Message {
        role: Role::User,
        text: "go".into(),
    }];
    let (mut tokens, mut seen) = (0, Vec::new());
    let mut came = Vec::new();
    let answer = engine
        .answer(
            &mut session,
            &messages,
            &sampling,
            &Cancel::default(),
            &mut |event| {
                if let fastar_engine::Event::Text(_) = event {
                    tokens += 1;
                    came.push(Instant::now());
                    if tokens == 1000 || tokens == 4990 {
                        seen.push((process(), engine.statistics().unwrap()));
                    }
                }
            },
        )
        .unwrap();
    assert_eq!(
        (answer.finish, answer.answer_tokens),
        (Finish::Length, 5000)
    );
    assert!(answer.text.starts_with("one two three four one two"));
    let [(early, first), (late, last)] = &seen[..] else {
        panic!("{} looks", seen.len())
    };
    if let (Some((threads, files, kib)), Some((threads_late, files_late, kib_late))) = (early, late)
    {
        assert_eq!((threads, files), (threads_late, files_late));
        // What attention remembers grows: three layers, a few hundred bytes for each token.
        assert!(*kib_late < kib + 4 * 1024, "{kib} KiB became {kib_late}");
    }
    // Time for a token grows as attention does, which is little here. A token takes far less than the system lets any other program run for, so that
    // whatever else runs the middle one is not among those that were held up.
    let median = |tokens: std::ops::Range<usize>| -> Duration {
        let mut times: Vec<_> = came[tokens].windows(2).map(|w| w[1] - w[0]).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (early_median, late_median) = (median(500..1000), median(4500..came.len()));
    assert!(
        late_median <= 3 * early_median,
        "{late_median:?} after {early_median:?}"
    );
    // Each token asks for two experts in each of three layers, and no more is read for the last tokens than for the first.
    let per_token = |a: &fastar_engine::Statistics, b: &fastar_engine::Statistics| {
        let asked = |s: &fastar_engine::Statistics| s.hits + s.misses + s.late;
        (asked(b) - asked(a)) as f64 / (b.tokens - a.tokens) as f64
    };
    assert_eq!(per_token(first, last), 6.0);
    let bytes = |s: &fastar_engine::Statistics| (s.demand_bytes + s.ahead_bytes) as f64;
    let early_rate = bytes(first) / first.tokens as f64;
    let late_rate = (bytes(last) - bytes(first)) / (last.tokens - first.tokens) as f64;
    assert!(
        late_rate <= 1.1 * early_rate,
        "{late_rate} after {early_rate}"
    );
}
