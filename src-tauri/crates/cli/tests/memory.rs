//! What is asked for as memory for experts is what the program grows by, on every way in: no way may leave the wish unread.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use common::{Server, fastar, serve, text};
use fastar_testkit::{TestModel, Tiny, tiny};

/// 400 MB of experts: 64 of 1.6 MB in each of four layers.
fn model() -> TestModel {
    tiny(&Tiny {
        experts: 64,
        hidden: 512,
        intermediate: 512,
        ..Tiny::default()
    })
    .convert()
}

/// Text that sends tokens to experts all over the model.
fn prompt() -> String {
    (0u32..1500)
        .map(|i| char::from(b' ' + (i * i * 7 % 95) as u8))
        .collect()
}

/// The most memory a program has had so far, in bytes; none once it has ended.
///
/// `ru_maxrss` says the same, but counts what the program that started it had, too.
fn peak(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn grows_by_what_was_asked_for(peak_with: impl Fn(&str) -> u64) {
    const SMALL: u64 = 64_000_000;
    const LARGE: u64 = 256_000_000;
    // The smallest cache there is holds two experts.
    let base = peak_with("0");
    let (small, large) = (peak_with("64MB"), peak_with("256MB"));
    assert!(large >= small + 100_000_000, "{small} and {large}");
    for (cache, peak) in [(SMALL, small), (LARGE, large)] {
        let most = (cache + base) / 10 * 11;
        assert!(peak <= most, "{peak} with {cache} and {base} without");
    }
}

#[test]
fn the_program_grows_by_what_was_asked_for_on_every_way_in() {
    let model = model();
    of_an_answer_in_the_terminal(&model.path());
    of_answers_to_pages(&model.path());
}

fn of_an_answer_in_the_terminal(path: &Path) {
    grows_by_what_was_asked_for(|cache| {
        let mut child = fastar(&["run", "--model", text(path), "--prompt", &prompt()])
            .args(["--temp", "0", "--tokens", "40", "--cache", cache])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // With the first word of the answer the prompt has been to all experts.
        let mut answer = child.stdout.take().unwrap();
        let (mut piece, mut most) = ([0; 64], 0);
        while answer.read(&mut piece).unwrap() > 0 {
            most = peak(child.id()).unwrap_or(0).max(most);
        }
        assert!(child.wait().unwrap().success());
        most
    });
}

fn of_answers_to_pages(path: &Path) {
    grows_by_what_was_asked_for(|cache| {
        let model = ["--model", text(path), "--cache", cache, "--tokens", "40"];
        let server = serve(&[&["serve", "--port", "0"], &model[..]].concat());
        ask(&server, &prompt());
        peak(server.child.id()).unwrap()
    });
}

/// Sends a message to a new chat and waits for the end of the answer.
fn ask(server: &Server, message: &str) {
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
    let response = String::from_utf8_lossy(&response);
    assert!(response.contains("\"finished\""), "{response}");
}
