//! What a conversation is made of. How it is written down for the model is in [`super::encode`].

use std::collections::HashMap;

use serde_json::Value;

use super::json;
use crate::{Error, Result};

/// Who wrote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions; stands first.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// One message of a plain conversation: the short form of a [`Turn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who wrote it.
    pub role: Role,
    /// Untrusted text: can never become a control token.
    pub text: String,
}

/// A conversation and how the next answer to it is to be written. All text in it is untrusted: none of it can become a control token.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// In order. The last one is the person's, a developer's or a tool's; or an answer that has only been begun and is to be continued.
    pub turns: Vec<Turn>,
    /// What the model may call. Introduced behind the first turn if that is a system one, else before it.
    pub tools: Vec<Tool>,
    /// JSON schema that the answer has to follow, as JSON text.
    pub response_format: Option<String>,
    /// Whether the model reasons before it answers.
    pub thinking: Thinking,
    /// Leave out the reasoning of answers before the last message of the person, as the model was trained. Always off with tools.
    pub drop_reasoning: bool,
    /// Asks for a short judgement instead of an answer.
    pub task: Option<Task>,
}

impl Default for Conversation {
    /// Empty, thinking off, without tools.
    fn default() -> Self {
        Self {
            turns: Vec::new(),
            tools: Vec::new(),
            response_format: None,
            thinking: Thinking::Off,
            drop_reasoning: true,
            task: None,
        }
    }
}

impl Conversation {
    /// The conversation of plain messages, thinking off. A system message stands first, and the last message is the person's.
    pub fn of(messages: &[Message]) -> Result<Self> {
        if messages.last().map(|m| m.role) != Some(Role::User) {
            return Err(Error::Input(
                "A conversation must end with a message of the user.".into(),
            ));
        }
        let late = |(i, m): (usize, &Message)| i > 0 && m.role == Role::System;
        if messages.iter().enumerate().any(late) {
            return Err(Error::Input(
                "A system message must be the first of the conversation.".into(),
            ));
        }
        let turn = |message: &Message| {
            let text = message.text.clone();
            match message.role {
                Role::System => Turn::System(text),
                Role::User => Turn::User(text),
                Role::Assistant => Turn::Assistant(Reply {
                    content: text,
                    ..Reply::default()
                }),
            }
        };
        Ok(Self {
            turns: messages.iter().map(turn).collect(),
            ..Self::default()
        })
    }
}

/// One contribution to a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Instructions.
    System(String),
    /// The person.
    User(String),
    /// Instructions that stand where the person's text does; not empty. With reasoning being dropped, only the latest counts.
    Developer(String),
    /// Facts of the moment (date, place); stands before the message of the person that it belongs to.
    Reminder(String),
    /// The model.
    Assistant(Reply),
    /// What a tool gave back.
    ToolResult {
        /// [`ToolCall::id`] of the call it answers.
        call: String,
        /// Its text.
        text: String,
    },
}

/// An answer of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// What it thought; none or empty without thinking.
    pub reasoning: Option<String>,
    /// What it said.
    pub content: String,
    /// What it called, in order.
    pub calls: Vec<ToolCall>,
}

/// The model asks for a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Chosen by whoever runs the tools; unique in its answer. Empty when the model has just written the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}

/// Whether the model reasons before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// The answer at once.
    Off,
    /// Reasoning first.
    On(Effort),
}

/// How much reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// The model's own measure.
    #[default]
    Default,
    /// More.
    High,
    /// As much as it can.
    Max,
}

/// Short judgements the model was trained to give on a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// What to do next, such as `Search`.
    Action,
    /// What to search for.
    Query,
    /// How trustworthy sources have to be.
    Authority,
    /// The field of knowledge.
    Domain,
    /// A title for the conversation.
    Title,
    /// Which address to read.
    ReadUrl,
}

/// A tool the model may call.
#[derive(Clone, Debug)]
pub struct Tool {
    name: String,
    json: String,
    types: HashMap<String, Vec<String>>,
    required: bool,
}

impl Tool {
    /// From the JSON text of a function object: `{"name": ..., "description": ..., "parameters": {JSON schema}}`. Everything in it is shown
    /// to the model in the order it stands in.
    pub fn new(function: &str) -> Result<Self> {
        let wrong = |why: String| {
            Error::Input(format!(
                "A tool must be described by a JSON object with a name: {why}."
            ))
        };
        let json = json::as_python_writes(function).map_err(|e| wrong(e.to_string()))?;
        let value: Value = serde_json::from_str(&json).map_err(|e| wrong(e.to_string()))?;
        let name = match value.get("name").and_then(Value::as_str) {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => return Err(wrong("it has no name".into())),
        };
        let schema = value.get("parameters");
        let declared = |property: &Value| match property.get("type") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(several)) => several
                .iter()
                .filter_map(|t| t.as_str().map(str::to_owned))
                .collect(),
            _ => Vec::new(),
        };
        let types = schema
            .and_then(|s| s.get("properties"))
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(key, property)| (key.clone(), declared(property)))
            .collect();
        let required = schema
            .and_then(|s| s.get("required"))
            .and_then(Value::as_array)
            .is_some_and(|names| !names.is_empty());
        Ok(Self {
            name,
            json,
            types,
            required,
        })
    }

    /// Name of the tool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The function object as the model was trained to see it: on one line, `", "` and `": "` between the parts.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    /// JSON types a parameter may have; empty when any may.
    pub(super) fn types(&self, parameter: &str) -> &[String] {
        self.types.get(parameter).map_or(&[], Vec::as_slice)
    }

    /// Whether a call without arguments cannot be meant.
    pub(super) fn needs_arguments(&self) -> bool {
        self.required
    }
}
