//! Attention over one shared key-value row per token: a window, compressed rows and a sink (section 3.2 of the V4 notes).
//!
//! A chunk first writes everything it adds to the state (window rows, compressed rows, index keys), then each of its tokens attends to
//! what it may see. Every head of every token is an independent sum in chronological order, so chunking changes nothing.

use std::cell::RefCell;

use fastar_kernels::vector::{
    add_scaled, dot, exp, rms_in_place, rms_norm_in_place, rotate, rotate_back,
};
use rayon::prelude::*;

use super::compressor::{Compressor, CompressorState, Purpose, Scratch, round_kv};
use super::config::{Config, Ratio};
use super::history::History;
use super::indexer::{Buffers, Indexer, Picks};
use super::rope::{Angles, Rotation};
use super::weights::{Loader, Weight};
use crate::Result;

/// Weights of one attention.
pub struct Attention {
    /// What lies beyond the window.
    pub ratio: Ratio,
    wq_a: Weight,
    q_norm: Vec<f32>,
    wq_b: Weight,
    wkv: Weight,
    kv_norm: Vec<f32>,
    sink: Vec<f32>,
    wo_a: Weight,
    wo_b: Weight,
    compressor: Option<Compressor>,
    indexer: Option<Indexer>,
}

/// What one layer remembers of a sequence.
pub struct AttentionState {
    /// KV rows of the latest tokens.
    pub window: History,
    /// Compressed rows, on layers that have them.
    pub compressed: Option<CompressorState>,
    /// Index keys, on layers that pick rows.
    pub index: Option<CompressorState>,
}

/// Reused buffers.
#[derive(Default)]
pub struct Work {
    qr: Vec<f32>,
    q: Vec<f32>,
    kv: Vec<f32>,
    o: Vec<f32>,
    group: Vec<f32>,
    z: Vec<f32>,
    z_group: Vec<f32>,
    transpose: Vec<f32>,
    compressor: Scratch,
    indexer: Buffers,
    picks: Picks,
}

impl Attention {
    /// Loads `{prefix}*` (`layers.0.attn.`).
    pub fn load(loader: &Loader<'_>, config: &Config, prefix: &str, ratio: Ratio) -> Result<Self> {
        let c = config;
        let heads = c.num_attention_heads * c.head_dim;
        let lora = c.o_groups * c.o_lora_rank;
        let matrix = |name: &str, rows, columns| {
            loader.matrix(&format!("{prefix}{name}.weight"), rows, columns)
        };
        Ok(Self {
            ratio,
            wq_a: matrix("wq_a", c.q_lora_rank, c.hidden_size)?,
            q_norm: loader.values(&format!("{prefix}q_norm.weight"), &[c.q_lora_rank])?,
            wq_b: matrix("wq_b", heads, c.q_lora_rank)?,
            wkv: matrix("wkv", c.head_dim, c.hidden_size)?,
            kv_norm: loader.values(&format!("{prefix}kv_norm.weight"), &[c.head_dim])?,
            sink: loader.values(&format!("{prefix}attn_sink"), &[c.num_attention_heads])?,
            wo_a: matrix("wo_a", lora, heads / c.o_groups)?,
            wo_b: matrix("wo_b", c.hidden_size, lora)?,
            compressor: Compressor::load(
                loader,
                c,
                &format!("{prefix}compressor."),
                ratio,
                c.head_dim,
                Purpose::Attention,
            )?,
            indexer: if loader.has_indexer() {
                Indexer::load(loader, c, prefix, ratio)?
            } else {
                None // The model is limited to positions that see no more rows than may be picked.
            },
        })
    }

    /// The state at the beginning of a sequence.
    pub fn state(&self, config: &Config) -> AttentionState {
        AttentionState {
            window: History::new(config.head_dim, config.sliding_window - 1),
            compressed: self.compressor.as_ref().map(Compressor::state),
            index: self.indexer.as_ref().map(|i| i.compressor.state()),
        }
    }

