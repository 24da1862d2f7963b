//! How near the products come to what this machine can do: `cargo bench -p fastar-kernels`.
//!
//! Everything is measured in this one process, the limits and the kernels by turns, because a machine's speed changes by the minute; shares
//! are medians over rounds of the ratio within a round. Options: `--rounds N`, `--mib N` (weights a product reads), `--level
//! baseline|avx2|avx512`, and a word that the names of the lines must contain.

#![allow(clippy::expect_used)]

mod machine;

use std::time::Instant;

use fastar_kernels::dispatch::{self, Level};
use fastar_kernels::format::e4m3_encode;
use fastar_kernels::matrix::{Elements, Matrix, Scales};
use fastar_kernels::product::{Arithmetic, Product, Vectors, multiply_at};
use fastar_kernels::q8_0;
use fastar_kernels::team::Team;

const COLUMNS: usize = 4096;
/// Rows of the product with many tokens: those of an expert's gate.
const GEMM_ROWS: usize = 2048;

struct Options {
    rounds: usize,
    bytes: usize,
    level: Level,
    only: String,
}

/// What is multiplied.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    Mxfp4,
    Fp8,
    Fp8F32Scales,
    Q8,
    Bf16,
    F32,
}

impl Format {
    const ALL: [(Format, &str); 6] = [
        (Format::Mxfp4, "MXFP4 packets"),
        (Format::Fp8, "FP8 e4m3"),
        (Format::Fp8F32Scales, "FP8 e4m3, f32 scales"),
        (Format::Q8, "Q8_0"),
        (Format::Bf16, "BF16"),
        (Format::F32, "F32"),
    ];

    /// Fills `data` with weights of ordinary sizes: subnormal numbers and NaN would be another measurement.
    fn fill(self, data: &mut [u8]) {
        let mut state = 1u64;
        // The sum of four even ones is nearly normal; 4096 of them are picked from at random.
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let mut normal = || {
            (0..4)
                .map(|_| (random() % 2001) as f32 / 1000.0 - 1.0)
                .sum::<f32>()
        };
        let values: Vec<f32> = (0..4096).map(|_| normal()).collect();
        let mut pick = || random() as usize % values.len();
        match self {
            Format::Mxfp4 => {
                // A multiple of the columns of a packet, so every packet is full.
                for packet in data.chunks_mut(4096 + 256) {
                    let nibbles = packet.len().min(4096);
                    packet[..nibbles].fill_with(|| pick() as u8);
                    packet[nibbles..].fill_with(|| 119 + pick() as u8 % 4);
                }
            }
            Format::Fp8 | Format::Fp8F32Scales => {
                let codes: Vec<u8> = values.iter().map(|v| e4m3_encode(v * 112.0)).collect();
                data.fill_with(|| codes[pick()]);
            }
            Format::Q8 => {
                for block in data.chunks_mut(q8_0::BLOCK_BYTES) {
                    block.fill_with(|| pick() as u8);
                    // The half-precision number 2^-8.
                    block.iter_mut().zip([0x00, 0x1C]).for_each(|(b, s)| *b = s);
                }
            }
            Format::Bf16 => {
                for b in data.as_chunks_mut::<2>().0 {
                    b.copy_from_slice(&values[pick()].to_le_bytes()[2..]);
                }
            }
            Format::F32 => {
                for b in data.as_chunks_mut::<4>().0 {
                    *b = values[pick()].to_le_bytes();
                }
            }
        }
    }

    /// Bytes of a row of weights, without scales that lie elsewhere.
    fn row_bytes(self) -> usize {
        match self {
            Format::Mxfp4 => COLUMNS / 32 * 17,
            Format::Fp8 | Format::Fp8F32Scales => COLUMNS,
            Format::Q8 => COLUMNS / 32 * q8_0::BLOCK_BYTES,
            Format::Bf16 => 2 * COLUMNS,
            Format::F32 => 4 * COLUMNS,
        }
    }
}

fn main() {
    let options = options();
    let start = Instant::now();
    let level = dispatch::level();
    println!(
        "{} threads, {:?}; the self-test chose {level:?} in {:.1} ms; measured at {:?}, medians of {} rounds",
        std::thread::available_parallelism().map_or(1, |n| n.get()),
        dispatch::supported(),
        start.elapsed().as_secs_f64() * 1e3,
        options.level.available(),
        options.rounds
    );
    // One buffer for everything, filled anew for each format.
    let mut data = Vec::new();
    let bytes = options.bytes.max(GEMM_ROWS * Format::F32.row_bytes());
    machine::reserve_huge(&mut data, bytes);
    data.resize(bytes, 0);
    one_token(&options, &mut data[..options.bytes]);
    many_tokens(&options, &mut data);
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

/// Seconds `work` takes on a team.
fn seconds(team: &Team, work: impl FnOnce() + Send) -> f64 {
    team.run(|| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    })
}

