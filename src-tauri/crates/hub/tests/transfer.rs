//! What a download keeps promising while the network, the server and the disk do their worst.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::time::{Duration, Instant};

use fastar_hub::{
    BLOCK, Control, Error, Event, Hub, Options, Phase, Presence, Progress, Proxies, Settings,
    Snapshot, Summary, Token,
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

#[test]
fn a_short_body_with_a_clean_end_is_continued_at_the_byte_where_it_ended() {
    let (server, contents, folder) = one(10 * MIB);
    server.fault(
        "*",
        Fault::Cut {
            after: 6 * MIB,
            clean: true,
        },
        1,
    );
    let (hub, snapshot) = hub(&server);
    fetch(&hub, &snapshot, folder.path()).unwrap();
    holds(folder.path(), &contents);
    assert_eq!(ranges(&server), ["", "bytes=6291456-"]);
}

#[test]
fn thirty_drops_end_in_a_whole_file_and_no_byte_comes_twice() {
    let (server, contents, folder) = one(30 * MIB);
    server.fault(
        "*",
        Fault::Cut {
            after: MIB,
            clean: false,
        },
        u32::MAX,
    );
    let (hub, snapshot) = hub(&server);
    let summary = fetch(&hub, &snapshot, folder.path()).unwrap();
    holds(folder.path(), &contents);
    assert_eq!(ranges(&server).len(), 30);
    assert_eq!(summary.fetched, 30 * MIB);
}

#[test]
fn a_whole_partial_costs_no_byte_and_a_partial_that_is_too_long_is_cut() {
    for extra in [0, 100] {
        let (server, contents, folder) = one(5 * MIB);
        server.fault("*", Fault::NoSuchRange, u32::MAX);
        let (hub, snapshot) = hub(&server);
        let mut partial = contents.clone();
        partial.extend(vec![1; extra]);
        std::fs::write(folder.path().join("model.safetensors.partial"), partial).unwrap();
        let summary = fetch(&hub, &snapshot, folder.path()).unwrap();
        holds(folder.path(), &contents);
        assert_eq!((summary.fetched, server.data_requests().len()), (0, 0));
    }
}

#[test]
fn a_set_that_does_not_fit_is_refused_before_any_request_for_data() {
    let server = HubServer::start(REPO, "", &[]);
    server.list(serde_json::json!([{ "type": "file", "path": "a.safetensors", "size": 1_u64 << 43 }, { "type": "file", "path": "b", "size": 5 }]));
    let folder = tempfile::tempdir().unwrap();
    let (hub, snapshot) = hub(&server);
    let space = hub.space(&snapshot.files, folder.path()).unwrap();
    assert_eq!((space.total, space.present), ((1 << 43) + 5, 0));
    let error = fetch(&hub, &snapshot, folder.path()).unwrap_err();
    assert!(
        matches!(&error, Error::NotEnoughSpace { needed, free, .. } if needed > free),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("The download needs 8.8 TB more, and "),
        "{error}"
    );
    assert_eq!(server.data_requests().len(), 0);
}

#[test]
fn one_flipped_byte_costs_one_block() {
    let (server, contents, folder) = one(40 * MIB);
    let (hub, snapshot) = hub(&server);
    fetch(&hub, &snapshot, folder.path()).unwrap();
    let path = folder.path().join("model.safetensors");
    let mut damaged = contents.clone();
    damaged[17_000_000] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    let file = &snapshot.files[0];
    let error = fastar_hub::verify(file, &path, &Control::new(), |_| {})
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("1 of its blocks") && error.contains("the first at byte 16777216"),
        "{error}"
    );
    let before = server.sent();
    let summary = hub.repair(file, &path, &Control::new(), |_| {}).unwrap();
    assert_eq!((summary.fetched, server.sent() - before), (BLOCK, BLOCK));
    holds(folder.path(), &contents);
    fastar_hub::verify(file, &path, &Control::new(), |_| {}).unwrap();
}

