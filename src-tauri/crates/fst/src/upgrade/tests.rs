#![allow(clippy::unwrap_used, clippy::expect_used)]
//! An upgrade in place that ends at any step, in any way, is never opened as a model before it is whole, and the next run makes the very file
//! an undisturbed one makes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use fastar_testkit::{Checkpoint, Original, original_checkpoint, packed_record, row_record};
use twox_hash::xxhash3_64::Hasher;

use super::disk::{Disk, Real};
use super::in_place;
use crate::format::{Entry, Metadata};
use crate::read::Container;
use crate::write::{Contents, Plan};
use crate::{Error, Result};

/// What becomes of what was written but not yet on the disk when the power goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// It arrives: the program was killed, not the machine.
    Nothing,
    Everything,
    EverySecond,
    /// The step itself is half done.
    Torn,
}

/// A disk that ends after some steps.
struct Dying {
    real: Real,
    left: usize,
    loss: Loss,
    /// What each write or cut replaced since the file's last sync: offset, bytes before, length before.
    undo: Vec<(PathBuf, u64, Vec<u8>, u64)>,
}

impl Dying {
    fn new(left: usize, loss: Loss) -> Self {
        Self {
            real: Real::default(),
            left,
            loss,
            undo: Vec::new(),
        }
    }

    fn dead() -> Error {
        Error::Original {
            message: "the power went".into(),
        }
    }

    /// One step nearer to the end.
    fn step(&mut self) -> Result<()> {
        if self.left > 0 {
            self.left -= 1;
            return Ok(());
        }
        let undo = std::mem::take(&mut self.undo);
        for (i, (path, at, before, length)) in undo.into_iter().enumerate().rev() {
            let lost = match self.loss {
                Loss::Nothing | Loss::Torn => false,
                Loss::Everything => true,
                Loss::EverySecond => i % 2 == 0,
            };
            if lost && path.exists() {
                self.real.write(&path, at, &before)?;
                self.real.set_length(&path, length)?;
            }
        }
        Err(Self::dead())
    }

    fn remember(&mut self, path: &Path, at: u64, bytes: usize) {
        let content = fs::read(path).unwrap();
        let length = content.len() as u64;
        let start = (at as usize).min(content.len());
        let end = (at as usize + bytes).min(content.len());
        self.undo
            .push((path.to_owned(), at, content[start..end].to_vec(), length));
    }
}

impl Disk for Dying {
    fn create(&mut self, path: &Path) -> Result<()> {
        self.step()?;
        self.real.create(path)
    }
    fn write(&mut self, path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
        if self.left == 0 && self.loss == Loss::Torn {
            self.real.write(path, at, &bytes[..bytes.len() / 2])?;
        }
        self.step()?;
        self.remember(path, at, bytes.len());
        self.real.write(path, at, bytes)
    }
    fn sync(&mut self, path: &Path) -> Result<()> {
        self.step()?;
        // What counts as lasting is decided here; the machine's own disk need not be waited for.
        self.undo.retain(|(p, ..)| p != path);
        Ok(())
    }
    fn set_length(&mut self, path: &Path, length: u64) -> Result<()> {
        self.step()?;
        self.remember(path, length, usize::MAX / 2);
        self.real.set_length(path, length)
    }
    fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        self.step()?;
        self.real.rename(from, to)
    }
    fn remove(&mut self, path: &Path) -> Result<()> {
        self.step()?;
        self.undo.retain(|(p, ..)| p != path);
        self.real.remove(path)
    }
}

fn small() -> Original {
    let mut set = Original::of(&original_checkpoint(7, 2));
    // Sixteen records take many steps and show nothing that four do not.
    set.main.numbers[2] = 2;
    set.main.blocks.truncate(4);
    for tensor in &mut set.main.tensors {
        let rows = match tensor.key.0 {
            9 => 64 * 2,
            10 => 4,
            _ => continue,
        };
        tensor.shape[0] = 2;
        tensor.data.truncate(2 * rows);
    }
    for id in set.tid2eid.as_mut().unwrap().as_chunks_mut::<4>().0 {
        id[0] &= 1;
    }
    set
}

fn run(path: &Path, disk: &mut dyn Disk) -> Result<bool> {
    in_place::upgrade(path, disk, &mut |_, _| Ok(()))
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read(path).unwrap())
        })
        .collect()
}

