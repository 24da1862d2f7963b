//! A generated model is a model: whole, runnable, the same for the same seed, and read as far as its shape says.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use fastar_bench::{Dense, Error, Recipe, Shape, bytes_per_token, generate};
use fastar_engine::{Cancel, Engine, Options};
use fastar_fst::{Container, Depth, Dtype, verify};

fn recipe(dense: Dense, seed: u64) -> Recipe {
    let shape = Shape::named("tiny").unwrap();
    Recipe { shape, dense, seed }
}

fn made(folder: &Path, recipe: &Recipe) -> PathBuf {
    let path = folder.join(format!("{:?}-{}.fst", recipe.dense, recipe.seed));
    generate(recipe, &path, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    path
}

#[test]
fn it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    for dense in [Dense::Fp8, Dense::Q8] {
        let path = made(folder.path(), &recipe(dense, 1));
        let go_on = AtomicBool::new(false);
        let report = verify(&path, Depth::Full, &go_on, &mut |_, _| {}).unwrap();
        assert!(report.is_good(), "{report:?}");
    }
}

#[test]
fn it_computes_numbers() {
    let folder = tempfile::tempdir().unwrap();
    for dense in [Dense::Fp8, Dense::Q8] {
        let path = made(folder.path(), &recipe(dense, 1));
        let engine = Engine::open(&path, &Options::default()).unwrap();
        let mut session = engine.session();
        let tokens: Vec<u32> = (0..300).map(|i| i * 7919 % 512).collect();
        let logits = session
            .prefill(&tokens, &Cancel::default(), &mut |_| {})
            .unwrap();
        // Products keep the size of what they multiply, so logits are about one: not lost, not overflown.
        let square = logits.iter().map(|v| f64::from(v * v)).sum::<f64>() / logits.len() as f64;
        assert!((0.1..10.0).contains(&square.sqrt()), "{dense:?}: {square}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let folder = tempfile::tempdir().unwrap();
    let again = tempfile::tempdir().unwrap();
    let first = fs::read(made(folder.path(), &recipe(Dense::Q8, 1))).unwrap();
    assert!(first == fs::read(made(again.path(), &recipe(Dense::Q8, 1))).unwrap());
    let other = Container::open(&made(folder.path(), &recipe(Dense::Q8, 2))).unwrap();
    let first = Container::open(&folder.path().join("Q8-1.fst")).unwrap();
    assert!(first.expert(0, 0).unwrap() != other.expert(0, 0).unwrap());
    assert!(first.expert(0, 0).unwrap() != first.expert(0, 1).unwrap());
    assert!(first.expert(0, 0).unwrap() != first.expert(1, 0).unwrap());
}

#[test]
fn every_token_of_a_hash_layer_has_six_different_experts() {
    let folder = tempfile::tempdir().unwrap();
    let container = Container::open(&made(folder.path(), &recipe(Dense::Q8, 1))).unwrap();
    let table = container.tensor("layers.0.ffn.gate.tid2eid").unwrap();
    assert_eq!((table.dtype, table.shape), (Dtype::I64, &[512, 6][..]));
    let mut uses = [0; 16];
    let ids = container.read("layers.0.ffn.gate.tid2eid").unwrap();
    for row in ids.as_chunks::<48>().0 {
        let mut experts: Vec<i64> = row
            .as_chunks::<8>()
            .0
            .iter()
            .map(|id| i64::from_le_bytes(*id))
            .collect();
        experts.sort_unstable();
        experts.dedup();
        assert_eq!(experts.len(), 6);
        experts.iter().for_each(|e| uses[*e as usize] += 1);
    }
    // 512 x 6 / 16 = 192 each.
    assert!(uses.iter().all(|n| (120..280).contains(n)), "{uses:?}");
}

#[test]
fn a_token_of_flash6l32e_reads_1_990_gigabytes() {
    let shape = Shape::named("flash6L32E").unwrap();
    // By hand, from the widths: six experts of six layers of 3 x 4096 x 2048 weights in 17 bytes for 32.
    let routed = 6 * 6 * 3 * 4096 * 2048 / 32 * 17;
    // 34 bytes for 32 weights.
    let head = 129_280 * 4096 / 32 * 34;
    // wq_a, wq_b, wkv, wo_a, wo_b and the shared expert in Q8_0.
    let weights =
        1024 * 4096 + 32_768 * 1024 + 512 * 4096 + 8192 * 4096 + 4096 * 8192 + 3 * 2048 * 4096;
    let layers = 6 * (weights / 32 * 34);
    // In two bytes each: two mixings, the router; two compressors and an indexer on two layers, one compressor on two.
    let mixings = 6 * 2 * (24 * 16_384 * 2 + 4 * (24 + 3));
    let routers = 6 * 32 * 4096 * 2 + 5 * 32 * 4;
    let indexed = 2 * (1024 * 4096 * 2 + 256 * 4096 * 2) * 2;
    let queries = 2 * (8192 * 1024 + 64 * 4096) * 2;
    let plain = 2 * (512 * 4096 * 2) * 2;
    // Of the tables a row: an embedding, six experts, position biases.
    let rows = 4096 * 2 + 6 * 8 + 2 * (1024 + 256) * 4 + 2 * 512 * 4;
    let norms = 6 * (4096 + 4096 + 1024 + 512) * 2 + 2 * (512 + 128) * 2 + 2 * 512 * 2 + 4096 * 2;
    let small = 6 * 64 * 4 + 4 * 16_384 * 2 + 5 * 4;
    let rest = layers + mixings + routers + indexed + plain + rows + norms + small;
    assert_eq!(
        shape.bytes_per_token(Dense::Q8, true),
        routed + head + rest + queries
    );
    assert_eq!(
        shape.bytes_per_token(Dense::Q8, false),
        routed + head + rest
    );
    // What llama.cpp's file of this shape was counted to have: 1.990 GB, of which 0.481 are routed experts.
    assert_eq!(shape.bytes_per_token(Dense::Q8, true) / 1_000_000, 1990);
    assert_eq!(routed / 1_000_000, 481);
}

#[test]
fn a_file_says_the_same_of_itself_as_its_shape() {
    let folder = tempfile::tempdir().unwrap();
    for dense in [Dense::Fp8, Dense::Q8] {
        let recipe = recipe(dense, 1);
        let container = Container::open(&made(folder.path(), &recipe)).unwrap();
        for picking in [false, true] {
            let expected = recipe.shape.bytes_per_token(dense, picking);
            assert_eq!(bytes_per_token(&container, picking), expected);
        }
    }
}

#[test]
fn stopping_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.fst");
    let stop = AtomicBool::new(true);
    let stopped = generate(&recipe(Dense::Fp8, 1), &path, &stop, &mut |_, _| {});
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let path = Path::new("no/such/folder/model.fst");
    let error = generate(
        &recipe(Dense::Fp8, 1),
        path,
        &AtomicBool::new(false),
        &mut |_, _| {},
    );
    let sentence = error.unwrap_err().to_string();
    assert!(
        sentence.contains("model.fst") && sentence.contains("folder does not exist"),
        "{sentence}"
    );
}
