//! The network: DeepSeek V4's forward pass, for any config (sections 3 to 5 of the V4 notes).
//!
//! One code path serves prefill and decode: [`Model::forward`] takes a chunk of tokens of any length. Everything a token needs from
//! others goes through [`State`]; everything else is computed per token in a fixed order, so the same tokens give the same bits
//! however they are cut into chunks. Not here: choosing tokens, text, files.

mod attention;
mod compressor;
mod config;
mod embedding;
mod experts;
mod history;
mod hyper;
mod indexer;
mod moe;
mod mtp;
mod pass;
mod rope;
mod state;
mod times;
mod weights;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fastar_fst::Container;
use fastar_kernels::product::{Arithmetic, Vectors};
use fastar_kernels::team;
use fastar_kernels::vector::{all_finite, rms_norm, rms_norm_in_place};

use crate::pager::trace::Kind;
use crate::pager::{Dense, Pager, Recording};
use crate::{Cancel, Error, Result};
use attention::{Attention, AttentionState};
pub use config::Config;
use config::Ratio;
pub use embedding::Embedding;
use experts::{Experts, Records};
use hyper::{Hyper, HyperHead, Mix};
use moe::Moe;
pub use mtp::Mtp;
use pass::Pass;
use rope::{Angles, Rotation};
pub use state::{Snapshot, State};
pub use times::Activity;
use times::Times;
use weights::{Loader, Weight};

/// A loaded network.
pub struct Model {
    /// Its sizes.
    pub config: Config,
    container: Arc<Container>,
    /// Weights that every token reads, where they are not read from the container.
    dense: Option<Dense>,
    /// Experts, where they are not read from the container.
    pager: Option<Pager>,
    /// Which experts tokens take, while that is recorded.
    recording: Mutex<Option<Recording>>,
    times: Times,
    arithmetic: Arithmetic,
    reference: bool,
    embed: Embedding,
    layers: Vec<Block>,
    hyper_head: HyperHead,
    norm: Vec<f32>,
    head: Weight,
    /// For sliding layers, and for layers with a compressor.
    rotations: [Rotation; 2],
}

/// One transformer block.
struct Block {
    hyper_attention: Hyper,
    attention_norm: Vec<f32>,
    attention: Attention,
    hyper_moe: Hyper,
    moe_norm: Vec<f32>,
    moe: Moe,
}

/// Which logits a forward pass computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None: a chunk in the middle of a prompt.
    Nothing,
    /// Those of the last token.
    Last,
    /// Those of every token.
    All,
}

/// Buffers of a forward pass, reused from call to call.
#[derive(Default)]
pub struct Work {
    /// Logits of the last call, [wanted tokens, vocab].
    pub logits: Vec<f32>,
    /// Streams after the last layer, [n, hc_mult, D].
    pub streams: Vec<f32>,
    /// When the pass under way began.
    begun: Option<Instant>,
    normed: Vec<f32>,
    out: Vec<f32>,
    mix: Mix,
    attention: attention::Work,
    moe: moe::Work,
    angles: [Angles; 2],
    vectors: Vectors,
    /// A row of the embedding as it is in the file.
    row: Vec<u8>,
}

impl Model {
    /// Finds and checks every tensor. Small ones are expanded; large ones are where `dense` has them, or stay in the container.
    pub fn load(
        container: Arc<Container>,
        dense: Option<Dense>,
        arithmetic: Arithmetic,
        reference: bool,
    ) -> Result<Self> {
        let mut config = Config::from_json(container.config())?;
        if let Some(exact) = container.exact_positions() {
            config.max_position_embeddings = config.max_position_embeddings.min(exact);
        }
        if reference {
            config.check_reference()?;
        }
        let loader = Loader::resident(&container, dense.as_ref());
        let counts = container.expert_counts();
        if counts != (config.num_hidden_layers, config.n_routed_experts) {
            return Err(Error::Tensor(format!(
                "The model file holds {} x {} experts; its config needs {} x {}.",
                counts.0, counts.1, config.num_hidden_layers, config.n_routed_experts
            )));
        }
        check_experts(&container, &config)?;
        let layers = (0..config.num_hidden_layers)
            .map(|l| {
                let hashed = l < config.num_hash_layers;
                let ratio = config.ratio(l);
                let prefix = format!("layers.{l}.");
                Block::load(
                    &loader,
                    &config,
                    &prefix,
                    ratio,
                    hashed,
                    Experts::Records(l),
                )
            })
            .collect::<Result<_>>()?;
        let (vocab, d) = (config.vocab_size, config.hidden_size);
        Ok(Self {
            arithmetic,
            reference,
            embed: Embedding::load(&container, dense.as_ref(), vocab, d)?,
            layers,
            hyper_head: HyperHead::load(&loader, &config, "")?,
            norm: loader.values("norm.weight", &[d])?,
            head: loader.matrix("head.weight", vocab, d)?,
            rotations: [false, true].map(|compressed| Rotation::new(&config, compressed)),
            config,
            pager: None,
            recording: Mutex::default(),
            times: Times::new(counts.0),
            dense,
            container,
        })
    }

