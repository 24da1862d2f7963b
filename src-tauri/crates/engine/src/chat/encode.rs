//! From a conversation to the ids of the prompt: the chat format of DeepSeek V4.
//!
//! `BOS [effort] [system] <User>question<Assistant><think>reasoning</think>answer EOS ...`, with no line breaks between the parts.
//! Frame tokens are pushed as ids. All text between two of them is tokenised in one piece, by a tokenizer that has no control tokens: so the
//! ids are those of the published encoder, which tokenises the whole prompt as one string, and nothing a person, a file, a tool or an
//! earlier answer wrote can become a frame.
//!
//! The rules are those of DeepSeek's `encoding_dsv4.py` (see [`super::protocol`]). Where it leaves a choice or breaks, we differ:
//! - Tools and a response format belong to the conversation and stand behind its first system turn, an empty one if need be. Tools on a
//!   user message are lost in the published encoder; on a developer message nothing here asks for them.
//! - A call in the history whose arguments are no JSON object is refused; the published encoder invents a parameter `arguments`.
//! - A reminder behind the person's message is refused; it would land behind `<think>`.
//! - An answer that ends the conversation is one to go on with, so it gets no EOS, and no `</think>` either if it consists of reasoning.

use std::collections::HashMap;

use fastar_fst::EffortTable;

use super::conversation::{Conversation, Effort, Reply, Task, Thinking, Turn};
use super::tokenizer::ChatTokenizer;
use super::{dsml, json, protocol};
use crate::{Error, Result};

/// What the model is given, and where it goes on from there.
#[derive(Debug)]
pub(crate) struct Prompt {
    /// Token ids.
    pub ids: Vec<u32>,
    /// What the first token of the answer is part of.
    pub opening: Opening,
}

/// What an answer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The prompt ended with `<think>`.
    Reasoning,
    /// The prompt ended with `</think>`, or within an answer.
    Content,
}

/// The prompt that asks for the next answer.
pub(crate) fn encode(
    tokenizer: &ChatTokenizer,
    conversation: &Conversation,
    efforts: EffortTable,
) -> Result<Prompt> {
    let blocks = blocks(conversation)?;
    let thinking = conversation.thinking != Thinking::Off;
    let drop = conversation.drop_reasoning && conversation.tools.is_empty();
    let last_person = last_person(&blocks);
    let control = &tokenizer.control;

    let mut frames = Frames::new(tokenizer);
    frames.control(control.bos)?;
    if let Thinking::On(effort) = conversation.thinking {
        frames.text(effort_text(efforts, effort));
    }
    let introduces = !conversation.tools.is_empty() || conversation.response_format.is_some();
    if introduces && !matches!(blocks.first(), Some(Block::System(_))) {
        introduce(&mut frames, conversation)?;
    }
    let mut opening = Opening::Content;
    for (i, block) in blocks.iter().enumerate() {
        let next = blocks.get(i + 1);
        match block {
            Block::System(text) => {
                frames.text(text);
                if i == 0 {
                    introduce(&mut frames, conversation)?;
                }
            }
            Block::Reminder(text) => {
                frames.control(tokenizer.control_named(protocol::REMINDER)?)?;
                frames.text(text);
            }
            Block::Person(_) | Block::Developer(_) => {
                frames.control(control.user)?;
                match block {
                    Block::Person(parts) => write_parts(&mut frames, parts),
                    Block::Developer(text) => frames.text(text),
                    _ => {}
                }
                let reasons = thinking && (!drop || i >= last_person);
                match (next, conversation.task) {
                    (None, Some(task)) => {
                        if task == Task::Action {
                            opening = open(&mut frames, reasons)?;
                        }
                        frames.control(tokenizer.control_named(task_token(task))?)?;
                    }
                    (None | Some(Block::Assistant(_)), _) => opening = open(&mut frames, reasons)?,
                    _ => {}
                }
            }
            Block::Assistant(reply) => {
                let begun = next.is_none();
                if thinking && (!drop || i > last_person) {
                    let reasoning = reply.reasoning.as_deref().unwrap_or_default();
                    frames.text(reasoning);
                    if begun && reply.content.is_empty() {
                        break;
                    }
                    frames.control(control.think_end)?;
                }
                opening = Opening::Content;
                frames.text(&reply.content);
                dsml::write_calls(&mut frames, &reply.calls)?;
                if !begun {
                    frames.control(control.eos)?;
                }
            }
        }
    }
    Ok(Prompt {
        ids: frames.finish()?,
        opening,
    })
}

