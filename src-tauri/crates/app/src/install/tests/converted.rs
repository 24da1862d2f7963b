//! A checkpoint becomes its container while it arrives.

use super::*;

#[test]
fn what_is_converted_while_it_arrives_equals_a_local_conversion_byte_for_byte() {
    let scene = Scene::new();
    let (mut reports, mut most) = (Vec::new(), 0);
    let ended = scene
        .installer
        .work(&scene.order(), &Steering::default(), &mut |report| {
            most = most.max(library::bytes(scene.models.path()));
            reports.push(report);
        });
    assert!(matches!(ended, Ok(Ended::Done(_))), "{ended:?}");
    assert!(fs::read(scene.out()).unwrap() == scene.expected(true));
    scene.assert_only_the_model();

    assert_eq!(reports[0].phase, JobPhase::Resolving);
    let arriving: Vec<_> = reports
        .iter()
        .filter(|report| !matches!(report.phase, JobPhase::Resolving | JobPhase::Verifying))
        .filter(|report| report.total_bytes == Some(scene.shard_bytes()))
        .map(|report| report.done_bytes)
        .collect();
    assert!(arriving.is_sorted(), "{arriving:?}");
    assert_eq!(arriving.last(), Some(&scene.shard_bytes()));
    assert_eq!(reports.last().unwrap().phase, JobPhase::Verifying);
    // Every byte came once, but for the beginnings that were read for the headers.
    let shards = scene
        .hub
        .data_requests()
        .iter()
        .filter(|seen| {
            seen.target.contains("safetensors?") || seen.target.ends_with(".safetensors")
        })
        .map(|seen| seen.sent)
        .sum::<u64>();
    assert!(shards <= 2 * scene.shard_bytes(), "{shards}");
}

#[test]
fn the_disk_holds_the_container_and_two_shards_at_most() {
    let scene = Scene::new();
    let mut sizes: Vec<u64> = folder_files(scene.source.path())
        .iter()
        .filter(|(name, _)| name.ends_with(".safetensors"))
        .map(|(_, bytes)| bytes.len() as u64)
        .collect();
    sizes.sort_unstable();
    let two: u64 = sizes.iter().rev().take(2).sum();
    let container = scene.expected(true).len() as u64;
    // Looked at from another thread as fast as it goes.
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut most = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                most = most.max(library::bytes(scene.models.path()));
            }
            most
        });
        scene.hub.set_rate(Some(20_000_000));
        let ended = scene.work();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(ended, Ok(Ended::Done(_))), "{ended:?}");
        looker.join().unwrap()
    });
    // Headers, hashes of blocks and the journal are small, and files have whole blocks of the disk.
    let beside = 600_000;
    assert!(sizes.len() >= 5 && two < container);
    assert!(
        most <= container + two + beside,
        "{most} of {container} and {two}"
    );
}

#[test]
fn a_download_that_was_stopped_anywhere_goes_on_where_it_was() {
    let scene = Scene::new();
    scene.hub.set_rate(Some(4_000_000));
    let mut stops = 0;
    for round in 1_u64.. {
        // Now and then before anything has arrived, else a bit further each time.
        let enough = round * scene.shard_bytes() / 12;
        let (mut seen, mut stopped) = (0, false);
        let ended = scene.work_until(&scene.order(), |report| {
            seen += 1;
            stopped |= report.done_bytes > enough || (round % 3 == 0 && seen == round);
            stopped
        });
        match ended.unwrap() {
            Ended::Stopped => {
                assert!(!scene.out().exists());
                stops += 1;
            }
            Ended::Done(_) => break,
        }
        let left = scene.installer.leftover(scene.models.path(), "flash.fst");
        let left = left.expect("something is left");
        assert_eq!(left.order, scene.order());
        assert!(
            left.total_bytes
                .is_none_or(|all| all == scene.shard_bytes() && left.done_bytes <= all)
        );
    }
    assert!(stops > 2, "{stops}");
    assert!(fs::read(scene.out()).unwrap() == scene.expected(true));
    scene.assert_only_the_model();
}