    /// Layers there are.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Takes experts from `pager` from now on.
    pub fn page(&mut self, pager: Pager) {
        self.pager = Some(pager);
    }

    /// The pager of the experts, if they are paged.
    pub fn pager(&self) -> Option<&Pager> {
        self.pager.as_ref()
    }

    /// Records from now on which experts tokens take, or no longer; what was recorded before comes to its end.
    pub fn record(&self, recording: Option<Recording>) {
        *self.recording() = recording;
    }

    /// The recording under way, if there is one.
    pub fn recording(&self) -> MutexGuard<'_, Option<Recording>> {
        self.recording
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What was computed so far.
    pub fn activity(&self) -> Activity {
        self.times.snapshot()
    }

    /// That and why the recording ended early.
    pub fn recording_failure(&self) -> Option<String> {
        self.recording().as_ref()?.failure()
    }

    /// Whether the roundings of the hosted model are on.
    pub fn reference(&self) -> bool {
        self.reference
    }

    /// How products are computed.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    fn pass<'a>(&'a self, cancel: &'a Cancel) -> Pass<'a> {
        Pass {
            config: &self.config,
            bytes: self.dense_bytes(),
            records: match &self.pager {
                Some(pager) => Records::Pager(pager, self.container.expert_layout()),
                None => Records::Container(&self.container),
            },
            cancel,
            arithmetic: self.arithmetic,
            reference: self.reference,
        }
    }

    /// The container the weights lie in.
    pub fn container(&self) -> &Arc<Container> {
        &self.container
    }

    /// Feeds `tokens` at the state's position and leaves the wanted logits in `work.logits`.
    ///
    /// The ids are below the vocabulary and the positions within the context; the session sees to that. An error leaves some layers
    /// ahead of others: [`Model::truncate`] to the position before puts that right.
    pub fn forward(
        &self,
        tokens: &[u32],
        wanted: Wanted,
        state: &mut State,
        work: &mut Work,
        cancel: &Cancel,
    ) -> Result<()> {
        self.begin(tokens, state, work, cancel)?;
        for layer in 0..self.layers.len() {
            self.layer(layer, tokens, state, work, cancel)?;
        }
        self.finish(tokens, wanted, state, work, cancel)
    }

    /// The first part of [`Model::forward`]; a call of [`Model::layer`] for every layer in turn and one of [`Model::finish`] follow.
    pub fn begin(
        &self,
        tokens: &[u32],
        state: &State,
        work: &mut Work,
        cancel: &Cancel,
    ) -> Result<()> {
        work.begun = Some(Instant::now());
        for (rotation, angles) in self.rotations.iter().zip(&mut work.angles) {
            rotation.angles(state.position, 1, tokens.len(), angles);
        }
        self.foresee(tokens);
        work.moe.routes = self.recording().is_some().then(Vec::new);
        self.embed(tokens, &mut work.row, &mut work.streams, cancel)
    }

    /// One layer of [`Model::forward`].
    pub fn layer(
        &self,
        layer: usize,
        tokens: &[u32],
        state: &mut State,
        work: &mut Work,
        cancel: &Cancel,
    ) -> Result<()> {
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let begin = Instant::now();
        let next = self.layers.get(layer + 1).map(|block| &block.moe);
        let (pass, first) = (self.pass(cancel), state.position);
        let of_layer = &mut state.layers[layer];
        self.layers[layer].forward(self, pass, next, tokens, first, of_layer, work)?;
        self.times.layer(layer, begin.elapsed());
        if !all_finite(&work.streams) {
            return Err(Error::NotFinite(format!(
                "Layer {layer} of the model computed a value that is not a number at position {first}. The model file may be damaged; check it, or convert the checkpoint again."
            )));
        }
        Ok(())
    }

    /// The last part of [`Model::forward`].
    pub fn finish(
        &self,
        tokens: &[u32],
        wanted: Wanted,
        state: &mut State,
        work: &mut Work,
        cancel: &Cancel,
    ) -> Result<()> {
        let (c, pass) = (&self.config, self.pass(cancel));
        if let Some(pager) = &self.pager {
            pager.computed(tokens.len());
        }
        self.write_routes(tokens.len(), state.position == 0, work.moe.routes.take());
        state.position += tokens.len();
        let from = match wanted {
            Wanted::Nothing => tokens.len(),
            Wanted::Last => tokens.len() - 1,
            Wanted::All => 0,
        };
        let streams = &work.streams[from * c.hc_mult * c.hidden_size..];
        self.hyper_head.mix(pass, streams, &mut work.mix);
        self.head_of(
            &self.norm,
            &mut work.mix.input,
            &mut work.logits,
            &mut work.vectors,
            pass,
        );
        // A damaged row of the head must not be chosen, and must not stop the others.
        if !all_finite(&work.logits) {
            let bad = work.logits.iter_mut().filter(|v| !v.is_finite());
            let count = bad.map(|v| *v = f32::NEG_INFINITY).count();
            if count == work.logits.len() {
                return Err(Error::NotFinite(
                    "The model's head computed no number at all. The model file may be damaged; check it, or convert the checkpoint again.".into(),
                ));
            }
            tracing::warn!(
                count,
                "the head computed values that are not numbers; those tokens are left out"
            );
        }
        if let Some(begun) = work.begun.take() {
            self.times.pass(tokens.len(), begun.elapsed());
        }
        Ok(())
    }

    /// Tells the pager what is known of a step before anything is computed: its tokens, and the experts that follow from their ids.
    fn foresee(&self, tokens: &[u32]) {
        let Some(pager) = &self.pager else {
            return;
        };
        pager.step(tokens.len());
        // A long chunk takes most experts of these layers; they would only push each other out.
        if tokens.len() > crate::pager::FEW {
            return;
        }
        for (layer, block) in self.layers.iter().enumerate() {
            let Some(experts) = block.moe.foreseen(tokens, self.config.num_experts_per_tok) else {
                break;
            };
            pager.foresee(layer, experts.into_iter());
        }
    }

    /// Writes the experts of a step's tokens, which `routes` has as [layers, n, taken], to the recording.
    fn write_routes(&self, n: usize, is_first: bool, routes: Option<Vec<u16>>) {
        let Some(routes) = routes else {
            return;
        };
        let mut recording = self.recording();
        let Some(recording) = recording.as_mut() else {
            return;
        };
        let taken = self.config.num_experts_per_tok;
        let width = self.layers.len() * taken;
        let mut tokens = Vec::with_capacity(n * width);
        for t in 0..n {
            for layer in routes.chunks_exact(n * taken) {
                tokens.extend_from_slice(&layer[t * taken..(t + 1) * taken]);
            }
        }
        let kind = |t| match (t, is_first, n) {
            (0, true, _) => Kind::First,
            (0, false, 1) => Kind::Decode,
            (0, false, _) => Kind::Chunk,
            _ => Kind::Prefill,
        };
        recording.step((0..).map(kind).zip(tokens.chunks_exact(width)));
    }

    /// Embeddings, copied into every stream: [n, hc_mult, D].
    fn embed(
        &self,
        tokens: &[u32],
        row: &mut Vec<u8>,
        streams: &mut Vec<f32>,
        cancel: &Cancel,
    ) -> Result<()> {
        let (n, d) = (self.config.hc_mult, self.config.hidden_size);
        streams.clear();
        streams.resize(tokens.len() * n * d, 0.0);
        for (token, h) in tokens.iter().zip(streams.chunks_exact_mut(n * d)) {
            let (first, rest) = h.split_at_mut(d);
            self.embedded(*token, row, first, cancel)?;
            for stream in rest.chunks_exact_mut(d) {
                stream.copy_from_slice(first);
            }
        }
        Ok(())
    }

    /// The embedding of a token: out [D].
    fn embedded(
        &self,
        token: u32,
        row: &mut Vec<u8>,
        out: &mut [f32],
        cancel: &Cancel,
    ) -> Result<()> {
        let bytes = self.dense_bytes();
        self.embed
            .row(&self.container, bytes, token, (row, out), cancel)
    }

    /// Waits until all that the computation went by has been checked: an answer is not done before.
    pub fn settle(&self, cancel: &Cancel) -> Result<()> {
        self.embed.settle(&self.container, cancel)
    }

    fn dense_bytes(&self) -> &[u8] {
        match &self.dense {
            Some(dense) => dense.bytes(),
            None => self.container.in_memory().unwrap_or_default(),
        }
    }

    /// `logits = head RMSNorm(x)`; x [n, D] is normed in place.
    fn head_of(
        &self,
        norm: &[f32],
        x: &mut [f32],
        logits: &mut Vec<f32>,
        vectors: &mut Vectors,
        pass: Pass<'_>,
    ) {
        let c = &self.config;
        for row in x.chunks_exact_mut(c.hidden_size) {
            rms_norm_in_place(row, norm, c.rms_norm_eps);
        }
        if x.is_empty() {
            return logits.clear();
        }
        pass.project(x, vectors, &mut [(self.head.view(pass.bytes), logits)]);
    }
}

