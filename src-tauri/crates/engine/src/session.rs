//! One timeline: the tokens a model has seen, and what it remembers of them.

use crate::model::{State, Wanted, Work};
use crate::{Cancel, Engine, Error, Result};

/// Tokens a prompt is fed in at a time. Large enough that every weight is read once for many tokens, small enough that progress moves
/// and a stop is obeyed.
pub(crate) const CHUNK: usize = 128;

/// One timeline: position and cached state. Belongs to the engine that made it.
pub struct Session {
    engine: Engine,
    state: State,
    work: Work,
    tokens: Vec<u32>,
}

impl Session {
    pub(crate) fn new(engine: &Engine) -> Self {
        Self {
            state: engine.model().state(),
            work: Work::default(),
            tokens: Vec::new(),
            engine: engine.clone(),
        }
    }

    /// Tokens fed so far.
    pub fn position(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens fed so far.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Back to the beginning.
    pub fn reset(&mut self) {
        self.state = self.engine.model().state();
        self.tokens.clear();
    }

    /// Whether `engine` is the one this session belongs to.
    pub(crate) fn belongs_to(&self, engine: &Engine) -> bool {
        self.engine.is(engine)
    }

    /// Feeds a chunk and returns the wanted logits, [wanted tokens, vocab].
    ///
    /// Bad ids and a full context are refused before anything changes. Any other error (a stop, a damaged expert) leaves the layers at
    /// different positions, so the session goes back to the beginning.
    pub(crate) fn feed(
        &mut self,
        tokens: &[u32],
        wanted: Wanted,
        cancel: &Cancel,
    ) -> Result<&[f32]> {
        let config = &self.engine.model().config;
        if tokens.is_empty() {
            return Err(Error::Input("There are no tokens to read.".into()));
        }
        if let Some(id) = tokens.iter().find(|id| **id as usize >= config.vocab_size) {
            return Err(Error::Input(format!(
                "Token id {id} is outside the model's vocabulary of {}.",
                config.vocab_size
            )));
        }
        let needed = self.tokens.len() + tokens.len();
        if needed > config.max_position_embeddings {
            return Err(Error::ContextFull {
                needed,
                context: config.max_position_embeddings,
            });
        }
        let engine = self.engine.clone();
        let (state, work) = (&mut self.state, &mut self.work);
        let result = engine.run(|model| model.forward(tokens, wanted, state, work, cancel));
        match result {
            Ok(()) => {
                self.tokens.extend_from_slice(tokens);
                Ok(&self.work.logits)
            }
            Err(error) => {
                self.reset();
                Err(error)
            }
        }
    }

    /// Streams after the last layer of the last chunk, [n, hc_mult, D].
    pub(crate) fn streams(&self) -> &[f32] {
        &self.work.streams
    }
}
