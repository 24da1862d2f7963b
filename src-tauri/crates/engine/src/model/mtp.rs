//! The MTP block: a draft of the token after next from the final streams (section 3.6 of the V4 notes).
//!
//! The arithmetic only; drafting and verifying with it is the business of speculative decoding.

use fastar_kernels::vector::{inverse_rms, rms_norm};

use super::attention::AttentionState;
use super::experts::{Experts, dense_expert};
use super::hyper::HyperHead;
use super::pass::Pass;
use super::weights::{Loader, Weight};
use super::{Block, Model, Work};
use crate::{Cancel, Error, Result};

/// Weights of one MTP block.
pub struct Mtp {
    block: Block,
    e_proj: Weight,
    h_proj: Weight,
    e_norm: Vec<f32>,
    h_norm: Vec<f32>,
    norm: Vec<f32>,
    hyper_head: HyperHead,
}

impl Mtp {
    /// Loads block `k` of the model's container.
    pub fn load(model: &Model, k: usize) -> Result<Self> {
        let c = &model.config;
        if k >= c.num_nextn_predict_layers {
            return Err(Error::Input(format!(
                "The model has {} MTP blocks.",
                c.num_nextn_predict_layers
            )));
        }
        let loader = Loader::new(model.container());
        let d = c.hidden_size;
        let prefix = format!("mtp.{k}.");
        let experts = (0..c.n_routed_experts)
            .map(|e| dense_expert(&loader, c, &format!("{prefix}ffn.experts.{e}.")))
            .collect::<Result<_>>()?;
        let ratio = c.ratio(c.num_hidden_layers + k);
        let norm = |name: &str| loader.values(&format!("{prefix}{name}.weight"), &[d]);
        Ok(Self {
            block: Block::load(&loader, c, &prefix, ratio, false, Experts::Dense(experts))?,
            e_proj: loader.matrix(&format!("{prefix}e_proj.weight"), d, d)?,
            h_proj: loader.matrix(&format!("{prefix}h_proj.weight"), d, d)?,
            e_norm: norm("enorm")?,
            h_norm: norm("hnorm")?,
            norm: norm("norm")?,
            hyper_head: HyperHead::load(&loader, c, &prefix)?,
        })
    }

    /// The block's state at the beginning of a sequence.
    pub fn state(&self, model: &Model) -> AttentionState {
        self.block.attention.state(&model.config)
    }

    /// Draft logits for a chunk: `streams` [n, hc_mult, D] are the model's final streams at positions `first..`, `next` [n] the tokens
    /// that follow them. Leaves [n, vocab] in `work.logits`: row t is the draft of token t + 2.
    pub fn forward(
        &self,
        model: &Model,
        streams: &[f32],
        next: &[u32],
        first: usize,
        state: &mut AttentionState,
        work: &mut Work,
    ) -> Result<()> {
        // Those of its weights that were read by themselves are copies.
        let cancel = Cancel::default();
        let pass = Pass {
            bytes: model.container.in_memory().unwrap_or_default(),
            ..model.pass(&cancel)
        };
        let (c, bytes) = (&model.config, pass.bytes);
        let (n, d) = (c.hc_mult, c.hidden_size);
        for (rotation, angles) in model.rotations.iter().zip(&mut work.angles) {
            rotation.angles(first, 1, next.len(), angles);
        }
        let mut row = vec![0.0; d];
        let mut embedded = vec![0.0; next.len() * d];
        for (token, e) in next.iter().zip(embedded.chunks_exact_mut(d)) {
            model.embedded(*token, &mut work.row, &mut row, &cancel)?;
            rms_norm(&row, &self.e_norm, c.rms_norm_eps, e);
        }
        let mut e = Vec::new();
        let part = (self.e_proj.view(bytes), &mut e);
        pass.project(&embedded, &mut work.vectors, &mut [part]);
        let mut normed = Vec::with_capacity(streams.len());
        for h in streams.chunks_exact(d) {
            let r = inverse_rms(h, c.rms_norm_eps);
            normed.extend(h.iter().zip(&self.h_norm).map(|(v, w)| v * r * w));
        }
        let part = (self.h_proj.view(bytes), &mut work.streams);
        pass.project(&normed, &mut work.vectors, &mut [part]);
        for (token, e) in work.streams.chunks_exact_mut(n * d).zip(e.chunks_exact(d)) {
            for stream in token.chunks_exact_mut(d) {
                for (h, v) in stream.iter_mut().zip(e) {
                    *h += v;
                }
            }
        }
        self.block
            .forward(model, pass, None, next, first, state, work)?;
        self.hyper_head.mix(pass, &work.streams, &mut work.mix);
        model.head_of(
            &self.norm,
            &mut work.mix.input,
            &mut work.logits,
            &mut work.vectors,
            model.pass(&cancel),
        );
        Ok(())
    }
}
