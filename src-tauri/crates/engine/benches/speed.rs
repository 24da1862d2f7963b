//! How fast a model is read and written: `cargo bench -p fastar-engine -- MODEL.fst [--threads N] [--decode N] [--prefill N] [--exact]`.
//!
//! For working on the engine: tokens a second of decoding and of prefill, alone. `fastar bench` sets them beside what the machine can do.
#![allow(clippy::expect_used)]

use std::time::Instant;

use fastar_engine::{Cancel, Engine, Options};

fn main() {
    let (mut path, mut options) = (None, Options::default());
    let (mut decode, mut prefill) = (24, 256);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|w| w.parse().ok()).expect("a number");
        match word.as_str() {
            "--threads" => options.threads = Some(number()),
            "--decode" => decode = number(),
            "--prefill" => prefill = number(),
            "--exact" => options.exact = true,
            "--bench" => {}
            _ => path = Some(word),
        }
    }
    let Some(path) = path else {
        return println!("No model file was given; nothing is measured.");
    };
    let engine = Engine::open(path.as_ref(), &options).expect("the model opens");
    let vocab = engine.facts().vocab as u32;
    let token = |i: usize| (i as u32 * 7919 + 13) % vocab;
    let mut session = engine.session();
    let tokens: Vec<u32> = (0..prefill).map(token).collect();
    for _ in 0..2 {
        session.reset();
        if prefill > 0 {
            let start = Instant::now();
            session
                .prefill(&tokens, &Cancel::default(), &mut |_| {})
                .expect("it computes");
            let time = start.elapsed().as_secs_f64();
            println!("prefill {prefill}: {:.2} tokens/s", prefill as f64 / time);
        }
        let mut times: Vec<f64> = (0..decode)
            .map(|i| {
                let start = Instant::now();
                session.decode(token(i + prefill)).expect("it computes");
                start.elapsed().as_secs_f64()
            })
            .collect();
        times.sort_by(f64::total_cmp);
        if let (Some(best), Some(median)) = (times.first(), times.get(times.len() / 2)) {
            println!(
                "decode: median {:.2}, best {:.2} tokens/s",
                1.0 / median,
                1.0 / best
            );
        }
    }
}
