//! `fastar download`, `models` and `repair` with the real program and a hub on this computer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Ended, fastar, signal, text};
use fastar_testkit::hub::{COMMIT, Fault, HubServer};
use fastar_testkit::{Kind, Synthetic, tiny};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const REPO: &str = "deepseek-ai/DeepSeek-V4-Flash-0731";
const FILE: &str = "DeepSeek-V4-Flash-0731.fst";

struct Scene {
    folder: tempfile::TempDir,
    hub: HubServer,
    /// Bytes of all shards.
    bytes: u64,
}

impl Scene {
    fn new() -> Self {
        Self::of(|folder| {
            Synthetic::small(Kind::DSpark)
                .save(folder, &mut |_, _| {})
                .unwrap();
        })
    }

    fn of(make: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("checkpoint");
        fs::create_dir(&source).unwrap();
        make(&source);
        let hub = HubServer::start(REPO, "", &[]);
        let mut bytes = 0;
        for entry in fs::read_dir(&source).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let contents = fs::read(entry.path()).unwrap();
            if name.ends_with(".safetensors") {
                bytes += contents.len() as u64;
            }
            hub.put(&name, contents);
        }
        Self { folder, hub, bytes }
    }

    fn models(&self) -> PathBuf {
        self.folder.path().join("models")
    }

    fn out(&self) -> PathBuf {
        self.models().join(FILE)
    }

    fn fastar(&self, arguments: &[&str]) -> Command {
        let mut command = fastar(arguments);
        command
            .env("HF_ENDPOINT", self.hub.endpoint())
            .env("FASTAR_DATA_DIR", self.folder.path().join("data"))
            .env("HF_HOME", self.folder.path().join("no-token"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        self.fastar(arguments).output().unwrap().into()
    }

    fn download(&self, more: &[&str]) -> Ended {
        let models = self.models();
        self.run(&[&["download", REPO, "--yes", "--to", text(&models)], more].concat())
    }

    /// What one download without any trouble makes.
    fn undisturbed(&self) -> Vec<u8> {
        let quiet = self.folder.path().join("quiet");
        let ended = self.run(&["download", REPO, "--yes", "--to", text(&quiet)]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let made = fs::read(quiet.join(FILE)).unwrap();
        fs::remove_dir_all(quiet).unwrap();
        made
    }
}

#[test]
fn nothing_is_asked_of_the_network_before_a_yes() {
    let scene = Scene::new();
    let models = scene.models();
    for arguments in [
        &["download"][..],
        &["download", REPO, "--to", text(&models)],
        &["models", "--model-dir", text(&models)],
        &["--prompt", "Hello!", "--tokens", "2"],
    ] {
        let ended = scene.run(arguments);
        let asked = arguments[0] == "download";
        assert_eq!(ended.code, Some(i32::from(asked)), "{ended:?}");
        if asked {
            assert!(
                ended.err.contains("--yes") && ended.err.contains(REPO),
                "{ended:?}"
            );
            // Of a model of the catalogue it is known without asking.
            assert!(ended.err.contains(" has 156 GB and "), "{ended:?}");
            assert!(
                ended.err.contains(", where ") && ended.err.contains("B are free. "),
                "{ended:?}"
            );
        }
    }
    assert!(scene.hub.requests().is_empty());
    assert!(!models.exists());
}

#[test]
fn a_downloaded_model_is_whole_says_where_it_is_from_and_answers() {
    let scene = Scene::of(|folder| tiny(&fastar_testkit::Tiny::default()).save(folder));
    let ended = scene.download(&[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let out = scene.out();
    assert!(
        ended.out.contains("is ready") && ended.out.contains(text(&out)),
        "{ended:?}"
    );
    assert!(
        ended.err.contains(COMMIT)
            && ended.err.contains("to fetch")
            && ended.err.contains("free there"),
        "{ended:?}"
    );
    assert_eq!(fs::read_dir(scene.models()).unwrap().count(), 1);
    let whole = scene.run(&["verify", "--full", text(&out)]);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    let about: Value =
        serde_json::from_str(&scene.run(&["inspect", "--json", text(&out)]).out).unwrap();
    assert_eq!(
        (&about["repository"], &about["revision"]),
        (&REPO.into(), &COMMIT.into())
    );
    let said = scene.run(&[
        "run",
        "--model-dir",
        text(&scene.models()),
        "--prompt",
        "a",
        "--tokens",
        "3",
    ]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let listed = scene.run(&["models", "--model-dir", text(&scene.models())]);
    assert!(
        listed.out.contains(FILE) && !listed.out.contains("incomplete"),
        "{listed:?}"
    );
    // A second time there is nothing to do, and nothing is fetched or replaced.
    let sent = scene.hub.sent();
    let again = scene.download(&[]);
    assert_eq!(again.code, Some(0));
    assert!(again.out.contains("is there already"), "{again:?}");
    assert_eq!(scene.hub.sent(), sent);
}

#[test]
fn killed_again_and_again_it_ends_with_the_same_bytes_and_fetches_little_twice() {
    let scene = Scene::new();
    let undisturbed = scene.undisturbed();
    let models = scene.models();
    let before = scene.hub.sent();
    scene.hub.set_rate(Some(1_500_000));
    for kill in 0..10 {
        let mut child = scene
            .fastar(&["download", REPO, "--yes", "--to", text(&models)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Any moment is right: the promise holds for all of them.
        std::thread::sleep(Duration::from_millis(20 + kill * 67));
        child.kill().unwrap();
        child.wait().unwrap();
        if scene.out().exists() {
            break;
        }
    }
    scene.hub.set_rate(None);
    if !scene.out().exists() {
        let ended = scene.download(&[]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    assert!(fs::read(scene.out()).unwrap() == undisturbed);
    let names: Vec<_> = fs::read_dir(&models)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, [FILE]);
    // The shards once and their headers once, the small files, and of each kill what was not in a whole block yet.
    let came = scene.hub.sent() - before;
    assert!(came < 4 * scene.bytes, "{came} of {}", scene.bytes);
}

#[test]
fn after_a_kill_it_is_listed_as_incomplete_and_refused_with_the_way_on() {
    let scene = Scene::new();
    scene.hub.set_rate(Some(500_000));
    let models = scene.models();
    let mut child = scene
        .fastar(&[
            "download",
            REPO,
            "--yes",
            "--with-drafter",
            "--progress",
            "json",
            "--to",
            text(&models),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut last = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if line["total_bytes"] == scene.bytes {
            last = line["done_bytes"].as_u64().unwrap();
            if last > scene.bytes * 2 / 5 {
                break;
            }
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(last > 0 && !scene.out().exists());

    let listed = scene.run(&["models", "--json", "--model-dir", text(&models)]);
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let model = &listed["files"][0];
    assert_eq!(model["file"], FILE);
    let condition = &model["condition"];
    assert_eq!(condition["condition"], "incomplete");
    assert_eq!(condition["total_bytes"], scene.bytes);
    assert_eq!(condition["resumable"], true);
    // At least what was told before the kill, but for one block.
    let there = condition["done_bytes"].as_u64().unwrap();
    assert!(
        there + (4 << 20) >= last && there < scene.bytes,
        "{there} and {last}"
    );

    let refused = scene.run(&["run", "--model-dir", text(&models), "--prompt", "a"]);
    assert_eq!(refused.code, Some(1));
    // The whole command, with what this download was begun with.
    let command = format!(
        "`fastar download {REPO} --with-drafter --to {}` goes on",
        text(&models)
    );
    for word in [FILE, "incomplete", &command] {
        assert!(refused.err.contains(word), "{word}: {refused:?}");
    }
    scene.hub.set_rate(None);
    // An unfinished download was agreed to before, and goes on as it was begun.
    let ended = scene.run(&["download", REPO, "--to", text(&models)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("Going on with"), "{ended:?}");
    let has_drafter = |file: &Path| -> Value {
        let about = scene.run(&["inspect", "--json", text(file)]);
        serde_json::from_str::<Value>(&about.out).unwrap()["drafter"].clone()
    };
    assert_eq!(has_drafter(&scene.out()), true);
    // One that nobody asked for is not fetched.
    fs::remove_file(scene.out()).unwrap();
    assert_eq!(scene.download(&[]).code, Some(0));
    assert_eq!(has_drafter(&scene.out()), false);
}

#[test]
fn progress_for_programs_never_falls_nor_passes_the_end_and_goes_on_at_the_true_value() {
    let scene = Scene::new();
    let models = scene.models();
    let mut started_at = 0;
    for (round, stop_at) in [(0, 0.5), (1, 2.0)] {
        scene.hub.set_rate(Some(1_500_000));
        for _ in 0..3 {
            scene.hub.fault(
                "*",
                Fault::Cut {
                    after: 200_000,
                    clean: round == 1,
                },
                1,
            );
        }
        let mut child = scene
            .fastar(&[
                "download",
                REPO,
                "--yes",
                "--with-drafter",
                "--progress",
                "json",
                "--to",
                text(&models),
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut first, mut last, mut phase) = (None, 0, Value::Null);
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            phase = line["phase"].clone();
            if let Some(left) = line["seconds_left"].as_f64() {
                assert!(left.is_finite());
            }
            if line["total_bytes"] != scene.bytes
                || line["phase"] == "verifying"
                || line["phase"] == "converting"
            {
                continue;
            }
            let done = line["done_bytes"].as_u64().unwrap();
            assert!(done >= last && done <= scene.bytes, "{done} after {last}");
            last = done;
            first.get_or_insert(done);
            if done as f64 > scene.bytes as f64 * stop_at {
                break;
            }
        }
        if round == 0 {
            signal(&child, "INT");
            let listed = child.wait().unwrap();
            assert_eq!(listed.code(), Some(130));
            let listed = scene.run(&["models", "--json", "--model-dir", text(&models)]);
            let listed: Value = serde_json::from_str(&listed.out).unwrap();
            started_at = listed["files"][0]["condition"]["done_bytes"]
                .as_u64()
                .unwrap();
            assert!(started_at > 0);
        } else {
            assert_eq!(child.wait().unwrap().code(), Some(0));
            let first = first.unwrap();
            assert!(
                first.abs_diff(started_at) <= scene.bytes / 100 + 1,
                "{first} and {started_at}"
            );
            // Which of its numbers is the last depends on when the next phase began.
            assert_eq!(phase, "done");
        }
    }
}

#[test]
fn a_limit_is_kept() {
    let scene = Scene::new();
    let start = Instant::now();
    let rate = scene.bytes / 3;
    let ended = scene.download(&["--with-drafter", "--limit", &rate.to_string()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // At that rate the shards alone take three seconds; a bucket of a quarter second may be ahead.
    assert!(
        start.elapsed() > Duration::from_millis(2500),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_damaged_model_is_mended_from_its_repository() {
    let scene = Scene::new();
    assert_eq!(scene.download(&[]).code, Some(0));
    let whole = fs::read(scene.out()).unwrap();
    let mut damaged = whole.clone();
    let place = damaged.len() - 5000;
    damaged[place] ^= 0x10;
    fs::write(scene.out(), damaged).unwrap();
    let out = scene.out();
    let found = scene.run(&["verify", "--full", text(&out)]);
    assert_eq!(found.code, Some(1), "{found:?}");
    let command = format!("`fastar repair {}` mends it.\n", text(&out));
    assert!(found.err.ends_with(&command), "{found:?}");
    let mended = scene.run(&["repair", text(&out)]);
    assert_eq!(mended.code, Some(0), "{mended:?}");
    let name = text(&out);
    assert_eq!(
        mended.out,
        format!("One damaged part of {name} was fetched again.\n")
    );
    assert!(fs::read(&out).unwrap() == whole);
    let again = scene.run(&["repair", name]);
    assert_eq!(
        (again.out, again.code),
        (format!("Nothing to mend in {name}.\n"), Some(0))
    );
}

#[test]
fn a_model_is_deleted_with_what_belongs_to_it_after_a_yes() {
    let scene = Scene::new();
    let models = scene.models();
    assert_eq!(scene.download(&[]).code, Some(0));
    fs::write(models.join("mine.txt"), "keep").unwrap();
    fs::write(
        models.join(format!("{FILE}.partial.state")),
        "left by something",
    )
    .unwrap();
    let directory = text(&models);
    let refused = scene.run(&["models", "--model-dir", directory, "--delete", FILE]);
    assert!(
        refused.code == Some(1) && refused.err.contains("--yes"),
        "{refused:?}"
    );
    assert!(scene.out().exists());
    for hostile in [
        "../models/mine.txt",
        "mine.txt",
        "/etc/passwd",
        "",
        "nothing.fst",
    ] {
        let refused = scene.run(&[
            "models",
            "--model-dir",
            directory,
            "--delete",
            hostile,
            "--yes",
        ]);
        assert!(
            refused.code == Some(1) && refused.err.contains("no model"),
            "{refused:?}"
        );
    }
    let deleted = scene.run(&[
        "models",
        "--model-dir",
        directory,
        "--delete",
        FILE.trim_end_matches(".fst"),
        "--yes",
    ]);
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    let names: Vec<_> = fs::read_dir(&models)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["mine.txt"]);
}

#[test]
fn any_valid_path_works_for_downloads() {
    let scene = Scene::of(|folder| tiny(&fastar_testkit::Tiny::default()).save(folder));
    let odd = scene
        .folder
        .path()
        .join("田中\u{3000}ü é/Модели 'q\" $x/🙂");
    let with_odd_folders = |arguments: &[&str]| {
        let temporary = odd.join("tmp");
        fs::create_dir_all(&temporary).unwrap();
        let ended = scene
            .fastar(arguments)
            .env("TMPDIR", &temporary)
            .env("FASTAR_DATA_DIR", odd.join("data"))
            .env("XDG_CONFIG_HOME", odd.join("config"))
            .env("XDG_DATA_HOME", odd.join("share"))
            .output()
            .unwrap();
        let ended = Ended::from(ended);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        ended
    };
    with_odd_folders(&["download", REPO, "--yes"]);
    let out = odd.join("data/models").join(FILE);
    with_odd_folders(&["verify", "--full", text(&out)]);
    with_odd_folders(&["inspect", text(&out)]);
    with_odd_folders(&["repair", text(&out)]);
    assert!(with_odd_folders(&["models"]).out.contains(FILE));
    with_odd_folders(&[
        "run",
        "--model",
        text(&out),
        "--prompt",
        "a",
        "--tokens",
        "2",
    ]);
    let checkpoint = scene.folder.path().join("checkpoint");
    with_odd_folders(&["convert", text(&checkpoint), text(&odd.join("n.fst"))]);
}

#[test]
fn what_cannot_be_a_repository_is_refused_before_anything_else() {
    let scene = Scene::new();
    let models = scene.models();
    for name in [
        "",
        ".",
        "..",
        "/",
        "a/",
        "/a",
        "a//b",
        "a/b/c",
        "../../etc",
        "/etc/passwd",
        "a/.b",
        "a b",
        "a\nb",
        "é/b",
        "https://huggingface.co/a/b",
    ] {
        // Neither agreed to nor in a terminal: it is the name that is told all the same.
        let ended = scene.run(&["download", "--to", text(&models), name]);
        assert_eq!(ended.code, Some(1), "{name:?}: {ended:?}");
        let expected = format!(
            "fastar: {name:?} is not a repository. A repository is written OWNER/NAME, a revision as a branch, tag or commit.\n"
        );
        assert_eq!(ended.err, expected);
    }
    for revision in ["", "a b", "../x", "a//b"] {
        let named = ["download", "a/b", "--revision", revision];
        let ended = scene.run(&named);
        assert!(
            ended.code == Some(1) && ended.err.contains("is not a revision"),
            "{revision:?}: {ended:?}"
        );
    }
    assert!(scene.hub.requests().is_empty() && !models.exists());
}

#[test]
fn what_the_hub_says_no_to_is_one_sentence_and_leaves_nothing() {
    let scene = Scene::new();
    let models = scene.models();
    let cases: [(&[&str], &[&str]); 4] = [
        (
            &["deepseek-ai/Nothing"],
            &["deepseek-ai/Nothing", "spelling"],
        ),
        (&["../etc"], &["../etc", "OWNER/NAME"]),
        (
            &[REPO, "--revision", "a b"],
            &["a b", "branch, tag or commit"],
        ),
        (&["http://example.org/x"], &["OWNER/NAME"]),
    ];
    for (arguments, words) in cases {
        let ended = scene.run(&[&["download", "--yes", "--to", text(&models)], arguments].concat());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        // Said before anything is waited for.
        let looking = ended.err.starts_with("fastar: Looking for 127.0.0.1");
        assert!(looking || !ended.err.contains("127.0.0.1"), "{ended:?}");
        let lines = 1 + usize::from(looking);
        assert_eq!(ended.err.lines().count(), lines, "{ended:?}");
        for word in words {
            assert!(ended.err.contains(word), "{word}: {ended:?}");
        }
        assert!(!models.exists() || fs::read_dir(&models).unwrap().count() == 0);
    }
}