/// `<Assistant>` and whether it reasons.
fn open(frames: &mut Frames<'_>, reasons: bool) -> Result<Opening> {
    let control = &frames.tokenizer.control;
    frames.control(control.assistant)?;
    if reasons {
        frames.control(control.think)?;
        Ok(Opening::Reasoning)
    } else {
        frames.control(control.think_end)?;
        Ok(Opening::Content)
    }
}

fn effort_text(table: EffortTable, effort: Effort) -> &'static str {
    match (table, effort) {
        (_, Effort::Default) | (EffortTable::Preview, Effort::High) => "",
        (EffortTable::Preview, Effort::Max) | (EffortTable::V0731, Effort::High) => {
            protocol::EFFORT_ABSOLUTE
        }
        (EffortTable::V0731, Effort::Max) => protocol::EFFORT_BEYOND,
    }
}

fn task_token(task: Task) -> &'static str {
    match task {
        Task::Action => "<｜action｜>",
        Task::Query => "<｜query｜>",
        Task::Authority => "<｜authority｜>",
        Task::Domain => "<｜domain｜>",
        Task::Title => "<｜title｜>",
        Task::ReadUrl => "<｜read_url｜>",
    }
}

/// The sections on tools and on the answer's schema, each behind a blank line.
fn introduce(frames: &mut Frames<'_>, conversation: &Conversation) -> Result<()> {
    if !conversation.tools.is_empty() {
        frames.text("\n\n");
        // The text names the tokens `<think>` and `</think>` as tokens, not in letters: the published encoder tokenises it that way, and
        // the 228 ids it is known to have come of nothing else.
        fill(frames, protocol::TOOLS, |frames, place| match place {
            "dsml_token" => frames.control(frames.tokenizer.control_named(protocol::DSML)?),
            "thinking_start_token" => frames.control(frames.tokenizer.control.think),
            "thinking_end_token" => frames.control(frames.tokenizer.control.think_end),
            _ => {
                for (i, tool) in conversation.tools.iter().enumerate() {
                    frames.text(if i > 0 { "\n" } else { "" });
                    frames.text(tool.json());
                }
                Ok(())
            }
        })?;
    }
    if let Some(schema) = &conversation.response_format {
        let schema = json::as_python_writes(schema).map_err(|e| {
            Error::Input(format!("The response format must be a JSON schema: {e}."))
        })?;
        frames.text("\n\n");
        fill(frames, protocol::RESPONSE_FORMAT, |frames, _| {
            frames.text(&schema);
            Ok(())
        })?;
    }
    Ok(())
}

/// Writes a text of ours, filling in each `{place}`.
fn fill(
    frames: &mut Frames<'_>,
    template: &str,
    mut place: impl FnMut(&mut Frames<'_>, &str) -> Result<()>,
) -> Result<()> {
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        frames.text(before);
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        place(frames, name)?;
        rest = after;
    }
    frames.text(rest);
    Ok(())
}

/// Ids in the making. Text is collected until the next frame token and tokenised in one piece.
pub(super) struct Frames<'a> {
    pub tokenizer: &'a ChatTokenizer,
    ids: Vec<u32>,
    text: String,
}

impl<'a> Frames<'a> {
    fn new(tokenizer: &'a ChatTokenizer) -> Self {
        Self {
            tokenizer,
            ids: Vec::new(),
            text: String::new(),
        }
    }

    /// Appends text, which stays text whatever it says.
    pub fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Appends a frame token.
    pub fn control(&mut self, id: u32) -> Result<()> {
        self.end_text()?;
        self.ids.push(id);
        Ok(())
    }

