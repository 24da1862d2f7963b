//! `fastar bench` with the real program: what it prints, what it leaves behind, what it refuses. Never how fast it was.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Ended, fastar, refused, run, signal, signal_if_there, text};
use serde_json::Value;

/// Far longer than anything here takes; only so that a defect ends.
const LONGEST: Duration = Duration::from_secs(300);

const TINY: [&str; 8] = [
    "bench", "--shape", "tiny", "--only", "model", "--rounds", "1", "--folder",
];

/// Runs it and reads the report.
fn report(arguments: &[&str]) -> Value {
    let ended = run(&[&["bench", "--json"], arguments].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.out).unwrap()
}

/// The lines' names for programs.
fn ids(report: &Value) -> Vec<&str> {
    let lines = report["lines"].as_array().unwrap();
    lines.iter().map(|l| l["id"].as_str().unwrap()).collect()
}

/// Starts it and waits until it has begun to make a model.
fn making(folder: &Path, rounds: &str) -> Child {
    let tiny = ["bench", "--shape", "tiny", "--only", "model"];
    let child = fastar(&[&tiny[..], &["--rounds", rounds, "--folder", text(folder)]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let made = || {
        let inside = fs::read_dir(folder).ok()?.next()?.ok()?.path();
        inside.join("tiny-fp8.fst").exists().then_some(())
    };
    let start = Instant::now();
    while made().is_none() {
        assert!(start.elapsed() < LONGEST, "no model was made");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

fn left_in(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_model_is_made_measured_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let report = report(&[&TINY[1..], &[text(folder.path()), "--threads", "2"]].concat());
    assert_eq!(left_in(folder.path()), 0);
    let about = &report["about"];
    assert_eq!(about["threads"], 2);
    assert_eq!(about["model"]["name"], "tiny-fp8.fst");
    assert_eq!(ids(&report), ["decode", "prefill"]);
    assert_eq!(report["notes"].as_array().unwrap().len(), 0);
    let lines = report["lines"].as_array().unwrap();
    for line in lines {
        assert_eq!(line["unit"], "tokens/s");
        assert!(line["value"].as_f64().unwrap() > 0.0, "{line}");
    }
    // What memory allows is told of answers, as a rate and as a share of one round.
    let number = |name: &str| lines[0][name].as_f64().unwrap();
    let share = number("value") / number("limit");
    assert!((number("share") - share).abs() < 1e-9, "{}", lines[0]);
}

#[test]
fn people_get_a_table_without_the_bars_of_the_project() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [&TINY[..], &[text(folder.path()), "--dense", "fp8"]].concat();
    let plain = run(&arguments);
    assert_eq!(plain.code, Some(0), "{plain:?}");
    assert!(plain.out.contains("Writing an answer"), "{plain:?}");
    assert!(!plain.out.contains("bar"), "{plain:?}");
    let bars = run(&[&arguments[..], &["--bars"]].concat());
    assert!(bars.out.contains("; bar 0.8 (0.9): "), "{bars:?}");
}

#[test]
fn a_kept_model_stays_and_can_be_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let keep = [&TINY[..], &[text(folder.path()), "--keep"]].concat();
    let ended = run(&keep);
    let file = folder.path().join("tiny-fp8.fst");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains(text(&file)), "{ended:?}");
    let verified = run(&["verify", "--full", text(&file)]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let sentence = refused(&keep);
    assert!(
        sentence.contains("is there already; measure it with --model"),
        "{sentence}"
    );
    let again = run(&[
        "bench",
        "--only",
        "model",
        "--rounds",
        "1",
        "--model",
        text(&file),
    ]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(left_in(folder.path()), 1);
}

#[test]
fn what_cannot_be_told_of_a_small_model_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = ["--shape", "tiny", "--only", "pager", "--folder"];
    let report = report(&[&tiny[..], &[text(folder.path())]].concat());
    // How often experts are found in memory is computed from a trace; the rest needs a disk that has something to do.
    assert_eq!(ids(&report), ["pager.hits.33", "pager.hits.10"]);
    let note = report["notes"][0].as_str().unwrap();
    assert!(note.starts_with("The pager was not measured: "), "{note}");
}

#[test]
fn ctrl_c_takes_the_model_away() {
    let folder = tempfile::tempdir().unwrap();
    let child = making(folder.path(), "1000000");
    signal(&child, "INT");
    let ended: Ended = child.wait_with_output().unwrap().into();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    assert_eq!(left_in(folder.path()), 0);
}

#[test]
fn an_impatient_ctrl_c_takes_the_model_away_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = making(folder.path(), "1000000");
    // The second one comes before, while or after the work stops: whichever it is, nothing is left.
    signal(&child, "INT");
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < LONGEST, "it goes on");
        signal_if_there(&child, "INT");
    }
    let ended: Ended = child.wait_with_output().unwrap().into();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!(left_in(folder.path()), 0);
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_and_what_is_in_use_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut killed = making(folder.path(), "1000000");
    signal(&killed, "KILL");
    killed.wait().unwrap();
    assert_eq!(left_in(folder.path()), 1);
    // Not ours, whatever its name.
    let other = folder.path().join("fastar-bench-other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "x").unwrap();
    let arguments = [&TINY[..], &[text(folder.path())]].concat();
    let ended = run(&arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.err.contains("which a run that was killed had left"),
        "{ended:?}"
    );
    assert!(other.join("file").exists());
    assert_eq!(left_in(folder.path()), 1);
    fs::remove_dir_all(&other).unwrap();

    let running = making(folder.path(), "1000000");
    let ended = run(&arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.err, "");
    assert_eq!(left_in(folder.path()), 1);
    signal(&running, "INT");
    running.wait_with_output().unwrap();
    assert_eq!(left_in(folder.path()), 0);
}

