//! Which experts a layer will take, told to the pager before their time.
//!
//! The router is applied to a state that the layer will get only later, and something between them is still missing: the experts of the layer
//! before and the attention, or the attention alone. What it names is a guess, and the pager knows how good such guesses are.

use fastar_kernels::product::{Product, Vectors, multiply};
use fastar_kernels::vector::sqrt_softplus;

use super::{Choice, Moe};
use crate::model::experts::{Experts, Records, Wanted};
use crate::model::indexer::largest;
use crate::model::pass::Pass;
use crate::pager::{FEW, Pager, Sight};

/// Reused buffers.
#[derive(Default)]
pub struct Ahead {
    x: Vectors,
    score: Vec<f32>,
    likely: Vec<u32>,
    /// How many tokens take each expert.
    counts: Vec<u32>,
    wanted: Vec<Wanted>,
}

impl Moe {
    /// Experts that `tokens` take whatever is computed; none where scores choose. Ascending, each once.
    pub fn foreseen(&self, tokens: &[u32], taken: usize) -> Option<Vec<u32>> {
        let mut experts: Vec<u32> = self.by_hash(tokens, taken)?.copied().collect();
        experts.sort_unstable();
        experts.dedup();
        Some(experts)
    }

    fn by_hash<'a>(
        &'a self,
        tokens: &'a [u32],
        taken: usize,
    ) -> Option<impl Iterator<Item = &'a u32>> {
        let Choice::Hash(table) = &self.choice else {
            return None;
        };
        let rows = tokens.iter().map(move |token| *token as usize * taken);
        Some(rows.flat_map(move |row| &table[row..row + taken]))
    }

    /// Before the attention of this layer: tells the pager what a chunk takes for certain, and says whether to guess what `tokens` will take, and
    /// as what kind of guess.
    pub fn before_attention(
        &self,
        pass: Pass<'_>,
        tokens: &[u32],
        ahead: &mut Ahead,
    ) -> Option<Sight> {
        let (layer, pager) = self.paged(pass)?;
        let is_chunk = tokens.len() > FEW;
        if let Some(taken) = self.by_hash(tokens, pass.config.num_experts_per_tok) {
            if is_chunk {
                ahead.count(pass.config.n_routed_experts, taken);
                pager.expect(layer, &ahead.wanted, true);
            }
            return None;
        }
        let sight = match tokens.len() {
            1 => Sight::BeforeAttention,
            _ if is_chunk => Sight::Chunk,
            _ => return None,
        };
        pager.wants(layer, sight).then_some(sight)
    }

    /// Whether to guess what this layer takes while the one before computes its experts. Its inputs then have a form that fits both routers.
    pub fn before_layer(&self, pass: Pass<'_>, tokens: usize) -> bool {
        let paged = self.paged(pass).filter(|_| tokens == 1);
        matches!(self.choice, Choice::Score(_))
            && paged.is_some_and(|(layer, pager)| pager.wants(layer, Sight::LayerBefore))
    }

    /// Guesses from the normed state x [n, D].
    pub fn guess(&self, pass: Pass<'_>, sight: Sight, x: &[f32], ahead: &mut Ahead) {
        let form = self.gate.view(pass.bytes).form(pass.arithmetic);
        let mut vectors = std::mem::take(&mut ahead.x);
        vectors.prepare(x, pass.config.hidden_size, [form]);
        self.guess_from(pass, sight, &vectors, ahead);
        ahead.x = vectors;
    }

    /// The same from a state in the form that the router reads.
    pub fn guess_from(&self, pass: Pass<'_>, sight: Sight, x: &Vectors, ahead: &mut Ahead) {
        let (Some((layer, pager)), Choice::Score(bias)) = (self.paged(pass), &self.choice) else {
            return;
        };
        let router = self.gate.view(pass.bytes);
        let (experts, taken) = (router.rows(), pass.config.num_experts_per_tok);
        ahead.score.resize(x.tokens() * experts, 0.0);
        multiply(&mut [Product::new(router, pass.arithmetic, x, &mut ahead.score)]);
        let mut counts = std::mem::take(&mut ahead.counts);
        counts.clear();
        counts.resize(experts, 0);
        for score in ahead.score.chunks_exact_mut(experts) {
            sqrt_softplus(score);
            for (a, bias) in score.iter_mut().zip(bias) {
                *a += bias;
            }
            largest(score, taken, &mut ahead.likely);
            for expert in &ahead.likely {
                counts[*expert as usize] += 1;
            }
        }
        if sight == Sight::Chunk {
            ahead.want(&counts);
            pager.expect(layer, &ahead.wanted, false);
        } else {
            let score = &ahead.score;
            let of = |expert: &u32| score[*expert as usize];
            ahead.likely.sort_by(|a, b| of(b).total_cmp(&of(a)));
            pager.guess(layer, sight, &ahead.likely);
        }
        ahead.counts = counts;
    }

    fn paged<'a>(&self, pass: Pass<'a>) -> Option<(usize, &'a Pager)> {
        match (&self.experts, pass.records) {
            (Experts::Records(layer), Records::Pager(pager, _)) => Some((*layer, pager)),
            _ => None,
        }
    }
}

impl Ahead {
    /// `wanted` becomes the experts among `taken`, of so many there are.
    fn count<'a>(&mut self, experts: usize, taken: impl Iterator<Item = &'a u32>) {
        let mut counts = std::mem::take(&mut self.counts);
        counts.clear();
        counts.resize(experts, 0);
        for expert in taken {
            counts[*expert as usize] += 1;
        }
        self.want(&counts);
        self.counts = counts;
    }

    fn want(&mut self, counts: &[u32]) {
        self.wanted.clear();
        let taken = (0..).zip(counts).filter(|(_, count)| **count > 0);
        self.wanted
            .extend(taken.map(|(expert, count)| (expert, *count)));
    }
}
