//! Tool calls in an answer, as the model writes them: writing those of the history, and recognising tags in what it writes now.
//!
//! ```text
//! <｜DSML｜tool_calls>
//! <｜DSML｜invoke name="NAME">
//! <｜DSML｜parameter name="KEY" string="true">raw text</｜DSML｜parameter>
//! <｜DSML｜parameter name="KEY2" string="false">JSON</｜DSML｜parameter>
//! </｜DSML｜invoke>
//! </｜DSML｜tool_calls>
//! ```
//!
//! `｜DSML｜` is one token. Nothing is escaped.

use super::ToolCall;
use super::encode::Frames;
use super::{json, protocol};
use crate::{Error, Result};

/// Appends the calls of an answer; nothing when there are none.
pub(super) fn write_calls(frames: &mut Frames<'_>, calls: &[ToolCall]) -> Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    let dsml = frames.tokenizer.control_named(protocol::DSML)?;
    frames.text("\n\n<");
    frames.control(dsml)?;
    frames.text("tool_calls>\n");
    for call in calls {
        frames.text("<");
        frames.control(dsml)?;
        frames.text(&format!("invoke name=\"{}\">\n", call.name));
        let arguments = json::members(&call.arguments).ok_or_else(|| {
            Error::Input(format!(
                "The arguments of the call of {} are not a JSON object.",
                call.name
            ))
        })?;
        for (i, (key, value)) in arguments.iter().enumerate() {
            frames.text(if i > 0 { "\n<" } else { "<" });
            frames.control(dsml)?;
            let text = json::string(value);
            let is_string = text.is_some();
            let text = match text {
                Some(text) => text,
                None => json::as_python_writes(value.get()).map_err(|e| {
                    Error::Input(format!(
                        "The argument {key} of the call of {} cannot be used: {e}.",
                        call.name
                    ))
                })?,
            };
            frames.text(&format!(
                "parameter name=\"{key}\" string=\"{is_string}\">{text}</"
            ));
            frames.control(dsml)?;
            frames.text("parameter>");
        }
        frames.text("\n</");
        frames.control(dsml)?;
        frames.text("invoke>\n");
    }
    frames.text("</");
    frames.control(dsml)?;
    frames.text("tool_calls>");
    Ok(())
}

/// The three kinds of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Round all calls.
    Calls,
    /// Round one call.
    Invoke,
    /// Round one argument.
    Parameter,
}

/// A tag as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag<'a> {
    pub kind: Kind,
    /// `</...>`.
    pub closes: bool,
    /// It has at least a bar or the letters DSML. Without, it could be a tag of any other language.
    pub marked: bool,
    /// What stands between name and `>`.
    pub attributes: &'a str,
    /// Its length in bytes.
    pub len: usize,
}

/// What text that begins with `<` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight<'a> {
    /// Not a tag, whatever follows.
    Text,
    /// The beginning of a tag perhaps; `bare` when it can only become one without a marker.
    Perhaps { bare: bool },
    /// A tag.
    Tag(Tag<'a>),
}

const NAMES: [(&str, Kind); 5] = [
    ("tool_calls", Kind::Calls),
    ("function_calls", Kind::Calls),
    ("calls", Kind::Calls),
    ("invoke", Kind::Invoke),
    ("parameter", Kind::Parameter),
];

const BARS: [char; 2] = ['｜', '|'];

/// A tag longer than this is none.
const LONGEST: usize = 1024;

/// Reads the tag that `text` begins with. Bars may be missing, be ASCII, and a space may follow them, as models squeezed into few bits write it.
pub(super) fn read_tag(text: &str) -> Sight<'_> {
    let Some(rest) = text.strip_prefix('<') else {
        return Sight::Text;
    };
    let closes = rest.starts_with('/');
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    let (name_on, marked) = match after_marker(rest) {
        Some(found) => found,
        None => return Sight::Perhaps { bare: false },
    };
    let name_len = name_on
        .find(|c: char| !(c.is_ascii_lowercase() || c == '_'))
        .unwrap_or(name_on.len());
    let (name, after) = name_on.split_at(name_len);
    if after.is_empty() {
        return if NAMES.iter().any(|(known, _)| known.starts_with(name)) {
            Sight::Perhaps {
                bare: !marked && !name.is_empty(),
            }
        } else {
            Sight::Text
        };
    }
    let kind = NAMES.iter().find(|(known, _)| *known == name);
    let Some((_, kind)) = kind.filter(|_| after.starts_with(['>', ' ', '\t', '\n'])) else {
        return Sight::Text;
    };
    let mut quoted = false;
    for (i, c) in after.char_indices() {
        if i > LONGEST {
            return Sight::Text;
        }
        match c {
            '"' => quoted = !quoted,
            '<' if !quoted => return Sight::Text,
            '>' if !quoted => {
                return Sight::Tag(Tag {
                    kind: *kind,
                    closes,
                    marked,
                    attributes: &after[..i],
                    len: text.len() - after.len() + i + 1,
                });
            }
            _ => {}
        }
    }
    Sight::Perhaps { bare: !marked }
}

/// What follows bars and DSML, and whether there were any; none when the text ends before that can be said.
fn after_marker(text: &str) -> Option<(&str, bool)> {
    let rest = after_bars(text);
    let rest = match rest.strip_prefix("DSML") {
        Some(rest) => after_bars(rest),
        None if "DSML".starts_with(rest) => return None,
        None => rest,
    };
    let marked = rest.len() < text.len();
    let rest = match rest.strip_prefix(' ') {
        Some(rest) if marked => rest,
        _ => rest,
    };
    (!rest.is_empty()).then_some((rest, marked))
}

/// At most two: no text may be held back for ever.
fn after_bars(text: &str) -> &str {
    let bar = |text| str::strip_prefix(text, BARS);
    let rest = bar(text).unwrap_or(text);
    bar(rest).unwrap_or(rest)
}

/// Whether the beginning of a tag that never came has a part of a marker.
pub(super) fn begins_marked(text: &str) -> bool {
    let rest = text.strip_prefix('<').unwrap_or(text);
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    rest.starts_with(BARS) || rest.starts_with("DSML")
}

/// The value of an attribute.
pub(super) fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = attributes.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
        };
        if key.trim() == name {
            return Some(value);
        }
        rest = after.trim_start();
    }
    None
}

/// Text with the markers of its tags taken out: what a person is shown of a call that cannot be used.
pub(super) fn without_markers(text: &str) -> String {
    let text = text.replace(protocol::DSML, "");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at + 1);
        out.push_str(before);
        rest = tag;
        if let Some(after) = rest.strip_prefix('/') {
            out.push('/');
            rest = after;
        }
        rest = match after_marker(rest) {
            Some((after, _)) => after,
            None => after_bars(rest),
        };
    }
    out.push_str(rest);
    out
}
