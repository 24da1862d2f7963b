//! A loaded model with its threads and tokenizer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastar_fst::{Container, Dtype, EffortTable};
use fastar_kernels::product::Arithmetic;
use fastar_kernels::team::Team;

use crate::chat::ChatTokenizer;
use crate::model::Model;
use crate::{Error, Result, Session};

/// More threads than any machine for this has processors.
const MOST_THREADS: usize = 512;

/// How to load a model.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads to compute on; all cores this process may use when none.
    pub threads: Option<usize>,
    /// Never round a vector to eight bits, where doing so is faster (see the page of [the model](crate)); to compare with.
    pub exact: bool,
    /// Round KV rows and index keys as the hosted model does (section 4 of the V4 notes).
    pub reference: bool,
}

/// A loaded model. Cheap to clone; all clones share weights and threads.
#[derive(Clone)]
pub struct Engine(Arc<Loaded>);

struct Loaded {
    model: Model,
    tokenizer: Option<ChatTokenizer>,
    efforts: EffortTable,
    team: Team,
    facts: ModelFacts,
}

/// Facts about a loaded model.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    /// Size of the container in bytes.
    pub file_bytes: u64,
    /// Parameters in all, MTP blocks included.
    pub parameters: u64,
    /// Transformer layers.
    pub layers: usize,
    /// Routed experts in each layer.
    pub experts: usize,
    /// Width of the logits.
    pub vocab: usize,
    /// Positions one session may have.
    pub context: usize,
    /// Threads in use.
    pub threads: usize,
    /// False when the container has no tokenizer: only token ids can be used.
    pub has_tokenizer: bool,
    /// What the file cannot do and what to do about it, a sentence for people.
    pub limit: Option<String>,
}

/// Set from any thread to stop an answer; looked at between layers.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the work to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Engine {
    /// Opens a container and prepares its weights.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        let _span = tracing::info_span!("load", path = %path.display()).entered();
        Self::load(Container::open(path)?, options)
    }

    /// The same for a container in memory (the embedded demo).
    pub fn from_static(bytes: &'static [u8], options: &Options) -> Result<Self> {
        let _span = tracing::info_span!("load", path = "embedded").entered();
        Self::load(Container::from_static(bytes)?, options)
    }

    fn load(container: Container, options: &Options) -> Result<Self> {
        let arithmetic = if options.exact {
            Arithmetic::Exact
        } else {
            Arithmetic::Fast
        };
        let model = Model::load(Arc::new(container), arithmetic, options.reference)?;
        let container = model.container();
        let tokenizer = container
            .tokenizer()
            .map(|json| ChatTokenizer::new(json, &model.config))
            .transpose()?;
        // Where nothing is known, the older table: it adds least to a prompt.
        let efforts = container.effort_table().unwrap_or_default();
        let threads = match options.threads {
            Some(n) if !(1..=MOST_THREADS).contains(&n) => {
                return Err(Error::Input(format!(
                    "The number of threads is {n}; it must be from 1 to {MOST_THREADS}."
                )));
            }
            Some(n) => n,
            None => std::thread::available_parallelism().map_or(1, |n| n.get()),
        };
        let team = Team::new(threads, threads, |_| {})
            .map_err(|e| Error::Input(format!("{threads} threads could not be started: {e}.")))?;
        let facts = ModelFacts {
            file_bytes: container.file_bytes(),
            parameters: parameters(container),
            layers: model.config.num_hidden_layers,
            experts: model.config.n_routed_experts,
            vocab: model.config.vocab_size,
            context: model.config.max_position_embeddings,
            threads,
            has_tokenizer: tokenizer.is_some(),
            limit: container.limit(),
        };
        Ok(Self(Arc::new(Loaded {
            model,
            tokenizer,
            efforts,
            team,
            facts,
        })))
    }

    /// Facts for people.
    pub fn facts(&self) -> &ModelFacts {
        &self.0.facts
    }

    /// A fresh timeline.
    pub fn session(&self) -> Session {
        Session::new(self)
    }

    pub(crate) fn model(&self) -> &Model {
        &self.0.model
    }

    /// The tokenizer, which a chat needs.
    pub(crate) fn tokenizer(&self) -> Result<&ChatTokenizer> {
        self.0.tokenizer.as_ref().ok_or_else(|| {
            Error::Tokenizer("The model file has no tokenizer, so it cannot chat. Convert the checkpoint again with its tokenizer.json.".into())
        })
    }

    /// Which effort texts the model was trained with.
    pub(crate) fn efforts(&self) -> EffortTable {
        self.0.efforts
    }

    pub(crate) fn is(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Runs work on this engine's threads.
    pub(crate) fn run<R: Send>(&self, work: impl FnOnce(&Model) -> R + Send) -> R {
        self.0.team.run(|| work(&self.0.model))
    }
}

/// Weights in all: dense ones without their scales and the tables of the hash layers, and every expert.
fn parameters(container: &Container) -> u64 {
    let dense: u64 = container
        .tensors()
        .filter(|(name, t)| {
            !name.ends_with(".scale") && !matches!(t.dtype, Dtype::I32 | Dtype::I64)
        })
        .map(|(_, t)| t.elements())
        .sum();
    let (layers, experts) = container.expert_counts();
    let layout = container.expert_layout();
    let each: u64 = [&layout.gate, &layout.up, &layout.down]
        .iter()
        .map(|m| (m.rows * m.columns) as u64)
        .sum();
    dense + (layers * experts) as u64 * each
}
