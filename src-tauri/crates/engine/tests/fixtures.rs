//! The forward pass against the numpy reference, which agrees with DeepSeek's own code to 6e-6.
//!
//! Every one of the twenty mistakes tried on the reference (rope pairs, one theta, no inverse rope, a window one token off, comb not
//! transposed, ...) moves some logit of these fixtures by 0.4 or more; the bound here is 1e-4.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{Converted, Expected, FIXTURES, convert, fixture, largest_difference, open};
use fastar_engine::{Options, diagnostic};

const BOUND: f32 = 1e-4;

fn agrees(name: &str, model: &Converted, prefix: &str, options: &Options) {
    let expected = Expected::of(name);
    let engine = open(model, options);
    let prompt = expected.ids("prompt");
    let greedy = expected.ids(&format!("{prefix}greedy"));
    let out = diagnostic::logits(&engine, &prompt, None, greedy.len()).unwrap();

    let rows = expected.ids("logit_positions");
    let stored = expected.floats(&format!("{prefix}logits"));
    assert_eq!(stored.len(), rows.len() * out.vocab);
    let ours: Vec<f32> = rows
        .iter()
        .flat_map(|p| &out.prefill[*p as usize * out.vocab..(*p as usize + 1) * out.vocab])
        .copied()
        .collect();
    let prefill = largest_difference(&ours, &stored);
    let decode = largest_difference(
        &out.decode,
        &expected.floats(&format!("{prefix}decode_logits")),
    );
    println!("{name} {prefix}: prefill {prefill:.2e}, decode {decode:.2e}");
    assert_eq!(out.greedy, greedy, "{name} {prefix}greedy tokens");
    assert!(
        prefill < BOUND,
        "{name} {prefix}prefill differs by {prefill}"
    );
    assert!(decode < BOUND, "{name} {prefix}decode differs by {decode}");

    let mtp = diagnostic::mtp_logits(&engine, &prompt, greedy[0]).unwrap();
    let draft = largest_difference(&mtp, &expected.floats(&format!("{prefix}mtp_logits_last")));
    println!("{name} {prefix}: mtp {draft:.2e}");
    assert!(draft < BOUND, "{name} {prefix}MTP differs by {draft}");
}

#[test]
fn prefill_decode_greedy_and_mtp_agree_with_the_reference() {
    for name in FIXTURES {
        let options = Options {
            exact: true,
            ..Options::default()
        };
        agrees(name, &convert(&fixture(name)), "", &options);
    }
}

#[test]
fn the_two_roundings_agree_with_the_reference() {
    let options = Options {
        exact: true,
        reference: true,
        ..Options::default()
    };
    let model = convert(&fixture("c_fp8_fp4"));
    agrees("c_fp8_fp4", &model, "sim_", &options);
    // They are not a no-op: without them the same logits are far off.
    let expected = Expected::of("c_fp8_fp4");
    let plain = largest_difference(&expected.floats("logits"), &expected.floats("sim_logits"));
    assert!(plain > 100.0 * BOUND);
}

#[test]
fn prefill_in_any_chunks_is_equal_bit_for_bit() {
    for name in FIXTURES {
        let model = convert(&fixture(name));
        let rounded = name == "c_fp8_fp4";
        for (reference, exact) in [(false, false), (rounded, false), (false, true)] {
            let engine = open(
                &model,
                &Options {
                    reference,
                    exact,
                    ..Options::default()
                },
            );
            let prompt = Expected::of(name).ids("prompt");
            let whole = diagnostic::logits(&engine, &prompt, Some(prompt.len()), 4).unwrap();
            for chunk in [1, 3, 7, 128] {
                let cut = diagnostic::logits(&engine, &prompt, Some(chunk), 4).unwrap();
                assert!(cut.prefill == whole.prefill, "{name} in chunks of {chunk}");
                assert!(cut.decode == whole.decode, "{name} after chunks of {chunk}");
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for (name, exact) in [
        ("b_flash_ratios_bf16", false),
        ("c_fp8_fp4", false),
        ("c_fp8_fp4", true),
    ] {
        let model = convert(&fixture(name));
        let prompt = Expected::of(name).ids("prompt");
        let run = |threads| {
            let options = Options {
                threads: Some(threads),
                exact,
                ..Options::default()
            };
            let logits = diagnostic::logits(&open(&model, &options), &prompt, None, 4).unwrap();
            (logits.prefill, logits.decode)
        };
        let one = run(1);
        assert!(one == run(2), "{name}");
        assert!(one == run(3), "{name}");
    }
}

#[test]
fn two_engines_in_one_process_do_not_disturb_each_other() {
    let runs: Vec<_> = FIXTURES
        .iter()
        .map(|name| {
            let model = convert(&fixture(name));
            let prompt = Expected::of(name).ids("prompt");
            let alone =
                diagnostic::logits(&open(&model, &Options::default()), &prompt, Some(16), 8)
                    .unwrap();
            (model, prompt, alone)
        })
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            for (model, prompt, alone) in &runs {
                scope.spawn(move || {
                    let engine = open(model, &Options::default());
                    let together = diagnostic::logits(&engine, prompt, Some(16), 8).unwrap();
                    assert!(together.prefill == alone.prefill);
                    assert_eq!(together.greedy, alone.greedy);
                    assert!(together.decode == alone.decode);
                });
            }
        }
    });
}

#[test]
fn a_prompt_shorter_than_a_block_does_not_see_the_sequence_before() {
    let model = convert(&fixture("a_mixed_bf16"));
    let engine = open(&model, &Options::default());
    let prompt = Expected::of("a_mixed_bf16").ids("prompt");
    let first = diagnostic::logits(&engine, &prompt[..3], None, 6).unwrap();
    diagnostic::logits(&engine, &prompt, None, 6).unwrap();
    let again = diagnostic::logits(&engine, &prompt[..3], None, 6).unwrap();
    assert!(first.prefill == again.prefill && first.decode == again.decode);
}

#[test]
fn ids_outside_the_vocabulary_and_prompts_beyond_the_context_are_refused() {
    let model = convert(&fixture("a_mixed_bf16"));
    let engine = open(&model, &Options::default());
    let says = |tokens: &[u32], decode| {
        diagnostic::logits(&engine, tokens, None, decode)
            .err()
            .map(|e| e.to_string())
            .unwrap()
    };
    assert!(says(&[1, 96], 0).contains("Token id 96 is outside the model's vocabulary of 96"));
    assert!(says(&[], 1).contains("no token ids"));
    let long = says(&vec![1; 1020], 5);
    assert!(long.contains("1025") && long.contains("1024"), "{long}");
}

#[test]
fn the_roundings_are_refused_where_their_blocks_do_not_fit() {
    // Index heads of fixture a are 32 wide and its rows have 64 channels without rotation: they fit.
    let model = convert(&fixture("a_mixed_bf16"));
    let options = Options {
        reference: true,
        ..Options::default()
    };
    assert!(fastar_engine::Engine::open(&model.path, &options).is_ok());
    // The demo's rows have 32: they do not.
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../app/demo");
    let demo = convert(&demo);
    let error = fastar_engine::Engine::open(&demo.path, &options)
        .err()
        .unwrap();
    assert!(error.to_string().contains("32 channels without rotation"));
}
