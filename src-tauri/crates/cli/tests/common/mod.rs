//! Running the real `fastar`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

/// The program, without input and without what the environment of the tests may set.
pub fn fastar(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fastar"));
    command.args(arguments).stdin(Stdio::null());
    // What the person who runs the tests has chosen does not count.
    command.env("FASTAR_DATA_DIR", "/no/such/folder");
    for name in [
        "FASTAR_LOG",
        "RUST_LOG",
        "FASTAR_MODEL",
        "FASTAR_MODELS_DIR",
        "FASTAR_TEMPERATURE",
        "HF_ENDPOINT",
        "HF_TOKEN",
        "HF_TOKEN_PATH",
    ] {
        command.env_remove(name);
    }
    command
}

/// A model whose answers, "again and again and ...", never come to an end by themselves.
pub fn endless() -> fastar_testkit::TestModel {
    let mut chain = fastar_testkit::Chain::new(&[b"again ", b"and "]);
    let [begin, again, and] = [
        chain.vocabulary.control("</think>"),
        chain.vocabulary.id(b"again "),
        chain.vocabulary.id(b"and "),
    ];
    chain.follow(&[begin, again, and, again]);
    chain.checkpoint(1_000_000).convert()
}

/// What a program left behind.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub fn run(arguments: &[&str]) -> Ended {
    fastar(arguments).output().unwrap().into()
}

/// Runs with `input` on stdin.
pub fn fed(arguments: &[&str], input: &[u8]) -> Ended {
    let mut child = fastar(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap().into()
}

/// Runs, expects the exit code 1 and one sentence that names the program, and returns the sentence.
pub fn refused(arguments: &[&str]) -> String {
    let ended = run(arguments);
    assert_eq!(ended.code, Some(1), "{arguments:?}: {ended:?}");
    assert_eq!(ended.out, "", "{arguments:?}");
    let sentence = ended
        .err
        .strip_prefix("fastar: ")
        .unwrap_or_else(|| panic!("{ended:?}"));
    assert!(
        sentence.ends_with('\n') && sentence.lines().count() == 1,
        "{ended:?}"
    );
    assert!(!sentence.contains("panicked"), "{ended:?}");
    sentence.trim_end().to_owned()
}

/// Sends a signal, as Ctrl+C in a terminal or the system at shutdown would.
pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// The same for a program that may have ended meanwhile and was not waited for yet.
pub fn signal_if_there(child: &Child, name: &str) {
    let _ = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .stderr(Stdio::null())
        .status()
        .unwrap();
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A checkpoint folder of this project.
pub fn checkpoint(name: &str) -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    match name {
        "demo" => crates.join("app/demo"),
        _ => crates.join("engine/tests/fixtures").join(name),
    }
}

/// Converts a checkpoint with the program itself.
pub fn converted(name: &str, folder: &Path) -> PathBuf {
    let out = folder.join(format!("{name}.fst"));
    let ended = run(&["convert", text(&checkpoint(name)), text(&out)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    out
}

/// Prompts and answers of the demo model from the independent reference, which chose the likeliest token each time.
pub fn reference() -> Vec<(String, String)> {
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(checkpoint("demo").join("expected.json")).unwrap())
            .unwrap();
    json.as_array()
        .unwrap()
        .iter()
        .filter_map(|case| {
            Some((
                case["prompt"].as_str()?.to_owned(),
                case["text"].as_str()?.to_owned(),
            ))
        })
        .collect()
}

/// `fastar serve`, ended with the test.
pub struct Server {
    pub child: Child,
    pub address: String,
    err: BufReader<ChildStderr>,
    /// What commands need; none with `--no-key`.
    pub key: Option<String>,
    _data: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// The next line of stderr.
    pub fn said(&mut self) -> String {
        let mut line = String::new();
        self.err.read_line(&mut line).unwrap();
        line
    }
}

/// Starts it with a data folder of its own and at temperature 0, and waits until it says where it is.
pub fn serve(arguments: &[&str]) -> Server {
    serve_in(tempfile::tempdir().unwrap(), arguments)
}

/// The same with this data folder.
pub fn serve_in(data: tempfile::TempDir, arguments: &[&str]) -> Server {
    let mut child = fastar(arguments)
        .env("FASTAR_DATA_DIR", data.path())
        .env("FASTAR_TEMPERATURE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next())
        .unwrap_or_else(|| panic!("no address in {line:?}"))
        .trim()
        .to_owned();
    let key = line
        .split("/#key=")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .map(str::to_owned);
    Server {
        child,
        address,
        err,
        key,
        _data: data,
    }
}
