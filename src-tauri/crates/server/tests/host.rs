//! Promises of the server that a window opens, over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../app/tests/scripted/mod.rs"]
mod scripted;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use fastar_api::{AppInfo, ErrorCode, Face};
use fastar_app::{App, Options};
use fastar_server::Host;
use scripted::{Script, wait_until};
use serde_json::{Value, json};

struct Window {
    app: App,
    host: Host,
    port: u16,
    folder: tempfile::TempDir,
}

/// A port that nobody has at this moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Window {
    /// With the port chosen, and not turned on.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let app = App::open(Options {
            face: Face::Desktop,
            ..Script::new().options(folder.path())
        })
        .unwrap();
        let host = Host::start(&app);
        // Ports below are for the system.
        let port = std::iter::repeat_with(free_port)
            .find(|port| *port >= 1024)
            .unwrap();
        app.setting_set("server_port", &json!(port)).unwrap();
        Self {
            app,
            host,
            port,
            folder,
        }
    }

    fn turned_on() -> Self {
        let window = Self::new();
        window.set("server", json!(true));
        let state = window.host.state().unwrap();
        assert_eq!(state.problem, None);
        window
    }

    fn set(&self, key: &str, value: Value) {
        self.app.setting_set(key, &value).unwrap();
    }

    fn key(&self) -> String {
        self.host.key().unwrap()
    }

    /// Status, head in lower case, and body; none when nobody listens.
    fn ask(&self, method: &str, headers: &str, body: &str) -> Option<(u16, String, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} /api/app_info HTTP/1.1\r\n{headers}Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Some((status, head.to_lowercase(), body.to_owned()))
    }

    fn post(&self, headers: &str) -> (u16, String, String) {
        self.ask("POST", headers, "{}").expect("it listens")
    }

    fn ours(&self) -> String {
        format!("Host: 127.0.0.1:{}\r\n", self.port)
    }

    fn with_key(&self) -> String {
        format!("{}Authorization: Bearer {}\r\n", self.ours(), self.key())
    }
}

#[test]
fn it_is_off_until_it_is_turned_on_and_then_asks_for_the_key() {
    let window = Window::new();
    let state = window.host.state().unwrap();
    assert_eq!((state.address, state.network), (None, None));
    assert!(window.ask("POST", &window.ours(), "{}").is_none());

    window.set("server", json!(true));
    let state = window.host.state().unwrap();
    let address = format!("http://127.0.0.1:{}", window.port);
    assert_eq!(state.address, Some(address));
    assert_eq!((state.network, state.problem), (None, None));
    assert_eq!(state.key_begins, window.key()[..4]);
    assert_eq!(window.post(&window.ours()).0, 401);
    let wrong = format!(
        "{}Authorization: Bearer {}\r\n",
        window.ours(),
        "0".repeat(64)
    );
    assert_eq!(window.post(&wrong).0, 401);
    let (status, _, body) = window.post(&window.with_key());
    assert_eq!(status, 200);
    // A browser has none of the window's dialogs.
    let info: AppInfo = serde_json::from_str(&body).unwrap();
    assert_eq!(info.face, Face::Web);
    assert_eq!(window.app.app_info().face, Face::Desktop);

    window.set("server", json!(false));
    assert!(window.ask("POST", &window.ours(), "{}").is_none());
    // The window goes on.
    assert!(window.app.chat_list().unwrap().is_empty());
}

#[test]
fn a_port_that_is_taken_is_told_and_taken_once_it_is_free() {
    let window = Window::new();
    let other = TcpListener::bind(("127.0.0.1", window.port)).unwrap();
    window.set("server", json!(true));
    let state = window.host.state().unwrap();
    assert_eq!(state.address, None);
    let problem = state.problem.unwrap();
    assert_eq!(problem.code, ErrorCode::Busy);
    assert_eq!(
        problem.message,
        format!("Port {} is in use by another program.", window.port)
    );
    drop(other);
    wait_until("the port is taken", || {
        window.host.state().unwrap().address.is_some()
    });
    assert_eq!(window.post(&window.with_key()).0, 200);
}

#[test]
fn another_port_counts_at_once_and_the_old_one_is_free() {
    let mut window = Window::turned_on();
    let before = window.port;
    window.port = free_port();
    window.set("server_port", json!(window.port));
    assert_eq!(window.post(&window.with_key()).0, 200);
    TcpListener::bind(("127.0.0.1", before)).unwrap();
}

