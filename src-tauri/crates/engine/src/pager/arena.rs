//! One stretch of anonymous memory for weights: huge pages where the system gives them, touched only where something is read into.
//!
//! Huge pages matter twice. The kernels walk hundreds of megabytes for each token, and a direct read pins every page it fills: 13 MB are 7
//! huge pages or 3264 small ones, which is most of what a read costs (0.004 against 0.034 core-seconds for each GB on the development
//! machine). `madvise` is enough; a pool of reserved huge pages (`MAP_HUGETLB`) needs an administrator and gains nothing more.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};

/// Size of a huge page on x86-64, and a good alignment elsewhere.
const HUGE: usize = 2 << 20;

/// Memory that is handed out in ranges.
pub struct Arena {
    /// Keeps the memory; only touched through `start`.
    _map: MmapMut,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the arena itself is only an address and a length. Its bytes are reached through the unsafe functions below, whose callers
// promise that no two threads touch a range at once unless both only read.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `len` bytes of zeros; memory is used only as it is written.
    pub fn new(len: usize) -> io::Result<Self> {
        let reserved = len
            .checked_add(HUGE)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut options = MmapOptions::new();
        options.len(reserved);
        // What is never touched must not count against what the system has promised to others.
        #[cfg(all(target_os = "linux", not(miri)))]
        options.no_reserve_swap();
        let mut map = options.map_anon()?;
        #[cfg(all(target_os = "linux", not(miri)))]
        if let Err(error) = map.advise(memmap2::Advice::HugePage) {
            tracing::debug!(%error, "no huge pages");
        }
        let skip = map.as_ptr().align_offset(HUGE);
        let aligned = map
            .get_mut(skip..skip + len)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self {
            start: NonNull::from(aligned).cast(),
            len,
            _map: map,
        })
    }

    /// Bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes of a range.
    ///
    /// # Safety
    /// Nobody writes to the range while the slice is in use.
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the mapping, which lives as long as `self` and is zeroed or written; the caller excludes writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) }
    }

    /// The bytes of a range, to be written.
    ///
    /// # Safety
    /// Nobody else reads or writes the range while the slice is in use.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut(&self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the mapping, which lives as long as `self`; the caller excludes everyone else.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn threads_write_and_read_their_own_ranges_at_once() {
        const PART: usize = if cfg!(miri) { 64 } else { 4096 };
        let arena = Arena::new(8 * PART).unwrap();
        std::thread::scope(|scope| {
            for part in 0..8usize {
                let arena = &arena;
                scope.spawn(move || {
                    let range = part * PART..(part + 1) * PART;
                    // SAFETY: each thread has a range of its own.
                    unsafe { arena.bytes_mut(range.clone()) }.fill(part as u8 + 1);
                    // SAFETY: as above.
                    let seen = unsafe { arena.bytes(range) };
                    assert!(seen.iter().all(|b| *b == part as u8 + 1));
                });
            }
        });
        for part in 0..8 {
            // SAFETY: the threads have ended.
            let seen = unsafe { arena.bytes(part * PART..(part + 1) * PART) };
            assert!(seen.iter().all(|b| *b == part as u8 + 1));
        }
        // SAFETY: nobody writes.
        assert_eq!(unsafe { arena.bytes(0..1) }.as_ptr().align_offset(HUGE), 0);
    }

    #[test]
    fn what_is_not_touched_takes_no_memory() {
        if cfg!(miri) || !cfg!(target_os = "linux") {
            return;
        }
        // Far more than any machine has.
        let arena = Arena::new(1 << 44).unwrap();
        // SAFETY: nobody else has it.
        let middle = unsafe { arena.bytes_mut((1 << 43)..(1 << 43) + 1) };
        middle[0] = 7;
        // SAFETY: nobody writes.
        assert_eq!(unsafe { arena.bytes((1 << 43)..(1 << 43) + 2) }, [7, 0]);
    }

    #[test]
    #[should_panic(expected = "range.end <= self.len")]
    fn a_range_outside_is_refused() {
        let arena = Arena::new(16).unwrap();
        // SAFETY: refused before anything is touched.
        let _ = unsafe { arena.bytes(8..17) };
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        assert!(Arena::new(usize::MAX).is_err());
        assert!(Arena::new(usize::MAX / 2).is_err());
    }
}
