//! A conversion may be stopped, killed or fed in any order: what is done stays done, and the result is the same to the byte.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::Folder;
use fastar_fst::{Checkpoint, Container, Conversion, Error, Start, convert, discard_unfinished};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

static GO_ON: AtomicBool = AtomicBool::new(false);

fn open(folder: &Folder) -> Conversion {
    Conversion::open(Checkpoint::open(&folder.path).unwrap(), &folder.out()).unwrap()
}

fn add(conversion: &mut Conversion, folder: &Folder, shard: &str) {
    conversion
        .add(shard, &folder.path.join(shard), &GO_ON, &mut |_, _| {})
        .unwrap();
}

fn finish(conversion: Conversion) -> fastar_fst::Result<()> {
    conversion.finish(&GO_ON, &mut |_, _| {})
}

/// What an undisturbed conversion of the folder makes.
fn undisturbed(folder: &Folder) -> Vec<u8> {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("undisturbed.fst");
    convert(&folder.path, &out, &mut |_, _| {}).unwrap();
    fs::read(out).unwrap()
}

fn partial(folder: &Folder) -> PathBuf {
    folder.out().with_file_name("out.fst.partial")
}

fn journal(folder: &Folder) -> PathBuf {
    folder.out().with_file_name("out.fst.partial.state")
}

fn assert_ended_as(folder: &Folder, expected: &[u8]) {
    assert!(fs::read(folder.out()).unwrap() == expected);
    assert_only_the_container(folder);
}

fn assert_only_the_container(folder: &Folder) {
    let mut names: Vec<_> = fs::read_dir(folder.out().parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["checkpoint", "out.fst"]);
}

/// Stops a conversion once `calls` pieces were copied.
fn stopped(folder: &Folder, calls: usize) -> Conversion {
    let mut conversion = open(folder);
    let cancel = AtomicBool::new(false);
    let mut seen = 0;
    let error = conversion
        .add_folder(&folder.path, &cancel, &mut |_, _, _| {
            seen += 1;
            cancel.store(seen >= calls, Ordering::Relaxed);
        })
        .unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    conversion
}

#[test]
fn shards_may_come_in_any_order_and_experts_may_straddle_them() {
    // Tensors go round the three shards, so that every expert and every pair of weights and scales lies in two or three of them.
    let folder = Folder::like("c_fp8_fp4");
    let names = folder.write_sharded();
    let expected = undisturbed(&folder);
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut conversion = open(&folder);
        assert_eq!(conversion.missing(), names);
        assert_eq!(conversion.file_bytes(), expected.len() as u64);
        for (left, shard) in order.into_iter().enumerate() {
            assert_eq!(conversion.missing().len(), 3 - left);
            add(&mut conversion, &folder, &names[shard]);
            assert!(!conversion.missing().contains(&names[shard].as_str()));
        }
        assert_eq!(conversion.bytes_done(), conversion.bytes());
        finish(conversion).unwrap();
        assert!(fs::read(folder.out()).unwrap() == expected, "{order:?}");
        assert_only_the_container(&folder);
        fs::remove_file(folder.out()).unwrap();
    }
}

#[test]
fn a_shard_may_be_deleted_once_it_is_added_and_is_never_asked_for_again() {
    let folder = Folder::like("c_fp8_fp4");
    let names = folder.write_sharded();
    let expected = undisturbed(&folder);
    let plan = Checkpoint::open(&folder.path).unwrap();
    for (index, name) in names.iter().enumerate() {
        // A new process each time: all it has is the headers.
        let mut conversion = Conversion::open(plan.clone(), &folder.out()).unwrap();
        assert_eq!(conversion.missing(), names[index..]);
        if index > 0 {
            assert!(matches!(conversion.start(), Start::Resumed { bytes_done } if *bytes_done > 0));
        }
        add(&mut conversion, &folder, name);
        fs::remove_file(folder.path.join(name)).unwrap();
        // Twice is once.
        add(&mut conversion, &folder, name);
    }
    finish(Conversion::open(plan, &folder.out()).unwrap()).unwrap();
    assert_ended_as(&folder, &expected);
}

