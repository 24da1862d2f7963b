//! How near the products come to what this machine can do: `cargo bench -p fastar-probe`.
//!
//! Everything is measured in this one process, the limits and the kernels by turns, because a machine's speed changes by the minute; shares
//! are medians over rounds of the ratio within a round. Options: `--rounds N`, `--mib N` (weights a product reads), `--level
//! baseline|avx2|avx512`, and a word that the names of the lines must contain.

use std::time::Instant;

use fastar_kernels::dispatch::{self, Level};
use fastar_kernels::processors::Processors;
use fastar_probe::products::{COLUMNS, Format, GEMM_ROWS, Round, Sample};
use fastar_probe::{Memory, Threads, median};

struct Options {
    rounds: usize,
    bytes: usize,
    level: Level,
    only: String,
}

fn main() {
    let options = options();
    let threads = Processors::find().threads();
    let start = Instant::now();
    let level = dispatch::level();
    println!(
        "{} threads, {:?}; the self-test chose {level:?} in {:.1} ms; measured at {:?}, medians of {} rounds",
        threads,
        dispatch::supported(),
        start.elapsed().as_secs_f64() * 1e3,
        options.level.available(),
        options.rounds
    );
    // One buffer for everything, filled anew for each format.
    let bytes = options.bytes.max(GEMM_ROWS * Format::F32.row_bytes());
    let mut data = match Memory::new(bytes) {
        Ok(memory) => memory,
        Err(error) => return println!("There is no memory of {bytes} bytes: {error}."),
    };
    let teams: Vec<_> = [1, threads]
        .into_iter()
        .filter_map(|threads| Threads::new(threads).ok())
        .collect();
    one_token(&options, &teams, &mut data[..options.bytes]);
    many_tokens(&options, &teams, &mut data);
}

fn options() -> Options {
    let mut options = Options {
        rounds: 7,
        bytes: 448 << 20,
        level: Level::Avx512,
        only: String::new(),
    };
    let mut words = std::env::args().skip(1);
    let number = |word: Option<String>| {
        word.and_then(|w| w.parse::<usize>().ok())
            .filter(|n| *n > 0)
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--rounds" => options.rounds = number(words.next()).unwrap_or(options.rounds),
            "--mib" => options.bytes = number(words.next()).map_or(options.bytes, |n| n << 20),
            "--level" => {
                options.level = match words.next().as_deref() {
                    Some("baseline") => Level::Baseline,
                    Some("avx2") => Level::Avx2,
                    _ => Level::Avx512,
                }
            }
            "--bench" => {}
            _ => options.only = word,
        }
    }
    options
}

/// Several rounds after one that warms up: done, limit and share of it, each the median.
fn medians(rounds: usize, round: impl FnMut() -> Round) -> [f64; 3] {
    let rounds: Vec<Round> = std::iter::repeat_with(round)
        .take(rounds + 1)
        .skip(1)
        .collect();
    [
        median(rounds.iter().map(|r| r.done)),
        median(rounds.iter().map(|r| r.limit)),
        median(rounds.iter().map(|r| r.done / r.limit)),
    ]
}

fn chosen<'a>(options: &Options) -> impl Iterator<Item = (Format, &'a str)> {
    Format::ALL
        .into_iter()
        .filter(|(_, name)| name.contains(&options.only))
}

fn one_token(options: &Options, teams: &[Threads], data: &mut [u8]) {
    println!(
        "\none token (GEMV), {} MiB of weights, of reading them; one thread, then all",
        options.bytes >> 20
    );
    for (format, name) in chosen(options) {
        format.fill(data);
        let mut product = Sample::one_token(format, options.level, data);
        let mut line = format!("{name:22}");
        for team in teams {
            let [done, limit, share] = medians(options.rounds, || product.against_reading(team));
            line += &format!("   {done:5.1} of {limit:5.1} GB/s, {share:5.2}");
        }
        println!("{line}");
    }
}

fn many_tokens(options: &Options, teams: &[Threads], data: &mut [u8]) {
    println!("\nmany tokens (GEMM), {GEMM_ROWS} x {COLUMNS}, one thread, of f32 multiply-add");
    let Some(team) = teams.first() else {
        return;
    };
    for (format, name) in chosen(options) {
        let weights = &mut data[..GEMM_ROWS * format.row_bytes()];
        format.fill(weights);
        let mut line = format!("{name:22}");
        for tokens in [1, 8, 64, 512] {
            let mut product = Sample::many_tokens(format, options.level, weights, tokens);
            let [done, limit, share] =
                medians(options.rounds, || product.against_multiplying(team));
            line += &format!("   {tokens}: {done:5.1} of {limit:5.1} GFLOP/s, {share:4.2}");
        }
        println!("{line}");
    }
}
