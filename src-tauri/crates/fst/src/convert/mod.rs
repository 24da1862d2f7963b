//! Makes a container out of a Hugging Face checkpoint in DeepSeek's original tensor names.
//!
//! Everything that can be wrong with the checkpoint is looked for before the first byte is written: that all shards are there and whole,
//! that every tensor `config.json` asks for exists once with the right shape and type and nothing else does, that the tokenizer
//! belongs to the model, that the disk has room. The headers of the shards are enough for that, so a [`Conversion`] can be planned before
//! the shards are downloaded, and each can be deleted once it is [added](Conversion::add). Weights are copied in pieces of a megabyte,
//! matrices of FP4 experts packed one at a time; what is in memory does not grow with the model.
//!
//! Not here: downloading, other architectures, changing the precision of anything.

mod checkpoint;
mod config;
mod conversion;
mod inventory;
mod journal;
mod output;
mod tensors;
mod tokenizer;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::error::Result;

pub use checkpoint::{CREATOR, Checkpoint, ShardHeader};
pub use conversion::{Conversion, Start, discard_unfinished};
pub use output::size;
pub(crate) use output::{Output, Partial, free_bytes, remove};
pub(crate) use tensors::{StoredTensor, Tensors};
pub(crate) use tokenizer::check as check_tokenizer;

/// Converts a Hugging Face checkpoint folder into a container: a [`Conversion`] from its beginning, or from where one was left, to its end.
/// Returns warnings for a person (for example: no tokenizer.json).
///
/// `progress` gets bytes of weights written and bytes in all. A file that was at `out` before is untouched until the new one is whole.
pub fn convert(
    checkpoint: &Path,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<String>> {
    let go_on = AtomicBool::new(false);
    let mut conversion = Conversion::open(Checkpoint::open(checkpoint)?, out)?;
    let mut warnings = conversion.warnings().to_vec();
    if let Start::Over { reason } = conversion.start() {
        warnings.push(reason.clone());
    }
    conversion.add_folder(checkpoint, &go_on, &mut |_, done, all| progress(done, all))?;
    conversion.finish(&go_on, &mut |_, _| {})?;
    Ok(warnings)
}
