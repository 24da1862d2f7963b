//! Attention over one shared key-value row per token: a window, compressed rows and a sink (section 3.2 of the V4 notes).
//!
//! A chunk first writes everything it adds to the state (window rows, compressed rows, index keys), then each of its tokens attends to
//! what it may see. Every head of every token is an independent sum in chronological order, so chunking changes nothing.

use std::cell::RefCell;

use fastar_kernels::attention::{ROWS, add_rows, dots};
use fastar_kernels::product::{Product, Vectors, multiply};
use fastar_kernels::team;
use fastar_kernels::vector::{
    exp, exp_sum, largest, rms_in_place, rms_norm_in_place, rotate, rotate_back, scale_by,
};

use super::compressor::{Compressor, CompressorState, Purpose, Scratch, round_kv};
use super::config::{Config, Ratio};
use super::history::History;
use super::indexer::{Buffers, Indexer, Picks};
use super::pass::Pass;
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
    vectors: Vectors,
    qr: Vec<f32>,
    q: Vec<f32>,
    kv: Vec<f32>,
    o: Vec<f32>,
    group: Vec<f32>,
    groups: Vec<Vectors>,
    z: Vec<f32>,
    z_groups: Vec<f32>,
    compressor: Scratch,
    index_compressor: Scratch,
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
        pass: Pass<'_>,
        rotation: &Rotation,
        angles: &Angles,
        x: &[f32],
        first: usize,
        state: &mut AttentionState,
        work: &mut Work,
        out: &mut [f32],
    ) -> bool {
        let (c, bytes) = (pass.config, pass.bytes);
        let tokens = x.len() / c.hidden_size;
        let (hd, eps) = (c.head_dim, c.rms_norm_eps);
        let picking = self
            .indexer
            .as_ref()
            .filter(|i| i.must_pick(c, first + tokens));

        // Everything that reads x, then everything that reads the low-rank queries.
        let mut parts = Vec::with_capacity(7);
        parts.push((self.wq_a.view(bytes), &mut work.qr));
        parts.push((self.wkv.view(bytes), &mut work.kv));
        if let Some(compressor) = &self.compressor {
            parts.extend(compressor.projections(bytes, &mut work.compressor));
        }
        if let Some(indexer) = &self.indexer {
            let keys = &indexer.compressor;
            parts.extend(keys.projections(bytes, &mut work.index_compressor));
        }
        if let Some(indexer) = picking {
            parts.push(indexer.head_weights(bytes, &mut work.indexer));
        }
        pass.project(x, &mut work.vectors, &mut parts);
        drop(parts);
        for row in work.qr.chunks_exact_mut(c.q_lora_rank) {
            rms_norm_in_place(row, &self.q_norm, eps);
        }
        let mut parts = Vec::with_capacity(2);
        parts.push((self.wq_b.view(bytes), &mut work.q));
        if let Some(indexer) = picking {
            parts.push(indexer.queries(bytes, &mut work.indexer));
        }
        pass.project(&work.qr, &mut work.vectors, &mut parts);
        drop(parts);
        for (t, row) in work.kv.chunks_exact_mut(hd).enumerate() {
            rms_norm_in_place(row, &self.kv_norm, eps);
            let (cos, sin) = angles.at(t);
            rotate(row, cos, sin);
            if pass.reference {
                round_kv(c, row);
            }
        }

        // Everything this chunk adds to the state comes before any token looks: a block closed by a token is visible to that token.
        state.window.push(&work.kv);
        if let (Some(compressor), Some(rows)) = (&self.compressor, &mut state.compressed) {
            let scratch = &mut work.compressor;
            compressor.feed(pass, rotation, tokens, first, rows, scratch);
        }
        work.picks.clear();
        if let (Some(indexer), Some(keys)) = (&self.indexer, &mut state.index) {
            let scratch = &mut work.index_compressor;
            let compressor = &indexer.compressor;
            compressor.feed(pass, rotation, tokens, first, keys, scratch);
            if picking.is_some() {
                let (buffers, picks) = (&mut work.indexer, &mut work.picks);
                if !indexer.pick(pass, angles, tokens, first, keys, buffers, picks) {
                    return false;
                }
            }
        }
        self.attend(pass, angles, first, state, work);
        self.output(pass, tokens, work, out);
        true
    }

    /// Every head of every token, from `work.q` into `work.o`, both [n, heads, hd].
    fn attend(
        &self,
        pass: Pass<'_>,
        angles: &Angles,
        first: usize,
        state: &AttentionState,
        work: &mut Work,
    ) {
        let c = pass.config;
        let (hd, heads) = (c.head_dim, c.num_attention_heads);
        let compressed = state.compressed.as_ref().map_or(&[][..], |s| &s.rows);
        let (window, picks, q) = (&state.window, &work.picks, &work.q);
        work.o.resize(q.len(), 0.0);
        // Heads of a task: they share what they read, and there are enough tasks for many threads.
        let together = if heads.is_multiple_of(HEADS_TOGETHER) {
            HEADS_TOGETHER
        } else {
            heads
        };
        team::for_each_row(&mut work.o, together * hd, |task, o| {
            let (t, h) = (task * together / heads, task * together % heads);
            let end = first + t + 1;
            let visible = self.compressor.as_ref().map_or(0, |k| k.finished(end));
            let rows = Rows {
                window: window.between(end.saturating_sub(c.sliding_window), end),
                compressed: &compressed[..visible * hd],
                picked: picks.of(t, c.index_topk),
                width: hd,
            };
            let (cos, sin) = angles.at(t);
            QUERY.with_borrow_mut(|query| {
                query.clear();
                query.extend_from_slice(&q[task * together * hd..(task + 1) * together * hd]);
                for head in query.chunks_exact_mut(hd) {
                    rms_in_place(head, c.rms_norm_eps);
                    rotate(head, cos, sin);
                }
                attend(query, rows, &self.sink[h..h + together], o);
            });
            for head in o.chunks_exact_mut(hd) {
                rotate_back(head, cos, sin);
            }
        });
    }

    /// `y = wo_b concat_g(wo_a[g] o_g)`.
    fn output(&self, pass: Pass<'_>, tokens: usize, work: &mut Work, out: &mut [f32]) {
        let c = pass.config;
        let width = c.num_attention_heads * c.head_dim;
        let (groups, rank) = (c.o_groups, c.o_lora_rank);
        let group = width / groups;
        let wo_a = self.wo_a.view(pass.bytes);
        let form = wo_a.form(pass.arithmetic);
        work.groups.resize_with(groups, Vectors::default);
        for (g, vectors) in work.groups.iter_mut().enumerate() {
            if tokens == 1 {
                vectors.prepare(&work.o[g * group..(g + 1) * group], group, [form]);
                continue;
            }
            work.group.clear();
            for token in work.o.chunks_exact(width) {
                work.group
                    .extend_from_slice(&token[g * group..(g + 1) * group]);
            }
            vectors.prepare(&work.group, group, [form]);
        }
        work.z_groups.resize(groups * tokens * rank, 0.0);
        let mut products: Vec<_> = work
            .groups
            .iter()
            .zip(work.z_groups.chunks_exact_mut(tokens * rank))
            .enumerate()
            .map(|(g, (x, z))| {
                Product::of_rows(wo_a, g * rank..(g + 1) * rank, pass.arithmetic, x, z)
            })
            .collect();
        multiply(&mut products);
        drop(products);
        let z = if tokens == 1 {
            &work.z_groups
        } else {
            // From [group, token] to [token, group].
            work.z.resize(groups * tokens * rank, 0.0);
            for (g, part) in work.z_groups.chunks_exact(tokens * rank).enumerate() {
                for (t, row) in part.chunks_exact(rank).enumerate() {
                    let at = (t * groups + g) * rank;
                    work.z[at..at + rank].copy_from_slice(row);
                }
            }
            &work.z
        };
        let wo_b = self.wo_b.view(pass.bytes);
        work.vectors
            .prepare(z, groups * rank, [wo_b.form(pass.arithmetic)]);
        multiply(&mut [Product::new(wo_b, pass.arithmetic, &work.vectors, out)]);
    }
}

