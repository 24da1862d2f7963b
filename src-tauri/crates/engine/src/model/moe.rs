//! The expert layer: routing, routed experts and the shared one (section 3.5 of the V4 notes).
//!
//! Experts are computed as they come ([`experts`](super::experts)); a token adds them up in ascending order of their ids, after the shared one, whenever
//! they came and however many tokens a chunk has.

mod ahead;

use std::ops::Range;

use fastar_kernels::product::{Form, Product, Vectors, multiply};
use fastar_kernels::team;
use fastar_kernels::vector::{add_scaled, all_finite, sqrt_softplus, swiglu};

use super::config::Config;
use super::experts::{Arrived, Experts, Order, Wanted, dense_expert};
use super::indexer::largest;
use super::pass::Pass;
use super::weights::{Loader, Weight};
use crate::Result;
use crate::pager::{FEW, Sight};
pub use ahead::Ahead;

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

/// An expert's output that a token wants.
#[derive(Clone, Copy)]
struct Call {
    expert: u32,
    token: usize,
    weight: f32,
}

/// Reused buffers.
#[derive(Default)]
pub struct Work {
    x: Vectors,
    score: Vec<f32>,
    biased: Vec<f32>,
    picked: Vec<u32>,
    /// Everything to compute, by expert, then by token.
    calls: Vec<Call>,
    /// The experts called, ascending, and for each the end of its calls.
    wanted: Vec<Wanted>,
    ends: Vec<usize>,
    shared_gate: Vec<f32>,
    shared_up: Vec<f32>,
    shared_inner: Vectors,
    shared_down: Vec<f32>,
    batch: Batch,
    pub ahead: Ahead,
    /// The experts of each token, layer by layer, where they are recorded: [layers, n, taken].
    pub routes: Option<Vec<u16>>,
}

/// Buffers for experts that have come together.
#[derive(Default)]
struct Batch {
    /// Each expert's inputs, where they are not those of all tokens.
    inputs: Vec<Vectors>,
    inner: Vec<Vectors>,
    tokens: Vec<usize>,
    gathered: Vec<f32>,
    /// [calls, inner width].
    gate: Vec<f32>,
    up: Vec<f32>,
    /// [calls, D].
    down: Vec<f32>,
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

