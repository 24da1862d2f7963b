//! What the hub says, and when it says nothing.

use super::*;

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
