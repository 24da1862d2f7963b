//! Making, checking and mending model files with the real program: within little memory, through kills, and with words that name the damage.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{checkpoint, converted, fastar, refused, run, text};
use fastar_testkit::{Kind, Synthetic};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

fn made(options: &Synthetic, folder: &Path) {
    options.save(folder, &mut |_, _| {}).unwrap();
}

#[test]
fn six_hundred_megabytes_are_converted_within_a_hundred_and_fifty() {
    let folder = tempfile::tempdir().unwrap();
    let (from, out) = (folder.path().join("c"), folder.path().join("m.fst"));
    let options = Synthetic {
        layers: 6,
        experts: 128,
        hidden: 1024,
        intermediate: 512,
        ..Synthetic::small(Kind::DSpark)
    };
    made(&options, &from);
    let size: u64 = fs::read_dir(&from)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(size > 600_000_000, "{size}");
    // The system refuses every page of memory beyond 150 MB; mapped files are not memory.
    let limited = std::process::Command::new("sh")
        .args(["-c", "ulimit -d 150000 && exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_fastar"))
        .args(["convert", text(&from), text(&out)])
        .output()
        .unwrap();
    assert!(limited.status.success(), "{limited:?}");
    let made = fs::metadata(&out).unwrap().len();
    assert!(made < size + size / 100, "{made} of {size}");
    fs::remove_dir_all(&from).unwrap();
    let whole = run(&["verify", "--full", text(&out)]);
    assert_eq!(whole.code, Some(0), "{whole:?}");
}

#[test]
fn killed_ten_times_a_conversion_ends_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("c");
    let options = Synthetic {
        layers: 6,
        experts: 32,
        hidden: 512,
        intermediate: 256,
        ..Synthetic::small(Kind::Preview)
    };
    made(&options, &from);
    let undisturbed = folder.path().join("undisturbed.fst");
    assert_eq!(
        run(&["convert", text(&from), text(&undisturbed)]).code,
        Some(0)
    );
    let out = folder.path().join("m.fst");
    for kill in 0..10 {
        let mut child = fastar(&["convert", text(&from), text(&out)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Any moment is right: the promise holds for all of them.
        std::thread::sleep(Duration::from_millis(5 + kill * 13));
        child.kill().unwrap();
        child.wait().unwrap();
        if out.exists() {
            assert_eq!(run(&["verify", "--full", text(&out)]).code, Some(0));
        }
    }
    let last = run(&["convert", text(&from), text(&out)]);
    assert_eq!(last.code, Some(0), "{last:?}");
    assert!(fs::read(&out).unwrap() == fs::read(&undisturbed).unwrap());
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("m.fst"))
        .collect();
    assert_eq!(left, ["m.fst"]);
}

#[test]
fn an_unfinished_conversion_goes_on_and_restart_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("c.fst");
    let left = folder.path().join("c.fst.partial");
    let from = checkpoint("c_fp8_fp4");
    // No conversion leaves such a thing: it is somebody's.
    fs::write(&left, "not much").unwrap();
    let error = refused(&["convert", text(&from), text(&out)]);
    assert!(error.contains("c.fst.partial is in the way"), "{error}");
    assert_eq!(fs::read(&left).unwrap(), b"not much");
    // What a conversion that was killed at once has left.
    fs::write(&left, "").unwrap();
    let over = run(&["convert", text(&from), text(&out)]);
    assert_eq!(over.code, Some(0), "{over:?}");
    assert!(over.err.contains("fastar: Started over: "), "{over:?}");
    assert!(!left.exists());
    fs::write(&left, "not much").unwrap();
    let anew = run(&["convert", "--restart", text(&from), text(&out)]);
    assert_eq!(anew.code, Some(0), "{anew:?}");
    assert!(
        anew.err
            .contains("fastar: The unfinished conversion was removed."),
        "{anew:?}"
    );
    assert!(!anew.err.contains("Started over"), "{anew:?}");
}

