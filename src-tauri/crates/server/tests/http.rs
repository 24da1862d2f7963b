//! Promises of the server, over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../app/tests/scripted/mod.rs"]
mod scripted;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fastar_api::{
    ApiError, AppInfo, ChatSummary, Condition, ErrorCode, Exported, Face, Found, GenerationEvent,
    Job, JobKind, JobPhase, JobState, Library, MessageStatus, ModelState, Preset, Setting,
    Thinking, TokenCount,
};
use fastar_app::jobs::{Ended, Leftover, Order, Report, Steering, Workshop};
use fastar_app::{App, Options};
use scripted::{Script, Step, wait_until};
use serde_json::{Value, json};
use tokio::sync::oneshot;

struct Running {
    address: SocketAddr,
    app: App,
    script: Script,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    folder: tempfile::TempDir,
}

impl Running {
    fn new() -> Self {
        Self::start(None, None)
    }

    fn with_workshop(workshop: Option<Arc<dyn Workshop>>) -> Self {
        Self::start(workshop, None)
    }

    fn start(workshop: Option<Arc<dyn Workshop>>, key: Option<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = Script::new();
        let app = App::open(Options {
            workshop,
            ..script.options(folder.path())
        })
        .unwrap();
        scripted::loaded(&app);
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, address) = std::sync::mpsc::channel();
        let served = app.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let bound = fastar_server::bind(0).await.unwrap();
                tell.send(bound.address()).unwrap();
                let until = async {
                    let _ = stopped.await;
                };
                bound.serve(served, key, until).await.unwrap();
            });
        });
        let address = address.recv().unwrap();
        Self {
            address,
            app,
            script,
            stop: Some(stop),
            thread: Some(thread),
            folder,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    /// Sends raw bytes and reads until the server closes.
    fn raw(&self, request: &str) -> Response {
        let mut stream = self.connect();
        // A refusal may come, and the connection close, before everything was sent.
        let _ = stream.write_all(request.as_bytes());
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        Response::parse(&bytes)
    }

    fn get(&self, path: &str) -> Response {
        let host = self.address;
        self.raw(&format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ))
    }

    fn post_with(&self, path: &str, headers: &str, body: &str) -> Response {
        self.raw(&format!(
            "POST {path} HTTP/1.1\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ))
    }

    fn post(&self, command: &str, arguments: &Value) -> Response {
        self.post_text(command, &arguments.to_string())
    }

    fn post_text(&self, command: &str, body: &str) -> Response {
        let headers = format!(
            "Host: {}\r\nContent-Type: application/json\r\n",
            self.address
        );
        self.post_with(&format!("/api/{command}"), &headers, body)
    }

    /// Begins a streamed command; what follows the head is read line by line.
    fn stream(&self, command: &str, arguments: &Value) -> BufReader<TcpStream> {
        let body = arguments.to_string();
        let mut stream = self.connect();
        write!(
            stream,
            "POST /api/{command} HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
        }
        let head = head.to_lowercase();
        assert!(
            head.starts_with("http/1.0 200") || head.starts_with("http/1.1 200"),
            "{head}"
        );
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        assert!(head.contains("cache-control: no-cache"), "{head}");
        reader
    }

    fn end(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}

struct Response {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Response {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .unwrap_or_else(|| {
                panic!("no whole head in {:?}", String::from_utf8_lossy(bytes));
            });
        let head = String::from_utf8(bytes[..end].to_vec())
            .unwrap()
            .to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self {
            status,
            head,
            body: bytes[end + 4..].to_vec(),
        }
    }

    fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        assert!(
            self.head.contains("content-type: application/json"),
            "{}",
            self.head
        );
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}: ")))
    }
}

fn next_event(reader: &mut BufReader<TcpStream>) -> Option<GenerationEvent> {
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        match line.trim_end() {
            "" => {}
            comment if comment.starts_with(':') => {}
            data => {
                return Some(serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap());
            }
        }
    }
}

fn rest_of(reader: &mut BufReader<TcpStream>) -> (String, MessageStatus) {
    let mut text = String::new();
    loop {
        match next_event(reader).expect("finished before the stream ends") {
            GenerationEvent::Text { text: more } => text.push_str(&more),
            GenerationEvent::Finished { answer, .. } => {
                assert_eq!(next_event(reader), None, "nothing follows");
                return (text, answer.status);
            }
            _ => {}
        }
    }
}

