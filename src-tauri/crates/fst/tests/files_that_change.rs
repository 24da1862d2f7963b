//! A file that is changed by others while it is open ends in an error, never in the end of the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use fastar_fst::{Container, Depth, Error, upgrade, verify};
use fastar_testkit::{Original, Tiny, original_checkpoint, tiny};

/// Everything that can be had of an open container, and how many of it were errors.
fn read_all(container: &Container) -> usize {
    let mut errors = 0;
    let mut note = |result: Result<(), Error>| match result {
        Ok(()) => {}
        Err(Error::Length { .. } | Error::Checksum { .. }) => errors += 1,
        Err(other) => panic!("{other}"),
    };
    for (name, _) in container.tensors() {
        note(container.read(name).map(drop));
        note(container.read_in_pieces(name, &mut |_| Ok(())));
    }
    let (layers, experts) = container.expert_counts();
    for (layer, expert) in (0..layers).flat_map(|l| (0..experts).map(move |e| (l, e))) {
        note(container.expert(layer, expert).map(drop));
    }
    note(container.tokenizer().map(drop));
    errors
}

fn cut(path: &Path, length: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(length).unwrap();
}

/// Whether the process has a file of this name in its memory.
#[cfg(target_os = "linux")]
fn is_mapped(path: &Path) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains(path.to_str().unwrap())
}

#[test]
fn what_is_cut_off_while_a_container_is_open_is_an_error_and_the_rest_is_there() {
    let model = tiny(&Tiny::default()).convert();
    let whole = fs::read(model.path()).unwrap();
    for length in [0, 1, 4096, whole.len() as u64 / 2, whole.len() as u64 - 1] {
        fs::write(model.path(), &whole).unwrap();
        let container = Container::open(&model.path()).unwrap();
        assert_eq!(read_all(&container), 0);
        #[cfg(target_os = "linux")]
        assert!(!is_mapped(&model.path()));
        cut(&model.path(), length);
        assert!(read_all(&container) > 0, "{length}");
        let error = container.verify(&mut |_, _| {}).unwrap_err().to_string();
        assert!(error.contains(&format!("{length} bytes")), "{error}");
    }
}

#[test]
fn a_set_of_version_2_may_lose_any_of_its_files() {
    let set = Original::of(&original_checkpoint(1, 4));
    for file in [
        "model.fst",
        "model.fst.hc",
        "model.fst.norm",
        "model.fst.tid2eid",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = set.save(folder.path());
        let container = Container::open(&path).unwrap();
        assert_eq!(read_all(&container), 0);
        let name = path.file_name().unwrap().to_str().unwrap();
        cut(&folder.path().join(file.replace("model.fst", name)), 0);
        assert!(read_all(&container) > 0, "{file}");
    }
}

#[test]
fn a_file_that_is_cut_while_it_is_checked_is_found_damaged() {
    let model = tiny(&Tiny::default()).convert();
    let half = fs::metadata(model.path()).unwrap().len() / 2;
    let is_cut = AtomicBool::new(false);
    let report = verify(
        &model.path(),
        Depth::Full,
        &AtomicBool::new(false),
        &mut |done, all| {
            if done > all / 4 && !is_cut.swap(true, Ordering::Relaxed) {
                cut(&model.path(), half);
            }
        },
    );
    let report = report.unwrap();
    let lost = report.damaged.iter().filter(|d| d.offset >= half).count();
    assert!(lost > 10, "{report:?}");
    assert!(report.damaged.iter().all(|d| d.offset + d.bytes > half));
    let why = report.damaged[0].unreadable.as_deref();
    assert_eq!(why, Some("the file ends before it"));
}

#[test]
fn a_file_that_is_cut_while_it_is_upgraded_is_named_and_nothing_is_left() {
    let set = Original::of(&original_checkpoint(1, 4));
    let folder = tempfile::tempdir().unwrap();
    let path = set.save(folder.path());
    let out = folder.path().join("new.fst");
    let is_cut = AtomicBool::new(false);
    let error = upgrade(
        &path,
        Some(&out),
        &AtomicBool::new(false),
        &mut |done, all| {
            if done > all / 2 && !is_cut.swap(true, Ordering::Relaxed) {
                cut(&path, 4096);
            }
        },
    );
    let error = error.unwrap_err().to_string();
    let name = path.display().to_string();
    assert!(
        error.contains(&name) && error.contains("4096 bytes"),
        "{error}"
    );
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("new.fst"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
