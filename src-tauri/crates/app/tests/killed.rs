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

/// Kills at moments that are spread over the first seconds of an answer: in each of some folders, one after the other.
const FOLDERS: usize = 4;
const KILLS: usize = 5;
/// One word takes at least 4 ms, and every 500 ms the text is saved: so many may be missing, which is 2 s.
const MAY_BE_LOST: usize = 500;

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
    script.wait_asked(1);
    for n in 0.. {
        script.say(&format!("word{n} "));
        std::thread::sleep(std::time::Duration::from_millis(4));
        println!("{n}");
        std::io::stdout().flush().unwrap();
    }
    unreachable!()
}

fn a_killed_process_loses_no_message_and_little_of_the_answer() {
    std::thread::scope(|scope| {
        for lane in 0..FOLDERS {
            scope.spawn(move || {
                let folder = tempfile::tempdir().unwrap();
                for round in 0..KILLS {
                    // Numbers without a pattern, from 30 to 730 words.
                    let words = 30 + (lane * KILLS + round) * 263 % 700;
                    kill_after(folder.path(), words);
                    look_after(folder.path(), words, round + 1);
                }
            });
        }
    });
}

fn kill_after(folder: &Path, words: usize) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("--write-until-killed")
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let came = said
        .lines()
        .map_while(Result::ok)
        .any(|line| line == words.to_string());
    // SIGKILL: nothing of the child runs after this.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(came);
}

fn look_after(folder: &Path, said: usize, chats_there: usize) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "json") {
            let text = std::fs::read(&path).unwrap();
            let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&text);
            assert!(parsed.is_ok(), "{}: {parsed:?}", path.display());
        }
    }
    let app = Script::new().app(folder);
    // And the chats were not set aside as damaged.
    assert_eq!(
        app.app_info().notices,
        [
            "FaStar ended unexpectedly while writing an answer in “a question before the kill”. What was written is there: let it go on with Continue."
        ]
    );
    let chats = app.chat_list().unwrap();
    assert_eq!(chats.len(), chats_there);
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
        words.len() + MAY_BE_LOST >= said,
        "only {} of {said} words were saved",
        words.len()
    );
    assert!(
        words.is_empty() || messages[1].text.ends_with(' '),
        "a word was cut"
    );
}
