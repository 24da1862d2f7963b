//! A container that is damaged, foreign or made to harm is one clear error: no panic, no guess.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{at, get, open, places, put, seal, small_container};
use std::sync::LazyLock;

static SMALL: LazyLock<Vec<u8>> = LazyLock::new(small_container);

fn refusal(bytes: &[u8]) -> String {
    let error = match open(bytes) {
        Ok(_) => panic!("a bad container was opened"),
        Err(error) => error.to_string(),
    };
    assert!(!error.contains('\n'), "more than one line: {error}");
    error
}

/// A change to the small container, sealed again so that only the change itself can be the reason to refuse.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = SMALL.clone();
    let (_, end) = places(&bytes);
    change(&mut bytes);
    seal(&mut bytes, end);
    bytes
}

#[test]
fn something_else_is_named_for_what_it_is() {
    for (bytes, says) in [
        (&b""[..], "is empty"),
        (b"GGUF\x03\0\0\0", "is a GGUF file"),
        (b"PK\x03\x04 a zip", "is a ZIP archive"),
        (b"<!DOCTYPE html>", "looks like a web page"),
        (
            b"\x10\0\0\0\0\0\0\0{\"a\":1}",
            "looks like a safetensors file",
        ),
        (b"\x1b[2J", "starts with \"\\u{1b}[2J\""),
    ] {
        let error = refusal(bytes);
        assert!(error.contains(says), "{error}");
        assert!(error.contains("is not a FaStar model"), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let error = fastar_fst::Container::open(folder.path()).err().unwrap();
    assert!(error.to_string().contains("is a folder"), "{error}");
    let error = fastar_fst::Container::open(&folder.path().join("no.fst"))
        .err()
        .unwrap();
    assert!(error.to_string().contains("no.fst"), "{error}");
}

#[test]
fn every_other_version_is_refused_with_what_to_do() {
    for (version, says) in [
        (0u32, "version 0"),
        (1, "version 1"),
        (4, "needs a newer FaStar: update FaStar"),
        (u32::MAX, "version 4294967295"),
    ] {
        let mut bytes = SMALL.clone();
        bytes[at::VERSION..at::VERSION + 4].copy_from_slice(&version.to_le_bytes());
        let error = refusal(&bytes);
        assert!(error.contains(says), "{error}");
    }
    // Version 2 is another format, which these bytes are not.
    let mut old = SMALL.clone();
    old[at::VERSION] = 2;
    refusal(&old);
    let error = fastar_fst::Container::from_static(old.leak())
        .err()
        .unwrap();
    assert!(error.to_string().contains("needs its other files"));
}

#[test]
fn a_file_cut_anywhere_says_both_lengths() {
    let (directory, end) = places(&SMALL);
    let whole = SMALL.len();
    for cut in [
        8,
        10,
        64,
        127,
        128,
        129,
        directory,
        directory + 1,
        end - 1,
        end,
        whole / 2,
        whole - 4096,
        whole - 1,
    ] {
        let error = refusal(&SMALL[..cut]);
        assert!(error.contains(&format!("{cut} bytes")), "{cut}: {error}");
        if cut >= 128 {
            assert!(error.contains(&format!("says {whole}")), "{cut}: {error}");
        }
    }
    let mut longer = SMALL.clone();
    longer.push(0);
    assert!(refusal(&longer).contains(&format!("{} bytes", whole + 1)));
}

#[test]
fn every_number_in_the_header_may_be_hostile() {
    let hostile = |now: u64| {
        [
            0,
            1,
            now.wrapping_sub(1),
            now + 1,
            now + 8,
            now + 4096,
            now << 31,
            1 << 31,
            1 << 48,
            1 << 63,
            u64::MAX - 7,
            u64::MAX,
        ]
    };
    for field in (at::FILE..at::CHECKSUM).step_by(8) {
        for value in hostile(get(&SMALL, field)) {
            if value == get(&SMALL, field) {
                continue;
            }
            refusal(&changed(|bytes| put(bytes, field, value)));
        }
    }
    // Pairs whose product is right but which contradict the rest, or overflow only together.
    for (layers, experts) in [(4, 3), (12, 1), (1 << 32, 1 << 32), (1 << 61, 8)] {
        refusal(&changed(|bytes| {
            put(bytes, at::LAYERS, layers);
            put(bytes, at::EXPERTS, experts);
        }));
    }
}

/// Offsets of the fields of the first directory entry.
const OFFSET: usize = 0;
const LENGTH: usize = 8;
const DTYPE: usize = 24;
const DIMENSIONS: usize = 25;
const NAME_LENGTH: usize = 26;
const RESERVED: usize = 28;
const SHAPE: usize = 32;
const NAME: usize = 48;

#[test]
fn every_field_of_the_directory_may_be_hostile() {
    let (directory, _) = places(&SMALL);
    let offset = get(&SMALL, directory + OFFSET);
    let length = get(&SMALL, directory + LENGTH);
    for (name, field, value) in [
        ("before the tensors", OFFSET, 64),
        ("not aligned", OFFSET, offset + 4),
        ("overlaps the next", OFFSET, offset + 64),
        ("beyond the end", OFFSET, 1 << 40),
        ("wraps around", OFFSET, u64::MAX - 63),
        ("shorter than its shape", LENGTH, length - 1),
        ("longer than its shape", LENGTH, length + 1),
        ("endless", LENGTH, u64::MAX),
        ("more rows", SHAPE, get(&SMALL, directory + SHAPE) + 1),
        ("shape overflows", SHAPE, 1 << 63),
    ] {
        let error = refusal(&changed(|bytes| put(bytes, directory + field, value)));
        // What overlaps is noticed at the part that comes second.
        let culprit = match name {
            "overlaps the next" => "\"layers.0.hc_attn_fn\" overlaps",
            _ => "\"embed.weight\"",
        };
        assert!(error.contains(culprit), "{name}: {error}");
    }
    for (name, field, value) in [
        ("another type", DTYPE, 2),
        ("blocks", DTYPE, 8),
        ("no dimensions", DIMENSIONS, 0),
        ("many dimensions", DIMENSIONS, 255),
        ("no name", NAME_LENGTH, 0),
        ("a longer name", NAME_LENGTH, 200),
        ("a name beyond the directory", NAME_LENGTH + 1, 255),
        ("reserved", RESERVED, 1),
        ("not UTF-8", NAME, 0xff),
    ] {
        assert!(
            open(&changed(|bytes| bytes[directory + field] = value)).is_err(),
            "{name} was accepted"
        );
    }
    for code in [0, 9, 255] {
        let error = refusal(&changed(|bytes| bytes[directory + DTYPE] = code));
        let expected = format!("entry 0 of its directory has type {code},");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn a_name_that_occurs_twice_is_refused() {
    let (directory, end) = places(&SMALL);
    let index = &SMALL[directory..end];
    let find = |name: &[u8]| directory + index.windows(name.len()).position(|w| w == name).unwrap();
    let (base, other) = (b"layers.0.hc_attn_base", b"layers.1.hc_attn_base");
    let place = find(other);
    let error = refusal(&changed(|bytes| {
        bytes[place..place + base.len()].copy_from_slice(base)
    }));
    assert!(
        error.contains("\"layers.0.hc_attn_base\" is listed twice"),
        "{error}"
    );
}

#[test]
fn metadata_that_contradicts_the_records_is_refused() {
    let metadata = (128 + get(&SMALL, at::CONFIG) as usize).next_multiple_of(8);
    let text =
        String::from_utf8(SMALL[metadata..metadata + get(&SMALL, at::METADATA) as usize].to_vec())
            .unwrap();
    // Same length each, so that nothing but the meaning changes.
    for (from, to) in [
        ("\"rows\":64", "\"rows\":65"),
        ("\"bytes\":6528", "\"bytes\":6529"),
        ("\"end\":2176", "\"end\":2177"),
        ("\"fp4-packets\"", "\"fp4-pockets\""),
        ("\"MXFP4\"", "\"MXFP5\""),
    ] {
        assert!(text.contains(from), "{from} is not in {text}");
        let new = text.replacen(from, to, 1);
        refusal(&changed(|bytes| {
            bytes[metadata..metadata + new.len()].copy_from_slice(new.as_bytes());
        }));
    }
    // Where it cannot be read, that is said in plain words.
    for (from, to, says) in [
        (
            "{\"creator\"",
            "[\"creator\"",
            "its metadata is not valid JSON at line 1, column ",
        ),
        (
            "{\"creator\"",
            "{\"cReator\"",
            "its metadata lacks the field \"creator\", at line 1, column ",
        ),
        (
            "\"bytes\":6528",
            "\"bytes\":true",
            "its metadata has a value of the wrong kind at line 1, column ",
        ),
    ] {
        let new = text.replacen(from, to, 1);
        let error = refusal(&changed(|bytes| {
            bytes[metadata..metadata + new.len()].copy_from_slice(new.as_bytes());
        }));
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn json_that_nests_without_end_is_an_error_and_not_a_stack_overflow() {
    let length = get(&SMALL, at::CONFIG) as usize;
    let error = refusal(&changed(|bytes| bytes[128..128 + length].fill(b'[')));
    assert!(error.contains("not valid JSON"), "{error}");
}

#[test]
fn a_flipped_bit_anywhere_in_the_index_is_found() {
    let (_, end) = places(&SMALL);
    // The whole header, then every seventh byte; an odd step walks through all eight bits.
    for byte in (0..128).chain((128..end).step_by(7)) {
        let mut bytes = SMALL.clone();
        bytes[byte] ^= 1 << (byte % 8);
        refusal(&bytes);
    }
}

#[test]
fn a_flipped_bit_in_a_tensor_is_found_and_named() {
    let container = open(&SMALL).unwrap();
    let place = container.dense_place("layers.1.attn.wkv.weight").unwrap();
    let place = (place.offset + place.bytes / 2) as usize;
    let mut bytes = SMALL.clone();
    bytes[place] ^= 0x10;
    let damaged = open(&bytes).unwrap();
    let error = damaged.read("layers.1.attn.wkv.weight").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("tensor \"layers.1.attn.wkv.weight\""),
        "{error}"
    );
    assert_eq!(
        damaged.verify(&mut |_, _| {}).unwrap_err().to_string(),
        error.to_string()
    );
    damaged.read("layers.1.attn.wkv.scale").unwrap();
    damaged.read("layers.9.nothing").unwrap_err();
}

#[test]
fn a_flipped_bit_in_a_record_is_found_and_named_every_time() {
    let container = open(&SMALL).unwrap();
    let record = container.expert(1, 2).unwrap();
    let place = container.records().offset(1, 2) as usize;
    for within in [0, record.len() / 2, record.len() - 1] {
        let mut bytes = SMALL.clone();
        bytes[place + within] ^= 1;
        let damaged = open(&bytes).unwrap();
        for _ in 0..2 {
            let error = damaged.expert(1, 2).unwrap_err().to_string();
            assert!(error.contains("expert 2 of layer 1"), "{error}");
        }
        damaged.expert(1, 1).unwrap();
        damaged.expert(1, 3).unwrap();
        damaged.verify(&mut |_, _| {}).unwrap_err();
    }
}

#[test]
fn an_expert_that_does_not_exist_is_an_error() {
    let container = open(&SMALL).unwrap();
    assert_eq!(container.expert_counts(), (3, 4));
    for (layer, expert) in [(3, 0), (0, 4), (usize::MAX, usize::MAX)] {
        let error = container.expert(layer, expert).unwrap_err().to_string();
        assert!(error.contains("3 layers of 4"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn a_loop_of_links_and_a_pipe_are_errors_and_do_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a.fst"), folder.path().join("b.fst"));
    std::os::unix::fs::symlink(&a, &b).unwrap();
    std::os::unix::fs::symlink(&b, &a).unwrap();
    assert!(fastar_fst::Container::open(&a).is_err());
    let pipe = folder.path().join("pipe.fst");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .unwrap();
    assert!(made.success());
    let error = fastar_fst::Container::open(&pipe)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn parts_that_would_fill_the_memory_are_refused_before_they_are_read() {
    const DIRECTORY_BYTES: usize = 32;
    const TOKENIZER_BYTES: usize = 48;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.fst");
    for (field, says) in [
        (DIRECTORY_BYTES, "its index has"),
        (TOKENIZER_BYTES, "its tokenizer has"),
    ] {
        let bytes = changed(|bytes| {
            put(bytes, 8, 1 << 31);
            put(bytes, field, 1 << 30);
        });
        std::fs::write(&path, bytes).unwrap();
        // As long as it says, and nearly all of it a hole.
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 31).unwrap();
        let error = fastar_fst::Container::open(&path)
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains(says) && error.contains("are allowed"),
            "{error}"
        );
    }
}