    /// Its compressors: that of the rows, then that of the index keys.
    pub fn compressors(&self) -> impl Iterator<Item = &Compressor> {
        let index = self.indexer.iter().map(|i| &i.compressor);
        self.compressor.iter().chain(index)
    }

    /// Drops what came at `position` and later.
    pub fn truncate(&self, position: usize, state: &mut AttentionState) {
        state.window.truncate(position);
        let states = state.compressed.iter_mut().chain(&mut state.index);
        for (compressor, state) in self.compressors().zip(states) {
            compressor.truncate(position, state);
        }
    }

    /// Attends for a chunk: x [n, D] normed inputs of positions `first..`, out [n, D]. `rotation` and `angles` are those of this kind of layer.
    /// False if rows could not be picked because a score is not a number.
    #[allow(clippy::too_many_arguments)]
    pub fn forward(
        &self,
        config: &Config,
        bytes: &[u8],
        rotation: &Rotation,
        angles: &Angles,
        reference: bool,
        x: &[f32],
        first: usize,
        state: &mut AttentionState,
        work: &mut Work,
        out: &mut [f32],
    ) -> bool {
        let c = config;
        let tokens = x.len() / c.hidden_size;
        let (hd, heads) = (c.head_dim, c.num_attention_heads);

        project(&self.wq_a, bytes, x, &mut work.qr, &mut work.transpose);
        for row in work.qr.chunks_exact_mut(c.q_lora_rank) {
            rms_norm_in_place(row, &self.q_norm, c.rms_norm_eps);
        }
        project(
            &self.wq_b,
            bytes,
            &work.qr,
            &mut work.q,
            &mut work.transpose,
        );
        for (t, token) in work.q.chunks_exact_mut(heads * hd).enumerate() {
            let (cos, sin) = angles.at(t);
            for head in token.chunks_exact_mut(hd) {
                rms_in_place(head, c.rms_norm_eps);
                rotate(head, cos, sin);
            }
        }
        project(&self.wkv, bytes, x, &mut work.kv, &mut work.transpose);
        for (t, row) in work.kv.chunks_exact_mut(hd).enumerate() {
            rms_norm_in_place(row, &self.kv_norm, c.rms_norm_eps);
            let (cos, sin) = angles.at(t);
            rotate(row, cos, sin);
            if reference {
                round_kv(c, row);
            }
        }

        // Everything this chunk adds to the state comes before any token looks: a block closed by a token is visible to that token.
        state.window.push(&work.kv);
        if let (Some(compressor), Some(rows)) = (&self.compressor, &mut state.compressed) {
            let scratch = &mut work.compressor;
            compressor.feed(c, bytes, rotation, reference, x, first, rows, scratch);
        }
        work.picks.clear();
        if let (Some(indexer), Some(keys)) = (&self.indexer, &mut state.index) {
            let picked = indexer.pick(
                c,
                bytes,
                rotation,
                angles,
                reference,
                x,
                &work.qr,
                first,
                keys,
                &mut work.compressor,
                &mut work.indexer,
                &mut work.picks,
            );
            if !picked {
                return false;
            }
        }

        work.o.clear();
        work.o.resize(tokens * heads * hd, 0.0);
        let compressed = state.compressed.as_ref().map_or(&[][..], |s| &s.rows);
        let (window, picks, q) = (&state.window, &work.picks, &work.q);
        let attend = |(index, o): (usize, &mut [f32])| {
            let (t, h) = (index / heads, index % heads);
            let visible = self
                .compressor
                .as_ref()
                .map_or(0, |k| k.finished(first + t + 1));
            attend(
                &q[index * hd..(index + 1) * hd],
                window.between(
                    (first + t + 1).saturating_sub(c.sliding_window),
                    first + t + 1,
                ),
                &compressed[..visible * hd],
                picks.of(t, c.index_topk),
                self.sink[h],
                o,
            );
            let (cos, sin) = angles.at(t);
            rotate_back(o, cos, sin);
        };
        if tokens * heads * hd * c.sliding_window < (1 << 18) {
            work.o.chunks_exact_mut(hd).enumerate().for_each(attend);
        } else {
            work.o.par_chunks_exact_mut(hd).enumerate().for_each(attend);
        }
        self.output(c, bytes, tokens, work, out);
        true
    }

