#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fastar_api::{ErrorCode, JobKind, JobPhase};
use fastar_fst::{Checkpoint, Conversion};
use fastar_testkit::hub::{COMMIT, Fault, HubServer};
use fastar_testkit::{Kind, Original, Synthetic, original_checkpoint};
use tempfile::TempDir;

use super::Installer;
use crate::jobs::{Ended, Order, Report, Steering, Workshop};
use crate::library;

const REPO: &str = "deepseek-ai/DeepSeek-V4-Flash-0731";

/// A small checkpoint on a hub, and a folder to bring it into.
struct Scene {
    source: TempDir,
    models: TempDir,
    hub: HubServer,
    installer: Arc<Installer>,
}

fn folder_files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

impl Scene {
    fn new() -> Self {
        let source = tempfile::tempdir().unwrap();
        Synthetic::small(Kind::DSpark)
            .save(source.path(), &mut |_, _| {})
            .unwrap();
        Self::of(source)
    }

    fn of(source: TempDir) -> Self {
        let files = folder_files(source.path());
        let files: Vec<_> = files
            .iter()
            .map(|(name, bytes)| (name.as_str(), bytes.clone()))
            .collect();
        let hub = HubServer::start(REPO, "", &files);
        let endpoint = hub.endpoint();
        let installer = Installer::new(move || fastar_hub::Settings {
            endpoint: endpoint.clone(),
            first_wait: Duration::from_millis(10),
            longest_wait: Duration::from_millis(50),
            ..fastar_hub::Settings::default()
        });
        Self {
            source,
            models: tempfile::tempdir().unwrap(),
            hub,
            installer: Arc::new(installer),
        }
    }

    fn order(&self) -> Order {
        Order {
            kind: JobKind::Download,
            folder: self.models.path().to_owned(),
            file: "flash.fst".into(),
            title: "Flash".into(),
            repository: REPO.into(),
            revision: "main".into(),
            drafter: true,
        }
    }

    fn out(&self) -> PathBuf {
        self.models.path().join("flash.fst")
    }

    fn download(&self) -> PathBuf {
        self.models.path().join("flash.download")
    }

    fn work(&self) -> Result<Ended, fastar_api::ApiError> {
        self.installer
            .work(&self.order(), &Steering::default(), &mut |_| {})
    }

    /// Works until `stop` says so of a report.
    fn work_until(
        &self,
        order: &Order,
        mut stop: impl FnMut(&Report) -> bool,
    ) -> Result<Ended, fastar_api::ApiError> {
        let steering = Steering::default();
        self.installer.work(order, &steering, &mut |report| {
            if stop(&report) {
                steering.stop();
            }
        })
    }

