//! The embedding: one row for each token, so it is never worth memory of its own.
//!
//! A row is read from the file when it is wanted, through the system's page cache: 8 KB for each token of DeepSeek V4 Flash. It is not taken from the
//! mapping, because a file that is cut short while it is open would then end the process instead of the answer.

use fastar_fst::{Container, Dtype};

use super::weights::{Loader, Weight};
use crate::pager::{Dense, Disk, read_whole};
use crate::{Error, Result};

/// The rows.
pub struct Embedding {
    weight: Weight,
    /// The file they stay in; none where they are in memory.
    file: Option<Disk>,
}

impl Embedding {
    /// Its tensor.
    pub const NAME: &str = "embed.weight";

    /// Whether its rows are read from the file one by one: they must stand alone in it, without scales that belong to several rows.
    pub fn stays_in_file(container: &Container) -> bool {
        container.file().is_some()
            && container
                .dense_places()
                .any(|place| place.name == Self::NAME)
            && container
                .tensor(Self::NAME)
                .is_some_and(|t| matches!(t.dtype, Dtype::F32 | Dtype::Bf16 | Dtype::Q8_0))
    }

    /// Finds it; with `dense` its bytes have been checked already.
    pub fn load(
        container: &Container,
        dense: Option<&Dense>,
        vocab: usize,
        columns: usize,
    ) -> Result<Self> {
        let file = match (container.file(), dense) {
            (Some(file), Some(_)) if Self::stays_in_file(container) => {
                Some(Disk::new(file).map_err(|error| unreadable(container, &error))?)
            }
            _ => None,
        };
        let loader = match file {
            Some(_) => Loader::checked(container),
            None => Loader::resident(container, dense),
        };
        let weight = loader.matrix(Self::NAME, vocab, columns)?;
        Ok(Self { weight, file })
    }

    /// The row of a token, expanded into `out` [columns]. `bytes` are those of the dense weights, `buffer` is for reading.
    pub fn row(
        &self,
        container: &Container,
        bytes: &[u8],
        token: u32,
        buffer: &mut Vec<u8>,
        out: &mut [f32],
    ) -> Result<()> {
        let Some(file) = &self.file else {
            self.weight.view(bytes).row(token as usize, out);
            return Ok(());
        };
        let Some(place) = self.weight.row_place(token as usize) else {
            unreachable!("only rows that stand alone stay in the file");
        };
        buffer.resize(place.len(), 0);
        read_whole(file, buffer, place.start as u64)
            .map_err(|error| unreadable(container, &error))?;
        match self.weight.row_view(buffer) {
            Some(row) => row.row(0, out),
            None => unreachable!("the shape was checked when the model was loaded"),
        }
        Ok(())
    }
}

fn unreadable(container: &Container, error: &std::io::Error) -> Error {
    Error::Read(format!(
        "Could not read the embedding in {}: {error}. Check the disk and the file.",
        container.records().name()
    ))
}