#[test]
fn nothing_is_finished_while_a_shard_is_missing() {
    let folder = Folder::like("c_fp8_fp4");
    let names = folder.write_sharded();
    let mut conversion = open(&folder);
    add(&mut conversion, &folder, &names[1]);
    let error = finish(conversion).unwrap_err().to_string();
    assert!(
        error.contains("2 of its shards") && error.contains(&names[0]),
        "{error}"
    );
    assert!(!folder.out().exists());
}

#[test]
fn a_stopped_conversion_goes_on_at_the_tensor_where_it_was() {
    let folder = Folder::written();
    let expected = undisturbed(&folder);
    let done = stopped(&folder, 40).bytes_done();
    assert!(done > 0);
    assert!(!folder.out().exists());
    let mut conversion = open(&folder);
    assert_eq!(*conversion.start(), Start::Resumed { bytes_done: done });
    let mut first = None;
    conversion
        .add_folder(&folder.path, &GO_ON, &mut |_, done, _| {
            first.get_or_insert(done);
        })
        .unwrap();
    assert_eq!(first, Some(done));
    finish(conversion).unwrap();
    assert_ended_as(&folder, &expected);
}

#[test]
fn a_kill_at_any_moment_and_halves_in_any_order_make_the_same_packets() {
    // Weights and scales of a matrix are in different shards: the second one completes what the first has left.
    let folder = Folder::like("c_fp8_fp4");
    let names = folder.write_sharded();
    let expected = undisturbed(&folder);
    let is_straddled = |part: &str| {
        let shard = |what: &str| {
            let name = format!("layers.0.ffn.experts.0.{part}.{what}");
            folder.tensors.keys().position(|n| *n == name).unwrap() % 3
        };
        shard("weight") != shard("scale")
    };
    assert!(["w1", "w2", "w3"].into_iter().all(is_straddled));
    let order = [&names[1], &names[2], &names[0]];
    // What is on the disk when the program is killed: before each step, in each shard. A note of the work within a shard is not made here.
    let mut moments = Vec::new();
    let mut conversion = open(&folder);
    for name in order {
        conversion
            .add(name, &folder.path.join(name), &GO_ON, &mut |_, _| {
                let seen = [partial(&folder), journal(&folder)].map(|path| fs::read(path).unwrap());
                moments.push(seen);
            })
            .unwrap();
    }
    drop(conversion);
    assert!(moments.len() > 100, "{}", moments.len());
    for (number, [file, noted]) in moments.iter().enumerate().step_by(7) {
        fs::write(partial(&folder), file).unwrap();
        fs::write(journal(&folder), noted).unwrap();
        let mut conversion = open(&folder);
        assert!(matches!(conversion.start(), Start::Resumed { .. }));
        for name in order {
            add(&mut conversion, &folder, name);
        }
        finish(conversion).unwrap();
        assert!(fs::read(folder.out()).unwrap() == expected, "{number}");
        fs::remove_file(folder.out()).unwrap();
    }
}

#[test]
fn a_stop_while_reading_back_loses_nothing() {
    let folder = Folder::written();
    let mut conversion = open(&folder);
    conversion
        .add_folder(&folder.path, &GO_ON, &mut |_, _, _| {})
        .unwrap();
    let error = conversion
        .finish(&AtomicBool::new(true), &mut |_, _| {})
        .unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert!(!folder.out().exists());
    let conversion = open(&folder);
    assert_eq!(conversion.missing(), Vec::<&str>::new());
    finish(conversion).unwrap();
    Container::open(&folder.out()).unwrap();
    assert_only_the_container(&folder);
}

