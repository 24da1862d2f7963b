//! How near the products come to what this machine can do: with one token to the speed of memory, with many to that of multiply-adds.

use fastar_kernels::dispatch::Level;
use fastar_kernels::format::e4m3_encode;
use fastar_kernels::matrix::{Elements, Matrix, Scales};
use fastar_kernels::product::{Arithmetic, Product, Vectors, multiply_at};
use fastar_kernels::q8_0;

use crate::{Threads, machine};

/// Columns of every matrix: the width of DeepSeek V4 Flash.
pub const COLUMNS: usize = 4096;
/// Rows of the product with many tokens: those of an expert's gate.
pub const GEMM_ROWS: usize = 2048;

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// FP4 in packets, activations of eight bits.
    Mxfp4,
    /// FP8 with power-of-two scales.
    Fp8,
    /// FP8 with scales in `f32`.
    Fp8F32Scales,
    /// Q8_0, activations of eight bits.
    Q8,
    /// BF16.
    Bf16,
    /// F32.
    F32,
}

impl Format {
    /// All of them, with names for people.
    pub const ALL: [(Format, &str); 6] = [
        (Format::Mxfp4, "MXFP4 packets"),
        (Format::Fp8, "FP8 e4m3"),
        (Format::Fp8F32Scales, "FP8 e4m3, f32 scales"),
        (Format::Q8, "Q8_0"),
        (Format::Bf16, "BF16"),
        (Format::F32, "F32"),
    ];

    /// Fills `data` with weights of ordinary sizes: subnormal numbers and NaN would be another measurement.
    pub fn fill(self, data: &mut [u8]) {
        let mut state = 1u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        // The sum of four even ones is nearly normal; 4096 of them are picked from at random.
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
    pub fn row_bytes(self) -> usize {
        match self {
            Format::Mxfp4 => COLUMNS / 32 * 17,
            Format::Fp8 | Format::Fp8F32Scales => COLUMNS,
            Format::Q8 => COLUMNS / 32 * q8_0::BLOCK_BYTES,
            Format::Bf16 => 2 * COLUMNS,
            Format::F32 => 4 * COLUMNS,
        }
    }
}

/// Something done and what the machine could do at most, in the same unit a second.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Done.
    pub done: f64,
    /// Could be done.
    pub limit: f64,
}

/// Everything a product of one format needs.
pub struct Sample<'a> {
    format: Format,
    level: Level,
    rows: usize,
    data: &'a [u8],
    weights: &'a [u8],
    scales: Vec<u8>,
    x: Vec<f32>,
    tokens: usize,
    vectors: Vectors,
    out: Vec<f32>,
}

impl<'a> Sample<'a> {
    /// As many whole groups of rows as `data`, which `format` has [filled](Format::fill), has room for, times one token.
    pub fn one_token(format: Format, level: Level, data: &'a [u8]) -> Self {
        let rows = data.len() / format.row_bytes() / 64 * 64;
        Self::new(format, level, rows, data, 1)
    }

    /// Bytes of the weights that are multiplied with many tokens.
    pub fn many_tokens_bytes(format: Format) -> usize {
        GEMM_ROWS * format.row_bytes()
    }

    /// The first [`GEMM_ROWS`] rows of `data` times so many tokens.
    pub fn many_tokens(format: Format, level: Level, data: &'a [u8], tokens: usize) -> Self {
        Self::new(format, level, GEMM_ROWS, data, tokens)
    }

    fn new(format: Format, level: Level, rows: usize, data: &'a [u8], tokens: usize) -> Self {
        let x: Vec<f32> = (0..tokens * COLUMNS)
            .map(|i| ((i * 7919 + i / 7) % 2003) as f32 / 1001.0 - 1.0)
            .collect();
        let scales = rows.div_ceil(128) * COLUMNS.div_ceil(128);
        Self {
            format,
            level,
            rows,
            data,
            weights: &data[..rows * format.row_bytes()],
            scales: match format {
                Format::Fp8 => vec![120; scales],
                Format::Fp8F32Scales => 0.011f32.to_le_bytes().repeat(scales),
                _ => Vec::new(),
            },
            x,
            tokens,
            vectors: Vectors::default(),
            out: vec![0.0; tokens * rows],
        }
    }

    /// GB/s of weights multiplied, of GB/s that reading them takes.
    pub fn against_reading(&mut self, threads: &Threads) -> Round {
        let limit = machine::reading(threads, self.data);
        let bytes = (self.weights.len() + self.scales.len()) as f64;
        let done = bytes / threads.seconds(|| self.run()) / 1e9;
        Round { done, limit }
    }

    /// GFLOP/s on one thread, of those of fused multiply-adds in `f32`.
    pub fn against_multiplying(&mut self, thread: &Threads) -> Round {
        let limit = machine::multiplying(thread, self.level);
        let work = 2.0 * (self.tokens * self.rows * COLUMNS) as f64;
        let done = work / thread.seconds(|| self.run()) / 1e9;
        Round { done, limit }
    }

    #[allow(clippy::expect_used)]
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
