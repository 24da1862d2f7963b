//! The process is killed in the middle of an answer, again and again; the next start finds the chat and the partial answer.
//!
//! This program starts itself as the one to be killed, so it has a `main` of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scripted;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use fastar_api::{MessageStatus, Role};
use scripted::Script;

/// Words said before the kill. One takes at least 4 ms, so the last save (every 500 ms) is well within them.
const WORDS: usize = 600;
const SURELY_SAVED: usize = 150;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(place) = arguments.iter().position(|a| a == "--write-until-killed") {
        write_until_killed(Path::new(&arguments[place + 1]));
    }
    if arguments.iter().any(|a| a == "--list") {
        println!("a_killed_process_loses_no_message_and_little_of_the_answer: test");
        return;
    }
    a_killed_process_loses_no_message_and_little_of_the_answer();
    println!("a_killed_process_loses_no_message_and_little_of_the_answer ... ok");
}

fn write_until_killed(folder: &Path) -> ! {
    let script = Script::new();
    let app = script.app(folder);
    let _listener = app
        .message_send(None, "a question before the kill")
        .unwrap();
    for n in 0.. {
        script.say(&format!("word{n} "));
        std::thread::sleep(std::time::Duration::from_millis(4));
        println!("{n}");
        std::io::stdout().flush().unwrap();
    }
    unreachable!()
}

fn a_killed_process_loses_no_message_and_little_of_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    for round in 1..=3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("--write-until-killed")
            .arg(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let enough = WORDS + 37 * round;
        assert!(
            said.lines()
                .map_while(Result::ok)
                .any(|line| line == enough.to_string())
        );
        // SIGKILL: nothing of the child runs after this.
        child.kill().unwrap();
        child.wait().unwrap();

        let app = Script::new().app(folder.path());
        assert_eq!(app.app_info().notice, None);
        let chats = app.chat_list().unwrap();
        assert_eq!(chats.len(), round);
        let messages = app.chat_open(&chats[0].id).unwrap().messages;
        assert_eq!(messages.len(), 2);
        assert_eq!(
            (messages[0].role, messages[0].text.as_str()),
            (Role::User, "a question before the kill")
        );
        assert_eq!(messages[1].status, MessageStatus::Interrupted);
        let words: Vec<_> = messages[1].text.split_terminator(' ').collect();
        for (n, word) in words.iter().enumerate() {
            assert_eq!(*word, format!("word{n}"));
        }
        assert!(
            words.len() >= SURELY_SAVED,
            "only {} of {enough} words were saved",
            words.len()
        );
        assert!(messages[1].text.ends_with(' '), "a word was cut");
    }
}
