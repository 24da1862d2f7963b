//! What can go wrong between a container and an answer.

use fastar_kernels::threads::Refused;

/// Errors of the engine. Each is one sentence that says what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The container could not be opened or a record in it is damaged.
    #[error(transparent)]
    Container(#[from] fastar_fst::Error),
    /// config.json inside the container is not one this engine can run.
    #[error("{0}")]
    Config(String),
    /// A tensor is missing or has the wrong shape or type.
    #[error("{0}")]
    Tensor(String),
    /// The tokenizer is missing or does not belong to the model.
    #[error("{0}")]
    Tokenizer(String),
    /// The prompt does not fit.
    #[error(
        "The conversation needs {needed} tokens and this model has room for {context}. Start a new chat or send a shorter message."
    )]
    ContextFull {
        /// Tokens the prompt needs, with one for the answer.
        needed: usize,
        /// Tokens there is room for.
        context: usize,
    },
    /// A token id outside the vocabulary, or an empty prompt.
    #[error("{0}")]
    Input(String),
    /// The arithmetic produced a value that is not finite.
    #[error("{0}")]
    NotFinite(String),
    /// The disk did not give an expert.
    #[error("{0}")]
    Read(String),
    /// The system refused memory.
    #[error("{0}")]
    Memory(String),
    /// The system starts no more threads.
    #[error(transparent)]
    Threads(#[from] Refused),
    /// A saved session could not be written, read or used; the conversation is read again instead.
    #[error("{0}")]
    SessionFile(String),
    /// The person stopped it.
    #[error("Stopped.")]
    Cancelled,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