/// Ends the upgrade of what `save` puts into a folder at every step, in every way, and lets the next runs finish it.
fn end_at_every_step(
    save: &(dyn Fn(&Path) -> PathBuf + Sync),
    expected: &BTreeMap<String, Vec<u8>>,
    steps_at_least: usize,
) {
    let folder = tempfile::tempdir().unwrap();
    let first = save(&folder.path().join("first"));
    let old = Container::open(&first).ok().map(|c| c.identity());
    let every_end = |loss: Loss| {
        let mut steps = 0;
        loop {
            let here = folder.path().join(format!("{loss:?}-{steps}"));
            let path = save(&here);
            let ended = run(&path, &mut Dying::new(steps, loss)).is_err();
            // A model as it was, a model that is whole, or none.
            match Container::open(&path) {
                Ok(container) if Some(container.identity()) == old => {}
                Ok(_) => assert!(
                    fs::read(&path).unwrap() == expected["model.fst"],
                    "{loss:?} {steps}"
                ),
                Err(error) => {
                    let error = error.to_string();
                    assert!(
                        error.contains("was interrupted; run `fastar upgrade"),
                        "{loss:?} {steps}: {error}"
                    );
                }
            }
            // The second run ends as well, a little later.
            let _ = run(&path, &mut Dying::new(3, loss));
            run(&path, &mut Dying::new(usize::MAX, loss)).unwrap();
            assert!(files(&here) == *expected, "{loss:?} {steps}");
            fs::remove_dir_all(&here).unwrap();
            if !ended {
                break;
            }
            steps += 1;
        }
        assert!(steps > steps_at_least, "{steps}");
    };
    std::thread::scope(|scope| {
        for loss in [
            Loss::Nothing,
            Loss::Everything,
            Loss::EverySecond,
            Loss::Torn,
        ] {
            let every_end = &every_end;
            scope.spawn(move || every_end(loss));
        }
    });
}

#[test]
fn an_end_at_any_step_leaves_what_the_next_run_finishes() {
    let set = small();
    let folder = tempfile::tempdir().unwrap();
    let whole = set.save(&folder.path().join("whole"));
    assert!(run(&whole, &mut Real::default()).unwrap());
    let expected = files(whole.parent().unwrap());
    assert_eq!(
        expected.keys().collect::<Vec<_>>(),
        ["model.fst", "tokenizer.json"]
    );
    Container::open(&whole)
        .unwrap()
        .verify(&mut |_, _| {})
        .unwrap();
    assert!(!run(&whole, &mut Real::default()).unwrap());
    end_at_every_step(&|here| set.save(here), &expected, 60);
}

/// Two layers of two experts: sixteen records take many steps and show nothing that four do not.
fn few_experts() -> Checkpoint {
    let mut checkpoint = original_checkpoint(7, 2);
    checkpoint.config["n_routed_experts"] = 2.into();
    checkpoint.tensors.retain(|name, _| {
        let expert = name.split(".ffn.experts.").nth(1);
        expert.is_none_or(|rest| rest.starts_with("0.") || rest.starts_with("1."))
    });
    for (name, (_, shape, data)) in &mut checkpoint.tensors {
        if name.ends_with("ffn.gate.weight") || name.ends_with("ffn.gate.bias") {
            data.truncate(data.len() / shape[0] * 2);
            shape[0] = 2;
        }
    }
    checkpoint
}

