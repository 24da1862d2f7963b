//! Whether a set fits, asked before its first byte.

use std::io;
use std::path::{Path, PathBuf};

use crate::blocks::presence;
use crate::{Error, RemoteFile, Result};

/// What a set needs and what there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the set.
    pub total: u64,
    /// Of these, already on the disk.
    pub present: u64,
    /// Still needed, with a small reserve.
    pub needed: u64,
    /// Free for this user where the folder is or will be.
    pub free: u64,
    /// The folder.
    pub folder: PathBuf,
}

impl Space {
    /// # Errors
    /// [`Error::NotEnoughSpace`] with the three numbers.
    pub fn check(&self) -> Result<()> {
        if self.needed > self.free {
            return Err(Error::NotEnoughSpace {
                needed: self.needed,
                free: self.free,
                folder: self.folder.clone(),
            });
        }
        Ok(())
    }
}

pub(crate) fn space(files: &[RemoteFile], folder: &Path) -> Result<Space> {
    let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0_u64, u64::saturating_add);
    let total = sum(&mut files.iter().map(|file| file.bytes));
    let present = sum(&mut files
        .iter()
        .map(|file| presence(file, &folder.join(&file.path)).bytes(file)));
    let missing = total.saturating_sub(present);
    // Room for the state files and for whatever else writes meanwhile.
    let reserve = (missing / 64).min(256 << 20);
    Ok(Space {
        total,
        present,
        needed: missing.saturating_add(reserve),
        free: free(folder)?,
        folder: folder.to_owned(),
    })
}

/// Bytes that this user may still write where `folder` is, or will be.
pub(crate) fn free(folder: &Path) -> Result<u64> {
    let absolute = std::path::absolute(folder).map_err(|error| Error::io("find", folder, error))?;
    for place in absolute.ancestors() {
        match rustix::fs::statvfs(place) {
            Ok(found) => return Ok(found.f_bavail.saturating_mul(found.f_frsize)),
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(Error::io("read", place, io::Error::from(error))),
        }
    }
    Err(Error::io(
        "find",
        folder,
        io::Error::from(io::ErrorKind::NotFound),
    ))
}

/// Makes the folder, and says so if nothing can be written there: a read-only file system may have no free byte and is not full.
pub(crate) fn writable(folder: &Path) -> Result<()> {
    let inside = folder.join(".");
    std::fs::create_dir_all(folder).map_err(|error| Error::io("make", &inside, error))?;
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)
        .map_err(|error| Error::io("write", &inside, io::Error::from(error)))
}
