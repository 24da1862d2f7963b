//! Hyper-connections: how the parallel streams feed a sublayer and take its output back (section 3.1 of the V4 notes).

use fastar_kernels::product::Vectors;
use fastar_kernels::team;
use fastar_kernels::vector::{add_scaled, exp, rms, sigmoid};

use super::config::Config;
use super::pass::Pass;
use super::weights::{Loader, Weight};
use crate::Result;

/// The mixing weights of one sublayer.
pub struct Hyper {
    project: Weight,
    base: Vec<f32>,
    scale: Vec<f32>,
}

/// What the streams of one chunk of tokens look like to one sublayer.
#[derive(Default)]
pub struct Mix {
    /// Sublayer input, [n, D].
    pub input: Vec<f32>,
    /// Factor of the output in each stream, [n, streams].
    post: Vec<f32>,
    /// How the streams go over into each other, [n, streams (from), streams (to)].
    comb: Vec<f32>,
    flat: Vec<f32>,
    mixed: Vec<f32>,
    next: Vec<f32>,
    vectors: Vectors,
}

impl Hyper {
    /// Loads `{prefix}_fn`, `{prefix}_base` and `{prefix}_scale`.
    pub fn load(loader: &Loader<'_>, config: &Config, prefix: &str) -> Result<Self> {
        let n = config.hc_mult;
        let outputs = n + n + n * n;
        Ok(Self {
            project: loader.matrix(&format!("{prefix}_fn"), outputs, n * config.hidden_size)?,
            base: loader.values(&format!("{prefix}_base"), &[outputs])?,
            scale: loader.values(&format!("{prefix}_scale"), &[3])?,
        })
    }

    /// Fills `mix` from the streams h [n, streams, D].
    pub fn mix(&self, pass: Pass<'_>, h: &[f32], mix: &mut Mix) {
        let c = pass.config;
        let (n, d) = (c.hc_mult, c.hidden_size);
        let tokens = h.len() / (n * d);
        project_normed(&self.project, pass, h, mix);
        let per_token = n + n + n * n;
        mix.input.resize(tokens * d, 0.0);
        mix.post.resize(tokens * n, 0.0);
        mix.comb.resize(tokens * n * n, 0.0);
        let outputs = mix.input.chunks_exact_mut(d);
        let outputs = outputs.zip(mix.post.chunks_exact_mut(n));
        let outputs = outputs.zip(mix.comb.chunks_exact_mut(n * n));
        let each = outputs.zip(h.chunks_exact(n * d).zip(mix.mixed.chunks_exact(per_token)));
        team::for_each_of(tokens, each, |(((input, post), comb), (h, m))| {
            let value = |i: usize, s: usize| m[i] * self.scale[s] + self.base[i];
            input.fill(0.0);
            for (j, stream) in h.chunks_exact(d).enumerate() {
                add_scaled(input, sigmoid(value(j, 0)) + c.hc_eps, stream);
            }
            for (k, post) in post.iter_mut().enumerate() {
                *post = 2.0 * sigmoid(value(n + k, 1));
            }
            for (i, comb) in comb.iter_mut().enumerate() {
                *comb = value(2 * n + i, 2);
            }
            sinkhorn(comb, n, c);
        });
    }

    /// `h'[k] = post[k] y + sum_j comb[j][k] h[j]`: the sum runs over the first index. y is [n, D], h is replaced.
    pub fn merge(config: &Config, y: &[f32], mix: &mut Mix, h: &mut [f32]) {
        let (n, d) = (config.hc_mult, config.hidden_size);
        mix.next.resize(h.len(), 0.0);
        let (post, comb, h) = (&mix.post, &mix.comb, &mut *h);
        team::for_each_row(&mut mix.next, n * d, |t, next| {
            let token = &h[t * n * d..(t + 1) * n * d];
            let comb = &comb[t * n * n..(t + 1) * n * n];
            for (k, out) in next.chunks_exact_mut(d).enumerate() {
                out.fill(0.0);
                add_scaled(out, post[t * n + k], &y[t * d..(t + 1) * d]);
                for (j, from) in token.chunks_exact(d).enumerate() {
                    add_scaled(out, comb[j * n + k], from);
                }
            }
        });
        h.copy_from_slice(&mix.next);
    }
}

/// The last mixing, before the head: no output goes back, no Sinkhorn.
pub struct HyperHead {
    project: Weight,
    base: Vec<f32>,
    scale: f32,
}

impl HyperHead {
    /// Loads `{prefix}hc_head_fn`, `_base` and `_scale`.
    pub fn load(loader: &Loader<'_>, config: &Config, prefix: &str) -> Result<Self> {
        let n = config.hc_mult;
        Ok(Self {
            project: loader.matrix(&format!("{prefix}hc_head_fn"), n, n * config.hidden_size)?,
            base: loader.values(&format!("{prefix}hc_head_base"), &[n])?,
            scale: loader.values(&format!("{prefix}hc_head_scale"), &[1])?[0],
        })
    }

    /// Leaves the weighted sum of the streams in `mix.input`, [n, D].
    pub fn mix(&self, pass: Pass<'_>, h: &[f32], mix: &mut Mix) {
        let (n, d) = (pass.config.hc_mult, pass.config.hidden_size);
        project_normed(&self.project, pass, h, mix);
        mix.input.resize(h.len() / n, 0.0);
        let mixed = &mix.mixed;
        team::for_each_row(&mut mix.input, d, |t, input| {
            input.fill(0.0);
            for (j, stream) in h[t * n * d..(t + 1) * n * d].chunks_exact(d).enumerate() {
                let weight = sigmoid(mixed[t * n + j] * self.scale + self.base[j]);
                add_scaled(input, weight + pass.config.hc_eps, stream);
            }
        });
    }
}

/// `mix.mixed = W rms(flatten(h))`, streams first.
fn project_normed(weight: &Weight, pass: Pass<'_>, h: &[f32], mix: &mut Mix) {
    let width = pass.config.hc_mult * pass.config.hidden_size;
    mix.flat.resize(h.len(), 0.0);
    team::for_each_row(&mut mix.flat, width, |t, flat| {
        let token = &h[t * width..(t + 1) * width];
        rms(token, pass.config.rms_norm_eps, flat);
    });
    let part = (weight.view(pass.bytes), &mut mix.mixed);
    pass.project(&mix.flat, &mut mix.vectors, &mut [part]);
}

/// Softmax over each row, then alternating normalisation, columns first. c is [n (from), n (to)].
fn sinkhorn(c: &mut [f32], n: usize, config: &Config) {
    let eps = config.hc_eps;
    for row in c.chunks_exact_mut(n) {
        let top = row.iter().fold(f32::NEG_INFINITY, |a, v| a.max(*v));
        let mut sum = 0.0;
        for v in row.iter_mut() {
            *v = exp(*v - top);
            sum += *v;
        }
        for v in row {
            *v = *v / sum + eps;
        }
    }
    columns(c, n, eps);
    for _ in 1..config.hc_sinkhorn_iters {
        for row in c.chunks_exact_mut(n) {
            let sum: f32 = row.iter().sum();
            for v in row {
                *v /= sum + eps;
            }
        }
        columns(c, n, eps);
    }
}

fn columns(c: &mut [f32], n: usize, eps: f32) {
    for k in 0..n {
        let sum: f32 = (0..n).map(|j| c[j * n + k]).sum();
        for j in 0..n {
            c[j * n + k] /= sum + eps;
        }
    }
}
