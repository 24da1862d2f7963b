//! Reading a file past the page cache.
//!
//! A direct read lands where it is wanted at the price of a DMA transfer; a buffered one costs a copy (0.42 core-seconds for each GB on the
//! development machine) and fills memory that the slots need. Where the file system refuses direct reads (tmpfs, some network and
//! encrypted ones) or the range is not aligned, reads are buffered. The file is read by number, never by name: another file may have taken
//! its name meanwhile. A file that was cut short is an error here, not the end of the process as with a mapping.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// Alignment of direct reads: the page size, which suits every block size in use.
pub const ALIGNMENT: usize = 4096;

/// Where bytes come from; tests put a source of faults in its place.
pub trait Source: Send + Sync {
    /// Reads some bytes at an offset; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// Reads until the buffer is full: goes on after short and interrupted reads.
pub fn read_whole(source: &dyn Source, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match source.read_at(buffer, offset) {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file ends before it",
                ));
            }
            Ok(n) => {
                let n = n.min(buffer.len());
                buffer = &mut buffer[n..];
                offset += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A file that is read directly where that is possible.
pub struct Disk {
    direct: Option<File>,
    /// The first direct read failed: the file system lets files be opened so, but not read.
    refused: AtomicBool,
    buffered: File,
}

impl Disk {
    /// For a file that is open already.
    pub fn new(file: &File) -> io::Result<Self> {
        let direct = open_direct(file);
        if let Err(error) = &direct {
            tracing::debug!(%error, "reads will be buffered");
        }
        Ok(Self {
            direct: direct.ok(),
            refused: AtomicBool::new(false),
            buffered: file.try_clone()?,
        })
    }

    /// When the file was last written to, where the system tells.
    pub fn modified(&self) -> Option<SystemTime> {
        self.buffered.metadata().and_then(|m| m.modified()).ok()
    }

    /// Whether reads go past the page cache, as far as is known.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some() && !self.refused.load(Ordering::Relaxed)
    }
}

impl Source for Disk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let aligned = buffer.as_ptr().align_offset(ALIGNMENT) == 0
            && buffer.len().is_multiple_of(ALIGNMENT)
            && offset.is_multiple_of(ALIGNMENT as u64);
        if let Some(direct) = &self.direct
            && aligned
            && !self.refused.load(Ordering::Relaxed)
            && let Some(result) = self.unless_refused(read_at(direct, buffer, offset))
        {
            return result;
        }
        read_at(&self.buffered, buffer, offset)
    }
}

impl Disk {
    /// What a direct read came to; none if the file system does not do such reads, and then there are no more of them.
    fn unless_refused(&self, result: io::Result<usize>) -> Option<io::Result<usize>> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                tracing::debug!("direct reads are refused; reads will be buffered");
                self.refused.store(true, Ordering::Relaxed);
                None
            }
            result => Some(result),
        }
    }
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}

