//! An answer read while it is written: tokens in; reasoning, text and tool calls out.
//!
//! What counts is what the model wrote, not how it was cut into tokens: the parts are the same, joined, for every cut of the same bytes.
//! - The answer begins with what the prompt ended with, so a missing `<think>` confuses nothing. `</think>` ends reasoning as a token and in
//!   letters. Letters of a tag in the content are content; tokens are never shown there.
//! - Tool calls are looked for when tools were offered. Without tools, the token `｜DSML｜` in the content ends the answer.
//! - Stop strings are looked for in the content only: neither a thought nor an argument ends the answer.
//! - A tag or stop string that is only begun is held back, whole characters only are given out, and the end gives out what was held.

use super::calls::CallBlock;
use super::dsml::{Sight, begins_marked, read_tag, without_markers};
use super::encode::Opening;
use super::held::Held;
use super::protocol::THINK_END;
use super::stop::{StopStrings, overlap};
use super::stream::TextStream;
use super::tokenizer::{Mark, Piece};
use super::{Tool, ToolCall, protocol};

/// A part of an answer. Neighbours of the same kind belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// More of what the model thinks.
    Reasoning(String),
    /// More of what it says.
    Content(String),
    /// It asks for a tool. The arguments are a JSON object of the declared types.
    Call(ToolCall),
    /// It asked for a tool in a way that cannot be understood.
    BrokenCall {
        /// What it wrote, without markers.
        text: String,
        /// What is wrong with it, as the end of a sentence.
        why: String,
    },
}

/// Reads one answer.
#[derive(Debug)]
pub(crate) struct AnswerParser {
    phase: Phase,
    characters: TextStream,
    held: Held,
    stops: StopStrings,
    tools: Vec<Tool>,
    ended: bool,
}

#[derive(Debug)]
enum Phase {
    Reasoning,
    Content {
        /// White space is dropped until text comes: a block of calls was before.
        behind_calls: bool,
    },
    Calls(CallBlock),
}

/// What stands behind text that is content for certain.
enum Next {
    /// Nothing that can be told.
    Nothing,
    /// A block of calls, perhaps behind line breaks.
    Calls,
    /// A closing tag of this length that closes nothing.
    Stray(usize),
}

impl AnswerParser {
    /// `opening` is what the prompt ended with, `tools` what was offered.
    pub fn new(opening: Opening, tools: &[Tool], stops: &[String]) -> Self {
        Self {
            phase: match opening {
                Opening::Reasoning => Phase::Reasoning,
                Opening::Content => Phase::Content {
                    behind_calls: false,
                },
            },
            characters: TextStream::default(),
            held: Held::default(),
            stops: StopStrings::new(stops),
            tools: tools.to_vec(),
            ended: false,
        }
    }

    /// Whether the answer is over: at an end token, a stop string, or a call without tools. Nothing more comes out then.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Whether the next token still belongs to the reasoning.
    pub fn is_reasoning(&self) -> bool {
        matches!(self.phase, Phase::Reasoning)
    }

    /// Adds a token; appends to `parts` what has become certain.
    pub fn push(&mut self, piece: Piece<'_>, parts: &mut Vec<Part>) {
        if self.ended {
            return;
        }
        match piece {
            Piece::Bytes(bytes) => {
                let mut text = String::new();
                self.characters.push(bytes, &mut text);
                self.held.push(&text);
            }
            Piece::Mark(Mark::End) => return self.finish(true, parts),
            Piece::Mark(Mark::Dsml) => match &self.phase {
                Phase::Reasoning => return,
                Phase::Content { .. } if self.tools.is_empty() => {
                    self.end_characters();
                    self.read(parts);
                    self.say(String::new(), true, parts);
                    self.ended = true;
                    return;
                }
                _ => {
                    self.end_characters();
                    self.held.push_mark();
                }
            },
            Piece::Mark(mark @ (Mark::Think | Mark::ThinkEnd)) => match &self.phase {
                Phase::Reasoning if mark == Mark::ThinkEnd => {
                    self.end_characters();
                    self.read(parts);
                    self.end_reasoning(parts);
                }
                // An argument may be about the tag; tokenised, its letters are the token.
                Phase::Calls(_) => {
                    self.end_characters();
                    self.held.push(match mark {
                        Mark::Think => protocol::THINK,
                        _ => THINK_END,
                    });
                }
                _ => return,
            },
            Piece::Mark(Mark::Silent) => return,
        }
        self.read(parts);
    }

