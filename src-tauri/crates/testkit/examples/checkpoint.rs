//! Writes a synthetic checkpoint with the sizes of DeepSeek V4 Flash:
//! `cargo run --release -p fastar-testkit --example checkpoint -- FOLDER dspark|preview|base|bf16 LAYERS`. Four layers of `preview` are 20 GB, of
//! which 3.6 GB are the drafter.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use fastar_testkit::{Kind, Synthetic};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, kind, layers] = arguments.as_slice() else {
        panic!("FOLDER KIND LAYERS");
    };
    let kind = match kind.as_str() {
        "dspark" => Kind::DSpark,
        "preview" => Kind::Preview,
        "base" => Kind::Base,
        "bf16" => Kind::Bf16,
        other => panic!("no kind {other}"),
    };
    let layers = layers.parse().expect("a number of layers");
    let mut percent = 0;
    Synthetic::flash(kind, layers)
        .save(folder.as_ref(), &mut |done, all| {
            if done * 100 / all > percent {
                percent = done * 100 / all;
                eprint!("\r{percent} % of {} MB", all / 1_000_000);
            }
        })
        .unwrap();
    eprintln!();
}
