#![allow(clippy::unwrap_used, clippy::expect_used)]
//! An upgrade in place that ends at any step, in any way, is never opened as a model before it is whole, and the next run makes the very file
//! an undisturbed one makes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use fastar_testkit::{Original, original_checkpoint};

use super::disk::{Disk, Real};
use super::in_place;
use crate::read::Container;
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

#[test]
fn an_end_at_any_step_leaves_what_the_next_run_finishes() {
    let set = small();
    let folder = tempfile::tempdir().unwrap();
    let whole = set.save(&folder.path().join("whole"));
    let old = Container::open(&whole).unwrap().identity();
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

    let every_end = |loss: Loss| {
        let mut steps = 0;
        loop {
            let here = folder.path().join(format!("{loss:?}-{steps}"));
            let path = set.save(&here);
            let ended = run(&path, &mut Dying::new(steps, loss)).is_err();
            // A model as it was, a model that is whole, or none.
            match Container::open(&path) {
                Ok(container) if container.version() == 2 => {
                    assert_eq!(container.identity(), old, "{loss:?} {steps}");
                }
                Ok(_) => assert_eq!(
                    fs::read(&path).unwrap(),
                    expected["model.fst"],
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
            assert!(files(&here) == expected, "{loss:?} {steps}");
            fs::remove_dir_all(&here).unwrap();
            if !ended {
                break;
            }
            steps += 1;
        }
        assert!(steps > 60, "{steps}");
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
            assert_eq!(
                (there.dtype, there.shape, there.data),
                (tensor.dtype, tensor.shape, tensor.data)
            );
        }
    }
    let checkpoint = original_checkpoint(7, 2);
    for (layer, expert) in [(0, 0), (0, 1)] {
        let record = new.expert(layer, expert).unwrap();
        assert_eq!(record, in_place.expert(layer, expert).unwrap());
        // By the checkpoint's own bytes.
        let expected: Vec<u8> = ["w1", "w3", "w2"]
            .iter()
            .flat_map(|part| ["weight", "scale"].map(|what| format!("{part}.{what}")))
            .flat_map(|part| {
                checkpoint.tensors[&format!("layers.{layer}.ffn.experts.{expert}.{part}")]
                    .2
                    .clone()
            })
            .collect();
        assert_eq!(record, expected);
    }
    assert_eq!(new.config_text(), in_place.config_text());
    assert_eq!(new.tokenizer(), in_place.tokenizer());
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
