//! How many threads compute: as many as this program may use processors, and any number that is asked for gives the same answer.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{reference, run};

#[cfg(target_os = "linux")]
#[test]
fn a_program_that_may_use_one_processor_computes_on_one_thread() {
    // The first of those that the tests may use themselves.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    let first = allowed.trim().split([',', '-']).next().unwrap();
    let data = tempfile::tempdir().unwrap();
    let ended: common::Ended = std::process::Command::new("taskset")
        .args(["-c", first, env!("CARGO_BIN_EXE_fastar"), "doctor"])
        .env("FASTAR_DATA_DIR", data.path())
        .env_remove("FASTAR_MODELS_DIR")
        .output()
        .unwrap()
        .into();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let threads = ended.out.lines().find(|l| l.starts_with("Threads "));
    let threads = threads.unwrap_or_default();
    assert!(
        threads.starts_with("Threads    1 of 1 processors on 1 cores: "),
        "{ended:?}"
    );
}

#[test]
fn far_more_threads_than_processors_give_the_same_answer() {
    let (prompt, answer) = reference().remove(0);
    let ended = run(&[
        "run",
        "--prompt",
        &prompt,
        "--temp",
        "0",
        "--threads",
        "512",
    ]);
    assert_eq!((ended.out, ended.code), (format!("{answer}\n"), Some(0)));
}
