//! `fastar convert`, `inspect` and `logits`, and what the program says about files it cannot use.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Ended, checkpoint, converted, fastar, refused, run, text};
use safetensors::SafeTensors;
use std::fs;
use std::path::Path;

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect()
}

fn ids(bytes: &[u8]) -> Vec<i64> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|b| i64::from_le_bytes(*b))
        .collect()
}

fn assert_close(ours: &[f32], theirs: &[f32], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let worst = ours
        .iter()
        .zip(theirs)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(worst < 1e-4, "{what} differ by {worst}");
}

#[test]
fn logits_are_those_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let model = converted("c_fp8_fp4", folder.path());
    let stored = fs::read(checkpoint("c_fp8_fp4").join("expected.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&stored).unwrap();
    let prompt = ids(expected.tensor("prompt").unwrap().data());
    let tokens = folder.path().join("ids.json");
    fs::write(&tokens, serde_json::to_vec(&prompt).unwrap()).unwrap();
    for (prefix, more) in [
        ("", &[][..]),
        ("", &["--chunk", "3"]),
        ("sim_", &["--reference"]),
    ] {
        let out = folder.path().join("out.safetensors");
        let mut arguments = vec![
            "logits",
            "--model",
            text(&model),
            "--tokens",
            text(&tokens),
            "--out",
            text(&out),
            "--decode",
            "16",
        ];
        arguments.extend(more);
        let ended = run(&arguments);
        assert_eq!(
            (ended.code, ended.out.as_str(), ended.err.as_str()),
            (Some(0), "", "")
        );
        let bytes = fs::read(&out).unwrap();
        let ours = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(ours.len(), 3);
        let logits = ours.tensor("logits").unwrap();
        assert_eq!(logits.shape(), [prompt.len(), 64]);
        let decoded = ours.tensor("decode_logits").unwrap();
        assert_eq!(decoded.shape(), [16, 64]);
        let greedy = ours.tensor("greedy").unwrap();
        assert_eq!(
            (greedy.dtype(), greedy.shape()),
            (safetensors::Dtype::I64, &[16][..])
        );
        let reference = |name: &str| expected.tensor(&format!("{prefix}{name}")).unwrap();
        assert_eq!(ids(greedy.data()), ids(reference("greedy").data()));
        assert_close(
            &floats(logits.data()),
            &floats(reference("logits").data()),
            "logits",
        );
        assert_close(
            &floats(decoded.data()),
            &floats(reference("decode_logits").data()),
            "decode_logits",
        );
    }
}

#[test]
fn logits_without_decode_has_one_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("ids.json");
    let out = folder.path().join("out.safetensors");
    fs::write(&tokens, "[0, 2041, 1279]").unwrap();
    let ended = run(&["logits", "--tokens", text(&tokens), "--out", text(&out)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let bytes = fs::read(&out).unwrap();
    let ours = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(ours.names(), ["logits"]);
    assert_eq!(ours.tensor("logits").unwrap().shape(), [3, 2048]);
}

#[test]
fn convert_says_what_it_wrote_and_warns_on_stderr() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("c.fst");
    let ended = run(&["convert", text(&checkpoint("c_fp8_fp4")), text(&out)]);
    assert_eq!(ended.code, Some(0));
    assert_eq!(
        ended.out,
        format!(
            "Wrote {} ({} bytes).\n",
            out.display(),
            fs::metadata(&out).unwrap().len()
        )
    );
    assert!(
        ended.err.starts_with("fastar: warning: ") && ended.err.contains("no tokenizer.json"),
        "{ended:?}"
    );
    assert_eq!(ended.err.lines().count(), 1);
}

#[test]
fn inspect_speaks_to_people_and_to_programs() {
    let folder = tempfile::tempdir().unwrap();
    let model = converted("demo", folder.path());
    let people = run(&["inspect", text(&model)]);
    assert_eq!((people.code, people.err.as_str()), (Some(0), ""));
    assert!(people.out.contains("DeepseekV4ForCausalLM") && people.out.contains("fp4-packets"));
    let programs = run(&["inspect", text(&model), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&programs.out).unwrap();
    assert_eq!(json["version"], 3);
    assert_eq!(json["layers"], 6);
    assert_eq!(json["tokenizer"], true);
    assert_eq!(json["file_bytes"], fs::metadata(&model).unwrap().len());
}

#[test]
fn every_command_says_in_one_sentence_why_a_model_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let good = fs::read(converted("demo", folder.path())).unwrap();
    let tokens = folder.path().join("ids.json");
    fs::write(&tokens, "[1]").unwrap();
    let out = folder.path().join("out.safetensors");
    let bad = folder.path().join("bad.fst");
    let version = |version: u32| {
        let mut bytes = good.clone();
        bytes[4..8].copy_from_slice(&version.to_le_bytes());
        bytes
    };
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    for (bytes, says) in [
        (vec![], "is empty"),
        (
            b"GGUF....".to_vec(),
            "is not a FaStar model: it is a GGUF file",
        ),
        // Nothing else in these bytes is of version 2.
        (version(2), "is damaged"),
        (version(0x8000_0002), "was interrupted; run `fastar upgrade"),
        (
            version(4),
            "of version 4. This FaStar reads version 3, and `fastar upgrade` makes that of version 2",
        ),
        (version(4), "It needs a newer FaStar"),
        (version(0), "of version 0. This FaStar reads version 3"),
        (good[..good.len() / 2].to_vec(), "is incomplete"),
        (good[..100].to_vec(), "is incomplete"),
        (flipped(200), "checksum of its header and directory"),
    ] {
        fs::write(&bad, bytes).unwrap();
        for arguments in [
            &["inspect", text(&bad)][..],
            &["run", "--prompt", "hi", "--model", text(&bad)],
            &["chat", "--model", text(&bad)],
            &["serve", "--port", "0", "--model", text(&bad)],
            &[
                "logits",
                "--model",
                text(&bad),
                "--tokens",
                text(&tokens),
                "--out",
                text(&out),
            ],
            &["--prompt", "hi", "--model", text(&bad)],
        ] {
            let error = refused(arguments);
            assert!(
                error.contains(says) && error.contains("bad.fst"),
                "{arguments:?}: {error}"
            );
        }
    }
    assert!(!out.exists());
    // The last byte of the file is in the last expert, or in the gap after it; the middle of the file is in a tensor.
    fs::write(&bad, flipped(good.len() / 3)).unwrap();
    let error = refused(&["run", "--prompt", "hi", "--model", text(&bad)]);
    // It names no repository.
    let command = format!("`fastar repair {} --from FOLDER` mends it", text(&bad));
    assert!(
        error.contains("checksum of tensor") && error.contains(&command),
        "{error}"
    );
}

#[test]
fn a_checkpoint_that_cannot_be_converted_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("checkpoint");
    fs::create_dir(&from).unwrap();
    let copy = |name: &str| fs::copy(checkpoint("demo").join(name), from.join(name)).unwrap();
    let out = folder.path().join("out.fst");
    let refuse = || {
        let error = refused(&["convert", text(&from), text(&out)]);
        let left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["checkpoint"]);
        error
    };
    assert!(refuse().contains("no config.json"));
    copy("config.json");
    assert!(refuse().contains("neither model.safetensors nor"));
    copy("model.safetensors");
    fs::write(
        from.join("tokenizer.json"),
        r#"{"model": {"vocab": {"a": 50256}}}"#,
    )
    .unwrap();
    let error = refuse();
    assert!(error.contains("50256") && error.contains("2048"), "{error}");
    fs::remove_file(from.join("tokenizer.json")).unwrap();
    let config = fs::read_to_string(from.join("config.json")).unwrap();
    fs::write(
        from.join("config.json"),
        config.replace("deepseek_v4", "llama"),
    )
    .unwrap();
    assert!(refuse().contains("llama"));
    fs::write(
        from.join("config.json"),
        config.replace("\"num_hidden_layers\": 6", "\"num_hidden_layers\": 5"),
    )
    .unwrap();
    let error = refuse();
    assert!(
        error.contains("unexpected tensors") && error.contains("layers.5."),
        "{error}"
    );
}