#[test]
fn wrong_contents_that_come_twice_alike_are_the_servers_fault_and_are_kept() {
    let (server, mut contents, folder) = one(2 * MIB);
    let (hub, snapshot) = hub(&server);
    contents[5] ^= 1;
    server.damage("model.safetensors", contents.clone());
    let error = fetch(&hub, &snapshot, folder.path()).unwrap_err();
    assert!(matches!(error, Error::WrongContents { .. }), "{error}");
    assert!(std::fs::read(folder.path().join("model.safetensors.partial")).unwrap() == contents);
    assert!(!folder.path().join("model.safetensors").exists());
}

#[test]
fn a_connection_that_brings_nothing_is_dropped_and_resumed() {
    let (server, contents, folder) = one(5 * MIB);
    server.fault("*", Fault::Stall { after: 3 * MIB }, 1);
    let (hub, snapshot) = hub(&server);
    fetch(&hub, &snapshot, folder.path()).unwrap();
    holds(folder.path(), &contents);
    assert_eq!(ranges(&server), ["", "bytes=3145728-"]);
}

#[test]
fn too_many_requests_waits_as_long_as_the_server_asks() {
    let (server, contents, folder) = one(MIB);
    server.fault("*", Fault::Status(429, Some("1".into())), 2);
    server.fault("*", Fault::Status(503, None), 1);
    let (hub, snapshot) = hub(&server);
    fetch(&hub, &snapshot, folder.path()).unwrap();
    holds(folder.path(), &contents);
    let seen = server.data_requests();
    assert_eq!(
        seen.iter().map(|seen| seen.status).collect::<Vec<_>>(),
        [429, 429, 503, 200]
    );
    assert!(
        seen[1].at - seen[0].at >= Duration::from_secs(1)
            && seen[2].at - seen[1].at >= Duration::from_secs(1)
    );
}

