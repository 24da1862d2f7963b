//! The tokenizer against the Python library, on text of many kinds.

use serde::Deserialize;

use super::{data, sha256, text_of, unpacked, v4};

#[derive(Deserialize)]
struct Section {
    name: String,
    bytes: usize,
    count: usize,
    first: Vec<u32>,
    sha256: String,
}

#[test]
fn mixed_text_has_the_ids_of_the_python_library_and_comes_back_byte_for_byte() {
    let sections: Vec<Section> =
        serde_json::from_slice(&std::fs::read(data("corpus.json")).unwrap()).unwrap();
    let corpus = String::from_utf8(unpacked("corpus.txt.gz")).unwrap();
    let (mut at, mut total) = (0, 0);
    for section in sections {
        let text = &corpus[at..at + section.bytes];
        at += section.bytes;
        let mut ids = Vec::new();
        v4().encode(text, &mut ids).unwrap();
        assert_eq!(
            ids[..section.first.len()],
            section.first,
            "{}",
            section.name
        );
        assert_eq!(ids.len(), section.count, "{}", section.name);
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        assert_eq!(sha256(&bytes), section.sha256, "{}", section.name);
        assert!(text_of(&ids) == text, "{} does not come back", section.name);
        total += ids.len();
    }
    assert_eq!(at, corpus.len());
    assert!(total >= 100_000, "{total}");
}

/// Counts and the beginning of the sha256 of the ids: Python `tokenizers` 0.23.1. What a hostile file may hold.
#[test]
fn endless_runs_of_one_thing_have_the_ids_of_the_python_library() {
    for (piece, times, count, hash) in [
        ("a", 100_000, 12_502, "9a07878fb4043d5b"),
        (" ", 900_000, 7_033, "7d4b010ec5e51f75"),
        ("\n", 100_000, 6_251, "0e21294e9b2e3d79"),
        ("🙂", 20_000, 40_001, "3b865f33bafe76d0"),
        ("<", 100_000, 50_001, "4a3c893365b03461"),
        ("7", 100_000, 33_335, "73c6b5cf460d1301"),
        ("你好", 30_000, 30_001, "98baeb5d3ba254d6"),
        ("e\u{301}\u{302}", 20_000, 60_001, "319b77681044c883"),
        (" \r\n\t", 30_000, 90_001, "3a8f6c7ef23a799c"),
    ] {
        let text = piece.repeat(times) + "x";
        let mut ids = Vec::new();
        v4().encode(&text, &mut ids).unwrap();
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        assert_eq!(ids.len(), count, "{piece:?}");
        assert!(sha256(&bytes).starts_with(hash), "{piece:?}");
        assert!(text_of(&ids) == text, "{piece:?} does not come back");
    }
}
