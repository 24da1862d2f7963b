//! A disk that fills up, and how much a kill can lose: what needs a switch inside.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::sync::atomic::AtomicBool;

use super::places::fingerprint;
use super::*;
use crate::convert::journal::Journal;

/// A checkpoint of the tests of the engine, in one shard.
fn checkpoint() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    crates.join("engine/tests/fixtures/c_fp8_fp4")
}

fn open(out: &Path) -> Conversion {
    Conversion::open(Checkpoint::open(&checkpoint()).unwrap(), out).unwrap()
}

fn add(conversion: &mut Conversion) -> Result<()> {
    let go_on = AtomicBool::new(false);
    conversion.add_folder(&checkpoint(), &go_on, &mut |_, _, _| {})
}

fn finish(conversion: Conversion) -> Result<()> {
    conversion.finish(&AtomicBool::new(false), &mut |_, _| {})
}

#[test]
fn a_disk_that_fills_up_keeps_what_is_done_and_says_how_much_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let undisturbed = folder.path().join("undisturbed.fst");
    crate::convert(&checkpoint(), &undisturbed, &mut |_, _| {}).unwrap();
    let out = folder.path().join("m.fst");
    let mut conversion = open(&out);
    let room = conversion.bytes() * 7 / 10;
    conversion.partial.as_mut().unwrap().room = Some(room);
    let error = add(&mut conversion).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("more are needed") && text.contains("is kept"),
        "{text}"
    );
    let kept = conversion.bytes_done();
    assert!(kept > room / 2 && kept <= room, "{kept} of {room}");
    assert!(!out.exists());
    drop(conversion);
    // There is room again.
    let mut conversion = open(&out);
    assert_eq!(*conversion.start(), Start::Resumed { bytes_done: kept });
    add(&mut conversion).unwrap();
    // Full once more, at the very end.
    conversion.partial.as_mut().unwrap().room = Some(0);
    let error = finish(conversion).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(!out.exists());
    finish(open(&out)).unwrap();
    assert!(fs::read(&out).unwrap() == fs::read(&undisturbed).unwrap());
}

#[test]
fn work_within_a_shard_is_noted_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m.fst");
    let mut conversion = open(&out);
    conversion.note_bytes = 1;
    let path = conversion.output.journal.clone();
    let count = conversion.tensors.all.len();
    let fingerprint = fingerprint(&conversion.plan, &conversion.tensors);
    let mut most = 0;
    let go_on = AtomicBool::new(false);
    conversion
        .add_folder(&checkpoint(), &go_on, &mut |_, _, _| {
            let journal = Journal::load(path.clone(), fingerprint, count)
                .unwrap()
                .ok();
            let done = journal.map_or(0, |j| (0..count).filter(|&t| j.is_done(t)).count());
            assert!(done >= most);
            most = done;
        })
        .unwrap();
    // A kill would have lost one tensor at most.
    assert!(most + 2 >= count, "{most} of {count}");
}
