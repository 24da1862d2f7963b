//! Number formats and arithmetic on the CPU.
//!
//! What is here: decoding of the stored formats (BF16, FP8 e4m3, MXFP4), the two roundings that belong to the model, matrix times
//! vectors, and the small vector functions of the network. What is not: anything that knows a layer, a session or a file.
//!
//! One rule holds everywhere: **the order of every floating-point operation is fixed by the data alone.** A result does not depend on
//! the number of threads, on how many tokens are computed together, or on which instruction set was found: the same source is
//! compiled for each (see [`dispatch`](mod@dispatch)), sums run over a fixed number of lanes, and transcendental functions come from
//! `libm` and not from the C library of the day. So prefill in any chunking equals decode bit for bit, and so do two machines.

pub mod dispatch;
pub mod format;
mod lanes;
pub mod matrix;
pub mod rounding;
pub mod vector;
