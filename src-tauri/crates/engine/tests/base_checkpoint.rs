//! A checkpoint in the storage of DeepSeek-V4-Flash-Base (FP8 everywhere, routed experts included, scales in F32) computes what the same weights
//! compute in other storages: those of the numpy reference, and their twin in BF16.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Converted, Expected, convert, fixture, largest_difference, open};
use fastar_engine::{Engine, Options, diagnostic};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

const FIXTURE: &str = "c_fp8_fp4";
/// That of the fixtures against the reference.
const BOUND: f32 = 1e-4;
const BLOCK: usize = 128;

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// The value of an E4M3 code by its definition: one sign, four bits of exponent with bias 7, three of mantissa.
fn e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let size = match exponent {
        0 => mantissa / 8.0 * 2f32.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    };
    if code & 0x80 == 0 { size } else { -size }
}

/// The value of an FP4 code by its definition.
fn e2m1(code: u8) -> f32 {
    let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
    if code & 8 == 0 { size } else { -size }
}

/// The code of a value that has one.
fn exact_code(value: f32) -> u8 {
    let found =
        (0..=0xFF).find(|&code| code & 0x7F != 0x7F && e4m3(code).to_bits() == value.to_bits());
    found.unwrap_or_else(|| panic!("{value} is no E4M3 number"))
}

