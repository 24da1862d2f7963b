//! A set that ends whole although its downloader is killed again and again, on a network that breaks every few seconds.
//!
//! `cargo test -p fastar-hub --test soak` does a small one. `cargo test --release -p fastar-hub --test soak -- --bytes 2000000000 --kills 20`
//! does the long one and holds it to 1.05 times the bytes of the set.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastar_hub::{BLOCK, Control, Event, Hub, Options, Presence, Settings, Snapshot};
use fastar_testkit::hub::{Fault, HubServer, Storage};

const REPO: &str = "acme/tiny";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, command, endpoint, folder] = arguments.as_slice()
        && command == "download"
    {
        return download(endpoint, Path::new(folder));
    }
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let long = number("--bytes").is_some();
    soak(
        number("--bytes").unwrap_or(48 << 20),
        number("--kills").unwrap_or(5),
        long,
    );
}

fn hub(endpoint: &str) -> Hub {
    Hub::new(Settings {
        endpoint: endpoint.to_owned(),
        stall: Duration::from_secs(2),
        first_wait: Duration::from_millis(20),
        longest_wait: Duration::from_millis(500),
        ..Settings::default()
    })
    .unwrap()
}

/// The process that is killed: says on each line how many bytes it believes to be on the disk.
fn download(endpoint: &str, folder: &Path) {
    let hub = hub(endpoint);
    let snapshot = hub.snapshot(REPO, "main", &Control::new()).unwrap();
    let on_event = |event| {
        if let Event::Progress(progress) = event {
            println!("{}", progress.done);
        }
    };
    hub.fetch_set(
        &snapshot.files,
        folder,
        &Options::default(),
        &Control::new(),
        on_event,
    )
    .unwrap();
}

fn start(endpoint: &str, folder: &Path, said: &Arc<AtomicU64>) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["download", endpoint])
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = said.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            said.store(line.parse().unwrap(), Ordering::SeqCst);
        }
    });
    child
}

fn on_disk(snapshot: &Snapshot, folder: &Path) -> u64 {
    let bytes = |file: &fastar_hub::RemoteFile| match fastar_hub::presence(
        file,
        &folder.join(&file.path),
    ) {
        Presence::Absent => 0,
        Presence::Partial(bytes) => bytes,
        Presence::Whole => file.bytes,
    };
    snapshot.files.iter().map(bytes).sum()
}

fn soak(bytes: u64, kills: u64, long: bool) {
    let shards: Vec<(String, Vec<u8>)> = (1..=4)
        .map(|i| (format!("model-{i}.safetensors"), noise(bytes / 4 + i, i)))
        .collect();
    let server = HubServer::start(REPO, "/mirror", &[]);
    for (name, contents) in &shards {
        server.put(name, contents.clone());
    }
    server.store(Storage::Signed { requests: 3 });
    // Slow enough for the buffers of the network to stay nearly empty: what the server sends is then what the client gets.
    server.set_rate(Some(if long { 25_000_000 } else { 6_000_000 }));
    let folder = tempfile::tempdir().unwrap();
    let snapshot = hub(&server.endpoint())
        .snapshot(REPO, "main", &Control::new())
        .unwrap();
    let total = snapshot.bytes();
    let over = AtomicBool::new(false);
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| break_things(&server, &over, if long { 3000 } else { 700 }));
        for kill in 1..=kills {
            let said = Arc::new(AtomicU64::new(0));
            let mut child = start(&server.endpoint(), folder.path(), &said);
            let goal = total * kill / (kills + 1);
            let patience = Instant::now() + Duration::from_secs(300);
            while said.load(Ordering::SeqCst) < goal {
                assert!(
                    Instant::now() < patience,
                    "no progress: {} of {goal}",
                    said.load(Ordering::SeqCst)
                );
                assert_eq!(
                    child.try_wait().unwrap().map(|status| status.code()),
                    None,
                    "ended before it was killed"
                );
                std::thread::sleep(Duration::from_millis(10));
            }
            // SIGKILL.
            child.kill().unwrap();
            child.wait().unwrap();
            let kept = on_disk(&snapshot, folder.path());
            let said = said.load(Ordering::SeqCst);
            assert!(
                kept >= said,
                "it said {said} bytes were on the disk, and there are {kept}"
            );
        }
        let mut last = start(&server.endpoint(), folder.path(), &Arc::default());
        let status = last.wait().unwrap();
        over.store(true, Ordering::SeqCst);
        assert!(status.success());
    });
    for (name, contents) in &shards {
        assert!(
            std::fs::read(folder.path().join(name)).unwrap() == *contents,
            "{name} differs"
        );
    }
    let left: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".partial"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let sent = server.sent();
    println!(
        "soak: {total} bytes, {kills} kills, {} requests, {sent} bytes sent ({:.4} times the set), {:.1} s",
        server.requests().len(),
        sent as f64 / total as f64,
        began.elapsed().as_secs_f64()
    );
    let most = if long {
        total + total / 20
    } else {
        total + (kills + 1) * 2 * BLOCK
    };
    assert!(sent <= most, "{sent} bytes were fetched for {total}");
}

/// A fault every `pause` milliseconds, one kind after the other.
fn break_things(server: &HubServer, over: &AtomicBool, pause: u64) {
    let mut turn = 0_u64;
    let mut next = Instant::now();
    while !over.load(Ordering::SeqCst) {
        if Instant::now() >= next {
            let after = 100_000 + turn * 777_777 % 9_000_000;
            let fault = match turn % 6 {
                0 => Fault::Cut {
                    after,
                    clean: false,
                },
                1 => Fault::Status(503, None),
                2 => Fault::Cut { after, clean: true },
                3 => Fault::Stall { after },
                4 => Fault::Status(429, Some("1".into())),
                _ => Fault::NoSuchRange,
            };
            server.fault("*", fault, 1);
            turn += 1;
            next = Instant::now() + Duration::from_millis(pause);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Bytes that repeat nowhere.
fn noise(length: u64, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut out = Vec::with_capacity(length as usize + 8);
    while (out.len() as u64) < length {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(&(state >> 16).to_le_bytes());
    }
    out.truncate(length as usize);
    out
}
