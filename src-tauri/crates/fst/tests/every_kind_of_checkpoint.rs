//! For every published kind of checkpoint, the values that come out of the container are those of the checkpoint, bit for bit. The
//! dequantiser here is written from the formats' definitions and shares nothing with the program's own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::{Stored, Tensors, read_safetensors};
use fastar_fst::{Container, Depth, Dtype, convert, verify};
use fastar_testkit::{Kind, Synthetic};

const KINDS: [Kind; 4] = [Kind::Preview, Kind::DSpark, Kind::Base, Kind::Bf16];

/// Values of a matrix [rows, columns] by its type's name; a scale is (type, bytes).
fn values(
    dtype: &str,
    rows: usize,
    columns: usize,
    data: &[u8],
    scale: Option<(&str, &[u8])>,
) -> Vec<f32> {
    let scale_at = |index: usize| -> f32 {
        match scale {
            None => 1.0,
            Some(("F32", bytes)) => {
                f32::from_le_bytes(bytes[4 * index..4 * index + 4].try_into().unwrap())
            }
            // 2^(b - 127), with 2^-127 being a subnormal number.
            Some(("F8_E8M0", bytes)) => 2f64.powi(i32::from(bytes[index]) - 127) as f32,
            Some((other, _)) => panic!("{other}"),
        }
    };
    let mut out = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        for column in 0..columns {
            let at = row * columns + column;
            out.push(match dtype {
                "BF16" => {
                    let half = u16::from_le_bytes(data[2 * at..2 * at + 2].try_into().unwrap());
                    f32::from_bits(u32::from(half) << 16)
                }
                "F32" => f32::from_le_bytes(data[4 * at..4 * at + 4].try_into().unwrap()),
                "F8_E4M3" => {
                    e4m3(data[at]) * scale_at(row / 128 * columns.div_ceil(128) + column / 128)
                }
                "I8" => {
                    let byte = data[at / 2];
                    let code = if column % 2 == 0 {
                        byte & 15
                    } else {
                        byte >> 4
                    };
                    e2m1(code) * scale_at(row * (columns / 32) + column / 32)
                }
                "MXFP4" => mxfp4(columns, data, row, column),
                other => panic!("{other}"),
            });
        }
    }
    out
}

/// An element of a matrix in packets: eight rows by 1024 columns, nibbles and then scales; rows are whole groups.
fn mxfp4(columns: usize, data: &[u8], row: usize, column: usize) -> f32 {
    let (r, packet, within) = (row % 8, column / 1024, column % 1024);
    let width = (columns - 1024 * packet).min(1024);
    // A group has 17 bytes for 32 columns of each of its rows.
    let start = (row / 8 * columns + 1024 * packet) / 32 * 8 * 17;
    let (b, j, i) = (within / 32, within % 32 / 8, within % 8 / 2);
    let byte = data[start + 128 * b + 32 * j + 4 * r + i];
    let code = byte >> (4 * (column % 2)) & 15;
    let scale = data[start + width * 4 + 8 * b + r];
    e2m1(code) * 2f64.powi(i32::from(scale) - 127) as f32
}

/// Sign, four bits of exponent with bias 7, three of mantissa; no infinity.
fn e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let size = match exponent {
        0 => mantissa * 2f32.powi(-9),
        e => (1.0 + mantissa / 8.0) * 2f32.powi(e - 7),
    };
    if code & 0x80 == 0 { size } else { -size }
}

fn e2m1(code: u8) -> f32 {
    let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
    if code & 8 == 0 { size } else { -size }
}

fn of_checkpoint(tensors: &Tensors, name: &str, weight: &Stored) -> (usize, usize, Vec<f32>) {
    let packed = if weight.dtype == "I8" { 2 } else { 1 };
    let columns = weight.shape.last().unwrap() * packed;
    let rows = weight.shape.iter().rev().skip(1).product::<usize>();
    let scale = name
        .strip_suffix(".weight")
        .and_then(|name| tensors.get(&format!("{name}.scale")))
        .map(|scale| (scale.dtype.as_str(), scale.data.as_slice()));
    let values = values(&weight.dtype, rows, columns, &weight.data, scale);
    (rows, columns, values)
}

fn same(ours: &[f32], theirs: &[f32]) -> bool {
    ours.len() == theirs.len()
        && ours
            .iter()
            .zip(theirs)
            .all(|(a, b)| a.to_bits() == b.to_bits())
}

/// All tensors of the shards in a folder.
fn all(folder: &Path) -> Tensors {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
        .flat_map(|shard| read_safetensors(&shard))
        .collect()
}

