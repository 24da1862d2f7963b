//! How near FaStar comes to what a machine can do.
//!
//! Models of random weights with the widths of DeepSeek V4 Flash ([`generate`]), and one [`run`] that measures the machine, the kernels and a
//! model against each other in the same minutes, and against another engine by turns. Every share is a ratio of two things measured right
//! after each other; nothing here is compared with a number of another day or machine.

mod between;
mod error;
mod fill;
mod generate;
mod paged;
mod peer;
mod report;
mod resident;
mod run;
mod shape;

pub use error::{Error, Result};
pub use generate::{Recipe, generate};
pub use peer::end_peer;
pub use report::{About, Bar, Line, Model, Report, Unit};
pub use run::{Group, Options, run};
pub use shape::{Dense, Shape, bytes_per_token};