#[test]
fn a_model_without_tokenizer_works_for_logits_and_says_so_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let model = converted("a_mixed_bf16", folder.path());
    for arguments in [
        ["run", "--prompt", "hi", "--model", text(&model)].as_slice(),
        &["chat", "--model", text(&model)],
        &["serve", "--port", "0", "--model", text(&model)],
    ] {
        let error = refused(arguments);
        assert!(error.contains("a_mixed_bf16 has no tokenizer"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_logits_with_130_and_nothing_written() {
    let folder = tempfile::tempdir().unwrap();
    let (tokens, out) = (folder.path().join("ids.json"), folder.path().join("out"));
    let trace = folder.path().join("trace");
    fs::write(&tokens, "[1]").unwrap();
    let child = common::fastar(&[
        "logits",
        "--tokens",
        text(&tokens),
        "--out",
        text(&out),
        "--decode",
        "4000",
        "--trace",
        text(&trace),
    ])
    .stdout(std::process::Stdio::piped())
    .stderr(std::process::Stdio::piped())
    .spawn()
    .unwrap();
    // It computes once there is a token behind the 32 bytes that its trace begins with.
    let since = std::time::Instant::now();
    while fs::metadata(&trace).map_or(0, |trace| trace.len()) <= 32 {
        assert!(since.elapsed() < std::time::Duration::from_secs(60));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    common::signal(&child, "INT");
    let ended: common::Ended = child.wait_with_output().unwrap().into();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!(ended.err, "fastar: Stopped; nothing was written.\n");
    assert_eq!(ended.out, "");
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name != "trace")
        .collect();
    assert_eq!(left, ["ids.json"]);
}

#[test]
fn token_ids_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("ids.json");
    let out = folder.path().join("out.safetensors");
    for (json, says) in [
        (
            "",
            "is not a JSON list of token ids: it is not valid JSON: it ends too early, at line 1, column 0.",
        ),
        (
            "{}",
            "is not a JSON list of token ids: it has a value of the wrong kind at line 1, column 0.",
        ),
        (
            "[1,\n-1]",
            "is not a JSON list of token ids: it has a value of the wrong kind at line 2, column 2.",
        ),
        (
            "[1.5]",
            "it has a value of the wrong kind at line 1, column 4.",
        ),
        (
            "[4294967296]",
            "it has a value of the wrong kind at line 1, column ",
        ),
        (
            "[1, 2",
            "it is not valid JSON: it ends too early, at line 1, column 5.",
        ),
        ("[]", "no token ids"),
        ("[2048]", "2048"),
    ] {
        fs::write(&tokens, json).unwrap();
        let error = refused(&["logits", "--tokens", text(&tokens), "--out", text(&out)]);
        assert!(error.contains(says), "{json}: {error}");
        assert!(!out.exists());
    }
    fs::write(&tokens, "[1]").unwrap();
    let ended = run(&["logits", "--tokens", text(&tokens), "--out", text(&tokens)]);
    assert_eq!(ended.code, Some(2));
    assert_eq!(fs::read_to_string(&tokens).unwrap(), "[1]");
    let error = refused(&[
        "logits",
        "--tokens",
        text(&tokens),
        "--out",
        "/no/such/folder/out.safetensors",
    ]);
    assert!(error.contains("/no/such/folder/out.safetensors"), "{error}");
}

#[test]
fn any_valid_path_works_for_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("田中　ü é/Модели 'q\" $x/🙂");
    fs::create_dir_all(&odd).unwrap();
    let model = converted("demo", &odd);
    let ended = run(&[
        "run",
        "--prompt",
        "Hello!",
        "--temp",
        "0",
        "--model",
        text(&model),
    ]);
    assert_eq!(ended.out, format!("{}\n", common::reference()[0].1));
    let ended = run(&[
        "run",
        "--prompt",
        "Hello!",
        "--temp",
        "0",
        "--model-dir",
        text(&odd),
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn a_folder_must_have_exactly_one_model() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--prompt", "hi", "--model-dir", text(folder.path())];
    assert!(refused(&arguments).contains("no .fst file"));
    let one = converted("demo", folder.path());
    assert_eq!(run(&arguments).code, Some(0));
    fs::copy(&one, folder.path().join("two.fst")).unwrap();
    let error = refused(&arguments);
    assert!(
        error.contains("2 .fst files") && error.contains("two.fst"),
        "{error}"
    );
    assert!(refused(&["chat", "--model-dir", "/no/such/folder"]).contains("/no/such/folder"));
}

#[test]
fn wrong_usage_ends_with_2_and_says_why() {
    for (arguments, says) in [
        (&[][..], "Usage"),
        (&["run"], "--prompt"),
        (&["run", "--prompt", "a", "--temp", "-1"], "from 0 to 10"),
        (&["run", "--prompt", "a", "--temp", "NaN"], "from 0 to 10"),
        (&["run", "--prompt", "a", "--top_p", "0"], "from 0.001 to 1"),
        (&["run", "--prompt", "a", "--tokens", "0"], "from 1 to"),
        (&["serve", "--port", "70000"], "70000"),
        (&["--port", "80"], "--serve"),
        (&["fly"], "fly"),
        (&["--temp", "1"], "What should be done?"),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert_eq!(ended.out, "");
        assert!(ended.err.contains(says), "{arguments:?}: {ended:?}");
    }
    assert_eq!(run(&["--help"]).code, Some(0));
    assert!(run(&["--version"]).out.starts_with("fastar "));
}

#[test]
fn what_a_file_is_named_cannot_control_the_terminal() {
    let error = refused(&["inspect", "a\x1b[2Jb\nc"]);
    assert!(!error.contains('\x1b'), "{error:?}");
    assert!(!Path::new("a\x1b[2Jb\nc").exists());
}

#[test]
fn logits_replace_no_device_pipe_folder_or_link() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("ids.json");
    fs::write(&tokens, "[1, 2]").unwrap();
    let to =
        |out: &Path| ["logits", "--tokens", text(&tokens), "--out", text(out)].map(str::to_owned);
    let run = |out: &Path| {
        let arguments = to(out);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run(&arguments)
    };
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for out in [pipe.as_path(), folder.path()] {
        let ended = run(out);
        assert_eq!(ended.code, Some(1));
        assert!(ended.err.contains("is not a regular file"), "{}", ended.err);
        assert!(!out.is_file(), "it was replaced");
    }
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    // Whatever a link leads to: notes, an older one, nothing.
    for there in [Some(&b"notes"[..]), Some(b""), None] {
        match there {
            Some(bytes) => fs::write(&real, bytes).unwrap(),
            None => fs::remove_file(&real).unwrap(),
        }
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let ended = run(&link);
        assert_eq!(ended.code, Some(1));
        assert!(ended.err.contains("link is a link; choose"), "{ended:?}");
        assert_eq!(fs::read(&real).ok().as_deref(), there);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        fs::remove_file(&link).unwrap();
    }
    // An older one may be replaced, anything else not.
    for _ in 0..2 {
        assert_eq!(run(&real).code, Some(0));
        assert!(SafeTensors::deserialize(&fs::read(&real).unwrap()).is_ok());
    }
    fs::write(&real, "notes").unwrap();
    let ended = run(&real);
    assert!(
        ended.code == Some(1) && ended.err.contains("is a file of another kind"),
        "{ended:?}"
    );
    assert_eq!(fs::read(&real).unwrap(), b"notes");
}

#[test]
fn a_model_of_the_app_goes_by_its_name_and_a_path_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let models = folder.path().join("models");
    fs::create_dir(&models).unwrap();
    let by_name = |arguments: &[&str]| {
        let mut command = fastar(arguments);
        command
            .env("FASTAR_DATA_DIR", folder.path())
            .current_dir(folder.path());
        Ended::from(command.output().unwrap())
    };
    let none = by_name(&["inspect", "demo"]);
    assert!(none.err.contains("There are no models yet"), "{none:?}");
    converted("demo", &models);
    for arguments in [
        &["run", "--prompt", "hi", "--tokens", "1", "--model", "demo"][..],
        &["--prompt", "hi", "--tokens", "1", "--model", "demo.fst"],
        &["verify", "demo", "--full"],
        &["inspect", "demo"],
        &["upgrade", "demo"],
    ] {
        let ended = by_name(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    }
    for name in ["demi", "demi.fst", ".", "..", "de\nmo"] {
        let ended = by_name(&["run", "--prompt", "hi", "--model", name]);
        assert_eq!(
            (ended.code, ended.err.lines().count()),
            (Some(1), 1),
            "{ended:?}"
        );
    }
    let sentence = by_name(&["run", "--prompt", "hi", "--model", "demi"]).err;
    assert!(
        sentence.contains(text(&models)) && sentence.contains("The only one there is demo."),
        "{sentence}"
    );
    // A path that leads somewhere is what it says.
    fs::write(folder.path().join("demo"), "not a model").unwrap();
    let ended = by_name(&["inspect", "demo"]);
    assert!(
        ended.code == Some(1) && ended.err.contains("not a"),
        "{ended:?}"
    );
    // A name with a folder in it is a path.
    let ended = by_name(&["inspect", "./demi"]);
    assert!(!ended.err.contains("of that name"), "{ended:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_printed_is_an_error_and_who_has_seen_enough_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let model = converted("demo", folder.path());
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["run", "--prompt", "Hello!", "--tokens", "2"],
        &["models"],
        &["doctor"],
        &["inspect", text(&model)],
        &["verify", text(&model)],
    ] {
        for (stdout, says) in [
            (">/dev/full", Some("No space left on device")),
            (">&-", Some("it is closed")),
            ("| true", None),
        ] {
            let fastar = fastar(arguments);
            let mut shell = std::process::Command::new("bash");
            shell
                .args(["-o", "pipefail", "-c", &format!("\"$0\" \"$@\" {stdout}")])
                .arg(fastar.get_program())
                .args(fastar.get_args())
                .env("FASTAR_DATA_DIR", folder.path())
                .stdin(std::process::Stdio::null());
            let ended = Ended::from(shell.output().unwrap());
            match says {
                None => assert_eq!((ended.code, ended.err.as_str()), (Some(0), "")),
                Some(says) => {
                    let begin = format!("fastar: The output could not be written: {says}");
                    assert!(ended.err.starts_with(&begin), "{arguments:?}: {ended:?}");
                    assert_eq!(ended.code, Some(1), "{arguments:?}: {ended:?}");
                    assert_eq!(ended.err.lines().count(), 1, "{arguments:?}: {ended:?}");
                }
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn a_small_stack_of_the_first_thread_is_enough() {
    for (arguments, code) in [
        (&["--help"][..], 0),
        (&["fly"], 2),
        (&["run", "--prompt", "Hello!", "--tokens", "2"], 0),
        (&["simulate", "--tokens", "10", "--json"], 0),
        (&["inspect", "/no/such/file"], 1),
    ] {
        let fastar = fastar(arguments);
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", "ulimit -s 64; exec \"$0\" \"$@\""])
            .arg(fastar.get_program())
            .args(fastar.get_args())
            .stdin(std::process::Stdio::null());
        let ended = Ended::from(shell.output().unwrap());
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
    }
}
