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

/// What stands in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn whatever_may_not_grow_is_named_with_the_limit_and_leaves_nothing() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ids = data.path().join("ids.json");
    std::fs::write(&ids, "[1, 2, 3]").unwrap();
    let from = checkpoint("demo");
    let out = folder.path().join("out");
    let (ids, from, out, place) = (text(&ids), text(&from), text(&out), text(folder.path()));
    let long = "again and ".repeat(100);
    let tiny = ["bench", "--shape", "tiny", "--only", "model", "--folder"];
    // Blocks that a file may have, and the file that it concerns.
    let cases: [(&str, &str, Vec<&str>); 7] = [
        ("-f 100", "out", vec!["convert", from, out]),
        ("-f 1", "out", vec!["logits", "--tokens", ids, "--out", out]),
        ("-f 0", "out", vec!["run", "--prompt", "a", "--trace", out]),
        (
            "-f 1",
            "out",
            vec!["run", "--prompt", &long, "--trace", out],
        ),
        (
            "-f 4",
            "out",
            vec!["simulate", "--tokens", "40", "--save", out],
        ),
        ("-f 0", place, [&tiny[..], &[place]].concat()),
        ("-f 8", "tiny", [&tiny[..], &[place]].concat()),
    ];
    for (limit, name, arguments) in cases {
        let ended = within(limit, &arguments, data.path());
        let told = sentence(&ended);
        let bytes = 512 * limit[3..].parse::<u64>().unwrap();
        let why = format!(
            ": a file of this program may have no more than {bytes} bytes. Raise the limit (`ulimit -f unlimited`) and try again."
        );
        assert!(
            told.contains(name) && told.contains(&why) && !told.contains("os error"),
            "{arguments:?}: {told}"
        );
        // A trace is kept as far as it goes.
        if !told.contains(" ends after ") {
            assert_eq!(names(folder.path()), [""; 0], "{arguments:?}");
        }
        let _ = std::fs::remove_file(out);
    }
}

#[test]
fn what_is_read_piece_by_piece_needs_few_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let model = common::converted("demo", folder.path());
    let from = checkpoint("demo");
    // Damaged, so that there is something to mend: the end of the last expert.
    let mut bytes = std::fs::read(&model).unwrap();
    let whole = bytes.clone();
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    std::fs::write(&model, bytes).unwrap();
    let few = "-v 300000";
    let repair = ["repair", text(&model), "--from", text(&from)];
    let ended = within(few, &repair, folder.path());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(std::fs::read(&model).unwrap() == whole);
    let verify = ["verify", "--full", text(&model)];
    let ended = within(few, &verify, folder.path());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("is whole"), "{ended:?}");
    for command in [&repair[..], &verify] {
        let ended = within("-v 250000", command, folder.path());
        let told = sentence(&ended);
        assert!(
            told.contains("256 MB of address space, and it needs 268 MB. Raise the limit (`ulimit -v unlimited`)"),
            "{told}"
        );
    }
}

/// With as many processes as that and no rights of root, which no such limit holds for; none where the tests cannot give up theirs.
#[cfg(target_os = "linux")]
fn with_processes(most: usize, arguments: &[&str], data: &Path) -> Option<Command> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(data, std::fs::Permissions::from_mode(0o777)).unwrap();
    // An account that nobody has, so that nothing else counts.
    let account = (1_000_000 + std::process::id()).to_string();
    let become_it = |program: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &account, "--regid", &account, "--clear-groups"])
            .args(program)
            .env("FASTAR_DATA_DIR", data)
            .env("HOME", data)
            .stdin(Stdio::null());
        command
    };
    let program = env!("CARGO_BIN_EXE_fastar");
    let can = become_it(&[program, "--version"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let limit = format!("--nproc={most}");
    Some(become_it(
        &[&["prlimit", &limit, program], arguments].concat(),
    ))
}

#[cfg(target_os = "linux")]
#[test]
fn as_many_threads_as_are_said_to_be_needed_suffice() {
    use std::io::BufRead as _;
    let data = tempfile::tempdir().unwrap();
    let run = ["run", "--prompt", "hi", "--tokens", "1"];
    let with = |most, arguments: &[&str]| with_processes(most, arguments, data.path());
    for arguments in [&run[..], &["serve", "--port", "0"]] {
        // With one not even the first of them is there.
        let said: Vec<usize> = [1, 2]
            .into_iter()
            .filter_map(|most| with(most, arguments))
            .map(|mut command| {
                let ended: Ended = command.output().unwrap().into();
                let told = sentence(&ended).to_owned();
                let number = told.split(", and it needs ").nth(1).unwrap();
                number.split(' ').next().unwrap().parse().unwrap()
            })
            .collect();
        let [first, second] = said[..] else {
            return;
        };
        assert_eq!(first, second, "{arguments:?}");
        let mut child = with(first, arguments)
            .unwrap()
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(!line.is_empty(), "{arguments:?} with {first}");
        if arguments[0] == "serve" {
            common::signal(&child, "TERM");
        }
        assert!(child.wait().unwrap().success());
        // One fewer does not.
        let fewer: Ended = with(first - 1, arguments).unwrap().output().unwrap().into();
        assert!(sentence(&fewer).contains("ulimit -u"));
    }
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
