//! Everything an upgrade in place does to the disk, in one place, so that a test can end it at any step.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The steps that change files.
pub(super) trait Disk {
    /// Makes an empty file in the place of what is there.
    fn create(&mut self, path: &Path) -> Result<()>;
    fn write(&mut self, path: &Path, at: u64, bytes: &[u8]) -> Result<()>;
    /// Everything written to the file is on the disk when this returns.
    fn sync(&mut self, path: &Path) -> Result<()>;
    fn set_length(&mut self, path: &Path, length: u64) -> Result<()>;
    /// Also makes the folder's entry lasting.
    fn rename(&mut self, from: &Path, to: &Path) -> Result<()>;
    fn remove(&mut self, path: &Path) -> Result<()>;
}

/// The real one.
#[derive(Default)]
pub(super) struct Real {
    open: HashMap<PathBuf, File>,
}

impl Real {
    fn file(&mut self, path: &Path) -> Result<&mut File> {
        if !self.open.contains_key(path) {
            let file = fastar_files::open(path, File::options().read(true).write(true))
                .map_err(|e| Error::io("write", path, e))?;
            self.open.insert(path.to_owned(), file);
        }
        match self.open.get_mut(path) {
            Some(file) => Ok(file),
            None => unreachable!("it was inserted above"),
        }
    }
}

/// Makes a change of a folder lasting. Not every file system can; the files' bytes are safe already.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    if let Ok(folder) = File::open(folder.unwrap_or(Path::new(".")))
        && let Err(error) = folder.sync_all()
    {
        tracing::debug!(%error, "folder not synced");
    }
}

impl Disk for Real {
    fn create(&mut self, path: &Path) -> Result<()> {
        fastar_files::make(path, &mut File::options()).map_err(|e| Error::io("create", path, e))?;
        Ok(())
    }

    fn write(&mut self, path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
        let file = self.file(path)?;
        file.seek(SeekFrom::Start(at))
            .and_then(|_| file.write_all(bytes))
            .map_err(|e| Error::io("write", path, e))
    }

    fn sync(&mut self, path: &Path) -> Result<()> {
        self.file(path)?
            .sync_all()
            .map_err(|e| Error::io("write", path, e))
    }

    fn set_length(&mut self, path: &Path, length: u64) -> Result<()> {
        self.file(path)?
            .set_len(length)
            .map_err(|e| Error::io("write", path, e))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        self.open.remove(from);
        fs::rename(from, to).map_err(|e| Error::io("rename", from, e))?;
        sync_folder(to);
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Result<()> {
        self.open.remove(path);
        fs::remove_file(path).map_err(|e| Error::io("remove", path, e))?;
        sync_folder(path);
        Ok(())
    }
}
