//! The diagnostic door: raw logits for given token ids, and paging alone. For tests, `fastar logits` and `fastar bench`; nothing in the app
//! uses it.

use crate::model::{Mtp, Wanted, Work};
use crate::sample::argmax;
use crate::{Cancel, Engine, Error, Result};

/// Tokens at a time: all logits of each are kept.
const PIECE: usize = 128;

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

/// Feeds `tokens` in pieces of `chunk` (the engine's own size for none) into a fresh session, then decodes `decode` greedy tokens.
pub fn logits(
    engine: &Engine,
    tokens: &[u32],
    chunk: Option<usize>,
    decode: usize,
) -> Result<Logits> {
    logits_unless(engine, tokens, chunk, decode, &Cancel::default())
}

/// The same, and ends with [`Error::Cancelled`] when it is stopped.
pub fn logits_unless(
    engine: &Engine,
    tokens: &[u32],
    chunk: Option<usize>,
    decode: usize,
    cancel: &Cancel,
) -> Result<Logits> {
    let vocab = engine.facts().vocab;
    let needed = tokens.len().saturating_add(decode);
    if needed > engine.facts().context {
        return Err(Error::ContextFull {
            needed,
            context: engine.facts().context,
        });
    }
    if tokens.is_empty() {
        return Err(Error::Input("There are no token ids to read.".into()));
    }
    let mut out = Logits {
        vocab,
        prefill: Vec::new(),
        greedy: Vec::new(),
        decode: Vec::new(),
    };
    let mut session = engine.session();
    for piece in tokens.chunks(chunk.unwrap_or(PIECE).max(1)) {
        let rows = session.feed(piece, Wanted::All, cancel)?;
        out.prefill.extend_from_slice(rows);
    }
    let mut next = argmax(&out.prefill[out.prefill.len() - vocab..]);
    for _ in 0..decode {
        out.greedy.push(next);
        let row = session.feed(&[next], Wanted::Last, cancel)?;
        out.decode.extend_from_slice(row);
        next = argmax(row);
    }
    Ok(out)
}

/// Pages every expert through memory once, layer by layer, as a long prompt does, and computes nothing. Does nothing where nothing is paged.
pub fn page_through(engine: &Engine) -> Result<()> {
    let Some(pager) = engine.model().pager() else {
        return Ok(());
    };
    let cancel = Cancel::default();
    let wanted: Vec<(u32, u32)> = (0..engine.facts().experts as u32).map(|e| (e, 1)).collect();
    pager.step(1);
    for layer in 0..engine.facts().layers {
        let mut pages = pager.request(layer, &wanted, &cancel)?;
        for (expert, _) in &wanted {
            pages.get(*expert)?;
            pages.release(*expert);
        }
    }
    Ok(())
}

/// Draft logits of the MTP block at the last of `tokens`, when `next` follows it: [vocab].
pub fn mtp_logits(engine: &Engine, tokens: &[u32], next: u32) -> Result<Vec<f32>> {
    let mtp = Mtp::load(engine.model(), 0)?;
    let mut session = engine.session();
    session.feed(tokens, Wanted::Nothing, &Cancel::default())?;
    let mut following = tokens[1..].to_vec();
    following.push(next);
    let (mut state, mut work) = (mtp.state(engine.model()), Work::default());
    let streams = session.streams();
    engine.run(|model| mtp.forward(model, streams, &following, 0, &mut state, &mut work))?;
    Ok(work.logits[work.logits.len() - engine.facts().vocab..].to_vec())
}
