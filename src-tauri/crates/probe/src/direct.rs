//! Reading a file past the system's cache: what its disk can do at most for someone who reads pieces of it in any order.
//!
//! The engine has its own way of reading, and this is not it on purpose: a limit that went through the code that is measured would fall with it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use fastar_kernels::threads::share;

use crate::Memory;

/// What places, lengths and memory of direct reads must be multiples of.
pub const ALIGNMENT: usize = 4096;

/// How fast it went.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// Bytes read.
    pub bytes: u64,
    /// Time it took.
    pub seconds: f64,
}

impl Reads {
    /// GB/s.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e9
    }
}

/// Opens a file for direct reads.
///
/// # Errors
/// Where the file cannot be opened or the file system has no direct reads (`InvalidInput` on Linux, `Unsupported` on other systems).
pub fn open(path: &Path) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        File::options()
            .read(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
            .open(path)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Has the system forget what it keeps of a file in memory, so that the next read comes from the disk. A file that someone has mapped stays.
///
/// # Errors
/// When the file cannot be opened or the system refuses.
pub fn forget(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    #[cfg(target_os = "linux")]
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    drop(file);
    Ok(())
}

/// Reads `length` bytes at each of `places` in order, with so many threads that each wait for one read at a time, into memory of the kind a
/// reader has who is in a hurry. Places and length are multiples of [`ALIGNMENT`].
///
/// # Errors
/// When a read fails or the file ends before.
pub fn read(file: &File, places: &[u64], length: usize, threads: usize) -> io::Result<Reads> {
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    let failed = OnceLock::new();
    let work = || -> io::Result<()> {
        let mut piece = Memory::new(length)?;
        while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
            read_exact_at(file, &mut piece, *place)?;
        }
        Ok(())
    };
    share(threads, || {
        if let Err(error) = work() {
            // The first one is told.
            let _ = failed.set(error);
        }
    });
    if let Some(error) = failed.into_inner() {
        return Err(error);
    }
    Ok(Reads {
        bytes: (places.len() * length) as u64,
        seconds: start.elapsed().as_secs_f64(),
    })
}

#[cfg(unix)]
fn read_exact_at(file: &File, piece: &mut [u8], place: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, piece, place)
}

#[cfg(not(unix))]
fn read_exact_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_place_is_read_and_counted_and_the_end_of_the_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 4 * ALIGNMENT]).unwrap();
        // Not every file system that tests run on has direct reads; the reading is the same.
        let file = open(&path).or_else(|_| File::open(&path)).unwrap();
        let places: Vec<u64> = [2, 0, 1, 2].map(|page| page * ALIGNMENT as u64).to_vec();
        for threads in [1, 3] {
            let reads = read(&file, &places, 2 * ALIGNMENT, threads).unwrap();
            assert_eq!(reads.bytes, 8 * ALIGNMENT as u64);
        }
        forget(&path).unwrap();
        let end = [3 * ALIGNMENT as u64];
        let error = read(&file, &end, 2 * ALIGNMENT, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