    /// What a conversion of the local folder makes of it, under the name that the hub gives it.
    fn expected(&self, drafter: bool) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("expected.fst");
        let mut checkpoint = Checkpoint::open(self.source.path()).unwrap();
        checkpoint.repository = Some(REPO.into());
        checkpoint.revision = Some(COMMIT.into());
        checkpoint.without_drafter = !drafter;
        let go_on = AtomicBool::new(false);
        let mut conversion = Conversion::open(checkpoint, &out).unwrap();
        conversion
            .add_folder(self.source.path(), &go_on, &mut |_, _, _| {})
            .unwrap();
        conversion.finish(&go_on, &mut |_, _| {}).unwrap();
        fs::read(out).unwrap()
    }

    fn shard_bytes(&self) -> u64 {
        folder_files(self.source.path())
            .iter()
            .filter(|(name, _)| name.ends_with(".safetensors"))
            .map(|(_, bytes)| bytes.len() as u64)
            .sum()
    }

    fn assert_only_the_model(&self) {
        let names: Vec<_> = folder_files(self.models.path())
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["flash.fst"]);
    }
}

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
fn it_can_be_stopped_while_the_hub_has_not_answered_yet_and_leaves_nothing() {
    let scene = Scene::new();
    scene
        .hub
        .fault("*", Fault::Delay(Duration::from_secs(20)), 100);
    let steering = Steering::default();
    let start = Instant::now();
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            while scene.hub.requests().is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            }
            steering.stop();
        });
        scene.installer.work(&scene.order(), &steering, &mut |_| {})
    });
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "it waited for the answer"
    );
    scene
        .installer
        .discard(scene.models.path(), "flash.fst")
        .unwrap();
    assert_eq!(fs::read_dir(scene.models.path()).unwrap().count(), 0);
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
fn a_repository_that_is_not_there_leaves_nothing_behind() {
    let scene = Scene::new();
    let order = Order {
        repository: "deepseek-ai/Nothing".into(),
        ..scene.order()
    };
    let error = scene.work_until(&order, |_| false).unwrap_err();
    assert_eq!(error.code, ErrorCode::Hub);
    assert!(error.message.contains("deepseek-ai/Nothing"), "{error}");
    assert_eq!(fs::read_dir(scene.models.path()).unwrap().count(), 0);
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
fn an_index_that_names_files_of_ours_reaches_none_of_them() {
    for name in [
        "../download.json",
        "../lock",
        "download.json",
        "/etc/passwd",
        "../../mine.txt",
    ] {
        let scene = Scene::new();
        fs::write(scene.models.path().join("mine.txt"), "keep").unwrap();
        let index = scene.source.path().join("model.safetensors.index.json");
        let text = fs::read_to_string(&index).unwrap();
        let first = "model-00001-of-00008.safetensors";
        assert!(text.contains(first));
        scene.hub.put(
            "model.safetensors.index.json",
            text.replace(first, name).into_bytes(),
        );
        scene.hub.put("download.json", b"hostile".to_vec());
        let error = scene.work().unwrap_err();
        assert!(!error.message.is_empty());
        assert_eq!(
            fs::read(scene.models.path().join("mine.txt")).unwrap(),
            b"keep"
        );
        assert!(!scene.out().exists());
        let record = scene.download().join("download.json");
        assert!(!record.exists() || fs::read(record).unwrap() != b"hostile");
    }
}

#[test]
fn another_architecture_is_refused_by_name_before_a_shard_is_fetched() {
    let scene = Scene::new();
    scene.hub.put(
        "config.json",
        br#"{"model_type":"llama","architectures":["LlamaForCausalLM"]}"#.to_vec(),
    );
    let error = scene.work().unwrap_err();
    assert!(
        error.message.contains("llama") || error.message.contains("Llama"),
        "{error}"
    );
    let most = scene.hub.data_requests().iter().map(|seen| seen.sent).max();
    assert!(
        most <= Some(256 << 10) || most <= Some(scene.shard_bytes() / 4),
        "{most:?}"
    );
    assert!(!scene.models.path().join("flash.fst.partial").exists());
}

#[test]
fn a_check_finds_damage_and_a_repair_fetches_just_that_from_the_hub() {
    let scene = Scene::new();
    assert!(matches!(scene.work(), Ok(Ended::Done(_))));
    let whole = fs::read(scene.out()).unwrap();
    let verify = Order {
        kind: JobKind::Verify,
        ..scene.order()
    };
    let repair = Order {
        kind: JobKind::Repair,
        ..scene.order()
    };
    let ended = scene.work_until(&verify, |_| false).unwrap();
    assert!(
        matches!(&ended, Ended::Done(Some(said)) if said.contains("as it was made")),
        "{ended:?}"
    );
    let sent = scene.hub.sent();
    let ended = scene.work_until(&repair, |_| false).unwrap();
    assert_eq!(ended, Ended::Done(Some("Nothing was damaged.".into())));
    assert_eq!(scene.hub.sent(), sent);

    let mut damaged = whole.clone();
    let place = damaged.len() - 100_000;
    damaged[place] ^= 1;
    fs::write(scene.out(), &damaged).unwrap();
    let error = scene.work_until(&verify, |_| false).unwrap_err();
    assert_eq!(error.code, ErrorCode::Damaged);
    assert!(
        error.message.contains("1 part") && error.details.is_some(),
        "{error:?}"
    );
    let ended = scene.work_until(&repair, |_| false).unwrap();
    assert_eq!(
        ended,
        Ended::Done(Some("One damaged part was fetched again.".into()))
    );
    assert!(fs::read(scene.out()).unwrap() == whole);
    scene.assert_only_the_model();
    let came = scene.hub.sent() - sent;
    assert!(came < scene.shard_bytes() / 2, "{came}");
}

#[test]
fn a_model_of_a_folder_says_where_a_repair_can_come_from() {
    let scene = Scene::new();
    fastar_fst::convert(scene.source.path(), &scene.out(), &mut |_, _| {}).unwrap();
    let repair = Order {
        kind: JobKind::Repair,
        ..scene.order()
    };
    let error = scene.work_until(&repair, |_| false).unwrap_err();
    assert!(
        error.message.contains("does not say which repository"),
        "{error}"
    );
    assert!(scene.hub.requests().is_empty());
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
fn what_can_never_become_a_model_leaves_nothing_in_the_way_of_another() {
    let refuse = |change: &dyn Fn(&HubServer), words: &[&str]| {
        let scene = Scene::new();
        change(&scene.hub);
        let error = scene.work().unwrap_err();
        for word in words {
            assert!(error.message.contains(word), "{word}: {error}");
        }
        assert_eq!(
            fs::read_dir(scene.models.path()).unwrap().count(),
            0,
            "{error}"
        );
    };
    let index = "model.safetensors.index.json";
    refuse(
        &|hub| hub.put("config.json", b"{}".to_vec()),
        &["config.json"],
    );
    refuse(&|hub| hub.put(index, b"{".to_vec()), &[index]);
    refuse(
        &|hub| hub.fault("config.json", Fault::Status(403, None), 100),
        &["without permission"],
    );
    let list = |path: &str, lfs: serde_json::Value| serde_json::json!([{"type": "file", "path": path, "size": 5, "lfs": lfs}]);
    refuse(
        &|hub| hub.list(list("model.gguf", serde_json::Value::Null)),
        &["GGUF", REPO],
    );
    refuse(
        &|hub| hub.list(list("README.md", serde_json::Value::Null)),
        &["no safetensors files", REPO],
    );
    refuse(
        &|hub| {
            hub.list(list(
                "model.safetensors",
                serde_json::json!({"oid": "zz", "size": 5}),
            ))
        },
        &["no checksum", "model.safetensors"],
    );
}

#[test]
fn a_hub_that_has_mended_its_listing_is_asked_anew() {
    let scene = Scene::new();
    scene.hub.set_rate(Some(2_000_000));
    // Shards on their way, none in the container: what was listed then is not what there is now.
    let ended = scene.work_until(&scene.order(), |report| {
        report.phase == JobPhase::Downloading
    });
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    let record = scene.download().join("download.json");
    let text = fs::read_to_string(&record).unwrap();
    let mut wrong = String::new();
    for (number, part) in text.split("\"sha256\":\"").enumerate() {
        wrong.push_str(&match number {
            0 => part.to_owned(),
            _ => format!("\"sha256\":\"{}{}", "0".repeat(64), &part[64..]),
        });
    }
    assert_ne!(wrong, text);
    fs::write(&record, wrong).unwrap();
    scene.hub.set_rate(None);
    let ended = scene.work();
    assert!(matches!(ended, Ok(Ended::Done(_))), "{ended:?}");
    assert!(fs::read(scene.out()).unwrap() == scene.expected(true));
    scene.assert_only_the_model();
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

#[test]
fn while_the_hub_does_not_answer_the_reason_is_told_and_the_work_waits_for_it() {
    let scene = Scene::new();
    for path in ["model.safetensors.index.json", "config.json"] {
        scene.hub.fault(path, Fault::Status(503, None), 12);
    }
    scene.hub.fault(
        "model-00003-of-00008.safetensors",
        Fault::Status(503, Some("1".into())),
        8,
    );
    let mut reasons = 0;
    let ended = scene.work_until(&scene.order(), |report| {
        if let JobPhase::Retrying { reason, .. } = &report.phase {
            assert!(reason.contains("503"), "{reason}");
            reasons += 1;
        }
        false
    });
    assert!(matches!(ended, Ok(Ended::Done(_))), "{ended:?}");
    assert!(reasons > 0);
}

#[test]
fn what_has_arrived_stays_where_the_hub_or_another_model_stops_a_download_for_now() {
    let scene = Scene::new();
    scene.hub.set_rate(Some(500_000));
    let ended = scene.work_until(&scene.order(), |report| {
        report.phase == JobPhase::Downloading && report.done_bytes > 50_000
    });
    assert!(matches!(ended, Ok(Ended::Stopped)), "{ended:?}");
    let left = || scene.installer.leftover(scene.models.path(), "flash.fst");
    let before = left().unwrap();
    // Private by now: such a hub says that there is nothing.
    scene.hub.fault("*", Fault::Status(404, None), u32::MAX);
    scene.hub.list(serde_json::json!([]));
    let error = scene.work().unwrap_err();
    assert_eq!(error.code, ErrorCode::Hub, "{error}");
    assert_eq!(left().unwrap(), before);
    scene.hub.heal();
    fs::write(scene.out(), "another model").unwrap();
    let error = scene.work().unwrap_err();
    assert!(error.message.contains("is there already"), "{error}");
    assert_eq!(left().unwrap(), before);
    fs::remove_file(scene.out()).unwrap();
    scene.hub.set_rate(None);
    assert!(matches!(scene.work(), Ok(Ended::Done(_))));
    assert!(fs::read(scene.out()).unwrap() == scene.expected(true));
}
