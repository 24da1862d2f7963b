//! What a conversion finds at its target, and how it takes that up.

use std::fmt;
use std::fs;

use super::super::journal::{Journal, Unusable};
use super::super::output::{Output, Partial, remove, size};
use super::Conversion;
use crate::error::{Error, Result, shown_path};
use crate::read::Container;
use crate::write::Plan;

/// What [`Conversion::open`] found at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing: this is a new conversion.
    New,
    /// The same conversion, unfinished; it goes on.
    Resumed {
        /// Bytes of weights that are done.
        bytes_done: u64,
    },
    /// Something that cannot be gone on with, and why; it was replaced.
    Over {
        /// A sentence.
        reason: String,
    },
    /// The same conversion, finished; only its journal had not been removed.
    Finished,
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("Started."),
            Self::Resumed { bytes_done } => write!(
                f,
                "Went on with an unfinished conversion: {} were done already.",
                size(*bytes_done)
            ),
            Self::Over { reason } => f.write_str(reason),
            Self::Finished => f.write_str("This conversion was finished already."),
        }
    }
}

/// Whether there is a conversion by this plan that can be gone on with, or was just finished.
pub(super) fn is_begun(
    output: &Output,
    plan: &Plan,
    fingerprint: u64,
    tensors: usize,
) -> Result<bool> {
    let journal = Journal::load(output.journal.clone(), fingerprint, tensors)
        .map_err(|e| Error::io("read", &output.journal, e))?;
    let length = fs::symlink_metadata(&output.partial).map(|about| about.len());
    Ok(journal.is_ok_and(|journal| match length {
        Ok(length) => length == plan.file_bytes(),
        Err(_) => journal.identity != 0,
    }))
}

impl Conversion {
    pub(super) fn take_up(&mut self, fingerprint: u64) -> Result<()> {
        let count = self.tensors.all.len();
        let journal = Journal::load(self.output.journal.clone(), fingerprint, count)
            .map_err(|e| Error::io("read", &self.output.journal, e))?;
        let total = self.file_bytes();
        let partial = self.output.open()?;
        let Some(partial) = partial else {
            if let Ok(journal) = journal
                && journal.identity != 0
                && Container::open(self.output.target())
                    .is_ok_and(|there| there.identity() == journal.identity)
            {
                self.journal = journal;
                self.start = Start::Finished;
                self.bytes_done = self.parts.bytes;
                return Ok(());
            }
            self.output.may_begin()?;
            self.output.check_room(total, 0)?;
            // What a journal without its file says is not so.
            remove(&self.output.journal)?;
            let partial = self.output.create()?;
            return self.begin(partial);
        };
        self.output.may_begin()?;
        self.output.check_room(total, partial.room())?;
        let length = partial.length().unwrap_or(0);
        if matches!(journal, Err(Unusable::Missing)) && length != 0 && length != total {
            // A conversion makes it empty or of its whole length, and notes that at once.
            return Err(self.output.in_the_way());
        }
        let why = match journal {
            Ok(journal) if partial.length().is_ok_and(|length| length == total) => {
                self.journal = journal;
                self.partial = Some(partial);
                self.bytes_done = self.done().map(|t| self.tensors.all[t].bytes).sum();
                self.start = Start::Resumed {
                    bytes_done: self.bytes_done,
                };
                return Ok(());
            }
            Ok(_) => "has not the length it should have",
            Err(Unusable::Missing) => "has no record of what is in it",
            Err(Unusable::Damaged) => "has a damaged record of what is in it",
            Err(Unusable::OtherPlan) => {
                "was made of another checkpoint, with other options or by another version"
            }
        };
        self.start = Start::Over {
            reason: format!(
                "Started over: {}, left by an unfinished conversion, {why}.",
                shown_path(&self.output.partial)
            ),
        };
        remove(&self.output.journal)?;
        self.begin(partial)
    }

    fn begin(&mut self, partial: Partial) -> Result<()> {
        let total = self.file_bytes();
        if let Err(error) = partial.start_over(total) {
            if partial.length().is_ok_and(|length| length == 0)
                && let Err(error) = remove(&self.output.partial)
            {
                tracing::debug!(%error, "an empty file stays");
            }
            return Err(self.output.write_error(error, total));
        }
        self.partial = Some(partial);
        self.save()
    }
}
