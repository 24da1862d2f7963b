//! Serves a small model as Hugging Face would, for tests that drive the app from outside and for trying downloads by hand:
//! `cargo run -p fastar-testkit --example hub -- REPOSITORY ANSWER`, and `HF_ENDPOINT` at the address it prints.
//!
//! Whatever the model is asked, it answers ANSWER. Lines on the input change how it serves, until the input closes:
//!
//! ```text
//! rate BYTES     each connection gets so many bytes a second; without BYTES, as many as it takes
//! allow BYTES    after so many bytes in all nothing more comes; without BYTES, no end
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::io::Write;

use fastar_testkit::hub::HubServer;
use fastar_testkit::{Chain, Checkpoint};

/// Words that nobody writes. They make the matrices wide: the model has some 10 MB.
const FILLERS: usize = 700;
const CONTEXT: usize = 4096;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [repository, answer] = arguments.as_slice() else {
        eprintln!("usage: hub REPOSITORY ANSWER");
        std::process::exit(2);
    };
    let files = files(&model(answer));
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(n, f)| (n.as_str(), f.clone())).collect();
    let hub = HubServer::start(repository, "", &files);
    println!("{}", hub.endpoint());
    std::io::stdout().flush().unwrap();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (order, bytes) = line.split_once(' ').unwrap_or((&line, ""));
        let bytes = (!bytes.is_empty()).then(|| bytes.parse().expect("a number of bytes"));
        match order {
            "rate" => hub.set_rate(bytes),
            "allow" => hub.allow(bytes),
            _ => panic!("no order {order:?}"),
        }
    }
}

/// A model that answers with these words, each of which may occur once.
fn model(answer: &str) -> Checkpoint {
    let words: Vec<&[u8]> = answer.split_inclusive(' ').map(str::as_bytes).collect();
    let fillers: Vec<String> = (0..FILLERS).map(|n| format!("\u{1}{n}")).collect();
    let all: Vec<&[u8]> = words
        .iter()
        .copied()
        .chain(fillers.iter().map(String::as_bytes))
        .collect();
    let mut chain = Chain::new(&all);
    let mut tokens = vec![chain.vocabulary.control("</think>")];
    tokens.extend(words.iter().map(|word| chain.vocabulary.id(word)));
    tokens.push(chain.vocabulary.eos());
    chain.follow(&tokens);
    chain.checkpoint(CONTEXT)
}

/// The files of its repository, cut into shards as DeepSeek cuts them: embedding, layers, head.
fn files(model: &Checkpoint) -> Vec<(String, Vec<u8>)> {
    let mut shards: BTreeMap<String, Checkpoint> = BTreeMap::new();
    for (name, tensor) in &model.tensors {
        let part = match name.split('.').collect::<Vec<_>>()[..] {
            ["layers", layer, ..] => format!("1 layer {layer}"),
            ["embed", ..] => "0 embedding".to_owned(),
            _ => "2 head".to_owned(),
        };
        let shard = shards.entry(part).or_insert_with(|| Checkpoint {
            config: model.config.clone(),
            tokenizer: None,
            tensors: BTreeMap::new(),
        });
        shard.tensors.insert(name.clone(), tensor.clone());
    }
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let mut files = Vec::new();
    let mut map = serde_json::Map::new();
    for (number, shard) in shards.values().enumerate() {
        let name = format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len());
        shard.save(folder.path());
        files.push((name.clone(), read("model.safetensors")));
        map.extend(
            shard
                .tensors
                .keys()
                .map(|tensor| (tensor.clone(), name.clone().into())),
        );
    }
    files.push(("config.json".to_owned(), read("config.json")));
    let tokenizer = model.tokenizer.as_ref().unwrap();
    files.push(("tokenizer.json".to_owned(), tokenizer.to_string().into()));
    let index = serde_json::json!({ "weight_map": map });
    files.push((
        "model.safetensors.index.json".to_owned(),
        index.to_string().into(),
    ));
    files
}
