//! A file that is changed by others while it is open ends in an error, never in the end of the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fastar_fst::{CheckpointFolder, Container, Depth, Error, Report, repair, upgrade, verify};
use fastar_testkit::{Original, Tiny, original_checkpoint, tiny};

const OTHER_INDEX: &str = "its header, its index or a file that belongs to it is another";

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

/// What checking `path` says when `change` happens at the first progress, when `late` it is at the last.
fn verified_while(path: &Path, late: bool, change: &dyn Fn()) -> Result<Report, Error> {
    let mut is_done = false;
    verify(
        path,
        Depth::Full,
        &AtomicBool::new(false),
        &mut |done, all| {
            if (!late || done == all) && !is_done {
                is_done = true;
                change();
            }
        },
    )
}

/// Says of what was changed meanwhile that it was, and which file and what.
fn assert_changed(result: Result<Report, Error>, path: &Path, says: &str) {
    let error = match result {
        Err(error @ Error::Changed { .. }) => error.to_string(),
        other => panic!("{says}: {other:?}"),
    };
    let begin = format!("{} was changed while it was checked: ", path.display());
    assert!(error.starts_with(&begin) && error.contains(says), "{error}");
}

fn zero(path: &Path, from: u64, bytes: usize) {
    let mut file = File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(from)).unwrap();
    file.write_all(&vec![0; bytes]).unwrap();
}

fn append(path: &Path) {
    let mut file = File::options().append(true).open(path).unwrap();
    file.write_all(&[0; 4096]).unwrap();
}

/// A number of the header of version 3.
fn field(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn a_file_that_changes_while_it_is_checked_is_never_called_whole() {
    let model = tiny(&Tiny::default()).convert();
    let path = model.path();
    let whole = fs::read(&path).unwrap();
    let length = whole.len() as u64;
    // By the table of the header: config, metadata, directory and checksums follow it, then the tokenizer.
    let index = 128 + field(&whole, 16);
    let tokenizer = whole.windows(9).position(|w| w == b"\"version\"").unwrap() as u64;
    assert!(field(&whole, 48) > 64 && tokenizer > index);
    let beside = path.with_extension("beside");
    let other = OTHER_INDEX;
    let changes: [(&dyn Fn(), &str); 9] = [
        (
            &|| append(&path),
            &format!("it had {length} bytes and has {}", length + 4096),
        ),
        (
            &|| cut(&path, length / 2),
            &format!("it had {length} bytes and has {}", length / 2),
        ),
        (&|| cut(&path, length - 1), "bytes and has"),
        (&|| cut(&path, 0), "bytes and has 0"),
        (&|| zero(&path, 0, 128), other),
        (&|| zero(&path, 120, 8), other),
        (&|| zero(&path, index, 64), other),
        (&|| zero(&path, tokenizer, 64), "its tokenizer is another"),
        (
            &|| fs::remove_file(&path).unwrap(),
            "it cannot be read any more",
        ),
    ];
    for (change, says) in changes {
        for late in [false, true] {
            fs::write(&path, &whole).unwrap();
            assert_changed(verified_while(&path, late, change), &path, says);
            #[cfg(target_os = "linux")]
            assert!(!is_mapped(&path));
        }
    }
    // Another model in its place; an equal file is not another.
    let newer = tiny(&Tiny {
        seed: 7,
        ..Tiny::default()
    })
    .convert();
    for (bytes, is_other) in [
        (fs::read(newer.path()).unwrap(), true),
        (whole.clone(), false),
    ] {
        fs::write(&path, &whole).unwrap();
        fs::write(&beside, bytes).unwrap();
        let result = verified_while(&path, true, &|| fs::rename(&beside, &path).unwrap());
        match is_other {
            true => assert!(matches!(result, Err(Error::Changed { .. })), "{result:?}"),
            false => assert!(result.unwrap().is_good()),
        }
    }
}

#[test]
fn a_set_of_version_2_that_changes_while_it_is_checked_is_never_called_whole() {
    let set = Original::of(&original_checkpoint(1, 4));
    let there = tempfile::tempdir().unwrap();
    let path = set.save(there.path());
    let files: Vec<PathBuf> = fs::read_dir(there.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 5);
    // Without a change it is whole.
    // Every expert of version 2 is read without progress: what happens at the first call happens before the last look.
    let report = verified_while(&path, false, &|| {}).unwrap();
    assert!(report.damaged.is_empty(), "{report:?}");
    for file in &files {
        let whole = fs::read(file).unwrap();
        let changes: [&dyn Fn(); 4] = [
            &|| append(file),
            &|| cut(file, whole.len() as u64 - 1),
            &|| zero(file, 0, 128),
            &|| fs::remove_file(file).unwrap(),
        ];
        for (number, change) in changes.iter().enumerate() {
            let result = verified_while(&path, false, change);
            assert!(
                matches!(result, Err(Error::Changed { .. })),
                "{} {number}: {result:?}",
                file.display()
            );
            fs::write(file, &whole).unwrap();
        }
    }
}

#[test]
fn nothing_is_written_into_a_file_that_changed_before_its_repair() {
    let checkpoint = tiny(&Tiny::default());
    let folder = tempfile::tempdir().unwrap();
    checkpoint.save(folder.path());
    let model = checkpoint.convert();
    let path = model.path();
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    let at = damaged.len() - 5000;
    damaged[at] ^= 1;
    let never = AtomicBool::new(false);
    let mend = |change: &dyn Fn()| {
        fs::write(&path, &damaged).unwrap();
        let report = verify(&path, Depth::Full, &never, &mut |_, _| {}).unwrap();
        assert_eq!(report.damaged.len(), 1);
        let mut source = CheckpointFolder::open(folder.path()).unwrap();
        let mut begun = false;
        repair(&path, &report.damaged, &mut source, &never, &mut |_, _| {
            if !std::mem::replace(&mut begun, true) {
                change();
            }
        })
    };
    mend(&|| {}).unwrap();
    assert!(fs::read(&path).unwrap() == whole);
    for length in [0, 4096, whole.len() as u64 + 1] {
        let error = mend(&|| cut(&path, length)).unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{error}");
        let left = fs::read(&path).unwrap();
        assert_eq!(left.len() as u64, length);
        let same = left.len().min(damaged.len());
        assert!(left[..same] == damaged[..same]);
    }
    let error = mend(&|| zero(&path, 0, 128)).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert!(fs::read(&path).unwrap()[128..] == damaged[128..]);
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
