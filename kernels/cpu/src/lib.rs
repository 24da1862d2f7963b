//! Number formats and arithmetic on the CPU.
//!
//! What is here: decoding of the stored formats (BF16, FP8 e4m3, MXFP4, Q8_0), the two roundings that belong to the model, matrix times
//! vectors, and the small vector functions of the network. What is not: anything that knows a layer, a session or a file.
//!
//! Two kinds of [`product`]: a [`Matrix`](matrix::Matrix) times `f32` vectors, to the last bits of `f32`; and, where it is stored as [`mxfp4`] packets
//! or as [`q8_0`], times [`Activations`](activations::Activations) of eight bits, whose error is bounded there. A [`team`] shares out the rows.
//!
//! One rule holds everywhere: **the order of every floating-point operation is fixed by the data alone.** A result does not depend on
//! the number of threads, on how many tokens are computed together, or on which instruction set was found: the same source is
//! compiled for each (see [`dispatch`](mod@dispatch)) or, where the sets differ too much, tested to give the same bits; sums run over a
//! fixed number of lanes, and transcendental functions come from `libm` and not from the C library of the day. So prefill in any
//! chunking equals decode bit for bit, and so do two machines.

pub mod activations;
pub mod attention;
pub mod control_groups;
mod dense;
pub mod dispatch;
pub mod format;
mod fused;
mod lanes;
pub mod matrix;
pub mod mxfp4;
pub mod processors;
pub mod product;
pub mod q8_0;
pub mod rounding;
mod selftest;
pub mod team;
pub mod threads;
pub mod vector;
