//! What a header says costs no memory before it is believed. A file of its own: the peak of a child begins with what its parent has, and other tests of
//! the same process have much.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::fs;

use common::{converted, fastar, text};

/// How a program ended, and the most memory it had, in bytes.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
fn measured(arguments: &[&str]) -> (i32, u64) {
    let child = fastar(arguments)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut status = 0;
    // SAFETY: an all-zero rusage is one; both places live while the call writes to them, and nobody else waits for this child.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let pid = libc::pid_t::try_from(child.id()).unwrap();
        assert_eq!(libc::wait4(pid, &mut status, 0, &mut usage), pid);
        usage
    };
    assert!(libc::WIFEXITED(status));
    let kilobytes = u64::try_from(usage.ru_maxrss).unwrap();
    (libc::WEXITSTATUS(status), kilobytes << 10)
}

#[test]
fn a_hostile_header_is_refused_before_its_numbers_cost_memory() {
    let folder = tempfile::tempdir().unwrap();
    let good = fs::read(converted("demo", folder.path())).unwrap();
    let bad = folder.path().join("bad.fst");
    // Where, and which bytes: a GGUF file, versions, and by the table of the header its numbers as they might be to make a careless reader reserve
    // too much.
    let mut changes: Vec<(usize, Vec<u8>)> = vec![(0, b"GGUF".to_vec())];
    changes.extend([0u32, 4, u32::MAX].map(|version| (4, version.to_le_bytes().to_vec())));
    for at in (8..112).step_by(8) {
        let values = [
            0,
            1,
            1 << 31,
            1 << 40,
            u64::MAX >> 1,
            u64::MAX - 127,
            u64::MAX,
        ];
        changes.extend(values.map(|value| (at, value.to_le_bytes().to_vec())));
    }
    for (at, new) in changes {
        let mut bytes = good.clone();
        bytes[at..at + new.len()].copy_from_slice(&new);
        if bytes == good {
            continue;
        }
        fs::write(&bad, bytes).unwrap();
        let (code, most) = measured(&["run", "--prompt", "hi", "--model", text(&bad)]);
        assert_eq!(code, 1, "{at}: {new:?}");
        assert!(most < 100 << 20, "{at}: {new:?}: {most}");
    }
}
