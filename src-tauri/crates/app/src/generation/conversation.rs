//! From the rows of a chat to the conversation that the engine reads.

use fastar_api::{Attachment, Message, MessageStatus, NewMessage, Role, Thinking};
use fastar_engine::{Conversation, Effort, Reply, Turn};

/// The conversation before an answer. `messages` are those of the chat up to it; `begun` is what there is of it already.
pub(super) fn before_answer(
    system: &str,
    messages: Vec<Message>,
    thinking: Thinking,
    begun: Option<Message>,
) -> Conversation {
    // An answer that failed before its first word is no part of the conversation, nor is the message that it failed at: it was
    // never taken in, and one that is too long would make all later ones fail.
    let failed = |message: &Message| {
        message.role == Role::Assistant
            && message.status == MessageStatus::Failed
            && message.text.is_empty()
    };
    let refused: Vec<String> = messages
        .windows(2)
        .filter(|pair| pair[0].role == Role::User && failed(&pair[1]))
        .map(|pair| pair[0].id.clone())
        .collect();
    let kept = messages.into_iter().filter(|message| match message.role {
        Role::User => !refused.contains(&message.id),
        Role::Assistant => !message.text.is_empty(),
    });
    let system = (!system.trim().is_empty()).then(|| Turn::System(system.to_owned()));
    Conversation {
        turns: system
            .into_iter()
            .chain(kept.chain(begun).map(turn))
            .collect(),
        thinking: match thinking {
            Thinking::Off => fastar_engine::Thinking::Off,
            Thinking::On => fastar_engine::Thinking::On(Effort::Default),
            Thinking::Max => fastar_engine::Thinking::On(Effort::Max),
        },
        ..Conversation::default()
    }
}

fn turn(message: Message) -> Turn {
    match message.role {
        Role::User => Turn::User(with_files(&message.text, &message.attachments)),
        Role::Assistant => Turn::Assistant(Reply {
            reasoning: message.reasoning,
            content: message.text,
            calls: Vec::new(),
        }),
    }
}

/// What the model reads of a new message.
pub(super) fn text_of(message: &NewMessage) -> String {
    with_files(&message.text, &message.attachments)
}

/// Files before the text, as DeepSeek's own application writes them (their README, "Official Prompts").
fn with_files(text: &str, files: &[Attachment]) -> String {
    let mut out = String::new();
    for Attachment { name, text } in files {
        out += &format!("[file name]: {name}\n[file content begin]\n{text}\n[file content end]\n");
    }
    out + text
}
