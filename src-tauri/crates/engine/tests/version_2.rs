//! A model of version 2 computes what the same weights in version 3 compute, as far as it goes; then it says that it ends.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use fastar_engine::{Engine, Options, diagnostic};
use fastar_testkit::{Original, original_checkpoint};

#[test]
fn both_versions_of_the_same_weights_give_the_same_tokens_and_logits() {
    let checkpoint = original_checkpoint(3, 4);
    let folder = tempfile::tempdir().unwrap();
    let path = Original::of(&checkpoint).save(folder.path());
    let converted = checkpoint.convert();
    let options = Options {
        threads: Some(2),
        exact: true,
        reference: false,
        ..Options::default()
    };
    let old = Engine::open(&path, &options).unwrap();
    let new = Engine::open(&converted.path(), &options).unwrap();
    assert_eq!(old.facts().context, 2048);
    assert_eq!(new.facts().context, 1_048_576);
    assert!(old.facts().limit.as_ref().unwrap().contains("2,048"));
    assert_eq!(new.facts().limit, None);
    let tokens: Vec<u32> = (0..300).map(|i| (i * 37 % 266) as u32).collect();
    let run = |engine: &Engine| diagnostic::logits(engine, &tokens, None, 4).unwrap();
    let (a, b) = (run(&old), run(&new));
    assert_eq!(a.greedy, b.greedy);
    let all = |l: &diagnostic::Logits| [&l.prefill[..], &l.decode[..]].concat();
    let (a, b) = (all(&a), all(&b));
    assert_eq!(a.len(), 304 * 266);
    assert!(a.iter().any(|v| *v != a[0]));
    // The original's converter makes BF16 of the large F32 matrices. The values are the same here, but the sums go in another order.
    let difference = common::largest_difference(&a, &b);
    assert!(difference < 1e-4, "{difference}");
}

#[test]
fn more_than_2048_positions_are_refused_with_both_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = Original::of(&original_checkpoint(3, 2)).save(folder.path());
    let engine = Engine::open(&path, &Options::default()).unwrap();
    let error = diagnostic::logits(&engine, &[5; 2049], None, 0)
        .err()
        .unwrap();
    let error = error.to_string();
    assert!(error.contains("2049") && error.contains("2048"), "{error}");
}
