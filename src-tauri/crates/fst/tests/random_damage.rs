//! Whatever bytes a container has: no panic, and no allocation larger than the file. In a test binary of its own because it counts
//! every allocation of the process.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
#[path = "../fuzz/fuzz_targets/read.rs"]
mod read;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::LazyLock;

use common::{places, seal, small_container};
use proptest::prelude::*;

/// The system's allocator, remembering for each thread the largest single request and the most memory in use.
struct Counting;

#[derive(Clone, Copy)]
struct Counts {
    largest: usize,
    now: isize,
    most: isize,
}

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { largest: 0, now: 0, most: 0 }) };
}

fn count(request: usize, change: isize) {
    // A thread that ends has no counts any more; nothing is measured there.
    let _ = COUNTS.try_with(|counts| {
        let mut c = counts.get();
        c.largest = c.largest.max(request);
        c.now += change;
        c.most = c.most.max(c.now);
        counts.set(c);
    });
}

// SAFETY: every call is handed to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), layout.size() as isize);
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as isize));
        // SAFETY: the caller's promises about `pointer` and `layout` are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static SMALL: LazyLock<Vec<u8>> = LazyLock::new(small_container);

/// Opens the bytes and reads everything there is; returns the largest request and the growth in memory.
fn read_everything(bytes: &'static [u8]) -> (usize, usize) {
    let start = COUNTS.get().now;
    COUNTS.set(Counts {
        largest: 0,
        now: start,
        most: start,
    });
    if let Ok(container) = fastar_fst::Container::from_static(bytes) {
        read::read_container(&container);
        let _ = container.verify(&mut |_, _| {});
    }
    let end = COUNTS.get();
    (end.largest, (end.most - start) as usize)
}

fn check(bytes: Vec<u8>) {
    let length = bytes.len();
    // `from_static` is the face for bytes in memory; they are given back below.
    let leaked: &'static mut [u8] = Box::leak(bytes.into_boxed_slice());
    let pointer: *mut [u8] = leaked;
    // SAFETY: `pointer` comes from the box just leaked and is valid until it is freed below.
    let (largest, growth) = read_everything(unsafe { &*pointer });
    // SAFETY: the only reference to it, the container, was dropped inside `read_everything`.
    drop(unsafe { Box::from_raw(pointer) });
    assert!(
        largest <= length.max(4096),
        "one allocation of {largest} for {length} bytes"
    );
    assert!(
        growth <= length.max(65_536),
        "{growth} bytes in use for {length} bytes"
    );
}

#[test]
fn an_undamaged_container_stays_within_the_same_bounds() {
    let bytes: &'static [u8] = SMALL.clone().leak();
    let (largest, growth) = read_everything(bytes);
    // Something was counted: the directory alone has more than a hundred entries.
    assert!(largest > 4096 && growth > 16_384, "{largest} {growth}");
    assert!(
        largest < bytes.len() / 4 && growth < bytes.len() / 4,
        "{largest} {growth}"
    );
}

/// A byte to change: mostly in the index, where it can mislead, and sometimes anywhere.
fn places_to_change() -> impl Strategy<Value = Vec<(prop::sample::Index, bool, u8)>> {
    prop::collection::vec(
        (
            any::<prop::sample::Index>(),
            prop::bool::weighted(0.9),
            any::<u8>(),
        ),
        1..6,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_never_panic_or_allocate_beyond_the_file(
        changes in places_to_change(),
        sealed in prop::bool::weighted(0.9),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut bytes = SMALL.clone();
        let (_, end) = places(&bytes);
        for (place, in_index, value) in changes {
            let place = place.index(if in_index { end } else { bytes.len() });
            bytes[place] = value;
        }
        if sealed {
            seal(&mut bytes, end);
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        check(bytes);
    }

    #[test]
    fn changed_numbers_never_panic_or_allocate_beyond_the_file(
        field in 1usize..15,
        value in prop_oneof![any::<u64>(), 0u64..20_000, (0u32..64).prop_map(|bit| 1 << bit), (0u64..5000).prop_map(|n| u64::MAX - n)],
        other in 1usize..15,
        second in 0u64..20_000,
    ) {
        let mut bytes = SMALL.clone();
        let (_, end) = places(&bytes);
        common::put(&mut bytes, field * 8, value);
        common::put(&mut bytes, other * 8, second);
        seal(&mut bytes, end);
        check(bytes);
    }
}