fn teams() -> Vec<Team> {
    let all = std::thread::available_parallelism().map_or(1, |n| n.get());
    [1, all]
        .into_iter()
        .filter_map(|n| Team::new(n, n, machine::stay_on).ok())
        .collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Vectors of ordinary size.
fn vectors(n: usize) -> Vec<f32> {
    (0..n * COLUMNS)
        .map(|i| ((i * 7919 + i / 7) % 2003) as f32 / 1001.0 - 1.0)
        .collect()
}

/// Everything a product of one format needs.
struct Sample<'a> {
    format: Format,
    level: Level,
    rows: usize,
    weights: &'a [u8],
    scales: Vec<u8>,
    x: Vec<f32>,
    vectors: Vectors,
    out: Vec<f32>,
}

impl<'a> Sample<'a> {
    fn new(format: Format, level: Level, rows: usize, data: &'a [u8], n: usize) -> Self {
        let scales = rows.div_ceil(128) * COLUMNS.div_ceil(128);
        Self {
            format,
            level,
            rows,
            weights: &data[..rows * format.row_bytes()],
            scales: match format {
                Format::Fp8 => vec![120; scales],
                Format::Fp8F32Scales => 0.011f32.to_le_bytes().repeat(scales),
                _ => Vec::new(),
            },
            x: vectors(n),
            vectors: Vectors::default(),
            out: vec![0.0; n * rows],
        }
    }

    fn bytes(&self) -> usize {
        self.weights.len() + self.scales.len()
    }

    fn run(&mut self) {
        let elements = match self.format {
            Format::Mxfp4 => Elements::Fp4Packets(self.weights),
            Format::Q8 => Elements::Q8(self.weights),
            Format::Fp8 => Elements::Fp8(self.weights, Scales::E8m0(&self.scales)),
            Format::Fp8F32Scales => Elements::Fp8(self.weights, Scales::F32(&self.scales)),
            Format::Bf16 => Elements::Bf16(self.weights),
            Format::F32 => Elements::F32(self.weights),
        };
        let m = Matrix::new(self.rows, COLUMNS, elements).expect("sizes fit");
        let vectors = &mut self.vectors;
        vectors.prepare(&self.x, COLUMNS, [m.form(Arithmetic::Fast)]);
        let product = Product::new(m, Arithmetic::Fast, vectors, &mut self.out);
        multiply_at(self.level, &mut [product]);
    }
}

fn chosen<'a>(options: &Options) -> impl Iterator<Item = (Format, &'a str)> {
    Format::ALL
        .into_iter()
        .filter(|(_, name)| name.contains(&options.only))
}

fn one_token(options: &Options, data: &mut [u8]) {
    println!(
        "\none token (GEMV), {} MiB of weights, of reading them; one thread, then all",
        options.bytes >> 20
    );
    let teams = teams();
    for (format, name) in chosen(options) {
        format.fill(data);
        let rows = data.len() / format.row_bytes() / 64 * 64;
        let mut product = Sample::new(format, options.level, rows, data, 1);
        let bytes = product.bytes() as f64;
        let mut line = format!("{name:22}");
        for team in &teams {
            // The first round warms up.
            let rounds: Vec<[f64; 2]> = (0..=options.rounds)
                .map(|_| {
                    let read = data.len() as f64 / seconds(team, || machine::read(data)) / 1e9;
                    [read, bytes / seconds(team, || product.run()) / 1e9]
                })
                .skip(1)
                .collect();
            line += &format!(
                "   {:5.1} of {:5.1} GB/s, {:5.2}",
                median(rounds.iter().map(|r| r[1])),
                median(rounds.iter().map(|r| r[0])),
                median(rounds.iter().map(|r| r[1] / r[0])),
            );
        }
        println!("{line}");
    }
}

fn many_tokens(options: &Options, data: &mut [u8]) {
    println!("\nmany tokens (GEMM), {GEMM_ROWS} x {COLUMNS}, one thread, of f32 multiply-add");
    let Some(team) = teams().into_iter().next() else {
        return;
    };
    for (format, name) in chosen(options) {
        let weights = &mut data[..GEMM_ROWS * format.row_bytes()];
        format.fill(weights);
        let mut line = format!("{name:22}");
        for n in [1, 8, 64, 512] {
            let mut product = Sample::new(format, options.level, GEMM_ROWS, weights, n);
            let work = 2.0 * (n * GEMM_ROWS * COLUMNS) as f64;
            let rounds: Vec<[f64; 2]> = (0..=options.rounds)
                .map(|_| {
                    let mut done = 0;
                    let time = seconds(&team, || done = machine::multiply_add(1 << 29));
                    let peak = 2.0 * done as f64 / time / 1e9;
                    [peak, work / seconds(&team, || product.run()) / 1e9]
                })
                .skip(1)
                .collect();
            line += &format!(
                "   {n}: {:5.1} of {:5.1} GFLOP/s, {:4.2}",
                median(rounds.iter().map(|r| r[1])),
                median(rounds.iter().map(|r| r[0])),
                median(rounds.iter().map(|r| r[1] / r[0])),
            );
        }
        println!("{line}");
    }
}
