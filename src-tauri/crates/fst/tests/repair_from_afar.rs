//! A container is mended from shards that are somewhere else: only the ranges that are needed are asked for, and nothing that comes is believed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::Folder;
use fastar_fst::{
    Checkpoint, Container, Damage, Depth, Error, Part, RemoteCheckpoint, Result, ShardHeader,
    TensorSource, repair, verify,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

static GO_ON: AtomicBool = AtomicBool::new(false);

fn damaged(path: &Path) -> Vec<Damage> {
    verify(path, Depth::Full, &GO_ON, &mut |_, _| {})
        .unwrap()
        .damaged
}

fn mend(path: &Path, damaged: &[Damage], source: &mut dyn TensorSource) -> Result<()> {
    repair(path, damaged, source, &GO_ON, &mut |_, _| {})
}

/// The smallest checkpoint in three shards, its container with a dense tensor and an expert damaged, and the container as it was.
struct Damaged {
    checkpoint: Checkpoint,
    shards: BTreeMap<String, Vec<u8>>,
    path: PathBuf,
    bytes: Vec<u8>,
    good: Vec<u8>,
    _folder: Folder,
}

const TENSOR: &str = "layers.0.attn.wkv.weight";

impl Damaged {
    fn new() -> Self {
        let folder = Folder::smallest();
        let names = folder.write_sharded();
        folder.convert().unwrap();
        let good = fs::read(folder.out()).unwrap();
        let container = Container::open(&folder.out()).unwrap();
        let places = [
            container.dense_place(TENSOR).unwrap().offset as usize,
            container.records().offset(1, 2) as usize,
        ];
        drop(container);
        let mut bytes = good.clone();
        for place in places {
            bytes[place] ^= 1;
        }
        fs::write(folder.out(), &bytes).unwrap();
        let checkpoint = Checkpoint {
            place: "acme/tiny".into(),
            ..Checkpoint::open(&folder.path).unwrap()
        };
        let shards = names
            .into_iter()
            .map(|name| (name.clone(), fs::read(folder.path.join(name)).unwrap()))
            .collect();
        Self {
            checkpoint,
            shards,
            path: folder.out(),
            bytes,
            good,
            _folder: folder,
        }
    }

    fn read(&self, shard: &str, range: Range<u64>) -> Vec<u8> {
        self.shards[shard][range.start as usize..range.end as usize].to_vec()
    }

    /// What the mending says when the bytes that come are changed like this.
    fn refused(&self, change: impl Fn(&str, Vec<u8>) -> io::Result<Vec<u8>>) -> String {
        let mut source = RemoteCheckpoint::new(self.checkpoint.clone(), |shard: &str, range| {
            change(shard, self.read(shard, range))
        })
        .unwrap();
        let error = mend(&self.path, &damaged(&self.path), &mut source).unwrap_err();
        assert!(
            fs::read(&self.path).unwrap() == self.bytes,
            "something was written"
        );
        error.to_string()
    }
}

/// Where a shard has a tensor, by the format's definition.
fn range_of(shard: &[u8], tensor: &str) -> Option<Range<u64>> {
    let header = u64::from_le_bytes(shard[..8].try_into().unwrap());
    let json: serde_json::Value = serde_json::from_slice(&shard[8..8 + header as usize]).unwrap();
    let offsets = &json.get(tensor)?["data_offsets"];
    let at = |i: usize| 8 + header + offsets[i].as_u64().unwrap();
    Some(at(0)..at(1))
}

#[test]
fn damaged_parts_are_mended_and_only_their_ranges_are_asked_for() {
    let model = Damaged::new();
    let found = damaged(&model.path);
    let parts: Vec<_> = found.iter().map(|damage| damage.part.clone()).collect();
    let expert = Part::Expert {
        layer: 1,
        expert: 2,
    };
    assert_eq!(parts, [Part::Tensor(TENSOR.into()), expert]);

    let asked = RefCell::new(Vec::new());
    let mut source = RemoteCheckpoint::new(
        model.checkpoint.clone(),
        |shard: &str, range: Range<u64>| {
            asked.borrow_mut().push((shard.to_owned(), range.clone()));
            Ok(model.read(shard, range))
        },
    )
    .unwrap();
    mend(&model.path, &found, &mut source).unwrap();
    assert!(fs::read(&model.path).unwrap() == model.good);

    let record = ["w1", "w3", "w2"].iter().flat_map(|matrix| {
        ["weight", "scale"].map(|kind| format!("layers.1.ffn.experts.2.{matrix}.{kind}"))
    });
    let expected: Vec<_> = [TENSOR.to_owned()]
        .into_iter()
        .chain(record)
        .map(|tensor| {
            model
                .shards
                .iter()
                .find_map(|(name, shard)| Some((name.clone(), range_of(shard, &tensor)?)))
                .unwrap()
        })
        .collect();
    assert_eq!(*asked.borrow(), expected);
}

#[test]
fn short_long_and_wrong_bytes_and_failures_leave_the_file_and_name_shard_and_tensor() {
    let model = Damaged::new();
    let shard = |tensor: &str| {
        let holds = |(_, shard): &(&String, &Vec<u8>)| range_of(shard, tensor).is_some();
        model.shards.iter().find(holds).unwrap().0
    };
    let fetched = format!(
        "Tensor {TENSOR:?} could not be fetched from {:?} of acme/tiny: ",
        shard(TENSOR)
    );
    let length = range_of(&model.shards[shard(TENSOR)], TENSOR).unwrap();
    let length = length.end - length.start;
    for (message, came) in [
        (
            model.refused(|_, mut piece| {
                piece.pop();
                Ok(piece)
            }),
            length - 1,
        ),
        (
            model.refused(|_, mut piece| {
                piece.push(0);
                Ok(piece)
            }),
            length + 1,
        ),
        (model.refused(|_, _| Ok(Vec::new())), 0),
    ] {
        assert!(message.starts_with(&fetched), "{message}");
        assert!(
            message.contains(&format!(": {came} bytes came for ")),
            "{message}"
        );
    }
    let failed = model.refused(|_, _| Err(io::Error::other("Nobody answers. Try again.")));
    assert_eq!(failed, format!("{fetched}Nobody answers. Try again."));
    let wrong = model.refused(|_, mut piece| {
        *piece.last_mut().unwrap() ^= 0x80;
        Ok(piece)
    });
    let what = format!("the tensor {TENSOR:?} is another in {:?}.", shard(TENSOR));
    assert!(wrong.contains(&what), "{wrong}");
}

#[test]
fn an_expert_with_wrong_bytes_in_one_of_its_shards_stays_as_it_was() {
    let model = Damaged::new();
    let found = damaged(&model.path);
    // The last of the six tensors of the record comes wrong, after five good ones.
    let last = "layers.1.ffn.experts.2.w2.scale";
    let mut source = RemoteCheckpoint::new(
        model.checkpoint.clone(),
        |shard: &str, range: Range<u64>| {
            let mut piece = model.read(shard, range.clone());
            if range_of(&model.shards[shard], last) == Some(range) {
                piece[0] ^= 1;
            }
            Ok(piece)
        },
    )
    .unwrap();
    let error = mend(&model.path, &found, &mut source)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(
            "the expert 2 of layer 1 is another in \"model-00001-of-00003.safetensors\" and "
        ),
        "{error}"
    );
    // The tensor before it was whole and is mended; the record has the bytes it had.
    assert_eq!(damaged(&model.path), found[1..]);
    let bytes = fs::read(&model.path).unwrap();
    let record = found[1].offset as usize;
    assert!(bytes[record..] == model.bytes[record..]);
}

