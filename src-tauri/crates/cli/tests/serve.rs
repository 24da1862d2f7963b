//! `fastar serve`: starts, answers, ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Server, fastar, run, serve, serve_in, signal, text};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

fn get(server: &Server, path: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        server.address
    )
    .unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

#[test]
fn it_prints_where_it_is_serves_the_interface_and_ends_cleanly() {
    for (arguments, how) in [
        (&["serve", "--port", "0"][..], "INT"),
        (&["--serve", "--port", "0"], "TERM"),
    ] {
        let mut server = serve(arguments);
        assert!(
            server.address.starts_with("127.0.0.1:"),
            "{}",
            server.address
        );
        let page = get(&server, "/");
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        assert!(
            page.contains("<!doctype html>") || page.contains("<!DOCTYPE html>"),
            "{page}"
        );
        signal(&server.child, how);
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn who_knows_the_address_may_end_it_at_once() {
    // Nothing is between the line and the signal, which is where one that was not yet heard killed the server, and its answers with it.
    for how in ["INT", "TERM", "HUP", "QUIT"].repeat(3) {
        let mut server = serve(&["serve", "--port", "0"]);
        signal(&server.child, how);
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{how}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn who_wants_it_to_end_before_it_serves_ends_it_in_order() {
    use std::os::fd::OwnedFd;
    use std::process::Stdio;
    for (how, bit) in [("INT", 1), ("QUIT", 2), ("TERM", 14), ("HUP", 0)] {
        let data = tempfile::tempdir().unwrap();
        // What it has to say of its settings goes where nothing more fits, so that it does not come to its address.
        std::fs::write(data.path().join("settings.json"), r#"{"theme": "blue"}"#).unwrap();
        let (mut said, mut says) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&says, true).unwrap();
        while matches!(says.write(b"."), Ok(1)) {}
        rustix::io::ioctl_fionbio(&says, false).unwrap();
        let mut child = fastar(&["serve", "--port", "0"])
            .env("FASTAR_DATA_DIR", data.path())
            .stdout(Stdio::piped())
            .stderr(OwnedFd::from(says))
            .spawn()
            .unwrap();
        // Until it hears signals or has begun with its chats, whichever is first: it is the former.
        let status = format!("/proc/{}/status", child.id());
        let hears = || {
            let status = std::fs::read_to_string(&status).unwrap();
            let mask = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
            u64::from_str_radix(mask.unwrap().trim(), 16).unwrap() >> bit & 1 == 1
        };
        while !hears() && !data.path().join("chats.db").exists() {
            std::thread::yield_now();
        }
        signal(&child, how);
        // Now it can speak.
        let mut all = Vec::new();
        said.read_to_end(&mut all).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{how}");
        assert!(!String::from_utf8_lossy(&all).contains("panicked"));
    }
}

#[test]
fn sampling_is_chosen_as_run_has_it() {
    let (prompt, _) = common::reference().remove(0);
    let sampling = [
        "--temp", "1.5", "--top-p", "0.9", "--seed", "7", "--tokens", "12",
    ];
    let once = run(&[&["run", "--prompt", &prompt], &sampling[..]].concat());
    let server = serve(&[&["serve", "--port", "0"], &sampling[..]].concat());
    let key = server.key.clone().unwrap();
    let body = serde_json::json!({"chat_id": null, "message": {"text": prompt}}).to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "POST /api/message_send HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        server.address,
        body.len()
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let finished = response
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str::<serde_json::Value>(data).unwrap())
        .find(|event| event["type"] == "finished")
        .unwrap();
    let answer = finished["answer"]["text"].as_str().unwrap();
    assert_eq!(format!("{answer}\n"), once.out, "{once:?}");
}

#[test]
fn a_model_of_choice_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let model = common::converted("demo", folder.path());
    let server = serve(&["serve", "--port", "0", "--model", text(&model)]);
    assert!(get(&server, "/health").contains("ok"));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    // The model is not even looked at: this one does not exist.
    let error = common::refused(&["serve", "--port", &port, "--model", "/no/such.fst"]);
    assert!(error.contains(&format!("Port {port} is in use")), "{error}");
}

#[test]
fn nobody_is_sent_to_whoever_answers_on_a_port_that_is_taken() {
    // FaStar, and another account's program that answers as FaStar does to who has no key.
    let first = serve(&["serve", "--port", "0"]);
    let liar = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = liar.local_addr().unwrap();
    let refusal = r#"{"code":"no_access","message":"m","hint":null,"details":null}"#;
    std::thread::spawn(move || {
        for stream in liar.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = write!(
                stream,
                "HTTP/1.1 401 Unauthorized\r\nContent-Length: {}\r\n\r\n{refusal}",
                refusal.len()
            );
        }
    });
    for address in [first.address.clone(), address.to_string()] {
        let port = address.split(':').nth(1).unwrap();
        let error = common::refused(&["serve", "--port", port]);
        assert!(
            error.starts_with(&format!(
                "Port {port} is in use. If FaStar runs there already, use the whole address that it printed"
            )),
            "{error}"
        );
        assert!(
            !error.contains("http") && error.contains("--port"),
            "{error}"
        );
    }
}

#[test]
fn what_the_cache_became_is_said_as_run_says_it() {
    let folder = tempfile::tempdir().unwrap();
    let model = common::converted("demo", folder.path());
    for cache in ["1G", "1M"] {
        let options = ["--model", text(&model), "--cache", cache];
        let once = run(&[&["run", "--prompt", "hi", "--tokens", "1"], &options[..]].concat());
        let expected = once
            .err
            .lines()
            .find(|line| line.starts_with("fastar: Expert cache: "))
            .unwrap_or_else(|| panic!("{once:?}"));
        let mut server = serve(&[&["serve", "--port", "0"], &options[..]].concat());
        assert_eq!(server.said().trim_end(), expected);
    }
}

#[test]
fn a_setting_that_does_not_count_is_said_on_every_way_in() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("settings.json");
    std::fs::write(&file, r#"{"theme": "blue"}"#).unwrap();
    let sentence = format!(
        "fastar: The setting `theme` in {} is \"blue\" and must be ",
        file.display()
    );
    for arguments in [
        &["run", "--prompt", "hi", "--tokens", "1"][..],
        &["chat"],
        &["doctor"],
    ] {
        let output = fastar(arguments)
            .env("FASTAR_DATA_DIR", data.path())
            .output()
            .unwrap();
        let ended = common::Ended::from(output);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.err.starts_with(&sentence), "{ended:?}");
        assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    }
    let mut server = serve_in(data, &["serve", "--port", "0"]);
    assert!(server.said().starts_with(&sentence));
}

