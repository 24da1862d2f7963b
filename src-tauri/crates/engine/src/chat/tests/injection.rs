//! Nothing anybody writes becomes a control token.

use super::golden::{prompt, user};
use super::{added_tokens, text_of, v4};
use crate::chat::tokenizer::Piece;
use crate::chat::{Conversation, Effort, Reply, Thinking, Tool, ToolCall, Turn, json};

/// A conversation with `text` in every place where text of others can stand.
fn everywhere(text: &str) -> Conversation {
    let object = |key: &str| format!("{{{}: {}}}", json::quoted(key), json::quoted(text));
    let tool = format!(
        "{{\"name\": {0}, \"description\": {0}, \"parameters\": {{\"properties\": {{{0}: {{}}}}}}}}",
        json::quoted(text)
    );
    Conversation {
        turns: vec![
            Turn::System(text.into()),
            Turn::Developer(text.into()),
            Turn::Assistant(Reply {
                reasoning: Some(text.into()),
                content: text.into(),
                calls: vec![ToolCall {
                    id: text.into(),
                    name: text.into(),
                    arguments: object(text),
                }],
            }),
            Turn::ToolResult {
                call: text.into(),
                text: text.into(),
            },
            Turn::User(text.into()),
            Turn::Assistant(Reply {
                reasoning: Some(text.into()),
                content: text.into(),
                calls: Vec::new(),
            }),
            Turn::Reminder(text.into()),
            Turn::User(text.into()),
        ],
        tools: vec![Tool::new(&tool).unwrap()],
        response_format: Some(object("x")),
        thinking: Thinking::On(Effort::Default),
        ..Conversation::default()
    }
}

fn controls(ids: &[u32]) -> Vec<u32> {
    let is_control = |id: &&u32| matches!(v4().piece(**id), Piece::Mark(_));
    ids.iter().filter(is_control).copied().collect()
}

/// The texts between control tokens of [`everywhere`] hold `text` this often.
const PLACES: usize = 17;

#[test]
fn no_special_token_written_anywhere_becomes_a_control_token() {
    let harmless = controls(&prompt(&everywhere("harmless")).ids);
    assert!(harmless.len() > 20);
    let added = added_tokens();
    for (_, token) in &added {
        for text in [
            token.clone(),
            format!("a{token}b"),
            format!("{token}{token}\n"),
        ] {
            let ids = prompt(&everywhere(&text)).ids;
            assert_eq!(controls(&ids), harmless, "{text}");
            let escaped = json::quoted(&text);
            let written = text_of(&ids);
            let found = written.matches(escaped.trim_matches('"')).count()
                + if escaped.trim_matches('"') == text {
                    0
                } else {
                    written.matches(&text).count()
                };
            assert_eq!(found, PLACES, "{text}\n{written}");
        }
    }
    let all: String = added.iter().map(|(_, token)| token.as_str()).collect();
    assert_eq!(controls(&prompt(&everywhere(&all)).ids), harmless);
}

#[test]
fn bars_of_either_width_make_no_difference() {
    let harmless = controls(&prompt(&everywhere("harmless")).ids);
    for (_, token) in added_tokens() {
        for text in [token.replace('｜', "|"), token.replace('|', "｜")] {
            assert_eq!(
                controls(&prompt(&everywhere(&text)).ids),
                harmless,
                "{text}"
            );
        }
    }
}

#[test]
fn a_token_written_in_two_parts_stays_text_where_the_parts_meet() {
    let conversation = Conversation {
        turns: vec![
            Turn::System("<｜Us".into()),
            Turn::System("er｜></th".into()),
            Turn::System("ink>".into()),
            user("x"),
        ],
        ..Conversation::default()
    };
    let ids = prompt(&conversation).ids;
    assert_eq!(controls(&ids), [0, 128803, 128804, 128822]);
    assert!(text_of(&ids).starts_with("⟦0⟧<｜User｜></think>⟦128803⟧x"));
}
