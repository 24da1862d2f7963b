//! The expert layer: routing, routed experts and the shared one (section 3.5 of the V4 notes).

use fastar_fst::{Container, ExpertLayout};
use fastar_kernels::matrix::Matrix;
use fastar_kernels::vector::{all_finite, silu, softplus};

use super::config::Config;
use super::indexer::largest;
use super::weights::{Loader, Weight, expert_matrix};
use crate::{Error, Result};

/// Where a layer's routed experts lie.
pub enum Experts {
    /// In the container's records of this layer.
    Records(usize),
    /// Among the dense tensors (MTP blocks).
    Dense(Vec<[Weight; 3]>),
}

/// How a token's experts are chosen.
enum Choice {
    /// By the token's id, [vocab, k].
    Hash(Vec<u32>),
    /// The largest scores after this bias; weights come from the scores without it.
    Score(Vec<f32>),
}

/// Weights of one expert layer.
pub struct Moe {
    gate: Weight,
    choice: Choice,
    shared: [Weight; 3],
    experts: Experts,
}

/// Reused buffers.
#[derive(Default)]
pub struct Work {
    score: Vec<f32>,
    biased: Vec<f32>,
    picked: Vec<u32>,
    /// (expert, token, weight) of everything to compute, sorted.
    calls: Vec<(u32, u32, f32)>,
    x: Vec<f32>,
    up: Vec<f32>,
    gate: Vec<f32>,
    down: Vec<f32>,
    transpose: Vec<f32>,
}

impl Moe {
    /// Loads `{prefix}*` (`layers.0.ffn.`).
    pub fn load(
        loader: &Loader<'_>,
        config: &Config,
        prefix: &str,
        hashed: bool,
        experts: Experts,
    ) -> Result<Self> {
        let c = config;
        let choice = if hashed {
            Choice::Hash(loader.ids(
                &format!("{prefix}gate.tid2eid"),
                c.vocab_size,
                c.num_experts_per_tok,
                c.n_routed_experts,
            )?)
        } else {
            Choice::Score(loader.values(&format!("{prefix}gate.bias"), &[c.n_routed_experts])?)
        };
        Ok(Self {
            gate: loader.matrix(
                &format!("{prefix}gate.weight"),
                c.n_routed_experts,
                c.hidden_size,
            )?,
            choice,
            shared: dense_expert(loader, c, &format!("{prefix}shared_experts."))?,
            experts,
        })
    }

    /// x [n, D] normed inputs, tokens [n] their ids, out [n, D].
    pub fn forward(
        &self,
        config: &Config,
        container: &Container,
        x: &[f32],
        tokens: &[u32],
        work: &mut Work,
        out: &mut [f32],
    ) -> Result<()> {
        let (c, d) = (config, config.hidden_size);
        let bytes = container.bytes();
        if !self.route(c, bytes, x, tokens, work) {
            out.fill(f32::NAN); // Told by the caller, with the layer's number.
            return Ok(());
        }
        let shared = self.shared.each_ref().map(|w| w.view(bytes));
        work.gate.clear(); // No weights: the shared expert counts in full.
        work.x.clear();
        work.x.extend_from_slice(x);
        run(shared, c, &[], work);
        out.copy_from_slice(&work.down);

        // Experts in ascending order: the order in which a token sums its experts does not depend on the chunk.
        let calls = std::mem::take(&mut work.calls);
        let result = calls
            .chunk_by(|a, b| a.0 == b.0)
            .try_for_each(|group| -> Result<()> {
                work.x.clear();
                for (_, token, _) in group {
                    let t = *token as usize;
                    work.x.extend_from_slice(&x[t * d..(t + 1) * d]);
                }
                let expert = group[0].0 as usize;
                let matrices = match &self.experts {
                    Experts::Records(layer) => {
                        record(container.expert(*layer, expert)?, container.expert_layout())?
                    }
                    Experts::Dense(all) => all[expert].each_ref().map(|w| w.view(bytes)),
                };
                run(matrices, c, group, work);
                for ((_, token, _), y) in group.iter().zip(work.down.chunks_exact(d)) {
                    let t = *token as usize;
                    for (o, v) in out[t * d..(t + 1) * d].iter_mut().zip(y) {
                        *o += v;
                    }
                }
                Ok(())
            });
        work.calls = calls;
        result
    }