impl Block {
    fn load(
        loader: &Loader<'_>,
        config: &Config,
        prefix: &str,
        ratio: Ratio,
        hashed: bool,
        experts: Experts,
    ) -> Result<Self> {
        let d = config.hidden_size;
        let norm = |name: &str| loader.values(&format!("{prefix}{name}.weight"), &[d]);
        Ok(Self {
            hyper_attention: Hyper::load(loader, config, &format!("{prefix}hc_attn"))?,
            attention_norm: norm("attn_norm")?,
            attention: Attention::load(loader, config, &format!("{prefix}attn."), ratio)?,
            hyper_moe: Hyper::load(loader, config, &format!("{prefix}hc_ffn"))?,
            moe_norm: norm("ffn_norm")?,
            moe: Moe::load(loader, config, &format!("{prefix}ffn."), hashed, experts)?,
        })
    }

    /// One block on the streams in `work`, for the positions from `first`.
    #[allow(clippy::too_many_arguments)]
    fn forward(
        &self,
        model: &Model,
        pass: Pass<'_>,
        next: Option<&Moe>,
        tokens: &[u32],
        first: usize,
        state: &mut AttentionState,
        work: &mut Work,
    ) -> Result<()> {
        let c = pass.config;
        let kind = usize::from(self.attention.ratio != Ratio::None);

        if let Some(sight) = self.moe.before_attention(pass, tokens, &mut work.moe.ahead) {
            self.hyper_moe.mix(pass, &work.streams, &mut work.mix);
            norm_rows(&work.mix.input, &self.moe_norm, c, &mut work.normed);
            self.moe
                .guess(pass, sight, &work.normed, &mut work.moe.ahead);
        }

        self.hyper_attention.mix(pass, &work.streams, &mut work.mix);
        norm_rows(&work.mix.input, &self.attention_norm, c, &mut work.normed);
        work.out.resize(work.normed.len(), 0.0);
        let whole = self.attention.forward(
            pass,
            &model.rotations[kind],
            &work.angles[kind],
            &work.normed,
            first,
            state,
            &mut work.attention,
            &mut work.out,
        );
        if !whole {
            work.streams.fill(f32::NAN); // Told by the caller, with the layer's number.
            return Ok(());
        }
        Hyper::merge(c, &work.out, &mut work.mix, &mut work.streams);

        self.hyper_moe.mix(pass, &work.streams, &mut work.mix);
        norm_rows(&work.mix.input, &self.moe_norm, c, &mut work.normed);
        self.moe.forward(
            pass,
            next,
            &work.normed,
            tokens,
            &mut work.moe,
            &mut work.out,
        )?;
        Hyper::merge(c, &work.out, &mut work.mix, &mut work.streams);
        Ok(())
    }
}

fn norm_rows(x: &[f32], weight: &[f32], c: &Config, out: &mut Vec<f32>) {
    let d = c.hidden_size;
    out.resize(x.len(), 0.0);
    team::for_each_row(out, d, |t, out| {
        rms_norm(&x[t * d..(t + 1) * d], weight, c.rms_norm_eps, out);
    });
}

/// The record layout describes the matrices this config needs.
fn check_experts(container: &Container, c: &Config) -> Result<()> {
    let layout = container.expert_layout();
    let (i, d) = (c.moe_intermediate_size, c.hidden_size);
    let blank = vec![0u8; layout.bytes];
    for (part, rows, columns) in [
        (&layout.gate, i, d),
        (&layout.up, i, d),
        (&layout.down, d, i),
    ] {
        if (part.rows, part.columns) != (rows, columns) {
            return Err(Error::Tensor(format!(
                "The experts of the model file hold a [{}, {}] matrix; its config needs [{rows}, {columns}].",
                part.rows, part.columns
            )));
        }
        if weights::expert_matrix(part, &blank).is_none() {
            return Err(experts::unknown_layout(layout));
        }
    }
    Ok(())
}
