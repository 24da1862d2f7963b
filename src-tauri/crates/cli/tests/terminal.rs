//! `fastar` in a real terminal, which `script` (util-linux) provides.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use fastar_testkit::hub::{Fault, HubServer};
use fastar_testkit::{Kind, Synthetic};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const CTRL_C: &[u8] = b"\x03";
const CTRL_D: &[u8] = b"\x04";

/// A program in a terminal: keys go in, what a person would see comes out.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Receiver<Vec<u8>>,
    seen: String,
    /// Up to here `seen` was waited for.
    read: usize,
}

impl Terminal {
    fn start(arguments: &str) -> Self {
        Self::start_with(&[], arguments)
    }

    fn start_with(environment: &[(&str, &str)], arguments: &str) -> Self {
        // `exec`, or the shell stays between: one that gets the Ctrl+C too may end with its code instead of the program's.
        let command = format!("exec '{}' {arguments}", env!("CARGO_BIN_EXE_fastar"));
        let mut child = Command::new("script")
            .args([
                "--quiet",
                "--return",
                "--flush",
                "--command",
                &command,
                "/dev/null",
            ])
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .env_remove("FASTAR_LOG")
            .env_remove("RUST_LOG")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let keys = child.stdin.take().unwrap();
        let mut out = child.stdout.take().unwrap();
        let (send, screen) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = out.read(&mut piece) {
                if send.send(piece[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            keys,
            screen,
            seen: String::new(),
            read: 0,
        }
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until `text` appears after what was waited for before.
    fn expect(&mut self, text: &str) {
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(at) = self.seen[self.read..].find(text) {
                self.read += at + text.len();
                return;
            }
            match self
                .screen
                .recv_timeout(give_up.saturating_duration_since(Instant::now()))
            {
                Ok(piece) => self.seen.push_str(&String::from_utf8_lossy(&piece)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{text:?} did not appear; the screen: {:?}", self.seen);
                }
            }
        }
    }

    fn exit_code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_person_chats_and_leaves_with_ctrl_d() {
    let mut terminal = Terminal::start("chat --temp 0");
    terminal.expect("> ");
    let (prompt, answer) = common::reference().remove(0);
    terminal.press(format!("{prompt}\r").as_bytes());
    terminal.expect(&answer);
    terminal.expect("tokens/s");
    terminal.expect("> ");
    terminal.press(b"/help\r");
    terminal.expect("/reset");
    terminal.expect("> ");
    terminal.press(CTRL_D);
    assert_eq!(terminal.exit_code(), Some(0));
}

#[test]
fn ctrl_c_stops_the_answer_and_not_the_program() {
    let model = common::endless();
    let mut terminal = Terminal::start(&format!(
        "chat --temp 0 --model '{}'",
        model.path().display()
    ));
    terminal.expect("> ");
    terminal.press(b"Tell me a story\r");
    // The echo of the question, then the first of the answer.
    terminal.expect("Tell me a story");
    terminal.expect("again and again");
    terminal.press(CTRL_C);
    terminal.expect("[stopped, ");
    terminal.expect("> ");
    terminal.press(b"/reset\r");
    terminal.expect("starts over");
    terminal.expect("> ");
    terminal.press(b"/quit\r");
    assert_eq!(terminal.exit_code(), Some(0));
}

#[test]
fn ctrl_c_at_the_prompt_clears_the_line_and_the_second_leaves() {
    let mut terminal = Terminal::start("chat --temp 0");
    terminal.expect("> ");
    terminal.press(b"half a thought");
    terminal.expect("thought");
    terminal.press(CTRL_C);
    terminal.expect("Press Ctrl+C again or Ctrl+D to leave.");
    terminal.expect("> ");
    // Anything entered in between makes the next one the first again, and the half thought is gone.
    terminal.press(b"Hello!\r");
    terminal.expect("Ask me something");
    terminal.expect("> ");
    terminal.press(CTRL_C);
    terminal.expect("Press Ctrl+C again");
    terminal.expect("> ");
    terminal.press(CTRL_C);
    assert_eq!(terminal.exit_code(), Some(130));
}

#[test]
fn an_answer_ends_with_a_newline_in_a_terminal() {
    let mut terminal = Terminal::start("run --prompt 'Hello!' --temp 0");
    let answer = common::reference().remove(0).1;
    terminal.expect(&format!("{answer}\r\n"));
    assert_eq!(terminal.exit_code(), Some(0));
}

#[test]
fn a_download_is_agreed_to_shows_how_far_it_is_and_stops_with_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("checkpoint");
    Synthetic::small(Kind::Preview)
        .save(&source, &mut |_, _| {})
        .unwrap();
    let hub = HubServer::start("acme/tiny", "", &[]);
    for entry in std::fs::read_dir(&source).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        hub.put(&name, std::fs::read(entry.path()).unwrap());
    }
    // It never ends by itself.
    hub.fault("*", Fault::Stall { after: 300_000 }, 1000);
    let home = folder.path().to_str().unwrap();
    let environment = [
        ("HF_ENDPOINT", hub.endpoint()),
        ("FASTAR_DATA_DIR", format!("{home}/data")),
        ("HF_HOME", home.to_owned()),
    ];
    let environment = environment
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let command = format!("download acme/tiny --to '{home}/models'");
    let mut terminal = Terminal::start_with(&environment, &command);
    terminal.expect("to fetch in");
    terminal.expect("Download it? [y/N] ");
    assert!(
        hub.sent() < 300_000,
        "more than the index came before the yes"
    );
    terminal.press(b"n\r");
    terminal.expect("Nothing was downloaded.");
    assert_eq!(terminal.exit_code(), Some(1));
    assert!(!folder.path().join("models").exists());

    let mut terminal = Terminal::start_with(&environment, &command);
    terminal.expect("[y/N] ");
    terminal.press(b"y\r");
    terminal.expect("Downloading: [");
    terminal.expect(" % of ");
    terminal.press(CTRL_C);
    terminal.expect("everything so far is kept");
    assert_eq!(terminal.exit_code(), Some(130));

    let mut terminal = Terminal::start_with(&environment, &command);
    terminal.expect("Going on with acme/tiny");
    terminal.press(CTRL_C);
    assert_eq!(terminal.exit_code(), Some(130));
}
