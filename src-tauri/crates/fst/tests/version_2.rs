//! The published files of version 2 open as they are, and what is wrong with a set is one sentence that names the file and the remedy.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};

use fastar_fst::{Container, draft, inspect};
use fastar_testkit::{Checkpoint, Original, WHOLE, original_checkpoint, smallest_checkpoint};

fn whole() -> Original {
    Original::of(&original_checkpoint(1, 4))
}

/// Saves a set and says why it is refused.
fn refusal(set: &Original) -> String {
    let folder = tempfile::tempdir().unwrap();
    refused(&set.save(folder.path()))
}

fn refused(path: &Path) -> String {
    let error = match Container::open(path) {
        Ok(_) => panic!("a bad set was opened"),
        Err(error) => error.to_string(),
    };
    assert!(!error.contains('\n'), "more than one line: {error}");
    error
}

fn assert_says(error: &str, words: &[&str]) {
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

/// Opens the set and compares every tensor and expert with the checkpoint it was made of.
fn opened_as(set: &Original, checkpoint: &Checkpoint, folder: &Path) -> Container {
    let container = Container::open(&set.save(folder)).unwrap();
    let mut seen = 0;
    for (name, tensor) in container.tensors() {
        let (_, shape, data) = &checkpoint.tensors[name];
        assert_eq!(tensor.shape, shape, "{name}");
        let expected: Vec<u8> = if name.ends_with("tid2eid") {
            data.chunks(8).flat_map(|b| b[..4].to_vec()).collect()
        } else if name.ends_with("_fn") {
            data.chunks(4).flat_map(|b| b[2..].to_vec()).collect()
        } else {
            data.clone()
        };
        assert_eq!(container.read(name).unwrap(), expected, "{name}");
        seen += 1;
    }
    let dense = checkpoint
        .tensors
        .keys()
        .filter(|name| !name.contains(".experts.") && !name.contains(".indexer."))
        .count();
    assert_eq!(seen, dense);
    let (layers, experts) = container.expert_counts();
    assert_eq!(layers * experts, set.main.blocks.len());
    for (number, block) in set.main.blocks.iter().enumerate() {
        let record = container.expert(number / experts, number % experts);
        assert_eq!(record.unwrap(), *block);
    }
    container
}

#[test]
fn the_smallest_model_opens_with_a_table_and_with_a_bias() {
    for hashed in [true, false] {
        let checkpoint = smallest_checkpoint(1, hashed);
        let set = Original::of(&checkpoint);
        let folder = tempfile::tempdir().unwrap();
        let container = opened_as(&set, &checkpoint, folder.path());
        let table = container.tensor("layers.0.ffn.gate.tid2eid");
        assert_eq!(table.is_some(), hashed);
        let bias = container.tensor("layers.0.ffn.gate.bias");
        assert_eq!(bias.is_some(), !hashed);
        assert_eq!(container.config()["hc_mult"], 1);
    }
}

#[test]
fn every_tensor_and_expert_has_the_checkpoint_s_bytes() {
    let checkpoint = original_checkpoint(1, 4);
    let set = Original::of(&checkpoint);
    let folder = tempfile::tempdir().unwrap();
    let container = opened_as(&set, &checkpoint, folder.path());
    assert_eq!(container.expert_counts(), (4, 8));
    // What the header and the shapes give; 64, 512 and 128 of the header of the real file would be wrong here.
    for (field, value) in [
        ("num_attention_heads", 4),
        ("head_dim", 80),
        ("moe_intermediate_size", 32),
        ("o_groups", 2),
        ("o_lora_rank", 32),
        ("num_hash_layers", 1),
        ("hc_mult", 4),
        ("index_topk", 512),
    ] {
        assert_eq!(container.config()[field], value, "{field}");
    }
    assert_eq!(
        container.config()["compress_ratios"],
        checkpoint.config["compress_ratios"]
    );
    assert_eq!(container.config()["rms_norm_eps"], 1e-6);
    assert_eq!(container.exact_positions(), Some(2048));
    let about = inspect(&folder.path().join("model.fst")).unwrap();
    assert_eq!((about.version, about.context), (2, Some(2048)));
    assert_says(&about.to_string(), &["exact for 2,048 tokens"]);
}

#[test]
fn the_order_of_the_directory_means_nothing() {
    let mut set = whole();
    let folder = tempfile::tempdir().unwrap();
    let first = Container::open(&set.save(folder.path())).unwrap();
    set.main.tensors.reverse();
    set.hc.as_mut().unwrap().tensors.rotate_left(5);
    let other = tempfile::tempdir().unwrap();
    let second = Container::open(&set.save(other.path())).unwrap();
    for (name, _) in first.tensors() {
        assert_eq!(
            first.read(name).unwrap(),
            second.read(name).unwrap(),
            "{name}"
        );
    }
    assert_ne!(first.identity(), second.identity());
}

#[test]
fn a_missing_empty_swapped_or_foreign_sidecar_is_named() {
    let mut cases = Vec::new();
    let mut case = |says: &'static [&'static str], change: &dyn Fn(&mut Original)| {
        let mut set = whole();
        change(&mut set);
        cases.push((says, refusal(&set)));
    };
    case(&["model.fst.hc is missing", "Download it"], &|s| {
        s.hc = None
    });
    case(
        &["far too small (0.02", "model.fst.norm", "is missing"],
        &|s| s.norm = None,
    );
    case(&["model.fst.tid2eid is missing"], &|s| s.tid2eid = None);
    case(&["model.fst.hc does not hold", "hyper-connections"], &|s| {
        std::mem::swap(&mut s.hc, &mut s.norm);
    });
    let shorter = Original::of(&original_checkpoint(2, 3));
    let foreign = Original::of(&original_checkpoint(2, 4));
    case(&["model.fst.hc", "for 3 layers", "has 4"], &|s| {
        s.hc = shorter.hc.clone();
    });
    case(&["model.fst.norm belongs to another model"], &|s| {
        s.norm = foreign.norm.clone();
    });
    // Where the main file has hyper-connections of its own they tell.
    case(&["model.fst.hc belongs to another model"], &|s| {
        s.main.tensors.extend(s.hc.clone().unwrap().tensors);
        s.hc = foreign.hc.clone();
    });
    case(&["model.fst.tid2eid", "incomplete or belongs"], &|s| {
        s.tid2eid.as_mut().unwrap().pop();
    });
    case(&["model.fst.tid2eid", "expert 8, and there are 8"], &|s| {
        s.tid2eid.as_mut().unwrap()[8] = 8;
    });
    case(&["model.fst.tid2eid is empty"], &|s| {
        s.tid2eid = Some(Vec::new())
    });
    case(&["model.fst.norm", "lacks some of"], &|s| {
        s.norm
            .as_mut()
            .unwrap()
            .tensors
            .retain(|t| t.key != (4, 2, 0));
    });
    for (says, error) in &cases {
        assert_says(error, says);
    }
    for name in ["model.fst.hc", "model.fst.norm"] {
        for content in [&b""[..], &[0; 8192], b"<html>not found"] {
            let folder = tempfile::tempdir().unwrap();
            let path = whole().save(folder.path());
            fs::write(folder.path().join(name), content).unwrap();
            assert_says(&refused(&path), &[name]);
        }
    }
}

