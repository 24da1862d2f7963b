//! The diagnostic door: raw logits for given token ids. For tests and `fastar logits`; nothing in the app uses it.

use crate::{Engine, Result};

/// Logits of a prompt and, if asked for, of a greedy continuation.
pub struct Logits {
    /// Width of every row.
    pub vocab: usize,
    /// [prompt tokens, vocab].
    pub prefill: Vec<f32>,
    /// Greedy ids that followed.
    pub greedy: Vec<u32>,
    /// [greedy ids, vocab]: row i are the logits after feeding greedy\[i\].
    pub decode: Vec<f32>,
}

/// Feeds `tokens` in pieces of `chunk` (all at once for `None`) into a fresh session, then decodes `decode` greedy tokens.
pub fn logits(
    _engine: &Engine,
    _tokens: &[u32],
    _chunk: Option<usize>,
    _decode: usize,
) -> Result<Logits> {
    Err(crate::Error::Input("not yet".into()))
}
