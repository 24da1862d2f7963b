//! The files of a model of version 2, or of a draft, packed into one input: reading, describing, verifying and upgrading them.
#![no_main]

mod read;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fastar_fst::{Container, draft, upgrade};

const PAGE: usize = 4096;
const MOST_BYTES: usize = 1 << 22;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let model = at("model.fst");
    let mut rest = input;
    for name in [
        "model.fst",
        "model.fst.hc",
        "model.fst.norm",
        "model.fst.tid2eid",
        "tokenizer.json",
    ] {
        let Some(bytes) = unpacked(&mut rest) else {
            break;
        };
        if !bytes.is_empty() {
            std::fs::write(at(name), bytes).expect("room for it");
        }
    }
    if !model.exists() {
        return;
    }
    read::read_file(&model);
    let opened = Container::open(&model).ok();
    if let Ok(Some(draft)) = draft(&model) {
        std::hint::black_box(draft.describe());
        assert!(opened.is_none(), "a draft was opened as a model");
    }
    if opened.is_some_and(|container| container.version() == 2) {
        upgraded(&model, &at("upgraded.fst"));
    }
});

/// What opens can be upgraded unless a record of it is missing, into another file and in place, and then is the same model.
fn upgraded(model: &Path, out: &Path) {
    let go_on = AtomicBool::new(false);
    let before = std::fs::read(model).expect("it was read before");
    let beside = upgrade(model, Some(out), &go_on, &mut |_, _| {});
    assert_eq!(beside.is_ok(), out.exists(), "{beside:?}");
    if beside.is_ok() {
        let old = Container::open(model).expect("it was opened before");
        same(&old, &Container::open(out).expect("an upgraded file opens"));
        read::read_file(out);
    }
    match upgrade(model, None, &go_on, &mut |_, _| {}) {
        Ok(_) => {
            let new = Container::open(model).expect("a file upgraded in place opens");
            assert_eq!(new.version(), 3);
            same(
                &Container::open(out).expect("both ways succeed or none"),
                &new,
            );
            read::read_file(model);
        }
        Err(error) => {
            // Blocks may lie too far apart for it.
            let after = std::fs::read(model).expect("it was read before");
            assert!(
                after == before,
                "a refused upgrade changed the file: {error}"
            );
        }
    }
}

fn same(old: &Container, new: &Container) {
    assert_eq!(old.config(), new.config());
    assert_eq!(old.tensors().count(), new.tensors().count());
    for (name, tensor) in old.tensors() {
        let found = new.tensor(name).expect("a tensor was lost");
        let [a, b] = [&found, &tensor].map(|t| (t.dtype, t.shape, t.bytes));
        assert!(a == b, "{name}");
        let [a, b] = [old, new].map(|c| c.read(name).expect("a tensor that was there"));
        assert!(a == b, "{name}");
    }
    assert_eq!(old.expert_counts(), new.expert_counts());
}

/// The next file of the input: its pages, each a length and the bytes before its final zeros, and the length of the last one.
fn unpacked(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let pages = number(rest)?;
    let mut file = Vec::new();
    for page in 1..=pages {
        let length = number(rest)?.min(PAGE);
        let (bytes, left) = rest.split_at_checked(length)?;
        *rest = left;
        file.extend_from_slice(bytes);
        file.resize(PAGE * page, 0);
        if file.len() > MOST_BYTES {
            return None;
        }
    }
    if pages > 0 {
        file.truncate(PAGE * (pages - 1) + number(rest)?.min(PAGE));
    }
    Some(file)
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    let (number, left) = rest.split_first_chunk::<2>()?;
    *rest = left;
    Some(usize::from(u16::from_le_bytes(*number)))
}
