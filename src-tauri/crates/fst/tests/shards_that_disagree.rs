//! An index that does not fit its shards, and shards that are not what they seem: all of it is said before anything is written.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::Folder;
use fastar_fst::convert;
use serde_json::json;
use std::fs;

#[test]
fn index_and_shards_that_disagree_are_named() {
    let name = |n: usize| format!("model-{n:05}-of-00003.safetensors");

    let folder = Folder::smallest();
    folder.write_sharded();
    fs::remove_file(folder.path.join(name(3))).unwrap();
    let error = folder.refused();
    assert!(
        error.contains(&format!("the file {:?} is missing", name(3))),
        "{error}"
    );

    let folder = Folder::smallest();
    folder.write_sharded();
    let path = folder.path.join(name(2));
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = folder.refused();
    assert!(
        error.contains(&name(2)) && error.contains("incomplete"),
        "{error}"
    );

    // Both at once: a person sees all of it the first time.
    fs::remove_file(folder.path.join(name(1))).unwrap();
    let error = folder.refused();
    assert!(
        error.contains(&name(1)) && error.contains(&name(2)),
        "{error}"
    );

    let index_of = |folder: &Folder| -> serde_json::Map<String, serde_json::Value> {
        let text = fs::read(folder.path.join("model.safetensors.index.json")).unwrap();
        let index: serde_json::Value = serde_json::from_slice(&text).unwrap();
        index["weight_map"].as_object().unwrap().clone()
    };

    let folder = Folder::smallest();
    folder.write_sharded();
    let mut map = index_of(&folder);
    let right = map["norm.weight"].clone();
    let wrong = (1..=3).map(name).find(|n| json!(n) != right).unwrap();
    map["norm.weight"] = json!(wrong);
    folder.write_index(map.clone());
    let error = folder.refused();
    assert!(
        error.contains("\"norm.weight\"") && error.contains(&wrong),
        "{error}"
    );

    map.remove("norm.weight");
    folder.write_index(map.clone());
    let error = folder.refused();
    assert!(
        error.contains("\"norm.weight\" is in") && error.contains("not in the index"),
        "{error}"
    );

    map.insert("norm.weight".into(), right);
    map.insert("layers.7.ghost".into(), json!(name(1)));
    folder.write_index(map);
    let error = folder.refused();
    assert!(error.contains("\"layers.7.ghost\""), "{error}");
}

#[test]
fn a_tensor_in_two_shards_or_twice_in_one_is_refused() {
    let folder = Folder::smallest();
    folder.write_sharded();
    let first = folder.path.join("model-00001-of-00003.safetensors");
    let second = folder.path.join("model-00002-of-00003.safetensors");
    let mut tensors = common::read_safetensors(&second);
    tensors.extend(common::read_safetensors(&first).into_iter().take(1));
    let twice = common::read_safetensors(&first).into_keys().next().unwrap();
    common::write_safetensors(&second, &tensors);
    let error = folder.refused();
    assert!(
        error.contains(&format!("tensor {twice:?} is both in")),
        "{error}"
    );

    let folder = Folder::written();
    let path = folder.path.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    // Same length: one name becomes another's.
    let text = "\"layers.1.hc_attn_base\"";
    let place = bytes
        .windows(text.len())
        .position(|w| w == text.as_bytes())
        .unwrap();
    let mut changed = bytes.clone();
    changed[place..place + text.len()].copy_from_slice(b"\"layers.0.hc_attn_base\"");
    fs::write(&path, changed).unwrap();
    let error = folder.refused();
    assert!(
        error.contains("\"layers.0.hc_attn_base\" is twice in"),
        "{error}"
    );
}

#[test]
fn an_index_that_leads_out_of_the_folder_is_refused() {
    for odd in [
        "../secret.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "..",
        "",
    ] {
        let folder = Folder::smallest();
        folder.write_config();
        let mut map = serde_json::Map::new();
        map.insert("norm.weight".into(), json!(odd));
        folder.write_index(map);
        let error = folder.refused();
        assert!(
            error.contains("not a file in this folder"),
            "{odd}: {error}"
        );
    }
}