/// A container of version 3 as it was written before there were packets, with a tokenizer in it.
fn older(checkpoint: &Checkpoint, folder: &Path) -> PathBuf {
    let model = checkpoint.convert();
    let from = Container::open(&model.path()).unwrap();
    let (layers, experts) = from.expert_counts();
    let layout = from.expert_layout().in_rows().unwrap();
    let tensors = from.tensors().map(|(name, tensor)| Entry {
        name: name.to_owned(),
        dtype: tensor.dtype,
        shape: tensor.shape.to_vec(),
        offset: 0,
        bytes: tensor.bytes,
        checksum: 0,
    });
    let plan = Plan::new(Contents {
        config: from.config_text().to_vec(),
        tokenizer: Some(br#"{"model": {"vocab": {}}}"#.to_vec()),
        metadata: Metadata {
            layout,
            ..from.metadata().clone()
        },
        tensors: tensors.collect(),
        layers,
        experts,
    })
    .unwrap();
    let mut bytes = vec![0; plan.file_bytes() as usize];
    let mut put = |at: u64, part: &[u8]| bytes[at as usize..][..part.len()].copy_from_slice(part);
    put(plan.map().tokenizer.start, plan.tokenizer());
    let mut sums = Vec::new();
    for entry in plan.tensors() {
        let data = from.read(&entry.name).unwrap();
        put(entry.offset, &data);
        sums.push(Hasher::oneshot(&data));
    }
    let mut records = Vec::new();
    for number in 0..layers * experts {
        let record = row_record(checkpoint, number / experts, number % experts);
        put(plan.record(number), &record);
        records.push(Hasher::oneshot(&record));
    }
    let (header, index) = plan.index(&sums, &records);
    put(0, &header);
    put(header.len() as u64, &index);
    fs::create_dir_all(folder).unwrap();
    let path = folder.join("model.fst");
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn rows_of_version_3_become_packets_in_place_and_beside() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = few_experts();
    let path = older(&checkpoint, &folder.path().join("old"));
    let old = Container::open(&path).unwrap();
    assert_eq!(old.expert_layout().id, "row-major");
    old.verify(&mut |_, _| {}).unwrap();
    let go_on = AtomicBool::new(false);
    let out = folder.path().join("new.fst");
    assert!(super::upgrade(&path, Some(&out), &go_on, &mut |_, _| {}).unwrap());
    let in_place = older(&checkpoint, &folder.path().join("in_place"));
    assert!(super::upgrade(&in_place, None, &go_on, &mut |_, _| {}).unwrap());
    // Nothing is left beside it.
    assert_eq!(files(in_place.parent().unwrap()).len(), 1);
    for path in [&out, &in_place] {
        let new = Container::open(path).unwrap();
        new.verify(&mut |_, _| {}).unwrap();
        assert_eq!(new.expert_layout().id, "fp4-packets");
        let (layers, experts) = new.expert_counts();
        assert_eq!((layers, experts), old.expert_counts());
        for (layer, expert) in (0..layers).flat_map(|l| (0..experts).map(move |e| (l, e))) {
            let record = new.expert(layer, expert).unwrap();
            assert!(record == packed_record(&checkpoint, layer, expert));
        }
        assert_eq!(new.tensors().count(), old.tensors().count());
        for (name, tensor) in old.tensors() {
            let there = new.tensor(name).unwrap();
            assert_eq!((there.dtype, there.shape), (tensor.dtype, tensor.shape));
            assert!(new.read(name).unwrap() == old.read(name).unwrap(), "{name}");
        }
        assert_eq!(
            new.tokenizer().unwrap().unwrap()[..],
            br#"{"model": {"vocab": {}}}"#[..]
        );
        assert_eq!(new.config_text(), old.config_text());
        let (new, old) = (new.metadata(), old.metadata());
        assert_eq!((&new.creator, &new.source), (&old.creator, &old.source));
        assert_eq!((new.effort, new.indexer), (old.effort, old.indexer));
        // What is as it should be stays as it is.
        let before = fs::read(path).unwrap();
        assert!(!super::upgrade(path, None, &go_on, &mut |_, _| {}).unwrap());
        assert!(fs::read(path).unwrap() == before);
    }
}

#[test]
fn rows_of_version_3_survive_an_end_at_any_step() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = {
        let path = older(&few_experts(), &folder.path().join("old"));
        fs::read(path).unwrap()
    };
    let save = |here: &Path| {
        fs::create_dir_all(here).unwrap();
        let path = here.join("model.fst");
        fs::write(&path, &bytes).unwrap();
        path
    };
    let whole = save(&folder.path().join("whole"));
    assert!(run(&whole, &mut Real::default()).unwrap());
    end_at_every_step(&save, &files(whole.parent().unwrap()), 20);
}

/// Changes the plan of a journal, and its checksum with it.
fn replan(journal: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let mut bytes = fs::read(journal).unwrap();
    let length = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) as usize;
    let mut plan: serde_json::Value = serde_json::from_slice(&bytes[24..24 + length]).unwrap();
    // Compact, so that there is room for a change: it stays as long as it was, and all else keeps its place.
    change(&mut plan);
    let mut text = plan.to_string().into_bytes();
    assert!(text.len() <= length);
    text.resize(length, b' ');
    bytes[16..24].copy_from_slice(&Hasher::oneshot(&text).to_le_bytes());
    bytes[24..24 + length].copy_from_slice(&text);
    fs::write(journal, bytes).unwrap();
}

