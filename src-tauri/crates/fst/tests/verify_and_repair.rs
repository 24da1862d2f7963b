//! Damage is found, named and mended, and nothing but the damaged part is ever written.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Folder, at, given, places, put};
use fastar_fst::{
    CheckpointFolder, Container, Damage, Depth, Error, Part, Report, Result, TensorSource, convert,
    repair, verify,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

static GO_ON: AtomicBool = AtomicBool::new(false);

fn check(path: &Path, depth: Depth) -> Report {
    verify(path, depth, &GO_ON, &mut |_, _| {}).unwrap()
}

/// The demo, which has a tokenizer, as a container.
fn demo() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("demo.fst");
    convert(&given("demo"), &path, &mut |_, _| {}).unwrap();
    let bytes = fs::read(&path).unwrap();
    (folder, path, bytes)
}

/// Where tokenizer.json ends in these bytes of a container.
fn tokenizer_end(container: &Container, bytes: &[u8]) -> usize {
    let text = container.tokenizer().unwrap().unwrap();
    let at = bytes.windows(text.len()).position(|part| part == &*text);
    at.unwrap() + text.len()
}

/// What is damaged, where it is, and its length.
fn parts(path: &Path) -> Vec<(Part, u64, u64)> {
    let container = Container::open(path).unwrap();
    let tokenizer = container.tokenizer().unwrap().unwrap().len();
    let at = tokenizer_end(&container, &fs::read(path).unwrap()) - tokenizer;
    let tensor = container.dense_place("layers.3.attn.wq_b.weight").unwrap();
    let record = container.expert(2, 5).unwrap();
    let expert = Part::Expert {
        layer: 2,
        expert: 5,
    };
    [
        (Part::Tokenizer, at as u64, tokenizer as u64),
        (
            Part::Tensor("layers.3.attn.wq_b.weight".into()),
            tensor.offset,
            tensor.bytes,
        ),
        (
            expert,
            container.records().offset(2, 5),
            record.len() as u64,
        ),
    ]
    .to_vec()
}

#[test]
fn a_whole_file_is_found_whole_and_every_byte_of_it_is_looked_at() {
    let (_folder, path, bytes) = demo();
    let mut seen = Vec::new();
    let report = verify(&path, Depth::Full, &GO_ON, &mut |done, all| {
        seen.push((done, all));
    })
    .unwrap();
    assert!(report.is_good(), "{report:?}");
    // All but header and index, which were looked at before.
    let (_, index_end) = places(&bytes);
    let container = Container::open(&path).unwrap();
    let expected = (bytes.len() - index_end) as u64;
    assert_eq!(report.checked_bytes, expected);
    assert_eq!(seen.first(), Some(&(0, expected)));
    assert_eq!(seen.last(), Some(&(expected, expected)));
    assert_eq!(report.identity, container.inspect().identity);
    let quick = check(&path, Depth::Structure);
    assert!(quick.is_good() && quick.checked_bytes < expected / 4);
}

#[test]
fn bytes_between_the_parts_are_looked_at_and_mended_too() {
    let (_folder, path, good) = demo();
    let container = Container::open(&path).unwrap();
    // Behind the tokenizer, which does not end where a tensor may begin.
    let gap = tokenizer_end(&container, &good);
    assert!(!gap.is_multiple_of(64));
    drop(container);
    let mut bytes = good.clone();
    bytes[gap + 1] = 7;
    fs::write(&path, &bytes).unwrap();
    let report = check(&path, Depth::Full);
    assert!(!report.is_good());
    let [damage] = &report.damaged[..] else {
        panic!("{report:?}")
    };
    assert_eq!(
        (&damage.part, damage.offset),
        (&Part::Padding(gap as u64), gap as u64)
    );
    assert!(damage.to_string().ends_with("not zero"), "{damage}");
    let mut source = CheckpointFolder::open(&given("demo")).unwrap();
    repair(&path, &report.damaged, &mut source, &GO_ON, &mut |_, _| {}).unwrap();
    assert!(fs::read(&path).unwrap() == good);
}

#[test]
fn nothing_is_advised_that_does_not_help() {
    let (_folder, path, good) = demo();
    let refusal = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        verify(&path, Depth::Full, &GO_ON, &mut |_, _| {})
            .unwrap_err()
            .to_string()
    };
    let mut index = good.clone();
    index[200] ^= 1;
    for error in [refusal(&index), refusal(&good[..good.len() - 1])] {
        assert!(!error.contains("mends it"), "{error}");
        assert!(error.ends_with("download or convert it again."), "{error}");
    }
}

