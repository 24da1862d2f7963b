//! The `.fst` model container, version 3: everything a model needs in one file. Files of version 2, which the original FaStar published, are
//! read as well; how they look is documented in the module `v2`.
//!
//! A container holds the checkpoint's `config.json` and `tokenizer.json` byte for byte, every dense tensor in the precision the
//! checkpoint stored it in, and one record per routed expert. [`Container`] opens and checks it, [`convert`] makes one from a
//! Hugging Face folder in DeepSeek's tensor names, [`inspect`] describes one to a person. No arithmetic on weights happens here
//! and nothing here knows how a model is run.
//!
//! # The file, byte by byte
//!
//! All integers are little-endian. `align(n)` rounds up to a multiple of n; what lies between two parts is zero in a file made by [`convert`].
//! Nothing reads it but [`verify()`] and [`repair()`], for which other bytes there are damage: a whole file is the same byte by byte.
//!
//! | offset | length | what |
//! |---|---|---|
//! | 0 | 128 | header |
//! | `index_offset` | `config_bytes` | config.json as it was; the *index* begins here |
//! | align(8) | `metadata_bytes` | metadata, JSON |
//! | align(8) | `directory_bytes` | tensor directory |
//! | align(8) | 8 x layers x experts | one XXH3-64 per expert record, layer by layer; the *index* ends here |
//! | align(64) | `tokenizer_bytes` | tokenizer.json as it was |
//! | as the directory says | | dense tensors, each at a multiple of 64 |
//! | `records_offset` | layers x experts x `record_stride` | expert records, layer by layer |
//!
//! [`convert`] writes in this order, without more between two parts than alignment needs. A file that was upgraded in place keeps
//! its tensors and records where they were and has the index at its end: its metadata says `upgraded`, and only then may 4096 bytes or more
//! between two parts belong to nothing (the index before, and tensors that a sidecar of version 2 replaced). Parts never overlap, and the
//! last one ends with the file.
//!
//! ## Header
//!
//! | offset | type | field | |
//! |---|---|---|---|
//! | 0 | 4 bytes | magic | `FST\0` |
//! | 4 | u32 | version | 3 |
//! | 8 | u64 | `file_bytes` | length of the whole file |
//! | 16 | u64 | `config_bytes` | at most 1 MiB |
//! | 24 | u64 | `metadata_bytes` | at most 1 MiB |
//! | 32 | u64 | `directory_bytes` | |
//! | 40 | u64 | `tensors` | entries in the directory |
//! | 48 | u64 | `tokenizer_bytes` | 0 when there is none |
//! | 56 | u64 | `tokenizer_checksum` | XXH3-64 of it; 0 when there is none |
//! | 64 | u64 | `layers` | layers with routed experts |
//! | 72 | u64 | `experts` | routed experts in each |
//! | 80 | u64 | `record_bytes` | used bytes of a record |
//! | 88 | u64 | `record_stride` | `align(4096)` of it |
//! | 96 | u64 | `records_offset` | a multiple of 4096 |
//! | 104 | u64 | `index_offset` | a multiple of 8, 128 in a converted file |
//! | 112 | 8 bytes | reserved | zero |
//! | 120 | u64 | `index_checksum` | XXH3-64 of bytes 0..120 followed by the index |
//!
//! The index checksum covers the directory with its tensor checksums and the table of record checksums, so it stands for the whole
//! content: it is the container's [identity](Container::identity).
//!
//! ## Metadata
//!
//! One JSON object: `creator` (program and version), `source` (`folder`, and `repository` and `revision` where known, else null),
//! `effort` (`preview` or `0731`: the
//! [`EffortTable`], null where it is not known), `layout` (the [`ExpertLayout`]), `upgraded` (true after an upgrade in place, else
//! absent), `indexer` (false where the lightning indexer's weights are missing, else absent: such a model is exact only as long as every
//! compressed row may be attended, `index_topk` x 4 positions).
//! Fields a reader does not know are ignored.
//!
//! ## Directory
//!
//! `tensors` entries without gaps, ordered by offset:
//!
//! | type | field |
//! |---|---|
//! | u64 | offset in the file, a multiple of 64 |
//! | u64 | length in bytes |
//! | u64 | XXH3-64 of the bytes |
//! | u8 | type: 1 BF16, 2 F32, 3 I64, 4 F8_E4M3, 5 F8_E8M0, 6 packed FP4 (safetensors `I8`), 7 I32, 8 Q8_0 |
//! | u8 | number of dimensions, at most 4 |
//! | u16 | length of the name in bytes, 1 to 256 |
//! | u32 | zero |
//! | u64 each | dimensions, outermost first; of packed FP4 the last counts bytes, of Q8_0 elements, a multiple of 32 |
//! | bytes | name, UTF-8, then zeros up to a multiple of 8 |
//!
//! ## Expert record
//!
//! Gate (w1), up (w3), down (w2), no gaps. A record of DeepSeek V4 Flash in FP4 is 3 x (4,194,304 + 262,144) = 13,369,344 bytes in either
//! layout, which is its stride as well.
//!
//! Layout id `fp4-packets`, for FP4: each matrix in packets of eight rows with their scales, in the order in which the processor multiplies
//! them ([`fastar_kernels::mxfp4`] has it byte by byte). The bytes are those of the checkpoint in another order.
//!
//! Layout id `row-major`, for all else and for FP4 in files made before there were packets: each matrix as in the checkpoint: data, then
//! scales if the type has them.
//!
//! Experts of `mtp.*` blocks are dense tensors.

mod convert;
mod error;
mod format;
mod inspect;
mod layout;
mod packing;
mod read;
mod remedy;
mod repair;
mod upgrade;
mod v2;
mod verify;
mod write;
mod writer;

pub use convert::{
    CREATOR, Checkpoint, Conversion, ShardHeader, Start, convert, discard_unfinished, size,
};
pub use error::{Error, Result, json_problem, quoted};
pub use inspect::{Inspection, TypeSummary, inspect, made_from};
pub use layout::{Dtype, EffortTable, ExpertLayout, ExpertMatrix, Tensor, tensor_bytes};
pub use read::{Container, DensePlace, Records};
pub use remedy::Remedy;
pub use repair::{CheckpointFolder, RemoteCheckpoint, TensorSource, repair};
pub use upgrade::upgrade;
pub use v2::{Draft, draft};
pub use verify::{Damage, Depth, Part, Report, verify};
pub use writer::{NewContainer, Writer};
