//! The model's tokenizer: text to ids for untrusted text, and ids to bytes.
//!
//! Built from the tokenizer.json in the container by the `tokenizers` crate, with the list of added tokens emptied: the switch
//! that library offers protects only tokens flagged special, and `<User>` or `</think>` are not. Ordinary text keeps its ids.

use std::collections::{HashMap, HashSet};

use tokenizers::Tokenizer;

use super::protocol;
use crate::model::Config;
use crate::{Error, Result};

/// Ids of the control tokens every chat needs.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub bos: u32,
    pub eos: u32,
    pub user: u32,
    pub assistant: u32,
    pub think: u32,
    pub think_end: u32,
}

/// What a token is in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Bytes of text, perhaps not whole characters.
    Bytes(&'a [u8]),
    /// A control token.
    Mark(Mark),
}

/// Control tokens, by what they do in an answer. None of them is text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// `<think>`
    Think,
    /// `</think>`
    ThinkEnd,
    /// `｜DSML｜`
    Dsml,
    /// The model's turn is over: the end token, or one that begins somebody else's turn.
    End,
    /// Any other.
    Silent,
}

/// Tokenizer of a chat model.
pub(crate) struct ChatTokenizer {
    plain: Tokenizer,
    /// Bytes of each ordinary token; none for control tokens and unused ids.
    bytes: Vec<Option<Box<[u8]>>>,
    added: HashMap<String, u32>,
    ends: Vec<u32>,
    dsml: Option<u32>,
    pub control: Control,
}

fn foreign(why: impl std::fmt::Display) -> Error {
    Error::Tokenizer(format!(
        "The tokenizer in the model file does not belong to a DeepSeek V4 model: {why}. Convert the checkpoint again with its own tokenizer.json."
    ))
}

impl ChatTokenizer {
    /// Reads tokenizer.json and checks that it fits `config`.
    pub fn new(json: &[u8], config: &Config) -> Result<Self> {
        let mut json: serde_json::Value = serde_json::from_slice(json)
            .map_err(|e| foreign(format!("it {}", fastar_fst::json_problem(&e))))?;
        let added = added_tokens(&json)?;
        if !is_byte_level(&json) {
            return Err(foreign("it is not a byte-level one"));
        }
        check_parts(&json)?;
        let mut bytes = vec![None; config.vocab_size];
        let decode = byte_of_char();
        let vocab = json
            .pointer("/model/vocab")
            .and_then(|v| v.as_object())
            .ok_or_else(|| foreign("it has no vocabulary"))?;
        for (text, id) in vocab {
            let id = id.as_u64().unwrap_or(u64::MAX);
            let slot = usize::try_from(id)
                .ok()
                .and_then(|id| bytes.get_mut(id))
                .ok_or_else(|| {
                    foreign(format!(
                        "token id {id} is outside the vocabulary of {}",
                        config.vocab_size
                    ))
                })?;
            // Control tokens may stand in the vocabulary too; their characters are then no bytes.
            *slot = text.chars().map(|c| decode.get(&c).copied()).collect();
        }
        for id in added.values() {
            match bytes.get_mut(*id as usize) {
                Some(slot) => *slot = None,
                None => {
                    return Err(foreign(format!(
                        "token id {id} is outside the vocabulary of {}",
                        config.vocab_size
                    )));
                }
            }
        }
        let find = |text: &str| {
            added
                .get(text)
                .copied()
                .ok_or_else(|| foreign(format!("it has no token {text}")))
        };
        let control = Control {
            bos: config.bos_token_id,
            eos: config.eos_token_id,
            user: find(protocol::USER)?,
            assistant: find(protocol::ASSISTANT)?,
            think: find(protocol::THINK)?,
            think_end: find(protocol::THINK_END)?,
        };
        for (text, id) in [(protocol::BOS, control.bos), (protocol::EOS, control.eos)] {
            let found = find(text)?;
            if found != id {
                return Err(foreign(format!(
                    "{text} has id {found} there and {id} in the model's config"
                )));
            }
        }
        json["added_tokens"] = serde_json::Value::Array(Vec::new());
        // Not used here: prompts have no further frame, and bytes come from the table above.
        json["post_processor"] = serde_json::Value::Null;
        json["decoder"] = serde_json::Value::Null;
        json["truncation"] = serde_json::Value::Null;
        json["padding"] = serde_json::Value::Null;
        let plain = serde_json::from_value(json).map_err(foreign)?;
        let mut ends = vec![control.eos, control.bos, control.user, control.assistant];
        ends.extend(
            protocol::OTHER_ENDS
                .iter()
                .filter_map(|text| added.get(*text)),
        );
        Ok(Self {
            plain,
            bytes,
            dsml: added.get(protocol::DSML).copied(),
            added,
            ends,
            control,
        })
    }