#[test]
fn refusals_at_the_endpoint_are_final_and_name_repository_and_file() {
    for (status, part) in [
        (404, "has no file \"model.safetensors\" of acme/tiny"),
        (401, "does not give file \"model.safetensors\" of acme/tiny"),
        (403, "gated"),
    ] {
        let (server, _, folder) = one(MIB);
        let (hub, snapshot) = hub(&server);
        server.fault("*", Fault::Status(status, None), u32::MAX);
        let error = fetch(&hub, &snapshot, folder.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(server.data_requests().len(), 1);
    }
}

#[test]
fn a_mirror_with_a_prefix_relative_redirects_and_weak_etags_works_and_nothing_leaves_it() {
    for slash in ["", "/"] {
        let contents = bytes(MIB, 3);
        let server = HubServer::start(
            REPO,
            "/mirror",
            &[("sub dir/model.safetensors", contents.clone())],
        );
        server.store(Storage::Relative);
        server.set_etag("sub dir/model.safetensors", "W/\"abc/def\"");
        let settings = Settings {
            endpoint: server.endpoint() + slash,
            ..settings(&server)
        };
        let folder = tempfile::tempdir().unwrap();
        let hub = Hub::new(settings).unwrap();
        let snapshot = hub.snapshot(REPO, "main", &Control::new()).unwrap();
        fetch(&hub, &snapshot, folder.path()).unwrap();
        assert!(
            std::fs::read(folder.path().join("sub dir/model.safetensors")).unwrap() == contents
        );
        let host = server
            .endpoint()
            .replace("http://", "")
            .replace("/mirror", "");
        assert!(
            server
                .requests()
                .iter()
                .all(|seen| seen.host == host && seen.target.starts_with("/mirror/"))
        );
    }
}

#[test]
fn a_redirect_to_the_hub_from_a_chosen_mirror_and_a_circle_are_refused() {
    let (server, _, folder) = one(MIB);
    let (hub, snapshot) = hub(&server);
    server.store(Storage::To("https://huggingface.co/x".into()));
    let error = fetch(&hub, &snapshot, folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("redirects to huggingface.co, and another mirror was chosen"),
        "{error}"
    );
    server.store(Storage::Circle);
    let error = fetch(&hub, &snapshot, folder.path())
        .unwrap_err()
        .to_string();
    assert!(error.contains("in a circle"), "{error}");
}

#[test]
fn an_expired_address_is_asked_for_again_and_the_token_stays_at_the_endpoint() {
    let (server, contents, folder) = one(10 * MIB);
    server.store(Storage::Signed { requests: 2 });
    server.fault(
        "*",
        Fault::Cut {
            after: 2 * MIB,
            clean: false,
        },
        u32::MAX,
    );
    let hub = Hub::new(Settings {
        token: Token::new("hf_secret"),
        ..settings(&server)
    })
    .unwrap();
    let snapshot = hub.snapshot(REPO, "main", &Control::new()).unwrap();
    fetch(&hub, &snapshot, folder.path()).unwrap();
    holds(folder.path(), &contents);
    let seen = server.requests();
    assert!(seen.iter().any(|seen| seen.status == 403));
    for request in seen {
        let expected = (request.host != server.storage_host()).then_some("Bearer hf_secret");
        assert_eq!(
            request.authorization.as_deref(),
            expected,
            "{}",
            request.target
        );
    }
}

#[test]
fn ranges_that_are_ignored_or_answered_wrongly_still_end_whole() {
    for fault in [
        Fault::IgnoreRange,
        Fault::WrongRange,
        Fault::NoSuchRange,
        Fault::NoLength,
    ] {
        let (server, contents, folder) = one(6 * MIB);
        server.fault(
            "*",
            Fault::Cut {
                after: 5 * MIB,
                clean: false,
            },
            1,
        );
        server.fault("*", fault.clone(), 1);
        let (hub, snapshot) = hub(&server);
        fetch(&hub, &snapshot, folder.path()).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        holds(folder.path(), &contents);
    }
}

#[test]
fn a_file_that_changes_on_the_server_starts_over_and_says_so() {
    let first = bytes(3 * MIB, 1);
    let second = bytes(3 * MIB, 2);
    // Without a hash in the listing only the ETag can tell.
    let server = HubServer::start(REPO, "", &[("notes.bin", first)]);
    server.fault(
        "*",
        Fault::Cut {
            after: 2 * MIB,
            clean: false,
        },
        1,
    );
    // Nobody gets further until the contents have changed.
    server.fault("*", Fault::Status(503, None), u32::MAX);
    let (hub, snapshot) = hub(&server);
    let folder = tempfile::tempdir().unwrap();
    let mut said = Vec::new();
    let control = Control::new();
    hub.fetch_set(
        &snapshot.files,
        folder.path(),
        &Options::default(),
        &control,
        |event| match event {
            Event::Progress(progress) if progress.done == 2 * MIB => {
                server.put("notes.bin", second.clone());
                server.heal();
            }

            Event::StartedOver { path, why } => said.push((path, why)),
            _ => {}
        },
    )
    .unwrap();
    let found = std::fs::read(folder.path().join("notes.bin")).unwrap();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].0 == "notes.bin" && said[0].1.contains("changed"));
    assert!(found == second);
}

#[test]
fn a_web_page_is_never_taken_for_the_file() {
    let (server, contents, folder) = one(MIB);
    let (hub, snapshot) = hub(&server);
    server.fault("*", Fault::WebPage, 1);
    let error = fetch(&hub, &snapshot, folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("A web page came back from 127.0.0.1:"),
        "{error}"
    );
    assert!(!folder.path().join("model.safetensors").exists());
    assert_eq!(
        fastar_hub::presence(&snapshot.files[0], &folder.path().join("model.safetensors")),
        Presence::Partial(0)
    );
    fetch(&hub, &snapshot, folder.path()).unwrap();
    holds(folder.path(), &contents);
}

