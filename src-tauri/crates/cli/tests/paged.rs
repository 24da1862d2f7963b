//! `--cache`, `--stats` and `--trace` of a model on disk: the same answer with little memory, numbers that add up, and a trace that is whole.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use common::{Ended, converted, fastar, reference, refused, run, text};
use fastar_engine::routing::Trace;
use serde_json::Value;

/// The numbers of the line of stderr that says so, in order.
fn numbers(ended: &Ended, says: &str) -> Vec<f64> {
    let line = ended.err.lines().find(|line| line.contains(says));
    let line = line.unwrap_or_else(|| panic!("{ended:?}"));
    let words = line.split(|c: char| c.is_whitespace() || "(),;:".contains(c));
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Asks the model with so much memory for experts; the trace is kept.
fn ask(model: &Path, prompt: &str, cache: &str, trace: &Path) -> Ended {
    let ended = run(&[
        "run",
        "--model",
        text(model),
        "--prompt",
        prompt,
        "--temp",
        "0",
        "--stats",
        "--cache",
        cache,
        "--trace",
        text(trace),
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

/// What the layers asked for: (layer, expert) of every step, each once.
fn asked(trace: &Trace) -> Vec<(usize, u16)> {
    let mut all = Vec::new();
    for step in trace.steps() {
        for layer in 0..trace.shape.layers {
            let picked = step.clone().flat_map(|t| trace.picked(t, layer).to_vec());
            let different: BTreeSet<u16> = picked.collect();
            all.extend(different.into_iter().map(|expert| (layer, expert)));
        }
    }
    all
}

#[test]
fn little_memory_gives_the_same_answer_and_numbers_that_are_those_of_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let model = converted("demo", folder.path());
    let (prompt, answer) = reference().remove(0);
    let small = folder.path().join("small.trace");
    let large = folder.path().join("large.trace");
    let little = ask(&model, &prompt, "0", &small);
    let whole = ask(&model, &prompt, "1G", &large);
    assert_eq!(little.out, format!("{answer}\n"));
    assert_eq!(whole.out, little.out);
    assert!(little.err.contains("it was raised to"), "{little:?}");
    // Which experts tokens go to has nothing to do with where those are.
    assert_eq!(fs::read(&small).unwrap(), fs::read(&large).unwrap());

    let trace = Trace::read(File::open(&small).unwrap()).unwrap();
    let asked = asked(&trace);
    let different: BTreeSet<_> = asked.iter().collect();
    for (ended, is_whole) in [(&little, false), (&whole, true)] {
        // The last token of the answer ends it and is not computed.
        let [read, _, written, _] = numbers(ended, " tokens read at ")[..] else {
            panic!("{ended:?}")
        };
        assert_eq!(trace.tokens() as f64, read + written - 1.0, "{ended:?}");
        let experts = numbers(ended, "fastar: Experts:");
        let [hits, misses, _, _, useful, wasted, _] = experts[..] else {
            panic!("{experts:?}")
        };
        // In percent, with one digit.
        let found = hits / 100.0 * asked.len() as f64;
        let rounding = 0.0006 * asked.len() as f64;
        assert!(found + misses <= asked.len() as f64 + rounding, "{ended:?}");
        // What is used from the disk has been read, on demand or ahead.
        if is_whole {
            assert_eq!(misses + useful, different.len() as f64, "{ended:?}");
            assert_eq!(wasted, 0.0);
        } else {
            assert!(misses + useful > different.len() as f64, "{ended:?}");
        }
    }

    let simulated = run(&["simulate", text(&small), "--slots", "100%", "--json"]);
    assert_eq!(simulated.code, Some(0), "{simulated:?}");
    let value: Value = serde_json::from_str(&simulated.out).unwrap();
    assert_eq!(value["tokens"], trace.tokens());
    let all = trace.shape.layers * trace.shape.experts;
    assert_eq!(value["rates"][0]["slots"], all);
}

#[test]
fn a_trace_takes_the_place_of_a_trace_and_of_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let model = converted("demo", folder.path());
    let before = fs::read(&model).unwrap();
    let with = |trace: &Path| {
        refused(&[
            "run",
            "--model",
            text(&model),
            "--prompt",
            "Hi",
            "--trace",
            text(trace),
        ])
    };
    let sentence = with(&model);
    assert!(sentence.contains("is a file of another kind"), "{sentence}");
    let sentence = refused(&["simulate", "--tokens", "3", "--save", text(&model)]);
    assert!(sentence.contains("is a file of another kind"), "{sentence}");
    assert!(fs::read(&model).unwrap() == before);
    let sentence = with(folder.path());
    assert!(sentence.contains("is not a regular file"), "{sentence}");
    #[cfg(unix)]
    {
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let sentence = with(&pipe);
        assert!(sentence.contains("is not a regular file"), "{sentence}");
        let sentence = refused(&["simulate", "--tokens", "3", "--save", text(&pipe)]);
        assert!(sentence.contains("is not a regular file"), "{sentence}");
    }
    let twice = [
        "logits", "--tokens", "ids.json", "--out", "a", "--trace", "a",
    ];
    assert_eq!(run(&twice).code, Some(2));
    // An older trace is replaced.
    let trace = folder.path().join("trace");
    for tokens in ["5", "3"] {
        let saved = run(&["simulate", "--tokens", tokens, "--save", text(&trace)]);
        assert_eq!(saved.code, Some(0), "{saved:?}");
        let read = Trace::read(File::open(&trace).unwrap()).unwrap();
        assert_eq!(read.tokens().to_string(), tokens);
    }
}

/// A file that may not grow any more is what a full disk is to a program.
#[cfg(target_os = "linux")]
#[test]
fn a_trace_that_cannot_be_written_whole_is_told_after_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let longest = |(_, answer): &(String, String)| answer.len();
    let (prompt, answer) = reference().into_iter().max_by_key(longest).unwrap();
    let fastar = fastar(&[]).get_program().to_owned();
    let limited = |arguments: &[&str]| {
        let mut command = std::process::Command::new("sh");
        // At most 1024 bytes in a file, and an error instead of a signal.
        let script = "trap '' XFSZ; ulimit -f 1 && exec \"$@\"";
        command.args(["-c", script, "sh"]).arg(&fastar);
        command.args(arguments).args(["--trace", text(&trace)]);
        command
    };
    let arguments = ["run", "--prompt", &prompt, "--temp", "0"];
    let ended: Ended = limited(&arguments).output().unwrap().into();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.out, format!("{answer}\n"));
    assert!(
        ended.err.starts_with("fastar: The routing trace "),
        "{ended:?}"
    );
    let kept = Trace::read(File::open(&trace).unwrap()).unwrap().tokens();
    let told = format!(" ends after {kept} tokens, for it could not be written");
    assert!(ended.err.contains(&told), "{ended:?}, {kept} kept");

    // A conversation goes on, and its end tells.
    let mut command = limited(&["chat", "--temp", "0"]);
    let input = folder.path().join("input");
    fs::write(&input, format!("{prompt}\n/reset\n{prompt}\n")).unwrap();
    command.stdin(File::open(&input).unwrap());
    let ended: Ended = command.output().unwrap().into();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.out, format!("{answer}\n").repeat(2));
    assert!(ended.err.contains("could not be written"), "{ended:?}");
}

