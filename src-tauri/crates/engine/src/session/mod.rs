//! One timeline: the tokens a model has seen, what it remembers of them, and going back in it.
//!
//! V4's compressors and its indexer carry unfinished blocks, so forgetting tokens is not a rewind. A session goes back in one of three ways,
//! cheapest first: by dropping rows (a few positions), from a checkpoint, or by reading the tokens again from a checkpoint before. All
//! three give the bits of a session that never went further.

mod file;

use std::path::Path;

use crate::model::{Snapshot, State, Wanted, Work};
use crate::{Cancel, Engine, Error, Result};

/// While a long prompt is read, a checkpoint is taken this often.
const CHECKPOINT_EVERY: usize = 2048;
/// Checkpoints kept; for Flash each takes about 24 MB.
pub(crate) const CHECKPOINTS: usize = 24;

/// One timeline: position and cached state. Belongs to the engine that made it.
pub struct Session {
    engine: Engine,
    state: State,
    work: Work,
    tokens: Vec<u32>,
    /// By position, ascending; none beyond the position.
    checkpoints: Vec<Snapshot>,
    computed: u64,
}

impl Session {
    pub(crate) fn new(engine: &Engine) -> Self {
        Self {
            state: engine.model().state(),
            work: Work::default(),
            tokens: Vec::new(),
            checkpoints: Vec::new(),
            computed: 0,
            engine: engine.clone(),
        }
    }

