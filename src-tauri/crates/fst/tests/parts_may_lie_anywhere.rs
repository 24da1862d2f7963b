//! Index, tensors and records may lie in any order, as an upgrade in place leaves them, but never over each other, and never with unused
//! bytes that nothing explains.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{at, get, open, places, put, seal, small_container};
use std::sync::LazyLock;

static SMALL: LazyLock<Vec<u8>> = LazyLock::new(small_container);

/// The small container with its index moved behind `gap` bytes after the records; what was the index before is unused.
fn index_last(upgraded: bool, gap: usize) -> Vec<u8> {
    let small = &*SMALL;
    let (directory, end) = places(small);
    let config = &small[128..128 + get(small, at::CONFIG) as usize];
    let metadata = (128 + config.len()).next_multiple_of(8);
    let metadata = std::str::from_utf8(&small[metadata..][..get(small, at::METADATA) as usize]);
    let metadata = match upgraded {
        true => metadata.unwrap().replacen('{', "{\"upgraded\":true,", 1),
        false => metadata.unwrap().to_owned(),
    };
    let mut bytes = small.clone();
    bytes[128..end].fill(0xAA);
    bytes.resize(small.len() + gap, 0xAA);
    let index = bytes.len();
    bytes.extend_from_slice(config);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend_from_slice(metadata.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend_from_slice(&small[directory..end]);
    put(&mut bytes, at::INDEX, index as u64);
    put(&mut bytes, at::METADATA, metadata.len() as u64);
    let length = bytes.len();
    put(&mut bytes, at::FILE, length as u64);
    seal(&mut bytes, length);
    bytes
}

fn refusal(bytes: &[u8]) -> String {
    match open(bytes) {
        Ok(_) => panic!("a bad container was opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_upgraded_file_with_its_index_at_the_end_has_the_same_content() {
    let (moved, small) = (index_last(true, 0), open(&SMALL).unwrap());
    let moved = open(&moved).unwrap();
    assert!(small.tensors().count() > 100);
    for ((a, x), (b, y)) in small.tensors().zip(moved.tensors()) {
        assert_eq!((a, x.dtype, x.shape), (b, y.dtype, y.shape));
        assert_eq!(small.read(a).unwrap(), moved.read(b).unwrap());
    }
    let (layers, experts) = small.expert_counts();
    for (layer, expert) in (0..layers).flat_map(|l| (0..experts).map(move |e| (l, e))) {
        assert_eq!(
            small.expert(layer, expert).unwrap(),
            moved.expert(layer, expert).unwrap()
        );
    }
    moved.verify(&mut |_, _| {}).unwrap();
    assert_ne!(small.identity(), moved.identity());
}

#[test]
fn unused_bytes_need_the_word_that_explains_them() {
    open(&index_last(true, 8192)).unwrap();
    let error = refusal(&index_last(false, 8192));
    assert!(error.contains("belong to nothing"), "{error}");
}

#[test]
fn parts_over_each_other_are_refused() {
    let moved = index_last(true, 0);
    let (directory, end) = places(&moved);
    let index = get(&moved, at::INDEX);
    let records = get(&moved, at::RECORDS);
    let change = |field: usize, value: u64| {
        let mut bytes = moved.clone();
        put(&mut bytes, field, value);
        seal(&mut bytes, end);
        refusal(&bytes)
    };
    for (field, value, says) in [
        // The records over the last tensors, over the index, and not on a page.
        (at::RECORDS, records - 4096, "overlaps"),
        (at::RECORDS, records + 4096, "overlaps"),
        (at::RECORDS, records + 64, "cannot be at"),
        (at::RECORDS, 0, "cannot be at"),
        (at::RECORDS, u64::MAX - 4095, "impossible"),
        (at::INDEX, 64, "cannot be at"),
        (at::INDEX, u64::MAX - 7, "impossible"),
        // The last tensor into the records.
        (directory, records, "lies before"),
    ] {
        let error = change(field, value);
        assert!(error.contains(says), "{field} {value}: {error}");
    }
    // An index that would have to be inside the records.
    let error = change(at::INDEX, index - 8192);
    assert!(error.contains("checksum"), "{error}");
}
