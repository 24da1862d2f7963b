//! Whether a finished file is still what the hub describes. Nothing is written, so that a model on a read-only disk can be checked.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::blocks::{BLOCK, Recorded};
use crate::contents::Compared;
use crate::snapshot::check;
use crate::{Control, Error, RemoteFile, Result};

/// Checks a finished file against the hub's hash (sha256 or git's, whichever the listing has), without the network and without writing anything. `on_bytes` is told the bytes read.
///
/// # Errors
/// [`Error::Damaged`] names the first damaged bytes; [`Error::Io`] if it cannot be read; [`Error::Busy`]; [`Error::Cancelled`].
pub fn verify(
    file: &RemoteFile,
    dest: &Path,
    control: &Control,
    mut on_bytes: impl FnMut(u64),
) -> Result<()> {
    check(file)?;
    let damaged = |problem: String| Error::Damaged {
        path: dest.to_owned(),
        problem,
    };
    let failed = |error: io::Error| Error::io("read", dest, error);
    // Before opening: a named pipe would wait for a writer for ever.
    let found = std::fs::metadata(dest).map_err(failed)?;
    if !found.is_file() {
        return Err(damaged("it is not a file".into()));
    }
    if found.len() != file.bytes {
        return Err(damaged(format!(
            "it has {} bytes instead of {}; download it again",
            found.len(),
            file.bytes
        )));
    }
    let Some(recorded) = Recorded::read(file, dest)? else {
        return Err(damaged(
            "it is of another revision; download it again".into(),
        ));
    };
    let data = File::open(dest).map_err(failed)?;
    let found = recorded.check(&data, failed, |read| {
        on_bytes(read);
        if control.is_cancelled() {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    })?;
    if found.whole.as_ref().is_some_and(Compared::is_right) {
        return Ok(());
    }
    let first = found.bad.first().filter(|_| recorded.is_complete());
    Err(damaged(match (first, found.whole) {
        (Some(block), _) => format!(
            "{} of its blocks of 4 MiB changed after the download, the first at byte {}; repair fetches only those",
            found.bad.len(),
            block * BLOCK
        ),
        (None, Some(wrong)) => format!(
            "its {} is {} and should be {}; download it again",
            wrong.kind, wrong.found, wrong.promised
        ),
        // Nothing is known that its bytes could be compared with.
        (None, None) => return Ok(()),
    }))
}