#[test]
fn what_cannot_be_gone_on_with_is_started_over_and_said() {
    type Damage = fn(&Folder);
    let damages: [(&str, Damage); 6] = [
        ("has no record", |f| fs::remove_file(journal(f)).unwrap()),
        ("damaged record", |f| {
            let mut bytes = fs::read(journal(f)).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(journal(f), bytes).unwrap();
        }),
        ("damaged record", |f| fs::write(journal(f), b"").unwrap()),
        ("length", |f| {
            let file = fs::OpenOptions::new().write(true).open(partial(f)).unwrap();
            file.set_len(4096).unwrap();
        }),
        ("another checkpoint", |f| {
            let mut config = f.config.clone();
            config["transformers_version"] = "9".into();
            fs::write(f.path.join("config.json"), config.to_string()).unwrap();
        }),
        ("another checkpoint", |f| {
            // The same headers, other weights.
            let shard = fs::File::options()
                .append(true)
                .open(f.path.join("model.safetensors"))
                .unwrap();
            shard
                .set_modified(std::time::SystemTime::UNIX_EPOCH)
                .unwrap();
        }),
    ];
    for (says, damage) in damages {
        let folder = Folder::written();
        drop(stopped(&folder, 40));
        damage(&folder);
        let conversion = open(&folder);
        let Start::Over { reason } = conversion.start() else {
            panic!("{says}: {:?}", conversion.start());
        };
        assert!(
            reason.starts_with("Started over") && reason.contains(says),
            "{reason}"
        );
        assert_eq!(conversion.bytes_done(), 0);
        drop(conversion);
        let warnings = folder.convert().unwrap();
        assert!(
            warnings.iter().all(|w| !w.contains("Started over")),
            "the reason is gone: {warnings:?}"
        );
        assert!(
            fs::read(folder.out()).unwrap() == undisturbed(&folder),
            "{says}"
        );
        assert_only_the_container(&folder);
    }
}

#[test]
fn a_journal_without_its_file_is_not_believed() {
    let folder = Folder::written();
    drop(stopped(&folder, 40));
    fs::remove_file(partial(&folder)).unwrap();
    let conversion = open(&folder);
    assert_eq!(
        (conversion.start(), conversion.bytes_done()),
        (&Start::New, 0)
    );
    drop(conversion);
    folder.convert().unwrap();
    assert!(fs::read(folder.out()).unwrap() == undisturbed(&folder));
}

#[test]
fn a_kill_after_the_last_rename_is_not_a_reason_to_convert_again() {
    let folder = Folder::written();
    let mut conversion = open(&folder);
    conversion
        .add_folder(&folder.path, &GO_ON, &mut |_, _, _| {})
        .unwrap();
    // As it is on the disk between the rename and the removal of the journal.
    let link = journal(&folder).with_file_name("kept");
    let mut kept = Vec::new();
    conversion
        .finish(&GO_ON, &mut |_, _| {
            if kept.is_empty() {
                kept = fs::read(journal(&folder)).unwrap();
            }
        })
        .unwrap();
    assert!(!link.exists());
    let identity = Container::open(&folder.out()).unwrap().identity();
    kept[16..24].copy_from_slice(&identity.to_le_bytes());
    let end = kept.len() - 8;
    let sum = twox_hash::xxhash3_64::Hasher::oneshot(&kept[..end]);
    kept[end..].copy_from_slice(&sum.to_le_bytes());
    fs::write(journal(&folder), kept).unwrap();
    let conversion = open(&folder);
    assert_eq!(*conversion.start(), Start::Finished);
    assert_eq!(conversion.missing(), Vec::<&str>::new());
    assert_eq!(conversion.bytes_done(), conversion.bytes());
    finish(conversion).unwrap();
    assert_only_the_container(&folder);
}