fn power(code: u8) -> f32 {
    2f32.powi(i32::from(code) - 127)
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn read(folder: &Path) -> Tensors {
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    SafeTensors::deserialize(&bytes)
        .unwrap()
        .tensors()
        .into_iter()
        .map(|(name, t)| (name, (t.dtype(), t.shape().to_vec(), t.data().to_vec())))
        .collect()
}

/// The fixture's weights as Base stores them. No value changes.
fn base() -> Tensors {
    let mut tensors = read(&fixture(FIXTURE));
    let weights: Vec<String> = tensors
        .keys()
        .filter(|name| {
            tensors.contains_key(&name.replace(".weight", ".scale")) && name.ends_with(".weight")
        })
        .cloned()
        .collect();
    for name in weights {
        let scale = name.replace(".weight", ".scale");
        let (_, scale_shape, scales) = tensors[&scale].clone();
        let (dtype, shape, codes) = tensors[&name].clone();
        if dtype == Dtype::F8_E4M3 {
            let values: Vec<f32> = scales.iter().map(|s| power(*s)).collect();
            tensors.insert(scale, (Dtype::F32, scale_shape, f32s(&values)));
            continue;
        }
        // FP4 with a scale for each 32 of a row: one matrix is one block here.
        let (rows, columns) = (shape[0], 2 * shape[1]);
        assert!(dtype == Dtype::I8 && rows <= BLOCK && columns <= BLOCK);
        let whole = power(*scales.iter().max().unwrap());
        let values = codes.iter().enumerate().flat_map(|(i, byte)| {
            let (row, column) = (2 * i / columns, 2 * i % columns);
            let scale = power(scales[row * columns / 32 + column / 32]) / whole;
            [e2m1(byte & 15) * scale, e2m1(byte >> 4) * scale]
        });
        let codes = values.map(exact_code).collect();
        tensors.insert(name, (Dtype::F8_E4M3, vec![rows, columns], codes));
        tensors.insert(scale, (Dtype::F32, vec![1, 1], f32s(&[whole])));
    }
    tensors
}

/// Scales that are no powers of two, each block another, with so few bits that every weight is a BF16 number.
fn odd_scales(tensors: &mut Tensors) {
    let mut number = 0;
    for (name, (dtype, _, bytes)) in tensors.iter_mut() {
        if name.ends_with(".scale") {
            assert_eq!(*dtype, Dtype::F32, "{name}");
            for scale in bytes.as_chunks_mut::<4>().0 {
                let odd = [1.125f32, 1.375, 0.8125, 0.9375, 0.6875][number % 5];
                *scale = (f32::from_le_bytes(*scale) * odd).to_le_bytes();
                number += 1;
            }
        }
    }
}

/// The same weights, every one multiplied out, in BF16.
fn multiplied_out(base: &Tensors) -> Tensors {
    let mut out = Tensors::new();
    for (name, (dtype, shape, bytes)) in base {
        if name.ends_with(".scale") {
            continue;
        }
        if *dtype != Dtype::F8_E4M3 {
            out.insert(name.clone(), (*dtype, shape.clone(), bytes.clone()));
            continue;
        }
        let (_, blocks, scales) = &base[&name.replace(".weight", ".scale")];
        let (scales, _) = scales.as_chunks::<4>();
        let columns = shape[1];
        let values = bytes.iter().enumerate().flat_map(|(i, code)| {
            let block = i / columns / BLOCK * blocks[1] + i % columns / BLOCK;
            let bits = (e4m3(*code) * f32::from_le_bytes(scales[block])).to_bits();
            assert_eq!(bits & 0xFFFF, 0, "{name} is not exact in BF16");
            ((bits >> 16) as u16).to_le_bytes()
        });
        out.insert(name.clone(), (Dtype::BF16, shape.clone(), values.collect()));
    }
    out
}

fn converted(tensors: &Tensors, change: impl FnOnce(&mut Value)) -> Converted {
    let folder = tempfile::tempdir().unwrap();
    let config = std::fs::read(fixture(FIXTURE).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    change(&mut config);
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    convert(folder.path())
}

/// As the Base repository's config.json has it.
fn as_base(config: &mut Value) {
    let config = config.as_object_mut().unwrap();
    config.remove("expert_dtype");
    config["quantization_config"]
        .as_object_mut()
        .unwrap()
        .remove("scale_fmt");
}

/// Logits of every position of the prompt, of the tokens written after it, and of the drafter.
fn run(model: &Converted) -> (Vec<f32>, Vec<u32>) {
    let expected = Expected::of(FIXTURE);
    let prompt = expected.ids("prompt");
    let engine = open(
        model,
        &Options {
            exact: true,
            ..Options::default()
        },
    );
    let out = diagnostic::logits(&engine, &prompt, None, expected.ids("greedy").len()).unwrap();
    let drafted = diagnostic::mtp_logits(&engine, &prompt, out.greedy[0]).unwrap();
    ([out.prefill, out.decode, drafted].concat(), out.greedy)
}

#[test]
fn the_fixture_s_weights_in_the_storage_of_base_agree_with_the_reference() {
    let model = converted(&base(), as_base);
    let expected = Expected::of(FIXTURE);
    let (ours, greedy) = run(&model);
    assert_eq!(greedy, expected.ids("greedy"));
    let vocab = 64;
    let rows = expected.ids("logit_positions");
    let stored: Vec<usize> = rows.iter().map(|&row| row as usize).collect();
    let prompt = expected.ids("prompt").len();
    let decode = expected.floats("decode_logits");
    let reference = [
        &expected.floats("logits")[..],
        &decode,
        &expected.floats("mtp_logits_last"),
    ]
    .concat();
    let ours: Vec<f32> = stored
        .iter()
        .flat_map(|row| &ours[row * vocab..(row + 1) * vocab])
        .chain(&ours[prompt * vocab..])
        .copied()
        .collect();
    let difference = largest_difference(&ours, &reference);
    println!("largest difference from the reference: {difference:.2e}");
    assert!(difference < BOUND, "{difference}");
}

#[test]
fn scales_that_are_no_powers_of_two_give_what_the_multiplied_weights_give() {
    let mut base = base();
    let (plain, _) = run(&converted(&base, as_base));
    odd_scales(&mut base);
    let twin = multiplied_out(&base);
    let (ours, greedy) = run(&converted(&base, as_base));
    let (multiplied, expected) = run(&converted(&twin, |config| {
        as_base(config);
        config
            .as_object_mut()
            .unwrap()
            .remove("quantization_config");
    }));
    assert_eq!(greedy, expected);
    let difference = largest_difference(&ours, &multiplied);
    println!("largest difference from the twin: {difference:.2e}");
    assert!(difference < BOUND, "{difference}");
    // The factors matter.
    assert!(largest_difference(&ours, &plain) > 1000.0 * BOUND);
}

#[test]
fn a_weight_that_is_no_number_is_refused_when_the_model_is_loaded() {
    let name = "layers.1.attn.wq_b.weight";
    let mut tensors = base();
    let (dtype, _, codes) = tensors.get_mut(name).unwrap();
    assert_eq!(*dtype, Dtype::F8_E4M3);
    codes[123] = 0x7F;
    let model = converted(&tensors, as_base);
    let error = Engine::open(&model.path, &Options::default())
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "{} cannot be used: weight 123 of tensor \"{name}\" is not a number, and was not when the file was made. Convert another checkpoint.",
            model.path.display()
        )
    );
}
