//! Makes a container out of a Hugging Face folder in DeepSeek's original tensor names.
//!
//! Everything that can be wrong with the folder is looked for before the first byte is written: that all shards are there and whole,
//! that every tensor `config.json` asks for exists once with the right shape and type and nothing else does, that the tokenizer
//! belongs to the model, that the disk has room. Weights are copied in pieces; memory is one expert record and a small buffer.
//!
//! Not here: downloading, other architectures, changing the precision of anything.

mod checkpoint;
mod config;
mod inventory;
mod output;
mod tokenizer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::format::{Entry, Metadata, Source, fits_directory};
use crate::layout::EffortTable;
use crate::write::{Contents, Plan, Weights};

use checkpoint::Checkpoint;
use config::Dimensions;
use inventory::Selection;
use output::Output;
pub(crate) use output::size;

/// Converts a Hugging Face checkpoint folder into a container. Written under a temporary name in the target's folder and renamed when
/// whole. Returns warnings for a person (for example: no tokenizer.json).
///
/// `progress` gets bytes written and bytes in all. After an error nothing is left, and a file that was at `out` before is untouched.
pub fn convert(
    checkpoint: &Path,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<String>> {
    convert_until(checkpoint, out, None, &AtomicBool::new(false), progress)
}

/// [`convert`] that ends with [`Error::Cancelled`] soon after `cancel` becomes true, leaving nothing behind. Without `effort` the names in the
/// folder's path decide.
pub fn convert_until(
    checkpoint: &Path,
    out: &Path,
    effort: Option<EffortTable>,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let mut checkpoint = Checkpoint::open(checkpoint)?;
    let dimensions = Dimensions::read(checkpoint.config(), &checkpoint.config_path())?;
    let tokenizer = checkpoint.tokenizer()?;
    match &tokenizer {
        Some(text) => tokenizer::check(
            text,
            &checkpoint.tokenizer_path(),
            dimensions.vocab,
            checkpoint.config(),
        )?,
        None => warnings.push(
            "The folder has no tokenizer.json: the model can be used with token ids only, not for chats.".to_owned(),
        ),
    }
    let selection = inventory::select(&dimensions, &checkpoint)?;
    warnings.extend(selection.warnings.iter().cloned());
    let output = Output::prepare(out, &checkpoint.files())?;
    let config = checkpoint.config_text().to_vec();
    let source = source(checkpoint.folder());
    let plan = Plan::new(Contents {
        config: &config,
        tokenizer: tokenizer.as_deref(),
        metadata: Metadata {
            creator: concat!("fastar ", env!("CARGO_PKG_VERSION")).to_owned(),
            effort: effort.or_else(|| effort_of(&source)),
            source,
            layout: selection.layout.clone(),
            upgraded: false,
            indexer: true,
        },
        tensors: entries(&selection, &checkpoint)?,
        layers: dimensions.layers,
        experts: dimensions.experts,
    })
    .map(|plan| write(plan, output, &selection, &mut checkpoint, cancel, progress));
    let Some(written) = plan else {
        return Err(Error::Checkpoint {
            path: checkpoint.folder().to_owned(),
            problem: "it is too large for a container.".into(),
        });
    };
    warnings.extend(written?);
    Ok(warnings)
}

fn write(
    plan: Plan<'_>,
    output: Output,
    selection: &Selection,
    checkpoint: &mut Checkpoint,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<String>> {
    output.check_room(plan.file_bytes())?;
    let (mut partial, warning) = output.create()?;
    let path = partial.path().to_owned();
    let mut weights = Copy {
        selection,
        checkpoint,
    };
    plan.write(
        partial.as_file_mut(),
        &path,
        &mut weights,
        &mut |done, total| {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            progress(done, total);
            Ok(())
        },
    )?;
    output.finish(partial)?;
    Ok(warning)
}

/// The directory to be: dense tensors in the order of the inventory.
fn entries(selection: &Selection, checkpoint: &Checkpoint) -> Result<Vec<Entry>> {
    selection
        .dense
        .iter()
        .map(|&(index, dtype)| {
            let tensor = checkpoint.tensor(index);
            if !fits_directory(&tensor.name, tensor.shape.len()) {
                return Err(Error::Checkpoint {
                    path: checkpoint.folder().to_owned(),
                    problem: format!(
                        "the name of tensor {} is too long.",
                        crate::error::shown(&tensor.name)
                    ),
                });
            }
            Ok(Entry {
                name: tensor.name.clone(),
                dtype,
                shape: tensor.shape.clone(),
                offset: 0,
                bytes: tensor.bytes,
                checksum: 0,
            })
        })
        .collect()
}

/// Hands the checkpoint's bytes to the writer.
struct Copy<'a> {
    selection: &'a Selection,
    checkpoint: &'a mut Checkpoint,
}

impl Weights for Copy<'_> {
    fn dense(&mut self, index: usize, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.checkpoint.copy(self.selection.dense[index].0, sink)
    }

    fn expert(&mut self, layer: usize, expert: usize, record: &mut [u8]) -> Result<()> {
        let tensors = self.selection.expert(layer, expert);
        let ranges = self
            .selection
            .layout
            .parts()
            .into_iter()
            .flat_map(|(_, m)| {
                std::iter::once(m.data.clone()).chain(m.scale.clone().map(|(_, range)| range))
            });
        for (&tensor, range) in tensors.iter().zip(ranges) {
            self.checkpoint.read(tensor, &mut record[range])?;
        }
        Ok(())
    }
}

