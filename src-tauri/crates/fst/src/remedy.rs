//! What helps a damaged container: said in one place, so that nobody is sent to a command that would refuse.

use std::path::Path;

use crate::error::{Result, quoted};
use crate::read::Container;

/// What can be done about damaged parts of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It names the repository it was made from: they can be fetched from there.
    Repository,
    /// It names none: they can be had only of a checkpoint that somebody has.
    Checkpoint,
    /// Nothing can mend it.
    Copy,
}

impl Remedy {
    /// What helps the container at `path`, whatever of it is damaged.
    pub fn of(path: &Path) -> Result<Self> {
        Ok(Container::open_with_any_tokenizer(path)?.remedy())
    }

    /// Sentences that say so of the file `path` with `parts` damaged parts.
    pub fn told(self, path: &Path, parts: usize) -> String {
        let them = if parts == 1 { "it" } else { "them" };
        let command = format!("fastar repair {}", quoted(path));
        match self {
            Self::Repository => format!("`{command}` mends {them}."),
            Self::Checkpoint => format!(
                "It does not say which repository it was made from: `{command} --from FOLDER` mends {them} from the checkpoint in FOLDER; without that, copy, download or convert the model again."
            ),
            Self::Copy => "Copy, download or convert it again.".to_owned(),
        }
    }
}