#[test]
fn folders_without_weights_say_what_is_missing() {
    let folder = Folder::smallest();
    folder.write_config();
    assert!(folder.refused().contains("neither model.safetensors nor"));
    fs::write(folder.path.join("model-00001-of-00002.safetensors"), b"").unwrap();
    let error = folder.refused();
    assert!(
        error.contains("1 safetensors file but no model.safetensors.index.json"),
        "{error}"
    );
    folder.write_index(serde_json::Map::new());
    assert!(folder.refused().contains("lists no tensors"));
    for (index, says) in [
        (
            "[1, 2",
            "it has a value of the wrong kind at line 1, column 2.",
        ),
        (
            "{\"weight_map\": {",
            "it is not valid JSON: it ends too early, at line 1, column 16.",
        ),
        (
            "{\"weight_map\":\n3}",
            "it has a value of the wrong kind at line 2, column 1.",
        ),
        (
            "{}",
            "it lacks the field \"weight_map\", at line 1, column 2.",
        ),
    ] {
        fs::write(folder.path.join("model.safetensors.index.json"), index).unwrap();
        let error = folder.refused();
        assert!(
            error.contains(&format!("is not a shard index: {says}")),
            "{error}"
        );
    }
    let missing = folder.path.join("nowhere");
    let error = convert(&missing, &folder.out(), &mut |_, _| {})
        .unwrap_err()
        .to_string();
    assert!(error.contains("not a folder"), "{error}");
}

#[test]
fn a_shard_with_a_hostile_header_is_an_error() {
    let header = |text: &str| {
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        bytes
    };
    let length = |n: u64| n.to_le_bytes().to_vec();
    for (case, bytes) in [
        ("empty", vec![]),
        ("seven bytes", vec![0; 7]),
        ("a header of 2^60", length(1 << 60)),
        ("a header of 2^64-1", length(u64::MAX)),
        ("a header longer than the file", length(100)),
        ("a header of nothing", length(0)),
        ("not JSON", header("hello")),
        ("not an object", header("[]")),
        ("nested without end", header(&"[".repeat(100_000))),
        (
            "nested without end in a tensor",
            header(&format!("{{\"a\":{}", "{\"a\":".repeat(100_000))),
        ),
        (
            "a tensor that ends at the end of numbers",
            header(
                r#"{"norm.weight":{"dtype":"I8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}}"#,
            ),
        ),
        (
            "a shape that overflows",
            header(
                r#"{"norm.weight":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#,
            ),
        ),
        (
            "offsets backwards",
            header(r#"{"norm.weight":{"dtype":"I8","shape":[1],"data_offsets":[1,0]}}"#),
        ),
        (
            "offsets beyond the file",
            header(r#"{"norm.weight":{"dtype":"I8","shape":[9],"data_offsets":[0,9]}}"#),
        ),
        (
            "negative",
            header(r#"{"norm.weight":{"dtype":"I8","shape":[-1],"data_offsets":[0,9]}}"#),
        ),
        (
            "a type that is none",
            header(r#"{"norm.weight":{"dtype":"I7","shape":[9],"data_offsets":[0,9]}}"#),
        ),
        (
            "no offsets",
            header(r#"{"norm.weight":{"dtype":"I8","shape":[9]}}"#),
        ),
    ] {
        let folder = Folder::smallest();
        folder.write_config();
        fs::write(folder.path.join("model.safetensors"), bytes).unwrap();
        let error = folder.refused();
        assert!(error.contains("model.safetensors"), "{case}: {error}");
        for word in [
            "invalid type",
            "invalid value",
            "unknown variant",
            "missing field",
            "EOF",
        ] {
            assert!(!error.contains(word), "{case}: {error}");
        }
    }
}