#[test]
fn each_damaged_part_is_named_with_its_place_and_mended_to_the_byte() {
    let (_folder, path, good) = demo();
    let parts = parts(&path);
    let mut bytes = good.clone();
    for (_, offset, length) in &parts {
        bytes[(offset + length / 2) as usize] ^= 0x20;
    }
    // The last byte of the record too: it is one damage.
    let (_, offset, length) = parts[2];
    bytes[(offset + length - 1) as usize] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let report = check(&path, Depth::Full);
    let found: Vec<_> = report
        .damaged
        .iter()
        .map(|d| (d.part.clone(), d.offset, d.bytes))
        .collect();
    assert_eq!(found, parts);
    let text = report.damaged[2].to_string();
    assert!(
        text.contains("expert 5 of layer 2") && text.contains("checksum"),
        "{text}"
    );
    // The tokenizer is found without reading weights.
    assert_eq!(check(&path, Depth::Structure).damaged.len(), 1);

    let mut source = CheckpointFolder::open(&given("demo")).unwrap();
    let mut seen = Vec::new();
    repair(
        &path,
        &report.damaged,
        &mut source,
        &GO_ON,
        &mut |done, all| {
            seen.push((done, all));
        },
    )
    .unwrap();
    assert!(fs::read(&path).unwrap() == good);
    let bytes: u64 = parts.iter().map(|(_, _, bytes)| bytes).sum();
    assert_eq!(seen.last(), Some(&(bytes, bytes)));
    assert!(check(&path, Depth::Full).is_good());
}

/// Counts what is asked for, and may answer wrongly or stop.
struct Watched {
    inner: CheckpointFolder,
    asked: Vec<String>,
    flip: bool,
    short: bool,
    stop_after: Option<usize>,
}

impl TensorSource for Watched {
    fn read(&mut self, tensor: &str, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if self.stop_after.is_some_and(|most| self.asked.len() >= most) {
            return Err(Error::Cancelled);
        }
        self.asked.push(tensor.to_owned());
        let (mut flip, short) = (self.flip, self.short);
        self.inner.read(tensor, &mut |piece| {
            let mut piece = piece.to_vec();
            piece[0] ^= u8::from(std::mem::take(&mut flip));
            if short {
                piece.pop();
            }
            sink(&piece)
        })
    }

    fn tokenizer(&mut self) -> Result<Option<Vec<u8>>> {
        self.asked.push("tokenizer".into());
        self.inner.tokenizer()
    }

    fn shard(&self, tensor: &str) -> Option<String> {
        self.inner.shard(tensor)
    }
}

fn watched() -> Watched {
    Watched {
        inner: CheckpointFolder::open(&given("demo")).unwrap(),
        asked: Vec::new(),
        flip: false,
        short: false,
        stop_after: None,
    }
}

fn mend(path: &Path, damaged: &[Damage], source: &mut Watched) -> Result<()> {
    repair(path, damaged, source, &GO_ON, &mut |_, _| {})
}

#[test]
fn only_what_is_damaged_is_fetched_and_wrong_bytes_are_never_written() {
    let (_folder, path, good) = demo();
    let (_, offset, _) = parts(&path)[2];
    let mut bytes = good.clone();
    bytes[offset as usize] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let damaged = check(&path, Depth::Full).damaged;
    for (flip, short) in [(true, false), (false, true)] {
        let mut wrong = watched();
        (wrong.flip, wrong.short) = (flip, short);
        let error = mend(&path, &damaged, &mut wrong).unwrap_err().to_string();
        let place = "expert 5 of layer 2 is another in \"model.safetensors\" (tensor \"layers.2.ffn.experts.5.w1.weight\" and 5 more)";
        assert!(error.contains(place), "{error}");
        assert!(fs::read(&path).unwrap() == bytes, "something was written");
    }
    let mut source = watched();
    mend(&path, &damaged, &mut source).unwrap();
    let expected: Vec<_> = ["w1", "w3", "w2"]
        .iter()
        .flat_map(|part| {
            ["weight", "scale"].map(|kind| format!("layers.2.ffn.experts.5.{part}.{kind}"))
        })
        .collect();
    assert_eq!(source.asked, expected);
    assert!(fs::read(&path).unwrap() == good);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_repair_that_ends_early_leaves_mended_parts_mended_and_can_be_done_again() {
    let (_folder, path, good) = demo();
    let parts = parts(&path);
    let mut bytes = good.clone();
    for (_, offset, _) in &parts {
        bytes[*offset as usize] ^= 1;
    }
    fs::write(&path, &bytes).unwrap();
    let damaged = check(&path, Depth::Full).damaged;
    let mut source = watched();
    source.stop_after = Some(4);
    let error = mend(&path, &damaged, &mut source).unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    // In the middle of the record: tokenizer and tensor are whole, the record is as it was.
    let left = check(&path, Depth::Full).damaged;
    assert_eq!(left, damaged[2..]);
    mend(&path, &left, &mut watched()).unwrap();
    assert!(fs::read(&path).unwrap() == good);
}

#[test]
fn another_checkpoint_is_no_source() {
    let (_folder, path, good) = demo();
    let (_, offset, _) = parts(&path)[1];
    let mut bytes = good;
    bytes[offset as usize] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let damaged = check(&path, Depth::Full).damaged;
    let other = Folder::like("c_fp8_fp4");
    other.write();
    let mut source = CheckpointFolder::open(&other.path).unwrap();
    let error = repair(&path, &damaged, &mut source, &GO_ON, &mut |_, _| {})
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no tensor \"layers.3.attn.wq_b.weight\""),
        "{error}"
    );
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn a_damaged_index_is_an_error_with_the_remedy() {
    let (_folder, path, mut bytes) = demo();
    put(&mut bytes, at::CHECKSUM, 1);
    fs::write(&path, &bytes).unwrap();
    for depth in [Depth::Structure, Depth::Full] {
        let error = verify(&path, depth, &GO_ON, &mut |_, _| {})
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("Copy, download or convert it again"),
            "{error}"
        );
    }
}

