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

/// Makes the plan that versions had before there were packets.
fn in_rows(mut conversion: Conversion) -> Conversion {
    let mut selection = conversion.parts.selection;
    let rows = selection.layout.in_rows().unwrap();
    let tensors = conversion.plan.tensors().to_vec();
    let metadata = Metadata {
        layout: rows.clone(),
        ..conversion.plan.metadata().clone()
    };
    let config = fs::read(checkpoint().join(CONFIG)).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    let number = |field: &str| config[field].as_u64().unwrap() as usize;
    let plan = Plan::new(Contents {
        config: fs::read(checkpoint().join(CONFIG)).unwrap(),
        tokenizer: None,
        metadata,
        tensors,
        layers: number("num_hidden_layers"),
        experts: number("n_routed_experts"),
    })
    .unwrap();
    selection.layout = rows;
    conversion.parts = Parts::new(selection, &plan, &conversion.tensors);
    let fingerprint = fingerprint(&plan, &conversion.tensors);
    conversion.journal = Journal::new(
        conversion.output.journal.clone(),
        fingerprint,
        conversion.tensors.all.len(),
    );
    conversion.plan = plan;
    let partial = conversion.partial.take().unwrap();
    partial.start_over(conversion.file_bytes()).unwrap();
    conversion.partial = Some(partial);
    conversion.save().unwrap();
    conversion
}

#[test]
fn what_was_begun_in_rows_goes_on_in_rows_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let undisturbed = folder.path().join("undisturbed.fst");
    let mut conversion = in_rows(open(&undisturbed));
    add(&mut conversion).unwrap();
    finish(conversion).unwrap();
    let expected = fs::read(&undisturbed).unwrap();
    let layout = |path: &Path| {
        let container = crate::Container::open(path).unwrap();
        container.verify(&mut |_, _| {}).unwrap();
        container.expert_layout().id.clone()
    };
    assert_eq!(layout(&undisturbed), "row-major");

    let out = folder.path().join("m.fst");
    let mut conversion = in_rows(open(&out));
    let cancel = AtomicBool::new(false);
    let half = conversion.bytes() / 2;
    let stop = |_: &str, done, _| cancel.store(done > half, std::sync::atomic::Ordering::Relaxed);
    conversion
        .add_folder(&checkpoint(), &cancel, &mut { stop })
        .unwrap_err();
    let bytes_done = conversion.bytes_done();
    drop(conversion);
    let mut conversion = open(&out);
    assert_eq!(*conversion.start(), Start::Resumed { bytes_done });
    add(&mut conversion).unwrap();
    finish(conversion).unwrap();
    assert!(fs::read(&out).unwrap() == expected);

    // Without its file a journal of rows means nothing: the new conversion makes packets.
    let out = folder.path().join("n.fst");
    drop(in_rows(open(&out)));
    fs::remove_file(folder.path().join("n.fst.partial")).unwrap();
    let mut conversion = open(&out);
    assert_eq!(*conversion.start(), Start::New);
    add(&mut conversion).unwrap();
    finish(conversion).unwrap();
    assert_eq!(layout(&out), "fp4-packets");
}