#[test]
fn progress_counts_bytes_on_the_disk_and_never_falls_or_passes_the_whole() {
    let server = HubServer::start(
        REPO,
        "",
        &[
            ("a", bytes(1000, 1)),
            ("b", bytes(1000, 2)),
            ("c.safetensors", bytes(20 * MIB, 3)),
        ],
    );
    server.fault(
        "c.safetensors",
        Fault::Cut {
            after: 3 * MIB,
            clean: false,
        },
        5,
    );
    server.set_rate(Some(40 * MIB));
    let (hub, snapshot) = hub(&server);
    let folder = tempfile::tempdir().unwrap();
    let mut samples: Vec<Progress> = Vec::new();
    let control = Control::new();
    let stopped = hub.fetch_set(
        &snapshot.files,
        folder.path(),
        &Options::default(),
        &control,
        |event| {
            if let Event::Progress(progress) = event {
                if progress.done > 8 * MIB {
                    control.cancel();
                }
                samples.push(progress);
            }
        },
    );
    assert!(matches!(stopped, Err(Error::Cancelled)));
    let kept = snapshot.files.iter().map(|file| {
        match fastar_hub::presence(file, &folder.path().join(&file.path)) {
            Presence::Absent => 0,
            Presence::Partial(bytes) => bytes,
            Presence::Whole => file.bytes,
        }
    });
    let kept: u64 = kept.sum();
    assert_eq!(samples.last().unwrap().done, kept);
    let first_run = samples.len();
    hub.fetch_set(
        &snapshot.files,
        folder.path(),
        &Options::default(),
        &Control::new(),
        |event| {
            if let Event::Progress(progress) = event {
                samples.push(progress);
            }
        },
    )
    .unwrap();
    for run in [&samples[..first_run], &samples[first_run..]] {
        assert!(run.windows(2).all(|pair| pair[0].done <= pair[1].done));
    }
    assert!(
        samples
            .iter()
            .all(|sample| sample.total == 20 * MIB + 2000 && sample.done <= sample.total)
    );
    assert_eq!(samples.last().unwrap().done, 20 * MIB + 2000);
    assert!(samples.last().unwrap().fetched <= 20 * MIB + 2000 - kept + MIB);
}