#[test]
fn bytes_that_changed_on_the_disk_are_found_before_the_file_gets_its_name() {
    let folder = Folder::like("c_fp8_fp4");
    folder.write_sharded();
    let expected = undisturbed(&folder);
    // Somewhere in a dense tensor and somewhere in the last record.
    let wkv = Container::open(&{
        let out = folder.out();
        fs::write(&out, &expected).unwrap();
        out
    })
    .map(|c| c.dense_place("layers.1.attn.wkv.weight").unwrap().offset as usize)
    .unwrap();
    fs::remove_file(folder.out()).unwrap();
    for (at, name) in [
        (wkv, "layers.1.attn.wkv.weight"),
        (expected.len() - 8192, "layers.2.ffn.experts.3.w1.weight"),
    ] {
        let mut conversion = open(&folder);
        conversion
            .add_folder(&folder.path, &GO_ON, &mut |_, _, _| {})
            .unwrap();
        let mut bytes = fs::read(partial(&folder)).unwrap();
        bytes[at] ^= 4;
        fs::write(partial(&folder), bytes).unwrap();
        let error = finish(conversion).unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains("does not give back"),
            "{error}"
        );
        assert!(!folder.out().exists());
        // Only what holds that tensor is asked for again.
        let conversion = open(&folder);
        assert_eq!(conversion.missing().len(), 1, "{:?}", conversion.missing());
        drop(conversion);
        folder.convert().unwrap();
        assert!(fs::read(folder.out()).unwrap() == expected);
        fs::remove_file(folder.out()).unwrap();
    }
}

#[test]
fn a_file_that_is_not_the_planned_shard_is_refused() {
    let folder = Folder::like("c_fp8_fp4");
    let names = folder.write_sharded();
    let mut conversion = open(&folder);
    let mut add = |shard: &str, path: &Path| {
        conversion
            .add(shard, path, &GO_ON, &mut |_, _| {})
            .unwrap_err()
            .to_string()
    };
    let error = add(&names[0], &folder.path.join(&names[1]));
    assert!(error.contains("bytes and"), "{error}");
    let error = add(
        "model-00004-of-00003.safetensors",
        &folder.path.join(&names[0]),
    );
    assert!(error.contains("no shard"), "{error}");
    assert!(add(&names[0], &folder.path.join("nothing")).contains("Could not open"));
    let mut same_length = fs::read(folder.path.join(&names[0])).unwrap();
    same_length[20] ^= 1;
    let other = folder.path.join("other");
    fs::write(&other, same_length).unwrap();
    let error = add(&names[0], &other);
    assert!(error.contains("header is another"), "{error}");
}

#[test]
fn a_shard_that_shrinks_in_the_middle_is_an_error_and_what_was_read_is_kept() {
    let folder = Folder::written();
    let expected = undisturbed(&folder);
    let shard = folder.path.join("model.safetensors");
    let whole = fs::read(&shard).unwrap();
    let modified = fs::metadata(&shard).unwrap().modified().unwrap();
    let mut calls = 0;
    let error = convert(&folder.path, &folder.out(), &mut |_, _| {
        calls += 1;
        if calls == 40 {
            let file = fs::OpenOptions::new().write(true).open(&shard).unwrap();
            file.set_len(9000).unwrap();
        }
    })
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("Could not read") && error.contains("model.safetensors"),
        "{error}"
    );
    assert!(!folder.out().exists());
    fs::write(&shard, whole).unwrap();
    fs::File::options()
        .append(true)
        .open(&shard)
        .unwrap()
        .set_modified(modified)
        .unwrap();
    let conversion = open(&folder);
    assert!(matches!(conversion.start(), Start::Resumed { bytes_done } if *bytes_done > 0));
    drop(conversion);
    folder.convert().unwrap();
    assert!(fs::read(folder.out()).unwrap() == expected);
}

#[test]
fn a_panic_in_the_middle_is_as_good_as_a_kill() {
    let folder = Folder::written();
    let expected = undisturbed(&folder);
    let caught = std::panic::catch_unwind(|| {
        let mut calls = 0;
        convert(&folder.path, &folder.out(), &mut |_, _| {
            calls += 1;
            assert!(calls < 20, "on purpose");
        })
    });
    assert!(caught.is_err());
    assert!(!folder.out().exists());
    folder.convert().unwrap();
    assert_ended_as(&folder, &expected);
}

