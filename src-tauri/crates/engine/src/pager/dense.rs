//! Dense weights in memory: read once at load, past the page cache, into huge pages.
//!
//! Every token reads all of them, so they are worth memory of their own: from a mapping they would come in small pages, at half the disk's speed, and
//! the page cache could drop them when it is short. Tensors keep their places relative to each other, so that large pieces are read
//! where they belong without a copy. Each is checked by the thread that read the last piece of it, while the others read on.

use std::hash::Hasher as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use fastar_fst::Container;
use fastar_kernels::threads;
use twox_hash::xxhash3_64::Hasher;

use super::arena::Arena;
use super::disk::{ALIGNMENT, Source, read_whole};
use crate::{Error, Result};

/// Threads that read, as many as read experts later.
const THREADS: usize = 8;
/// Bytes of one read.
const PIECE: usize = 8 << 20;
/// What lies between two tensors is read along with them if it is not more than this.
const GAP: u64 = 1 << 16;

/// Tensors in memory.
pub struct Dense {
    arena: Arena,
    spans: Vec<Span>,
}

/// A stretch of the file and where it is in the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    file: Range<u64>,
    arena: usize,
}

impl Dense {
    /// Reads the tensors of `container` that are `wanted` from `source`, which is its file, and checks them.
    pub fn read(
        container: &Container,
        source: &dyn Source,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let tensors: Vec<_> = container
            .dense_places()
            .filter(|place| place.bytes > 0 && wanted(place.name))
            .collect();
        let spans = spans(
            tensors.iter().map(|t| t.offset..t.offset + t.bytes),
            container.length(),
        );
        let len = spans.last().map_or(0, |s| s.arena + length(&s.file));
        let arena = Arena::new(len).map_err(|error| {
            Error::Memory(format!(
                "The system refused memory for {} of weights: {error}. Close other programs.",
                fastar_fst::size(len as u64)
            ))
        })?;
        let dense = Self { arena, spans };

        let pieces: Vec<(u64, Range<usize>)> = dense
            .spans
            .iter()
            .flat_map(|span| {
                (0..length(&span.file)).step_by(PIECE).map(|at| {
                    let end = (at + PIECE).min(length(&span.file));
                    (
                        span.file.start + at as u64,
                        span.arena + at..span.arena + end,
                    )
                })
            })
            .collect();
        let of_piece = |(offset, range): &(u64, Range<usize>)| {
            let end = offset + range.len() as u64;
            let first = tensors.partition_point(|t| t.offset + t.bytes <= *offset);
            let last = tensors.partition_point(|t| t.offset < end);
            first..last
        };
        let missing: Vec<AtomicUsize> = tensors.iter().map(|_| AtomicUsize::new(0)).collect();
        for piece in &pieces {
            for tensor in of_piece(piece) {
                missing[tensor].fetch_add(1, Ordering::Relaxed);
            }
        }
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let failure = Mutex::new(None);
        let work = || -> Result<()> {
            while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                if failed.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let (offset, range) = piece;
                // SAFETY: pieces do not overlap, each is taken by one thread, and tensors are looked at only when all of theirs are read.
                let buffer = unsafe { dense.arena.bytes_mut(range.clone()) };
                read_whole(source, buffer, *offset)
                    .map_err(|error| unreadable(container, &error))?;
                for number in of_piece(piece) {
                    // The last one sees what all others have read.
                    if missing[number].fetch_sub(1, Ordering::AcqRel) == 1 {
                        let tensor = &tensors[number];
                        let place = dense.place(tensor.offset, tensor.bytes as usize);
                        let place = place.unwrap_or(0..0);
                        // SAFETY: every piece of it has been read, so nobody writes to it any more.
                        let data = unsafe { dense.arena.bytes(place) };
                        container.check_tensor(tensor.name, data)?;
                    }
                }
            }
            Ok(())
        };
        let note = |result: Result<()>| {
            if let Err(error) = result {
                failed.store(true, Ordering::Relaxed);
                let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(error);
            }
        };
        threads::share(THREADS.min(pieces.len()), || note(work()));
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(dense),
        }
    }

    /// Bytes that [`Dense::read`] takes for these tensors.
    pub fn bytes_of(container: &Container, wanted: impl Fn(&str) -> bool) -> u64 {
        let places = container.dense_places();
        let wanted = places.filter(|place| place.bytes > 0 && wanted(place.name));
        let ranges = wanted.map(|t| t.offset..t.offset + t.bytes);
        let spans = spans(ranges, container.length());
        spans
            .last()
            .map_or(0, |s| (s.arena + length(&s.file)) as u64)
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: nothing is written after `read`, which had it for itself.
        unsafe { self.arena.bytes(0..self.arena.len()) }
    }

    /// Where bytes of the file are in [`Dense::bytes`], if they were read.
    pub fn place(&self, offset: u64, bytes: usize) -> Option<Range<usize>> {
        let after = self.spans.partition_point(|span| span.file.start <= offset);
        let span = self.spans.get(after.checked_sub(1)?)?;
        let end = offset.checked_add(bytes as u64)?;
        (end <= span.file.end).then(|| {
            let start = span.arena + (offset - span.file.start) as usize;
            start..start + bytes
        })
    }
}

fn unreadable(container: &Container, error: &std::io::Error) -> Error {
    Error::Read(format!(
        "Could not read the weights in {}: {error}. Check the disk and the file.",
        container.records().name()
    ))
}