/// Opens the same file once more for direct reads.
#[cfg(target_os = "linux")]
fn open_direct(file: &File) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    use std::os::fd::AsRawFd as _;
    let same = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
    Ok(rustix::fs::open(same, flags, Mode::empty())?.into())
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_file: &File) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::io::Write as _;
    use std::path::Path;

    use super::super::arena::Arena;
    use super::*;

    const LEN: usize = 3 * ALIGNMENT;

    fn file_in(folder: &Path) -> (File, Vec<u8>) {
        let bytes: Vec<u8> = (0..LEN).map(|i| (i * 7 / 3) as u8).collect();
        let path = folder.join("file");
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        (File::open(path).unwrap(), bytes)
    }

    /// Folders to try: that of this program usually reads directly, a tmpfs never does before Linux 6.6.
    fn folders() -> Vec<tempfile::TempDir> {
        let shared_memory = Path::new("/dev/shm");
        let mut folders = vec![
            tempfile::tempdir().unwrap(),
            tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap(),
        ];
        folders.extend(tempfile::tempdir_in(shared_memory).ok());
        folders
    }

    #[test]
    fn bytes_are_those_of_the_file_on_every_file_system_and_at_every_alignment() {
        for folder in folders() {
            let (file, bytes) = file_in(folder.path());
            let disk = Disk::new(&file).unwrap();
            let arena = Arena::new(2 * LEN).unwrap();
            for (to, from, len) in [
                (0, 0, LEN),
                (ALIGNMENT, ALIGNMENT, ALIGNMENT),
                (1, 0, ALIGNMENT),
                (0, 5, 100),
                (ALIGNMENT, ALIGNMENT, 2 * ALIGNMENT - 1),
            ] {
                // SAFETY: nobody else has the arena.
                let buffer = unsafe { arena.bytes_mut(to..to + len) };
                buffer.fill(0);
                read_whole(&disk, buffer, from as u64).unwrap();
                assert_eq!(buffer, &bytes[from..from + len], "{from} {len}");
            }
        }
    }

    #[test]
    fn a_file_that_was_cut_or_replaced_is_no_surprise() {
        for folder in folders() {
            let (file, bytes) = file_in(folder.path());
            let disk = Disk::new(&file).unwrap();
            let arena = Arena::new(LEN).unwrap();
            // SAFETY: nobody else has the arena.
            let buffer = unsafe { arena.bytes_mut(0..LEN) };
            // Another file under the same name: the old one is read.
            let path = folder.path().join("file");
            std::fs::write(folder.path().join("new"), b"other").unwrap();
            std::fs::rename(folder.path().join("new"), &path).unwrap();
            read_whole(&disk, buffer, 0).unwrap();
            assert_eq!(buffer, bytes);

            let (file, _) = file_in(folder.path());
            let disk = Disk::new(&file).unwrap();
            let cut = File::options().write(true).open(&path).unwrap();
            for left in [ALIGNMENT, ALIGNMENT + 10, 0] {
                cut.set_len(left as u64).unwrap();
                let error = read_whole(&disk, buffer, 0).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{left}");
            }
        }
    }

    #[test]
    fn where_direct_reads_are_refused_reads_are_buffered() {
        let folder = tempfile::tempdir().unwrap();
        let (file, bytes) = file_in(folder.path());
        let disk = Disk::new(&file).unwrap();
        // Other errors are those of the disk.
        let broken = disk.unless_refused(Err(io::Error::from_raw_os_error(5)));
        assert_eq!(broken.unwrap().unwrap_err().raw_os_error(), Some(5));
        assert_eq!(disk.unless_refused(Ok(7)).unwrap().unwrap(), 7);
        assert!(disk.direct.is_none() || disk.is_direct());
        let invalid = io::Error::from_raw_os_error(22);
        assert!(disk.unless_refused(Err(invalid)).is_none());
        assert!(!disk.is_direct());
        let arena = Arena::new(LEN).unwrap();
        // SAFETY: nobody else has the arena.
        let buffer = unsafe { arena.bytes_mut(0..LEN) };
        read_whole(&disk, buffer, 0).unwrap();
        assert_eq!(buffer, bytes);
    }

    /// A source with faults: few bytes at a time, interruptions, then an error.
    struct Stuttering {
        bytes: Vec<u8>,
        turn: std::sync::atomic::AtomicUsize,
    }

    impl Source for Stuttering {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            if turn % 3 == 1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let from = &self.bytes[(offset as usize).min(self.bytes.len())..];
            let n = from.len().min(buffer.len()).min(1 + turn % 5);
            buffer[..n].copy_from_slice(&from[..n]);
            Ok(n)
        }
    }

    #[test]
    fn short_and_interrupted_reads_are_gone_on_with() {
        let source = Stuttering {
            bytes: (0..100).collect(),
            turn: 0.into(),
        };
        let mut buffer = [0; 90];
        read_whole(&source, &mut buffer, 10).unwrap();
        assert_eq!(buffer[..], source.bytes[10..]);
        let error = read_whole(&source, &mut buffer, 11).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
