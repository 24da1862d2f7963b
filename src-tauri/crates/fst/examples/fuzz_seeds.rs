//! Writes small files of both versions for the fuzz targets to begin with: `cargo run -p fastar-fst --example fuzz_seeds -- fuzz/corpus`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::Path;

use fastar_testkit::{Image, Original, smallest_checkpoint};

const PAGE: usize = 4096;

fn main() {
    let folder = std::env::args().nth(1).expect("a folder");
    let folder = Path::new(&folder);
    let save = |target: &str, name: &str, bytes: &[u8]| {
        let folder = folder.join(target);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), bytes).unwrap();
        println!("{target}/{name}: {} bytes", bytes.len());
    };
    let container = |hashed| fs::read(smallest_checkpoint(1, hashed).convert().path()).unwrap();
    save("any_bytes", "container", &container(true));
    save("sealed_index", "hashed", &container(true));
    save("sealed_index", "scored", &container(false));

    let set = Original::of(&smallest_checkpoint(1, true));
    let [hc, norm] = [&set.hc, &set.norm].map(|image| image.as_ref().map(Image::bytes));
    let tokenizer =
        br#"{"added_tokens": [], "model": {"vocab": {"a": 0, "b": 1, "c": 2, "d": 3}}}"#;
    // A file that has everything itself.
    let alone = Original::of(&smallest_checkpoint(1, false));
    let mut main = alone.main;
    main.tensors
        .retain(|tensor| !matches!(tensor.key.0, 1 | 3 | 4 | 14 | 15 | 22));
    main.tensors.extend(
        [alone.hc, alone.norm]
            .into_iter()
            .flatten()
            .flat_map(|image| image.tensors),
    );
    for (name, files) in [
        (
            "set",
            [Some(set.main.bytes()), hc, norm, set.tid2eid.clone(), None],
        ),
        (
            "alone",
            [
                Some(main.bytes()),
                None,
                None,
                None,
                Some(tokenizer.to_vec()),
            ],
        ),
        ("draft", [Some(set.draft().bytes()), None, None, None, None]),
    ] {
        save(
            "version_2",
            name,
            &files.iter().flat_map(packed).collect::<Vec<u8>>(),
        );
    }
}

/// A file as its pages, each a length of 16 bits and the bytes before its final zeros, and the length of the last one.
fn packed(file: &Option<Vec<u8>>) -> Vec<u8> {
    let pages: Vec<&[u8]> = file.iter().flat_map(|file| file.chunks(PAGE)).collect();
    let mut out = (pages.len() as u16).to_le_bytes().to_vec();
    for page in &pages {
        let zeros = page.iter().rev().take_while(|b| **b == 0).count();
        let kept = &page[..page.len() - zeros];
        out.extend((kept.len() as u16).to_le_bytes());
        out.extend(kept);
    }
    if let Some(last) = pages.last() {
        out.extend((last.len() as u16).to_le_bytes());
    }
    out
}