    /// x [n, D] normed inputs, tokens [n] their ids, out [n, D]. `next` is the layer that comes after this one.
    pub fn forward(
        &self,
        pass: Pass<'_>,
        next: Option<&Moe>,
        x: &[f32],
        tokens: &[u32],
        work: &mut Work,
        out: &mut [f32],
    ) -> Result<()> {
        let (c, d) = (pass.config, pass.config.hidden_size);
        // Experts read the same inputs; what form they want is known when they come, and eight bits are what is shared among them. The router goes
        // first and alone, so that the disk does not wait for the shared expert.
        let router = self.gate.view(pass.bytes);
        let [gate, up, down] = self.shared.each_ref().map(|w| w.view(pass.bytes));
        let forms = [router, gate, up].map(|m| m.form(pass.arithmetic));
        let eight = d.is_multiple_of(fastar_kernels::activations::BLOCK);
        work.x
            .prepare(x, d, forms.into_iter().chain(eight.then_some(Form::Eight)));
        let n = tokens.len();
        work.score.resize(n * router.rows(), 0.0);
        multiply(&mut [Product::new(
            router,
            pass.arithmetic,
            &work.x,
            &mut work.score,
        )]);
        if !self.route(c, tokens, work) {
            out.fill(f32::NAN); // Told by the caller, with the layer's number.
            return Ok(());
        }
        let records = self.experts.request(pass, &work.wanted)?;
        if let Some(next) = next
            && next.before_layer(pass, n)
            && next.gate.view(pass.bytes).form(pass.arithmetic) == forms[0]
        {
            next.guess_from(pass, Sight::LayerBefore, &work.x, &mut work.ahead);
        }
        let parts = [(gate, &mut work.shared_gate), (up, &mut work.shared_up)];
        multiply(&mut parts.map(|(m, to)| {
            to.resize(n * m.rows(), 0.0);
            Product::new(m, pass.arithmetic, &work.x, to)
        }));
        activate(c, &mut work.shared_gate, &work.shared_up, |_| 1.0);
        let inner = c.moe_intermediate_size;
        let form = down.form(pass.arithmetic);
        work.shared_inner.prepare(&work.shared_gate, inner, [form]);
        let shared = |to| Product::new(down, pass.arithmetic, &work.shared_inner, to);

        let (calls, ends) = (work.calls.as_slice(), work.ends.as_slice());
        let calls_of = |place: usize| place.checked_sub(1).map_or(0, |p| ends[p])..ends[place];
        let batch = &mut work.batch;
        if n <= FEW {
            // Experts may come in any order: outputs (16 KB each for Flash) lie at the places of their calls; the shared expert is computed beside those that come first.
            work.shared_down.resize(n * d, 0.0);
            batch.down.resize(calls.len() * d, 0.0);
            let mut shared = Some(shared(&mut work.shared_down));
            let each = &mut |arrived: &[Arrived<'_>]| {
                batch.compute(pass, x, &work.x, arrived, calls, calls_of, shared.take());
            };
            records.visit(Order::Any, each)?;
            out.copy_from_slice(&work.shared_down);
            add_up(calls, &work.batch.down, d, out);
        } else {
            multiply(&mut [shared(&mut *out)]);
            let each = &mut |arrived: &[Arrived<'_>]| {
                let Some((first, last)) = arrived.first().zip(arrived.last()) else {
                    return;
                };
                let (start, end) = (calls_of(first.0).start, calls_of(last.0).end);
                let calls = &calls[start..end];
                batch.down.resize(calls.len() * d, 0.0);
                let rows = |place| calls_of(place).start - start..calls_of(place).end - start;
                batch.compute(pass, x, &work.x, arrived, calls, rows, None);
                add_up(calls, &batch.down, d, out);
            };
            records.visit(Order::Ascending, each)?;
        }
        Ok(())
    }

    /// Fills `work.calls` for a chunk from the router's products in `work.score`. False if a score is not a number.
    fn route(&self, c: &Config, tokens: &[u32], work: &mut Work) -> bool {
        let (experts, k) = (c.n_routed_experts, c.num_experts_per_tok);
        work.calls.clear();
        for (t, (score, token)) in work.score.chunks_exact_mut(experts).zip(tokens).enumerate() {
            sqrt_softplus(score);
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
            if let Some(routes) = &mut work.routes {
                let start = routes.len();
                routes.extend(work.picked.iter().map(|expert| *expert as u16));
                routes[start..].sort_unstable();
            }
            let sum: f32 = work.picked.iter().map(|e| score[*e as usize]).sum();
            work.calls.extend(work.picked.iter().map(|e| Call {
                expert: *e,
                token: t,
                weight: score[*e as usize] / sum * c.routed_scaling_factor,
            }));
        }
        // Stable: an expert that a hash table names twice for a token is summed twice.
        work.calls.sort_by_key(|call| (call.expert, call.token));
        work.wanted.clear();
        work.ends.clear();
        for group in work.calls.chunk_by(|a, b| a.expert == b.expert) {
            work.wanted.push((group[0].expert, group.len() as u32));
            work.ends
                .push(work.ends.last().copied().unwrap_or(0) + group.len());
        }
        true
    }
}

/// `gate = silu(min(gate, limit)) * clamp(up, limit) * weight` for each row of both.
fn activate(c: &Config, gate: &mut [f32], up: &[f32], weight: impl Fn(usize) -> f32 + Sync) {
    let inner = c.moe_intermediate_size;
    let limit = if c.swiglu_limit > 0.0 {
        c.swiglu_limit
    } else {
        f32::INFINITY
    };
    team::for_each_row(gate, inner, |row, gate| {
        let up = &up[row * inner..(row + 1) * inner];
        swiglu(gate, up, limit, weight(row));
    });
}

/// Adds each call's output, [D], to that of its token, in the order of the calls.
fn add_up(calls: &[Call], outputs: &[f32], d: usize, out: &mut [f32]) {
    for (call, y) in calls.iter().zip(outputs.chunks_exact(d)) {
        add_scaled(&mut out[call.token * d..(call.token + 1) * d], 1.0, y);
    }
}

