//! Where a repair gets original tensors: a checkpoint folder, or shards that lie elsewhere and give up ranges of themselves.

use std::io;
use std::ops::Range;
use std::path::Path;

use crate::convert::{Checkpoint, StoredTensor, Tensors};
use crate::error::{Error, Result, shown};

/// Where original tensors can be had.
pub trait TensorSource {
    /// Hands all bytes of the tensor of this name to `sink`, in pieces, in order.
    fn read(&mut self, tensor: &str, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// tokenizer.json, if there is one.
    fn tokenizer(&mut self) -> Result<Option<Vec<u8>>>;

    /// The file that holds the tensor of this name, for people.
    fn shard(&self, tensor: &str) -> Option<String>;
}

/// A checkpoint and what its headers say of its tensors.
struct Directory {
    checkpoint: Checkpoint,
    tensors: Tensors,
}

impl Directory {
    fn new(checkpoint: Checkpoint) -> Result<Self> {
        let (tensors, problem) = Tensors::read(&checkpoint)?;
        if let Some(problem) = problem {
            tracing::warn!(%problem, "repairing from an incomplete checkpoint");
        }
        Ok(Self {
            checkpoint,
            tensors,
        })
    }

    fn find(&self, tensor: &str) -> Result<&StoredTensor> {
        match self.tensors.find(tensor) {
            Some(index) => Ok(&self.tensors.all[index]),
            None => Err(Error::Checkpoint {
                path: self.checkpoint.place.clone(),
                problem: format!("it has no tensor {}, which is needed.", shown(tensor)),
            }),
        }
    }

    fn shard_of(&self, tensor: &StoredTensor) -> &str {
        &self.tensors.shards[tensor.shard].name
    }

    fn shard(&self, tensor: &str) -> Option<String> {
        let tensor = &self.tensors.all[self.tensors.find(tensor)?];
        Some(self.shard_of(tensor).to_owned())
    }
}

/// A checkpoint folder as a source. Shards that are not needed need not be there.
pub struct CheckpointFolder(Directory);

impl CheckpointFolder {
    /// Reads the headers of the shards in the folder.
    ///
    /// # Errors
    /// When it is no checkpoint.
    pub fn open(folder: &Path) -> Result<Self> {
        Directory::new(Checkpoint::open(folder)?).map(Self)
    }
}

impl TensorSource for CheckpointFolder {
    fn read(&mut self, tensor: &str, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Directory {
            checkpoint,
            tensors,
        } = &self.0;
        let tensor = self.0.find(tensor)?;
        let path = checkpoint.place.join(self.0.shard_of(tensor));
        tensors.open(tensor.shard, &path)?.copy(tensor, sink)
    }

    fn tokenizer(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.0.checkpoint.tokenizer.clone())
    }

    fn shard(&self, tensor: &str) -> Option<String> {
        self.0.shard(tensor)
    }
}

/// A checkpoint as a source whose shards are elsewhere: on a hub, in an archive. Only the ranges of the tensors that are needed are asked for.
///
/// `read` gets the name of a shard and a range of its bytes, never an empty one nor one of more than [`MOST_BYTES`](Self::MOST_BYTES), and
/// returns exactly those bytes. What it returns is not trusted: other lengths are refused here, other bytes by the checksum in the container.
/// Its error becomes the reason in [`Error::NotFetched`]; after the wish that cancels the repair it may be any.
pub struct RemoteCheckpoint<R> {
    directory: Directory,
    read: R,
}

impl<R: FnMut(&str, Range<u64>) -> io::Result<Vec<u8>>> RemoteCheckpoint<R> {
    /// Most bytes that are asked for, and in memory, at once: a matrix of an expert of DeepSeek V4 Flash has 4 MiB.
    pub const MOST_BYTES: u64 = 16 << 20;

    /// Of a checkpoint whose headers are known. Shards that are not needed need not be among them.
    ///
    /// # Errors
    /// When the index of the checkpoint is none.
    pub fn new(checkpoint: Checkpoint, read: R) -> Result<Self> {
        let directory = Directory::new(checkpoint)?;
        Ok(Self { directory, read })
    }
}

impl<R: FnMut(&str, Range<u64>) -> io::Result<Vec<u8>>> TensorSource for RemoteCheckpoint<R> {
    fn read(&mut self, tensor: &str, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let tensor = self.directory.find(tensor)?;
        let shard = self.directory.shard_of(tensor);
        let fail = |problem: &str| Error::NotFetched {
            tensor: shown(&tensor.name),
            shard: shown(shard),
            place: self.directory.checkpoint.place.clone(),
            problem: problem.trim_end_matches('.').to_owned(),
        };
        let end = tensor.offset + tensor.bytes;
        let mut at = tensor.offset;
        while at < end {
            let next = end.min(at + Self::MOST_BYTES);
            let piece = (self.read)(shard, at..next).map_err(|e| fail(&e.to_string()))?;
            if piece.len() as u64 != next - at {
                return Err(fail(&format!(
                    "{} bytes came for {at} to {next}",
                    piece.len()
                )));
            }
            sink(&piece)?;
            at = next;
        }
        Ok(())
    }

    fn tokenizer(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.directory.checkpoint.tokenizer.clone())
    }

    fn shard(&self, tensor: &str) -> Option<String> {
        self.directory.shard(tensor)
    }
}