#[test]
fn a_main_file_with_its_own_right_tensors_needs_no_sidecar_for_them() {
    let mut set = whole();
    let hc = set.hc.take().unwrap();
    let norm = set.norm.take().unwrap();
    set.main
        .tensors
        .retain(|t| !norm.tensors.iter().any(|n| n.key == t.key));
    set.main.tensors.extend(hc.tensors);
    set.main.tensors.extend(norm.tensors);
    let folder = tempfile::tempdir().unwrap();
    Container::open(&set.save(folder.path())).unwrap();
}

#[test]
fn damage_that_the_original_did_not_notice_is_explained() {
    let mut set = whole();
    set.lose_large_weights();
    assert_says(
        &refusal(&set),
        &["lost its largest weights", "0.5 %", "fastar convert"],
    );

    let mut set = whole();
    set.norm.as_mut().unwrap().tensor(3, 1).data.fill(0);
    set.norm.as_mut().unwrap().tensor(3, 0).data.fill(0);
    set.norm.as_mut().unwrap().tensor(3, 2).data.fill(0);
    set.norm.as_mut().unwrap().tensor(3, 3).data.fill(0);
    assert_says(&refusal(&set), &["model.fst.norm is wrong", "0.000"]);

    let mut set = whole();
    set.main.tensors.retain(|t| !(32..=35).contains(&t.key.0));
    assert_says(&refusal(&set), &["compressors", "only the first 3 tokens"]);

    let mut set = whole();
    set.main.tensors.retain(|t| t.key != (9, 2, 0));
    assert_says(&refusal(&set), &["lacks tensor layers.2.ffn.gate.weight"]);

    let mut set = whole();
    set.main.blocks[13].fill(0);
    let folder = tempfile::tempdir().unwrap();
    let container = Container::open(&set.save(folder.path())).unwrap();
    container.expert(1, 4).unwrap();
    let error = container.expert(1, 5).unwrap_err().to_string();
    assert_says(&error, &["expert 5 of layer 1", "Download"]);
    container.verify(&mut |_, _| {}).unwrap_err();
}

#[test]
fn a_file_cut_anywhere_is_refused_with_what_it_should_have() {
    let folder = tempfile::tempdir().unwrap();
    let path = whole().save(folder.path());
    let bytes = fs::read(&path).unwrap();
    for cut in [0, 10, 64, 128, 4096, 5000, bytes.len() / 3, bytes.len() - 1] {
        fs::write(&path, &bytes[..cut]).unwrap();
        let error = refused(&path);
        assert_says(&error, &["model.fst"]);
        if cut > 8192 {
            assert_says(&error, &[&format!("it has {cut} bytes")]);
        }
    }
    let mut unfinished = bytes.clone();
    unfinished[..4096].fill(0);
    fs::write(&path, unfinished).unwrap();
    assert_says(&refused(&path), &["never finished"]);
}

