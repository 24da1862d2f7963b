//! Where each tensor of a checkpoint goes in the container, and what stands for the whole of it.

use std::hash::Hasher as _;

use twox_hash::xxhash3_64::Hasher;

use super::super::inventory::Selection;
use super::super::tensors::Tensors;
use crate::error::{Error, Result, shown};
use crate::format::{Entry, fits_directory};
use crate::write::Plan;

/// Where each tensor of the checkpoint goes.
pub(super) struct Parts {
    /// Offset in the container for each tensor of the checkpoint; none for what is left out.
    pub target: Vec<Option<u64>>,
    /// Bytes of all that is not left out.
    pub bytes: u64,
    pub selection: Selection,
}

impl Parts {
    pub fn new(selection: Selection, plan: &Plan, tensors: &Tensors) -> Self {
        let mut target = vec![None; tensors.all.len()];
        for (&(index, _), entry) in selection.dense.iter().zip(plan.tensors()) {
            target[index] = Some(entry.offset);
        }
        for record in 0..selection.records() {
            let mut at = plan.record(record);
            // The parts of a record follow each other without gaps, in this order.
            for &index in selection.record(record) {
                target[index] = Some(at);
                at += tensors.all[index].bytes;
            }
        }
        let bytes = tensors
            .all
            .iter()
            .zip(&target)
            .filter(|(_, target)| target.is_some())
            .map(|(tensor, _)| tensor.bytes)
            .sum();
        Self {
            target,
            bytes,
            selection,
        }
    }
}

/// Stands for everything that decides the container's bytes, and for the shards they come from.
pub(super) fn fingerprint(plan: &Plan, tensors: &Tensors) -> u64 {
    let mut hasher = Hasher::new();
    let (header, index) = plan.index(&[], &vec![0; plan.records()]);
    hasher.write(&header);
    hasher.write(&index);
    hasher.write(plan.tokenizer());
    for shard in &tensors.shards {
        hasher.write(&shard.fingerprint.to_le_bytes());
    }
    hasher.finish()
}

/// The directory to be: dense tensors in the order of the inventory.
pub(super) fn entries(selection: &Selection, tensors: &Tensors) -> Result<Vec<Entry>> {
    selection
        .dense
        .iter()
        .map(|&(index, dtype)| {
            let tensor = &tensors.all[index];
            if !fits_directory(&tensor.name, tensor.shape.len()) {
                return Err(Error::Checkpoint {
                    path: tensors.place.clone(),
                    problem: format!("the name of tensor {} is too long.", shown(&tensor.name)),
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
