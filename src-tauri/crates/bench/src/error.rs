//! What can go wrong while measuring.

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
    /// A problem with a model file.
    #[error(transparent)]
    Container(#[from] fastar_fst::Error),
    /// A problem of the engine.
    #[error(transparent)]
    Engine(#[from] fastar_engine::Error),
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
