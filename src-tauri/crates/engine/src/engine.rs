//! A loaded model with its threads and tokenizer, and the writing of answers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastar_fst::{Container, Dtype};

use crate::chat::{AnswerParser, ChatTokenizer, Conversation, EffortTable, Message, Part, encode};
use crate::model::Model;
use crate::sample::Sampler;
use crate::{Error, Result, Sampling, Session};

/// How to load a model.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads to compute on; all cores this process may use when none.
    pub threads: Option<usize>,
    /// Round KV rows and index keys as the hosted model does (section 4 of the V4 notes).
    pub reference: bool,
}

/// A loaded model. Cheap to clone; all clones share weights and threads.
#[derive(Clone)]
pub struct Engine(Arc<Loaded>);

struct Loaded {
    model: Model,
    tokenizer: Option<ChatTokenizer>,
    pool: rayon::ThreadPool,
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

/// What happens while an answer is written.
#[derive(Debug)]
pub enum Event<'a> {
    /// Prompt tokens read, of those that had to be read.
    Prefill {
        /// Read.
        done: usize,
        /// To read.
        total: usize,
    },
    /// New text: whole characters only.
    Text(&'a str),
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    End,
    /// Token limit or context reached.
    Length,
    /// Cancelled.
    Cancelled,
}

/// A finished answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its whole text, equal to all `Event::Text` joined.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of the whole prompt.
    pub prompt_tokens: usize,
    /// Those of them that were in the session already.
    pub reused_tokens: usize,
    /// Tokens written, the end token included.
    pub answer_tokens: usize,
    /// Reading the prompt.
    pub prefill: Duration,
    /// From the call to the first token.
    pub first_token: Option<Duration>,
    /// From the first token to the last.
    pub decode: Duration,
    /// Positions in use afterwards.
    pub position: usize,
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
        let model = Model::load(Arc::new(container), options.reference)?;
        let container = model.container();
        let tokenizer = container
            .tokenizer()
            .map(|json| ChatTokenizer::new(json, &model.config))
            .transpose()?;
        let threads = match options.threads {
            Some(0) => {
                return Err(Error::Input(
                    "The number of threads must be 1 or more.".into(),
                ));
            }
            Some(n) => n,
            None => std::thread::available_parallelism().map_or(1, |n| n.get()),
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("engine-{i}"))
            .build()
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
        };
        Ok(Self(Arc::new(Loaded {
            model,
            tokenizer,
            pool,
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

    pub(crate) fn is(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Runs work on this engine's threads.
    pub(crate) fn run<R: Send>(&self, work: impl FnOnce(&Model) -> R + Send) -> R {
        self.0.pool.install(|| work(&self.0.model))
    }

    /// Writes the next assistant message of `messages` (the last of which is the user's). What `session` holds of the prompt is reused as far
    /// as it can be gone back to. After any result the session is consistent and can be used again.
    ///
    /// A cancelled answer is `Ok` with [`Finish::Cancelled`] and the text so far.
    pub fn answer(
        &self,
        session: &mut Session,
        messages: &[Message],
        sampling: &Sampling,
        cancel: &Cancel,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        let begin = Instant::now();
        sampling.check()?;
        if !session.belongs_to(self) {
            return Err(Error::Input(
                "This session belongs to another model.".into(),
            ));
        }
        let tokenizer = self.0.tokenizer.as_ref().ok_or_else(|| {
            Error::Tokenizer("The model file has no tokenizer, so it cannot chat. Convert the checkpoint again with its tokenizer.json.".into())
        })?;
        let conversation = Conversation::of(messages)?;
        let prompt = encode(tokenizer, &conversation, EffortTable::default())?;
        let parser = AnswerParser::new(prompt.opening, &conversation.tools, &[]);
        let prompt = prompt.ids;
        let context = self.facts().context;
        if prompt.len() >= context {
            return Err(Error::ContextFull {
                needed: prompt.len() + 1,
                context,
            });
        }
        // At least one token has to be fed, for its logits.
        let common = prompt
            .iter()
            .zip(session.tokens())
            .take_while(|(a, b)| a == b)
            .count()
            .min(prompt.len() - 1);
        let reused = session.back_to(common);
        let mut answer = Answer {
            text: String::new(),
            finish: Finish::Cancelled,
            prompt_tokens: prompt.len(),
            reused_tokens: reused,
            answer_tokens: 0,
            prefill: Duration::ZERO,
            first_token: None,
            decode: Duration::ZERO,
            position: 0,
        };
        let result = self.write(
            session,
            &prompt[reused..],
            tokenizer,
            parser,
            &mut Sampler::new(sampling, &prompt),
            sampling.max_tokens.unwrap_or(usize::MAX),
            cancel,
            begin,
            on_event,
            &mut answer,
        );
        answer.position = session.position();
        match result {
            Ok(finish) => {
                answer.finish = finish;
                Ok(answer)
            }
            Err(Error::Cancelled) => Ok(answer),
            Err(error) => Err(error),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn write(
        &self,
        session: &mut Session,
        prompt: &[u32],
        tokenizer: &ChatTokenizer,
        mut parser: AnswerParser,
        sampler: &mut Sampler<'_>,
        limit: usize,
        cancel: &Cancel,
        begin: Instant,
        on_event: &mut dyn FnMut(Event<'_>),
        answer: &mut Answer,
    ) -> Result<Finish> {
        let total = prompt.len();
        let prefill = Instant::now();
        let mut token;
        {
            let _span = tracing::info_span!("prefill", tokens = total).entered();
            // Where an edit of this turn's message will come back to.
            session.checkpoint();
            on_event(Event::Prefill { done: 0, total });
            if let Some(body) = prompt.get(..total - 1).filter(|body| !body.is_empty()) {
                session.prefill(body, cancel, &mut |done| {
                    on_event(Event::Prefill { done, total });
                })?;
            }
            // Where another answer will, and where the next turn does if this answer is written down differently.
            session.checkpoint();
            let logits = session.prefill(&prompt[total - 1..], cancel, &mut |_| {})?;
            token = sampler.choose(logits, answer.prompt_tokens);
            on_event(Event::Prefill { done: total, total });
        }
        answer.prefill = prefill.elapsed();
        if limit == 0 {
            return Ok(Finish::Length);
        }
        answer.first_token = Some(begin.elapsed());

        let _span = tracing::info_span!("decode").entered();
        let first = Instant::now();
        let mut parts = Vec::new();
        let finish = loop {
            answer.answer_tokens += 1;
            answer.decode = first.elapsed();
            parser.push(tokenizer.piece(token), &mut parts);
            give(&mut parts, answer, on_event);
            if parser.ended() {
                break Ok(Finish::End);
            }
            if answer.answer_tokens >= limit || session.position() + 1 >= self.facts().context {
                break Ok(Finish::Length);
            }
            if cancel.is_cancelled() {
                break Ok(Finish::Cancelled);
            }
            // A token is one step: it is finished before a stop is obeyed, so that the session stays whole.
            match session.decode(token) {
                Ok(logits) => {
                    token = sampler.choose(logits, answer.prompt_tokens + answer.answer_tokens)
                }
                Err(error) => break Err(error),
            }
        };
        parser.finish(false, &mut parts);
        give(&mut parts, answer, on_event);
        finish
    }
}

fn give(parts: &mut Vec<Part>, answer: &mut Answer, on_event: &mut dyn FnMut(Event<'_>)) {
    for part in parts.drain(..) {
        match part {
            Part::Content(text) => {
                on_event(Event::Text(&text));
                answer.text.push_str(&text);
            }
            // Plain messages ask for neither reasoning nor tools, so none of these comes.
            Part::Reasoning(_) | Part::Call(_) | Part::BrokenCall { .. } => {}
        }
    }
}

/// Weights in all: dense ones without their scales and the tables of the hash layers, and every expert.
fn parameters(container: &Container) -> u64 {
    let dense: u64 = container
        .tensors()
        .filter(|(name, t)| !name.ends_with(".scale") && t.dtype != Dtype::I64)
        .map(|(_, t)| {
            let count: u64 = t.shape.iter().map(|n| *n as u64).product();
            if t.dtype == Dtype::Fp4Packed {
                2 * count
            } else {
                count
            }
        })
        .sum();
    let (layers, experts) = container.expert_counts();
    let layout = container.expert_layout();
    let each: u64 = [&layout.gate, &layout.up, &layout.down]
        .iter()
        .map(|m| (m.rows * m.columns) as u64)
        .sum();
    dense + (layers * experts) as u64 * each
}
