//! The lightning indexer: which compressed rows a token attends (section 3.4 of the V4 notes).

use std::cell::RefCell;

use fastar_kernels::attention::{ROWS, dots};
use fastar_kernels::matrix::Matrix;
use fastar_kernels::team;
use fastar_kernels::vector::{all_finite, positive_sum, rotate};

use super::compressor::{Compressor, CompressorState, Purpose, round_index};
use super::config::{Config, Ratio};
use super::pass::Pass;
use super::rope::Angles;
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

    /// Whether a chunk that ends at position `end` sees more rows than may be picked, so that some must be.
    pub fn must_pick(&self, config: &Config, end: usize) -> bool {
        self.compressor.finished(end) > config.index_topk
    }

    /// The weight of each head, to be computed from the normed attention inputs where rows must be picked.
    pub fn head_weights<'a>(
        &'a self,
        bytes: &'a [u8],
        work: &'a mut Buffers,
    ) -> (Matrix<'a>, &'a mut Vec<f32>) {
        (self.weights_proj.view(bytes), &mut work.weight)
    }

    /// The queries, likewise, from the normed low-rank queries.
    pub fn queries<'a>(
        &'a self,
        bytes: &'a [u8],
        work: &'a mut Buffers,
    ) -> (Matrix<'a>, &'a mut Vec<f32>) {
        (self.wq_b.view(bytes), &mut work.query)
    }

    /// Picks rows for each token of a chunk, from projections in `work` and the keys in `state`. False if a score is not a number.
    ///
    /// `angles` are those of the chunk's positions.
    #[allow(clippy::too_many_arguments)]
    pub fn pick(
        &self,
        pass: Pass<'_>,
        angles: &Angles,
        tokens: usize,
        first: usize,
        state: &CompressorState,
        work: &mut Buffers,
        picks: &mut Picks,
    ) -> bool {
        let c = pass.config;
        let (heads, dim) = (c.index_n_heads, c.index_head_dim);
        team::for_each_row(&mut work.query, heads * dim, |t, query| {
            let (cos, sin) = angles.at(t);
            for head in query.chunks_exact_mut(dim) {
                rotate(head, cos, sin);
                if pass.reference {
                    round_index(head);
                }
            }
        });
        let scale = 1.0 / ((dim * heads) as f32).sqrt();
        for weight in &mut work.weight {
            *weight *= scale;
        }
        for t in 0..tokens {
            let visible = self.compressor.finished(first + t + 1);
            if visible <= c.index_topk {
                picks.ends.push(None);
                continue;
            }
            let query = &work.query[t * heads * dim..(t + 1) * heads * dim];
            let weight = &work.weight[t * heads..(t + 1) * heads];
            work.score.resize(visible, 0.0);
            let keys = &state.rows[..visible * dim];
            team::for_each_of(
                visible.div_ceil(KEYS),
                work.score.chunks_mut(KEYS).zip(keys.chunks(KEYS * dim)),
                |(score, keys)| scores(query, weight, dim, keys, score),
            );
            if !all_finite(&work.score) {
                return false;
            }
            largest(&work.score, c.index_topk, &mut work.order);
            picks.rows.extend(&work.order);
            picks.ends.push(Some(picks.rows.len()));
        }
        true
    }
}

/// Keys a thread takes at a time.
const KEYS: usize = 256;

thread_local! {
    /// Products of all heads with a few keys; kept so that decoding allocates nothing.
    static PRODUCTS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// `score[i] = sum over heads of max(query . key[i], 0) * weight`.
fn scores(query: &[f32], weight: &[f32], dim: usize, keys: &[f32], score: &mut [f32]) {
    PRODUCTS.with_borrow_mut(|products| {
        products.resize(weight.len() * ROWS, 0.0);
        for (keys, score) in keys.chunks(ROWS * dim).zip(score.chunks_mut(ROWS)) {
            let mut rows: [&[f32]; ROWS] = [&[]; ROWS];
            for (row, key) in rows.iter_mut().zip(keys.chunks_exact(dim)) {
                *row = key;
            }
            dots(query, dim, &rows[..score.len()], products, ROWS);
            positive_sum(products, ROWS, weight, score);
        }
    });
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