    /// The id of a control token that not every model has.
    pub fn control_named(&self, text: &str) -> Result<u32> {
        self.added.get(text).copied().ok_or_else(|| {
            Error::Tokenizer(format!(
                "This model has no token {text}, which the conversation needs. Use a model of the DeepSeek V4 family."
            ))
        })
    }

    /// Appends the ids of untrusted text; no control token can come of it.
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let encoding = self
            .plain
            .encode_fast(text, false)
            .map_err(|e| Error::Tokenizer(format!("The text could not be tokenised: {e}.")))?;
        // A vocabulary made to break out of the text would show here.
        match encoding
            .get_ids()
            .iter()
            .find(|id| self.bytes(**id).is_none())
        {
            Some(id) => Err(foreign(format!("text became its control token {id}"))),
            None => {
                ids.extend_from_slice(encoding.get_ids());
                Ok(())
            }
        }
    }

    /// What a token of an answer is.
    pub fn piece(&self, id: u32) -> Piece<'_> {
        if let Some(bytes) = self.bytes(id) {
            return Piece::Bytes(bytes);
        }
        Piece::Mark(match id {
            id if self.ends.contains(&id) => Mark::End,
            id if id == self.control.think => Mark::Think,
            id if id == self.control.think_end => Mark::ThinkEnd,
            id if Some(id) == self.dsml => Mark::Dsml,
            _ => Mark::Silent,
        })
    }

    /// Bytes of a token; none for control tokens.
    fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id as usize)?.as_deref()
    }
}

fn added_tokens(json: &serde_json::Value) -> Result<HashMap<String, u32>> {
    let list = json.get("added_tokens").and_then(|a| a.as_array());
    let mut found = HashMap::new();
    let mut ids = HashSet::new();
    for token in list.into_iter().flatten() {
        let content = token.get("content").and_then(|c| c.as_str());
        let id = token.get("id").and_then(|i| i.as_u64());
        let (Some(content), Some(id)) = (content, id.and_then(|i| u32::try_from(i).ok())) else {
            return Err(foreign("an added token has no content or id"));
        };
        if !ids.insert(id) || found.insert(content.to_owned(), id).is_some() {
            return Err(foreign(format!("its added token {id} is there twice")));
        }
    }
    Ok(found)
}

/// V4's tokenizer is byte-level BPE behind regular expressions and nothing else. Other parts would change the ids, and what is read from a
/// file is not handed to code that no tokenizer of ours needs.
fn check_parts(json: &serde_json::Value) -> Result<()> {
    use serde_json::Value;
    let kind = |part: &Value| part.get("type").and_then(Value::as_str).map(str::to_owned);
    let list = |part: Option<&Value>, name: &str| -> Vec<Value> {
        match part {
            None | Some(Value::Null) => Vec::new(),
            Some(part) if kind(part).as_deref() == Some("Sequence") => part
                .get(name)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            Some(part) => vec![part.clone()],
        }
    };
    if let Some(part) = list(json.get("normalizer"), "normalizers").first() {
        let kind = kind(part).unwrap_or_default();
        return Err(foreign(format!("it has a normalizer ({kind})")));
    }
    for part in list(json.get("pre_tokenizer"), "pretokenizers") {
        let kind = kind(&part).unwrap_or_default();
        if kind != "Split" && kind != "ByteLevel" {
            return Err(foreign(format!("it has a pre-tokenizer of kind {kind:?}")));
        }
    }
    let model = json.get("model").unwrap_or(&Value::Null);
    if kind(model).is_some_and(|kind| kind != "BPE") {
        return Err(foreign("its model is not BPE"));
    }
    let dropout = model.get("dropout").and_then(Value::as_f64);
    if dropout.is_some_and(|dropout| dropout != 0.0) {
        return Err(foreign("it leaves out merges at random (dropout)"));
    }
    Ok(())
}

/// Whether the decoder is byte-level, alone or in a sequence.
fn is_byte_level(json: &serde_json::Value) -> bool {
    let kind = |d: &serde_json::Value| d.get("type").and_then(|t| t.as_str()) == Some("ByteLevel");
    json.get("decoder").is_some_and(|decoder| {
        kind(decoder)
            || decoder
                .get("decoders")
                .and_then(|d| d.as_array())
                .is_some_and(|all| all.iter().any(kind))
    })
}

/// The characters byte-level BPE writes bytes as: printable Latin-1 stands for itself, the other bytes for U+0100 and up, in order.
fn byte_of_char() -> HashMap<char, u8> {
    let mut next = 0x100u32;
    (0..=255u8)
        .filter_map(|byte| {
            let code = match byte {
                b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => u32::from(byte),
                _ => {
                    next += 1;
                    next - 1
                }
            };
            Some((char::from_u32(code)?, byte))
        })
        .collect()
}
