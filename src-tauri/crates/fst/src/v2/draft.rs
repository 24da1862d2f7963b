//! The draft file of version 2 (`dspark_draft.fst`): three blocks that guess the next tokens of a main model.

use std::path::Path;

use serde::Serialize;

use super::file::{File, GLOBAL};
use crate::error::{Result, shown_path};
use crate::read::Container;

/// What a draft file says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Draft {
    /// Its file, for people.
    #[serde(skip)]
    pub name: String,
    /// Blocks of the network.
    pub stages: u64,
    /// Tokens drafted at a time.
    pub block_size: u64,
    /// Rank of the Markov head.
    pub markov_rank: u64,
    /// The id that stands for a token to be guessed.
    pub noise_token: u64,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Size of the file.
    pub file_bytes: u64,
}

pub(super) fn is_draft(file: &File) -> bool {
    file.r1 != 0 || file.entries.keys().any(|(tid, ..)| (16..=21).contains(tid))
}

/// Reads header and directory of `path`; none if it is a file of another kind.
pub fn draft(path: &Path) -> Result<Option<Draft>> {
    let bytes = crate::read::open(path)?;
    let name = shown_path(path);
    if bytes.start(8)?[..] != *b"FST\0\x02\0\0\0" {
        return Ok(None);
    }
    let file = File::parse(&bytes, &name)?;
    if !is_draft(&file) {
        return Ok(None);
    }
    let [vocab, hidden] = match file.get(0, GLOBAL, 0).map(|e| e.shape.as_slice()) {
        Some(&[vocab, hidden]) => [vocab, hidden],
        _ => return Err(super::missing(&name, "its embedding")),
    };
    Ok(Some(Draft {
        name,
        stages: file.layers,
        block_size: file.r1 & 0xFFFF,
        markov_rank: file.r1 >> 16,
        noise_token: file.r2,
        vocab,
        hidden,
        file_bytes: bytes.length(),
    }))
}

impl Draft {
    /// Refuses a main model that this draft was not made for, with both sizes.
    pub fn check(&self, main: &Container) -> Result<()> {
        for (field, what, ours) in [
            ("vocab_size", "tokens in its vocabulary", self.vocab),
            ("hidden_size", "channels", self.hidden),
        ] {
            let theirs = main.config()[field].as_u64().unwrap_or(0);
            if theirs != ours as u64 {
                return Err(super::problem(format!(
                    "{} does not belong to this model: it has {ours} {what} and the model has {theirs}. Go on without it, or choose the draft that was published with the model.",
                    self.name
                )));
            }
        }
        Ok(())
    }

    /// A description for people.
    pub fn describe(&self) -> String {
        format!(
            "Container      version 2, {}\nKind           draft model, helps a main model and cannot chat\nStages         {}\nDrafts         blocks of {}, Markov rank {}, noise token {}\nHidden size    {}\nVocabulary     {}\n",
            crate::convert::size(self.file_bytes),
            self.stages,
            self.block_size,
            self.markov_rank,
            self.noise_token,
            self.hidden,
            self.vocab
        )
    }
}
