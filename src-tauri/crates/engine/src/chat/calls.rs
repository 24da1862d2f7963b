//! Reading the tool calls of an answer while they come.
//!
//! Models squeezed into few bits forget closing tags and markers, so both may be missing where nothing else can be meant: between tags
//! only tags may stand, and an argument ends at its own closing tag or at the next tag that cannot be part of it. A tag without marker
//! ends an argument only if the argument began with one: the argument may be HTML. What is left open when the model ends its answer is
//! closed, an argument excepted, as nobody knows where its text ends. What the token limit cut is never a call.
//!
//! Every call is given out as soon as it is whole. One that cannot be used is given out as text with the reason; arguments are never made up.

use super::arguments::{Argument, to_json};
use super::dsml::{Kind, Sight, Tag, attribute, read_tag, without_markers};
use super::held::Held;
use super::{Part, Tool, ToolCall};

/// A block of calls being read. It begins where the held text does.
#[derive(Debug)]
pub(super) struct CallBlock {
    step: Step,
    /// How far the held text is understood.
    at: usize,
    /// Whether anything came of this block.
    gave: bool,
    name: String,
    arguments: Vec<Argument>,
    /// The call began with a tag without marker.
    bare: bool,
}

#[derive(Debug)]
enum Step {
    Between,
    Call,
    Argument {
        key: String,
        string: Option<bool>,
        bare: bool,
        start: usize,
    },
    Broken(&'static str),
}

enum Progress {
    /// More text is needed.
    Wait,
    On,
    /// What follows is no part of the block.
    Over,
}

const CUT: &str = "it was cut off";

impl CallBlock {
    pub fn new() -> Self {
        Self {
            step: Step::Between,
            at: 0,
            gave: false,
            name: String::new(),
            arguments: Vec::new(),
            bare: false,
        }
    }

    /// Reads on. True when the block is over; what is left in `held` stands behind it.
    pub fn read(&mut self, held: &mut Held, tools: &[Tool], parts: &mut Vec<Part>) -> bool {
        loop {
            let progress = match self.step {
                Step::Between => self.between(held, parts),
                Step::Call => self.call(held, tools, parts),
                Step::Argument { .. } => self.argument(held.text()),
                Step::Broken(why) => self.broken(why, held, parts),
            };
            match progress {
                Progress::On => {}
                Progress::Wait => return false,
                Progress::Over => return true,
            }
        }
    }

    /// The answer is over; `by_model` when the model ended it.
    pub fn finish(
        mut self,
        by_model: bool,
        held: &mut Held,
        tools: &[Tool],
        parts: &mut Vec<Part>,
    ) {
        let rest = held.text().get(self.at..).unwrap_or_default().trim();
        // A closing tag that was only begun says enough.
        let closing = rest.is_empty() || rest == "<" || rest.starts_with("</");
        let why = match self.step {
            Step::Between if self.gave && closing => None,
            Step::Call if by_model && closing => {
                self.give(held, tools, parts);
                None
            }
            Step::Broken(why) => Some(why),
            _ => Some(CUT),
        };
        if let Some(why) = why {
            self.at = held.text().len();
            self.give_broken(why, held, parts);
        }
        held.take_all();
    }

    fn between(&mut self, held: &mut Held, parts: &mut Vec<Part>) -> Progress {
        match self.next_tag(held.text()) {
            Sight::Perhaps { .. } => return Progress::Wait,
            Sight::Text => return self.leave(held, parts),
            Sight::Tag(tag) => {
                self.at += tag.len;
                match (tag.kind, tag.closes) {
                    (Kind::Calls, true) => return self.leave(held, parts),
                    (Kind::Invoke, false) => self.begin(&tag),
                    (Kind::Parameter, false) => {
                        self.bare = !tag.marked;
                        self.step = Step::Broken("an argument stands outside of a call");
                    }
                    _ => {}
                }
            }
        }
        Progress::On
    }

    fn begin(&mut self, tag: &Tag<'_>) {
        self.arguments.clear();
        self.bare = !tag.marked;
        self.step = match attribute(tag.attributes, "name").filter(|name| !name.is_empty()) {
            Some(name) => {
                self.name = name.to_owned();
                Step::Call
            }
            None => Step::Broken("it does not name a tool"),
        };
    }

