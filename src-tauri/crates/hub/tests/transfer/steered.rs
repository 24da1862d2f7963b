//! What a person may do meanwhile, and what the disk and other processes allow.

use super::*;

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
fn what_is_on_the_disk_counts_from_the_first_moment_also_where_its_turn_comes_later() {
    let files = ["a", "b", "c"].map(|name| (name, bytes(MIB, 3)));
    let server = HubServer::start(REPO, "", &files);
    let (hub, snapshot) = hub(&server);
    let folder = tempfile::tempdir().unwrap();
    let later = &snapshot.files[1..];
    let (options, control) = (Options::default(), Control::new());
    hub.fetch_set(later, folder.path(), &options, &control, |_| {})
        .unwrap();
    server.fault("a", Fault::Delay(Duration::from_millis(500)), 1);
    let (mut first, mut last) = (None, 0);
    let one_at_a_time = Options {
        files_at_once: 1,
        ..Options::default()
    };
    hub.fetch_set(
        &snapshot.files,
        folder.path(),
        &one_at_a_time,
        &control,
        |event| {
            if let Event::Progress(progress) = event {
                first.get_or_insert(progress.done);
                assert!(progress.done >= last, "{} after {last}", progress.done);
                last = progress.done;
            }
        },
    )
    .unwrap();
    assert_eq!((first, last), (Some(2 * MIB), 3 * MIB));
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
            "is being downloaded already by process {}. Stop that first, or wait for it.",
            std::process::id()
        )),
        "{refused}"
    );
    fetch(&hub, &snapshot, folder.path()).unwrap();
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