    /// Tokens fed so far.
    pub fn position(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens fed so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens computed in this session's life: fed ones and those read again by a rewind.
    pub fn computed(&self) -> u64 {
        self.computed
    }

    /// Back to the beginning.
    pub fn reset(&mut self) {
        self.state = self.engine.model().state();
        self.tokens.clear();
        self.checkpoints.clear();
    }

    /// Whether `engine` is the one this session belongs to.
    pub(crate) fn belongs_to(&self, engine: &Engine) -> bool {
        self.engine.is(engine)
    }

    /// Reads tokens and returns the logits of the last one, [vocab]. `progress` hears how many have been read: a piece that has come through a
    /// third of the layers counts by a third.
    ///
    /// A stop leaves the session at the last whole piece.
    pub fn prefill(
        &mut self,
        tokens: &[u32],
        cancel: &Cancel,
        progress: &mut dyn FnMut(usize),
    ) -> Result<&[f32]> {
        self.fits(tokens)?;
        let mut done = 0;
        for chunk in tokens.chunks(self.engine.chunk()) {
            let last = self.checkpoints.last().map_or(0, |c| c.position);
            if self.position() >= last + CHECKPOINT_EVERY {
                self.checkpoint();
            }
            let before = done;
            done += chunk.len();
            let wanted = if done == tokens.len() {
                Wanted::Last
            } else {
                Wanted::Nothing
            };
            self.advance(chunk, wanted, cancel, &mut |part| {
                progress(before + (chunk.len() as f64 * part) as usize);
            })?;
            progress(done);
        }
        Ok(&self.work.logits)
    }

    /// Feeds one token and returns the logits of the next, [vocab]. A stop is not looked for: a token is one step.
    pub fn decode(&mut self, token: u32) -> Result<&[f32]> {
        self.feed(&[token], Wanted::Last, &Cancel::default())
    }

    /// [`Session::decode`] that can be stopped.
    pub(crate) fn step(&mut self, token: u32, cancel: &Cancel) -> Result<&[f32]> {
        self.feed(&[token], Wanted::Last, cancel)
    }

    /// Feeds a short block and returns the logits after each of its tokens, [tokens, vocab]: equal, bit for bit, to those of decoding them
    /// one by one. [`Session::rewind`] takes back what is not wanted.
    pub fn verify(&mut self, tokens: &[u32]) -> Result<&[f32]> {
        self.feed(tokens, Wanted::All, &Cancel::default())
    }

    /// Remembers this position, so that a rewind to it costs nothing however far the session goes on.
    pub fn checkpoint(&mut self) {
        let position = self.position();
        if position == 0
            || self
                .checkpoints
                .last()
                .is_some_and(|c| c.position == position)
        {
            return;
        }
        self.checkpoints
            .push(self.engine.model().snapshot(&self.state));
        if self.checkpoints.len() > CHECKPOINTS {
            // The one that is missed least: its neighbours are closest. The newest is not in question.
            let gap = |i: &usize| {
                let before = i.checked_sub(1).map_or(0, |b| self.checkpoints[b].position);
                self.checkpoints[i + 1].position - before
            };
            if let Some(i) = (0..self.checkpoints.len() - 1).min_by_key(gap) {
                self.checkpoints.remove(i);
            }
        }
    }

    /// Goes back to `position`, which is at most the current one. Tokens after the nearest checkpoint may have to be read again.
    pub fn rewind(&mut self, position: usize) -> Result<()> {
        if position > self.position() {
            return Err(Error::Input(format!(
                "The session cannot go back to position {position}: it is at {}.",
                self.position()
            )));
        }
        let missing = self.tokens[..position].to_vec();
        let reached = self.back_to(position);
        if reached < position {
            self.prefill(&missing[reached..], &Cancel::default(), &mut |_| {})?;
        }
        Ok(())
    }

    /// Goes back to the latest position at or before `position` that needs no computing, and returns it.
    pub(crate) fn back_to(&mut self, position: usize) -> usize {
        let model = self.engine.model();
        let position = position.min(self.tokens.len());
        self.checkpoints.retain(|c| c.position <= position);
        let reached = if model.reaches(position, &self.state) {
            model.truncate(position, &mut self.state);
            position
        } else if let Some(checkpoint) = self.checkpoints.last() {
            model.restore(checkpoint, &mut self.state);
            checkpoint.position
        } else {
            self.state = model.state();
            0
        };
        self.tokens.truncate(reached);
        reached
    }

    /// Says whether `tokens` can follow: known ids, and room for them.
    fn fits(&self, tokens: &[u32]) -> Result<()> {
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
        Ok(())
    }

    /// Feeds a chunk and returns the wanted logits, [wanted tokens, vocab].
    ///
    /// After an error (a bad id, a full context, a stop, a damaged expert) the session is where it was before.
    pub(crate) fn feed(
        &mut self,
        tokens: &[u32],
        wanted: Wanted,
        cancel: &Cancel,
    ) -> Result<&[f32]> {
        self.fits(tokens)?;
        let engine = self.engine.clone();
        let (state, work) = (&mut self.state, &mut self.work);
        let result = engine.run(|model| model.forward(tokens, wanted, state, work, cancel));
        self.fed(tokens, result)?;
        Ok(&self.work.logits)
    }

    /// [`Session::feed`] layer by layer: `each` hears which part of them is done, from 0 to 1.
    fn advance(
        &mut self,
        tokens: &[u32],
        wanted: Wanted,
        cancel: &Cancel,
        each: &mut dyn FnMut(f64),
    ) -> Result<()> {
        self.fits(tokens)?;
        let engine = self.engine.clone();
        let (state, work) = (&mut self.state, &mut self.work);
        let mut through = || -> Result<()> {
            engine.run(|model| model.begin(tokens, state, work, cancel))?;
            let layers = engine.model().layers();
            for layer in 0..layers {
                if layer > 0 {
                    each(layer as f64 / layers as f64);
                }
                engine.run(|model| model.layer(layer, tokens, state, work, cancel))?;
            }
            engine.run(|model| model.finish(tokens, wanted, state, work, cancel))
        };
        let result = through();
        self.fed(tokens, result)
    }

    /// After a chunk has come through the network, or an error.
    fn fed(&mut self, tokens: &[u32], result: Result<()>) -> Result<()> {
        if result.is_err() {
            // Some layers have taken the chunk in and some have not.
            let before = self.tokens.len();
            self.engine.model().truncate(before, &mut self.state);
            return result;
        }
        self.tokens.extend_from_slice(tokens);
        self.computed += tokens.len() as u64;
        Ok(())
    }

    /// Streams after the last layer of the last chunk, [n, hc_mult, D].
    pub(crate) fn streams(&self) -> &[f32] {
        &self.work.streams
    }

    /// Bytes of all that is kept for this timeline, weights and work buffers not counted.
    pub fn bytes(&self) -> usize {
        let checkpoints: usize = self.checkpoints.iter().map(Snapshot::bytes).sum();
        self.state.bytes() + checkpoints + 4 * self.tokens.capacity()
    }

    /// Writes the timeline to a file, replacing it in one step, so that [`Session::load`] can go on with it in another process.
    pub fn save(&self, path: &Path) -> Result<()> {
        file::save(self, path)
    }

    /// Goes on with a saved timeline of this model. An error says why the file cannot be used and leaves the session at the beginning.
    pub fn load(&mut self, path: &Path) -> Result<()> {
        self.reset();
        let result = file::load(self, path);
        if result.is_err() {
            self.reset();
        }
        result
    }
}
