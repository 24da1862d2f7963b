//! The file a conversion writes: a partial file beside the target, renamed when whole, and its journal.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fastar_files::{holders, locks};

use super::journal::sync_folder;
use crate::error::{Error, Result, shown_path};
use crate::format::MAGIC;

/// Longest target name to which the endings can still be added (file systems allow 255 bytes).
const MOST_NAME_BYTES: usize = 230;
/// Bytes after which the system is told to begin with writing them.
const PENDING_BYTES: u64 = 64 << 20;

/// Whether nothing but an older container, or nothing at all, would be lost if a file of this name were written.
fn may_be_replaced(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MAGIC.len() as u64).read_to_end(&mut begin)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(e) => return Err(e),
    };
    Ok(begin.is_empty() || begin == MAGIC)
}

/// Holds the model that is to be replaced alone, if there is one.
fn not_loaded(target: &Path, remedy: &str) -> Result<Option<File>> {
    holders::alone(target).map_err(|holder| Error::Output {
        path: target.to_owned(),
        problem: format!("{holder} has this model loaded. {remedy}"),
    })
}

/// Where the container will be.
pub(crate) struct Output {
    target: PathBuf,
    folder: PathBuf,
    /// The partial file.
    pub partial: PathBuf,
    /// The journal.
    pub journal: PathBuf,
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
        if !may_be_replaced(&target).map_err(|e| Error::io("open", &target, e))? {
            return Err(fail(
                "it is a file of another kind, which would be lost. Choose another name, or move it away.",
            ));
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
        let partial = folder.join(&partial_name);
        Ok(Self {
            journal: partial.with_added_extension("state"),
            partial,
            target,
            folder,
            inputs,
        })
    }

    /// Says no before the work when the disk has no room for `bytes`, of which `there` are on it already.
    pub fn check_room(&self, bytes: u64, there: u64) -> Result<()> {
        match free_bytes(&self.folder) {
            Some(free) if free.saturating_add(there) < bytes => Err(Error::NoSpace {
                message: format!(
                    "Not enough space for {}: it needs {} and {} has {} free. Free some space or choose another folder.",
                    shown_path(&self.target),
                    size(bytes.saturating_sub(there)),
                    shown_path(&self.folder),
                    size(free)
                ),
            }),
            _ => Ok(()),
        }
    }

    /// The partial file that an unfinished conversion has left, locked.
    pub fn open(&self) -> Result<Option<Partial>> {
        let path = &self.partial;
        let io = |e| Error::io("open", path, e);
        let about = match fs::symlink_metadata(path) {
            Ok(about) => about,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io(e)),
        };
        let is_input = fs::canonicalize(path).is_ok_and(|real| self.inputs.contains(&real));
        if is_input || !about.is_file() {
            return Err(self.in_the_way());
        }
        let file = fastar_files::open(path, OpenOptions::new().read(true).write(true));
        self.locked(file.map_err(io)?).map(Some)
    }

    /// Something that is no unfinished conversion has the name of the partial file.
    pub fn in_the_way(&self) -> Error {
        Error::Output {
            path: self.target.clone(),
            problem: format!(
                "{} is in the way and is no unfinished conversion. Move it away.",
                shown_path(&self.partial)
            ),
        }
    }

    /// Makes a new partial file, locked.
    pub fn create(&self) -> Result<Partial> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&self.partial)
            .map_err(|e| Error::io("create", &self.partial, e))?;
        self.locked(file)
    }

    /// Refuses to begin what would replace a model that a program has loaded: else it would be told only in the end.
    pub fn may_begin(&self) -> Result<()> {
        not_loaded(&self.target, "Close it, or give another name.").map(|_| ())
    }

    /// Puts the whole file under its final name. Refused while a program has the model of that name loaded: it would go on with a file that
    /// nobody sees any more.
    pub fn finish(&self) -> Result<()> {
        let _alone = not_loaded(&self.target, "Close it and do the same again.")?;
        fs::rename(&self.partial, &self.target)
            .map_err(|e| Error::io("rename the finished file to", &self.target, e))?;
        sync_folder(&self.target);
        Ok(())
    }

    /// Where the container will be.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// What an error of writing means for a person: when the disk is full, how much is missing.
    pub fn write_error(&self, source: io::Error, still_needed: u64) -> Error {
        let is_full = source.kind() != io::ErrorKind::FileTooLarge;
        let error = Error::io("write", &self.partial, source);
        if !matches!(error, Error::NoSpace { .. }) || !is_full {
            return error;
        }
        let free = free_bytes(&self.folder).unwrap_or(0);
        Error::NoSpace {
            message: format!(
                "Could not write {}: there is no space left. {} more are needed and {} are free. What was converted is kept; free some space and do the same again.",
                shown_path(&self.partial),
                size(still_needed),
                size(free)
            ),
        }
    }

    /// Removes what an unfinished conversion has left; whether there was anything.
    pub fn discard(&self) -> Result<bool> {
        let Some(partial) = self.open()? else {
            return remove(&self.journal);
        };
        // The journal first: it must never speak of a file that is not there.
        remove(&self.journal)?;
        remove(&self.partial)?;
        drop(partial);
        Ok(true)
    }

    fn locked(&self, file: File) -> Result<Partial> {
        let busy = || Error::Output {
            path: self.target.clone(),
            problem: "another conversion is writing it.".into(),
        };
        // Where the file system has no locks there is none.
        if let Err(TryLockError::WouldBlock) = locks::alone(&file) {
            return Err(busy());
        }
        // Another conversion may have finished in between: then this is no longer the partial file but the container.
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            let io = |e| Error::io("open", &self.partial, e);
            let ours = file.metadata().map_err(io)?;
            match fs::symlink_metadata(&self.partial) {
                Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => {}
                _ => return Err(busy()),
            }
        }
        Ok(Partial {
            file,
            pending: 0,
            #[cfg(test)]
            room: None,
        })
    }
}

