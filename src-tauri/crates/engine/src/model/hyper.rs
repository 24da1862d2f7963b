//! Hyper-connections: how the parallel streams feed a sublayer and take its output back (section 3.1 of the V4 notes).

use fastar_kernels::vector::{add_scaled, exp, inverse_rms, sigmoid};

use super::config::Config;
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
    scratch: Vec<f32>,
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
    pub fn mix(&self, config: &Config, bytes: &[u8], h: &[f32], mix: &mut Mix) {
        let (n, d) = (config.hc_mult, config.hidden_size);
        let tokens = h.len() / (n * d);
        project_normed(&self.project, config, bytes, h, mix);
        let per_token = n + n + n * n;
        mix.input.clear();
        mix.input.resize(tokens * d, 0.0);
        mix.post.clear();
        mix.comb.clear();
        for t in 0..tokens {
            let m = &mix.mixed[t * per_token..(t + 1) * per_token];
            let value = |i: usize, s: usize| m[i] * self.scale[s] + self.base[i];
            let input = &mut mix.input[t * d..(t + 1) * d];
            for j in 0..n {
                let pre = sigmoid(value(j, 0)) + config.hc_eps;
                add_scaled(input, pre, stream(h, t, j, n, d));
            }
            mix.post
                .extend((0..n).map(|k| 2.0 * sigmoid(value(n + k, 1))));
            let start = mix.comb.len();
            mix.comb.extend((0..n * n).map(|i| value(2 * n + i, 2)));
            sinkhorn(&mut mix.comb[start..], n, config);
        }
    }

    /// `h'[k] = post[k] y + sum_j comb[j][k] h[j]`: the sum runs over the first index. y is [n, D], h is replaced.
    pub fn merge(config: &Config, y: &[f32], mix: &mut Mix, h: &mut [f32]) {
        let (n, d) = (config.hc_mult, config.hidden_size);
        mix.next.clear();
        mix.next.resize(n * d, 0.0);
        for (t, token) in h.chunks_exact_mut(n * d).enumerate() {
            mix.next.fill(0.0);
            let comb = &mix.comb[t * n * n..(t + 1) * n * n];
            for (k, out) in mix.next.chunks_exact_mut(d).enumerate() {
                add_scaled(out, mix.post[t * n + k], &y[t * d..(t + 1) * d]);
                for (j, from) in token.chunks_exact(d).enumerate() {
                    add_scaled(out, comb[j * n + k], from);
                }
            }
            token.copy_from_slice(&mix.next);
        }
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
    pub fn mix(&self, config: &Config, bytes: &[u8], h: &[f32], mix: &mut Mix) {
        let (n, d) = (config.hc_mult, config.hidden_size);
        let tokens = h.len() / (n * d);
        project_normed(&self.project, config, bytes, h, mix);
        mix.input.clear();
        mix.input.resize(tokens * d, 0.0);
        for t in 0..tokens {
            for j in 0..n {
                let weight =
                    sigmoid(mix.mixed[t * n + j] * self.scale + self.base[j]) + config.hc_eps;
                add_scaled(
                    &mut mix.input[t * d..(t + 1) * d],
                    weight,
                    stream(h, t, j, n, d),
                );
            }
        }
    }
}

/// Stream `j` of token `t`, [D].
fn stream(h: &[f32], t: usize, j: usize, n: usize, d: usize) -> &[f32] {
    &h[(t * n + j) * d..(t * n + j + 1) * d]
}

/// `mix.mixed = W rms(flatten(h))`, streams first.
fn project_normed(weight: &Weight, config: &Config, bytes: &[u8], h: &[f32], mix: &mut Mix) {
    let width = config.hc_mult * config.hidden_size;
    let tokens = h.len() / width;
    mix.flat.clear();
    for token in h.chunks_exact(width) {
        let r = inverse_rms(token, config.rms_norm_eps);
        mix.flat.extend(token.iter().map(|v| v * r));
    }
    let matrix = weight.view(bytes);
    mix.mixed.clear();
    mix.mixed.resize(tokens * matrix.rows(), 0.0);
    matrix.apply(&mix.flat, &mut mix.mixed, &mut mix.scratch);
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
