//! Compressors: blocks of tokens pooled into single rows (sections 3.3 and 5 of the V4 notes).
//!
//! One per layer with a ratio, and a second, narrower one inside the indexer. Projections are computed for a whole chunk, the pooling
//! steps token by token, so that prefill and decode are the same code.

use fastar_kernels::rounding::{KV_BLOCK, fp4_round_trip, fp8_round_trip, hadamard};
use fastar_kernels::vector::{exp, rms_norm_in_place, rotate};

use super::config::{Config, Ratio};
use super::rope::{Angles, Rotation};
use super::weights::{Loader, Weight};
use crate::Result;

/// What a finished row is for, which decides how the hosted model rounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Key and value of the attention.
    Attention,
    /// Key of the indexer.
    Index,
}

/// Weights of one compressor.
pub struct Compressor {
    ratio: usize,
    /// Width of a finished row (d).
    dim: usize,
    /// Ratio 4: a block also pools the first halves of the block before it.
    overlap: bool,
    purpose: Purpose,
    ape: Vec<f32>,
    wkv: Weight,
    wgate: Weight,
    norm: Vec<f32>,
}

/// The unfinished block, and every finished row.
pub struct CompressorState {
    kv: Vec<f32>,
    score: Vec<f32>,
    /// Finished rows, [count, d].
    pub rows: Vec<f32>,
}

/// Reused buffers.
#[derive(Default)]
pub struct Scratch {
    kv: Vec<f32>,
    gate: Vec<f32>,
    angles: Angles,
    transpose: Vec<f32>,
}

impl Compressor {
    /// Loads the compressor at `prefix` (`layers.2.attn.compressor.`), whose rows are `dim` wide.
    pub fn load(
        loader: &Loader<'_>,
        config: &Config,
        prefix: &str,
        ratio: Ratio,
        dim: usize,
        purpose: Purpose,
    ) -> Result<Option<Self>> {
        let (ratio, overlap) = match ratio {
            Ratio::None => return Ok(None),
            Ratio::Indexed => (4, true),
            Ratio::Plain(r) => (r, false),
        };
        let width = if overlap { 2 * dim } else { dim };
        Ok(Some(Self {
            ratio,
            dim,
            overlap,
            purpose,
            ape: loader.values(&format!("{prefix}ape"), &[ratio, width])?,
            wkv: loader.matrix(&format!("{prefix}wkv.weight"), width, config.hidden_size)?,
            wgate: loader.matrix(&format!("{prefix}wgate.weight"), width, config.hidden_size)?,
            norm: loader.values(&format!("{prefix}norm.weight"), &[dim])?,
        }))
    }

    /// The state at the beginning of a sequence.
    pub fn state(&self) -> CompressorState {
        let rows = if self.overlap {
            2 * self.ratio
        } else {
            self.ratio
        };
        CompressorState {
            kv: vec![0.0; rows * self.width()],
            score: vec![f32::NEG_INFINITY; rows * self.width()],
            rows: Vec::new(),
        }
    }

    /// Width of a projected token.
    fn width(&self) -> usize {
        if self.overlap { 2 * self.dim } else { self.dim }
    }

    /// Rows finished once `tokens` tokens have been seen.
    pub fn finished(&self, tokens: usize) -> usize {
        tokens / self.ratio
    }

    /// Feeds a chunk: x [n, D] are the normed attention inputs of positions `first..`.
    #[allow(clippy::too_many_arguments)]
    pub fn feed(
        &self,
        config: &Config,
        bytes: &[u8],
        rotation: &Rotation,
        reference: bool,
        x: &[f32],
        first: usize,
        state: &mut CompressorState,
        scratch: &mut Scratch,
    ) {
        let width = self.width();
        let tokens = x.len() / config.hidden_size;
        for (weight, out) in [
            (&self.wkv, &mut scratch.kv),
            (&self.wgate, &mut scratch.gate),
        ] {
            out.clear();
            out.resize(tokens * width, 0.0);
            weight.view(bytes).apply(x, out, &mut scratch.transpose);
        }
        for t in 0..tokens {
            let position = first + t;
            let in_block = position % self.ratio;
            let row = in_block + if self.overlap { self.ratio } else { 0 };
            let slot = row * width..(row + 1) * width;
            let token = t * width..(t + 1) * width;
            state.kv[slot.clone()].copy_from_slice(&scratch.kv[token.clone()]);
            let ape = &self.ape[in_block * width..(in_block + 1) * width];
            for ((s, g), a) in state.score[slot]
                .iter_mut()
                .zip(&scratch.gate[token])
                .zip(ape)
            {
                *s = g + a;
            }
            if in_block + 1 == self.ratio {
                let start = position + 1 - self.ratio;
                self.finish(
                    config,
                    rotation,
                    reference,
                    start,
                    state,
                    &mut scratch.angles,
                );
            }
        }
    }

    /// Pools the full block that began at `start` into one more row.
    fn finish(
        &self,
        config: &Config,
        rotation: &Rotation,
        reference: bool,
        start: usize,
        state: &mut CompressorState,
        angles: &mut Angles,
    ) {
        let (d, width) = (self.dim, self.width());
        let from = state.rows.len();
        state.rows.resize(from + d, 0.0);
        let row = &mut state.rows[from..];
        // With overlap: first halves of the block before, second halves of this one. The block before the first has scores of
        // minus infinity and so no weight.
        let entries = state.score.len() / width;
        let offset = |entry: usize| {
            let half = if self.overlap && entry >= self.ratio {
                d
            } else {
                0
            };
            entry * width + half
        };
        for (c, out) in row.iter_mut().enumerate() {
            let top =
                (0..entries).fold(f32::NEG_INFINITY, |a, e| a.max(state.score[offset(e) + c]));
            let (mut sum, mut pooled) = (0.0, 0.0);
            for e in 0..entries {
                let weight = exp(state.score[offset(e) + c] - top);
                sum += weight;
                pooled += weight * state.kv[offset(e) + c];
            }
            *out = pooled / sum;
        }
        if self.overlap {
            let half = self.ratio * width;
            state.kv.copy_within(half.., 0);
            state.score.copy_within(half.., 0);
        }
        rms_norm_in_place(row, &self.norm, config.rms_norm_eps);
        // The row stands at the position of its block's first token; the overlap does not move it.
        rotation.angles(start, 1, 1, angles);
        let (cos, sin) = angles.at(0);
        rotate(row, cos, sin);
        if reference {
            match self.purpose {
                Purpose::Attention => round_kv(config, row),
                Purpose::Index => round_index(row),
            }
        }
    }
}

/// FP8 round trip of the channels without rotation.
pub fn round_kv(config: &Config, row: &mut [f32]) {
    fp8_round_trip(
        &mut row[..config.head_dim - config.qk_rope_head_dim],
        KV_BLOCK,
    );
}

/// Hadamard transform and FP4 round trip.
pub fn round_index(x: &mut [f32]) {
    hadamard(x);
    fp4_round_trip(x);
}
