//! A checkpoint that is not whole, not consistent or not ours is refused before anything is written, with a sentence that says why.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Folder, Stored, given};
use fastar_fst::{Container, convert};
use serde_json::json;
use std::fs;

fn f32s(shape: &[usize]) -> Stored {
    Stored {
        dtype: "F32".into(),
        shape: shape.to_vec(),
        data: vec![0; 4 * shape.iter().product::<usize>()],
    }
}

#[test]
fn tensors_that_do_not_fit_are_named_with_found_and_expected() {
    type Change = fn(&mut Folder);
    let table: &[(&str, Change, &[&str])] = &[
        (
            "missing",
            |f| drop(f.tensors.remove("layers.1.attn.wq_b.weight")),
            &["missing", "\"layers.1.attn.wq_b.weight\""],
        ),
        (
            "missing scale",
            |f| drop(f.tensors.remove("layers.1.attn.wq_b.scale")),
            &["missing", "\"layers.1.attn.wq_b.scale\""],
        ),
        (
            "missing expert",
            |f| drop(f.tensors.remove("layers.2.ffn.experts.3.w3.weight")),
            &["\"layers.2.ffn.experts.3.w3.weight\""],
        ),
        (
            "many missing",
            |f| {
                f.tensors
                    .retain(|name, _| !name.starts_with("layers.2.hc_"))
            },
            &["6 missing tensors", "\"layers.2.hc_attn_fn\"", "and 3 more"],
        ),
        (
            "extra",
            |f| drop(f.tensors.insert("layers.0.attn.extra".into(), f32s(&[3]))),
            &["unexpected tensor", "\"layers.0.attn.extra\""],
        ),
        (
            "a layer too many",
            |f| {
                drop(
                    f.tensors
                        .insert("layers.3.attn_norm.weight".into(), f32s(&[64])),
                )
            },
            &["unexpected", "\"layers.3.attn_norm.weight\""],
        ),
        (
            "shape",
            |f| {
                drop(
                    f.tensors
                        .insert("layers.0.attn.attn_sink".into(), f32s(&[9])),
                )
            },
            &["\"layers.0.attn.attn_sink\"", "[9]", "[8]"],
        ),
        (
            "transposed",
            |f| {
                f.tensors
                    .get_mut("layers.0.attn.wkv.weight")
                    .unwrap()
                    .shape
                    .reverse()
            },
            &["\"layers.0.attn.wkv.weight\"", "[64, 96]", "[96, 64]"],
        ),
        (
            "type",
            |f| {
                let tensor = f.tensors.get_mut("norm.weight").unwrap();
                tensor.dtype = "F16".into();
            },
            &["\"norm.weight\"", "F16", "BF16 or F32"],
        ),
        (
            "packed where it may not be",
            |f| {
                let tensor = f.tensors.get_mut("layers.0.attn.wkv.weight").unwrap();
                tensor.dtype = "I8".into();
            },
            &["\"layers.0.attn.wkv.weight\"", "I8", "F8_E4M3"],
        ),
        (
            "scale shape",
            |f| {
                let tensor = f
                    .tensors
                    .get_mut("layers.0.ffn.experts.0.w1.scale")
                    .unwrap();
                tensor.shape = vec![32, 4];
            },
            &["\"layers.0.ffn.experts.0.w1.scale\"", "[32, 4]", "[64, 2]"],
        ),
        (
            "mixed experts",
            |f| {
                let name = "layers.1.ffn.experts.2.w2";
                f.tensors.remove(&format!("{name}.scale"));
                f.tensors.insert(
                    format!("{name}.weight"),
                    Stored {
                        dtype: "BF16".into(),
                        shape: vec![64, 64],
                        data: vec![0; 8192],
                    },
                );
            },
            &[
                "\"layers.1.ffn.experts.2.w2.weight\"",
                "type BF16",
                "I8 with F8_E8M0 scales",
            ],
        ),
        (
            "hash layer without its table",
            |f| drop(f.tensors.remove("layers.0.ffn.gate.tid2eid")),
            &["\"layers.0.ffn.gate.tid2eid\""],
        ),
        (
            "bias in a hash layer",
            |f| {
                drop(
                    f.tensors
                        .insert("layers.0.ffn.gate.bias".into(), f32s(&[4])),
                )
            },
            &["unexpected", "\"layers.0.ffn.gate.bias\""],
        ),
        (
            "half a drafter",
            |f| drop(f.tensors.insert("mtp.0.enorm.weight".into(), f32s(&[64]))),
            &["missing", "\"mtp.0.hc_attn_fn\""],
        ),
        (
            "a name with control characters",
            |f| drop(f.tensors.insert("bad\x1b[2J\nname".into(), f32s(&[1]))),
            &["bad\\u{1b}[2J\\nname"],
        ),
    ];
    for (case, change, says) in table {
        let mut folder = Folder::smallest();
        change(&mut folder);
        folder.write();
        let error = folder.refused();
        for part in *says {
            assert!(error.contains(part), "{case}: {part} is not in: {error}");
        }
    }
}