#[test]
fn every_command_of_the_contract_answers() {
    let server = Running::new();
    let info: AppInfo = server.post("app_info", &json!({})).json();
    assert_eq!((info.face, info.version.as_str()), (Face::Web, "0.1.0"));
    let state: ModelState = server.post("model_state", &json!({})).json();
    assert!(matches!(state, ModelState::Ready { .. }));
    let state: ModelState = server.post("model_use_demo", &json!({})).json();
    assert!(matches!(state, ModelState::Loading { .. }));
    scripted::loaded(&server.app);

    let mut answer = server.stream(
        "message_send",
        &json!({"chat_id": null, "message": {"text": "hello"}}),
    );
    let Some(GenerationEvent::Started {
        chat,
        user,
        answer: row,
        after: None,
    }) = next_event(&mut answer)
    else {
        panic!()
    };
    assert_eq!(user.unwrap().text, "hello");
    let mut late = server.stream("generation_attach", &json!({"answer_id": row.id}));
    server.script.say("Hi 👋\nline two");
    server.script.step(Step::End);
    assert_eq!(
        rest_of(&mut answer),
        ("Hi 👋\nline two".into(), MessageStatus::Done)
    );
    assert!(matches!(
        next_event(&mut late),
        Some(GenerationEvent::Started { .. })
    ));
    assert_eq!(rest_of(&mut late).1, MessageStatus::Done);

    let mut again = server.stream(
        "message_regenerate",
        &json!({"answer_id": row.id, "thinking": "on"}),
    );
    let Some(GenerationEvent::Started {
        answer: new, after, ..
    }) = next_event(&mut again)
    else {
        panic!()
    };
    assert_eq!((new.thinking, after.is_some()), (Thinking::On, true));
    assert_eq!(new.versions, [row.id.as_str(), new.id.as_str()]);
    let row = new;
    let stopped = server.post("generation_stop", &json!({"answer_id": row.id}));
    assert_eq!(
        (stopped.status, stopped.body.as_slice()),
        (200, b"null".as_slice())
    );
    assert_eq!(rest_of(&mut again).1, MessageStatus::Stopped);

    let renamed: ChatSummary = server
        .post("chat_rename", &json!({"id": chat.id, "title": "New"}))
        .json();
    assert_eq!(renamed.title, "New");
    let mut opened: fastar_api::Chat = server.post("chat_open", &json!({"id": chat.id})).json();
    assert_eq!(opened.messages.len(), 2);
    let first = opened.messages[1].versions[0].clone();
    opened = server
        .post("version_show", &json!({"message_id": first}))
        .json();
    assert_eq!(opened.messages[1].text, "Hi 👋\nline two");
    opened = server
        .post(
            "answer_edit",
            &json!({"answer_id": first, "text": "Hello."}),
        )
        .json();
    let mut edited = server.stream(
        "message_edit",
        &json!({"message_id": opened.messages[0].id, "message": {"text": "hello again", "attachments": [{"name": "a.txt", "text": "x"}]}}),
    );
    server.script.say("cut");
    server.script.step(Step::Full);
    let edited_id = match next_event(&mut edited) {
        Some(GenerationEvent::Started { answer, .. }) => answer.id,
        other => panic!("{other:?}"),
    };
    rest_of(&mut edited);
    let mut more = server.stream("answer_continue", &json!({"answer_id": edited_id}));
    server.script.say(" short");
    server.script.step(Step::End);
    assert_eq!(rest_of(&mut more).0, " short");

    let pinned: ChatSummary = server
        .post("chat_pin", &json!({"id": chat.id, "pinned": true}))
        .json();
    let moved: ChatSummary = server
        .post("chat_move", &json!({"id": chat.id, "folder": "Work"}))
        .json();
    assert_eq!(
        (pinned.pinned, moved.folder.as_deref()),
        (true, Some("Work"))
    );
    server.post(
        "chat_system_set",
        &json!({"id": chat.id, "text": "Be kind."}),
    );
    server.post(
        "draft_save",
        &json!({"chat_id": chat.id, "draft": {"text": "half"}}),
    );
    let new = json!({"text": "new", "attachments": [{"name": "a.txt", "text": "x"}], "edit": null});
    server.post("draft_save", &json!({"chat_id": null, "draft": new}));
    assert_eq!(server.post("draft_new", &json!({})).json::<Value>(), new);
    opened = server.post("chat_open", &json!({"id": chat.id})).json();
    assert_eq!(
        (opened.system.as_str(), opened.draft.text.as_str()),
        ("Be kind.", "half")
    );
    assert_eq!(opened.messages[1].text, "cut short");
    let count: TokenCount = server
        .post(
            "message_count",
            &json!({"chat_id": chat.id, "message": {"text": "four"}}),
        )
        .json();
    assert_eq!((count.message, count.context_size), (4, 4096));
    let found: Vec<Found> = server
        .post("chat_search", &json!({"query": "cut short"}))
        .json();
    assert_eq!(found[0].message_id.as_deref(), Some(edited_id.as_str()));
    let exported: Exported = server
        .post("chat_export", &json!({"id": chat.id, "format": "json"}))
        .json();
    let added: u32 = server
        .post("chat_import", &json!({"text": exported.text}))
        .json();
    assert_eq!(added, 1);
    let copies: Vec<ChatSummary> = server.post("chat_list", &json!({})).json();
    let copy = copies.iter().find(|copy| copy.id != chat.id).unwrap();
    server.post("chat_delete", &json!({"id": copy.id}));
    let preset: Preset = server
        .post(
            "preset_save",
            &json!({"id": null, "name": "Kind", "text": "Be kind."}),
        )
        .json();
    let presets: Vec<Preset> = server.post("preset_list", &json!({})).json();
    assert_eq!(presets, std::slice::from_ref(&preset));
    assert_eq!(
        server.post("preset_delete", &json!({"id": preset.id})).body,
        b"null"
    );
    assert_eq!(
        server.post("chat_delete", &json!({"id": chat.id})).body,
        b"null"
    );
    let list: Vec<ChatSummary> = server.post("chat_list", &json!({})).json();
    assert_eq!(list, []);
    let restored: ChatSummary = server.post("chat_restore", &json!({"id": chat.id})).json();
    assert_eq!(restored.id, chat.id);

    // What would name a path of this computer is not there for a page, whatever it sends.
    for command in [
        "model_choose",
        "model_folder_choose",
        "model_show",
        "attachment_pick",
        "notify",
    ] {
        for arguments in [
            json!({}),
            json!({"path": "/etc", "folder": "/etc", "file": "good.fst"}),
        ] {
            let refused = server.post(command, &arguments);
            let told = (refused.status, refused.json::<ApiError>().code);
            assert_eq!(told, (501, ErrorCode::Unsupported), "{command}");
        }
    }
    let link = server.post("link_open", &json!({"url": "https://example.org/"}));
    assert_eq!(link.json::<ApiError>().code, ErrorCode::Unsupported);
    let link = server.post("link_open", &json!({"url": "javascript:alert(1)"}));
    assert_eq!(link.json::<ApiError>().code, ErrorCode::BadRequest);
    // None is missing from the dispatch: an unknown name would be 404, wrong arguments are 400.
    for command in fastar_server::COMMANDS {
        assert_ne!(server.post_text(command, "[]").status, 404, "{command}");
    }
    assert_eq!(server.get("/health").body, b"ok\n");
}

