//! A folder for a model that is made to be measured: gone when it is no longer needed, however the program ends.
//!
//! Nothing can be done by a program that is killed, so each folder holds a file that its program has locked. The next run removes folders
//! whose lock is free.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::Path;

use crate::failure::Failure;
use crate::terminal;

const PREFIX: &str = "fastar-bench-";
const LOCK: &str = "in use";

/// The folder; removed with what is in it when this goes.
pub struct Temporary {
    folder: tempfile::TempDir,
    _lock: File,
}

impl Temporary {
    /// Makes one in `parent`, and removes there what programs left that were killed.
    pub fn new(parent: &Path) -> Result<Self, Failure> {
        remove_left(parent);
        let failed = |e: std::io::Error| {
            let parent = parent.display();
            let why = fastar_files::unwritten(&e);
            Failure::Error(format!("No folder could be made in {parent}: {why}"))
        };
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .map_err(failed)?;
        let mut lock = File::create_new(folder.path().join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            // Only a file with something in it is one that was locked.
            Ok(()) => lock.write_all(b"1").map_err(failed)?,
            // Some network file systems have no locks. Nobody will then take the folder for one that was left.
            Err(error) => tracing::debug!(%error, "the folder cannot be locked"),
        }
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders of programs that were killed.
fn remove_left(parent: &Path) {
    // A parent that cannot be read is told when a folder is made in it.
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_ours {
            continue;
        }
        let folder = entry.path();
        match is_left(&folder) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                // Somebody else's, for example.
                tracing::debug!(%error, folder = %folder.display(), "not looked into");
                continue;
            }
        }
        let shown = folder.display();
        terminal::note(&match fs::remove_dir_all(&folder) {
            Ok(()) => format!("fastar: Removed {shown}, which a run that was killed had left."),
            Err(error) => format!(
                "fastar: {shown} was left by a run that was killed and cannot be removed: {error}."
            ),
        });
    }
}

/// Whether a folder belongs to no program any more.
fn is_left(folder: &Path) -> std::io::Result<bool> {
    let path = folder.join(LOCK);
    if !fs::symlink_metadata(&path)?.is_file() {
        return Ok(false);
    }
    let lock = File::options().read(true).write(true).open(path)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock.metadata()?.len() > 0),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
