//! What a download leaves on the disk, and what it finds there.

use super::*;

#[test]
fn what_is_left_is_known_from_the_disk_alone_also_in_another_folder() {
    let scene = Scene::new();
    scene.hub.set_rate(Some(2_000_000));
    let half = scene.shard_bytes() / 2;
    let ended = scene.work_until(&scene.order(), |report| {
        report.phase == JobPhase::Downloading && report.done_bytes > half
    });
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    let requests = scene.hub.requests().len();
    let left = scene
        .installer
        .leftover(scene.models.path(), "flash.fst")
        .unwrap();
    assert_eq!(left.total_bytes, Some(scene.shard_bytes()));
    assert!(left.done_bytes > half, "{}", left.done_bytes);

    let elsewhere = tempfile::tempdir().unwrap();
    for name in [
        "flash.download",
        "flash.fst.partial",
        "flash.fst.partial.state",
    ] {
        fs::rename(scene.models.path().join(name), elsewhere.path().join(name)).unwrap();
    }
    assert_eq!(
        scene.installer.leftover(scene.models.path(), "flash.fst"),
        None
    );
    let moved = scene
        .installer
        .leftover(elsewhere.path(), "flash.fst")
        .unwrap();
    assert_eq!(moved.done_bytes, left.done_bytes);
    assert_eq!(moved.order.folder, elsewhere.path());
    assert_eq!(
        scene.hub.requests().len(),
        requests,
        "nothing was asked of the network"
    );
    scene.hub.set_rate(None);
    let sent = scene.hub.sent();
    let ended = scene.work_until(&moved.order, |_| false);
    assert!(matches!(ended, Ok(Ended::Done(_))), "{ended:?}");
    assert!(fs::read(elsewhere.path().join("flash.fst")).unwrap() == scene.expected(true));
    // No more than was missing came, but for blocks that were under way.
    let came = scene.hub.sent() - sent;
    assert!(came <= scene.shard_bytes() - half, "{came}");
}

#[test]
fn what_was_begun_is_removed_when_it_is_given_up_and_nothing_else() {
    let scene = Scene::new();
    scene.hub.set_rate(Some(2_000_000));
    fs::write(scene.models.path().join("mine.txt"), "keep").unwrap();
    let half = scene.shard_bytes() / 2;
    let ended = scene.work_until(&scene.order(), |report| report.done_bytes > half);
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    assert!(scene.download().exists());
    scene
        .installer
        .discard(scene.models.path(), "flash.fst")
        .unwrap();
    assert_eq!(
        folder_files(scene.models.path()),
        [("mine.txt".to_owned(), b"keep".to_vec())]
    );
    // Again, and where there never was anything.
    scene
        .installer
        .discard(scene.models.path(), "flash.fst")
        .unwrap();
    scene
        .installer
        .discard(&scene.models.path().join("nowhere"), "x.fst")
        .unwrap();
}

#[test]
fn another_download_does_not_take_the_place_of_an_unfinished_one() {
    let scene = Scene::new();
    scene.hub.set_rate(Some(2_000_000));
    let ended = scene.work_until(&scene.order(), |report| report.done_bytes > 500_000);
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    let before = library::bytes(scene.models.path());
    for other in [
        Order {
            drafter: false,
            ..scene.order()
        },
        Order {
            revision: "older".into(),
            ..scene.order()
        },
        Order {
            repository: "deepseek-ai/DeepSeek-V4-Flash".into(),
            ..scene.order()
        },
    ] {
        let error = scene.work_until(&other, |_| false).unwrap_err();
        assert_eq!(error.code, ErrorCode::BadRequest);
        assert!(
            error.message.contains("unfinished download") && error.message.contains(REPO),
            "{error}"
        );
    }
    assert_eq!(library::bytes(scene.models.path()), before);
    scene.hub.set_rate(None);
    assert!(matches!(scene.work(), Ok(Ended::Done(_))));
    assert!(fs::read(scene.out()).unwrap() == scene.expected(true));
}

#[test]
fn a_lock_left_by_a_dead_process_blocks_nobody_and_a_held_one_is_said() {
    let scene = Scene::new();
    fs::create_dir_all(scene.download()).unwrap();
    let lock = scene.download().join("lock");
    fs::write(&lock, "4294967294\n").unwrap();
    let held = fs::File::options()
        .read(true)
        .write(true)
        .open(&lock)
        .unwrap();
    held.lock().unwrap();
    for error in [
        scene.work().unwrap_err(),
        scene
            .installer
            .discard(scene.models.path(), "flash.fst")
            .unwrap_err(),
    ] {
        assert_eq!(error.code, ErrorCode::Busy);
        assert!(
            error
                .message
                .contains("another FaStar (process 4294967294)"),
            "{error}"
        );
    }
    drop(held);
    assert!(matches!(scene.work(), Ok(Ended::Done(_))));
    scene.assert_only_the_model();
}