/// Works until it is stopped, and leaves half of a file.
struct Endless;

impl Workshop for Endless {
    fn work(
        &self,
        order: &Order,
        steering: &Steering,
        report: &mut dyn FnMut(Report),
    ) -> Result<Ended, ApiError> {
        let left = order.folder.join(format!("{}.partial", order.file));
        std::fs::create_dir_all(&order.folder).unwrap();
        std::fs::write(&left, vec![7; 50_000]).unwrap();
        report(Report {
            phase: JobPhase::Downloading,
            done_bytes: 50_000,
            total_bytes: Some(100_000),
        });
        while !steering.is_stopped() {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(Ended::Stopped)
    }

    fn leftover(&self, folder: &Path, file: &str) -> Option<Leftover> {
        let done_bytes = folder
            .join(format!("{file}.partial"))
            .metadata()
            .ok()?
            .len();
        Some(Leftover {
            order: Order {
                kind: JobKind::Download,
                folder: folder.to_path_buf(),
                file: file.into(),
                title: "A model".into(),
                repository: "a/b".into(),
                revision: "main".into(),
                drafter: true,
            },
            done_bytes,
            total_bytes: Some(100_000),
        })
    }

    fn discard(&self, folder: &Path, file: &str) -> Result<(), ApiError> {
        std::fs::remove_file(folder.join(format!("{file}.partial"))).unwrap();
        Ok(())
    }
}

#[test]
fn a_download_is_started_paused_gone_on_with_and_cancelled_over_http() {
    let server = Running::with_workshop(Some(Arc::new(Endless)));
    let folder = server.folder.path().join("models");
    let library = || server.post("model_library", &json!({})).json::<Library>();
    let jobs = || server.post("job_list", &json!({})).json::<Vec<Job>>();
    let state = |wanted: JobState| {
        wait_until("the job is in the state that was asked for", || {
            jobs()[0].state == wanted && (wanted != JobState::Running || jobs()[0].done_bytes > 0)
        });
    };
    let offered = library();
    assert_eq!(
        (offered.folder.as_str(), offered.files.len()),
        (folder.to_str().unwrap(), 0)
    );
    let entry = &offered.catalogue[0];
    assert_eq!(jobs(), []);

    let start = json!({"request": {"entry": entry.id, "drafter": false}});
    let job: Job = server.post("download_start", &start).json();
    assert_eq!(
        (job.kind, job.file.as_str()),
        (JobKind::Download, entry.file.as_str())
    );
    state(JobState::Running);
    let again = server.post("download_start", &start);
    assert_eq!(
        (again.status, again.json::<ApiError>().code),
        (409, ErrorCode::Busy)
    );

    let id = json!({"id": job.id});
    server.post("job_pause", &id).json::<Job>();
    state(JobState::Paused);
    let half = library().files.remove(0);
    assert_eq!(half.file, entry.file);
    assert_eq!(
        half.condition,
        Condition::Incomplete {
            done_bytes: 50_000,
            total_bytes: Some(100_000),
            resumable: true
        }
    );
    server.post("job_resume", &id).json::<Job>();
    state(JobState::Running);
    let cancel = |keep: bool| json!({"id": job.id, "keep": keep});
    server.post("job_cancel", &cancel(true)).json::<Job>();
    state(JobState::Cancelled);
    assert_eq!(server.post("job_dismiss", &id).body, b"null");
    assert_eq!(jobs(), []);

    let job: Job = server
        .post("download_resume", &json!({"file": entry.file}))
        .json();
    state(JobState::Running);
    let cancel = server.post("job_cancel", &json!({"id": job.id, "keep": false}));
    assert_eq!(cancel.status, 200);
    state(JobState::Cancelled);
    assert_eq!(library().files, []);
}

#[test]
fn models_are_used_checked_repaired_and_deleted_by_their_name_over_http() {
    let server = Running::with_workshop(Some(Arc::new(Endless)));
    let folder = server.folder.path().join("models");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("good.fst"), vec![1; 5000]).unwrap();
    let good = json!({"file": "good.fst"});
    for (command, kind) in [
        ("model_verify", JobKind::Verify),
        ("model_repair", JobKind::Repair),
    ] {
        let job: Job = server.post(command, &good).json();
        assert_eq!((job.kind, job.file.as_str()), (kind, "good.fst"));
        let busy = server.post("model_delete", &good);
        assert_eq!(
            (busy.status, busy.json::<ApiError>().code),
            (409, ErrorCode::Busy)
        );
        server
            .post("job_cancel", &json!({"id": job.id, "keep": true}))
            .json::<Job>();
        wait_until("the job has ended", || {
            server.app.job_list()[0].state == JobState::Cancelled
        });
    }
    server.post("model_use", &good).json::<ModelState>();
    scripted::loaded(&server.app);
    let used = server.post("model_delete", &good);
    assert_eq!(
        (used.status, used.json::<ApiError>().code),
        (409, ErrorCode::Busy)
    );
    server
        .post("model_use_demo", &json!({}))
        .json::<ModelState>();
    scripted::loaded(&server.app);
    let on_disk = server
        .post("model_library", &json!({}))
        .json::<Library>()
        .files[0]
        .disk_bytes;
    assert!(on_disk >= 5000);
    assert_eq!(server.post("model_delete", &good).json::<u64>(), on_disk);
    assert!(!folder.join("good.fst").exists());
    assert_eq!(server.post("model_delete", &good).status, 404);
}

