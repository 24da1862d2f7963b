//! Prompts, id by id, as DeepSeek's own encoder makes them.

use fastar_fst::EffortTable;
use serde::Deserialize;

use super::{data, sha256, text_of, v4};
use crate::chat::encode::{Opening, Prompt, encode};
use crate::chat::{
    Conversation, Effort, Message, Reply, Role, Task, Thinking, Tool, ToolCall, Turn, protocol,
};

pub(super) fn user(text: &str) -> Turn {
    Turn::User(text.into())
}

pub(super) fn said(content: &str, reasoning: &str) -> Turn {
    Turn::Assistant(Reply {
        reasoning: Some(reasoning.into()),
        content: content.into(),
        calls: Vec::new(),
    })
}

pub(super) fn prompt(conversation: &Conversation) -> Prompt {
    encode(v4(), conversation, EffortTable::Preview).unwrap()
}

fn of(turns: Vec<Turn>, thinking: Thinking) -> Conversation {
    Conversation {
        turns,
        thinking,
        ..Conversation::default()
    }
}

const ON: Thinking = Thinking::On(Effort::Default);

#[test]
fn protocol_texts_are_byte_for_byte_those_the_model_was_trained_with() {
    for (text, bytes, hash) in [
        (
            protocol::TOOLS,
            1075,
            "09b7269daaddbeaf11a3ed55c07b1846c35162b841d8b4301bbe0449879d1fd8",
        ),
        (
            protocol::RESPONSE_FORMAT,
            88,
            "012f31fcc1338bdfe25b132eaf56ab020ee75ab8e649f37b30b8e5f544fb17a5",
        ),
        (
            protocol::EFFORT_ABSOLUTE,
            476,
            "f7a24f3b3050d4a83781e9b755b316aae2ec1d9dc87562541d90bcb04d7350f7",
        ),
        (
            protocol::EFFORT_BEYOND,
            528,
            "53fb31b8392ec5b4a926481943efc67636748f137c1a49d493a7af4d4fa55d2c",
        ),
    ] {
        assert_eq!((text.len(), sha256(text.as_bytes())), (bytes, hash.into()));
    }
}

/// B = BOS, U = <User>, A = <Assistant>, T = <think>, S = </think>, E = EOS.
#[test]
fn the_worked_examples_have_their_ids() {
    let two = || vec![user("a"), said("b", "r1"), user("c")];
    let keeping = Conversation {
        drop_reasoning: false,
        ..of(two(), ON)
    };
    let title = Conversation {
        task: Some(Task::Title),
        ..of(two(), Thinking::Off)
    };
    let system = |s: &str, u: &str| vec![Turn::System(s.into()), user(u)];
    for (conversation, opening, ids) in [
        (
            of(vec![user("Hello")], ON),
            Opening::Reasoning,
            &[0, 128803, 19923, 128804, 128821][..],
        ),
        (
            of(system("Be brief.", "Hello"), Thinking::Off),
            Opening::Content,
            &[0, 7153, 9708, 16, 128803, 19923, 128804, 128822],
        ),
        (
            of(
                system("You are a helpful assistant.", "What is 2+2?"),
                Thinking::Off,
            ),
            Opening::Content,
            &[
                0, 3476, 477, 260, 11502, 22896, 16, 128803, 3085, 344, 223, 20, 13, 20, 33,
                128804, 128822,
            ],
        ),
        (
            of(two(), ON),
            Opening::Reasoning,
            &[
                0, 128803, 67, 128804, 128822, 68, 1, 128803, 69, 128804, 128821,
            ],
        ),
        (
            keeping,
            Opening::Reasoning,
            &[
                0, 128803, 67, 128804, 128821, 84, 19, 128822, 68, 1, 128803, 69, 128804, 128821,
            ],
        ),
        (
            of(two(), Thinking::Off),
            Opening::Content,
            &[
                0, 128803, 67, 128804, 128822, 68, 1, 128803, 69, 128804, 128822,
            ],
        ),
        (
            of(vec![user("a"), user("b")], Thinking::Off),
            Opening::Content,
            &[0, 128803, 67, 271, 68, 128804, 128822],
        ),
        (
            of(
                vec![
                    Turn::System("s1".into()),
                    user("a"),
                    Turn::System("s2".into()),
                    user("b"),
                ],
                Thinking::Off,
            ),
            Opening::Content,
            &[0, 85, 19, 128803, 306, 20, 128803, 68, 128804, 128822],
        ),
        (
            of(vec![user("a"), said("b", "")], Thinking::Off),
            Opening::Content,
            &[0, 128803, 67, 128804, 128822, 68],
        ),
        (
            of(vec![Turn::Reminder("2026-11-01".into()), user("a")], ON),
            Opening::Reasoning,
            &[
                0, 128828, 939, 24, 15, 779, 15, 2616, 128803, 67, 128804, 128821,
            ],
        ),
        (
            title,
            Opening::Content,
            &[0, 128803, 67, 128804, 128822, 68, 1, 128803, 69, 128836],
        ),
    ] {
        let prompt = prompt(&conversation);
        assert_eq!(prompt.ids, ids, "{}", text_of(&prompt.ids));
        assert_eq!(prompt.opening, opening);
    }
    let max = prompt(&of(vec![user("Hi")], Thinking::On(Effort::Max)));
    assert_eq!(max.ids.len(), 84);
    assert_eq!(max.ids[..6], [0, 77666, 288, 9504, 482, 28]);
    assert_eq!(max.ids[79..], [339, 128803, 23166, 128804, 128821]);
}