#[test]
fn a_peer_is_run_by_turns() {
    let folder = tempfile::tempdir().unwrap();
    let peer = "printf '| test | t/s |\\n| pp16 | 40.0 ± 1.0 |\\n| tg4 | 8.0 ± 0.5 |\\n'";
    let tiny = ["--shape", "tiny", "--only", "peer", "--pairs", "3"];
    let report = report(
        &[
            &tiny[..],
            &["--peer", peer, "--folder", text(folder.path())],
        ]
        .concat(),
    );
    let lines = report["lines"].as_array().unwrap();
    let find = |id: &str| lines.iter().find(|line| line["id"] == id).unwrap();
    for (id, theirs) in [("peer.prompt", 40.0), ("peer.answer", 8.0)] {
        assert_eq!(find(id)["limit"], theirs);
        let mut shares: Vec<f64> = (1..=3)
            .map(|pair| {
                let pair = find(&format!("{id}.{pair}"));
                let share = pair["value"].as_f64().unwrap() / theirs;
                assert!(
                    (pair["share"].as_f64().unwrap() - share).abs() < 1e-9 * share,
                    "{pair}"
                );
                share
            })
            .collect();
        shares.sort_by(f64::total_cmp);
        // The text of a number may be read back as its neighbour.
        let median = find(id)["share"].as_f64().unwrap();
        assert!((median - shares[1]).abs() < 1e-9 * shares[1], "{median}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none");
    let sentence = refused(&["bench", "--only", "model", "--model", text(&none)]);
    assert!(sentence.contains(text(&none)), "{sentence}");
    let sentence = refused(&[
        "bench",
        "--shape",
        "tiny",
        "--only",
        "model",
        "--folder",
        text(&none),
    ]);
    assert!(
        sentence.contains("No folder could be made in"),
        "{sentence}"
    );
    let peer = [
        "bench",
        "--shape",
        "tiny",
        "--only",
        "peer",
        "--folder",
        text(folder.path()),
        "--peer",
        "exit 3",
    ];
    let sentence = refused(&peer);
    assert!(sentence.contains("`exit 3` failed"), "{sentence}");
    // The tiny model is smaller than one read.
    let tiny = [
        "bench",
        "--shape",
        "tiny",
        "--only",
        "disk",
        "--folder",
        text(folder.path()),
    ];
    let sentence = refused(&tiny);
    assert!(
        sentence.starts_with("The disk was not measured: "),
        "{sentence}"
    );
    let mut peer = peer;
    peer[8] = "echo '| test | t/s |\n| tg8 | 1e300 |'";
    let sentence = refused(&peer);
    assert!(
        sentence.contains("a speed of 1e300 tokens a second, which cannot be"),
        "{sentence}"
    );
    assert_eq!(left_in(folder.path()), 0);

    for usage in [
        &["bench", "--shape", "flash7L"][..],
        &["bench", "--only", "everything"],
        &["bench", "--only", "peer"],
        &["bench", "--only", "model", "--peer", "exit 3"],
        &["bench", "--only", "kernels", "--peer", "exit 3"],
        &["bench", "--rounds", "0"],
        &["bench", "--pairs", "3"],
        &["bench", "--level", "sse9"],
        &["bench", "--model", "a.fst", "--shape", "tiny"],
        // Without effect: nothing is made that could be kept.
        &["bench", "--only", "kernels", "--keep"],
        &["bench", "--only", "kernels", "--folder", "."],
    ] {
        assert_eq!(run(usage).code, Some(2), "{usage:?}");
    }
}

/// Whether a process runs. One that nobody has waited for yet has ended all the same.
#[cfg(target_os = "linux")]
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// Whether programs that are started here ignore SIGHUP (bit 0 of the mask).
#[cfg(target_os = "linux")]
fn is_hang_up_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

#[cfg(target_os = "linux")]
#[test]
fn whoever_ends_it_neither_its_folder_nor_a_peer_outlives_it() {
    for (signals, code) in [
        (&["TERM"][..], 143),
        // Where the tests are run by `nohup`, so is what they run.
        match is_hang_up_ignored() {
            true => (&["HUP", "TERM"], 143),
            false => (&["HUP"], 129),
        },
        (&["INT"], 130),
        (&["INT", "TERM"], 143),
        // Its folder the next run removes.
        (&["KILL"], 137),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let models = folder.path().join("models");
        fs::create_dir(&models).unwrap();
        let pid = folder.path().join("pid");
        let peer = format!("sleep 100000 & echo $! > '{}'; wait", pid.display());
        let tiny = ["bench", "--shape", "tiny", "--only", "peer", "--folder"];
        let child = fastar(&[&tiny[..], &[text(&models), "--peer", &peer]].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let number = || fs::read_to_string(&pid).unwrap_or_default();
        let start = Instant::now();
        while number().is_empty() {
            assert!(start.elapsed() < LONGEST, "the peer was not run");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(runs(&number()));
        for name in signals {
            signal_if_there(&child, name);
        }
        let ended: Ended = child.wait_with_output().unwrap().into();
        // The second of two may come when the first has done its work.
        let codes = if signals[0] == "INT" && signals.len() > 1 {
            [code, 130]
        } else {
            [code; 2]
        };
        let is_killed = signals[0] == "KILL";
        assert!(
            ended.code.map_or(is_killed, |code| codes.contains(&code)),
            "{signals:?}: {ended:?}"
        );
        assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
        assert_eq!(left_in(&models), usize::from(is_killed), "{signals:?}");
        let start = Instant::now();
        while runs(&number()) {
            assert!(start.elapsed() < LONGEST, "{signals:?}: the peer runs on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