    /// Fills `work.calls` for a chunk. False if a score is not a number.
    fn route(&self, c: &Config, bytes: &[u8], x: &[f32], tokens: &[u32], work: &mut Work) -> bool {
        let (experts, k) = (c.n_routed_experts, c.num_experts_per_tok);
        work.score.clear();
        work.score.resize(tokens.len() * experts, 0.0);
        self.gate
            .view(bytes)
            .apply(x, &mut work.score, &mut work.transpose);
        work.calls.clear();
        for (t, (score, token)) in work.score.chunks_exact_mut(experts).zip(tokens).enumerate() {
            for a in score.iter_mut() {
                *a = softplus(*a).sqrt();
            }
            match &self.choice {
                Choice::Hash(table) => {
                    let row = *token as usize * k;
                    work.picked.clear();
                    work.picked.extend_from_slice(&table[row..row + k]);
                }
                Choice::Score(bias) => {
                    work.biased.clear();
                    work.biased
                        .extend(score.iter().zip(bias).map(|(a, b)| a + b));
                    if !all_finite(&work.biased) {
                        return false;
                    }
                    largest(&work.biased, k, &mut work.picked);
                }
            }
            let sum: f32 = work.picked.iter().map(|e| score[*e as usize]).sum();
            work.calls.extend(work.picked.iter().map(|e| {
                let weight = score[*e as usize] / sum * c.routed_scaling_factor;
                (*e, t as u32, weight)
            }));
        }
        // Stable: an expert that a hash table names twice for a token is summed twice.
        work.calls
            .sort_by_key(|(expert, token, _)| (*expert, *token));
        true
    }
}

/// Gate, up and down of an expert stored among the dense tensors.
pub fn dense_expert(loader: &Loader<'_>, c: &Config, prefix: &str) -> Result<[Weight; 3]> {
    let (i, d) = (c.moe_intermediate_size, c.hidden_size);
    Ok([
        loader.matrix(&format!("{prefix}w1.weight"), i, d)?,
        loader.matrix(&format!("{prefix}w3.weight"), i, d)?,
        loader.matrix(&format!("{prefix}w2.weight"), d, i)?,
    ])
}

fn record<'a>(bytes: &'a [u8], layout: &ExpertLayout) -> Result<[Matrix<'a>; 3]> {
    match (
        expert_matrix(&layout.gate, bytes),
        expert_matrix(&layout.up, bytes),
        expert_matrix(&layout.down, bytes),
    ) {
        (Some(gate), Some(up), Some(down)) => Ok([gate, up, down]),
        _ => Err(unknown_layout(layout)),
    }
}

/// The error for expert records this engine cannot read.
pub fn unknown_layout(layout: &ExpertLayout) -> Error {
    Error::Tensor(format!(
        "The experts of this model file are stored as `{}` in a way this version cannot read. Convert the checkpoint again.",
        layout.id
    ))
}

/// `down (silu(min(gate x, limit)) * clamp(up x, limit) * weight)` for the rows of `work.x`, into `work.down`.
/// `calls` gives each row's weight; empty means one.
fn run([gate, up, down]: [Matrix<'_>; 3], c: &Config, calls: &[(u32, u32, f32)], work: &mut Work) {
    let rows = work.x.len() / c.hidden_size;
    let inner = c.moe_intermediate_size;
    for (matrix, out) in [(gate, &mut work.gate), (up, &mut work.up)] {
        out.clear();
        out.resize(rows * inner, 0.0);
        matrix.apply(&work.x, out, &mut work.transpose);
    }
    let limit = if c.swiglu_limit > 0.0 {
        c.swiglu_limit
    } else {
        f32::INFINITY
    };
    let gates = work.gate.chunks_exact_mut(inner);
    for (r, (gate, up)) in gates.zip(work.up.chunks_exact(inner)).enumerate() {
        let weight = calls.get(r).map_or(1.0, |call| call.2);
        for (g, u) in gate.iter_mut().zip(up) {
            // The gate is bounded from above only. Not `min`, which would turn what is not a number into the limit.
            let bounded = if *g > limit { limit } else { *g };
            *g = silu(bounded) * u.clamp(-limit, limit) * weight;
        }
    }
    work.down.clear();
    work.down.resize(rows * c.hidden_size, 0.0);
    down.apply(&work.gate, &mut work.down, &mut work.transpose);
}
