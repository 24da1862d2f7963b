//! The data folder: where it is, that it is private, and that only one process uses it.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::error::{Error, Result};

/// A process that was killed keeps its locks until the kernel has taken it apart; who starts the app again at once waits so long.
const ENDING: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// There is a number in a lock, and nothing else.
const LONGEST_LOCK: u64 = 32;

/// The data folder, held by this process until dropped.
pub(crate) struct DataFolder {
    path: PathBuf,
    /// Where it should be: another place only while that cannot be written.
    wanted: PathBuf,
    // The kernel releases the lock when the process dies, however it dies; a left-over file blocks nobody.
    _lock: File,
    _temporary: Option<TempDir>,
}

impl DataFolder {
    /// Creates the folder (for its owner only) if it is missing, and takes it for this process.
    pub(crate) fn take(path: &Path) -> Result<Self> {
        create_private(path)?;
        let path = std::path::absolute(path).map_err(Error::file(path))?;
        let lock = take_lock(&path, |pid| Error::Locked {
            folder: path.display().to_string(),
            pid,
        })?;
        Ok(Self {
            wanted: path.clone(),
            path,
            _lock: lock,
            _temporary: None,
        })
    }

    /// The same, and where nothing can be written there, a temporary folder for this run, with a sentence that says so.
    pub(crate) fn take_or_do_without(path: &Path) -> Result<(Self, Option<String>)> {
        let error = match Self::take(path) {
            Err(error) if error.is_no_permission() => error,
            taken => return taken.map(|taken| (taken, None)),
        };
        let Ok(temporary) = tempfile::Builder::new().prefix("fastar-").tempdir() else {
            return Err(error);
        };
        let mut taken = Self::take(temporary.path())?;
        taken.wanted = path.to_owned();
        taken._temporary = Some(temporary);
        let notice = format!(
            "{} cannot be written, so FaStar begins without your chats and settings and keeps nothing after it ends. Make the folder writable, or \
             set FASTAR_DATA_DIR to another one.",
            path.display()
        );
        Ok((taken, Some(notice)))
    }

