//! Routing traces: which experts tokens went to, and what a cache would have made of it.

pub use crate::pager::simulate::{Rates, compare};
pub use crate::pager::synthetic::{Random, Synthetic};
pub use crate::pager::trace::{Kind, Shape, Trace, TraceError, save};
