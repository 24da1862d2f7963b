//! What rounding vectors to eight bits does to the logits, against the path that does not: on the trained demo model, and on every fixture's shape with
//! experts of FP4.
//!
//! Measured when this was written, over all positions of all prompts: see the table in [`ON_THE_DEMO`] and [`ON_RANDOM_WEIGHTS`].
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{Converted, Expected, FIXTURES, convert, fixture, open};
use fastar_engine::{Options, diagnostic};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// How near two sets of logits are.
#[derive(Debug)]
struct Nearness {
    /// The least cosine of two rows.
    cosine: f64,
    /// Rows whose likeliest token is the same, of all rows.
    same: usize,
    rows: usize,
    /// Where it is not: the largest lead, in the exact row, of its likeliest token before the other's, as a share of the row's spread.
    lead: f64,
}

impl Nearness {
    fn new() -> Self {
        Self {
            cosine: 1.0,
            same: 0,
            rows: 0,
            lead: 0.0,
        }
    }

    fn add(&mut self, fast: &[f32], exact: &[f32]) {
        let product = |a: &[f32], b: &[f32]| -> f64 {
            a.iter()
                .zip(b)
                .map(|(a, b)| f64::from(*a) * f64::from(*b))
                .sum()
        };
        let sizes = (product(fast, fast) * product(exact, exact)).sqrt();
        self.cosine = self.cosine.min(product(fast, exact) / sizes);
        let likeliest = |row: &[f32]| {
            (0..row.len())
                .max_by(|a, b| row[*a].total_cmp(&row[*b]))
                .unwrap()
        };
        let (a, b) = (likeliest(fast), likeliest(exact));
        self.rows += 1;
        if a == b {
            self.same += 1;
        } else {
            let mean = exact.iter().sum::<f32>() / exact.len() as f32;
            let variance =
                exact.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / exact.len() as f32;
            self.lead = self
                .lead
                .max(f64::from((exact[b] - exact[a]) / variance.sqrt()));
        }
    }
}

/// Logits of `tokens`, and of eight tokens after them that the exact path would write, on both paths.
fn compare(model: &Converted, tokens: &[u32], near: &mut Nearness) {
    let run = |exact, tokens: &[u32]| {
        let options = Options {
            exact,
            ..Options::default()
        };
        let engine = open(model, &options);
        diagnostic::logits(&engine, tokens, None, if exact { 8 } else { 0 }).unwrap()
    };
    let greedy = run(true, tokens).greedy;
    let all = [tokens, &greedy].concat();
    let (exact, fast) = (run(true, &all), run(false, &all));
    let rows = exact.prefill.chunks_exact(exact.vocab);
    for (exact, fast) in rows.zip(fast.prefill.chunks_exact(fast.vocab)) {
        near.add(fast, exact);
    }
}

#[test]
fn logits_of_the_demo_keep_their_direction_and_their_likeliest_token() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../app/demo");
    let demo = convert(&folder);
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut near = Nearness::new();
    for row in rows {
        let tokens: Vec<u32> = serde_json::from_value(row["ids"].clone()).unwrap();
        compare(&demo, &tokens, &mut near);
    }
    println!("demo: {near:?}");
    assert!(near.cosine >= ON_THE_DEMO.0, "{near:?}");
    assert!(
        near.same as f64 >= ON_THE_DEMO.1 * near.rows as f64,
        "{near:?}"
    );
    assert!(near.lead <= ON_THE_DEMO.2, "{near:?}");
}

#[test]
fn logits_of_every_fixture_s_shape_keep_their_direction() {
    for name in FIXTURES {
        let model = with_fp4_experts(name);
        let prompt = Expected::of(name).ids("prompt");
        let mut near = Nearness::new();
        compare(&model, &prompt, &mut near);
        println!("{name}: {near:?}");
        assert!(near.cosine >= ON_RANDOM_WEIGHTS.0, "{name}: {near:?}");
        assert!(
            near.same as f64 >= ON_RANDOM_WEIGHTS.1 * near.rows as f64,
            "{name}: {near:?}"
        );
        assert!(near.lead <= ON_RANDOM_WEIGHTS.2, "{name}: {near:?}");
    }
}

/// Least cosine, least share of rows with the same likeliest token, and largest lead of a token that lost its place.
const ON_THE_DEMO: (f64, f64, f64) = (0.9999, 0.99, 0.02);
/// The same for the fixtures.
const ON_RANDOM_WEIGHTS: (f64, f64, f64) = (0.999, 0.9, 0.1);

/// A fixture whose routed experts are FP4, rounded from BF16 where they are not.
fn with_fp4_experts(name: &str) -> Converted {
    let from = fixture(name);
    let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let all = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (name, t) in all.tensors() {
        let routed = name.starts_with("layers.") && name.contains(".ffn.experts.");
        if routed && t.dtype() == Dtype::BF16 {
            let (codes, scales) = fp4(t.data());
            let (rows, columns) = (t.shape()[0], t.shape()[1]);
            let scale = name.replace(".weight", ".scale");
            tensors.insert(name, (Dtype::I8, vec![rows, columns / 2], codes));
            tensors.insert(scale, (Dtype::F8_E8M0, vec![rows, columns / 32], scales));
        } else {
            tensors.insert(name, (t.dtype(), t.shape().to_vec(), t.data().to_vec()));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    std::fs::copy(from.join("config.json"), path("config.json")).unwrap();
    let views = tensors.iter().map(|(name, (dtype, shape, data))| {
        (name, TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(path("model.safetensors"), bytes).unwrap();
    convert(folder.path())
}

/// BF16 numbers to FP4 codes, two a byte, and a scale for each 32.
fn fp4(bf16: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (pairs, _) = bf16.as_chunks::<2>();
    let value = |b: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for block in pairs.chunks(32) {
        let largest = block.iter().fold(0f32, |a, b| a.max(value(b).abs()));
        let exponent = (largest / 6.0).max(1e-30).log2().ceil() as i32;
        scales.push((exponent + 127) as u8);
        let scale = 2f32.powi(exponent);
        let code = |b: &[u8; 2]| {
            let size = (value(b) / scale).abs();
            let sizes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0f32];
            let nearest = (0..8).min_by(|a, b| {
                (sizes[*a] - size)
                    .abs()
                    .total_cmp(&(sizes[*b] - size).abs())
            });
            nearest.unwrap() as u8 | if value(b) < 0.0 { 8 } else { 0 }
        };
        codes.extend(block.chunks(2).map(|p| code(&p[0]) | code(&p[1]) << 4));
    }
    (codes, scales)
}