/// What the folder's name tells about where it came from: the hub's cache names folders `models--owner--name/snapshots/revision`.
fn source(folder: &Path) -> Source {
    let parts: Vec<_> = folder
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let mut source = Source {
        folder: parts.last().cloned(),
        ..Source::default()
    };
    if let [.., repository, snapshots, revision] = parts.as_slice()
        && snapshots == "snapshots"
        && let Some((owner, name)) = repository
            .strip_prefix("models--")
            .and_then(|rest| rest.split_once("--"))
    {
        source.repository = Some(format!("{owner}/{name}"));
        source.revision = Some(revision.clone());
    }
    source
}

/// The effort table of DeepSeek's own repositories; none for a name that tells nothing.
fn effort_of(source: &Source) -> Option<EffortTable> {
    let name = source.repository.as_ref().or(source.folder.as_ref())?;
    if name.contains("0731") || name.contains("Vision-Exp") {
        Some(EffortTable::V0731)
    } else if name.contains("DeepSeek-V4") {
        Some(EffortTable::Preview)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_effort_table_follows_the_names_of_the_published_repositories() {
        let of = |path: &str| effort_of(&source(Path::new(path)));
        let hub = "/c/models--deepseek-ai--DeepSeek-V4-Flash-0731/snapshots/60d8d707";
        assert_eq!(of(hub), Some(EffortTable::V0731));
        assert_eq!(
            of("/m/DeepSeek-V4-Flash-Vision-Exp"),
            Some(EffortTable::V0731)
        );
        assert_eq!(
            of("/m/DeepSeek-V4-Flash-DSpark"),
            Some(EffortTable::Preview)
        );
        assert_eq!(of("/m/DeepSeek-V4-Flash"), Some(EffortTable::Preview));
        assert_eq!(of("/m/checkpoint"), None);
    }

    #[test]
    fn the_hub_cache_tells_repository_and_revision() {
        let found = source(Path::new(
            "/c/hub/models--deepseek-ai--DeepSeek-V4-Flash/snapshots/9e165c30",
        ));
        assert_eq!(
            found.repository.as_deref(),
            Some("deepseek-ai/DeepSeek-V4-Flash")
        );
        assert_eq!(found.revision.as_deref(), Some("9e165c30"));
        let plain = source(Path::new("/models/flash"));
        assert_eq!(plain.folder.as_deref(), Some("flash"));
        assert_eq!(plain.repository, None);
    }
}
