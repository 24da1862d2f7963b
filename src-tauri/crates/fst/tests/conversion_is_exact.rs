//! A container holds what the checkpoint held, byte for byte.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Folder, Stored, Tensors, given, packed_record, read_safetensors};
use fastar_fst::{Container, Dtype, ExpertMatrix, convert};
use std::fs;
use std::path::Path;

fn type_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bf16 => "BF16",
        Dtype::F32 => "F32",
        Dtype::I64 => "I64",
        Dtype::I32 => "I32",
        Dtype::F8E4m3 => "F8_E4M3",
        Dtype::F8E8m0 => "F8_E8M0",
        Dtype::Fp4Packed => "I8",
        other => panic!("{other:?} is in no checkpoint"),
    }
}

/// Compares everything and returns how many tensors were compared.
fn assert_equal(container: &Container, tensors: &Tensors) -> usize {
    let mut seen = 0;
    let is_expert = |name: &str| name.starts_with("layers.") && name.contains(".ffn.experts.");
    for (name, tensor) in container.tensors() {
        let stored = &tensors[name];
        assert!(!is_expert(name), "{name} is both dense and in a record");
        assert_eq!(type_name(tensor.dtype), stored.dtype, "{name}");
        assert_eq!(tensor.shape, stored.shape, "{name}");
        assert!(
            container.read(name).unwrap() == stored.data,
            "{name} differs"
        );
        let mut pieces = Vec::new();
        let mut each = |piece: &[u8]| {
            pieces.extend_from_slice(piece);
            Ok(())
        };
        container.read_in_pieces(name, &mut each).unwrap();
        assert!(pieces == stored.data, "{name} differs in pieces");
        seen += 1;
    }
    let (layers, experts) = container.expert_counts();
    let layout = container.expert_layout();
    for layer in 0..layers {
        for expert in 0..experts {
            let record = container.expert(layer, expert).unwrap();
            assert_eq!(record.len(), layout.bytes);
            if layout.id == "fp4-packets" {
                for matrix in [&layout.gate, &layout.up, &layout.down] {
                    assert_eq!((matrix.dtype, &matrix.scale), (Dtype::Fp4Packets, &None));
                }
                let expected = packed_record(tensors, layer, expert);
                assert!(
                    record == expected,
                    "expert {expert} of layer {layer} differs"
                );
                seen += 6;
                continue;
            }
            // Gate, up, down; data then scales; no gaps: the record is the plain concatenation.
            let mut plain = Vec::new();
            for (part, matrix) in [
                ("w1", &layout.gate),
                ("w3", &layout.up),
                ("w2", &layout.down),
            ] {
                let name = format!("layers.{layer}.ffn.experts.{expert}.{part}");
                let weight = &tensors[&format!("{name}.weight")];
                assert_matrix(matrix, weight, &record);
                plain.extend_from_slice(&weight.data);
                seen += 1;
                if let Some(scale) = tensors.get(&format!("{name}.scale")) {
                    let (dtype, range) = matrix.scale.clone().unwrap();
                    assert_eq!(type_name(dtype), scale.dtype);
                    assert!(record[range] == scale.data, "{name}.scale differs");
                    plain.extend_from_slice(&scale.data);
                    seen += 1;
                }
            }
            assert!(record == plain, "expert {expert} of layer {layer} differs");
        }
    }
    container.verify(&mut |_, _| {}).unwrap();
    seen
}

fn assert_matrix(matrix: &ExpertMatrix, weight: &Stored, record: &[u8]) {
    assert_eq!(type_name(matrix.dtype), weight.dtype);
    assert_eq!(matrix.rows, weight.shape[0]);
    let per_entry = if weight.dtype == "I8" { 2 } else { 1 };
    assert_eq!(matrix.columns, weight.shape[1] * per_entry);
    assert!(record[matrix.data.clone()] == weight.data);
}

fn converted(name: &str) -> (Container, tempfile::TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model.fst");
    let warnings = convert(&given(name), &out, &mut |_, _| {}).unwrap();
    (Container::open(&out).unwrap(), folder, warnings)
}