#[test]
fn cancel_works_while_the_hub_has_not_answered_yet() {
    let (server, _, folder) = one(MIB);
    let (hub, snapshot) = hub(&server);
    server.fault("*", Fault::Delay(Duration::from_secs(60)), 1);
    let control = Control::new();
    let start = Instant::now();
    let ended = hub.fetch_set(
        &snapshot.files,
        folder.path(),
        &Options::default(),
        &control,
        |_| {
            if !server.data_requests().is_empty() {
                control.cancel();
            }
        },
    );
    assert!(matches!(ended, Err(Error::Cancelled)) && start.elapsed() < Duration::from_secs(30));
    server.fault("api", Fault::Delay(Duration::from_secs(60)), 1);
    let control = Control::new();
    control.cancel();
    assert!(matches!(
        hub.snapshot(REPO, "main", &control),
        Err(Error::Cancelled)
    ));
    let dest = folder.path().join("model.safetensors");
    fastar_hub::discard(&dest).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_paused_transfer_waits_and_goes_on_where_it_was() {
    let (server, contents, folder) = one(8 * MIB);
    let (hub, snapshot) = hub(&server);
    server.set_rate(Some(20 * MIB));
    let control = Control::new();
    let mut paused = 0;
    let summary = hub
        .fetch_set(
            &snapshot.files,
            folder.path(),
            &Options::default(),
            &control,
            |event| {
                let Event::Progress(progress) = event else {
                    return;
                };
                if progress.phase == Phase::Paused {
                    paused += 1;
                    control.resume();
                } else if progress.done > 0 && paused == 0 {
                    control.pause();
                }
            },
        )
        .unwrap();
    holds(folder.path(), &contents);
    assert!(paused > 0 && summary.fetched < 10 * MIB);
}

#[test]
fn a_second_download_of_the_same_file_is_told_who_has_it() {
    let (server, _, folder) = one(4 * MIB);
    let (hub, snapshot) = hub(&server);
    server.fault("*", Fault::Delay(Duration::from_secs(60)), 1);
    let control = Control::new();
    let mut refused = None;
    let _ = hub.fetch_set(
        &snapshot.files,
        folder.path(),
        &Options::default(),
        &control,
        |_| {
            if refused.is_none() && !server.data_requests().is_empty() {
                refused = Some(
                    fetch(&hub, &snapshot, folder.path())
                        .unwrap_err()
                        .to_string(),
                );
                control.cancel();
            }
        },
    );
    let refused = refused.unwrap();
    assert!(
        refused.ends_with(&format!(
            "is being downloaded already by process {}. Stop that download first.",
            std::process::id()
        )),
        "{refused}"
    );
    fetch(&hub, &snapshot, folder.path()).unwrap();
}

#[test]
fn a_kept_slot_holds_back_further_files() {
    let files: Vec<(String, Vec<u8>)> = (0..5)
        .map(|i| (format!("{i}.safetensors"), bytes(1000 + i, i)))
        .collect();
    let files: Vec<(&str, Vec<u8>)> = files
        .iter()
        .map(|(name, contents)| (name.as_str(), contents.clone()))
        .collect();
    let server = HubServer::start(REPO, "", &files);
    let (hub, snapshot) = hub(&server);
    let folder = tempfile::tempdir().unwrap();
    let mut most = 0;
    let mut kept = Vec::new();
    hub.fetch_set(
        &snapshot.files,
        folder.path(),
        &Options::default(),
        &Control::new(),
        |event| match event {
            Event::Done { path, slot, .. } => kept.push((path, slot)),
            Event::Progress(_) => {
                let here = (0..5)
                    .filter(|i| folder.path().join(format!("{i}.safetensors")).exists())
                    .count();
                most = most.max(here);
                for (path, slot) in kept.drain(..) {
                    fastar_hub::remove_file(&path).unwrap();
                    drop(slot);
                }
            }
            Event::StartedOver { .. } => {}
        },
    )
    .unwrap();
    assert!((1..=2).contains(&most), "{most}");
}

#[test]
fn a_folder_without_the_right_to_write_is_called_that_and_not_full() {
    let (server, _, _) = one(1000);
    let (hub, snapshot) = hub(&server);
    let error = fetch(&hub, &snapshot, Path::new("/sys/fastar-download"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("not writable") && !error.contains("full"),
        "{error}"
    );
}

#[test]
fn a_dead_proxy_is_named_without_its_password() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let settings = Settings {
        endpoint: "http://hub.invalid".into(),
        proxies: Proxies::all(format!("http://me:hidden@{closed}")),
        first_wait: Duration::from_millis(1),
        tries: 2,
        ..Settings::default()
    };
    let error = Hub::new(settings)
        .unwrap()
        .snapshot(REPO, "main", &Control::new())
        .unwrap_err();
    assert!(error.is_transient());
    let error = error.to_string();
    assert!(
        error.contains(&format!("through the proxy http://{closed}")) && !error.contains("hidden"),
        "{error}"
    );
}

#[test]
fn a_listing_with_a_path_out_of_the_folder_is_refused() {
    let server = HubServer::start(REPO, "", &[]);
    server.list(serde_json::json!([{ "type": "file", "path": "../../.bashrc", "size": 5 }]));
    let hub = Hub::new(settings(&server)).unwrap();
    let error = hub.snapshot(REPO, "main", &Control::new()).unwrap_err();
    assert!(matches!(error, Error::HostilePath { .. }), "{error}");
}

#[test]
fn a_small_piece_is_read_with_the_same_retries() {
    let (server, contents, _) = one(3 * MIB);
    let (hub, snapshot) = hub(&server);
    server.fault(
        "*",
        Fault::Cut {
            after: 100_000,
            clean: false,
        },
        2,
    );
    let read = |range| hub.read(&snapshot.files[0], range, &Control::new());
    assert!(read(1000..500_000).unwrap() == contents[1000..500_000]);
    assert_eq!(
        ranges(&server),
        [
            "bytes=1000-499999",
            "bytes=101000-499999",
            "bytes=201000-499999"
        ]
    );
    assert!(read(0..3 * MIB + 1).is_err());
}

#[test]
fn reading_a_small_piece_can_be_cancelled_while_nothing_comes() {
    let (server, _, _) = one(MIB);
    let (_, snapshot) = hub(&server);
    let hub = Hub::new(Settings {
        stall: Duration::from_secs(60),
        tries: 1,
        ..settings(&server)
    })
    .unwrap();
    server.fault("*", Fault::Stall { after: 100 }, 1);
    let control = Control::new();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| hub.read(&snapshot.files[0], 0..1000, &control));
        let start = Instant::now();
        while server.sent() < 100 && start.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(5));
        }
        control.cancel();
        assert!(matches!(reading.join().unwrap(), Err(Error::Cancelled)));
    });
    let again = hub.read(&snapshot.files[0], 0..1000, &control);
    assert!(matches!(again, Err(Error::Cancelled)));
    assert_eq!(server.data_requests().len(), 1);
}

