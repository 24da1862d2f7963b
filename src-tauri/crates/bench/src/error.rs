//! What can go wrong while measuring.

use std::io;
use std::path::PathBuf;

use fastar_kernels::threads::Refused;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Sizes that no file can hold.
    #[error(
        "No model of this shape can be made: its experts are not made of whole blocks of 32 weights."
    )]
    Shape,
    /// Stopped by the person.
    #[error("Stopped.")]
    Stopped,
    /// A context that is too small to measure in.
    #[error("The model has a context of {context} tokens and {tokens} are needed to measure it.")]
    Context {
        /// Needed.
        tokens: usize,
        /// There are.
        context: usize,
    },
    /// The system gives no threads.
    #[error(transparent)]
    Threads(#[from] Refused),
    /// The system gives no memory.
    #[error("There is no memory to measure with: {0}.")]
    Memory(io::Error),
    /// The model file cannot be read past the system's cache.
    #[error("{} could not be read: {source}.", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A model without a pager.
    #[error(
        "The experts of this model are not read from the disk as they are needed, so that cannot be measured."
    )]
    NotPaged,
    /// A peer's command that is of no use.
    #[error("The peer's command `{command}` {problem}.")]
    Peer {
        /// As it was given.
        command: String,
        /// What it did, after its name.
        problem: String,
    },
    /// A problem with a model file.
    #[error(transparent)]
    Container(#[from] fastar_fst::Error),
    /// A problem of the engine.
    #[error(transparent)]
    Engine(#[from] fastar_engine::Error),
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