#[test]
fn a_name_that_leads_out_of_the_model_folder_is_no_model() {
    let server = Running::with_workshop(Some(Arc::new(Endless)));
    std::fs::create_dir(server.folder.path().join("models")).unwrap();
    let outside = server.folder.path().join("good.fst");
    std::fs::write(&outside, "outside").unwrap();
    std::fs::write(server.folder.path().join("good.fst.partial"), "outside").unwrap();
    let absolute = outside.to_str().unwrap();
    for name in [
        "../good.fst",
        "./good.fst",
        "models/../../good.fst",
        absolute,
        "good.fst/",
        "good.fst/.",
        "..",
        "",
        ".fst",
        "../.fst",
        "good.fst\0.fst",
        "..\\good.fst",
        "chats.db",
        "hub-token",
    ] {
        for command in [
            "model_use",
            "model_delete",
            "model_verify",
            "model_repair",
            "download_resume",
        ] {
            let refused = server.post(command, &json!({"file": name}));
            assert_eq!(refused.status, 404, "{command} {name:?}");
            assert_eq!(refused.json::<ApiError>().code, ErrorCode::NotFound);
        }
    }
    assert_eq!(std::fs::read(&outside).unwrap(), b"outside");
    assert_eq!(server.app.job_list(), []);
    for (command, arguments) in [
        (
            "download_start",
            json!({"request": {"entry": "../x", "drafter": true}}),
        ),
        ("job_pause", json!({"id": "nonsense"})),
        ("job_resume", json!({"id": "nonsense"})),
        ("job_cancel", json!({"id": "nonsense", "keep": false})),
        ("job_dismiss", json!({"id": "nonsense"})),
    ] {
        let refused = server.post(command, &arguments);
        let told = (refused.status, refused.json::<ApiError>().code);
        assert_eq!(told, (404, ErrorCode::NotFound), "{command}");
    }
    for (command, body) in [
        ("model_use", r#"{"file":7}"#),
        ("model_delete", r#"{"path":"good.fst"}"#),
        ("download_start", r#"{"entry":"flash-0731","drafter":true}"#),
        ("setting_set", r#"{"key":"threads"}"#),
        ("setting_set", r#"{"key":"nonsense","value":1}"#),
        ("setting_set", r#"{"key":"threads","value":0}"#),
        ("setting_set", r#"{"key":"models_folder","value":"/etc"}"#),
        ("setting_reset", r#"{"key":"nonsense"}"#),
        ("cache_plan", r#"{"cache_bytes":-1}"#),
        ("model_reload", "{}"),
        ("job_cancel", r#"{"id":"x"}"#),
        ("job_list", "7"),
    ] {
        let refused = server.post_text(command, body);
        let told = (refused.status, refused.json::<ApiError>().code);
        assert_eq!(told, (400, ErrorCode::BadRequest), "{command}");
    }
}

#[test]
fn settings_are_changed_over_http_and_secrets_never_come_back() {
    let server = Running::new();
    let set = |key: &str, value: Value| {
        let reply = server.post("setting_set", &json!({"key": key, "value": value}));
        let text = String::from_utf8(reply.body.clone()).unwrap();
        assert!(
            !text.contains("hf_secret") && !text.contains("hidden"),
            "{text}"
        );
        reply
    };
    let value = |list: &[Setting], key: &str| {
        let setting = list.iter().find(|setting| setting.key == key).unwrap();
        (setting.value.clone(), setting.is_set)
    };
    set("download_endpoint", json!("https://mirror.example/"));
    set("download_token", json!("hf_secret"));
    let proxy = json!("http://me:hidden@proxy.example:3128");
    let list: Vec<Setting> = set("download_proxy", proxy).json();
    assert_eq!(
        value(&list, "download_endpoint"),
        (json!("https://mirror.example"), true)
    );
    assert_eq!(value(&list, "download_token"), (json!(true), true));
    let shown = json!("http://me:***@proxy.example:3128/");
    assert_eq!(value(&list, "download_proxy"), (shown.clone(), true));
    assert_eq!(value(&list, "temperature"), (json!(0.6), false));
    // What is shown may be sent back.
    assert_eq!(set("download_proxy", shown).json::<Vec<Setting>>(), list);

    let wrong = set("download_endpoint", json!("file:///etc"));
    assert_eq!(wrong.status, 400);
    let told = wrong.json::<ApiError>().message;
    assert!(
        told.starts_with("The setting `download_endpoint` cannot be used:"),
        "{told}"
    );
    let now = |server: &Running| {
        let list = server.post("setting_list", &json!({}));
        list.json::<Vec<Setting>>()
    };
    assert_eq!(now(&server), list);
    // Another mirror, another token.
    let list: Vec<Setting> = set("download_endpoint", json!("")).json();
    assert_eq!(value(&list, "download_endpoint"), (json!(null), false));
    assert_eq!(value(&list, "download_token"), (json!(false), false));
}

#[test]
fn errors_have_their_status_and_one_sentence() {
    let server = Running::new();
    for (command, body, status, code) in [
        (
            "chat_open",
            r#"{"id":"nonsense"}"#,
            404,
            ErrorCode::NotFound,
        ),
        ("chat_open", r#"{}"#, 400, ErrorCode::BadRequest),
        ("chat_open", r#"{"id":7}"#, 400, ErrorCode::BadRequest),
        ("chat_open", r#"{"id":"a"} x"#, 400, ErrorCode::BadRequest),
        ("chat_open", "", 400, ErrorCode::BadRequest),
        ("chat_open", "not json", 400, ErrorCode::BadRequest),
        (
            "chat_open",
            "{\"id\":\"\\ud800\"}",
            400,
            ErrorCode::BadRequest,
        ),
        (
            "message_send",
            r#"{"chat_id":null,"message":{"text":"  "}}"#,
            400,
            ErrorCode::BadRequest,
        ),
        (
            "message_send",
            r#"{"chat_id":"nonsense","message":{"text":"x"}}"#,
            404,
            ErrorCode::NotFound,
        ),
        (
            "generation_attach",
            r#"{"answer_id":"nonsense"}"#,
            404,
            ErrorCode::NotFound,
        ),
        ("no_such_command", "{}", 404, ErrorCode::NotFound),
        ("chat_open/more", "{}", 404, ErrorCode::NotFound),
    ] {
        let response = server.post_text(command, body);
        assert_eq!(response.status, status, "{command} {body}");
        let error: ApiError = response.json();
        assert_eq!(error.code, code, "{command} {body}");
        assert!(
            error.message.len() > 10 && !error.message.contains('\n'),
            "{}",
            error.message
        );
    }
    let get = server.get("/api/chat_list");
    assert_eq!(
        (get.status, get.json::<ApiError>().code),
        (404, ErrorCode::NotFound)
    );

    let mut busy = server.stream(
        "message_send",
        &json!({"chat_id": null, "message": {"text": "x"}}),
    );
    let Some(GenerationEvent::Started { chat, .. }) = next_event(&mut busy) else {
        panic!()
    };
    let response = server.post(
        "message_send",
        &json!({"chat_id": chat.id, "message": {"text": "y"}}),
    );
    assert_eq!(
        (response.status, response.json::<ApiError>().code),
        (409, ErrorCode::Busy)
    );
}

/// As JSON a character takes up to six bytes; that does not make a text longer.
#[test]
fn the_longest_texts_are_taken_whatever_they_are_made_of() {
    let server = Running::new();
    let mut answer = server.stream(
        "message_send",
        &json!({"chat_id": null, "message": {"text": "\"".repeat(2_000_000)}}),
    );
    server.script.say("x");
    server.script.step(Step::End);
    let chat = match next_event(&mut answer) {
        Some(GenerationEvent::Started { answer, .. }) => answer.chat_id,
        other => panic!("{other:?}"),
    };
    rest_of(&mut answer);
    for text in ["\u{1}", "\"", "\\", "\n", "龙"] {
        let text = text.repeat(2_000_000 / text.len());
        let opened: fastar_api::Chat = server.post("chat_open", &json!({"id": chat})).json();
        let draft = json!({
            "text": text,
            "attachments": [],
            "edit": {"message_id": opened.messages[0].id, "text": text},
        });
        let saved = server.post("draft_save", &json!({"chat_id": chat, "draft": draft}));
        assert_eq!(saved.status, 200);
        let opened: fastar_api::Chat = server.post("chat_open", &json!({"id": chat})).json();
        assert!(serde_json::to_value(opened.draft).unwrap() == draft);
    }
}

#[test]
fn deeply_nested_json_and_huge_bodies_are_refused_and_the_server_lives() {
    let server = Running::new();
    for depth in [10_000, 200_000] {
        for body in [
            "[".repeat(depth),
            r#"{"a":"#.repeat(depth),
            format!(r#"{{"id":"x","unknown":{}}}"#, "[".repeat(depth)),
        ] {
            assert_eq!(server.post_text("chat_open", &body).status, 400);
        }
    }
    let text = "a".repeat(25_100_000);
    let response = server.post(
        "message_send",
        &json!({"chat_id": null, "message": {"text": text}}),
    );
    assert_eq!(response.status, 413);
    assert!(response.json::<ApiError>().message.contains("25000000"));
    // Whoever sends much more may send all of it and then reads why it was not taken, as a browser does.
    let body = "a".repeat(60_000_000);
    let mut stream = server.connect();
    write!(
        stream,
        "POST /api/message_count HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        server.address,
        body.len()
    )
    .unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answered = Vec::new();
    stream.read_to_end(&mut answered).unwrap();
    assert_eq!(Response::parse(&answered).status, 413);
    let text = "a".repeat(2_100_000);
    let response = server.post(
        "message_send",
        &json!({"chat_id": null, "message": {"text": text}}),
    );
    assert_eq!(response.status, 400);
    let message = response.json::<ApiError>().message;
    assert!(
        message.contains("2100000") && message.contains("2000000"),
        "{message}"
    );
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.app.chat_list().unwrap(), []);
}

#[test]
fn other_names_for_this_computer_and_other_pages_are_refused() {
    let server = Running::new();
    let port = server.address.port();
    let json_type = "Content-Type: application/json\r\n";
    let ask = |headers: &str| server.post_with("/api/chat_list", headers, "{}");
    for host in [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
    ] {
        let headers = format!("Host: {host}\r\nOrigin: http://{host}\r\n{json_type}");
        assert_eq!(ask(&headers).status, 200, "{host}");
    }
    let own = format!("Host: 127.0.0.1:{port}\r\n");
    for (headers, status) in [
        (format!("Host: evil.example\r\n{json_type}"), 403),
        (format!("Host: evil.example:{port}\r\n{json_type}"), 403),
        (format!("Host: 127.0.0.1\r\n{json_type}"), 403),
        (format!("{own}Host: evil.example\r\n{json_type}"), 403),
        (
            format!("{own}Origin: http://evil.example\r\n{json_type}"),
            403,
        ),
        (format!("{own}Origin: null\r\n{json_type}"), 403),
        (
            format!("{own}Origin: http://127.0.0.1:1\r\n{json_type}"),
            403,
        ),
        (
            format!("{own}Origin: https://127.0.0.1:{port}\r\n{json_type}"),
            403,
        ),
        (own.clone(), 415),
        (format!("{own}Content-Type: text/plain\r\n"), 415),
        (
            format!("{own}Content-Type: application/x-www-form-urlencoded\r\n"),
            415,
        ),
        (
            format!("{own}Content-Type: application/json; charset=utf-8\r\n"),
            200,
        ),
    ] {
        let response = ask(&headers);
        assert_eq!(response.status, status, "{headers}");
        assert!(
            !response.head.contains("access-control"),
            "{}",
            response.head
        );
    }
    for command in fastar_server::COMMANDS {
        let foreign = format!("{own}Origin: http://evil.example\r\n{json_type}");
        for (headers, status) in [(foreign, 403), (own.clone(), 415)] {
            let refused = server.post_with(&format!("/api/{command}"), &headers, "{}");
            assert_eq!(refused.status, status, "{command}");
        }
    }
    let page = server.raw("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert_eq!(page.status, 403);
    let preflight = server.raw(&format!(
        "OPTIONS /api/chat_list HTTP/1.1\r\n{own}Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\nConnection: close\r\n\r\n"
    ));
    assert_eq!(preflight.status, 403);
    assert!(!preflight.head.contains("access-control"));
}

#[test]
fn the_page_is_at_the_root_only_and_every_response_is_locked_down() {
    let server = Running::new();
    let page = server.get("/");
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    assert!(
        String::from_utf8_lossy(&page.body)
            .to_lowercase()
            .contains("<!doctype html>")
    );
    let assets = std::fs::read_dir(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../ui/dist/assets"
    ))
    .map(|entries| {
        entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    })
    .unwrap_or_else(|_| Vec::new());
    for name in assets {
        let asset = server.get(&format!("/assets/{name}"));
        assert_eq!(asset.status, 200);
        assert_eq!(
            asset.header("cache-control"),
            Some("public, max-age=31536000, immutable")
        );
        assert_ne!(
            asset.header("content-type"),
            Some("application/octet-stream"),
            "{name}"
        );
    }
    for path in [
        "/nothing",
        "/../Cargo.toml",
        "/assets/",
        "/assets/../index.htm",
        "/index.html/x",
        "/%2e%2e/",
    ] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    for path in ["/", "/nothing", "/api/nothing", "/health"] {
        let response = server.get(path);
        let policy = response.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(
            !policy.contains("unsafe") && !policy.contains('*'),
            "{policy}"
        );
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(response.header("referrer-policy"), Some("no-referrer"));
    }
}

#[test]
fn a_client_hears_something_at_once_even_while_nothing_is_written() {
    let server = Running::new();
    let mut stream = server.stream(
        "message_send",
        &json!({"chat_id": null, "message": {"text": "x"}}),
    );
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert_eq!(line, ": fastar\n");
}

#[test]
fn a_client_that_goes_away_or_never_reads_leaves_the_answer_and_other_clients_alone() {
    let server = Running::new();
    let mut gone = server.stream(
        "message_send",
        &json!({"chat_id": null, "message": {"text": "x"}}),
    );
    let Some(GenerationEvent::Started { answer, .. }) = next_event(&mut gone) else {
        panic!()
    };
    let stuck = server.stream("generation_attach", &json!({"answer_id": answer.id}));
    drop(gone);
    let mut reads = server.stream("generation_attach", &json!({"answer_id": answer.id}));
    let block = "0123456789".repeat(1000);
    for _ in 0..2000 {
        server.script.say(&block);
    }
    server.script.step(Step::End);
    let Some(GenerationEvent::Started { answer: row, .. }) = next_event(&mut reads) else {
        panic!()
    };
    let (text, status) = rest_of(&mut reads);
    assert_eq!(
        (row.text.len() + text.len(), status),
        (20_000_000, MessageStatus::Done)
    );
    // The stuck one is still connected; the server serves others.
    assert_eq!(server.get("/health").status, 200);
    drop(stuck);
}

#[test]
fn a_taken_port_is_one_sentence_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let error = runtime
        .block_on(fastar_server::bind(port))
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains(&port.to_string()) && error.contains("--port"),
        "{error}"
    );
}

#[test]
fn the_server_listens_on_this_computer_only() {
    assert!(Running::new().address.ip().is_loopback());
}

#[test]
fn at_the_end_running_answers_are_saved_and_their_streams_closed_even_when_a_client_is_stuck() {
    let mut server = Running::new();
    let mut stream = server.stream(
        "message_send",
        &json!({"chat_id": null, "message": {"text": "x"}}),
    );
    let Some(GenerationEvent::Started { chat, answer, .. }) = next_event(&mut stream) else {
        panic!()
    };
    let _stuck = server.stream("generation_attach", &json!({"answer_id": answer.id}));
    let block = "0123456789".repeat(1000);
    for _ in 0..500 {
        server.script.say(&block);
    }
    wait_until("all was written", || {
        server.app.chat_open(&chat.id).unwrap().messages[1]
            .text
            .len()
            == 5_000_000
    });
    let reader = std::thread::spawn(move || rest_of(&mut stream));
    server.end();
    let (text, status) = reader.join().unwrap();
    assert_eq!(
        (text.len(), status),
        (5_000_000, MessageStatus::Interrupted)
    );
    let row = server.app.chat_open(&chat.id).unwrap().messages.remove(1);
    assert_eq!(
        (row.text.len(), row.status),
        (5_000_000, MessageStatus::Interrupted)
    );
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn without_the_key_no_command_is_run_and_the_page_says_what_to_do() {
    let key = "0123456789abcdef".repeat(4);
    let running = Running::start(None, Some(key.clone()));
    let with = |command: &str, more: &str| {
        let headers = format!(
            "Host: {}\r\nContent-Type: application/json\r\n{more}",
            running.address
        );
        let chat = json!({"chat_id": null, "message": {"text": "from another account"}});
        let arguments = match command {
            "message_send" => chat.to_string(),
            _ => "{}".to_owned(),
        };
        running.post_with(&format!("/api/{command}"), &headers, &arguments)
    };
    let wrong = [
        String::new(),
        "Authorization: Bearer\r\n".into(),
        "Authorization: Bearer \r\n".into(),
        format!("Authorization: {key}\r\n"),
        format!("Authorization: Basic {key}\r\n"),
        format!("Authorization: Bearer {}\r\n", &key[1..]),
        format!("Authorization: Bearer {key}0\r\n"),
        format!("Authorization: Bearer {}\r\n", key.replace('f', "e")),
        format!("Authorization: Bearer {key}\r\nAuthorization: Bearer {key}\r\n"),
        format!("Cookie: key={key}\r\n"),
    ];
    for more in &wrong {
        let refused = with("message_send", more);
        assert_eq!(refused.status, 401, "{more}");
        let error: Value = refused.json();
        assert_eq!(error["code"], "no_access", "{more}");
        let hint = error["hint"].as_str().unwrap();
        assert!(hint.contains("fastar serve"), "{hint}");
    }
    for command in fastar_server::COMMANDS.iter().chain(&["nonsense"]) {
        assert_eq!(with(command, "").status, 401, "{command}");
    }
    // In the address it counts nothing: addresses are kept in many places.
    let host = format!(
        "Host: {}\r\nContent-Type: application/json\r\n",
        running.address
    );
    let in_address = running.post_with(&format!("/api/chat_list?key={key}"), &host, "{}");
    assert_eq!(in_address.status, 401);
    assert_eq!(running.app.chat_list().unwrap(), []);

    // The interface has nothing of the person in it, and must be there to take the key.
    assert_eq!(running.get("/").status, 200);
    assert_eq!(running.get("/health").status, 200);
    for scheme in ["Bearer", "bearer"] {
        let answered = with("chat_list", &format!("Authorization: {scheme} {key}\r\n"));
        assert_eq!(
            (answered.status, answered.body.as_slice()),
            (200, &b"[]"[..])
        );
    }
    // Another page does not become one of ours with it.
    let foreign = with(
        "chat_list",
        &format!("Authorization: Bearer {key}\r\nOrigin: http://evil.example\r\n"),
    );
    assert_eq!(foreign.status, 403);
}
