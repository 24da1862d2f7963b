//! `fastar serve`: starts, answers, ends.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{fastar, signal, text};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

struct Server {
    child: Child,
    address: String,
    _data: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ends it if the test failed before it did.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(arguments: &[&str]) -> Server {
    let data = tempfile::tempdir().unwrap();
    let mut child = fastar(arguments)
        .env("FASTAR_DATA_DIR", data.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next())
        .unwrap_or_else(|| panic!("no address in {line:?}"))
        .to_owned();
    Server {
        child,
        address,
        _data: data,
    }
}

impl Server {
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.address
        )
        .unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        String::from_utf8_lossy(&response).into_owned()
    }
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
        let page = server.get("/");
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
fn a_model_of_choice_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let model = common::converted("demo", folder.path());
    let server = serve(&["serve", "--port", "0", "--model", text(&model)]);
    assert!(server.get("/health").contains("ok"));
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