    /// `y = wo_b concat_g(wo_a[g] o_g)`.
    fn output(&self, c: &Config, bytes: &[u8], tokens: usize, work: &mut Work, out: &mut [f32]) {
        let width = c.num_attention_heads * c.head_dim;
        let (group, rank) = (width / c.o_groups, c.o_lora_rank);
        let wo_a = self.wo_a.view(bytes);
        work.z.clear();
        work.z.resize(tokens * c.o_groups * rank, 0.0);
        for g in 0..c.o_groups {
            work.group.clear();
            for token in work.o.chunks_exact(width) {
                work.group
                    .extend_from_slice(&token[g * group..(g + 1) * group]);
            }
            work.z_group.clear();
            work.z_group.resize(tokens * rank, 0.0);
            wo_a.apply_rows(
                g * rank..(g + 1) * rank,
                &work.group,
                &mut work.z_group,
                &mut work.transpose,
            );
            for (t, part) in work.z_group.chunks_exact(rank).enumerate() {
                let at = (t * c.o_groups + g) * rank;
                work.z[at..at + rank].copy_from_slice(part);
            }
        }
        self.wo_b
            .view(bytes)
            .apply(&work.z, out, &mut work.transpose);
    }
}

/// `out = W x` for a chunk, `out` resized to fit.
fn project(weight: &Weight, bytes: &[u8], x: &[f32], out: &mut Vec<f32>, scratch: &mut Vec<f32>) {
    let matrix = weight.view(bytes);
    out.clear();
    out.resize(x.len() / matrix.columns() * matrix.rows(), 0.0);
    matrix.apply(x, out, scratch);
}

thread_local! {
    /// Scores of one head over all the rows it sees; kept so that decoding allocates nothing.
    static SCORES: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// One head of one token: softmax over window rows, compressed rows (all, or the picked ones) and the sink, whose value is zero.
fn attend(
    q: &[f32],
    window: &[f32],
    compressed: &[f32],
    picked: Option<&[u32]>,
    sink: f32,
    out: &mut [f32],
) {
    let hd = q.len();
    let scale = 1.0 / (hd as f32).sqrt();
    let row = |i: &u32| &compressed[*i as usize * hd..(*i as usize + 1) * hd];
    SCORES.with_borrow_mut(|scores| {
        scores.clear();
        scores.extend(window.chunks_exact(hd).map(|r| dot(q, r) * scale));
        match picked {
            Some(picked) => scores.extend(picked.iter().map(|i| dot(q, row(i)) * scale)),
            None => scores.extend(compressed.chunks_exact(hd).map(|r| dot(q, r) * scale)),
        }
        let top = scores.iter().fold(sink, |a, s| a.max(*s));
        let mut sum = exp(sink - top);
        for s in scores.iter_mut() {
            *s = exp(*s - top);
            sum += *s;
        }
        out.fill(0.0);
        let (near, far) = scores.split_at(window.len() / hd);
        for (weight, r) in near.iter().zip(window.chunks_exact(hd)) {
            add_scaled(out, weight / sum, r);
        }
        match picked {
            Some(picked) => {
                for (weight, i) in far.iter().zip(picked) {
                    add_scaled(out, weight / sum, row(i));
                }
            }
            None => {
                for (weight, r) in far.iter().zip(compressed.chunks_exact(hd)) {
                    add_scaled(out, weight / sum, r);
                }
            }
        }
    });
}
