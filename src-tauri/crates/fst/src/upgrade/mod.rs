//! Makes a container as this version writes them of an older one: of a model of version 2, or of a file of version 3 whose FP4 experts are in
//! rows. Into a new file, or in place where there is no room for a second one.
//!
//! In place nothing is ever needed beyond one expert record and the index (`in_place` says how). What a reader meets meanwhile is a file
//! whose version says that its upgrade was interrupted; it is never opened as a model. Everything that can be wrong is looked for
//! before the first byte is changed.

mod disk;
mod in_place;
mod journal;
mod relay;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::hash::Hasher as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use twox_hash::xxhash3_64::Hasher;

use crate::convert::{Output, Partial};
use crate::error::{Error, Result};
use crate::format::{Entry, Metadata, Source};
use crate::layout::{EffortTable, ExpertLayout};
use crate::read::Container;
use crate::write::{Contents, Plan};

use relay::Relay;

/// Bit in the version of a file whose upgrade is not finished.
const UNFINISHED: u32 = 1 << 31;

/// Whether `version` is that of a file whose upgrade is not finished.
pub(crate) fn is_unfinished(version: u32) -> bool {
    version & UNFINISHED != 0
        && matches!(
            version & !UNFINISHED,
            crate::v2::VERSION | crate::format::VERSION
        )
}

/// Upgrades the model `path` into `out`, or in place for none. False if it is as this version makes them already.
///
/// `progress` gets bytes done and bytes in all. When `cancel` becomes true, the work ends soon: a new file is removed, and an upgrade in place
/// waits for the next call, as it does after any error or a power cut.
pub fn upgrade(
    path: &Path,
    out: Option<&Path>,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<bool> {
    let mut step = |done, total| {
        if cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        progress(done, total);
        Ok(())
    };
    match out {
        Some(out) => beside(path, out, &mut step),
        None => in_place::upgrade(path, &mut disk::Real::default(), &mut step),
    }
}

fn beside(
    path: &Path,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<bool> {
    let from = Container::open(path)?;
    let Some(layout) = target(&from)? else {
        return Ok(false);
    };
    let mut inputs = vec![path.to_owned()];
    inputs.extend(crate::v2::companions(path));
    let output = Output::prepare(out, &inputs)?;
    output.may_begin()?;
    let (layers, experts) = from.expert_counts();
    let tensors: Vec<Entry> = from
        .tensors()
        .map(|(name, tensor)| Entry {
            name: name.to_owned(),
            dtype: tensor.dtype,
            shape: tensor.shape.to_vec(),
            offset: 0,
            bytes: tensor.bytes,
            checksum: 0,
        })
        .collect();
    let plan = Plan::new(Contents {
        config: from.config_text().to_vec(),
        tokenizer: from.tokenizer()?.map(Cow::into_owned),
        metadata: metadata(&from, path, layout, false),
        tensors,
        layers,
        experts,
    })
    .ok_or_else(|| Error::Output {
        path: out.to_owned(),
        problem: "the container would be too large.".into(),
    })?;
    let bytes = plan.file_bytes();
    if output.journal.exists() {
        return Err(Error::Output {
            path: out.to_owned(),
            problem:
                "an unfinished conversion to it is there. Finish that one, or choose another name."
                    .into(),
        });
    }
    output.discard()?;
    output.check_room(bytes, 0)?;
    let partial = output.create()?;
    let written = write(&from, &plan, &output, partial, progress);
    if written.is_err() {
        output.discard()?;
    }
    written.map(|()| true)
}

fn write(
    from: &Container,
    plan: &Plan,
    output: &Output,
    mut partial: Partial,
    progress: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    let total = plan.file_bytes();
    let failed = |e| output.write_error(e, total);
    partial.start_over(total).map_err(failed)?;
    partial
        .write(plan.map().tokenizer.start, plan.tokenizer())
        .map_err(failed)?;
    let mut sums = Vec::with_capacity(plan.tensors().len());
    for entry in plan.tensors() {
        let (mut at, mut hasher) = (entry.offset, Hasher::new());
        from.read_in_pieces(&entry.name, &mut |piece| {
            progress(at, total)?;
            hasher.write(piece);
            partial.write(at, piece).map_err(failed)?;
            at += piece.len() as u64;
            Ok(())
        })?;
        sums.push(hasher.finish());
    }
    let layout = &plan.metadata().layout;
    let mut relay = Relay::new(from.expert_layout(), layout);
    let (layers, experts) = from.expert_counts();
    let mut record = vec![0; layout.bytes];
    let mut records = Vec::with_capacity(plan.records());
    for (layer, expert) in (0..layers).flat_map(|l| (0..experts).map(move |e| (l, e))) {
        let at = plan.record(records.len());
        progress(at, total)?;
        relay.record(&from.expert(layer, expert)?, &mut record);
        partial.write(at, &record).map_err(failed)?;
        records.push(Hasher::oneshot(&record));
    }
    let (header, index) = plan.index(&sums, &records);
    partial.write(header.len() as u64, &index).map_err(failed)?;
    partial.sync().map_err(failed)?;
    // Last of all, so that a power cut before here leaves no magic.
    partial.write(0, &header).map_err(failed)?;
    partial.sync().map_err(failed)?;
    progress(total, total)?;
    output.finish()
}

/// The layout the experts of a file are to have; none if nothing has to be done.
fn target(from: &Container) -> Result<Option<ExpertLayout>> {
    let layout = from.expert_layout().in_packets();
    if layout.is_none() && from.version() == crate::v2::VERSION {
        return Err(Error::Original {
            message: "The experts of this file are too large.".into(),
        });
    }
    Ok(layout)
}

/// What the new file says about itself.
fn metadata(from: &Container, path: &Path, layout: ExpertLayout, in_place: bool) -> Metadata {
    if from.version() != crate::v2::VERSION {
        let before = from.metadata();
        return Metadata {
            layout,
            upgraded: in_place,
            ..before.clone()
        };
    }
    of_version_2(path, layout, in_place)
}

/// What a file says that was one of version 2, which does not say where it came from.
fn of_version_2(path: &Path, layout: ExpertLayout, in_place: bool) -> Metadata {
    Metadata {
        creator: crate::convert::CREATOR.to_owned(),
        source: Source {
            folder: path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned()),
            ..Source::default()
        },
        effort: Some(EffortTable::Preview),
        layout,
        upgraded: in_place,
        indexer: false,
    }
}
