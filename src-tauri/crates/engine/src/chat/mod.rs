//! Conversations: from turns to the ids of a prompt, and from the tokens of an answer to its parts.
//!
//! The format is that of DeepSeek V4 ([`protocol`]). Not in here: the model, sampling, and who keeps conversations.

mod answer;
mod arguments;
mod calls;
mod conversation;
mod dsml;
mod encode;
mod held;
mod json;
mod protocol;
mod stop;
mod stream;
mod tokenizer;

#[cfg(test)]
mod tests;

pub(crate) use answer::{AnswerParser, Part};
pub use conversation::{
    Conversation, Effort, Message, Reply, Role, Task, Thinking, Tool, ToolCall, Turn,
};
pub(crate) use encode::encode;
pub(crate) use tokenizer::ChatTokenizer;