#[test]
fn a_cache_for_what_is_in_memory_anyway_is_told_in_words() {
    let (prompt, answer) = reference().remove(0);
    let ended = run(&["run", "--prompt", &prompt, "--temp", "0", "--cache", "8G"]);
    assert_eq!(ended.out, format!("{answer}\n"));
    let expected = "fastar: All of the built-in demo model is in memory with this program; --cache changes nothing.\n";
    assert_eq!(ended.err, expected);
}

#[test]
fn what_was_hot_is_kept_in_the_folder_of_the_app_where_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let model = converted("demo", folder.path());
    let data = folder.path().join("data");
    let ask = || {
        let options = [
            "--prompt", "hi", "--tokens", "3", "--temp", "0", "--cache", "1M",
        ];
        let ended = fastar(&[&["run", "--model", text(&model)], &options[..]].concat())
            .env("FASTAR_DATA_DIR", &data)
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        ended.stdout
    };
    let answer = ask();
    // The app makes its folder so that nobody else can look into it.
    assert!(!data.exists());
    fs::create_dir(&data).unwrap();
    for _ in 0..2 {
        assert_eq!(ask(), answer);
        assert_eq!(fs::read_dir(data.join("hot-experts")).unwrap().count(), 1);
    }
    // A list that cannot be saved, nor read, harms nothing.
    let place = data.join("hot-experts");
    let aside = data.join("aside");
    fs::rename(&place, &aside).unwrap();
    fs::write(&place, "not a folder").unwrap();
    assert_eq!(ask(), answer);
    assert_eq!(fs::read(&place).unwrap(), b"not a folder");
    fs::remove_file(&place).unwrap();
    fs::rename(&aside, &place).unwrap();
    // What any ids need says nothing of what the person asks: the list stays as it is.
    let list = fs::read_dir(data.join("hot-experts"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let kept = fs::read(&list).unwrap();
    let (ids, out) = (folder.path().join("ids"), folder.path().join("out"));
    fs::write(&ids, "[1999, 3, 1500, 77]").unwrap();
    let ended = fastar(&[
        "logits",
        "--model",
        text(&model),
        "--cache",
        "1M",
        "--tokens",
        text(&ids),
        "--out",
        text(&out),
    ])
    .env("FASTAR_DATA_DIR", &data)
    .output()
    .unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(fs::read(&list).unwrap() == kept);
}
