//! The chat format of DeepSeek V4, thinking off: `BOS [system] <User>question<Assistant></think>answer EOS ...`, no newlines between
//! the parts, and the answer is opened by `<Assistant></think>`.
//!
//! Control tokens are pushed as ids; the text between two of them is tokenised by a tokenizer that has no control tokens, so nothing a
//! person or a file writes can become one.

use super::tokenizer::ChatTokenizer;
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

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who wrote it.
    pub role: Role,
    /// Untrusted text: can never become a control token.
    pub text: String,
}

/// The prompt that asks for the next answer. The last message is the user's.
pub(crate) fn encode(tokenizer: &ChatTokenizer, messages: &[Message]) -> Result<Vec<u32>> {
    if messages.last().map(|m| m.role) != Some(Role::User) {
        return Err(Error::Input(
            "A conversation must end with a message of the user.".into(),
        ));
    }
    let control = &tokenizer.control;
    let mut ids = vec![control.bos];
    let mut messages = messages.iter().enumerate().peekable();
    while let Some((i, message)) = messages.next() {
        match message.role {
            Role::System if i == 0 => tokenizer.encode(&message.text, &mut ids)?,
            Role::System => {
                return Err(Error::Input(
                    "A system message must be the first of the conversation.".into(),
                ));
            }
            Role::User => {
                // Messages of the user in a row are one turn, joined by a blank line and tokenised as a whole.
                let mut turn = message.text.clone();
                while let Some((_, next)) = messages.next_if(|(_, m)| m.role == Role::User) {
                    turn.push_str("\n\n");
                    turn.push_str(&next.text);
                }
                ids.push(control.user);
                tokenizer.encode(&turn, &mut ids)?;
                ids.extend([control.assistant, control.think_end]);
            }
            Role::Assistant => {
                tokenizer.encode(&message.text, &mut ids)?;
                ids.push(control.eos);
            }
        }
    }
    Ok(ids)
}
