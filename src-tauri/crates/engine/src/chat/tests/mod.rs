//! What the chat format promises, checked with the tokenizer of DeepSeek V4. Data and their sources: `tests/data/README.md`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answers;
mod calls;
mod corpus;
mod cuts;
mod golden;
mod injection;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

use sha2::{Digest, Sha256};

use super::encode::Opening;
use super::tokenizer::{Mark, Piece};
use super::{AnswerParser, ChatTokenizer, Part, Tool};
use crate::model::Config;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(data(name)).unwrap())
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

fn v4_json() -> &'static [u8] {
    static JSON: OnceLock<Vec<u8>> = OnceLock::new();
    JSON.get_or_init(|| {
        let json = unpacked("deepseek-v4-tokenizer.json.gz");
        assert_eq!(
            sha256(&json),
            "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf"
        );
        json
    })
}

/// The tokenizer of DeepSeek V4.
fn v4() -> &'static ChatTokenizer {
    static V4: OnceLock<ChatTokenizer> = OnceLock::new();
    V4.get_or_init(|| {
        let demo = data("../../../app/demo/config.json");
        let mut config: serde_json::Value =
            serde_json::from_slice(&std::fs::read(demo).unwrap()).unwrap();
        config["vocab_size"] = 129_280.into();
        let config = Config::from_json(&config).unwrap();
        let json = v4_json();
        let begin = Instant::now();
        let tokenizer = ChatTokenizer::new(json, &config).unwrap();
        println!("the V4 tokenizer was read in {:?}", begin.elapsed());
        tokenizer
    })
}

/// All added tokens of the V4 tokenizer: id and text.
fn added_tokens() -> Vec<(u32, String)> {
    #[derive(serde::Deserialize)]
    struct Added {
        id: u32,
        content: String,
    }
    #[derive(serde::Deserialize)]
    struct Json {
        added_tokens: Vec<Added>,
    }
    let json: Json = serde_json::from_slice(v4_json()).unwrap();
    let added: Vec<_> = json
        .added_tokens
        .into_iter()
        .map(|a| (a.id, a.content))
        .collect();
    assert_eq!(added.len(), 1283);
    added
}

/// Text of ids, control tokens in angle brackets of their own.
fn text_of(ids: &[u32]) -> String {
    let mut bytes = Vec::new();
    for id in ids {
        match v4().piece(*id) {
            Piece::Bytes(b) => bytes.extend_from_slice(b),
            Piece::Mark(_) => bytes.extend(format!("⟦{id}⟧").bytes()),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// What a model writes: letters and, between `⟪` and `⟫`, tokens. `T` `<think>`, `/T` `</think>`, `D` the marker of calls, `E` the end,
/// `S` a token without meaning, and bytes in hexadecimal.
fn script(text: &str) -> Vec<Wrote> {
    let mut out = Vec::new();
    for part in text.split('⟪') {
        let (token, letters) = part.split_once('⟫').unwrap_or(("", part));
        out.push(match token {
            "" => Wrote::Bytes(Vec::new()),
            "T" => Wrote::Token(Mark::Think),
            "/T" => Wrote::Token(Mark::ThinkEnd),
            "D" => Wrote::Token(Mark::Dsml),
            "E" => Wrote::Token(Mark::End),
            "S" => Wrote::Token(Mark::Silent),
            hex => Wrote::Bytes(
                hex.as_bytes()
                    .chunks(2)
                    .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
                    .collect(),
            ),
        });
        out.push(Wrote::Bytes(letters.into()));
    }
    // Bytes next to bytes are one run, which can be cut anywhere.
    let mut joined: Vec<Wrote> = Vec::new();
    for wrote in out {
        match (joined.last_mut(), wrote) {
            (Some(Wrote::Bytes(before)), Wrote::Bytes(more)) => before.extend(more),
            (_, wrote) => joined.push(wrote),
        }
    }
    joined
}

#[derive(Clone, Debug)]
enum Wrote {
    Bytes(Vec<u8>),
    Token(Mark),
}

/// Reads a script, its bytes cut by `cut`, which gets a run of bytes and says where it is cut. The end is the model's if it wrote one.
fn read(
    mut parser: AnswerParser,
    script: &[Wrote],
    cut: &mut dyn FnMut(usize) -> usize,
) -> Vec<Part> {
    let mut parts = Vec::new();
    for wrote in script {
        match wrote {
            Wrote::Token(mark) => parser.push(Piece::Mark(*mark), &mut parts),
            Wrote::Bytes(bytes) => {
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(cut(rest.len()).clamp(1, rest.len()));
                    parser.push(Piece::Bytes(piece), &mut parts);
                    rest = after;
                }
            }
        }
    }
    parser.finish(false, &mut parts);
    assert!(parser.ended());
    parts
}

/// The parts of an answer, the same for every size of token.
fn parts(opening: Opening, tools: &[Tool], stops: &[&str], text: &str) -> Vec<Part> {
    let stops: Vec<String> = stops.iter().map(|s| (*s).to_owned()).collect();
    let script = script(text);
    let by = |size: usize| {
        read(
            AnswerParser::new(opening, tools, &stops),
            &script,
            &mut |_| size,
        )
    };
    let whole = by(usize::MAX);
    for size in 1..40 {
        assert_eq!(by(size), whole, "{text} in tokens of {size} bytes");
    }
    whole
}
