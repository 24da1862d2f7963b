//! Every instruction set writes the same logits, bit for bit, on both paths: a baseline build that chooses when it runs computes nothing else on a machine
//! without AVX2. One process has one level, so the test runs itself once for each.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;

use common::{Expected, convert, fixture, open};
use fastar_engine::{Options, diagnostic};
use fastar_kernels::dispatch::{self, Level};

/// Set in the processes that compute, to the number of their level.
const COMPUTES: &str = "FASTAR_TEST_COMPUTES";
const NAME: &str = "every_instruction_set_computes_the_same_bits";

#[test]
fn every_instruction_set_computes_the_same_bits() {
    if let Ok(number) = std::env::var(COMPUTES) {
        return compute(Level::ALL[number.parse::<usize>().unwrap()]);
    }
    let run = |number: usize| {
        let level = Level::ALL[number];
        let output = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture"])
            .env(COMPUTES, number.to_string())
            .output()
            .unwrap();
        assert!(output.status.success(), "{level:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        // A level that this processor has not got runs as the best below.
        let ran = format!("ran {:?}", level.available());
        assert!(text.contains(&ran), "{ran}: {text}");
        let lines: Vec<String> = text
            .lines()
            .filter_map(|l| Some(l.split_once("logits ")?.1.to_owned()))
            .collect();
        assert_eq!(lines.len(), 4, "{level:?}: {text}");
        lines
    };
    let baseline = run(0);
    for number in 1..Level::ALL.len() {
        assert_eq!(run(number), baseline, "{:?}", Level::ALL[number]);
    }
}

fn compute(level: Level) {
    assert!(dispatch::limit(level), "a level was chosen before");
    for name in ["b_flash_ratios_bf16", "c_fp8_fp4"] {
        let model = convert(&fixture(name));
        let prompt = Expected::of(name).ids("prompt");
        for exact in [false, true] {
            let options = Options {
                exact,
                ..Options::default()
            };
            let out = diagnostic::logits(&open(&model, &options), &prompt, None, 8).unwrap();
            let mut hash = DefaultHasher::new();
            for v in out.prefill.iter().chain(&out.decode) {
                v.to_bits().hash(&mut hash);
            }
            println!("ran {:?}", dispatch::level());
            println!("logits {name} {exact} {:?} {:x}", out.greedy, hash.finish());
        }
    }
}