    /// The end, by the model or by a limit. Gives out what was held back.
    pub fn finish(&mut self, by_model: bool, parts: &mut Vec<Part>) {
        if self.ended {
            return;
        }
        self.end_characters();
        self.read(parts);
        if self.ended {
            return;
        }
        match std::mem::replace(
            &mut self.phase,
            Phase::Content {
                behind_calls: false,
            },
        ) {
            Phase::Reasoning => self.end_reasoning(parts),
            Phase::Calls(block) => block.finish(by_model, &mut self.held, &self.tools, parts),
            Phase::Content { .. } => {
                let text = self.held.text();
                let tag = text.trim_start_matches('\n');
                if !self.tools.is_empty() && begins_marked(tag) {
                    let text = without_markers(tag);
                    self.held.take_all();
                    self.say(String::new(), true, parts);
                    parts.push(Part::BrokenCall {
                        text,
                        why: "it was cut off".into(),
                    });
                } else {
                    let rest = self.held.take_all();
                    self.say(rest, true, parts);
                }
            }
        }
        self.ended = true;
    }

    /// A character that was only begun is over.
    fn end_characters(&mut self) {
        let mut text = String::new();
        self.characters.finish(&mut text);
        self.held.push(&text);
    }

    fn read(&mut self, parts: &mut Vec<Part>) {
        while !self.ended {
            let on = match &mut self.phase {
                Phase::Reasoning => self.read_reasoning(parts),
                Phase::Content { .. } => self.read_content(parts),
                Phase::Calls(block) => {
                    let over = block.read(&mut self.held, &self.tools, parts);
                    if over {
                        self.phase = Phase::Content { behind_calls: true };
                    }
                    over
                }
            };
            if !on {
                return;
            }
        }
    }

    fn read_reasoning(&mut self, parts: &mut Vec<Part>) -> bool {
        let text = self.held.text();
        match text.find(THINK_END) {
            Some(at) => {
                think(self.held.take(at), parts);
                self.held.take(THINK_END.len());
                self.phase = Phase::Content {
                    behind_calls: false,
                };
                true
            }
            None => {
                let certain = text.len() - overlap(text, THINK_END);
                think(self.held.take(certain), parts);
                false
            }
        }
    }

    fn end_reasoning(&mut self, parts: &mut Vec<Part>) {
        think(self.held.take_all(), parts);
        self.phase = Phase::Content {
            behind_calls: false,
        };
    }

    fn read_content(&mut self, parts: &mut Vec<Part>) -> bool {
        if let Phase::Content { behind_calls } = &mut self.phase
            && *behind_calls
        {
            let text = self.held.text();
            let space = text.len() - text.trim_start().len();
            *behind_calls = space == text.len();
            self.held.take(space);
        }
        let (certain, next) = self.content_before_tag(self.held.text());
        let certain = self.held.take(certain);
        self.say(certain, false, parts);
        if self.ended {
            return false;
        }
        match next {
            Next::Nothing => false,
            Next::Stray(len) => {
                self.held.take(len);
                true
            }
            Next::Calls => {
                let text = self.held.text();
                let line_breaks = text.len() - text.trim_start_matches('\n').len();
                self.held.take(line_breaks);
                self.say(String::new(), true, parts);
                self.phase = Phase::Calls(CallBlock::new());
                true
            }
        }
    }

    /// How much of `text` is content for certain, and what stands behind it. At most two line breaks before calls belong to them.
    fn content_before_tag(&self, text: &str) -> (usize, Next) {
        let before = |at: usize| {
            let text = &text[..at];
            let text = text.strip_suffix('\n').unwrap_or(text);
            text.strip_suffix('\n').unwrap_or(text).len()
        };
        if self.tools.is_empty() {
            let end = text.strip_suffix('<').unwrap_or(text).len();
            return (before(end), Next::Nothing);
        }
        for (at, _) in text.match_indices('<') {
            match read_tag(&text[at..]) {
                Sight::Tag(tag) if tag.marked && tag.closes => return (at, Next::Stray(tag.len)),
                Sight::Tag(tag) if tag.marked => return (before(at), Next::Calls),
                Sight::Perhaps { bare: false } => return (before(at), Next::Nothing),
                _ => {}
            }
        }
        (before(text.len()), Next::Nothing)
    }

    /// Gives out content up to a stop string; with `all`, also what could have become one.
    fn say(&mut self, text: String, all: bool, parts: &mut Vec<Part>) {
        let (mut certain, stopped) = self.stops.push(&text);
        if stopped {
            self.ended = true;
            self.held.take_all();
        } else if all {
            certain.push_str(&self.stops.release());
        }
        if !certain.is_empty() {
            match parts.last_mut() {
                Some(Part::Content(before)) => before.push_str(&certain),
                _ => parts.push(Part::Content(certain)),
            }
        }
    }
}

fn think(text: String, parts: &mut Vec<Part>) {
    if !text.is_empty() {
        match parts.last_mut() {
            Some(Part::Reasoning(before)) => before.push_str(&text),
            _ => parts.push(Part::Reasoning(text)),
        }
    }
}
