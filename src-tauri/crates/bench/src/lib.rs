//! How near FaStar comes to what a machine can do.
//!
//! Here: models of random weights with the widths of DeepSeek V4 Flash ([`generate`]).

mod error;
mod fill;
mod generate;
mod shape;

pub use error::{Error, Result};
pub use generate::{Recipe, generate};
pub use shape::{Dense, Shape, bytes_per_token};