#[test]
fn every_fixture_and_the_demo_arrive_byte_for_byte() {
    for name in ["a_mixed_bf16", "b_flash_ratios_bf16", "c_fp8_fp4", "demo"] {
        let tensors = read_safetensors(&given(name).join("model.safetensors"));
        let (container, _folder, _) = converted(name);
        let expected = match name {
            "c_fp8_fp4" | "demo" => "fp4-packets",
            _ => "row-major",
        };
        assert_eq!(container.expert_layout().id, expected, "{name}");
        assert_eq!(assert_equal(&container, &tensors), tensors.len(), "{name}");
        let config = fs::read(given(name).join("config.json")).unwrap();
        assert_eq!(container.config_text(), config);
        assert_eq!(
            *container.config(),
            serde_json::from_slice::<serde_json::Value>(&config).unwrap()
        );
    }
}

#[test]
fn the_tokenizer_arrives_byte_for_byte_and_its_absence_is_said() {
    let (demo, _folder, warnings) = converted("demo");
    let tokenizer = fs::read(given("demo").join("tokenizer.json")).unwrap();
    assert_eq!(demo.tokenizer().unwrap().unwrap(), tokenizer);
    assert_eq!(warnings, Vec::<String>::new());

    let (without, _folder, warnings) = converted("a_mixed_bf16");
    assert_eq!(without.tokenizer().unwrap(), None);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("no tokenizer.json"), "{warnings:?}");
}

#[test]
fn shards_with_an_index_make_the_same_container_as_one_file() {
    let whole = Folder::like("c_fp8_fp4");
    whole.write();
    whole.convert().unwrap();
    let sharded = Folder::like("c_fp8_fp4");
    sharded.write_sharded();
    sharded.convert().unwrap();
    assert_eq!(
        fs::read(whole.out()).unwrap(),
        fs::read(sharded.out()).unwrap()
    );
    assert_eq!(
        Container::open(&whole.out()).unwrap().identity(),
        Container::open(&sharded.out()).unwrap().identity()
    );
}

#[test]
fn experts_in_fp8_with_either_kind_of_scale_are_kept() {
    for (scale_type, scale_bytes) in [("F8_E8M0", 1), ("F32", 4)] {
        let mut folder = Folder::smallest();
        let (hidden, intermediate) = (64, 64);
        for (name, tensor) in &mut folder.tensors {
            if !name.contains(".ffn.experts.") {
                continue;
            }
            let seed = name.bytes().map(usize::from).sum::<usize>();
            let length = if name.ends_with(".scale") {
                *tensor = Stored {
                    dtype: scale_type.into(),
                    shape: vec![1, 1],
                    data: Vec::new(),
                };
                scale_bytes
            } else {
                *tensor = Stored {
                    dtype: "F8_E4M3".into(),
                    shape: vec![hidden, intermediate],
                    data: Vec::new(),
                };
                hidden * intermediate
            };
            let number = |i: usize| match (seed + i * 7) as u8 {
                0x7F | 0xFF => 0x7E,
                code => code,
            };
            tensor.data = (0..length).map(number).collect();
        }
        folder.write();
        folder.convert().unwrap();
        let container = Container::open(&folder.out()).unwrap();
        assert_eq!(
            assert_equal(&container, &folder.tensors),
            folder.tensors.len()
        );
    }
}

#[test]
fn a_checkpoint_without_drafter_converts() {
    let folder = Folder::written();
    folder.convert().unwrap();
    let container = Container::open(&folder.out()).unwrap();
    assert_eq!(
        assert_equal(&container, &folder.tensors),
        folder.tensors.len()
    );
    assert!(!container.inspect().drafter);
}

#[test]
fn records_and_tensors_lie_where_the_format_says() {
    let (container, folder, _) = converted("c_fp8_fp4");
    let bytes = fs::read(folder.path().join("model.fst")).unwrap();
    let find = |layer, expert| container.records().offset(layer, expert) as usize;
    for place in container.dense_places() {
        assert_eq!(place.offset % 64, 0, "{}", place.name);
    }
    let first = find(0, 0);
    assert_eq!(first % 4096, 0);
    // 64 x 64 FP4: 2048 weight bytes and 128 scales, three times = 6528, so 8192 apart.
    assert_eq!(container.expert_layout().bytes, 6528);
    assert_eq!(find(0, 1) - first, 8192);
    assert_eq!(find(1, 0) - first, 4 * 8192);
    assert_eq!(bytes.len(), first + 12 * 8192);
    assert_eq!(container.file_bytes(), bytes.len() as u64);
    assert_eq!(&bytes[..8], b"FST\0\x03\0\0\0");
}