#[test]
fn missing_unexpected_and_wrong_are_said_together() {
    let mut folder = Folder::smallest();
    let norm = folder.tensors.remove("norm.weight").unwrap();
    folder.tensors.insert("model.norm.weight".into(), norm);
    folder.tensors.insert("hc_head_base".into(), f32s(&[5]));
    folder.write();
    let error = folder.refused();
    for part in [
        "missing tensor \"norm.weight\"",
        "unexpected tensor \"model.norm.weight\"",
        "\"hc_head_base\" has shape [5] and should have [4]",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
}

#[test]
fn a_missing_shard_a_foreign_tokenizer_and_a_wrong_shape_are_said_at_once() {
    let mut folder = Folder::like("c_fp8_fp4");
    let norm = folder.tensors.get_mut("norm.weight").unwrap();
    let dtype = norm.dtype.clone();
    *norm = Stored {
        shape: vec![32],
        data: norm.data[..norm.data.len() / 2].to_vec(),
        dtype,
    };
    let shards = folder.write_sharded();
    fs::write(
        folder.path.join("tokenizer.json"),
        r#"{"model": {"vocab": {"a": 50256}}}"#,
    )
    .unwrap();
    // One that does not hold the norm, so that its shape can be seen.
    let other = shards
        .iter()
        .find(|name| !common::read_safetensors(&folder.path.join(name)).contains_key("norm.weight"))
        .unwrap();
    fs::remove_file(folder.path.join(other)).unwrap();
    let error = folder.refused();
    assert!(error.starts_with("There are 3 problems: 1) "), "{error}");
    for part in [
        format!("the file \"{other}\" is missing"),
        "50256".to_owned(),
        "tensor \"norm.weight\" has shape [32] and should have [64]".to_owned(),
    ] {
        assert!(error.contains(&part), "{part} is not in: {error}");
    }
    // What the missing shard holds is not reported tensor by tensor.
    assert!(!error.contains("missing tensor"), "{error}");
}

#[test]
fn a_config_that_cannot_be_is_named_by_field() {
    for (field, value, says) in [
        ("model_type", json!("llama"), "\"llama\""),
        ("model_type", json!("deepseek_v41"), "DeepSeek V4.1"),
        (
            "architectures",
            json!(["LlamaForCausalLM"]),
            "\"LlamaForCausalLM\"",
        ),
        ("hidden_size", json!(null), "hidden_size is missing"),
        ("hidden_size", json!(0), "hidden_size is \"0\""),
        ("hidden_size", json!(-64), "hidden_size is \"-64\""),
        ("vocab_size", json!("many"), "vocab_size"),
        (
            "num_hidden_layers",
            json!(1u64 << 31),
            "num_hidden_layers is \"2147483648\"",
        ),
        ("n_routed_experts", json!(1u64 << 63), "n_routed_experts"),
        ("num_experts_per_tok", json!(5), "num_experts_per_tok is 5"),
        (
            "compress_ratios",
            json!([0, 4]),
            "compress_ratios has 2 entries and num_hidden_layers is 3",
        ),
        ("compress_ratios", json!("4"), "compress_ratios"),
        ("o_groups", json!(7), "7 output groups"),
        (
            "quantization_config",
            json!({"weight_block_size": [64, 64]}),
            "[64,64]",
        ),
        ("num_hidden_layers", json!(4), "\"layers.3.hc_attn_fn\""),
        (
            "n_routed_experts",
            json!(5),
            "\"layers.0.ffn.experts.4.w1.weight\"",
        ),
    ] {
        let mut folder = Folder::smallest();
        folder.config[field] = value;
        folder.write();
        let error = folder.refused();
        assert!(error.contains(says), "{says} is not in: {error}");
    }
    let mut folder = Folder::smallest();
    folder.config = json!([]);
    folder.write();
    assert!(folder.refused().contains("not a JSON object"));
    fs::write(folder.path.join("config.json"), "{ nonsense").unwrap();
    assert!(
        folder
            .refused()
            .contains("config.json cannot be used: it is not valid JSON at line 1, column 3.")
    );
    fs::write(folder.path.join("config.json"), "{\n\"a\": 1,\n").unwrap();
    assert!(
        folder
            .refused()
            .contains("it is not valid JSON: it ends too early, at line 3, column 0.")
    );
    fs::remove_file(folder.path.join("config.json")).unwrap();
    assert!(folder.refused().contains("has no config.json"));
}

#[test]
fn compress_ratios_may_be_longer_than_there_are_layers() {
    let mut folder = Folder::smallest();
    folder.config["compress_ratios"] = json!([0, 4, 16, 0, 0, 0]);
    folder.write();
    folder.convert().unwrap();
}

#[test]
fn a_foreign_tokenizer_is_refused_with_the_numbers() {
    let demo: serde_json::Value =
        serde_json::from_slice(&fs::read(given("demo").join("tokenizer.json")).unwrap()).unwrap();
    let bos = "<｜begin▁of▁sentence｜>";
    type Change = fn(&mut serde_json::Value);
    let table: &[(Change, &[&str])] = &[
        (
            |t| t["added_tokens"][5]["id"] = json!(2048),
            &["highest token id is 2048", "vocab_size is 2048"],
        ),
        (
            |t| t["model"]["vocab"]["zzz"] = json!(50_256),
            &["50256", "2048"],
        ),
        (
            |t| t["model"]["vocab"]["zzz"] = json!(-1),
            &["\"zzz\" has no valid id"],
        ),
        (
            |t| drop(t["model"].as_object_mut().unwrap().remove("vocab")),
            &["no vocabulary"],
        ),
        (|t| *t = json!({"hello": 1}), &["no vocabulary"]),
        (
            |t| *t = json!([1]),
            &["it is not a tokenizer: it has a value of the wrong kind at line 1, column "],
        ),
        (
            |t| {
                t["added_tokens"][0]["content"] = json!("<s>");
                t["model"]["vocab"]
                    .as_object_mut()
                    .unwrap()
                    .remove("<｜begin▁of▁sentence｜>");
            },
            &["no token <｜begin▁of▁sentence｜>", "bos_token_id"],
        ),
        (
            |t| {
                t["added_tokens"][0]["id"] = json!(1);
                t["added_tokens"][1]["id"] = json!(0);
            },
            &["has id 1 and config.json says bos_token_id 0"],
        ),
    ];
    assert!(demo["added_tokens"][0]["content"] == bos);
    for (change, says) in table {
        let mut folder = Folder::like("demo");
        folder.write();
        let mut tokenizer = demo.clone();
        change(&mut tokenizer);
        fs::write(folder.path.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        let error = folder.refused();
        assert!(
            error.contains("tokenizer.json does not belong to this model"),
            "{error}"
        );
        for part in *says {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
        folder.config = json!(null);
    }
    let folder = Folder::like("demo");
    folder.write();
    fs::write(folder.path.join("tokenizer.json"), "{").unwrap();
    assert!(folder.refused().contains("not valid JSON"));
}

#[test]
fn copies_of_embedding_and_head_in_the_drafter_are_left_out_and_said() {
    let mut folder = Folder::like("c_fp8_fp4");
    for name in ["embed.weight", "head.weight"] {
        let copy = folder.tensors[name].clone();
        folder.tensors.insert(format!("mtp.0.{name}"), copy);
    }
    folder.write();
    let warnings = folder.convert().unwrap();
    assert!(
        warnings
            .iter()
            .any(|w| w.starts_with("2 tensors of the drafter")),
        "{warnings:?}"
    );
    let container = Container::open(&folder.out()).unwrap();
    assert!(container.tensor("mtp.0.head.weight").is_none());
    assert!(container.tensor("mtp.0.e_proj.weight").is_some());
}

#[test]
fn a_target_that_cannot_be_is_refused() {
    let folder = Folder::written();
    let to = |out: &std::path::Path| {
        convert(&folder.path, out, &mut |_, _| {})
            .unwrap_err()
            .to_string()
    };
    for input in ["config.json", "model.safetensors"] {
        let before = fs::read(folder.path.join(input)).unwrap();
        let error = to(&folder.path.join(input));
        assert!(
            error.contains("one of the files to be converted"),
            "{error}"
        );
        let error = to(&folder.path.join("../checkpoint").join(input));
        assert!(
            error.contains("one of the files to be converted"),
            "{error}"
        );
        assert_eq!(fs::read(folder.path.join(input)).unwrap(), before);
    }
    assert!(to(&folder.path).contains("is a folder"));
    assert!(to(&folder.path.join("no/such/m.fst")).contains("folder does not exist"));
    assert!(
        to(&folder.path.join("config.json/m.fst")).contains("a file is where its folder should be")
    );
    folder.assert_nothing_left();
}

#[test]
fn a_failed_conversion_leaves_the_old_file_as_it_was() {
    let mut folder = Folder::written();
    let old = b"FST\0 precious";
    fs::write(folder.out(), old).unwrap();
    folder.tensors.remove("norm.weight");
    folder.write();
    folder.convert().unwrap_err();
    assert_eq!(fs::read(folder.out()).unwrap(), old);
}

#[cfg(unix)]
#[test]
fn the_new_file_is_readable_as_any_other() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::written();
    folder.convert().unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        mode(&folder.out()),
        mode(&folder.path.join("model.safetensors"))
    );
}
