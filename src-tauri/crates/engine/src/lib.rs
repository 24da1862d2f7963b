//! DeepSeek V4 inference: a loaded model, its timelines, and answers to conversations.
//!
//! The face is narrow on purpose: an [`Engine`] is a loaded model, a [`Session`] one timeline, and [`Engine::answer`] writes the
//! next assistant message. Callers never see a tensor, except through [`diagnostic`].
//!
//! "The V4 notes" in comments are DeepSeek's published description and reference code of the model, whose arithmetic the fixtures in
//! `tests/` carry: section 3 is the forward pass, 4 the roundings the model was trained with, 5 the state of a sequence.

mod answer;
mod chat;
pub mod diagnostic;
mod engine;
mod error;
mod load;
mod model;
mod pager;
pub mod plan;
pub mod routing;
mod sample;
mod session;

pub use answer::{Answer, Event, Finish};
pub use chat::{Conversation, Effort, Message, Reply, Role, Task, Thinking, Tool, ToolCall, Turn};
pub use engine::{Cancel, Engine, MOST_THREADS, ModelFacts, Options, threads_needed};
pub use error::{Error, Result};
pub use model::Activity;
pub use pager::{LayerStatistics, PageView, Statistics, StepStatistics};
pub use sample::Sampling;
pub use session::Session;