#[test]
fn a_container_in_memory_is_the_same_as_on_disk() {
    let (on_disk, folder, _) = converted("c_fp8_fp4");
    // Read once for the whole test run, as the built-in model is.
    let bytes: &'static [u8] = fs::read(folder.path().join("model.fst")).unwrap().leak();
    let in_memory = Container::from_static(bytes).unwrap();
    assert_eq!(in_memory.identity(), on_disk.identity());
    assert_eq!(
        in_memory.expert(2, 3).unwrap(),
        on_disk.expert(2, 3).unwrap()
    );
}

#[test]
fn progress_grows_to_all_bytes_of_the_checkpoint() {
    let folder = Folder::written();
    let mut seen = Vec::new();
    convert(&folder.path, &folder.out(), &mut |done, total| {
        seen.push((done, total))
    })
    .unwrap();
    let bytes: usize = folder.tensors.values().map(|t| t.data.len()).sum();
    let bytes = bytes as u64;
    assert_eq!(seen.first(), Some(&(0, bytes)));
    assert_eq!(seen.last(), Some(&(bytes, bytes)));
    assert!(seen.windows(2).all(|pair| pair[0].0 <= pair[1].0));
}

#[test]
fn inspect_says_what_is_inside() {
    let (container, _folder, _) = converted("demo");
    let about = container.inspect();
    assert_eq!(about.architecture.as_deref(), Some("DeepseekV4ForCausalLM"));
    assert_eq!((about.layers, about.experts), (6, 16));
    assert_eq!(
        (about.hidden, about.vocab, about.context),
        (Some(256), Some(2048), Some(4096))
    );
    assert!(about.tokenizer);
    assert_eq!(about.expert_layout, "fp4-packets");
    // By hand: (96 x 256 / 2 + 96 x 256 / 32) x 2 + (256 x 96 / 2 + 256 x 96 / 32).
    assert_eq!(about.record_bytes, 39_168);
    // Independent count over the checkpoint: scales and tables are not parameters.
    let parameters: u64 = read_safetensors(&given("demo").join("model.safetensors"))
        .values()
        .map(|t| {
            let entries = t.shape.iter().product::<usize>() as u64;
            match t.dtype.as_str() {
                "BF16" | "F32" => entries,
                "I8" => entries * 2,
                _ => 0,
            }
        })
        .sum();
    assert_eq!(about.parameters, parameters);
    assert_eq!(
        about.types.iter().map(|t| t.parameters).sum::<u64>(),
        parameters
    );
    let text = about.to_string();
    for part in [
        "DeepseekV4ForCausalLM",
        "16 in each layer, 2 used per token",
        "4,096 tokens",
        "fp4-packets",
        "MXFP4",
        "demo",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn any_valid_path_works() {
    let folder = Folder::written();
    let odd = folder
        .path
        .parent()
        .unwrap()
        .join("田中　ü é/Модели 'q\" $x/🙂");
    fs::create_dir_all(&odd).unwrap();
    let inside = odd.join("checkpoint");
    fs::rename(&folder.path, &inside).unwrap();
    let out = odd.join("модель 🙂.fst");
    convert(&inside, &out, &mut |_, _| {}).unwrap();
    Container::open(&out).unwrap();
}

#[cfg(unix)]
#[test]
fn a_name_that_is_not_utf8_works() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = Folder::written();
    let out = folder
        .path
        .parent()
        .unwrap()
        .join(std::ffi::OsStr::from_bytes(b"m\xff.fst"));
    convert(&folder.path, &out, &mut |_, _| {}).unwrap();
    Container::open(&out).unwrap();
}

#[cfg(unix)]
#[test]
fn a_folder_of_links_converts_and_a_link_as_target_stays_a_link() {
    use std::os::unix::fs::symlink;
    let blobs = Folder::smallest();
    blobs.write();
    let keep = tempfile::tempdir().unwrap();
    let linked = keep.path().join("snapshot");
    fs::create_dir(&linked).unwrap();
    for name in ["config.json", "model.safetensors"] {
        symlink(blobs.path.join(name), linked.join(name)).unwrap();
    }
    let real = keep.path().join("real.fst");
    fs::write(&real, b"FST\0 an older one").unwrap();
    let link = keep.path().join("link.fst");
    symlink(&real, &link).unwrap();
    convert(&linked, &link, &mut |_, _| {}).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    Container::open(&real).unwrap();
    Container::open(Path::new(&link)).unwrap();
}