    fn call(&mut self, held: &mut Held, tools: &[Tool], parts: &mut Vec<Part>) -> Progress {
        match self.next_tag(held.text()) {
            Sight::Perhaps { .. } => return Progress::Wait,
            Sight::Text => self.step = Step::Broken("there is text between its arguments"),
            Sight::Tag(tag) => match (tag.kind, tag.closes) {
                (Kind::Parameter, false) => {
                    self.at += tag.len;
                    self.step = match attribute(tag.attributes, "name") {
                        Some(key) => Step::Argument {
                            key: key.to_owned(),
                            string: match attribute(tag.attributes, "string") {
                                Some("true") => Some(true),
                                Some("false") => Some(false),
                                _ => None,
                            },
                            bare: !tag.marked,
                            start: self.at,
                        },
                        None => Step::Broken("one of its arguments has no name"),
                    };
                }
                (Kind::Parameter, true) => self.at += tag.len,
                (Kind::Invoke, true) => {
                    self.at += tag.len;
                    self.give(held, tools, parts);
                }
                // The closing tag was forgotten.
                (Kind::Invoke, false) | (Kind::Calls, _) => self.give(held, tools, parts),
            },
        }
        Progress::On
    }

    fn argument(&mut self, text: &str) -> Progress {
        let Step::Argument {
            key,
            string,
            bare,
            start,
        } = &mut self.step
        else {
            return Progress::On;
        };
        loop {
            let Some(found) = text.get(self.at..).and_then(|rest| rest.find('<')) else {
                self.at = text.len();
                return Progress::Wait;
            };
            self.at += found;
            match read_tag(&text[self.at..]) {
                Sight::Perhaps { bare: b } if *bare || !b => return Progress::Wait,
                Sight::Tag(tag)
                    if (*bare || tag.marked) && (tag.closes || tag.kind != Kind::Calls) =>
                {
                    let value = &text[*start..self.at];
                    let value = if tag.kind == Kind::Parameter && tag.closes {
                        self.at += tag.len;
                        value
                    } else {
                        value.strip_suffix('\n').unwrap_or(value)
                    };
                    self.arguments.push(Argument {
                        key: std::mem::take(key),
                        string: *string,
                        value: value.to_owned(),
                    });
                    self.step = Step::Call;
                    return Progress::On;
                }
                _ => self.at += 1,
            }
        }
    }

    /// Skips what cannot be used, up to the end of the call.
    fn broken(&mut self, why: &'static str, held: &mut Held, parts: &mut Vec<Part>) -> Progress {
        loop {
            let text = held.text();
            let Some(found) = text.get(self.at..).and_then(|rest| rest.find('<')) else {
                self.at = text.len();
                return Progress::Wait;
            };
            self.at += found;
            match read_tag(&text[self.at..]) {
                Sight::Perhaps { bare } if self.bare || !bare => return Progress::Wait,
                Sight::Tag(tag) if self.bare || tag.marked => match (tag.kind, tag.closes) {
                    (Kind::Invoke, true) => {
                        self.at += tag.len;
                        self.give_broken(why, held, parts);
                        return Progress::On;
                    }
                    (Kind::Invoke, false) | (Kind::Calls, true) => {
                        self.give_broken(why, held, parts);
                        return Progress::On;
                    }
                    _ => self.at += tag.len,
                },
                _ => self.at += 1,
            }
        }
    }

    /// What stands behind white space.
    fn next_tag<'t>(&mut self, text: &'t str) -> Sight<'t> {
        let rest = text.get(self.at..).unwrap_or_default();
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        if trimmed.is_empty() {
            return Sight::Perhaps { bare: false };
        }
        read_tag(trimmed)
    }

    fn leave(&mut self, held: &mut Held, parts: &mut Vec<Part>) -> Progress {
        if self.gave {
            held.take(self.at);
        } else {
            self.give_broken("there is no call in it", held, parts);
        }
        Progress::Over
    }

    /// Gives out the call that has just become whole.
    fn give(&mut self, held: &mut Held, tools: &[Tool], parts: &mut Vec<Part>) {
        let name = std::mem::take(&mut self.name);
        let tool = tools.iter().find(|tool| tool.name() == name);
        match to_json(tool, &self.arguments) {
            Ok(arguments) => {
                held.take(self.at);
                self.restart();
                parts.push(Part::Call(ToolCall {
                    id: String::new(),
                    name,
                    arguments,
                }));
            }
            Err(why) => self.give_broken(&why, held, parts),
        }
    }

    fn give_broken(&mut self, why: &str, held: &mut Held, parts: &mut Vec<Part>) {
        let text = without_markers(&held.take(self.at));
        self.restart();
        parts.push(Part::BrokenCall {
            text: text.trim().to_owned(),
            why: why.to_owned(),
        });
    }

    fn restart(&mut self) {
        self.step = Step::Between;
        self.at = 0;
        self.gave = true;
    }
}
