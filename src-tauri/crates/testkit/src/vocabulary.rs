//! A byte-level vocabulary small enough to know by heart: BOS 0, EOS 1, pad 2, the 256 bytes, words, and the control tokens at the end.
//!
//! There are no merges, so text is read a byte at a time; words exist for a model to write.

use serde_json::{Value, json};

const CONTROLS: [&str; 7] = [
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
    "<｜latest_reminder｜>",
    "<｜title｜>",
];

/// Tokens and their ids.
pub struct Vocabulary {
    words: Vec<Vec<u8>>,
}

impl Vocabulary {
    /// Bytes, control tokens, and these words of two bytes or more, each once.
    pub fn new(words: &[&[u8]]) -> Self {
        let mut kept: Vec<Vec<u8>> = Vec::new();
        for word in words {
            assert!(word.len() > 1, "single bytes are there already");
            if !kept.iter().any(|k| k == word) {
                kept.push(word.to_vec());
            }
        }
        Self { words: kept }
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        3 + 256 + self.words.len() + CONTROLS.len()
    }

    /// Never: the bytes are always there.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Beginning of a sequence.
    pub fn bos(&self) -> u32 {
        0
    }

    /// End of an answer.
    pub fn eos(&self) -> u32 {
        1
    }

    /// A token that writes these bytes.
    pub fn id(&self, text: impl AsRef<[u8]>) -> u32 {
        let text = text.as_ref();
        if let [byte] = text {
            return 3 + u32::from(*byte);
        }
        let word = self.words.iter().position(|w| w == text);
        (3 + 256 + word.expect("a word of this vocabulary")) as u32
    }

    /// A control token by its text.
    pub fn control(&self, text: &str) -> u32 {
        let place = CONTROLS.iter().position(|c| *c == text);
        (3 + 256 + self.words.len() + place.expect("a control token")) as u32
    }

    /// tokenizer.json.
    pub fn tokenizer(&self) -> Value {
        let written = |bytes: &[u8]| -> String { bytes.iter().map(|b| char_of(*b)).collect() };
        let mut vocab = serde_json::Map::new();
        let mut added = Vec::new();
        for (id, text) in [
            "<｜begin▁of▁sentence｜>",
            "<｜end▁of▁sentence｜>",
            "<｜▁pad▁｜>",
        ]
        .iter()
        .enumerate()
        {
            added.push((id as u32, *text));
        }
        for byte in 0..=255u8 {
            vocab.insert(written(&[byte]), json!(self.id([byte])));
        }
        for word in &self.words {
            vocab.insert(written(word), json!(self.id(word)));
        }
        for text in CONTROLS {
            added.push((self.control(text), text));
        }
        let added: Vec<Value> = added
            .into_iter()
            .map(|(id, text)| {
                json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
            })
            .collect();
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": vocab, "merges": []}
        })
    }
}

/// The character byte-level BPE writes a byte as.
fn char_of(byte: u8) -> char {
    let plain = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if plain(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !plain(*b)).count() as u32;
    char::from_u32(0x100 + before).unwrap()
}
