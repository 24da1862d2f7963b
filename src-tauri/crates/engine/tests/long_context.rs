//! Twenty thousand positions on Flash's own window and ratios, against the numpy reference in float64.
//!
//! The model is fixture b with more positions. The reference decoded the same tokens one by one; `data/long_context.safetensors` holds its
//! logits at positions around every edge of windows and blocks: once with all compressed rows attended (up to 5,000 of them) and once
//! with 512 picked, as Flash does.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{Converted, fixture, largest_difference};
use fastar_engine::{Cancel, Engine, Options};
use safetensors::SafeTensors;

const POSITIONS: usize = 20_000;

/// The reference's tokens: a linear congruential generator, its upper bits modulo the vocabulary.
fn tokens() -> Vec<u32> {
    let mut state = 12_345u64;
    (0..POSITIONS)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % 96) as u32
        })
        .collect()
}

fn model(topk: usize) -> Converted {
    let folder = tempfile::tempdir().unwrap();
    let from = fixture("b_flash_ratios_bf16");
    let config = std::fs::read_to_string(from.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["max_position_embeddings"] = 1_048_576.into();
    config["index_topk"] = topk.into();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    std::fs::copy(
        from.join("model.safetensors"),
        folder.path().join("model.safetensors"),
    )
    .unwrap();
    common::convert(folder.path())
}

/// Largest difference at each sampled position, and the bytes the session takes at the end.
fn differences(topk: usize, name: &str) -> (Vec<(usize, f32)>, usize) {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/long_context.safetensors"
    );
    let bytes = std::fs::read(path).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let positions: Vec<usize> = stored
        .tensor("positions")
        .unwrap()
        .data()
        .as_chunks::<8>()
        .0
        .iter()
        .map(|b| i64::from_le_bytes(*b) as usize)
        .collect();
    let logits: Vec<f32> = stored
        .tensor(name)
        .unwrap()
        .data()
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect();
    let model = model(topk);
    let engine = Engine::open(&model.path, &Options::default()).unwrap();
    assert_eq!(engine.facts().context, 1_048_576);
    let mut session = engine.session();
    let tokens = tokens();
    let mut fed = 0;
    let compared = positions
        .iter()
        .zip(logits.chunks_exact(96))
        .map(|(position, expected)| {
            let ours = session
                .prefill(&tokens[fed..=*position], &Cancel::default(), &mut |_| {})
                .unwrap();
            fed = position + 1;
            (*position, largest_difference(ours, expected))
        })
        .collect();
    (compared, session.bytes())
}

#[test]
fn twenty_thousand_positions_do_not_drift() {
    let (all, bytes) = differences(8192, "logits_all_rows");
    let worst = all.iter().fold(0f32, |m, (_, d)| m.max(*d));
    println!(
        "largest difference over {} positions: {worst:.2e}",
        all.len()
    );
    for (position, difference) in all {
        assert!(
            difference < 1e-4,
            "position {position} differs by {difference}"
        );
    }
    // Rows of 80 and keys of 32 for every four tokens on two layers, rows of 80 for every 128 on one; 4 bytes each.
    let rows = 4 * (2 * (POSITIONS / 4) * (80 + 32) + (POSITIONS / 128) * 80);
    assert!(bytes >= rows);
    // All the rest is bounded: windows, unfinished blocks and checkpoints do not grow with the sequence.
    let bounded = bytes - rows - 4 * POSITIONS;
    println!("{rows} bytes of compressed rows, {bounded} of the rest");
    assert!(bounded < 16 << 20, "{bounded}");
}

#[test]
fn picking_512_rows_of_thousands_agrees_with_the_reference() {
    let (all, _) = differences(512, "logits_top_512");
    for (position, difference) in all {
        assert!(
            difference < 1e-4,
            "position {position} differs by {difference}"
        );
    }
}