#[test]
fn a_new_key_shuts_out_who_has_the_old_one_and_connections_that_are_open() {
    let window = Window::turned_on();
    let old = window.with_key();
    assert_eq!(window.post(&old).0, 200);
    let mut open = TcpStream::connect(("127.0.0.1", window.port)).unwrap();
    open.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    window.host.new_key().unwrap();
    assert_eq!(window.post(&old).0, 401);
    assert_eq!(window.post(&window.with_key()).0, 200);
    // Closed, or reset: nothing is answered any more.
    assert!(matches!(open.read(&mut [0; 8]), Ok(0) | Err(_)));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let facts = std::fs::metadata(window.folder.path().join("server.key")).unwrap();
        assert_eq!(facts.permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn pages_that_were_named_may_ask_with_the_key_and_no_others() {
    let window = Window::turned_on();
    window.set(
        "server_origins",
        json!("https://Notes.Example/  http://localhost:5173"),
    );
    let chosen = window.app.setting_list();
    let chosen = chosen.iter().find(|s| s.key == "server_origins").unwrap();
    assert_eq!(chosen.value, "https://notes.example http://localhost:5173");

    let from = |origin: &str| format!("{}Origin: {origin}\r\n", window.ours());
    let preflight = format!(
        "{}Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,content-type\r\n",
        from("https://notes.example")
    );
    let (status, head, _) = window.ask("OPTIONS", &preflight, "").unwrap();
    assert_eq!(status, 204, "{head}");
    for line in [
        "access-control-allow-origin: https://notes.example",
        "access-control-allow-methods: post",
        "access-control-allow-headers: authorization, content-type",
        "vary: origin",
    ] {
        assert!(head.lines().any(|l| l == line), "{line}: {head}");
    }
    assert!(!head.contains("access-control-allow-credentials"));
    // The key is asked for all the same.
    let (status, head, _) = window.post(&from("https://notes.example"));
    assert_eq!(status, 401);
    assert!(head.contains("access-control-allow-origin: https://notes.example"));
    let key = format!("Authorization: Bearer {}\r\n", window.key());
    let (status, _, _) = window.post(&(from("https://notes.example") + &key));
    assert_eq!(status, 200);
    for other in [
        "http://notes.example",
        "https://notes.example:8443",
        "https://notes.example.evil.example",
        "https://evil.example",
        "null",
    ] {
        let (status, head, _) = window.post(&(from(other) + &key));
        assert_eq!(status, 403, "{other}");
        assert!(!head.contains("access-control-allow-origin"), "{other}");
    }
}

#[test]
fn other_computers_are_let_in_by_number_only_and_only_when_they_are_meant_to() {
    let window = Window::turned_on();
    window.set("server_lan", json!(true));
    let state = window.host.state().unwrap();
    assert_eq!(window.post(&window.with_key()).0, 200);
    let key = format!("Authorization: Bearer {}\r\n", window.key());
    let port = window.port;
    // Names can be rebound, and another computer's number is not this one's.
    for host in ["evil.example", "203.0.113.7", "0.0.0.0"] {
        let (status, _, _) = window.post(&format!("Host: {host}:{port}\r\n{key}"));
        assert_eq!(status, 403, "{host}");
    }
    // Where this machine has a network, it is reached by its number there.
    let Some(network) = state.network else { return };
    let host = network.strip_prefix("http://").unwrap();
    let reach = || {
        let mut stream = TcpStream::connect(host).ok()?;
        write!(
            stream,
            "POST /api/app_info HTTP/1.1\r\nHost: {host}\r\n{key}Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Some(text)
    };
    assert!(reach().unwrap().starts_with("HTTP/1.1 200"), "{host}");
    window.set("server_lan", json!(false));
    assert_eq!(window.host.state().unwrap().network, None);
    assert_eq!(reach(), None);
}

#[test]
fn a_page_cannot_open_the_door_further_and_wrong_values_are_named() {
    let window = Window::turned_on();
    let page = window.app.seen_by(Face::Web);
    for (key, value) in [
        ("server", json!(false)),
        ("server_lan", json!(true)),
        ("server_port", json!(2000)),
        ("server_origins", json!("https://evil.example")),
    ] {
        let error = page.setting_set(key, &value).unwrap_err();
        assert_eq!(
            error.message,
            "The local server is set up in the window of FaStar."
        );
        page.setting_reset(key).unwrap_err();
    }
    let refused =
        |key: &str, value: Value| window.app.setting_set(key, &value).unwrap_err().message;
    assert_eq!(
        refused("server_port", json!(80)),
        "The setting `server_port` must be a whole number from 1024 to 65535."
    );
    for (origins, why) in [
        ("*", "is not a whole web address"),
        ("notes.example", "is not a whole web address"),
        ("file:///etc", "does not begin with"),
        (
            "https://notes.example/page",
            "has more than a name and a port",
        ),
        (
            "https://me:secret@notes.example",
            "has more than a name and a port",
        ),
    ] {
        let message = refused("server_origins", json!(origins));
        assert!(message.contains(why), "{origins}: {message}");
    }
    assert_eq!(window.post(&window.with_key()).0, 200);
}