    /// The folder that should have been used, whether it could be or not: for what must not end up in a temporary one.
    pub(crate) fn wanted(&self) -> &Path {
        &self.wanted
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A path from the environment; an empty one counts as unset.
pub(crate) fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// `FASTAR_DATA_DIR`, or the system's place for application data (never a cache folder).
pub(crate) fn default_folder(from_environment: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(folder) = from_environment.filter(|folder| !folder.as_os_str().is_empty()) {
        return Ok(folder);
    }
    directories::ProjectDirs::from("", "", "FaStar")
        .map(|dirs| dirs.data_dir().to_path_buf())
        .ok_or(Error::NoHome)
}

fn create_private(path: &Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(Error::file(path))
}

/// Takes the folder for this process, or says with `taken` who has it. The kernel gives it back when the process dies, however it dies.
///
/// The folder may come from somebody else: what has the lock's name is written to only when it can be a lock.
pub(crate) fn take_lock(folder: &Path, taken: impl FnOnce(Option<u32>) -> Error) -> Result<File> {
    let path = folder.join("lock");
    let is_lock = |facts: &std::fs::Metadata| facts.is_file() && facts.len() <= LONGEST_LOCK;
    let in_the_way = || {
        Error::Occupied(format!(
            "{} is in the way: FaStar keeps its lock there, and that is something else. Move it away.",
            path.display()
        ))
    };
    if std::fs::symlink_metadata(&path).is_ok_and(|facts| !is_lock(&facts)) {
        return Err(in_the_way());
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    // It must not have become a link since.
    let mut file = fastar_files::open(&path, &mut options).map_err(Error::file(&path))?;
    if !is_lock(&file.metadata().map_err(Error::file(&path))?) {
        return Err(in_the_way());
    }
    let give_up = Instant::now() + ENDING;
    let mut taken_now = file.try_lock();
    while matches!(taken_now, Err(TryLockError::WouldBlock)) && Instant::now() < give_up {
        std::thread::sleep(LOOK_EVERY);
        taken_now = file.try_lock();
    }
    match taken_now {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            // The number only makes the message better; whatever stands in the file is not trusted.
            let mut text = String::new();
            let pid = match file.take(20).read_to_string(&mut text) {
                Ok(_) => text.trim().parse().ok(),
                Err(_) => None,
            };
            return Err(taken(pid));
        }
        Err(TryLockError::Error(source)) => return Err(Error::File { path, source }),
    }
    let noted = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    match noted {
        // The number only makes a message better, and on a full disk someone may be about to delete something.
        Err(error) if error.kind() != std::io::ErrorKind::StorageFull => {
            Err(Error::file(&path)(error))
        }
        _ => Ok(file),
    }
}

/// Writes a small file so that after a crash or power cut either the old or the new text is there, whole.
pub(crate) fn write_whole(path: &Path, text: &[u8]) -> Result<()> {
    replace(path, text, true)
}

/// The same for what only has to outlive this process, without waiting for the disk.
pub(crate) fn write_quickly(path: &Path, text: &[u8]) -> Result<()> {
    replace(path, text, false)
}

fn replace(path: &Path, text: &[u8], synced: bool) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let temporary = path.with_extension("partial");
    let write = || -> std::io::Result<()> {
        let mut options = File::options();
        // Settings and tokens are nobody else's business.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = fastar_files::make(&temporary, &mut options)?;
        file.write_all(text)?;
        if synced {
            file.sync_all()?;
        }
        std::fs::rename(&temporary, path)?;
        if synced {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    };
    write().map_err(|error| {
        // Best effort: the error that matters is the first one.
        let _ = std::fs::remove_file(&temporary);
        Error::file(path)(error)
    })
}

/// Renames a damaged file so that nothing is lost: `chats.db` becomes `chats-damaged-DATE.db`. Returns the new path.
pub(crate) fn set_aside(path: &Path, date: &str) -> Result<PathBuf> {
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let ending = path
        .extension()
        .map(|e| format!(".{}", e.to_string_lossy()))
        .unwrap_or_default();
    let free = (1..)
        .map(|n| {
            let number = if n == 1 {
                String::new()
            } else {
                format!("-{n}")
            };
            path.with_file_name(format!("{stem}-damaged-{date}{number}{ending}"))
        })
        .find(|candidate| !candidate.exists())
        .unwrap_or_else(|| path.with_extension("damaged"));
    std::fs::rename(path, &free).map_err(Error::file(path))?;
    Ok(free)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_second_holder_is_told_who_has_the_folder_and_a_left_over_lock_file_blocks_nobody() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("lock"), "4294967294\n").unwrap();
        let first = DataFolder::take(dir.path()).expect("a left-over file does not block");
        let error = DataFolder::take(dir.path())
            .err()
            .expect("taken")
            .to_string();
        assert!(
            error.contains(&format!("(process {})", std::process::id())),
            "{error}"
        );
        assert!(error.contains(&dir.path().display().to_string()), "{error}");
        drop(first);
        DataFolder::take(dir.path()).expect("free again");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn where_nothing_can_be_written_the_app_begins_in_a_temporary_folder_and_says_so() {
        // Nobody makes folders there, not even root.
        let path = Path::new("/sys/kernel/fastar");
        assert!(DataFolder::take(path).is_err_and(|error| error.is_no_permission()));
        let (taken, notice) = DataFolder::take_or_do_without(path).unwrap();
        assert!(
            notice.is_some_and(|notice| notice.starts_with("/sys/kernel/fastar cannot be written"))
        );
        assert_eq!(taken.wanted(), path);
        let there = taken.path().to_owned();
        assert!(there.join("lock").exists());
        drop(taken);
        assert!(!there.exists());
        // A folder that another FaStar has is another matter.
        let dir = tempfile::tempdir().unwrap();
        let (_first, notice) = DataFolder::take_or_do_without(dir.path()).unwrap();
        assert_eq!(notice, None);
        assert!(DataFolder::take_or_do_without(dir.path()).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn what_stands_in_place_of_our_files_is_never_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "of somebody else").unwrap();
        let whole = || std::fs::read_to_string(&victim).unwrap();
        let lock = dir.path().join("lock");
        let refused = || {
            let error = DataFolder::take(dir.path())
                .err()
                .expect("refused")
                .to_string();
            assert!(
                error.starts_with(&format!("{} is in the way", lock.display())),
                "{error}"
            );
            std::fs::remove_file(&lock).unwrap();
        };
        // A link, the file itself under another name, and a pipe.
        std::os::unix::fs::symlink(&victim, &lock).unwrap();
        refused();
        std::fs::write(&victim, "of somebody else: ".repeat(3)).unwrap();
        std::fs::hard_link(&victim, &lock).unwrap();
        refused();
        let _listens = std::os::unix::net::UnixListener::bind(&lock).unwrap();
        refused();
        assert_eq!(whole(), "of somebody else: ".repeat(3));
        DataFolder::take(dir.path()).expect("free");

        for link in [true, false] {
            let temporary = dir.path().join("settings.partial");
            if link {
                std::os::unix::fs::symlink(&victim, &temporary).unwrap();
            } else {
                std::fs::hard_link(&victim, &temporary).unwrap();
            }
            write_whole(&dir.path().join("settings.json"), b"{}").unwrap();
            assert_eq!(
                std::fs::read(dir.path().join("settings.json")).unwrap(),
                b"{}"
            );
            assert_eq!(whole(), "of somebody else: ".repeat(3));
            assert!(!temporary.exists());
        }
    }

    #[test]
    fn a_holder_that_is_just_ending_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataFolder::take(dir.path()).unwrap();
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(first);
        });
        DataFolder::take(dir.path()).expect("free a moment later");
        ending.join().unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_new_data_folder_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        let _held = DataFolder::take(&folder).unwrap();
        assert_eq!(
            std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }

    #[test]
    fn the_environment_chooses_the_folder_and_an_empty_value_counts_as_unset() {
        assert_eq!(
            default_folder(Some("/x/y".into())).unwrap(),
            Path::new("/x/y")
        );
        let default = default_folder(Some(PathBuf::new())).unwrap();
        assert!(default.is_absolute());
        assert!(!default.to_string_lossy().to_lowercase().contains("cache"));
    }

    #[test]
    fn a_file_set_aside_never_replaces_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chats.db");
        for text in ["one", "two", "three"] {
            std::fs::write(&path, text).unwrap();
            let aside = set_aside(&path, "2026-01-02").unwrap();
            assert_eq!(std::fs::read_to_string(aside).unwrap(), text);
            assert!(!path.exists());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
