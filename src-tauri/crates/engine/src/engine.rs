//! (Face agreed with app and cli; the implementation replaces this file.)

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{Error, Result};

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
pub struct Engine {
    _private: Arc<()>,
}

/// Facts about a loaded model.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    /// Size of the container in bytes.
    pub file_bytes: u64,
    /// Parameters in all.
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

/// One timeline: position and cached state. Belongs to the engine that made it.
pub struct Session {
    _private: (),
}

impl Session {
    /// Tokens fed so far.
    pub fn position(&self) -> usize {
        0
    }
}

/// Who wrote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions; at most one, first.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who wrote it.
    pub role: Role,
    /// Untrusted text: can never become a control token.
    pub text: String,
}

/// How tokens are chosen.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// 0 = always the likeliest token (lowest id on ties).
    pub temperature: f32,
    /// Nucleus: keep the likeliest tokens that together have this probability. 1 = all.
    pub top_p: f32,
    /// Same seed, same text.
    pub seed: u64,
    /// Most tokens to write; the context is the limit when none.
    pub max_tokens: Option<usize>,
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
    /// Tokens written.
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
    pub fn open(_path: &Path, _options: &Options) -> Result<Self> {
        Err(Error::Input("not yet".into()))
    }
    /// The same for a container in memory (the embedded demo).
    pub fn from_static(_bytes: &'static [u8], _options: &Options) -> Result<Self> {
        Err(Error::Input("not yet".into()))
    }
    /// Facts for people.
    pub fn facts(&self) -> &ModelFacts {
        unreachable!()
    }
    /// A fresh timeline.
    pub fn session(&self) -> Session {
        Session { _private: () }
    }
    /// Writes the next assistant message of `messages` (the last of which is the user's). What `session` already holds of the prompt is
    /// reused, otherwise it starts over. After any result the session is consistent and can be used again.
    /// A cancelled answer is `Ok` with `Finish::Cancelled` and the text so far.
    pub fn answer(
        &self,
        _session: &mut Session,
        _messages: &[Message],
        _sampling: &Sampling,
        _cancel: &Cancel,
        _on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        Err(Error::Input("not yet".into()))
    }
}
