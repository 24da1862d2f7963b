//! Compressors: blocks of tokens pooled into single rows (sections 3.3 and 5 of the V4 notes).
//!
//! One per layer with a ratio, and a second, narrower one inside the indexer. Projections are computed for a whole chunk, the pooling
//! steps token by token, so that prefill and decode are the same code.

use fastar_kernels::rounding::{KV_BLOCK, fp4_round_trip, fp8_round_trip, hadamard};
use fastar_kernels::vector::{exp, rms_norm_in_place, rotate};

use super::config::{Config, Ratio};
use super::history::History;
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

/// Projections of the latest tokens, and every finished row.
pub struct CompressorState {
    /// [2d or d] for each token.
    pub kv: History,
    /// Gate plus position bias, as wide.
    pub score: History,
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
        // The block in progress, and with overlap the one before it.
        let needed = if self.overlap {
            2 * self.ratio
        } else {
            self.ratio
        };
        CompressorState {
            kv: History::new(self.width(), needed),
            score: History::new(self.width(), needed),
            rows: Vec::new(),
        }
    }

    /// Drops what came at `position` and later.
    pub fn truncate(&self, position: usize, state: &mut CompressorState) {
        state.kv.truncate(position);
        state.score.truncate(position);
        state.rows.truncate(self.values_at(position));
    }

    /// Width of a projected token.
    fn width(&self) -> usize {
        if self.overlap { 2 * self.dim } else { self.dim }
    }

    /// Rows finished once `tokens` tokens have been seen.
    pub fn finished(&self, tokens: usize) -> usize {
        tokens / self.ratio
    }

    /// Values of all rows finished once `tokens` tokens have been seen.
    pub fn values_at(&self, tokens: usize) -> usize {
        self.finished(tokens) * self.dim
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
        for (t, gate) in scratch.gate.chunks_exact_mut(width).enumerate() {
            let in_block = (first + t) % self.ratio;
            let ape = &self.ape[in_block * width..(in_block + 1) * width];
            for (g, a) in gate.iter_mut().zip(ape) {
                *g += a;
            }
        }
        state.kv.push(&scratch.kv);
        state.score.push(&scratch.gate);
        for block in self.finished(first)..self.finished(first + tokens) {
            let start = block * self.ratio;
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

    /// Pools the block that begins at `start` into one more row.
    fn finish(
        &self,
        config: &Config,
        rotation: &Rotation,
        reference: bool,
        start: usize,
        state: &mut CompressorState,
        angles: &mut Angles,
    ) {
        let (d, width, end) = (self.dim, self.width(), start + self.ratio);
        // With overlap: first halves of the block before (the first block has none), second halves of this one.
        let (begin, before) = if self.overlap {
            (start.saturating_sub(self.ratio), start.min(self.ratio))
        } else {
            (start, 0)
        };
        let (kv, score) = (
            state.kv.between(begin, end),
            state.score.between(begin, end),
        );
        let offset = |entry: usize| {
            let half = if self.overlap && entry >= before {
                d
            } else {
                0
            };
            entry * width + half
        };
        let from = state.rows.len();
        state.rows.resize(from + d, 0.0);
        let row = &mut state.rows[from..];
        for (c, out) in row.iter_mut().enumerate() {
            let top = (0..end - begin).fold(f32::NEG_INFINITY, |a, e| a.max(score[offset(e) + c]));
            let (mut sum, mut pooled) = (0.0, 0.0);
            for e in 0..end - begin {
                let weight = exp(score[offset(e) + c] - top);
                sum += weight;
                pooled += weight * kv[offset(e) + c];
            }
            *out = pooled / sum;
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
