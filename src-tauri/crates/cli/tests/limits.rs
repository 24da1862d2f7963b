//! A computer that gives this program little: one sentence says what, and nothing panics, hangs or ends without a word.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{Ended, checkpoint, text};

/// Runs with what `ulimit` allows.
fn within(limit: &str, arguments: &[&str], data: &Path) -> Ended {
    let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_fastar")])
        .args(arguments)
        .env("FASTAR_DATA_DIR", data)
        .env_remove("FASTAR_MODELS_DIR")
        .env_remove("FASTAR_MODEL")
        .env_remove("FASTAR_LOG")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap()
        .into()
}

fn sentence(ended: &Ended) -> &str {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let sentence = ended.err.strip_prefix("fastar: ").unwrap();
    assert_eq!(sentence.lines().count(), 1, "{ended:?}");
    assert!(!sentence.contains("panicked"), "{ended:?}");
    sentence
}

#[test]
fn few_open_files_or_addresses_are_told_by_every_long_command() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.fst");
    let (from, data) = (checkpoint("c_fp8_fp4"), folder.path().join("data"));
    for command in [
        &["run", "--prompt", "a"][..],
        &["serve", "--port", "0"],
        &["convert", text(&from), text(&out)],
        &["bench", "--only", "machine"],
        &["download", "--yes", "a/b"],
    ] {
        for files in ["6", "8", "12"] {
            let ended = within(&format!("-n {files}"), command, &data);
            let told = sentence(&ended);
            assert!(told.contains(&format!("only {files} files")), "{told}");
            assert!(told.contains("ulimit -n"), "{told}");
        }
        let ended = within("-v 300000", command, &data);
        let told = sentence(&ended);
        assert!(
            told.contains("307 MB of address space") && told.contains("ulimit -v"),
            "{told}"
        );
    }
    assert!(!out.exists());
}

#[test]
fn a_file_that_may_not_grow_is_an_error_and_leaves_no_trace_of_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let from = checkpoint("demo");
    let (out, trace) = (
        folder.path().join("out.fst"),
        folder.path().join("new.trace"),
    );
    let ended = within(
        "-f 100",
        &["convert", text(&from), text(&out)],
        folder.path(),
    );
    let told = sentence(&ended);
    assert!(told.contains("ulimit -f"), "{told}");
    assert!(!out.exists());
    let trace_to = ["run", "--prompt", "a", "--trace", text(&trace)];
    let ended = within("-f 0", &trace_to, folder.path());
    let told = sentence(&ended);
    assert!(told.contains("new.trace"), "{told}");
    assert!(!trace.exists());
    let save = ["simulate", "--tokens", "40", "--save", text(&trace)];
    let ended = within("-f 4", &save, folder.path());
    let told = sentence(&ended);
    assert!(told.contains("new.trace"), "{told}");
    assert!(!trace.exists());
}

#[test]
fn a_database_that_may_not_grow_is_named_with_the_limit() {
    let data = tempfile::tempdir().unwrap();
    let ended = within("-f 8", &["serve", "--port", "0"], data.path());
    let told = sentence(&ended);
    assert!(
        told.contains("chats.db cannot grow: this program may write files of ")
            && told.contains("ulimit -f"),
        "{told}"
    );
    assert!(!told.contains("room"), "{told}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_stack_on_which_nothing_can_run_is_told() {
    // The loader of the system needs about fourteen kilobytes before this program is asked anything.
    let ended: Ended = Command::new("sh")
        .args(["-c", "ulimit -s 24 && exec \"$0\" --version"])
        .arg(env!("CARGO_BIN_EXE_fastar"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()
        .unwrap()
        .into();
    let told = sentence(&ended);
    assert!(
        told.contains("less than 32 KiB of stack") && told.contains("ulimit -s"),
        "{told}"
    );
}
