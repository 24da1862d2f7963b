#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::collections::BTreeSet;

use super::*;
use crate::data::take_lock;
use crate::install::Installer;
use crate::jobs::{Ended, Leftover, Order, Report, Steering};
use fastar_api::JobKind;

/// Knows of one unfinished download.
struct Unfinished(&'static str);

impl Workshop for Unfinished {
    fn work(
        &self,
        _: &Order,
        _: &Steering,
        _: &mut dyn FnMut(Report),
    ) -> std::result::Result<Ended, ApiError> {
        panic!("looking at the folder begins no work")
    }

    fn leftover(&self, folder: &Path, file: &str) -> Option<Leftover> {
        (file == self.0).then(|| Leftover {
            order: Order {
                kind: JobKind::Download,
                folder: folder.to_owned(),
                file: file.into(),
                title: "A model".into(),
                repository: "a/b".into(),
                revision: "main".into(),
                drafter: true,
            },
            done_bytes: 40,
            total_bytes: Some(100),
        })
    }

    fn discard(&self, folder: &Path, file: &str) -> std::result::Result<(), ApiError> {
        match fs::remove_dir_all(download_folder(folder, file)) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
            _ => Ok(()),
        }
    }
}

const NOTHING: Unfinished = Unfinished("");

fn real() -> Installer {
    Installer::new(fastar_hub::Settings::default)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn put(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn listed(folder: &Path, workshop: &dyn Workshop) -> Vec<ModelFile> {
    list(folder, &[], workshop).unwrap().files
}

fn only(folder: &Path, workshop: &dyn Workshop) -> ModelFile {
    let mut files = listed(folder, workshop);
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

fn unusable(file: &ModelFile) -> &ApiError {
    match &file.condition {
        Condition::Unusable { error } => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_model_is_named_by_a_plain_file_name_and_nothing_else() {
    for name in [
        "a.fst",
        "a b.fst",
        "..fst.fst",
        "模型 🙂.fst",
        "it's \"x\" $y.fst",
    ] {
        assert_eq!(checked_name(name).unwrap(), name);
    }
    for name in [
        "",
        ".",
        "..",
        "/",
        ".fst",
        "a",
        "a.FST",
        "a.fst ",
        "a.fst/",
        "a.fst/.",
        "./a.fst",
        "../a.fst",
        "/a.fst",
        "b/a.fst",
        "b/../a.fst",
        "../.fst",
        "a.fst.partial",
        "a.fst\0.fst",
        "a\n.fst",
    ] {
        assert!(
            matches!(checked_name(name), Err(Error::ModelNotFound)),
            "{name:?}"
        );
    }
    assert!(checked_name(&format!("{}.fst", "a".repeat(300))).is_err());
}

#[test]
fn each_model_is_listed_with_all_that_belongs_to_it_and_deleting_frees_that_and_nothing_else() {
    let dir = folder();
    let dir = dir.path();
    // A whole one with sidecars, an unfinished download, what a conversion left, and a stray temporary file.
    put(dir, "whole.fst", crate::demo::bytes());
    put(dir, "whole.fst.hc", &[1; 30_000]);
    put(dir, "whole.fst.norm", &[2; 5000]);
    put(dir, "begun.download/download.json", b"{}");
    put(dir, "begun.download/files/one", &[3; 70_000]);
    put(dir, "begun.download/headers/two", &[4; 9000]);
    put(dir, "begun.fst.partial", &[5; 40_000]);
    put(dir, "stray.fst.partial.state.new", &[6; 11_000]);
    let ours: [(&str, &[&str]); 3] = [
        ("begun.fst", &["begun.download", "begun.fst.partial"]),
        ("stray.fst", &["stray.fst.partial.state.new"]),
        (
            "whole.fst",
            &["whole.fst", "whole.fst.hc", "whole.fst.norm"],
        ),
    ];
    // Somebody else's, with names that are near.
    let foreign: [(&str, &[u8]); 9] = [
        ("notes.txt", b"mine"),
        ("whole.fst.bak", b"mine"),
        ("whole.fst.hc.txt", b"mine"),
        ("whole/begun.fst", b"mine"),
        ("whole.download/film.mkv", b"mine"),
        ("Holiday.download/lock", b"mine"),
        ("Holiday.download/photo.jpg", b"mine"),
        ("xfst", b"mine"),
        ("partial", b"mine"),
    ];
    for (name, bytes) in foreign {
        put(dir, name, bytes);
    }
    let files = listed(dir, &Unfinished("begun.fst"));
    let found: Vec<_> = files.iter().map(|file| file.file.as_str()).collect();
    assert_eq!(found, ours.map(|(file, _)| file));
    #[cfg(target_os = "linux")]
    for (file, parts) in files.iter().zip(ours.map(|(_, parts)| parts)) {
        let du = std::process::Command::new("du")
            .args(["--summarize", "--total", "--block-size=1", "--"])
            .args(parts)
            .current_dir(dir)
            .output()
            .unwrap();
        let text = String::from_utf8(du.stdout).unwrap();
        let total = text.lines().last().and_then(|line| line.split('\t').next());
        assert_eq!(file.disk_bytes.to_string(), total.unwrap(), "{}", file.file);
    }
    for file in &files {
        let freed = delete(dir, &file.file, &Unfinished("begun.fst")).unwrap();
        assert_eq!(freed, file.disk_bytes, "{}", file.file);
        assert!(matches!(
            delete(dir, &file.file, &NOTHING),
            Err(Error::ModelNotFound)
        ));
    }
    assert_eq!(listed(dir, &NOTHING), []);
    for (name, bytes) in foreign {
        assert_eq!(fs::read(dir.join(name)).unwrap(), bytes, "{name}");
    }
}

#[test]
fn what_is_not_whole_is_listed_as_incomplete_and_whether_it_can_go_on() {
    let dir = folder();
    let dir = dir.path();
    put(dir, "begun.download/files/one", &[3; 7000]);
    put(dir, "half.fst.partial", &[5; 40_000]);
    let files = listed(dir, &Unfinished("begun.fst"));
    let conditions: Vec<_> = files.iter().map(|file| &file.condition).collect();
    let half = files[1].disk_bytes;
    assert!(half >= 40_000);
    assert_eq!(
        conditions,
        [
            &Condition::Incomplete {
                done_bytes: 40,
                total_bytes: Some(100),
                resumable: true
            },
            &Condition::Incomplete {
                done_bytes: half,
                total_bytes: None,
                resumable: false
            },
        ]
    );
    assert_eq!(files[0].source.as_deref(), Some("a/b"));
    // With the real work: a folder of ours whose record is lost is still ours, and can be deleted.
    let lost = &listed(dir, &real())[0];
    assert!(matches!(
        lost.condition,
        Condition::Incomplete {
            resumable: false,
            ..
        }
    ));
    assert_eq!(delete(dir, "begun.fst", &real()).unwrap(), lost.disk_bytes);
    assert_eq!(delete(dir, "half.fst", &real()).unwrap(), half);
    assert_eq!(names(dir), BTreeSet::new());
}

#[test]
fn a_file_that_is_no_model_is_told_and_hides_no_other() {
    let dir = folder();
    let dir = dir.path();
    put(dir, "cut.fst", &crate::demo::bytes()[..50_000]);
    put(dir, "empty.fst", b"");
    put(dir, "text.fst", b"<!doctype html>");
    put(dir, "whole.fst", crate::demo::bytes());
    let files = listed(dir, &NOTHING);
    for file in &files[..3] {
        let error = unusable(file);
        assert!(error.message.contains(&file.file), "{error}");
        assert_eq!(error.code, ErrorCode::NoModel);
    }
    assert_eq!(files[3].condition, Condition::Whole);
}

#[cfg(unix)]
#[test]
fn links_are_not_followed_when_deleting_and_what_leads_nowhere_is_told() {
    use std::os::unix::fs::symlink;
    let (dir, elsewhere) = (folder(), folder());
    let (dir, elsewhere) = (dir.path(), elsewhere.path());
    put(elsewhere, "real.fst", crate::demo::bytes());
    put(elsewhere, "folder/one", b"one");
    symlink(elsewhere.join("real.fst"), dir.join("link.fst")).unwrap();
    symlink(elsewhere.join("gone.fst"), dir.join("nowhere.fst")).unwrap();
    symlink(elsewhere.join("folder"), dir.join("folder.fst")).unwrap();
    symlink(elsewhere.join("folder"), dir.join("linked.download")).unwrap();
    put(dir, "begun.download/lock", b"");
    symlink(elsewhere.join("folder"), dir.join("begun.download/files")).unwrap();

    let files = listed(dir, &NOTHING);
    let found: Vec<_> = files.iter().map(|file| file.file.as_str()).collect();
    assert_eq!(
        found,
        ["begun.fst", "folder.fst", "link.fst", "nowhere.fst"]
    );
    assert_eq!(files[2].condition, Condition::Whole);
    // The file is not in this folder: deleting frees nothing of it.
    assert!(files[2].disk_bytes < 10_000, "{}", files[2].disk_bytes);
    for file in [&files[1], &files[3]] {
        assert!(unusable(file).message.contains("leads to no file"));
    }
    for file in &files {
        assert_eq!(delete(dir, &file.file, &real()).unwrap(), file.disk_bytes);
    }
    assert_eq!(names(dir), BTreeSet::from(["linked.download".to_owned()]));
    assert_eq!(
        fs::read(elsewhere.join("real.fst")).unwrap(),
        crate::demo::bytes()
    );
    assert_eq!(fs::read(elsewhere.join("folder/one")).unwrap(), b"one");
}

#[cfg(unix)]
#[test]
fn a_pipe_a_folder_and_a_name_that_is_no_text_are_no_models_and_hold_nothing_up() {
    use std::os::unix::ffi::OsStrExt;
    let dir = folder();
    let dir = dir.path();
    let made = std::process::Command::new("mkfifo")
        .arg(dir.join("pipe.fst"))
        .status();
    assert!(made.unwrap().success());
    put(dir, "folder.fst/inside", b"x");
    fs::write(dir.join(std::ffi::OsStr::from_bytes(b"\xff.fst")), b"x").unwrap();
    assert_eq!(listed(dir, &NOTHING), []);
    assert!(matches!(
        delete(dir, "pipe.fst", &NOTHING),
        Err(Error::ModelNotFound)
    ));
}

#[test]
fn a_folder_that_is_not_there_is_empty_and_one_that_cannot_be_read_is_named() {
    let dir = folder();
    let dir = dir.path();
    let library = list(&dir.join("a/b"), &[], &NOTHING).unwrap();
    assert_eq!(
        (library.files.len(), library.folder),
        (0, dir.join("a/b").display().to_string())
    );
    assert!(library.free_bytes.is_some_and(|free| free > 0));
    assert!(!library.catalogue.is_empty());
    // A file in its place is unreadable for everybody, root included.
    put(dir, "file", b"x");
    let error = list(&dir.join("file"), &[], &NOTHING)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(dir.join("file").to_str().unwrap()),
        "{error}"
    );
}

#[test]
fn any_folder_and_any_name_will_do() {
    let dir = folder();
    let deep = dir.path().join("田中　ü é/Модели 'q\" $x/🙂");
    let name = format!("{}模型.fst", "long ".repeat(40));
    put(&deep, &name, crate::demo::bytes());
    let file = only(&deep, &real());
    assert_eq!(
        (file.file.as_str(), &file.condition),
        (name.as_str(), &Condition::Whole)
    );
    assert_eq!(delete(&deep, &name, &real()).unwrap(), file.disk_bytes);
    assert_eq!(names(&deep), BTreeSet::new());
}

#[cfg(unix)]
#[test]
fn a_model_is_in_use_whatever_way_leads_to_it() {
    let dir = folder();
    let dir = dir.path();
    put(dir, "models/used.fst", crate::demo::bytes());
    put(dir, "models/other.fst", crate::demo::bytes());
    std::os::unix::fs::symlink(dir.join("models"), dir.join("link")).unwrap();
    let used = dir.join("link/used.fst");
    let library = list(&dir.join("models"), std::slice::from_ref(&used), &NOTHING).unwrap();
    let in_use: Vec<_> = library.files.iter().map(|file| file.in_use).collect();
    assert_eq!(in_use, [false, true]);
    assert!(is_same(&used, &dir.join("models/used.fst")));
    assert!(!is_same(&used, &dir.join("models/other.fst")));
    assert!(!is_same(&dir.join("no"), &dir.join("nothing")));
}

#[test]
fn a_download_that_another_program_is_at_is_not_deleted() {
    let dir = folder();
    let dir = dir.path();
    put(dir, "begun.download/files/one", &[3; 7000]);
    put(dir, "begun.fst.partial", &[5; 4000]);
    let lock = take_lock(&dir.join("begun.download"), |_| Error::Busy).unwrap();
    let error = ApiError::from(delete(dir, "begun.fst", &real()).unwrap_err());
    assert_eq!(error.code, ErrorCode::Busy);
    assert!(error.message.contains("another FaStar"), "{error}");
    assert!(
        dir.join("begun.download/files/one").exists() && dir.join("begun.fst.partial").exists()
    );
    drop(lock);
    delete(dir, "begun.fst", &real()).unwrap();
    assert_eq!(names(dir), BTreeSet::new());
}