#[test]
fn a_server_that_never_answers_ranges_still_ends_whole() {
    let (server, contents, folder) = one(6 * MIB);
    server.fault(
        "*",
        Fault::Cut {
            after: 5 * MIB,
            clean: false,
        },
        1,
    );
    server.fault("*", Fault::WrongRange, 3);
    server.fault("*", Fault::IgnoreRange, u32::MAX);
    let (hub, snapshot) = hub(&server);
    fetch(&hub, &snapshot, folder.path()).unwrap();
    holds(folder.path(), &contents);
    assert_eq!(ranges(&server).last().map(String::as_str), Some(""));
}

#[test]
fn a_limit_slows_the_transfer_down_and_can_be_lifted_while_it_runs() {
    let (server, contents, folder) = one(6 * MIB);
    let (hub, snapshot) = hub(&server);
    let control = Control::new();
    control.set_limit(Some(2_000_000));
    let start = Instant::now();
    let mut lifted = None;
    hub.fetch_set(
        &snapshot.files,
        folder.path(),
        &Options::default(),
        &control,
        |event| {
            if let Event::Progress(progress) = event
                && progress.done >= 2 * MIB
                && lifted.is_none()
            {
                lifted = Some((start.elapsed(), progress.done));
                control.set_limit(None);
            }
        },
    )
    .unwrap();
    holds(folder.path(), &contents);
    let (after, done) = lifted.unwrap();
    // A quarter of a second's bytes and one piece may come at once.
    assert!(
        done as f64 <= 2e6 * (after.as_secs_f64() + 0.5),
        "{done} bytes in {after:?}"
    );
}

#[test]
fn requests_go_through_the_proxy_unless_the_host_is_excepted() {
    let (server, contents, folder) = one(MIB);
    // The fake hub answers requests for any host, as a proxy does.
    let through = Settings {
        endpoint: "http://hub.invalid".into(),
        proxies: Proxies::all(server.endpoint()),
        tries: 1,
        ..settings(&server)
    };
    let hub = Hub::new(through.clone()).unwrap();
    let snapshot = hub.snapshot(REPO, "main", &Control::new()).unwrap();
    fetch(&hub, &snapshot, folder.path()).unwrap();
    holds(folder.path(), &contents);
    let seen = server.requests().len();
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.host == "hub.invalid")
    );
    let mut direct = through;
    direct.proxies.direct = "hub.invalid".into();
    let error = Hub::new(direct)
        .unwrap()
        .snapshot(REPO, "main", &Control::new())
        .unwrap_err();
    assert!(
        error.is_transient() && !error.to_string().contains("proxy"),
        "{error}"
    );
    assert_eq!(server.requests().len(), seen);
}

#[test]
fn https_to_a_server_that_does_not_speak_it_is_a_clean_error() {
    let (server, _, _) = one(1);
    let endpoint = server.endpoint().replace("http://", "https://");
    let hub = Hub::new(Settings {
        endpoint,
        tries: 2,
        ..settings(&server)
    })
    .unwrap();
    let error = hub.snapshot(REPO, "main", &Control::new()).unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("cannot be reached"),
        "{error}"
    );
    assert_eq!(server.requests().len(), 0);
}