/// Reads a tensor piece by piece and checks it; nothing if there is none of that name in the file. For what is not kept.
///
/// # Errors
/// [`Error::Cancelled`] when it is stopped.
pub fn check(
    container: &Container,
    source: &dyn Source,
    name: &str,
    stopped: &dyn Fn() -> bool,
) -> Result<()> {
    let Some(tensor) = container.dense_place(name) else {
        return Ok(());
    };
    let refused = |error| {
        Error::Memory(format!(
            "The system refused memory for {PIECE} bytes: {error}."
        ))
    };
    let buffer = Arena::new(PIECE).map_err(refused)?;
    let mut hasher = Hasher::new();
    let all = spans(
        std::iter::once(tensor.offset..tensor.offset + tensor.bytes),
        container.length(),
    );
    for span in all {
        for start in span.file.clone().step_by(PIECE) {
            if stopped() {
                return Err(Error::Cancelled);
            }
            let end = span.file.end.min(start + PIECE as u64);
            // SAFETY: nobody else has the buffer.
            let piece = unsafe { buffer.bytes_mut(0..(end - start) as usize) };
            read_whole(source, piece, start).map_err(|error| unreadable(container, &error))?;
            // What was read along at both ends, for alignment, does not count.
            let from = tensor.offset.saturating_sub(start) as usize;
            let to = (tensor.offset + tensor.bytes).min(end) - start;
            hasher.write(&piece[from..to as usize]);
        }
    }
    Ok(container.check_tensor_hash(tensor.name, || hasher.finish())?)
}

fn length(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}

/// Stretches that cover all ranges, which are ascending; aligned, but where the file ends.
fn spans(ranges: impl Iterator<Item = Range<u64>>, file_bytes: u64) -> Vec<Span> {
    let alignment = ALIGNMENT as u64;
    let mut spans: Vec<Span> = Vec::new();
    for range in ranges {
        let start = range.start / alignment * alignment;
        let end = range.end.next_multiple_of(alignment).min(file_bytes);
        match spans.last_mut() {
            Some(last) if start <= last.file.end.saturating_add(GAP) => {
                last.file.end = last.file.end.max(end);
            }
            last => {
                let arena = last.map_or(0, |last| {
                    (last.arena + length(&last.file)).next_multiple_of(ALIGNMENT)
                });
                spans.push(Span {
                    file: start..end,
                    arena,
                });
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::io;

    use fastar_testkit::{Tiny, tiny};

    use super::super::disk::Disk;
    use super::*;

    #[test]
    fn spans_are_aligned_and_leave_large_gaps_out() {
        let found = spans([64..128, 128..5000, 200_000..200_064].into_iter(), 200_100);
        assert_eq!(
            found,
            [
                Span {
                    file: 0..8192,
                    arena: 0
                },
                Span {
                    file: 196_608..200_100,
                    arena: 8192
                },
            ]
        );
        assert_eq!(spans([].into_iter(), 5), []);
    }

    #[test]
    fn tensors_are_those_of_the_file_and_others_are_not_read() {
        let model = tiny(&Tiny::default()).convert();
        let container = Container::open(&model.path()).unwrap();
        let disk = Disk::new(container.file().unwrap()).unwrap();
        let dense = Dense::read(&container, &disk, |name| name.starts_with("layers.2.")).unwrap();
        let mut found = 0;
        for place in container.dense_places() {
            let tensor = container.read(place.name).unwrap();
            let at = dense.place(place.offset, place.bytes as usize);
            if place.name.starts_with("layers.2.") {
                assert!(dense.bytes()[at.unwrap()] == *tensor, "{}", place.name);
                found += 1;
            }
        }
        assert!(found > 10);
        assert!(dense.bytes().len() < container.file_bytes() as usize / 2);
        let told = Dense::bytes_of(&container, |name| name.starts_with("layers.2."));
        assert_eq!(told, dense.bytes().len() as u64);
        let nothing = Dense::read(&container, &disk, |_| false).unwrap();
        assert!(nothing.bytes().is_empty());
        assert_eq!(nothing.place(64, 1), None);
    }

    /// The file with one byte changed, or cut.
    struct Bad<'a> {
        disk: &'a Disk,
        changed: u64,
        ends: u64,
    }

    impl Source for Bad<'_> {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            if offset >= self.ends {
                return Ok(0);
            }
            let most = buffer.len().min((self.ends - offset) as usize);
            let n = self.disk.read_at(&mut buffer[..most], offset)?;
            if (offset..offset + n as u64).contains(&self.changed) {
                buffer[(self.changed - offset) as usize] ^= 8;
            }
            Ok(n)
        }
    }

    #[test]
    fn damage_and_a_short_file_are_named() {
        let model = tiny(&Tiny::default()).convert();
        let container = Container::open(&model.path()).unwrap();
        let disk = Disk::new(container.file().unwrap()).unwrap();
        let place = container
            .dense_places()
            .find(|p| p.name == "layers.1.attn.wq_b.weight")
            .unwrap();
        let (offset, bytes) = (place.offset, place.bytes);
        let mut bad = Bad {
            disk: &disk,
            changed: offset + bytes - 1,
            ends: u64::MAX,
        };
        let error = Dense::read(&container, &bad, |name| name != "embed.weight")
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("layers.1.attn.wq_b.weight"), "{error}");
        // The same for what is checked and not kept.
        let go = || false;
        let passing = "layers.1.attn.wq_b.weight";
        let error = check(&container, &bad, passing, &go).unwrap_err();
        assert!(error.to_string().contains(passing), "{error}");
        assert!(check(&container, &disk, passing, &go).is_ok());
        let stopped = check(&container, &bad, passing, &|| true);
        assert!(matches!(stopped, Err(Error::Cancelled)));
        bad = Bad {
            disk: &disk,
            changed: u64::MAX,
            ends: 4096,
        };
        let error = check(&container, &bad, passing, &go).unwrap_err();
        assert!(error.to_string().contains("the file ends before it"));
        let error = Dense::read(&container, &bad, |name| name != "embed.weight")
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("the file ends before it"), "{error}");
    }
}