/// Removes a file; whether it was there.
pub(crate) fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("remove", path, e)),
    }
}

/// The partial file, locked against a second conversion.
pub(crate) struct Partial {
    file: File,
    /// Bytes written since the system was told to put them on the disk.
    pending: u64,
    /// Bytes that may still be written before the disk counts as full.
    #[cfg(test)]
    pub room: Option<u64>,
}

impl Partial {
    /// Empties it and gives it its length: gaps read as zeros, and a file system that cannot hold such a file says so now.
    pub fn start_over(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.set_len(bytes)
    }

    pub fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if let Some(room) = &mut self.room {
            *room = room
                .checked_sub(bytes.len() as u64)
                .ok_or(io::ErrorKind::StorageFull)?;
        }
        self.file.seek(SeekFrom::Start(at))?;
        self.file.write_all(bytes)?;
        self.pending += bytes.len() as u64;
        if self.pending >= PENDING_BYTES {
            // Starts the writing of what is not on the disk yet and does not wait for it: the next bytes are read meanwhile.
            forget_pages(&self.file);
            self.pending = 0;
        }
        Ok(())
    }

    pub fn read(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(at))?;
        self.file.read_exact(into)
    }

    /// Puts everything on the disk itself and out of memory, so that what is read back later comes from there.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()?;
        forget_pages(&self.file);
        Ok(())
    }

    /// Bytes of it that take up room.
    pub fn room(&self) -> u64 {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            self.file
                .metadata()
                .map_or(0, |about| about.blocks().saturating_mul(512))
        }
        #[cfg(not(unix))]
        0
    }
}

/// Tells the system that the pages it keeps of a file are not needed: a conversion moves more than memory holds, and each byte once.
pub(crate) fn forget_pages(file: &File) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed) {
        tracing::debug!(%error, "pages kept");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

#[cfg(unix)]
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(folder).ok()?;
    about.f_bavail.checked_mul(about.f_frsize)
}

#[cfg(not(unix))]
pub(crate) fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

/// Bytes for people: exact below a thousand, then three digits in decimal units, as disks are sold.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for next in ["kB", "MB", "GB", "TB"] {
        // What would be rounded to 1000 is one of the next unit.
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if unit == "bytes" || value >= 99.95 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn sizes_have_three_digits_and_the_unit_in_which_they_are_below_a_thousand() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1000, "1.0 kB"),
            (99_949, "99.9 kB"),
            (99_950, "100 kB"),
            (999_499, "999 kB"),
            (999_500, "1.0 MB"),
            (999_999, "1.0 MB"),
            (13_369_344, "13.4 MB"),
            (167_000_000_000, "167 GB"),
            (999_999_999_999, "1.0 TB"),
            (u64::MAX, "18446744 TB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }

    fn output(folder: &Path) -> Output {
        Output::prepare(&folder.join("m.fst"), &[]).unwrap()
    }

    #[test]
    fn too_little_room_is_said_with_both_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let output = output(folder.path());
        output.check_room(4096, 0).unwrap();
        output.check_room(u64::MAX, u64::MAX).unwrap();
        let error = output.check_room(u64::MAX, 0).unwrap_err().to_string();
        assert!(error.contains("needs 18446744 TB"), "{error}");
        assert!(error.contains("free. Free some space"), "{error}");
    }

    #[test]
    fn a_file_of_another_kind_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let notes = folder.path().join("notes.txt");
        fs::write(&notes, "FST and other things to remember").unwrap();
        let error = Output::prepare(&notes, &[]).err().unwrap().to_string();
        assert!(error.contains("notes.txt"), "{error}");
        assert!(error.contains("file of another kind"), "{error}");
        let older = folder.path().join("older.fst");
        for content in [&b""[..], b"FST\0 of any version"] {
            fs::write(&older, content).unwrap();
            assert!(Output::prepare(&older, &[]).is_ok());
        }
    }

    #[test]
    fn a_second_conversion_to_the_same_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let output = output(folder.path());
        let first = output.create().unwrap();
        let error = output.open().err().unwrap().to_string();
        assert!(error.contains("another conversion"), "{error}");
        let error = output.discard().unwrap_err().to_string();
        assert!(error.contains("another conversion"), "{error}");
        drop(first);
        assert!(output.open().unwrap().is_some());
        assert!(output.discard().unwrap());
        assert!(output.open().unwrap().is_none());
        assert!(!output.discard().unwrap());
    }

    #[test]
    fn something_else_under_the_partial_name_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let output = output(folder.path());
        fs::create_dir(&output.partial).unwrap();
        let error = output.open().err().unwrap().to_string();
        assert!(error.contains("m.fst.partial is in the way"), "{error}");
    }

    #[test]
    fn the_longest_possible_name_works() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("ü".repeat(127));
        let output = Output::prepare(&target, &[]).unwrap();
        output.create().unwrap();
        fs::write(output.journal.with_added_extension("new"), b"").unwrap();
        output.finish().unwrap();
        assert!(target.is_file());
    }
}
