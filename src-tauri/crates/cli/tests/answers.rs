//! `fastar run` and `fastar chat` without a terminal: what goes in, what comes out, how it ends.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{converted, fastar, fed, reference, run, signal, text};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};

/// Begins an answer that never comes to an end by itself.
fn endless(model: &Path) -> Child {
    fastar(&[
        "run",
        "--model",
        text(model),
        "--prompt",
        "Go on",
        "--temp",
        "0",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap()
}

#[test]
fn run_prints_the_answer_of_the_reference_and_nothing_else() {
    for (prompt, answer) in reference().into_iter().take(4) {
        let ended = run(&["run", "--prompt", &prompt, "--temp", "0"]);
        assert_eq!(ended.code, Some(0));
        assert_eq!(ended.out, format!("{answer}\n"));
        assert_eq!(ended.err, "");
    }
}

#[test]
fn a_prompt_from_stdin_or_a_file_gives_the_same_answer() {
    let (prompt, answer) = reference().remove(0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("Frage 'ü \u{1f642}.txt");
    // One newline at the end, as editors and echo add it, is not part of the prompt.
    fs::write(&file, format!("{prompt}\n")).unwrap();
    let expected = format!("{answer}\n");
    for arguments in [["--prompt", "-"], ["--prompt-file", "-"]] {
        let all = [&["run", "--temp", "0"][..], &arguments].concat();
        assert_eq!(fed(&all, format!("{prompt}\r\n").as_bytes()).out, expected);
        assert_eq!(fed(&all, prompt.as_bytes()).out, expected);
    }
    assert_eq!(
        run(&["run", "--temp", "0", "--prompt-file", text(&file)]).out,
        expected
    );
}

#[test]
fn the_flags_of_the_original_give_the_same_answer() {
    let folder = tempfile::tempdir().unwrap();
    let model = converted("demo", folder.path());
    let (prompt, answer) = reference().remove(0);
    let expected = format!("{answer}\n");
    let model = text(&model);
    for arguments in [
        &["--prompt", &prompt, "--temp", "0"][..],
        &[
            "--model", model, "--prompt", &prompt, "--tokens", "200", "--temp", "0", "--top_p", "1",
        ],
        &[
            "--model-dir",
            text(folder.path()),
            "--prompt",
            &prompt,
            "--temp",
            "0",
        ],
        &[
            "run",
            "--model",
            model,
            "--prompt",
            &prompt,
            "--temp",
            "0",
            "--threads",
            "1",
        ],
    ] {
        assert_eq!(run(arguments).out, expected, "{arguments:?}");
    }
    let ended = fed(&["--interactive", "--temp", "0"], prompt.as_bytes());
    assert_eq!(
        (ended.code, ended.out.as_str()),
        (Some(0), expected.as_str())
    );
}

#[test]
fn tokens_limits_the_answer() {
    let (prompt, answer) = reference().remove(1);
    let ended = run(&["run", "--prompt", &prompt, "--temp", "0", "--tokens", "3"]);
    assert_eq!(ended.code, Some(0));
    let start = ended.out.trim_end_matches('\n');
    assert!(
        answer.starts_with(start) && start.len() < answer.len() && !start.is_empty(),
        "{ended:?}"
    );
    assert_eq!(ended.err, "");
}

#[test]
fn the_same_seed_gives_the_same_answer_and_another_seed_another() {
    let with = |seed| {
        run(&[
            "run",
            "--prompt",
            "Tell me a story",
            "--temp",
            "1.5",
            "--seed",
            seed,
            "--tokens",
            "40",
        ])
        .out
    };
    assert_eq!(with("7"), with("7"));
    assert_ne!(with("7"), with("8"));
}

#[test]
fn a_prompt_that_cannot_be_read_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let latin1 = folder.path().join("latin1.txt");
    fs::write(&latin1, b"caf\xe9").unwrap();
    for (file, says) in [
        (text(&latin1), "is not UTF-8 text: byte 4"),
        (text(folder.path()), "Could not read"),
        ("/no/such/file", "Could not open /no/such/file"),
    ] {
        let error = common::refused(&["run", "--prompt-file", file]);
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(
        common::refused(&["run", "--prompt", " \n"]),
        "The prompt is empty."
    );
    assert_eq!(
        common::refused(&["run", "--prompt", "-"]),
        "The prompt is empty."
    );
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_numbers() {
    let ended = fed(
        &["run", "--prompt", "-"],
        "once upon a time ".repeat(20_000).as_bytes(),
    );
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("4096"), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 1);
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let model = common::endless();
    let mut child = endless(&model.path());
    let mut first = [0];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    // Our end of the pipe is closed now.
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = fastar(&["run", "--prompt", "Hello!"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        err.contains("could not be written") && err.lines().count() == 1,
        "{err}"
    );
}

#[test]
fn ctrl_c_ends_run_with_130_and_the_text_so_far() {
    let model = common::endless();
    let mut child = endless(&model.path());
    let mut out = child.stdout.take().unwrap();
    let mut words = vec![0];
    out.read_exact(&mut words).unwrap();
    signal(&child, "INT");
    out.read_to_end(&mut words).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    // What was written is the beginning of the whole answer.
    let words = String::from_utf8(words).unwrap();
    let start = words.strip_suffix('\n').unwrap();
    let whole = "again and ".repeat(start.len() / 10 + 1);
    assert!(!start.is_empty() && whole.starts_with(start), "{words:?}");
}

#[test]
fn the_end_of_input_ends_a_chat_after_the_answers_that_were_asked_for() {
    let answers = |input: &str| {
        let ended = fed(&["chat", "--temp", "0"], input.as_bytes());
        assert_eq!(ended.code, Some(0), "{input:?}: {ended:?}");
        ended.out
    };
    let (prompt, answer) = reference().remove(0);
    let one = format!("{answer}\n");
    assert_eq!(answers(""), "");
    assert_eq!(answers(&format!("{prompt}\n")), one);
    assert_eq!(answers(&prompt), one);
    assert_eq!(answers(&format!("\n\n \n{prompt}\n")), one);
}

#[test]
fn a_chat_remembers_until_reset() {
    let (hello, answer) = reference().remove(0);
    let (second, alone) = reference().remove(1);
    let chat = |input: String| fed(&["chat", "--temp", "0"], input.as_bytes());
    // After /reset the second question is answered as if it were the first.
    let reset = chat(format!("{hello}\n/reset\n{second}\n"));
    assert_eq!(reset.out, format!("{answer}\n{alone}\n"));
    // A second turn is what the engine says about the whole conversation: the reference has one.
    let json: serde_json::Value = serde_json::from_slice(
        &fs::read(common::checkpoint("demo").join("expected.json")).unwrap(),
    )
    .unwrap();
    let turn = json
        .as_array()
        .unwrap()
        .iter()
        .find(|case| {
            case["rendered"]
                .as_str()
                .is_some_and(|r| r.matches("<｜User｜>").count() == 2)
        })
        .expect("the reference has a second turn");
    let rendered = turn["rendered"].as_str().unwrap();
    let users: Vec<&str> = rendered
        .split("<｜User｜>")
        .skip(1)
        .map(|part| part.split("<｜Assistant｜>").next().unwrap())
        .collect();
    let both = chat(format!("{}\n{}\n", users[0], users[1]));
    let last = both.out.lines().last().unwrap();
    assert_eq!(last, turn["text"].as_str().unwrap());
}

#[test]
fn commands_of_a_chat_are_explained_and_never_sent() {
    let ended = fed(&["chat"], b"/help\n/fly me\n/quit\nHello!\n");
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""));
    for part in ["/reset", "/quit", "There is no command /fly."] {
        assert!(ended.err.contains(part), "{part} is not in {ended:?}");
    }
}

#[test]
fn a_line_that_is_not_text_ends_a_piped_chat_with_an_error() {
    let ended = fed(&["chat"], b"caf\xe9\n");
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.err, "fastar: A line of stdin is not UTF-8 text.\n");
}

#[test]
fn logs_are_off_and_go_to_stderr_when_asked_for() {
    let arguments = ["run", "--prompt", "Hello!", "--temp", "0"];
    let quiet = run(&arguments);
    for name in ["FASTAR_LOG", "RUST_LOG"] {
        let loud = fastar(&arguments).env(name, "debug").output().unwrap();
        assert_eq!(String::from_utf8(loud.stdout).unwrap(), quiet.out);
        let log = String::from_utf8(loud.stderr).unwrap();
        assert!(log.contains("container opened"), "{log}");
        assert!(
            !log.contains("Hello!") && !log.contains(quiet.out.trim()),
            "{log}"
        );
    }
    let wrong = fastar(&arguments)
        .env("FASTAR_LOG", "a=b=c")
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}