#[test]
fn the_tools_text_has_its_228_tokens_with_think_tags_as_tokens() {
    let conversation = Conversation {
        tools: vec![Tool::new(r#"{"name":"x"}"#).unwrap()],
        ..of(vec![user("Hi")], Thinking::Off)
    };
    let ids = prompt(&conversation).ids;
    // BOS and the blank line before, the question and <Assistant></think> behind.
    let section = &ids[2..ids.len() - 4];
    assert_eq!(ids[..2], [0, 271]);
    assert_eq!(section.len(), 228);
    let rendered = text_of(section)
        .replace("⟦128825⟧", "｜DSML｜")
        .replace("⟦128821⟧", "<think>")
        .replace("⟦128822⟧", "</think>");
    assert_eq!(rendered.len(), 1002);
    assert_eq!(
        sha256(rendered.as_bytes()),
        "dc9e31da74f1937e315337539b4a430dc16b56526b6f2208748cb3a0335979ee"
    );
}

fn weather() -> Turn {
    Turn::Assistant(Reply {
        reasoning: Some("need tool".into()),
        content: String::new(),
        calls: vec![ToolCall {
            id: "c1".into(),
            name: "get_weather".into(),
            arguments: r#"{"city":"Paris","days":2}"#.into(),
        }],
    })
}

#[test]
fn a_call_in_the_history_has_the_ids_of_its_tags() {
    let conversation = Conversation {
        tools: vec![Tool::new(r#"{"name":"get_weather"}"#).unwrap()],
        ..of(
            vec![
                Turn::System("Sys".into()),
                user("Weather?"),
                weather(),
                Turn::ToolResult {
                    call: "c1".into(),
                    text: "18C".into(),
                },
                user("and tomorrow?"),
            ],
            ON,
        )
    };
    let prompt = prompt(&conversation);
    let call = [
        271, 30, 128825, 72461, 4941, 12548, 1018, 30, 128825, 40148, 5406, 2329, 1281, 1133, 65,
        50219, 3816, 30, 128825, 41523, 2329, 1281, 37399, 4, 3418, 1281, 11476, 3320, 51119, 1718,
        128825, 41523, 1018,
    ];
    assert!(prompt.ids.windows(call.len()).any(|ids| ids == call));
    let end = [
        1018, 1718, 128825, 40148, 5406, 1018, 1718, 128825, 72461, 4941, 12548, 32, 1,
    ];
    assert!(prompt.ids.windows(end.len()).any(|ids| ids == end));
    let text = text_of(&prompt.ids);
    assert!(
        text.ends_with("⟦128803⟧<tool_result>18C</tool_result>\n\nand tomorrow?⟦128804⟧⟦128821⟧"),
        "{text}"
    );
    // `>` and the blank line are one token: a turn is tokenised as a whole.
    assert!(prompt.ids.contains(&4697));
}

#[derive(Deserialize)]
struct Case {
    name: String,
    messages: Vec<CaseMessage>,
    thinking: Option<String>,
    table: String,
    drop: bool,
    tools: Vec<String>,
    response_format: Option<String>,
    task: Option<String>,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct CaseMessage {
    role: String,
    content: String,
    reasoning_content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<CaseCall>,
    #[serde(default)]
    tool_call_id: String,
}

#[derive(Deserialize)]
struct CaseCall {
    id: String,
    name: String,
    arguments: String,
}

impl From<CaseMessage> for Turn {
    fn from(m: CaseMessage) -> Self {
        match m.role.as_str() {
            "system" => Turn::System(m.content),
            "user" => Turn::User(m.content),
            "developer" => Turn::Developer(m.content),
            "latest_reminder" => Turn::Reminder(m.content),
            "tool" => Turn::ToolResult {
                call: m.tool_call_id,
                text: m.content,
            },
            "assistant" => Turn::Assistant(Reply {
                reasoning: m.reasoning_content,
                content: m.content,
                calls: m
                    .tool_calls
                    .into_iter()
                    .map(|c| ToolCall {
                        id: c.id,
                        name: c.name,
                        arguments: c.arguments,
                    })
                    .collect(),
            }),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn prompts_are_id_by_id_those_of_the_published_encoder() {
    let cases: Vec<Case> =
        serde_json::from_slice(&std::fs::read(data("conversations.json")).unwrap()).unwrap();
    assert_eq!(cases.len(), 47);
    for case in cases {
        let conversation = Conversation {
            turns: case.messages.into_iter().map(Turn::from).collect(),
            tools: case.tools.iter().map(|t| Tool::new(t).unwrap()).collect(),
            response_format: case.response_format,
            thinking: match case.thinking.as_deref() {
                None => Thinking::Off,
                Some("default") => ON,
                Some("high") => Thinking::On(Effort::High),
                Some("max") => Thinking::On(Effort::Max),
                Some(other) => panic!("{other}"),
            },
            drop_reasoning: case.drop,
            task: case.task.as_deref().map(|task| match task {
                "action" => Task::Action,
                "query" => Task::Query,
                "authority" => Task::Authority,
                "domain" => Task::Domain,
                "title" => Task::Title,
                "read_url" => Task::ReadUrl,
                other => panic!("{other}"),
            }),
        };
        let table = match case.table.as_str() {
            "preview" => EffortTable::Preview,
            "0731" => EffortTable::V0731,
            other => panic!("{other}"),
        };
        let prompt = encode(v4(), &conversation, table).unwrap();
        assert_eq!(
            prompt.ids,
            case.ids,
            "{}\n{}\n{}",
            case.name,
            text_of(&prompt.ids),
            text_of(&case.ids)
        );
    }
}

#[test]
fn an_answer_cut_off_while_thinking_goes_on_thinking() {
    let conversation = of(vec![user("a"), said("", "r1")], ON);
    let prompt = prompt(&conversation);
    assert_eq!(prompt.ids, [0, 128803, 67, 128804, 128821, 84, 19]);
    assert_eq!(prompt.opening, Opening::Reasoning);
}

#[test]
fn conversations_the_format_has_no_place_for_are_refused_with_the_reason() {
    let calling = |arguments: &str| {
        let mut turn = weather();
        if let Turn::Assistant(reply) = &mut turn {
            reply.calls[0].arguments = arguments.into();
        }
        vec![user("a"), turn, user("b")]
    };
    for (turns, reason) in [
        (vec![], "must end with a message of the user"),
        (
            vec![Turn::System("s".into())],
            "must end with a message of the user",
        ),
        (vec![said("hi", "")], "follows a message of the user"),
        (
            vec![user("a"), said("b", ""), said("c", "")],
            "follows a message of the user",
        ),
        (vec![user("a"), weather()], "needs the results of the tools"),
        (
            vec![user("a"), Turn::Reminder("r".into()), user("b")],
            "Message 2: a reminder must stand before",
        ),
        (
            vec![Turn::Developer(String::new())],
            "Message 1: a developer message must not be empty",
        ),
        (
            calling("\"not an object\""),
            "arguments of the call of get_weather are not a JSON object",
        ),
        (
            calling(""),
            "arguments of the call of get_weather are not a JSON object",
        ),
        (
            calling("{\"a\": }"),
            "arguments of the call of get_weather are not a JSON object",
        ),
        (
            calling("[1]"),
            "arguments of the call of get_weather are not a JSON object",
        ),
    ] {
        let error = encode(v4(), &of(turns, ON), EffortTable::Preview).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    let schema = Conversation {
        response_format: Some("{".into()),
        ..of(vec![user("a")], ON)
    };
    let error = encode(v4(), &schema, EffortTable::Preview).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("response format must be a JSON schema"),
        "{error}"
    );
    for tool in [
        "",
        "[]",
        "{}",
        r#"{"name": 3}"#,
        r#"{"name": ""}"#,
        "{\"name\": \"x\"",
    ] {
        let error = Tool::new(tool).unwrap_err().to_string();
        assert!(error.contains("JSON object with a name"), "{error}");
    }
}

#[test]
fn plain_messages_are_a_conversation_without_thinking() {
    let message = |role, text: &str| Message {
        role,
        text: text.into(),
    };
    let messages = [
        message(Role::System, "s"),
        message(Role::User, "a"),
        message(Role::Assistant, "b"),
        message(Role::User, "c"),
    ];
    let turns = vec![
        Turn::System("s".into()),
        user("a"),
        said("b", ""),
        user("c"),
    ];
    assert_eq!(
        prompt(&Conversation::of(&messages).unwrap()).ids,
        prompt(&of(turns, Thinking::Off)).ids
    );
    for wrong in [&messages[..1], &messages[..3], &[]] {
        let error = Conversation::of(wrong).unwrap_err().to_string();
        assert!(
            error.contains("must end with a message of the user"),
            "{error}"
        );
    }
    let late = [
        messages[1].clone(),
        messages[0].clone(),
        messages[3].clone(),
    ];
    let error = Conversation::of(&late).unwrap_err().to_string();
    assert!(
        error.contains("system message must be the first"),
        "{error}"
    );
}
