//! What a container was when it was opened, to tell whether others have changed it since.
//!
//! Work that reads a file for minutes says something about the file of that name, and not about what it was. Weights that change behind the
//! reader's back are not noticed: that would be reading everything twice.

use std::fs;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};

use twox_hash::xxhash3_64::Hasher;

use super::{Container, Text};
use crate::error::{Error, Result, shown_path};

/// A container as it was opened.
pub(crate) struct Seen {
    path: PathBuf,
    length: u64,
    identity: u64,
    /// Checksum of its tokenizer, whole or not.
    tokenizer: Option<u64>,
}

impl Seen {
    /// Remembers `container`, which was opened at `path`.
    pub fn of(path: &Path, container: &Container) -> Self {
        Self {
            path: path.to_owned(),
            length: container.length(),
            identity: container.identity(),
            tokenizer: tokenizer(container),
        }
    }

    /// The tokenizer was mended and has this checksum now.
    pub fn tokenizer_became(&mut self, checksum: u64) {
        self.tokenizer = Some(checksum);
    }

    /// An error where what has the name now is not what was opened. Reads length, header, index and tokenizer again; of version 2 also the
    /// files beside it.
    pub fn still(&self) -> Result<()> {
        let changed = |how: String| Error::Changed {
            name: shown_path(&self.path),
            how,
        };
        let gone =
            |why: &dyn std::fmt::Display| changed(format!("it cannot be read any more: {why}"));
        let length = fs::metadata(&self.path).map_err(|e| gone(&e))?.len();
        if length != self.length {
            return Err(changed(format!(
                "it had {} bytes and has {length}",
                self.length
            )));
        }
        let now = match Container::open_with_any_tokenizer(&self.path) {
            Ok(now) => now,
            Err(Error::Io { source, .. }) => return Err(gone(&source)),
            // Not a change: there is no memory for a second index.
            Err(error @ Error::NoSpace { .. }) => return Err(error),
            Err(_) => return Err(changed(OTHER_INDEX.to_owned())),
        };
        if now.identity() != self.identity {
            return Err(changed(OTHER_INDEX.to_owned()));
        }
        if tokenizer(&now) != self.tokenizer {
            return Err(changed("its tokenizer is another".to_owned()));
        }
        Ok(())
    }
}

const OTHER_INDEX: &str = "its header, its index or a file that belongs to it is another";

/// Checksum of the tokenizer, if there is one that can be read: where the disk cannot, [`verify`](crate::verify()) says so.
fn tokenizer(container: &Container) -> Option<u64> {
    match &container.tokenizer {
        Text::Here(range, _) if range.is_empty() => None,
        Text::Here(range, _) => {
            let mut hasher = Hasher::new();
            let read = container.bytes.each_piece(range.clone(), &mut |piece| {
                hasher.write(piece);
                Ok(())
            });
            read.ok().map(|()| hasher.finish())
        }
        Text::Own(text) => text.as_deref().map(Hasher::oneshot),
    }
}