#[test]
fn shards_of_a_drafter_that_is_not_wanted_are_not_fetched() {
    let scene = Scene::new();
    let order = Order {
        drafter: false,
        ..scene.order()
    };
    let survey = scene
        .installer
        .survey(&order, &Steering::default())
        .unwrap();
    let ended = scene.work_until(&order, |_| false);
    assert!(matches!(ended, Ok(Ended::Done(_))), "{ended:?}");
    assert!(fs::read(scene.out()).unwrap() == scene.expected(false));
    let all = folder_files(scene.source.path());
    let shards: Vec<_> = all
        .iter()
        .filter(|(name, _)| name.ends_with(".safetensors"))
        .collect();
    // The three blocks of the drafter are the last three shards.
    let drafter = &shards[shards.len() - 3..];
    for (name, bytes) in drafter {
        let sent: u64 = scene
            .hub
            .data_requests()
            .iter()
            .filter(|seen| seen.target.contains(name.as_str()))
            .map(|seen| seen.sent)
            .sum();
        assert!(
            sent <= (256 << 10).min(bytes.len() as u64),
            "{name}: {sent}"
        );
    }
    let without: u64 = shards[..shards.len() - 3]
        .iter()
        .map(|(_, bytes)| bytes.len() as u64)
        .sum();
    assert_eq!(survey.download_bytes, without);
    assert_eq!(survey.files, shards.len() - 3);
    assert_eq!(survey.revision, COMMIT);
    assert!(survey.peak_bytes > without && survey.free_bytes.is_some());
}

#[test]
fn an_update_of_the_program_in_the_middle_loses_nothing() {
    let scene = Scene::new();
    scene.hub.set_rate(Some(2_000_000));
    let record = scene.download().join("download.json");
    let half = scene.shard_bytes() / 2;
    // The version that begins is an older one.
    let ended = scene.work_until(&scene.order(), |report| report.phase != JobPhase::Resolving);
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    let text = fs::read_to_string(&record).unwrap();
    let older = text.replace(fastar_fst::CREATOR, "fastar 0.0.1");
    assert_ne!(text, older);
    fs::write(&record, older).unwrap();
    let ended = scene.work_until(&scene.order(), |report| report.done_bytes > half);
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    scene.hub.set_rate(None);
    let sent = scene.hub.sent();
    assert!(matches!(scene.work(), Ok(Ended::Done(_))));
    assert!(scene.hub.sent() - sent <= scene.shard_bytes() - half);
    assert_eq!(
        fastar_fst::inspect(&scene.out()).unwrap().creator,
        "fastar 0.0.1"
    );
}

#[test]
fn the_published_set_of_the_original_gets_a_folder_once_it_is_whole() {
    let source = tempfile::tempdir().unwrap();
    Original::of(&original_checkpoint(1, 3)).save(source.path());
    fs::write(source.path().join("README.md"), "not part of the model").unwrap();
    let scene = Scene::of(source);
    scene.hub.set_rate(Some(400_000));
    let set = scene.models.path().join("flash");
    let mut stops = 0;
    loop {
        let ended = scene.work_until(&scene.order(), |report| {
            report.done_bytes > 100_000 * (1 + stops)
        });
        match ended.unwrap() {
            Ended::Stopped => stops += 1,
            Ended::Done(_) => break,
        }
        assert!(!set.exists());
        let left = scene
            .installer
            .leftover(scene.models.path(), "flash.fst")
            .unwrap();
        assert!(left.total_bytes.is_some());
        if stops == 2 {
            scene.hub.set_rate(None);
        }
    }
    assert!(stops >= 1);
    let got: Vec<_> = folder_files(&set)
        .into_iter()
        .filter(|(name, _)| !name.ends_with(".blocks"))
        .collect();
    let expected: Vec<_> = folder_files(scene.source.path())
        .into_iter()
        .filter(|(name, _)| name != "README.md")
        .collect();
    assert!(got == expected);
    assert!(!scene.download().exists());

    // It is one model in the list, is checked like any other, and its files go with it.
    fs::write(set.join("mine.txt"), "keep").unwrap();
    let list = || {
        library::list(scene.models.path(), &[], &*scene.installer)
            .unwrap()
            .files
    };
    let [model] = &list()[..] else {
        panic!("{:?}", list());
    };
    assert_eq!(
        (model.file.as_str(), model.name.as_str()),
        ("flash.fst", "flash")
    );
    assert_eq!(model.condition, fastar_api::Condition::Whole);
    let verify = Order {
        kind: JobKind::Verify,
        ..scene.order()
    };
    let checked = scene.work_until(&verify, |_| false);
    assert!(matches!(checked, Ok(Ended::Done(Some(_)))), "{checked:?}");
    let freed = library::delete(scene.models.path(), "flash.fst", &*scene.installer).unwrap();
    assert_eq!(freed, model.disk_bytes);
    assert!(list().is_empty());
    assert_eq!(
        folder_files(&set),
        [("mine.txt".to_owned(), b"keep".to_vec())]
    );
}
