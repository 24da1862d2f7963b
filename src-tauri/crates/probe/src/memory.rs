//! Memory to measure with, in huge pages where the system gives them: with small ones, looking up addresses costs a quarter of the speed and
//! more, and a direct read pins every single page it fills.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Size of a huge page on x86-64, and a good alignment elsewhere.
const HUGE: usize = 2 << 20;

/// So many bytes, zero at first and in memory only once they are written; given back at once when dropped, so that nothing of a measurement
/// stays in the memory that is measured next.
pub struct Memory {
    map: MmapMut,
    start: usize,
    len: usize,
}

impl Memory {
    /// # Errors
    /// When the system refuses.
    pub fn new(len: usize) -> io::Result<Self> {
        let reserved = len.checked_add(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapMut::map_anon(reserved)?;
        #[cfg(target_os = "linux")]
        if let Err(error) = map.advise(memmap2::Advice::HugePage) {
            tracing::debug!(%error, "no huge pages");
        }
        Ok(Self {
            start: map.as_ptr().align_offset(HUGE),
            len,
            map,
        })
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[self.start..self.start + self.len]
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_begins_on_a_huge_page_and_keeps_what_is_written() {
        let mut memory = Memory::new(3 * HUGE + 5).unwrap();
        assert_eq!(memory.len(), 3 * HUGE + 5);
        assert_eq!(memory.as_ptr().align_offset(HUGE), 0);
        assert!(memory.iter().all(|b| *b == 0));
        memory.fill(7);
        assert!(memory.iter().all(|b| *b == 7));
        assert!(Memory::new(usize::MAX).is_err());
    }

    /// Whether the system gives huge pages is its business; that it was asked for them is ours.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_is_asked_for_huge_pages() {
        let memory = Memory::new(HUGE).unwrap();
        let address = memory.as_ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        let flags = maps.lines().find_map(|line| {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            if let Some((from, to)) = range
                && let (Ok(from), Ok(to)) = (
                    usize::from_str_radix(from, 16),
                    usize::from_str_radix(to, 16),
                )
            {
                inside = (from..to).contains(&address);
            }
            line.strip_prefix("VmFlags:").filter(|_| inside)
        });
        // Kernels without huge pages refuse the advice.
        let has = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        assert_eq!(flags.unwrap().split(' ').any(|flag| flag == "hg"), has);
    }
}