#[test]
fn a_wish_to_stop_that_interrupts_the_reading_is_told_as_such() {
    let model = Damaged::new();
    let cancel = AtomicBool::new(false);
    let mut source = RemoteCheckpoint::new(model.checkpoint.clone(), |_: &str, _| {
        cancel.store(true, Ordering::Relaxed);
        Err(io::Error::other("interrupted"))
    })
    .unwrap();
    let error = repair(
        &model.path,
        &damaged(&model.path),
        &mut source,
        &cancel,
        &mut |_, _| {},
    )
    .unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert!(fs::read(&model.path).unwrap() == model.bytes);
}

#[test]
fn a_shard_that_is_not_needed_need_not_be_known() {
    let mut model = Damaged::new();
    let shard = model
        .shards
        .iter()
        .find(|(_, shard)| range_of(shard, TENSOR).is_some())
        .unwrap()
        .0
        .clone();
    model.checkpoint.shards.retain(|known| known.name == shard);
    let found = damaged(&model.path);
    let mut source = RemoteCheckpoint::new(model.checkpoint.clone(), |shard: &str, range| {
        Ok(model.read(shard, range))
    })
    .unwrap();
    mend(&model.path, &found[..1], &mut source).unwrap();
    assert_eq!(damaged(&model.path), found[1..]);
    let error = mend(&model.path, &found[1..], &mut source)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("it has no tensor \"layers.1.ffn.experts.2."),
        "{error}"
    );
}

#[test]
fn a_tensor_of_any_size_is_read_in_pieces_that_fit_into_memory() {
    let bytes = 40 << 20;
    let header = format!(
        r#"{{"head.weight":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{bytes}]}}}}"#,
        bytes / 4
    );
    let start = 8 + header.len() as u64;
    let checkpoint = Checkpoint {
        shards: vec![ShardHeader {
            name: "model.safetensors".into(),
            file_bytes: start + bytes,
            header: header.into_bytes(),
            version: None,
        }],
        ..Checkpoint::default()
    };
    let asked = RefCell::new(Vec::new());
    let mut source = RemoteCheckpoint::new(checkpoint, |_: &str, range: Range<u64>| {
        asked.borrow_mut().push(range.clone());
        Ok(vec![
            asked.borrow().len() as u8;
            (range.end - range.start) as usize
        ])
    })
    .unwrap();
    let mut came = Vec::new();
    source
        .read("head.weight", &mut |piece| {
            came.push((piece[0], piece.len()));
            Ok(())
        })
        .unwrap();
    let most = 16 << 20;
    let ends = [0, most, 2 * most, bytes].map(|end| start + end);
    let expected: Vec<_> = ends.windows(2).map(|ends| ends[0]..ends[1]).collect();
    assert_eq!(*asked.borrow(), expected);
    assert_eq!(came, [(1, 16 << 20), (2, 16 << 20), (3, 8 << 20)]);
}