#[test]
fn a_checkpoint_converts_without_its_drafter() {
    let folder = tempfile::tempdir().unwrap();
    let (from, out) = (folder.path().join("c"), folder.path().join("m.fst"));
    made(&Synthetic::small(Kind::DSpark), &from);
    let about = |out: &Path| -> serde_json::Value {
        serde_json::from_str(&run(&["inspect", "--json", text(out)]).out).unwrap()
    };
    assert_eq!(run(&["convert", text(&from), text(&out)]).code, Some(0));
    assert_eq!(about(&out)["drafter"], true);
    // Embedding, three layers, head, and the drafter's three blocks.
    for shard in 6..=8 {
        fs::remove_file(from.join(format!("model-{shard:05}-of-00008.safetensors"))).unwrap();
    }
    let error = refused(&["convert", text(&from), text(&out)]);
    assert!(
        error.contains("model-00006-of-00008.safetensors"),
        "{error}"
    );
    let ended = run(&["convert", "--without-drafter", text(&from), text(&out)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(about(&out)["drafter"], false);
}

#[test]
fn verify_names_each_damaged_part_and_repair_mends_it() {
    let folder = tempfile::tempdir().unwrap();
    let model = converted("demo", folder.path());
    let good = fs::read(&model).unwrap();
    let quick = run(&["verify", text(&model)]);
    assert_eq!((quick.code, quick.err.as_str()), (Some(0), ""));
    let whole = run(&["verify", "--full", text(&model)]);
    assert_eq!(whole.code, Some(0));
    assert!(whole.out.contains("is whole"), "{whole:?}");

    let mut bad = good.clone();
    // Far from the end: the last expert ends with the file, but for its gap of alignment.
    let (in_tensors, in_record) = (good.len() / 3, good.len() - 2 * 40_960);
    bad[in_tensors] ^= 1;
    bad[in_record] ^= 1;
    fs::write(&model, &bad).unwrap();
    let damaged = run(&["verify", "--full", text(&model)]);
    assert_eq!(damaged.code, Some(1), "{damaged:?}");
    let lines: Vec<_> = damaged.out.lines().collect();
    assert_eq!(lines.len(), 2, "{damaged:?}");
    assert!(lines[0].starts_with("Damaged: tensor "), "{damaged:?}");
    assert!(
        lines[1].starts_with("Damaged: expert 14 of layer 5, bytes "),
        "{damaged:?}"
    );
    assert!(damaged.err.contains("2 damaged parts"), "{damaged:?}");
    let json = run(&["verify", "--full", "--json", text(&model)]);
    let report: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json.code, Some(1));
    assert_eq!(report["damaged"][1]["part"]["expert"]["expert"], 14);

    let other = refused(&[
        "repair",
        text(&model),
        "--from",
        text(&checkpoint("c_fp8_fp4")),
    ]);
    assert!(
        other.contains("has no tensor") || other.contains("is another"),
        "{other}"
    );
    assert!(fs::read(&model).unwrap() == bad);
    let from = checkpoint("demo");
    let mended = run(&["repair", text(&model), "--from", text(&from)]);
    assert_eq!(mended.code, Some(0), "{mended:?}");
    assert!(mended.out.starts_with("Mended 2 parts of "), "{mended:?}");
    assert!(fs::read(&model).unwrap() == good);
    // Whatever it was made from.
    for from in [&["--from", text(&from)][..], &[]] {
        let nothing = run(&[&["repair", text(&model)], from].concat());
        let expected = format!("Nothing to mend in {}.\n", text(&model));
        assert_eq!(
            (nothing.code, nothing.out, nothing.err.as_str()),
            (Some(0), expected, "")
        );
    }
}

#[test]
fn verify_promises_no_repair_that_would_be_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("my models");
    fs::create_dir(&place).unwrap();
    let model = converted("demo", &place);
    let good = fs::read(&model).unwrap();
    let repair = format!("fastar repair '{}'", text(&model));
    // A folder that is no repository's: in the middle is a tensor, near the end an expert, and the tokenizer before them all.
    let about: serde_json::Value =
        serde_json::from_str(&run(&["inspect", "--json", text(&model)]).out).unwrap();
    assert!(about["repository"].is_null(), "{about}");
    let tokenizer = good
        .windows(9)
        .position(|bytes| bytes == b"\"version\"")
        .unwrap();
    for at in [tokenizer, good.len() / 3, good.len() - 2 * 40_960] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&model, &bad).unwrap();
        let error = run(&["verify", "--full", text(&model)]).err;
        assert!(
            error.contains("has 1 damaged part. It does not say which repository"),
            "{error}"
        );
        assert!(
            error.contains(&format!("`{repair} --from FOLDER`")),
            "{error}"
        );
        assert!(
            error.contains("download or convert the model again"),
            "{error}"
        );
        // Who runs it is told the same.
        let met = run(&[
            "run",
            "--prompt",
            "hi",
            "--tokens",
            "3",
            "--model",
            text(&model),
        ]);
        if met.code != Some(0) {
            assert!(
                met.err.contains(&format!("`{repair} --from FOLDER`")),
                "{met:?}"
            );
        }
        let error = refused(&["repair", text(&model)]);
        assert!(
            error.contains("does not say which repository") && error.contains(&repair),
            "{error}"
        );
        let from = checkpoint("demo");
        let mended = run(&["repair", text(&model), "--from", text(&from)]);
        assert_eq!(mended.code, Some(0), "{mended:?}");
        assert!(fs::read(&model).unwrap() == good);
    }
    // A copy that ended early.
    fs::write(&model, &good[..good.len() - 5000]).unwrap();
    for command in ["verify", "repair"] {
        let error = refused(&[command, text(&model)]);
        assert!(
            error.contains("cannot mend that: copy, download or convert it again"),
            "{error}"
        );
    }
}