/// Compares every value of every tensor, and returns the names of those that were compared.
fn compare(container: &Container, tensors: &Tensors) -> BTreeSet<String> {
    let mut compared = BTreeSet::new();
    for (name, tensor) in container.tensors() {
        let stored = &tensors[name];
        let data = container.read(name).unwrap();
        if tensor.dtype == Dtype::I64 || name.ends_with(".scale") {
            assert!(data == stored.data, "{name}");
            compared.insert(name.to_owned());
            continue;
        }
        let (rows, columns, theirs) = of_checkpoint(tensors, name, stored);
        let scale = name.strip_suffix(".weight").and_then(|name| {
            let scale = format!("{name}.scale");
            let dtype = container.tensor(&scale)?.dtype;
            Some((dtype.name(), container.read(&scale).unwrap()))
        });
        let scale = scale.as_ref().map(|(dtype, data)| (*dtype, &**data));
        let ours = values(tensor.dtype.name(), rows, columns, &data, scale);
        assert!(same(&ours, &theirs), "{name}");
        compared.insert(name.to_owned());
    }
    let (layers, experts) = container.expert_counts();
    let layout = container.expert_layout();
    for layer in 0..layers {
        for expert in 0..experts {
            let record = container.expert(layer, expert).unwrap();
            for (part, matrix) in [
                ("w1", &layout.gate),
                ("w3", &layout.up),
                ("w2", &layout.down),
            ] {
                let name = format!("layers.{layer}.ffn.experts.{expert}.{part}");
                let weight = format!("{name}.weight");
                let (rows, columns, theirs) = of_checkpoint(tensors, &weight, &tensors[&weight]);
                assert_eq!((matrix.rows, matrix.columns), (rows, columns), "{name}");
                let scale = matrix.scale.as_ref();
                let scale = scale.map(|(dtype, range)| (dtype.name(), &record[range.clone()]));
                let data = &record[matrix.data.clone()];
                let ours = values(matrix.dtype.name(), rows, columns, data, scale);
                assert!(same(&ours, &theirs), "{name}");
                if matrix.scale.is_some() || matrix.dtype == Dtype::Fp4Packets {
                    compared.insert(format!("{name}.scale"));
                }
                compared.insert(weight);
            }
        }
    }
    compared
}

#[test]
fn every_value_of_every_tensor_is_the_checkpoints() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let (from, out) = (folder.path().join("c"), folder.path().join("m.fst"));
        Synthetic::small(kind).save(&from, &mut |_, _| {}).unwrap();
        convert(&from, &out, &mut |_, _| {}).unwrap();
        let tensors = all(&from);
        let container = Container::open(&out).unwrap();
        let names: BTreeSet<String> = tensors.keys().cloned().collect();
        assert_eq!(compare(&container, &tensors), names, "{kind:?}");
        let go_on = std::sync::atomic::AtomicBool::new(false);
        let report = verify(&out, Depth::Full, &go_on, &mut |_, _| {}).unwrap();
        assert!(report.is_good(), "{kind:?}: {report:?}");
        let about = container.inspect();
        assert_eq!(about.drafter, kind != Kind::Bf16, "{kind:?}");
        let expected = match kind {
            Kind::Preview | Kind::DSpark => (Dtype::Fp4Packets, None),
            Kind::Base => (Dtype::F8E4m3, Some(Dtype::F32)),
            Kind::Bf16 => (Dtype::Bf16, None),
        };
        let gate = &container.expert_layout().gate;
        let scale = gate.scale.as_ref().map(|(dtype, _)| *dtype);
        assert_eq!((gate.dtype, scale), expected, "{kind:?}");
    }
}

#[test]
fn the_dequantiser_of_this_test_knows_the_formats_landmarks() {
    // From the definitions: largest, smallest subnormal, one.
    assert_eq!(
        (e4m3(0x7E), e4m3(0x01), e4m3(0x38)),
        (448.0, 2f32.powi(-9), 1.0)
    );
    assert_eq!(
        (e4m3(0xFE), e2m1(7), e2m1(15), e2m1(1)),
        (-448.0, 6.0, -6.0, 0.5)
    );
    let scale = [128, 126];
    let packed = [0x21; 32];
    let out = values("I8", 1, 64, &packed, Some(("F8_E8M0", &scale)));
    assert_eq!((out[0], out[1], out[32], out[33]), (1.0, 2.0, 0.25, 0.5));
}

#[test]
fn the_same_options_make_the_same_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str| {
        let path = folder.path().join(name);
        Synthetic::small(Kind::Preview)
            .save(&path, &mut |_, _| {})
            .unwrap();
        let mut files: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (
                    path.file_name().unwrap().to_owned(),
                    fs::read(&path).unwrap(),
                )
            })
            .collect();
        files.sort();
        files
    };
    let first = written("a");
    assert!(first == written("b"));
    // config.json, the index, embedding, three layers, head, and one block of the drafter.
    assert_eq!(first.len(), 8);
}
