//! Random weights in every stored format, as fast as a disk takes them. Same seed, same bytes.

use fastar_engine::routing;
use fastar_fst::{Dtype, ExpertMatrix};
use fastar_kernels::format::{E2M1, E4M3, f16};
use fastar_kernels::mxfp4;

/// What the entries of a tensor are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fill {
    /// All the same.
    Constant(f32),
    /// About a value, this far from it at most.
    Near(f32, f32),
    /// Nearly normal, with this deviation.
    Normal(f32),
    /// Rows of this many different experts.
    Experts {
        /// Experts there are.
        experts: usize,
        /// In a row.
        used: usize,
    },
}

impl Fill {
    /// Deviation with which a product over `columns` is of the size of its input.
    pub fn for_columns(columns: usize) -> Self {
        Self::Normal((columns as f32).sqrt().recip())
    }
}

/// Values that are picked from at random: making each anew would take longer than writing it.
const VALUES: usize = 4096;
/// e4m3 codes of these bits lie below 2 and are all numbers.
const E4M3_BITS: u8 = 0xBF;
/// What a code of the power 2^0 is in e8m0.
const E8M0_ONE: i32 = 127;

/// Random numbers of a part of a model: every seed and part gives a sequence of its own.
pub(crate) struct Random(routing::Random);

impl Random {
    /// The sequence for the part with this number of a model with this seed.
    pub fn new(seed: u64, part: u64) -> Self {
        let of_model = routing::Random::new(seed).next();
        let part = part.wrapping_mul(0xD134_2543_DE82_EF95);
        Self(routing::Random::new(of_model ^ part))
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// In [0, 1).
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Nearly normal, of deviation one: the sum of twelve even ones, less their mean.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }

    /// Random bytes, of which only those bits are kept.
    fn bytes(&mut self, out: &mut [u8], keep: u8) {
        let keep = u64::from_ne_bytes([keep; 8]);
        let (words, rest) = out.as_chunks_mut::<8>();
        for word in words {
            *word = (self.next() & keep).to_le_bytes();
        }
        let last = (self.next() & keep).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// Fills the pieces of one tensor.
pub(crate) struct Filler {
    dtype: Dtype,
    fill: Fill,
    random: Random,
    values: Vec<f32>,
    /// Scale of a block, in the format of the tensor's scales.
    scale: [u8; 2],
}

impl Filler {
    pub fn new(dtype: Dtype, fill: Fill, mut random: Random) -> Self {
        let values = match fill {
            Fill::Constant(value) => vec![value],
            Fill::Near(value, far) => (0..VALUES)
                .map(|_| value + far * (2.0 * random.unit() - 1.0))
                .collect(),
            Fill::Normal(deviation) => (0..VALUES).map(|_| deviation * random.normal()).collect(),
            Fill::Experts { .. } => Vec::new(),
        };
        let deviation = match fill {
            Fill::Normal(deviation) => deviation,
            _ => 1.0,
        };
        let scale = match dtype {
            Dtype::Q8_0 => {
                f16_below(deviation / rms((-127..128).map(|i: i16| f32::from(i)))).to_le_bytes()
            }
            Dtype::F8E8m0 => {
                let codes = (0..=u8::MAX).filter(|code| code & !E4M3_BITS == 0);
                [
                    e8m0(deviation / rms(codes.map(|code| E4M3[usize::from(code)]))),
                    0,
                ]
            }
            _ => [0; 2],
        };
        Self {
            dtype,
            fill,
            random,
            values,
            scale,
        }
    }

    /// The next piece, of whole rows.
    pub fn next(&mut self, piece: &mut [u8]) {
        let (random, values) = (&mut self.random, &self.values);
        let mut pick = || values[random.next() as usize % values.len()];
        match (self.dtype, self.fill) {
            (Dtype::I64, Fill::Experts { experts, used }) => {
                different(random, experts, used, piece)
            }
            (Dtype::F8E8m0, _) => piece.fill(self.scale[0]),
            (Dtype::F8E4m3, _) => random.bytes(piece, E4M3_BITS),
            (Dtype::Q8_0, _) => {
                random.bytes(piece, u8::MAX);
                for block in piece.chunks_exact_mut(Q8_BLOCK) {
                    // What makes these blocks from weights never makes -128.
                    block
                        .iter_mut()
                        .for_each(|b| *b = if *b == 0x80 { 0x81 } else { *b });
                    block[..2].copy_from_slice(&self.scale);
                }
            }
            (Dtype::Bf16, _) => {
                for four in piece.chunks_mut(8) {
                    let mut word = random.next();
                    for b in four.as_chunks_mut::<2>().0 {
                        let value = values[word as usize % values.len()];
                        b.copy_from_slice(&value.to_le_bytes()[2..]);
                        word >>= 16;
                    }
                }
            }
            (_, _) => {
                for b in piece.as_chunks_mut::<4>().0 {
                    *b = pick().to_le_bytes();
                }
            }
        }
    }
}

/// Bytes of a Q8_0 block.
const Q8_BLOCK: usize = fastar_kernels::q8_0::BLOCK_BYTES;

/// Rows of `used` different experts, in no order.
fn different(random: &mut Random, experts: usize, used: usize, piece: &mut [u8]) {
    let mut all: Vec<i64> = (0..experts as i64).collect();
    for row in piece.as_chunks_mut::<8>().0.chunks_mut(used) {
        for (i, id) in row.iter_mut().enumerate() {
            all.swap(i, i + random.next() as usize % (experts - i));
            *id = all[i].to_le_bytes();
        }
    }
}

/// Fills one matrix of an expert's record.
pub(crate) fn expert_matrix(part: &ExpertMatrix, random: &mut Random, record: &mut [u8]) {
    // Every code is as likely; the scale is one of two powers.
    let deviation = (part.columns as f32).sqrt().recip();
    let high = e8m0(deviation / rms(E2M1.iter().copied()));
    let scales = |random: &mut Random, out: &mut [u8]| {
        random.bytes(out, 1);
        out.iter_mut().for_each(|scale| *scale = high - *scale);
    };
    match &part.scale {
        Some((_, range)) => {
            random.bytes(&mut record[part.data.clone()], u8::MAX);
            scales(random, &mut record[range.clone()]);
        }
        None => {
            let data = &mut record[part.data.clone()];
            let columns = part.columns;
            for packet in mxfp4::packets_mut(columns, data) {
                random.bytes(packet.0, u8::MAX);
                scales(random, packet.1);
            }
        }
    }
}

fn rms(values: impl Iterator<Item = f32>) -> f32 {
    let (count, sum) = values.fold((0, 0.0), |(n, sum), v| (n + 1, sum + v * v));
    (sum / count as f32).sqrt()
}

/// Code of the nearest power of two.
fn e8m0(value: f32) -> u8 {
    (value.log2().round() as i32 + E8M0_ONE).clamp(1, 254) as u8
}

/// Bits of the largest half-precision number that is not above a positive one.
fn f16_below(value: f32) -> u16 {
    const INFINITE: u16 = 0x7C00;
    let mut bits = 0;
    // From the highest bit down: greater bits are greater numbers.
    for bit in (0..15).rev() {
        let larger = bits | 1 << bit;
        if larger < INFINITE && f16(larger) <= value {
            bits = larger;
        }
    }
    bits
}