#[test]
fn verifying_can_be_stopped() {
    let (_folder, path, _) = demo();
    let cancel = AtomicBool::new(false);
    let error = verify(&path, Depth::Full, &cancel, &mut |done, _| {
        cancel.store(done > 0, Ordering::Relaxed);
    })
    .unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
}

#[test]
fn norms_forty_times_too_small_and_values_that_are_no_numbers_are_said() {
    let mut folder = Folder::like("b_flash_ratios_bf16");
    let norm = folder.tensors.get_mut("layers.1.ffn_norm.weight").unwrap();
    assert_eq!(norm.dtype, "BF16");
    for value in norm.data.as_chunks_mut::<2>().0 {
        let exact = f32::from_bits(u32::from(u16::from_le_bytes(*value)) << 16);
        *value = (((exact / 40.0).to_bits() >> 16) as u16).to_le_bytes();
    }
    let wkv = folder.tensors.get_mut("layers.0.attn.wkv.weight").unwrap();
    // Infinity, and a number that is none.
    wkv.data[..4].copy_from_slice(&[0x80, 0x7F, 0xC0, 0xFF]);
    folder.write();
    folder.convert().unwrap();
    let report = check(&folder.out(), Depth::Full);
    assert_eq!(report.damaged, []);
    assert_eq!(report.suspicious.len(), 2, "{:?}", report.suspicious);
    assert!(report.suspicious[0].contains("\"layers.0.attn.wkv.weight\" has 2 values"));
    assert!(report.suspicious[1].contains("\"layers.1.ffn_norm.weight\""));
    // The norm is found without reading the file.
    assert_eq!(check(&folder.out(), Depth::Structure).suspicious.len(), 1);
}

#[test]
fn a_code_of_fp8_that_is_no_number_is_kept_counted_and_never_used() {
    let mut folder = Folder::smallest();
    let dense = "layers.0.attn.wkv.weight";
    let tensor = folder.tensors.get_mut(dense).unwrap();
    assert_eq!(tensor.dtype, "F8_E4M3");
    tensor.data[777] = 0xFF;
    // Experts in FP8 too.
    let record = "layers.1.ffn.experts.2.w3.weight";
    for (name, tensor) in &mut folder.tensors {
        if name.contains(".ffn.experts.") {
            let is_scale = name.ends_with(".scale");
            let (dtype, shape, data) = match is_scale {
                true => ("F8_E8M0", vec![1, 1], vec![127]),
                false => ("F8_E4M3", vec![64, 64], vec![0x38; 64 * 64]),
            };
            (tensor.dtype, tensor.shape, tensor.data) = (dtype.into(), shape, data);
        }
    }
    folder.tensors.get_mut(record).unwrap().data[99] = 0x7F;
    folder.write();
    folder.convert().unwrap();
    let container = Container::open(&folder.out()).unwrap();
    let place = container.dense_place(dense).unwrap();
    let stored = &fs::read(folder.out()).unwrap()[place.offset as usize..][..place.bytes as usize];
    assert_eq!(stored, folder.tensors[dense].data);
    let file = folder.out().display().to_string();
    let says = |error: Error, tensor: &str, at: &str| {
        let error = error.to_string();
        let weight = format!("weight {at} of tensor \"{tensor}\" is not a number");
        assert!(
            error.starts_with(&file) && error.contains(&weight),
            "{error}"
        );
    };
    says(container.read(dense).unwrap_err(), dense, "777");
    let in_pieces = container.read_in_pieces(dense, &mut |_| Ok(()));
    says(in_pieces.unwrap_err(), dense, "777");
    for _ in 0..2 {
        says(container.expert(1, 2).unwrap_err(), record, "99");
    }
    container.expert(1, 1).unwrap();
    container.read("layers.1.attn.wkv.weight").unwrap();
    let report = check(&folder.out(), Depth::Full);
    assert!(report.damaged.is_empty());
    assert_eq!(report.suspicious.len(), 2, "{:?}", report.suspicious);
    assert_eq!(
        report.suspicious[0],
        format!("The tensor \"{dense}\" has 1 values that are no numbers.")
    );
    assert!(report.suspicious[1].contains(&format!("weight 99 of tensor \"{record}\"")));
}
