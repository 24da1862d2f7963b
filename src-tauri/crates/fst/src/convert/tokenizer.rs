//! Whether a tokenizer.json belongs to the model. How it splits text is the engine's business.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result, json_problem, shown};

/// DeepSeek's begin and end of sentence, and the config fields with their ids.
const SPECIAL: [(&str, &str); 2] = [
    ("<｜begin▁of▁sentence｜>", "bos_token_id"),
    ("<｜end▁of▁sentence｜>", "eos_token_id"),
];

#[derive(Deserialize)]
struct Tokenizer {
    #[serde(default)]
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Added>,
}

#[derive(Default, Deserialize)]
struct Model {
    #[serde(default)]
    vocab: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Added {
    #[serde(default)]
    content: String,
    #[serde(default)]
    id: Value,
}

/// Refuses a tokenizer with ids beyond the model's vocabulary or with other ids for begin and end than config.json has.
pub(crate) fn check(text: &[u8], path: &Path, vocab: usize, config: &Value) -> Result<()> {
    let fail = |problem: String| Error::ForeignTokenizer {
        path: path.to_owned(),
        problem,
    };
    // Only what is looked at is kept: the merges alone would take many times the file's size.
    let tokenizer: Tokenizer = serde_json::from_slice(text).map_err(|e| {
        let problem = json_problem(&e);
        fail(if e.is_data() {
            format!("it is not a tokenizer: it {problem}.")
        } else {
            format!("it {problem}.")
        })
    })?;
    let words = &tokenizer.model.vocab;
    if words.is_empty() {
        return Err(fail("it has no vocabulary (model.vocab).".into()));
    }
    let added: Vec<(&str, &Value)> = tokenizer
        .added_tokens
        .iter()
        .map(|token| (token.content.as_str(), &token.id))
        .collect();
    let mut highest = 0;
    for (word, id) in words
        .iter()
        .map(|(word, id)| (word.as_str(), id))
        .chain(added.iter().copied())
    {
        let id = id
            .as_u64()
            .ok_or_else(|| fail(format!("token {} has no valid id.", shown(word))))?;
        highest = highest.max(id);
    }
    if highest >= vocab as u64 {
        return Err(fail(format!(
            "its highest token id is {highest} and the model's vocab_size is {vocab}."
        )));
    }
    for (word, field) in SPECIAL {
        let Some(expected) = config[field].as_u64() else {
            continue;
        };
        let found = added
            .iter()
            .find(|(content, _)| *content == word)
            .map(|(_, id)| *id)
            .or_else(|| words.get(word))
            .and_then(Value::as_u64);
        match found {
            Some(id) if id == expected => {}
            Some(id) => {
                return Err(fail(format!(
                    "its token {word} has id {id} and config.json says {field} {expected}."
                )));
            }
            None => {
                return Err(fail(format!(
                    "it has no token {word}, which config.json gives id {expected} ({field})."
                )));
            }
        }
    }
    Ok(())
}
