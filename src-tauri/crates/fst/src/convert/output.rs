//! The file a conversion writes: a partial file beside the target, renamed when whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result, shown_path};

/// Longest target name to which `.partial` can still be added (file systems allow 255 bytes).
const MOST_NAME_BYTES: usize = 240;

/// Where the container will be.
pub(crate) struct Output {
    target: PathBuf,
    folder: PathBuf,
    partial_name: OsString,
    inputs: Vec<PathBuf>,
}

impl Output {
    /// Checks that `out` can be a target: in a folder that exists, not one of `inputs`, not something other than a file.
    pub fn prepare(out: &Path, inputs: &[PathBuf]) -> Result<Self> {
        let fail = |problem: &str| Error::Output {
            path: out.to_owned(),
            problem: problem.to_owned(),
        };
        // A link stays a link: what it leads to is written.
        let target = match fs::symlink_metadata(out) {
            Ok(about) if about.is_symlink() => {
                fs::canonicalize(out).map_err(|_| fail("it is a link that leads nowhere."))?
            }
            _ => out.to_owned(),
        };
        if target.is_dir() {
            return Err(fail(
                "it is a folder. Give the name of the file to make, ending in .fst.",
            ));
        }
        if target.exists() && !target.is_file() {
            return Err(fail("it is not a regular file."));
        }
        let name = target
            .file_name()
            .ok_or_else(|| fail("it is not a file name."))?;
        let folder = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        if !folder.is_dir() {
            return Err(fail(if folder.exists() {
                "a file is where its folder should be."
            } else {
                "its folder does not exist."
            }));
        }
        let inputs: Vec<_> = inputs
            .iter()
            .filter_map(|path| fs::canonicalize(path).ok())
            .collect();
        let real = fs::canonicalize(&folder)
            .map(|folder| folder.join(name))
            .map_err(|e| Error::io("open", &folder, e))?;
        if inputs.contains(&real) {
            return Err(fail("it is one of the files to be converted."));
        }
        let mut partial_name = if name.len() > MOST_NAME_BYTES {
            OsString::from(format!(
                "fastar-{:016x}",
                twox_hash::xxhash3_64::Hasher::oneshot(name.as_encoded_bytes())
            ))
        } else {
            name.to_owned()
        };
        partial_name.push(".partial");
        Ok(Self {
            target,
            folder,
            partial_name,
            inputs,
        })
    }

    /// Says no before the work when the disk has no room for `bytes`.
    pub fn check_room(&self, bytes: u64) -> Result<()> {
        match free_bytes(&self.folder) {
            Some(free) if free.saturating_add(self.leftover_bytes()) < bytes => {
                Err(Error::NoSpace {
                    message: format!(
                        "Not enough space for {}: it needs {} and {} has {} free. Free some space or choose another folder.",
                        shown_path(&self.target),
                        size(bytes),
                        shown_path(&self.folder),
                        size(free)
                    ),
                })
            }
            _ => Ok(()),
        }
    }

    /// Makes the partial file and holds a lock on it. What a conversion that was killed left is removed, with a warning.
    pub fn create(&self) -> Result<(NamedTempFile, Option<String>)> {
        let path = self.folder.join(&self.partial_name);
        let mut warning = None;
        let file = match self.try_create() {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.remove_leftover(&path)?;
                warning = Some(format!(
                    "Removed {}, which an unfinished conversion had left, and started over.",
                    shown_path(&path)
                ));
                self.try_create()
            }
            other => other,
        }
        .map_err(|e| Error::io("create", &path, e))?;
        // Where the file system has no locks there is none; the name alone then guards against a second conversion.
        if let Err(TryLockError::WouldBlock) = file.as_file().try_lock() {
            return Err(self.busy());
        }
        Ok((file, warning))
    }

    /// Puts the whole file under its final name.
    pub fn finish(&self, file: NamedTempFile) -> Result<()> {
        file.persist(&self.target)
            .map_err(|e| Error::io("rename the finished file to", &self.target, e.error))?;
        // The rename itself must survive a power cut. Not every file system can sync a folder; the file's bytes are safe already.
        if let Ok(folder) = File::open(&self.folder)
            && let Err(error) = folder.sync_all()
        {
            tracing::debug!(%error, "folder not synced");
        }
        Ok(())
    }

    fn try_create(&self) -> io::Result<NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(&self.partial_name).rand_bytes(0);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // As any new file: the umask decides. Temporary files are private by default, a model need not be.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        builder.tempfile_in(&self.folder)
    }

    fn remove_leftover(&self, path: &Path) -> Result<()> {
        let io = |e| Error::io("remove", path, e);
        let is_input = fs::canonicalize(path).is_ok_and(|real| self.inputs.contains(&real));
        if is_input || !fs::symlink_metadata(path).map_err(io)?.is_file() {
            return Err(Error::Output {
                path: self.target.clone(),
                problem: format!("{} is in the way.", shown_path(path)),
            });
        }
        let file = OpenOptions::new().write(true).open(path).map_err(io)?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(self.busy());
        }
        fs::remove_file(path).map_err(io)
    }

    fn leftover_bytes(&self) -> u64 {
        fs::metadata(self.folder.join(&self.partial_name)).map_or(0, |about| about.len())
    }

    fn busy(&self) -> Error {
        Error::Output {
            path: self.target.clone(),
            problem: "another conversion is writing it.".into(),
        }
    }
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(folder).ok()?;
    about.f_bavail.checked_mul(about.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

/// Bytes for people, in decimal units as disks are sold.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for next in ["kB", "MB", "GB", "TB"] {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if unit == "bytes" {
        format!("{bytes} bytes")
    } else {
        format!("{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn too_little_room_is_said_with_both_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output::prepare(&folder.path().join("m.fst"), &[]).unwrap();
        output.check_room(4096).unwrap();
        let error = output.check_room(u64::MAX).unwrap_err().to_string();
        assert!(error.contains("needs 18446744.1 TB"), "{error}");
        assert!(error.contains("free. Free some space"), "{error}");
    }

    #[test]
    fn a_second_conversion_to_the_same_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output::prepare(&folder.path().join("m.fst"), &[]).unwrap();
        let (first, warning) = output.create().unwrap();
        assert_eq!(warning, None);
        let error = output.create().unwrap_err().to_string();
        assert!(error.contains("another conversion"), "{error}");
        drop(first);
        output.create().unwrap();
    }

    #[test]
    fn what_a_killed_conversion_left_is_removed_and_said() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("m.fst.partial"), b"half").unwrap();
        let output = Output::prepare(&folder.path().join("m.fst"), &[]).unwrap();
        let (_, warning) = output.create().unwrap();
        assert!(warning.unwrap().contains("started over"));
    }

    #[test]
    fn the_longest_possible_name_works() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("ü".repeat(127));
        let output = Output::prepare(&target, &[]).unwrap();
        let (file, _) = output.create().unwrap();
        output.finish(file).unwrap();
        assert!(target.is_file());
    }
}