#[test]
fn what_an_earlier_version_began_goes_on_to_rows() {
    let checkpoint = original_checkpoint(7, 2);
    let folder = tempfile::tempdir().unwrap();
    let path = Original::of(&checkpoint).save(folder.path());
    // The journal is there and the model is marked; no record is replaced.
    run(&path, &mut Dying::new(7, Loss::Nothing)).unwrap_err();
    Container::open(&path).err().unwrap();
    // What such a version wrote: another mark, and a plan that says nothing of layouts.
    let journal = folder.path().join("model.fst.upgrade");
    replan(&journal, |plan| {
        for field in ["metadata", "checksums", "tokenizer_at"] {
            plan.as_object_mut().unwrap().remove(field).unwrap();
        }
        for tensor in plan["tensors"].as_array_mut().unwrap() {
            tensor.as_object_mut().unwrap().remove("checksum").unwrap();
        }
    });
    let mut bytes = fs::read(&journal).unwrap();
    bytes[..8].copy_from_slice(b"FSTUPGR\0");
    fs::write(&journal, bytes).unwrap();
    assert!(run(&path, &mut Real::default()).unwrap());
    let rows = Container::open(&path).unwrap();
    assert_eq!(rows.expert_layout().id, "row-major");
    rows.verify(&mut |_, _| {}).unwrap();
    let records = |container: &Container, of: fn(&Checkpoint, usize, usize) -> Vec<u8>| {
        let (layers, experts) = container.expert_counts();
        for (layer, expert) in (0..layers).flat_map(|l| (0..experts).map(move |e| (l, e))) {
            assert!(container.expert(layer, expert).unwrap() == of(&checkpoint, layer, expert));
        }
    };
    records(&rows, row_record);
    drop(rows);
    // The next one makes packets of it, and knows the index at the end.
    assert!(run(&path, &mut Real::default()).unwrap());
    let packets = Container::open(&path).unwrap();
    packets.verify(&mut |_, _| {}).unwrap();
    assert_eq!(packets.exact_positions(), Some(2048));
    records(&packets, packed_record);
}

#[test]
fn damage_is_found_before_it_would_be_sealed_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = older(&few_experts(), folder.path());
    let good = fs::read(&path).unwrap();
    let (record, tensor) = {
        let container = Container::open(&path).unwrap();
        let dense = container.dense_place("layers.0.attn.wkv.weight").unwrap();
        (
            container.records().offset(0, 1) as usize,
            dense.offset as usize,
        )
    };
    for (at, name) in [
        (record, "expert 1 of layer 0"),
        (tensor, "layers.0.attn.wkv"),
    ] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, &bad).unwrap();
        let error = run(&path, &mut Real::default()).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        assert!(fs::read(&path).unwrap() == bad, "a byte was changed");
        assert_eq!(files(folder.path()).len(), 1);

        // Damage that comes while the upgrade goes on.
        fs::write(&path, &good).unwrap();
        let cancel = AtomicBool::new(false);
        super::upgrade(&path, None, &cancel, &mut |done, _| {
            cancel.store(done > 0, std::sync::atomic::Ordering::Relaxed);
        })
        .unwrap_err();
        let mut begun = fs::read(&path).unwrap();
        begun[at] ^= 1;
        fs::write(&path, &begun).unwrap();
        for _ in 0..2 {
            let error = run(&path, &mut Real::default()).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        fs::remove_file(folder.path().join("model.fst.upgrade")).unwrap();
    }
}

#[test]
fn both_ways_give_the_same_weights() {
    let set = small();
    let folder = tempfile::tempdir().unwrap();
    let path = set.save(folder.path());
    let out = folder.path().join("new.fst");
    let cancel = AtomicBool::new(false);
    assert!(super::upgrade(&path, Some(&out), &cancel, &mut |_, _| {}).unwrap());
    let old = Container::open(&path).unwrap();
    let new = Container::open(&out).unwrap();
    new.verify(&mut |_, _| {}).unwrap();
    let copy = folder.path().join("copy");
    let in_place = set.save(&copy);
    assert!(super::upgrade(&in_place, None, &cancel, &mut |_, _| {}).unwrap());
    let in_place = Container::open(&in_place).unwrap();
    assert_eq!(in_place.exact_positions(), Some(2048));
    for (name, tensor) in old.tensors() {
        for upgraded in [&new, &in_place] {
            let there = upgraded.tensor(name).unwrap();
            assert_eq!((there.dtype, there.shape), (tensor.dtype, tensor.shape));
            assert_eq!(upgraded.read(name).unwrap(), old.read(name).unwrap());
        }
    }
    let checkpoint = original_checkpoint(7, 2);
    for (layer, expert) in [(0, 0), (0, 1)] {
        let record = new.expert(layer, expert).unwrap();
        assert_eq!(record, in_place.expert(layer, expert).unwrap());
        assert!(record == packed_record(&checkpoint, layer, expert));
    }
    assert_eq!(new.expert_layout().id, "fp4-packets");
    assert_eq!(new.config_text(), in_place.config_text());
    assert_eq!(new.tokenizer().unwrap(), in_place.tokenizer().unwrap());
}

