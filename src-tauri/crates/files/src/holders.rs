//! Model files that programs have loaded: each shares a lock on its file, and whoever wants to take the file away asks for it alone. The kernel
//! takes a lock back when its process ends, however it ends.

use std::fmt;
use std::fs::{File, TryLockError};
use std::path::Path;

use crate::locks;

/// Who holds a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its process, where the system tells.
    pub pid: Option<u32>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) if pid == std::process::id() => f.write_str("this FaStar"),
            Some(pid) => write!(f, "another FaStar (process {pid})"),
            None => f.write_str("another FaStar"),
        }
    }
}

/// Asks for a file alone: nobody else gets it for as long as the file returned is open. None where there is no such file, or it cannot be
/// opened. Where the file system has no locks, nobody is known to hold it.
///
/// # Errors
/// Who holds it: another program, or another part of this one.
pub fn alone(path: &Path) -> Result<Option<File>, Holder> {
    // What is no file, and a pipe above all, is not opened.
    if !path.is_file() {
        return Ok(None);
    }
    match File::open(path) {
        Ok(file) => alone_with(file).map(Some),
        Err(_) => Ok(None),
    }
}

/// [`alone`] for a file that is open already.
///
/// # Errors
/// Who holds it.
pub fn alone_with(file: File) -> Result<File, Holder> {
    match locks::alone(&file) {
        Err(TryLockError::WouldBlock) => Err(Holder { pid: holder(&file) }),
        _ => Ok(file),
    }
}

/// A process that has a lock on a file. It only makes a message better.
fn holder(file: &File) -> Option<u32> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let inode = file.metadata().ok()?.ino().to_string();
        // 1: FLOCK  ADVISORY  READ 4711 08:02:131 0 EOF
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, "FLOCK", _, _, pid, place, ..] = words.as_slice() else {
                return None;
            };
            let is_it = place.rsplit(':').next() == Some(inode.as_str());
            pid.parse().ok().filter(|pid| is_it && *pid != 0)
        })
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_is_had_alone_once_nobody_shares_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.fst");
        assert!(alone(&path).unwrap().is_none());
        assert!(alone(folder.path()).unwrap().is_none());
        std::fs::write(&path, "x").unwrap();
        let shared = File::open(&path).unwrap();
        shared.try_lock_shared().unwrap();
        let holder = alone(&path).unwrap_err();
        assert_eq!(holder.to_string(), "this FaStar");
        drop(shared);
        let held = alone(&path).unwrap();
        assert!(held.is_some());
        assert!(alone(&path).is_err());
        drop(held);
        assert!(alone(&path).unwrap().is_some());
    }

    #[test]
    fn who_holds_it_is_told_as_far_as_it_is_known() {
        let told = |pid| Holder { pid }.to_string();
        assert_eq!(told(Some(std::process::id())), "this FaStar");
        assert_eq!(told(Some(u32::MAX)), "another FaStar (process 4294967295)");
        assert_eq!(told(None), "another FaStar");
    }
}
