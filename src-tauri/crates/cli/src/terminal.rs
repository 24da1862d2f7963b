//! Writing for people: answers to stdout, everything else to stderr, and nothing in either that could control the terminal.

use std::borrow::Cow;
use std::io::{self, BufRead as _, IsTerminal, Stdout, Write};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Where answers go.
pub struct Answers {
    out: Stdout,
    to_terminal: bool,
}

impl Answers {
    pub fn new() -> Self {
        let out = io::stdout();
        let to_terminal = out.is_terminal();
        Self { out, to_terminal }
    }

    pub fn is_terminal(&self) -> bool {
        self.to_terminal
    }

    /// Writes a piece at once. A terminal gets no control characters; a pipe or file gets exactly the text.
    pub fn write(&mut self, text: &str) -> Result<(), Failure> {
        let text = if self.to_terminal {
            harmless(text)
        } else {
            Cow::Borrowed(text)
        };
        printed(|| self.out.write_all(text.as_bytes()))
    }
}

/// Prints to stdout, all of it.
pub fn printed(print: impl FnOnce() -> io::Result<()>) -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    if crate::early::output_was_closed() {
        let closed = io::Error::other("it is closed");
        return Err(Failure::output(closed));
    }
    print()
        .and_then(|()| io::stdout().flush())
        .map_err(Failure::output)
}

/// One line for a person, on stderr. That nobody may be there to read it is not an error.
pub fn note(text: &str) {
    let line: String = harmless(text)
        .chars()
        .map(|c| if c == '\n' { ' ' } else { c })
        .collect();
    let _ = writeln!(io::stderr(), "{line}");
}

/// Several lines for a person, on stderr.
pub fn notes(text: &str) {
    let _ = writeln!(io::stderr(), "{}", harmless(text));
}

/// Whether there is someone who can be asked.
pub fn can_ask() -> bool {
    io::stdin().is_terminal()
}

/// Asks whether to go on, unless that was said with `yes`. Where nobody can be asked it is an error, `unasked`.
pub fn agreed(yes: bool, question: &str, unasked: &str) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    if !can_ask() {
        return Err(Failure::Error(unasked.to_owned()));
    }
    let mut err = io::stderr();
    let _ = write!(err, "{} [y/N] ", harmless(question)).and_then(|()| err.flush());
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|e| Failure::Error(format!("The answer could not be read: {e}.")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"))
}

/// Whether a person watches stderr.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Text in which only newline and tab are left of all control characters; others become visible signs.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let visible = |c: char| match u32::from(c) {
        // The pictures of control characters, for example one that reads "ESC".
        code @ 0..0x20 => char::from_u32(0x2400 + code).unwrap_or(char::REPLACEMENT_CHARACTER),
        0x7f => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    };
    Cow::Owned(
        text.chars()
            .map(|c| if harmful(c) { visible(c) } else { c })
            .collect(),
    )
}

/// A line on stderr that is written over, while a person watches.
pub struct Progress {
    watched: bool,
    last: Option<Instant>,
    shown: bool,
}

impl Progress {
    /// Longest time without news, and so the shortest between two.
    const EVERY: Duration = Duration::from_millis(100);

    pub fn new() -> Self {
        Self {
            watched: is_watched(),
            last: None,
            shown: false,
        }
    }

    /// Shows `text`, unless the last one was a moment ago.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if !self.watched || self.last.is_some_and(|last| last.elapsed() < Self::EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        self.shown = true;
        let mut err = io::stderr();
        // Return, clear to the end of the line, and do not wrap what is too long for it: only ever sent to a terminal.
        let _ = write!(err, "\r\x1b[K\x1b[?7l{}\x1b[?7h", text()).and_then(|()| err.flush());
    }

    /// Shows what will be true for a while, however short ago the last one was.
    pub fn show_now(&mut self, text: &str) {
        self.last = None;
        self.show(|| text.to_owned());
    }

    /// Takes the line away again.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let mut err = io::stderr();
            let _ = write!(err, "\r\x1b[K").and_then(|()| err.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_visible_and_newline_and_tab_stay() {
        assert_eq!(harmless("a\n\tb 🙂 é"), "a\n\tb 🙂 é");
        assert_eq!(harmless("\x1b[2J\x07\r\0"), "␛[2J␇␍␀");
        // DEL, and the one-character forms of ESC [ and ESC ].
        assert_eq!(
            harmless("\x7f\u{9b}31m\u{9d}0;x"),
            "␡\u{fffd}31m\u{fffd}0;x"
        );
    }
}