#[test]
fn every_number_of_header_and_directory_may_be_hostile() {
    let folder = tempfile::tempdir().unwrap();
    let path = whole().save(folder.path());
    let bytes = fs::read(&path).unwrap();
    let with = |at: usize, value: &[u8]| {
        let mut changed = bytes.clone();
        changed[at..at + value.len()].copy_from_slice(value);
        fs::write(&path, changed).unwrap();
        refused(&path)
    };
    for (at, value) in [
        (12, 0u32),
        (12, 1 << 31),
        (12, 5),
        (16, 0),
        (16, 1 << 31),
        (16, 9),
    ] {
        with(at, &value.to_le_bytes());
    }
    for at in [48, 64, 72, 80, 88, 96, 104] {
        for value in [0u64, 1, 4097, 1 << 31, 1 << 48, u64::MAX - 4095, u64::MAX] {
            with(at, &value.to_le_bytes());
        }
    }
    let entry = 4096 + 64 * 3;
    for (at, value) in [
        (16, 1u64 << 40),
        (16, 0),
        (24, u64::MAX),
        (32, 2),
        (40, 4096),
        (40, 12_345),
        (40, u64::MAX - 4095),
        (48, 0),
        (48, u64::MAX),
    ] {
        with(entry + at, &value.to_le_bytes());
    }
    for (at, value) in [(8, 0u16), (8, 4), (8, 3), (10, 0), (10, 4)] {
        with(entry + at, &value.to_le_bytes());
    }
}

#[test]
fn a_draft_file_is_recognised_and_compared_with_its_model() {
    let set = whole();
    let folder = tempfile::tempdir().unwrap();
    let main = set.save(folder.path());
    let path = folder.path().join("dspark_draft.fst");
    fs::write(&path, set.draft().bytes()).unwrap();
    assert_says(
        &refused(&path),
        &[
            "dspark_draft.fst is a draft model (vocabulary 266)",
            "choose the main .fst file",
        ],
    );
    let about = draft(&path).unwrap().unwrap();
    assert_eq!(
        (
            about.stages,
            about.block_size,
            about.markov_rank,
            about.noise_token
        ),
        (3, 5, 256, 128_799)
    );
    assert_eq!((about.vocab, about.hidden), (266, 64));
    let container = Container::open(&main).unwrap();
    about.check(&container).unwrap();
    let mut other = set.draft();
    other.tensor(0, WHOLE).shape = vec![133, 128];
    fs::write(&path, other.bytes()).unwrap();
    let error = draft(&path)
        .unwrap()
        .unwrap()
        .check(&container)
        .unwrap_err();
    assert_says(
        &error.to_string(),
        &["it has 133 tokens", "the model has 266", "Go on without it"],
    );
    assert_eq!(draft(&main).unwrap(), None);
    draft(&folder.path().join("no.fst")).unwrap_err();
}

#[test]
fn a_sidecar_is_no_model() {
    let folder = tempfile::tempdir().unwrap();
    whole().save(folder.path());
    let error = refused(&folder.path().join("model.fst.hc"));
    assert_says(&error, &["is a sidecar", "choose the main file"]);
}

#[cfg(unix)]
#[test]
fn sidecars_lie_beside_the_link_or_beside_what_it_leads_to() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there");
    let main = whole().save(&there);
    let here = folder.path().join("here ü 🙂 'q\" $x");
    fs::create_dir(&here).unwrap();
    let link = here.join("linked.fst");
    symlink(&main, &link).unwrap();
    // Beside the target, under the target's name.
    let container = Container::open(&link).unwrap();
    assert!(container.tokenizer_bytes().is_some());
    // As in a cache: the files have other names and only the links belong together.
    let blobs = folder.path().join("blobs");
    fs::create_dir(&blobs).unwrap();
    let snapshot = folder.path().join("snapshot");
    fs::create_dir(&snapshot).unwrap();
    for (i, name) in [
        "model.fst",
        "model.fst.hc",
        "model.fst.norm",
        "model.fst.tid2eid",
        "tokenizer.json",
    ]
    .iter()
    .enumerate()
    {
        let blob: PathBuf = blobs.join(format!("{i}"));
        fs::rename(there.join(name), &blob).unwrap();
        symlink(&blob, snapshot.join(name)).unwrap();
    }
    let cached = Container::open(&snapshot.join("model.fst")).unwrap();
    assert_eq!(cached.identity(), container.identity());
    // The name that was given comes first.
    fs::remove_file(snapshot.join("model.fst.hc")).unwrap();
    assert_says(&refused(&snapshot.join("model.fst")), &["model.fst.hc"]);
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_is_good_enough_to_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = whole().save(&folder.path().join("model"));
    let names = |at: &Path| fs::read_dir(at).unwrap().count();
    let before = names(path.parent().unwrap());
    let rights = |mode| {
        fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(mode)).unwrap();
    };
    rights(0o555);
    let opened = Container::open(&path);
    rights(0o755);
    opened.unwrap().verify(&mut |_, _| {}).unwrap();
    assert_eq!(names(path.parent().unwrap()), before);
}