#[test]
fn before_it_is_finished_a_partial_file_is_no_container() {
    let folder = Folder::written();
    let mut seen = 0;
    convert(&folder.path, &folder.out(), &mut |_, _| {
        assert!(Container::open(&partial(&folder)).is_err());
        seen += 1;
        assert!(!folder.out().exists());
    })
    .unwrap();
    assert!(seen > 20);
}

#[test]
fn what_was_done_can_be_thrown_away() {
    let folder = Folder::written();
    assert!(!discard_unfinished(&folder.out()).unwrap());
    stopped(&folder, 40).discard().unwrap();
    folder.assert_nothing_left();
    drop(stopped(&folder, 40));
    assert!(discard_unfinished(&folder.out()).unwrap());
    folder.assert_nothing_left();
}

#[test]
fn a_second_conversion_to_the_same_file_is_refused_and_disturbs_nothing() {
    let folder = Folder::written();
    let first = stopped(&folder, 40);
    let error = folder.convert().unwrap_err().to_string();
    assert!(error.contains("another conversion"), "{error}");
    let error = discard_unfinished(&folder.out()).unwrap_err().to_string();
    assert!(error.contains("another conversion"), "{error}");
    drop(first);
    assert!(matches!(open(&folder).start(), Start::Resumed { .. }));
}

#[test]
fn a_later_version_goes_on_under_the_name_of_the_one_that_began() {
    let folder = Folder::written();
    let as_made_by = |creator: Option<&str>| {
        let mut checkpoint = Checkpoint::open(&folder.path).unwrap();
        checkpoint.creator = creator.map(str::to_owned);
        Conversion::open(checkpoint, &folder.out()).unwrap()
    };
    let mut conversion = as_made_by(Some("fastar 0.0.9"));
    let shard = conversion.missing()[0].to_owned();
    let (cancel, mut seen) = (AtomicBool::new(false), 0);
    let stopped = conversion.add(
        &shard,
        &folder.path.join(&shard),
        &cancel,
        &mut |done, _| {
            seen = done;
            cancel.store(done > 0, Ordering::Relaxed);
        },
    );
    assert!(matches!(stopped, Err(Error::Cancelled)) && seen > 0);
    drop(conversion);
    let mut conversion = as_made_by(Some("fastar 0.0.9"));
    assert!(
        matches!(conversion.start(), Start::Resumed { bytes_done } if *bytes_done > 0),
        "{:?}",
        conversion.start()
    );
    add(&mut conversion, &folder, &shard);
    finish(conversion).unwrap();
    assert_eq!(
        Container::open(&folder.out()).unwrap().inspect().creator,
        "fastar 0.0.9"
    );
}

#[test]
fn a_model_that_is_loaded_is_not_replaced_and_the_work_is_kept() {
    let folder = Folder::written();
    let expected = undisturbed(&folder);
    // Another container of the same name.
    let old = common::small_container();
    fs::write(folder.out(), &old).unwrap();
    let loaded = || {
        let container = Container::open(&folder.out()).unwrap();
        container.hold();
        container
    };
    // Loaded before the conversion began: nothing is begun.
    let held = loaded();
    let error = folder.convert().unwrap_err().to_string();
    assert!(
        error.ends_with("this FaStar has this model loaded. Close it, or give another name."),
        "{error}"
    );
    assert!(!partial(&folder).exists());
    drop(held);
    // Loaded while it ran: everything is kept, and the same again ends it.
    let mut conversion = open(&folder);
    conversion
        .add_folder(&folder.path, &GO_ON, &mut |_, _, _| {})
        .unwrap();
    let held = loaded();
    let error = finish(conversion).unwrap_err().to_string();
    assert!(
        error.ends_with("this FaStar has this model loaded. Close it and do the same again."),
        "{error}"
    );
    assert!(fs::read(folder.out()).unwrap() == old);
    drop(held);
    let conversion = open(&folder);
    assert_eq!(conversion.bytes_done(), conversion.bytes());
    finish(conversion).unwrap();
    assert_ended_as(&folder, &expected);
}