#[test]
fn a_model_that_is_there_is_not_replaced_unless_it_is_this_one() {
    let scene = Scene::new();
    fs::write(scene.out(), "another model").unwrap();
    let error = scene.work().unwrap_err();
    assert!(error.message.contains("is there already"), "{error}");
    assert_eq!(
        folder_files(scene.models.path()),
        [("flash.fst".to_owned(), b"another model".to_vec())]
    );

    fs::remove_file(scene.out()).unwrap();
    scene.hub.set_rate(Some(2_000_000));
    let ended = scene.work_until(&scene.order(), |report| report.done_bytes > 500_000);
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    // As if the process had died between giving the container its name and removing the folder.
    fs::remove_file(scene.models.path().join("flash.fst.partial")).unwrap();
    fs::remove_file(scene.models.path().join("flash.fst.partial.state")).unwrap();
    fs::write(scene.out(), scene.expected(true)).unwrap();
    let sent = scene.hub.sent();
    assert_eq!(scene.work(), Ok(Ended::Done(None)));
    scene.assert_only_the_model();
    assert_eq!(scene.hub.sent(), sent);
}

#[test]
fn a_damaged_record_of_a_download_is_made_anew() {
    for damage in [&b"{\"version\":1"[..], b"", b"\xff", b"{\"version\":77}"] {
        let scene = Scene::new();
        scene.hub.set_rate(Some(2_000_000));
        let ended = scene.work_until(&scene.order(), |report| report.done_bytes > 500_000);
        assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
        fs::write(scene.download().join("download.json"), damage).unwrap();
        assert_eq!(
            scene.installer.leftover(scene.models.path(), "flash.fst"),
            None
        );
        scene.hub.set_rate(None);
        assert!(matches!(scene.work(), Ok(Ended::Done(_))));
        assert!(fs::read(scene.out()).unwrap() == scene.expected(true));
        scene.assert_only_the_model();
    }
}

#[test]
fn files_of_a_person_in_the_places_of_a_download_are_never_touched() {
    let scene = Scene::new();
    let holiday = scene.download().join("holiday");
    fs::create_dir_all(&holiday).unwrap();
    fs::write(holiday.join("photo.jpg"), "keep").unwrap();
    let error = scene.work().unwrap_err();
    assert!(error.message.contains("in the way"), "{error}");
    scene
        .installer
        .discard(scene.models.path(), "flash.fst")
        .unwrap();
    assert_eq!(fs::read(holiday.join("photo.jpg")).unwrap(), b"keep");
    fs::remove_dir_all(scene.download()).unwrap();

    let notes = scene.models.path().join("flash.fst.partial");
    fs::write(&notes, "my own notes").unwrap();
    let error = scene.work().unwrap_err();
    assert!(error.message.contains("in the way"), "{error}");
    scene
        .installer
        .discard(scene.models.path(), "flash.fst")
        .unwrap();
    assert_eq!(fs::read(&notes).unwrap(), b"my own notes");
    assert!(!scene.download().exists());
    fs::remove_file(notes).unwrap();

    // And what comes into the folder of a download later stays when that is done with.
    scene.hub.set_rate(Some(2_000_000));
    let ended = scene.work_until(&scene.order(), |report| report.done_bytes > 500_000);
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    fs::write(scene.download().join("mine.txt"), "keep").unwrap();
    scene.hub.set_rate(None);
    assert!(matches!(scene.work(), Ok(Ended::Done(_))));
    assert_eq!(
        folder_files(&scene.download()),
        [("mine.txt".to_owned(), b"keep".to_vec())]
    );

    #[cfg(unix)]
    {
        let scene = Scene::new();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), scene.download()).unwrap();
        assert!(scene.work().unwrap_err().message.contains("in the way"));
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}

#[test]
fn headers_that_the_disk_has_damaged_are_fetched_again() {
    for damage in ["", "{", "nonsense"] {
        let scene = Scene::new();
        scene.hub.set_rate(Some(2_000_000));
        let half = scene.shard_bytes() / 2;
        let ended = scene.work_until(&scene.order(), |report| report.done_bytes > half);
        assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
        let headers = scene.download().join("headers");
        for entry in fs::read_dir(headers).unwrap() {
            fs::write(entry.unwrap().path(), damage).unwrap();
        }
        scene.hub.set_rate(None);
        let sent = scene.hub.sent();
        let ended = scene.work();
        assert!(matches!(ended, Ok(Ended::Done(_))), "{ended:?}");
        assert!(fs::read(scene.out()).unwrap() == scene.expected(true));
        // The shards that were done were not fetched again, whatever the headers cost.
        let heads = 8 * (256 << 10);
        assert!(scene.hub.sent() - sent <= scene.shard_bytes() - half + heads);
    }
}

