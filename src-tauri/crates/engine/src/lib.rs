//! DeepSeek V4 inference: a loaded model, its timelines, and answers to conversations.
//!
//! The face is narrow on purpose: an [`Engine`] is a loaded model, a [`Session`] one timeline, and [`Engine::answer`] writes the
//! next assistant message. Callers never see a tensor, except through [`diagnostic`].

pub mod diagnostic;
mod engine;
mod error;

pub use engine::{
    Answer, Cancel, Engine, Event, Finish, Message, ModelFacts, Options, Role, Sampling, Session,
};
pub use error::{Error, Result};