/// Heads that one task attends for.
const HEADS_TOGETHER: usize = 8;

thread_local! {
    /// Queries of a task's heads, normed and rotated.
    static QUERY: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    /// Scores of a task's heads over all the rows they see. Both are kept so that decoding allocates nothing.
    static SCORES: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// What one token sees: its window, then compressed rows, all or the picked ones.
#[derive(Clone, Copy)]
struct Rows<'a> {
    window: &'a [f32],
    compressed: &'a [f32],
    picked: Option<&'a [u32]>,
    width: usize,
}

impl<'a> Rows<'a> {
    fn count(&self) -> usize {
        let far = self.compressed.len() / self.width;
        self.window.len() / self.width + self.picked.map_or(far, <[u32]>::len)
    }

    fn at(&self, i: usize) -> &'a [f32] {
        let near = self.window.len() / self.width;
        let (rows, i) = match (i.checked_sub(near), self.picked) {
            (None, _) => (self.window, i),
            (Some(far), None) => (self.compressed, far),
            (Some(far), Some(picked)) => (self.compressed, picked[far] as usize),
        };
        &rows[i * self.width..(i + 1) * self.width]
    }

    /// The rows a few at a time, each time with the number of the first.
    fn for_each_few(&self, mut f: impl FnMut(usize, &[&'a [f32]])) {
        let count = self.count();
        let mut few: [&[f32]; ROWS] = [&[]; ROWS];
        for first in (0..count).step_by(ROWS) {
            let n = ROWS.min(count - first);
            for (i, row) in few.iter_mut().take(n).enumerate() {
                *row = self.at(first + i);
            }
            f(first, &few[..n]);
        }
    }
}

/// Some heads of one token, q [heads, hd]: softmax over the rows and the sink, whose value is zero.
fn attend(q: &[f32], rows: Rows<'_>, sinks: &[f32], out: &mut [f32]) {
    let (hd, count) = (rows.width, rows.count());
    let scale = 1.0 / (hd as f32).sqrt();
    out.fill(0.0);
    SCORES.with_borrow_mut(|scores| {
        scores.resize(sinks.len() * count, 0.0);
        rows.for_each_few(|first, few| dots(q, hd, few, &mut scores[first..], count));
        for (scores, sink) in scores.chunks_exact_mut(count).zip(sinks) {
            scale_by(scores, scale);
            let top = largest(scores, *sink);
            let sum = exp(sink - top) + exp_sum(scores, top);
            scale_by(scores, 1.0 / sum);
        }
        rows.for_each_few(|first, few| add_rows(&scores[first..], count, few, hd, out));
    });
}