#[test]
fn a_temperature_in_the_environment_that_is_none_is_named() {
    let data = tempfile::tempdir().unwrap();
    let output = fastar(&["serve", "--port", "0"])
        .env("FASTAR_DATA_DIR", data.path())
        .env("FASTAR_TEMPERATURE", "warm")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("FASTAR_TEMPERATURE") && error.lines().count() == 1,
        "{error}"
    );
}

/// What a command answers: its status line.
fn post(server: &Server, more: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "POST /api/chat_list HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n{more}\r\n{{}}",
        server.address
    )
    .unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let response = String::from_utf8_lossy(&response).into_owned();
    response.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn chats_are_for_who_has_the_printed_address() {
    let server = serve(&["serve", "--port", "0"]);
    let key = server.key.clone().unwrap();
    assert_eq!(key.len(), 64);
    assert!(post(&server, "").contains(" 401 "));
    let with_key = format!("Authorization: Bearer {key}\r\n");
    assert!(post(&server, &with_key).contains(" 200 "));

    let open = serve(&["serve", "--port", "0", "--no-key"]);
    assert_eq!(open.key, None);
    assert!(post(&open, "").contains(" 200 "));
}

fn model_state(server: &Server) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "POST /api/model_state HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}",
        server.address
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn a_model_that_another_fastar_has_loaded_is_not_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let model = common::converted("demo", folder.path());
    let delete = || {
        run(&[
            "models",
            "--model-dir",
            text(folder.path()),
            "--delete",
            "demo",
            "--yes",
        ])
    };
    let arguments = ["serve", "--port", "0", "--model", text(&model)];
    let mut server = serve(&[&arguments[..], &["--no-key"]].concat());
    // It answers before its model is read.
    let since = std::time::Instant::now();
    while !model_state(&server).contains("\"ready\"") {
        assert!(since.elapsed() < std::time::Duration::from_secs(60));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let refused = delete();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.err.contains("demo.fst is in use by another FaStar"),
        "{refused:?}"
    );
    assert!(model.exists());
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let deleted = delete();
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    assert!(!model.exists());
}
