//! Small models made by code when a test runs.
//!
//! [`Original`] is a set of files of version 2.
//! [`Chain`] writes exactly the tokens a test dictates; [`tiny`] is a network of random weights with every mechanism of V4 in it. Both are
//! real checkpoints that go through the real converter, so a test meets the same code as a person does. [`Synthetic`] writes checkpoints of any
//! size and kind for the converter alone. [`hub`] serves files as Hugging Face does, with the faults of real networks.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod chain;
mod checkpoint;
mod cold;
pub mod hub;
mod original;
mod packets;
mod synthetic;
mod tiny;
mod vocabulary;

pub use chain::Chain;
pub use checkpoint::{Checkpoint, TestModel};
pub use cold::cold_run;
pub use original::{Image, Original, Stored, WHOLE, original_checkpoint, smallest_checkpoint};
pub use packets::{packed_record, packets, row_record};
pub use synthetic::{Kind, Synthetic};
pub use tiny::{Tiny, tiny};
pub use vocabulary::Vocabulary;