#[test]
fn a_record_with_numbers_that_cannot_be_is_damaged_and_nothing_worse() {
    let scene = Scene::new();
    scene.hub.set_rate(Some(2_000_000));
    let ended = scene.work_until(&scene.order(), |report| report.done_bytes > 500_000);
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    let record = scene.download().join("download.json");
    let text = fs::read_to_string(&record).unwrap();
    let mut hostile = String::new();
    for part in text.split_inclusive("\"bytes\":") {
        hostile.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
        if part.ends_with("\"bytes\":") {
            hostile.push_str("18446744073709551615");
        }
    }
    fs::write(&record, hostile).unwrap();
    assert_eq!(
        scene.installer.leftover(scene.models.path(), "flash.fst"),
        None
    );
    let listed = library::list(scene.models.path(), &[], &*scene.installer).unwrap();
    assert_eq!(listed.files.len(), 1);
    scene.hub.set_rate(None);
    assert!(matches!(scene.work(), Ok(Ended::Done(_))));
    scene.assert_only_the_model();
}

/// A folder of models that somebody else has made: nothing in it leads out of it.
#[cfg(unix)]
#[test]
fn a_download_of_a_stranger_cannot_reach_other_files() {
    use std::os::unix::fs::symlink;
    type Trap = fn(&Scene, &Path);
    let traps: [(&str, Trap); 9] = [
        ("lock", |scene, home| {
            fs::remove_file(scene.download().join("lock")).unwrap();
            symlink(home.join("chats.db"), scene.download().join("lock")).unwrap()
        }),
        ("record's copy", |scene, home| {
            symlink(
                home.join("chats.db"),
                scene.download().join("download.partial"),
            )
            .unwrap();
        }),
        ("record", |scene, home| {
            let record = scene.download().join("download.json");
            fs::rename(&record, home.join("record")).unwrap();
            symlink(home.join("record"), record).unwrap();
        }),
        ("files", |scene, home| {
            fs::remove_dir_all(scene.download().join("files")).unwrap();
            symlink(home, scene.download().join("files")).unwrap();
        }),
        ("a file", |scene, home| {
            symlink(
                home.join("chats.db"),
                scene.download().join("files/config.json.partial"),
            )
            .unwrap();
        }),
        ("container", |scene, home| {
            fs::remove_file(scene.models.path().join("flash.fst.partial")).unwrap();
            symlink(
                home.join("chats.db"),
                scene.models.path().join("flash.fst.partial"),
            )
            .unwrap();
        }),
        ("journal", |scene, home| {
            fs::remove_file(scene.models.path().join("flash.fst.partial.state")).unwrap();
            symlink(
                home.join("chats.db"),
                scene.models.path().join("flash.fst.partial.state"),
            )
            .unwrap();
        }),
        ("journal's copy", |scene, home| {
            symlink(
                home.join("chats.db"),
                scene.models.path().join("flash.fst.partial.state.new"),
            )
            .unwrap();
        }),
        ("paths of the record", |scene, home| {
            let record = scene.download().join("download.json");
            let text = fs::read_to_string(&record).unwrap();
            let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let hostile: Vec<_> = [
                home.join("chats.db").to_str().unwrap(),
                "../../victim",
                "../victim",
            ]
            .map(|path| {
                let mut file = value["snapshot"]["files"][0].clone();
                file["path"] = path.into();
                file
            })
            .into();
            value["snapshot"]["files"]
                .as_array_mut()
                .unwrap()
                .extend(hostile);
            // The hub does not have what is wanted, so it is asked anew.
            value["snapshot"]["revision"] = "0".repeat(40).into();
            value["done"] = serde_json::json!([]);
            fs::write(record, value.to_string()).unwrap();
        }),
    ];
    for (what, trap) in traps {
        let scene = Scene::new();
        scene.hub.set_rate(Some(2_000_000));
        let ended = scene.work_until(&scene.order(), |report| report.done_bytes > 500_000);
        assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
        scene.hub.set_rate(None);
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("chats.db"), "all my chats").unwrap();
        fs::write(scene.models.path().join("victim"), "of the models").unwrap();
        trap(&scene, home.path());
        let before = folder_files(home.path());
        let whole = |did: &str| {
            assert_eq!(folder_files(home.path()), before, "{what}, {did}");
            let victim = fs::read(scene.models.path().join("victim")).unwrap();
            assert_eq!(victim, b"of the models", "{what}, {did}");
        };
        let ended = scene.work();
        whole("resumed");
        if what != "paths of the record" {
            let error = ended.unwrap_err();
            assert!(error.message.contains("is in the way"), "{what}: {error}");
        }
        // Whether it could be removed or not.
        let _ = scene.installer.discard(scene.models.path(), "flash.fst");
        whole("discarded");
    }
}