    fn end_text(&mut self) -> Result<()> {
        self.tokenizer.encode(&self.text, &mut self.ids)?;
        self.text.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<u32>> {
        self.end_text()?;
        Ok(self.ids)
    }
}

/// A turn as it is written down: neighbouring messages of the person and results of tools are one.
enum Block<'a> {
    System(&'a str),
    Person(Vec<Part<'a>>),
    Developer(&'a str),
    Reminder(&'a str),
    Assistant(&'a Reply),
}

#[derive(Clone, Copy)]
enum Part<'a> {
    Text(&'a str),
    Result { call: &'a str, text: &'a str },
}

impl Part<'_> {
    fn is_result(&self) -> bool {
        matches!(self, Part::Result { .. })
    }
}

impl Block<'_> {
    fn is_person(&self) -> bool {
        matches!(self, Block::Person(_) | Block::Developer(_))
    }
}

fn last_person(blocks: &[Block<'_>]) -> usize {
    blocks.iter().rposition(Block::is_person).unwrap_or(0)
}

fn write_parts(frames: &mut Frames<'_>, parts: &[Part<'_>]) {
    for (i, part) in parts.iter().enumerate() {
        frames.text(if i > 0 { "\n\n" } else { "" });
        match part {
            Part::Text(text) => frames.text(text),
            Part::Result { text, .. } => {
                frames.text(protocol::RESULT.0);
                frames.text(text);
                frames.text(protocol::RESULT.1);
            }
        }
    }
}

/// Merges, sorts and drops turns, and refuses what has no place in the format.
fn blocks(conversation: &Conversation) -> Result<Vec<Block<'_>>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for (i, turn) in conversation.turns.iter().enumerate() {
        let refuse = |why: &str| Err(Error::Input(format!("Message {}: {why}", i + 1)));
        let part = match turn {
            Turn::User(text) => Part::Text(text),
            Turn::ToolResult { call, text } => Part::Result { call, text },
            Turn::System(text) => {
                blocks.push(Block::System(text));
                continue;
            }
            Turn::Developer(text) => {
                if text.is_empty() {
                    return refuse("a developer message must not be empty.");
                }
                blocks.push(Block::Developer(text));
                continue;
            }
            Turn::Reminder(text) => {
                if blocks.last().is_some_and(Block::is_person) {
                    return refuse(
                        "a reminder must stand before the message of the user that it belongs to.",
                    );
                }
                blocks.push(Block::Reminder(text));
                continue;
            }
            Turn::Assistant(reply) => {
                blocks.push(Block::Assistant(reply));
                continue;
            }
        };
        match blocks.last_mut() {
            Some(Block::Person(parts)) => parts.push(part),
            _ => blocks.push(Block::Person(vec![part])),
        }
    }
    check_end(&blocks, conversation.task)?;
    sort_results(&mut blocks);
    let drops = conversation.drop_reasoning && conversation.tools.is_empty();
    if drops && conversation.thinking != Thinking::Off {
        let last = last_person(&blocks);
        let mut i = 0;
        blocks.retain(|block| {
            i += 1;
            i > last || !matches!(block, Block::Developer(_))
        });
    }
    Ok(blocks)
}

fn check_end(blocks: &[Block<'_>], task: Option<Task>) -> Result<()> {
    let refuse = |why: &str| Err(Error::Input(why.into()));
    match blocks {
        [.., last] if last.is_person() => Ok(()),
        [.., Block::Assistant(reply)] if !reply.calls.is_empty() => {
            refuse("A conversation that ends with tool calls needs the results of the tools.")
        }
        [.., before, Block::Assistant(_)] if before.is_person() && task.is_none() => Ok(()),
        [.., Block::Assistant(_)] => {
            refuse("An answer can only be continued where it follows a message of the user.")
        }
        _ => refuse("A conversation must end with a message of the user."),
    }
}

/// Puts results in the order of the calls they answer; text between them stays where it is. Results of unknown calls count as of the first.
fn sort_results(blocks: &mut [Block<'_>]) {
    let mut order: HashMap<&str, usize> = HashMap::new();
    for block in blocks {
        match block {
            Block::Assistant(reply) if !reply.calls.is_empty() => {
                let ids = reply.calls.iter().enumerate();
                order = ids
                    .filter(|(_, call)| !call.id.is_empty())
                    .map(|(i, call)| (call.id.as_str(), i))
                    .collect();
            }
            Block::Person(parts) => {
                let mut results: Vec<Part<'_>> = parts
                    .iter()
                    .filter(|part| part.is_result())
                    .copied()
                    .collect();
                results.sort_by_key(|part| match part {
                    Part::Result { call, .. } => order.get(call).copied().unwrap_or(0),
                    Part::Text(_) => 0,
                });
                let slots = parts.iter_mut().filter(|part| part.is_result());
                for (slot, result) in slots.zip(results) {
                    *slot = result;
                }
            }
            _ => {}
        }
    }
}
