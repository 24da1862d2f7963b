//! Where the parts of a container lie in its file and what their bytes must be, for the container itself and for a reader that fetches them in its
//! own way.
//!
//! Here, and nowhere else, FP8 codes that are no numbers are refused: whichever way a file came, its weights pass here before anything is
//! multiplied with them, and products take such a code for 480 (see [`e4m3_nan`]). A conversion keeps them as they are, and
//! [`verify`](crate::verify()) names them.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use fastar_kernels::format::e4m3_nan;
use twox_hash::xxhash3_64::Hasher;

use super::{Bytes, Container};
use crate::error::{Error, Result, shown};
use crate::layout::{Dtype, ExpertLayout};
use crate::remedy::Remedy;

/// Where the expert records of a container lie, and what their bytes must be.
#[derive(Clone)]
pub struct Records {
    pub(super) name: Arc<str>,
    pub(super) first: u64,
    pub(super) stride: u64,
    pub(super) bytes: usize,
    pub(super) experts: usize,
    /// One for each record; version 2 has none.
    pub(super) checksums: Option<Arc<[u64]>>,
    /// What helps where one does not match.
    pub(super) remedy: Remedy,
    /// Matrices of FP8 codes in a record, by the checkpoint's names.
    pub(super) codes: Arc<[(&'static str, Range<usize>)]>,
}

/// The matrices of FP8 codes in a record of this layout.
pub(super) fn codes(layout: &ExpertLayout) -> Arc<[(&'static str, Range<usize>)]> {
    let parts = layout.parts().into_iter();
    parts
        .filter(|(_, matrix)| matrix.dtype == Dtype::F8E4m3)
        .map(|(part, matrix)| (part, matrix.data.clone()))
        .collect()
}

/// Refuses FP8 codes that are no numbers.
fn check_numbers(name: &str, codes: &[u8], what: impl FnOnce() -> String) -> Result<()> {
    match e4m3_nan(codes) {
        None => Ok(()),
        Some(at) => Err(Error::NotANumber {
            name: name.to_owned(),
            what: what(),
            at,
        }),
    }
}

/// Where a dense tensor lies in the file.
#[derive(Clone, Copy, Debug)]
pub struct DensePlace<'a> {
    /// Its name.
    pub name: &'a str,
    /// Offset in the file, a multiple of 64.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

impl Records {
    /// The file, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Offset of a record in the file, a multiple of 4096.
    pub fn offset(&self, layer: usize, expert: usize) -> u64 {
        self.first + (layer * self.experts + expert) as u64 * self.stride
    }

    /// Used bytes of a record.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks a record that was read elsewhere: `record` has [`Records::bytes`].
    pub fn check(&self, layer: usize, expert: usize, record: &[u8]) -> Result<()> {
        let Some(checksums) = &self.checksums else {
            // Version 2 has none, but its converter wrote zeros for an expert it did not find.
            return match record.iter().any(|&b| b != 0) {
                true => Ok(()),
                false => Err(Error::Original {
                    message: format!(
                        "{} has nothing but zeros for expert {expert} of layer {layer}: it was missing when the file was made. Download the file again, or convert the original checkpoint with `fastar convert`.",
                        self.name
                    ),
                }),
            };
        };
        if checksums.get(layer * self.experts + expert) != Some(&Hasher::oneshot(record)) {
            return Err(Error::Checksum {
                name: self.name.to_string(),
                what: format!("expert {expert} of layer {layer}"),
                remedy: self.remedy,
            });
        }
        self.codes.iter().try_for_each(|(part, range)| {
            check_numbers(&self.name, &record[range.clone()], || {
                format!("tensor \"layers.{layer}.ffn.experts.{expert}.{part}.weight\"")
            })
        })
    }
}

impl Container {
    /// The open file; none for a container in memory. Its content stays what it was after another file took its name.
    pub fn file(&self) -> Option<&File> {
        match &self.bytes {
            Bytes::File { file, .. } => Some(file),
            Bytes::Static(_) => None,
        }
    }

    /// Where the expert records lie, and what they must be.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Every dense tensor of this file (not of a sidecar), in its order.
    pub fn dense_places(&self) -> impl Iterator<Item = DensePlace<'_>> {
        self.entries
            .iter()
            .enumerate()
            .filter(|(index, _)| self.sources.get(*index).is_none_or(|source| *source == 0))
            .map(|(_, entry)| DensePlace {
                name: &entry.name,
                offset: entry.offset,
                bytes: entry.bytes,
            })
    }

    /// Where a dense tensor lies in this file; none if there is none of that name here.
    pub fn dense_place(&self, name: &str) -> Option<DensePlace<'_>> {
        let index = self.find(name)?;
        let entry = &self.entries[index];
        let is_here = self.sources.get(index).is_none_or(|source| *source == 0);
        is_here.then_some(DensePlace {
            name: &entry.name,
            offset: entry.offset,
            bytes: entry.bytes,
        })
    }

    /// Checks bytes of a dense tensor that were read elsewhere.
    pub fn check_tensor(&self, name: &str, data: &[u8]) -> Result<()> {
        self.check_tensor_hash(name, || Hasher::oneshot(data))?;
        match self.tensor(name) {
            Some(tensor) if tensor.dtype == Dtype::F8E4m3 => {
                check_numbers(&self.name, data, || format!("tensor {}", shown(name)))
            }
            _ => Ok(()),
        }
    }

    /// The same for one that is not FP8, where the XXH3-64 of its bytes is computed by the caller.
    pub fn check_tensor_hash(&self, name: &str, hash: impl FnOnce() -> u64) -> Result<()> {
        let entry = self.find(name).map(|index| &self.entries[index]);
        let entry = entry.ok_or_else(|| Error::NoSuchTensor {
            name: self.name.clone(),
            tensor: name.to_owned(),
        })?;
        if self.checksums.is_none() || hash() == entry.checksum {
            return Ok(());
        }
        Err(Error::Checksum {
            name: self.name.clone(),
            what: format!("tensor {}", shown(name)),
            remedy: self.remedy(),
        })
    }
}
