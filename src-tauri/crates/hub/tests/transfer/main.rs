//! What a download keeps promising while the network, the server and the disk do their worst.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod answers;
mod certificates;
mod network;
mod resumed;
mod small;
mod steered;
mod verified;
mod waiting;

use std::path::Path;
use std::time::{Duration, Instant};

use fastar_hub::{
    BLOCK, Control, Error, Event, Hub, Options, Phase, Presence, Progress, Proxies, RemoteFile,
    Settings, Snapshot, Summary, Token,
};
use fastar_testkit::hub::{Fault, HubServer, Storage};

const REPO: &str = "acme/tiny";
const MIB: u64 = 1 << 20;

/// Bytes that repeat nowhere.
fn bytes(length: u64, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut out = Vec::with_capacity(length as usize + 8);
    while out.len() < length as usize {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(length as usize);
    out
}

fn settings(server: &HubServer) -> Settings {
    Settings {
        endpoint: server.endpoint(),
        stall: Duration::from_millis(600),
        first_wait: Duration::from_millis(5),
        longest_wait: Duration::from_millis(50),
        ..Settings::default()
    }
}

fn hub(server: &HubServer) -> (Hub, Snapshot) {
    let hub = Hub::new(settings(server)).unwrap();
    let snapshot = hub.snapshot(REPO, "main", &Control::new()).unwrap();
    (hub, snapshot)
}

/// One file of `length` bytes, the server, and a folder.
fn one(length: u64) -> (HubServer, Vec<u8>, tempfile::TempDir) {
    let contents = bytes(length, 7);
    let server = HubServer::start(REPO, "", &[("model.safetensors", contents.clone())]);
    (server, contents, tempfile::tempdir().unwrap())
}

fn fetch(hub: &Hub, snapshot: &Snapshot, folder: &Path) -> fastar_hub::Result<Summary> {
    hub.fetch_set(
        &snapshot.files,
        folder,
        &Options::default(),
        &Control::new(),
        |_| {},
    )
}

fn ranges(server: &HubServer) -> Vec<String> {
    server
        .data_requests()
        .into_iter()
        .map(|seen| seen.range.unwrap_or_default())
        .collect()
}

fn holds(folder: &Path, contents: &[u8]) {
    assert!(std::fs::read(folder.join("model.safetensors")).unwrap() == contents);
    assert!(!folder.join("model.safetensors.partial").exists());
}

/// Fetches the one file and compares it.
fn ends_whole(server: &HubServer, folder: &Path, contents: &[u8]) -> Summary {
    let (hub, snapshot) = hub(server);
    let summary = fetch(&hub, &snapshot, folder).unwrap();
    holds(folder, contents);
    summary
}
