//! What a model says is what a person gets, on every way out: `run`, `chat` and the stream of `serve`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::{Server, fed, reference, run, serve, text};
use fastar_testkit::Chain;

const TEXT: &str = "修复🙂é";

fn model() -> fastar_testkit::TestModel {
    let bytes: Vec<[u8; 1]> = TEXT.bytes().map(|b| [b]).collect();
    let pieces: Vec<&[u8]> = bytes.iter().map(|b| b.as_slice()).collect();
    Chain::answering(&pieces).model()
}

#[test]
fn on_stdout() {
    let model = model();
    let path = model.path();
    let once = run(&[
        "run",
        "--model",
        text(&path),
        "--prompt",
        "?",
        "--temp",
        "0",
    ]);
    assert_eq!((once.out, once.code), (format!("{TEXT}\n"), Some(0)));
    let chat = fed(&["chat", "--model", text(&path), "--temp", "0"], b"?\n");
    assert_eq!((chat.out, chat.code), (format!("{TEXT}\n"), Some(0)));
}

/// The text of the answer to a new chat's first message: as it came in pieces, and as the last event has it.
fn ask(server: &Server, message: &str) -> (String, String) {
    let (address, key) = (&server.address, server.key.as_ref().unwrap());
    let body = serde_json::json!({"chat_id": null, "message": {"text": message}}).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /api/message_send HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    // Strict: every byte of the stream is UTF-8, and every event is JSON.
    let response = String::from_utf8(response).unwrap();
    assert!(!response.contains('\u{FFFD}'));
    let (mut said, mut finished) = (String::new(), String::new());
    for data in response.lines().filter_map(|l| l.strip_prefix("data: ")) {
        let event: serde_json::Value = serde_json::from_str(data).unwrap();
        match event["type"].as_str().unwrap() {
            "started" => said.push_str(event["answer"]["text"].as_str().unwrap()),
            "text" => said.push_str(event["text"].as_str().unwrap()),
            "finished" => finished.push_str(event["answer"]["text"].as_str().unwrap()),
            _ => {}
        }
    }
    (said, finished)
}

#[test]
fn in_the_stream_of_the_server() {
    let model = model();
    let server = serve(&["serve", "--port", "0", "--model", text(&model.path())]);
    let (said, finished) = ask(&server, "?");
    assert_eq!((said.as_str(), finished.as_str()), (TEXT, TEXT));
}

#[test]
fn sixteen_clients_at_once_each_get_the_answer_they_would_get_alone() {
    let server = serve(&["serve", "--port", "0"]);
    let expected = reference();
    std::thread::scope(|scope| {
        for i in 0..16 {
            let (prompt, answer) = &expected[i % 8];
            let server = &server;
            scope.spawn(move || {
                let (said, finished) = ask(server, prompt);
                assert_eq!((&said, &finished), (answer, answer), "{prompt}");
            });
        }
    });
}
