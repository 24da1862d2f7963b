//! Text of an answer that is held back until it is known what it is.

use super::protocol::DSML;

/// Text not yet given out. The token `｜DSML｜` stands in it in letters, so that tags read the same however they were written, but its
/// places are remembered: a token is never shown, letters are.
#[derive(Debug, Default)]
pub(super) struct Held {
    text: String,
    marks: Vec<usize>,
}

impl Held {
    /// All of it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Appends what the model wrote in letters.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Appends the token.
    pub fn push_mark(&mut self) {
        self.marks.push(self.text.len());
        self.text.push_str(DSML);
    }

    /// Takes the first `bytes`, which do not end within a token, without its tokens.
    pub fn take(&mut self, bytes: usize) -> String {
        let marked = self.marks.partition_point(|at| *at < bytes);
        let mut out = String::with_capacity(bytes);
        let mut from = 0;
        for at in self.marks.drain(..marked) {
            out.push_str(&self.text[from..at]);
            from = at + DSML.len();
        }
        out.push_str(&self.text[from..bytes]);
        self.text.drain(..bytes);
        for at in &mut self.marks {
            *at -= bytes;
        }
        out
    }

    /// Takes all of it.
    pub fn take_all(&mut self) -> String {
        self.take(self.text.len())
    }
}