impl Batch {
    /// The outputs of experts for their calls, into `self.down` at the rows that `rows` gives for an expert's place. `also` is computed with the last
    /// of them.
    #[allow(clippy::too_many_arguments)]
    fn compute(
        &mut self,
        pass: Pass<'_>,
        x: &[f32],
        all: &Vectors,
        arrived: &[Arrived<'_>],
        calls: &[Call],
        rows: impl Fn(usize) -> Range<usize>,
        also: Option<Product<'_>>,
    ) {
        let (c, d) = (pass.config, pass.config.hidden_size);
        let inner = c.moe_intermediate_size;
        let total = self.down.len() / d;
        self.gate.resize(total * inner, 0.0);
        self.up.resize(total * inner, 0.0);
        self.inputs.resize_with(arrived.len(), Vectors::default);
        self.inner.resize_with(arrived.len(), Vectors::default);

        let everyone = |calls: &[Call]| {
            calls.len() == all.tokens() && calls.iter().enumerate().all(|(t, c)| c.token == t)
        };
        for ((place, [gate, up, _]), to) in arrived.iter().zip(&mut self.inputs) {
            let calls = &calls[rows(*place)];
            let forms = [gate, up].map(|m| m.form(pass.arithmetic));
            if forms == [Form::Eight; 2] {
                if !everyone(calls) {
                    self.tokens.clear();
                    self.tokens.extend(calls.iter().map(|call| call.token));
                    to.select(all, &self.tokens);
                }
            } else {
                self.gathered.clear();
                for call in calls {
                    self.gathered
                        .extend_from_slice(&x[call.token * d..(call.token + 1) * d]);
                }
                to.prepare(&self.gathered, d, forms);
            }
        }

        let mut gates = Rows::of(&mut self.gate, inner);
        let mut ups = Rows::of(&mut self.up, inner);
        let mut products = Vec::with_capacity(2 * arrived.len());
        for (i, (place, [gate, up, _])) in arrived.iter().enumerate() {
            let eight = [gate, up].map(|m| m.form(pass.arithmetic)) == [Form::Eight; 2];
            let x = if eight && everyone(&calls[rows(*place)]) {
                all
            } else {
                &self.inputs[i]
            };
            for (matrix, to) in [(gate, &mut gates), (up, &mut ups)] {
                let out = to.take(rows(*place));
                products.push(Product::new(*matrix, pass.arithmetic, x, out));
            }
        }
        multiply(&mut products);
        drop(products);

        for ((place, [.., down]), to) in arrived.iter().zip(&mut self.inner) {
            let range = rows(*place);
            let calls = &calls[range.clone()];
            let range = range.start * inner..range.end * inner;
            let gate = &mut self.gate[range.clone()];
            activate(c, gate, &self.up[range], |row| calls[row].weight);
            to.prepare(gate, inner, [down.form(pass.arithmetic)]);
        }
        let mut downs = Rows::of(&mut self.down, d);
        let mut products: Vec<_> = arrived
            .iter()
            .zip(&self.inner)
            .map(|((place, [.., down]), x)| {
                Product::new(*down, pass.arithmetic, x, downs.take(rows(*place)))
            })
            .chain(also)
            .collect();
        multiply(&mut products);
    }
}

/// Rows of a buffer to be lent out, in ascending order.
struct Rows<'a> {
    rest: &'a mut [f32],
    width: usize,
    at: usize,
}

impl<'a> Rows<'a> {
    fn of(all: &'a mut [f32], width: usize) -> Self {
        Self {
            rest: all,
            width,
            at: 0,
        }
    }

    /// Rows that lie after all those lent before.
    fn take(&mut self, rows: Range<usize>) -> &'a mut [f32] {
        let rest = std::mem::take(&mut self.rest);
        let (_, rest) = rest.split_at_mut((rows.start - self.at) * self.width);
        let (taken, rest) = rest.split_at_mut(rows.len() * self.width);
        self.rest = rest;
        self.at = rows.end;
        taken
    }
}
