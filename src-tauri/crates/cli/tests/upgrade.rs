//! `fastar upgrade`: version 3 out of the original FaStar's files, whatever ends it in between.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use common::fastar;
use fastar_testkit::{Original, original_checkpoint};

fn says(arguments: &[&str]) -> (bool, String) {
    let output = fastar(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_killed_upgrade_goes_on_and_ends_with_the_same_file() {
    let set = Original::of(&original_checkpoint(5, 4));
    let folder = tempfile::tempdir().unwrap();
    let whole = set.save(&folder.path().join("whole"));
    let (good, text) = says(&["upgrade", whole.to_str().unwrap()]);
    assert!(good && text.contains("is version 3"), "{text}");
    let expected = fs::read(&whole).unwrap();
    assert_eq!(
        names(whole.parent().unwrap()),
        ["model.fst", "tokenizer.json"]
    );
    for round in 0..6 {
        // A name that a careless program would stumble over.
        let path = set.save(&folder.path().join(format!("田中 'q\" $x {round}")));
        let text = path.to_str().unwrap();
        let mut child = fastar(&["upgrade", text]).spawn().unwrap();
        // Kill it once it has begun: the journal tells.
        let journal = path.with_file_name("model.fst.upgrade");
        let mut polls = 0;
        while !journal.exists() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        while polls < round * 40 && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
            polls += 1;
        }
        let _ = child.kill();
        child.wait().unwrap();
        let (good, about) = says(&["inspect", text]);
        if !good {
            assert!(
                about.contains("was interrupted; run `fastar upgrade"),
                "{about}"
            );
        }
        let (good, said) = says(&["upgrade", text]);
        assert!(good, "{said}");
        assert!(fs::read(&path).unwrap() == expected, "round {round}");
        assert_eq!(
            names(path.parent().unwrap()),
            ["model.fst", "tokenizer.json"]
        );
    }
}

#[test]
fn upgrading_beside_keeps_the_old_files_and_once_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let path = Original::of(&original_checkpoint(5, 2)).save(folder.path());
    let before = fs::read(&path).unwrap();
    let out = folder.path().join("new.fst");
    let (path, new) = (path.to_str().unwrap(), out.to_str().unwrap());
    let (good, text) = says(&["upgrade", path, "--out", new]);
    assert!(good, "{text}");
    assert!(fs::read(path).unwrap() == before);
    let (good, text) = says(&["verify", "--full", new]);
    assert!(good && text.contains("is whole"), "{text}");
    let (_, text) = says(&["inspect", new]);
    assert!(text.contains("exact for 2,048 tokens"), "{text}");
    let (good, text) = says(&["upgrade", new]);
    assert!(good && text.contains("version 3 already"), "{text}");
    let third = folder.path().join("third.fst");
    let (good, text) = says(&["upgrade", new, "--out", third.to_str().unwrap()]);
    assert!(!good && text.contains("third.fst was not made"), "{text}");
    assert!(!third.exists());
    let (good, text) = says(&["upgrade", path, "--out", path]);
    assert!(!good && text.contains("one of the files"), "{text}");
    assert_eq!(names(folder.path()).len(), 6);
}

#[test]
fn a_model_that_is_loaded_is_not_replaced_by_an_upgrade_beside_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = Original::of(&original_checkpoint(5, 2)).save(folder.path());
    let out = folder.path().join("new.fst");
    let (path, new) = (path.to_str().unwrap(), out.to_str().unwrap());
    let (good, text) = says(&["upgrade", path, "--out", new]);
    assert!(good, "{text}");
    let (before, there) = (fs::metadata(&out).unwrap(), names(folder.path()));
    let held = fs::File::open(&out).unwrap();
    held.try_lock_shared().unwrap();
    let (good, text) = says(&["upgrade", path, "--out", new]);
    // The lock is that of this test.
    let holder = format!("another FaStar (process {})", std::process::id());
    assert!(
        !good && text.contains(&format!("{holder} has this model loaded. Close it")),
        "{text}"
    );
    assert_eq!(names(folder.path()), there);
    assert_eq!(fs::metadata(&out).unwrap().ino(), before.ino());
    drop(held);
    let (good, text) = says(&["upgrade", path, "--out", new]);
    assert!(good, "{text}");
    assert_ne!(fs::metadata(&out).unwrap().ino(), before.ino());
}

#[test]
fn inspect_describes_a_draft_and_run_refuses_it() {
    let set = Original::of(&original_checkpoint(5, 2));
    let folder = tempfile::tempdir().unwrap();
    let draft = folder.path().join("dspark_draft.fst");
    fs::write(&draft, set.draft().bytes()).unwrap();
    let draft = draft.to_str().unwrap();
    let (good, text) = says(&["inspect", draft]);
    assert!(good && text.contains("noise token 128799"), "{text}");
    let (good, text) = says(&["inspect", "--json", draft]);
    assert!(good && text.contains("\"markov_rank\": 256"), "{text}");
    let (good, text) = says(&["run", "--prompt", "hi", "--model", draft]);
    assert!(!good && text.contains("is a draft model"), "{text}");
}
