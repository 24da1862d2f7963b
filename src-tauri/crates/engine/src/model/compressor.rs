//! Compressors: blocks of tokens pooled into single rows (sections 3.3 and 5 of the V4 notes).
//!
//! One per layer with a ratio, and a second, narrower one inside the indexer. Projections are computed for a whole chunk, the pooling
//! steps token by token, so that prefill and decode are the same code.

use fastar_kernels::matrix::Matrix;
use fastar_kernels::rounding::{KV_BLOCK, fp4_round_trip, fp8_round_trip, hadamard};
use fastar_kernels::vector::{add_scaled, max_into, pool, rms_norm_in_place, rotate};

use super::config::{Config, Ratio};
use super::history::History;
use super::pass::Pass;
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
    top: Vec<f32>,
    sum: Vec<f32>,
    angles: Angles,
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

    /// The projections of a chunk that [`Compressor::feed`] wants, to be computed from the normed attention inputs with whatever else reads them.
    pub fn projections<'a>(
        &'a self,
        bytes: &'a [u8],
        scratch: &'a mut Scratch,
    ) -> [(Matrix<'a>, &'a mut Vec<f32>); 2] {
        [
            (self.wkv.view(bytes), &mut scratch.kv),
            (self.wgate.view(bytes), &mut scratch.gate),
        ]
    }

    /// Feeds a chunk of `tokens` tokens from position `first` on, whose projections are in `scratch`.
    pub fn feed(
        &self,
        pass: Pass<'_>,
        rotation: &Rotation,
        tokens: usize,
        first: usize,
        state: &mut CompressorState,
        scratch: &mut Scratch,
    ) {
        let width = self.width();
        for (t, gate) in scratch.gate.chunks_exact_mut(width).enumerate() {
            let in_block = (first + t) % self.ratio;
            let ape = &self.ape[in_block * width..(in_block + 1) * width];
            add_scaled(gate, 1.0, ape);
        }
        state.kv.push(&scratch.kv);
        state.score.push(&scratch.gate);
        for block in self.finished(first)..self.finished(first + tokens) {
            self.finish(pass, rotation, block * self.ratio, state, scratch);
        }
    }

    /// Pools the block that begins at `start` into one more row.
    fn finish(
        &self,
        pass: Pass<'_>,
        rotation: &Rotation,
        start: usize,
        state: &mut CompressorState,
        scratch: &mut Scratch,
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
        let entries = || {
            (0..end - begin).map(|entry| {
                let half = if self.overlap && entry >= before {
                    d
                } else {
                    0
                };
                let at = entry * width + half;
                (&score[at..at + d], &kv[at..at + d])
            })
        };
        let (top, sum) = (&mut scratch.top, &mut scratch.sum);
        for (buffer, value) in [(&mut *top, f32::NEG_INFINITY), (&mut *sum, 0.0)] {
            buffer.clear();
            buffer.resize(d, value);
        }
        let from = state.rows.len();
        state.rows.resize(from + d, 0.0);
        let row = &mut state.rows[from..];
        for (score, _) in entries() {
            max_into(top, score);
        }
        for (score, kv) in entries() {
            pool(score, top, kv, sum, row);
        }
        for (o, s) in row.iter_mut().zip(sum) {
            *o /= *s;
        }
        rms_norm_in_place(row, &self.norm, pass.config.rms_norm_eps);
        // The row stands at the position of its block's first token; the overlap does not move it.
        rotation.angles(start, 1, 1, &mut scratch.angles);
        let (cos, sin) = scratch.angles.at(0);
        rotate(row, cos, sin);
        if pass.reference {
            match self.purpose {
                Purpose::Attention => round_kv(pass.config, row),
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