#[test]
fn what_can_be_wrong_is_found_before_a_byte_is_changed() {
    let mut set = small();
    set.main.blocks[3].fill(0);
    let folder = tempfile::tempdir().unwrap();
    let path = set.save(folder.path());
    let before = files(folder.path());
    let error = run(&path, &mut Real::default()).unwrap_err().to_string();
    assert!(error.contains("expert 1 of layer 1"), "{error}");
    assert!(files(folder.path()) == before);

    let path = small().save(folder.path());
    fs::remove_file(folder.path().join("model.fst.hc")).unwrap();
    let before = files(folder.path());
    run(&path, &mut Real::default()).unwrap_err();
    assert!(files(folder.path()) == before);
}

/// A folder that somebody else has made: nothing in it leads out of it.
#[cfg(unix)]
#[test]
fn the_upgrade_of_a_stranger_cannot_reach_other_files() {
    use std::os::unix::fs::symlink;
    type Trap = fn(&Path, &Path);
    let begun = |folder: &Path| {
        let path = small().save(folder);
        // Records are done and nothing of a sidecar is moved.
        run(&path, &mut Dying::new(7, Loss::Nothing)).unwrap_err();
        path
    };
    let traps: [(&str, bool, Trap); 6] = [
        ("the journal's copy", false, |folder, victim| {
            symlink(victim, folder.join("model.fst.upgrade.new")).unwrap();
        }),
        ("the journal", false, |folder, victim| {
            symlink(victim, folder.join("model.fst.upgrade")).unwrap();
        }),
        ("a journal begun", true, |folder, victim| {
            let journal = folder.join("model.fst.upgrade");
            fs::rename(journal, victim).unwrap();
            symlink(victim, folder.join("model.fst.upgrade")).unwrap();
        }),
        ("a sidecar", true, |folder, victim| {
            let sidecar = folder.join("model.fst.hc");
            fs::rename(&sidecar, victim).unwrap();
            symlink(victim, sidecar).unwrap();
        }),
        ("a sidecar's name", true, |folder, victim| {
            fs::copy(folder.join("model.fst.hc"), victim).unwrap();
            fs::create_dir(folder.join("model.fstx")).unwrap();
            replan(&folder.join("model.fst.upgrade"), |plan| {
                for step in plan["moves"].as_array_mut().unwrap() {
                    if step["sidecar"] == ".hc" {
                        step["sidecar"] = "x/../../v".into();
                    }
                }
                // Shorter by more than that.
                plan["header"].as_array_mut().unwrap().clear();
            });
        }),
        ("numbers that cannot be", true, |folder, _| {
            replan(&folder.join("model.fst.upgrade"), |plan| {
                plan["layers"] = u64::MAX.into();
                plan["header"].as_array_mut().unwrap().clear();
            });
        }),
    ];
    for (what, is_begun, trap) in traps {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("models");
        fs::create_dir(&folder).unwrap();
        let path = match is_begun {
            true => begun(&folder),
            false => small().save(&folder),
        };
        let victim = home.path().join("v");
        fs::write(&victim, "all my chats").unwrap();
        trap(&folder, &victim);
        let before = fs::read(&victim).unwrap();
        let ended = run(&path, &mut Real::default());
        assert!(fs::read(&victim).unwrap() == before, "{what}: {ended:?}");
        // What is to be written anew takes the place of a link.
        assert_eq!(ended.is_ok(), !is_begun, "{what}: {ended:?}");
    }
}

#[test]
fn a_stop_waits_for_the_next_run_and_a_lost_journal_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = small().save(folder.path());
    let cancel = AtomicBool::new(false);
    let error = super::upgrade(&path, None, &cancel, &mut |done, _| {
        if done > 0 {
            cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    })
    .unwrap_err()
    .to_string();
    assert_eq!(error, Error::Cancelled.to_string());
    let journal = folder.path().join("model.fst.upgrade");
    let kept = fs::read(&journal).unwrap();
    fs::remove_file(&journal).unwrap();
    let go_on = || super::upgrade(&path, None, &AtomicBool::new(false), &mut |_, _| {});
    let error = go_on().unwrap_err().to_string();
    assert!(error.contains("model.fst.upgrade is missing"), "{error}");
    fs::write(&journal, kept).unwrap();
    fs::rename(
        folder.path().join("tokenizer.json"),
        folder.path().join("away.json"),
    )
    .unwrap();
    let error = go_on().unwrap_err().to_string();
    assert!(
        error.contains("tokenizer.json was changed or removed"),
        "{error}"
    );
    fs::rename(
        folder.path().join("away.json"),
        folder.path().join("tokenizer.json"),
    )
    .unwrap();
    assert!(go_on().unwrap());
    Container::open(&path).unwrap();
}
