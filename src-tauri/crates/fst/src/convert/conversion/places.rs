//! Where each tensor of a checkpoint goes in the container, and what stands for the whole of it.

use std::hash::Hasher as _;

use twox_hash::xxhash3_64::Hasher;

use super::super::inventory::Selection;
use super::super::tensors::Tensors;
use crate::error::{Error, Result, shown};
use crate::format::{Entry, fits_directory};
use crate::layout::ExpertMatrix;
use crate::write::Plan;

/// Where one tensor of the checkpoint goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// As it is, from this offset on.
    Whole(u64),
    /// Into packets, with another tensor: the matrix of this number.
    Matrix(usize),
}

/// A matrix of an expert that is stored in packets, and the tensors it is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedMatrix {
    /// Where its packets begin.
    pub at: u64,
    /// Which of the three of an expert it is, in record order.
    pub part: usize,
    pub weight: usize,
    pub scale: usize,
}

/// Where each tensor of the checkpoint goes.
pub(super) struct Parts {
    /// For each tensor of the checkpoint; none for what is left out.
    pub place: Vec<Option<Place>>,
    /// Three for each record if experts are stored in packets, else none.
    pub matrices: Vec<PackedMatrix>,
    /// Bytes of all that is not left out.
    pub bytes: u64,
    pub selection: Selection,
}

impl Parts {
    pub fn new(selection: Selection, plan: &Plan, tensors: &Tensors) -> Self {
        let mut place = vec![None; tensors.all.len()];
        for (&(index, _), entry) in selection.dense.iter().zip(plan.tensors()) {
            place[index] = Some(Place::Whole(entry.offset));
        }
        let parts = selection.layout.parts();
        let packed = selection.layout.packed_matrices().count() == parts.len();
        let mut matrices = Vec::new();
        for record in 0..selection.records() {
            let start = plan.record(record);
            if packed {
                let (pairs, _) = selection.record(record).as_chunks::<2>();
                for (part, &[weight, scale]) in pairs.iter().enumerate() {
                    for index in [weight, scale] {
                        place[index] = Some(Place::Matrix(matrices.len()));
                    }
                    matrices.push(PackedMatrix {
                        at: start + parts[part].1.data.start as u64,
                        part,
                        weight,
                        scale,
                    });
                }
                continue;
            }
            let mut at = start;
            // The parts of a record follow each other without gaps, in this order.
            for &index in selection.record(record) {
                place[index] = Some(Place::Whole(at));
                at += tensors.all[index].bytes;
            }
        }
        let bytes = tensors
            .all
            .iter()
            .zip(&place)
            .filter(|(_, place)| place.is_some())
            .map(|(tensor, _)| tensor.bytes)
            .sum();
        Self {
            place,
            matrices,
            bytes,
            selection,
        }
    }

    /// The matrix of this number, and its shape.
    pub fn matrix(&self, number: usize) -> (PackedMatrix, &ExpertMatrix) {
        let matrix = self.matrices[number];
        (matrix, self.selection.layout.parts()[matrix.part].1)
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
