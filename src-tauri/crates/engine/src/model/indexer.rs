//! The lightning indexer: which compressed rows a token attends (section 3.4 of the V4 notes).

use fastar_kernels::vector::{all_finite, dot, rotate};

use super::compressor::{Compressor, CompressorState, Purpose, Scratch, round_index};
use super::config::{Config, Ratio};
use super::rope::{Angles, Rotation};
use super::weights::{Loader, Weight};
use crate::Result;

/// Weights of one indexer.
pub struct Indexer {
    wq_b: Weight,
    weights_proj: Weight,
    /// Builds the keys.
    pub compressor: Compressor,
}

/// Reused buffers.
#[derive(Default)]
pub struct Buffers {
    query: Vec<f32>,
    weight: Vec<f32>,
    score: Vec<f32>,
    order: Vec<u32>,
    transpose: Vec<f32>,
}

/// The picked rows of each token of a chunk, ascending; none for a token that sees no more rows than may be picked.
#[derive(Default)]
pub struct Picks {
    rows: Vec<u32>,
    ends: Vec<Option<usize>>,
}

impl Picks {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.ends.clear();
    }

    /// Picked rows of token `t`; none = all visible ones.
    pub fn of(&self, t: usize, topk: usize) -> Option<&[u32]> {
        let end = (*self.ends.get(t)?)?;
        Some(&self.rows[end - topk..end])
    }
}

impl Indexer {
    /// Loads `{prefix}indexer.*` for layers of ratio 4.
    pub fn load(
        loader: &Loader<'_>,
        config: &Config,
        prefix: &str,
        ratio: Ratio,
    ) -> Result<Option<Self>> {
        if ratio != Ratio::Indexed {
            return Ok(None);
        }
        let (heads, dim) = (config.index_n_heads, config.index_head_dim);
        let compressor = Compressor::load(
            loader,
            config,
            &format!("{prefix}indexer.compressor."),
            ratio,
            dim,
            Purpose::Index,
        )?;
        let wq_b = loader.matrix(
            &format!("{prefix}indexer.wq_b.weight"),
            heads * dim,
            config.q_lora_rank,
        )?;
        let weights_proj = loader.matrix(
            &format!("{prefix}indexer.weights_proj.weight"),
            heads,
            config.hidden_size,
        )?;
        Ok(compressor.map(|compressor| Self {
            wq_b,
            weights_proj,
            compressor,
        }))
    }

    /// Feeds the keys with a chunk, then picks rows for each of its tokens. False if a score is not a number.
    ///
    /// x [n, D] are the normed attention inputs, qr [n, q_lora_rank] the normed low-rank queries, `angles` those of the chunk's positions.
    #[allow(clippy::too_many_arguments)]
    pub fn pick(
        &self,
        config: &Config,
        bytes: &[u8],
        rotation: &Rotation,
        angles: &Angles,
        reference: bool,
        x: &[f32],
        qr: &[f32],
        first: usize,
        state: &mut CompressorState,
        scratch: &mut Scratch,
        work: &mut Buffers,
        picks: &mut Picks,
    ) -> bool {
        self.compressor
            .feed(config, bytes, rotation, reference, x, first, state, scratch);
        picks.clear();
        let tokens = x.len() / config.hidden_size;
        if self.compressor.finished(first + tokens) <= config.index_topk {
            return true; // Everything visible is attended; the keys are all that was needed.
        }
        let (heads, dim) = (config.index_n_heads, config.index_head_dim);
        work.query.clear();
        work.query.resize(tokens * heads * dim, 0.0);
        self.wq_b
            .view(bytes)
            .apply(qr, &mut work.query, &mut work.transpose);
        work.weight.clear();
        work.weight.resize(tokens * heads, 0.0);
        self.weights_proj
            .view(bytes)
            .apply(x, &mut work.weight, &mut work.transpose);
        let scale = 1.0 / ((dim * heads) as f32).sqrt();
        for t in 0..tokens {
            let visible = self.compressor.finished(first + t + 1);
            if visible <= config.index_topk {
                picks.ends.push(None);
                continue;
            }
            let query = &mut work.query[t * heads * dim..(t + 1) * heads * dim];
            let (cos, sin) = angles.at(t);
            for head in query.chunks_exact_mut(dim) {
                rotate(head, cos, sin);
                if reference {
                    round_index(head);
                }
            }
            work.score.clear();
            for key in state.rows.chunks_exact(dim).take(visible) {
                let mut score = 0.0;
                for (head, weight) in query
                    .chunks_exact(dim)
                    .zip(&work.weight[t * heads..(t + 1) * heads])
                {
                    let product = dot(head, key);
                    // Not `max`, which would turn what is not a number into zero.
                    let positive = if product < 0.0 { 0.0 } else { product };
                    score += positive * (weight * scale);
                }
                work.score.push(score);
            }
            if !all_finite(&work.score) {
                return false;
            }
            largest(&work.score, config.index_topk, &mut work.order);
            picks.rows.extend(&work.order);
            picks.ends.push(Some(picks.rows.len()));
        }
        true
    }
}

/// Indices of the `k` largest scores, ties to the lower index, in ascending order of index. `k` is below the number of scores.
pub fn largest(score: &[f32], k: usize, order: &mut Vec<u32>) {
    order.clear();
    order.extend(0..score.len() as u32);
    let by_score = |a: &u32, b: &u32| {
        score[*b as usize]
            .total_cmp(&score[*a as usize])
            .then(a.cmp(b))
    };
    if k < order.len() {
        order.select_nth_unstable_by(k, by_score);
        order.truncate(k);
    }
    order.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_keeps_the_lower_index_of_equal_scores() {
        let mut order = Vec::new();
        largest(&[1.0, 3.0, 2.0, 3.0, 2.0, 2.0], 3, &mut order);
        assert_eq!(order, [1, 2, 3]);
        largest(&[0.0; 5], 2, &mut order);
        assert_eq!(order, [0, 1]);
        largest(&[-1.0, -2.0, -0.5], 1, &mut order);
        assert_eq!(order, [2]);
    }
}
