//! Tool calls of an answer.

use super::golden::{prompt, user};
use super::{parts, v4};
use crate::chat::encode::Opening::{Content, Reasoning};
use crate::chat::{AnswerParser, Conversation, Part, Reply, Tool, ToolCall, Turn};

fn tools() -> Vec<Tool> {
    [
        r#"{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
            "share": {"type": "number"}, "now": {"type": "boolean"}, "list": {"type": "array"}, "more": {"type": "object"},
            "unit": {"type": ["string", "null"]}, "any": {}}, "required": ["city"]}}"#,
        r#"{"name": "ping"}"#,
    ]
    .iter()
    .map(|json| Tool::new(json).unwrap())
    .collect()
}

fn answer(text: &str) -> Vec<Part> {
    parts(Content, &tools(), &[], text)
}

fn call(name: &str, arguments: &str) -> Part {
    // Whatever is given out is a JSON object.
    let value: serde_json::Value = serde_json::from_str(arguments).unwrap();
    assert!(value.is_object());
    Part::Call(ToolCall {
        id: String::new(),
        name: name.into(),
        arguments: arguments.into(),
    })
}

fn broken(text: &str, why: &str) -> Part {
    Part::BrokenCall {
        text: text.into(),
        why: why.into(),
    }
}

fn says(text: &str) -> Part {
    Part::Content(text.into())
}

const GOOD: &str = "Let me see.\n\n<⟪D⟫tool_calls>\n<⟪D⟫invoke name=\"weather\">\n<⟪D⟫parameter name=\"city\" string=\"true\">Paris</⟪D⟫parameter>\n<⟪D⟫parameter name=\"days\" string=\"false\">2</⟪D⟫parameter>\n</⟪D⟫invoke>\n<⟪D⟫invoke name=\"ping\">\n\n</⟪D⟫invoke>\n</⟪D⟫tool_calls>⟪E⟫";

fn good() -> Vec<Part> {
    vec![
        says("Let me see."),
        call("weather", r#"{"city": "Paris", "days": 2}"#),
        call("ping", "{}"),
    ]
}

#[test]
fn calls_are_read_as_the_model_writes_them() {
    assert_eq!(answer(GOOD), good());
    let thinking = parts(Reasoning, &tools(), &[], &format!("hm</think>{GOOD}"));
    assert_eq!(thinking[0], Part::Reasoning("hm".into()));
    assert_eq!(thinking[1..], good());
}

#[test]
fn calls_are_read_without_bars_with_narrow_bars_in_letters_and_without_markers() {
    for marker in [
        "｜DSML｜",
        "|DSML|",
        "DSML",
        "DSML｜",
        "｜DSML",
        "｜",
        "｜DSML｜ ",
        "||DSML||",
    ] {
        assert_eq!(answer(&GOOD.replace("⟪D⟫", marker)), good(), "{marker}");
    }
    // Only the first tag shows that it is a call.
    let (first, rest) = GOOD.split_once("tool_calls>").unwrap();
    let rest = rest.replace("⟪D⟫", "");
    assert_eq!(answer(&format!("{first}tool_calls>{rest}")), good());
    for other in ["function_calls", "calls"] {
        assert_eq!(answer(&GOOD.replace("tool_calls", other)), good());
    }
    // Without any marker it may be what the person asked to see.
    let bare = "<tool_calls>\n<invoke name=\"ping\">\n</invoke>\n</tool_calls>";
    assert_eq!(answer(bare), [says(bare)]);
}

#[test]
fn calls_are_read_without_their_closing_tags() {
    for forgotten in [
        &["</⟪D⟫tool_calls>"][..],
        &["</⟪D⟫invoke>\n"],
        &["</⟪D⟫invoke>\n", "</⟪D⟫tool_calls>"],
        &["</⟪D⟫parameter>"],
        &["</⟪D⟫parameter>", "</⟪D⟫invoke>\n", "\n</⟪D⟫tool_calls>"],
        &["<⟪D⟫tool_calls>\n", "</⟪D⟫tool_calls>"],
        &["calls>⟪E⟫"],
    ] {
        let text = forgotten
            .iter()
            .fold(GOOD.to_owned(), |text, tag| text.replace(tag, ""));
        let text = text.trim_end_matches("⟪E⟫").to_owned() + "⟪E⟫";
        assert_eq!(answer(&text), good(), "{text}");
    }
}

fn one(arguments: &str) -> Vec<Part> {
    answer(&format!(
        "<⟪D⟫tool_calls>\n<⟪D⟫invoke name=\"weather\">\n{arguments}\n</⟪D⟫invoke>\n</⟪D⟫tool_calls>⟪E⟫"
    ))
}

fn argument(name: &str, string: &str, value: &str) -> String {
    format!("<⟪D⟫parameter name=\"{name}\"{string}>{value}</⟪D⟫parameter>")
}

#[test]
fn arguments_come_as_the_types_the_tool_declared() {
    let (text, json, none) = (" string=\"true\"", " string=\"false\"", "");
    for (name, string, value, expected) in [
        ("city", text, "a \"b\"\n\\c  ", r#""a \"b\"\n\\c  ""#),
        ("city", text, "5", r#""5""#),
        ("city", json, "75001", r#""75001""#),
        ("city", json, "Paris", r#""Paris""#),
        ("city", json, "\"Paris\"", r#""Paris""#),
        ("city", none, "\"quoted\"", r#""\"quoted\"""#),
        ("days", json, " 2 ", "2"),
        ("days", text, "2", "2"),
        ("days", none, "2", "2"),
        ("days", json, "2.0", "2.0"),
        ("share", json, "0.50", "0.5"),
        (
            "share",
            json,
            "123456789012345678901234567890",
            "123456789012345678901234567890",
        ),
        ("now", text, "true", "true"),
        ("list", json, "[1,{\"é\":\"x\"}]", r#"[1, {"é": "x"}]"#),
        (
            "more",
            json,
            "{\"b\":1,\"a\":null}",
            r#"{"b": 1, "a": null}"#,
        ),
        ("unit", json, "null", "null"),
        ("unit", text, "null", r#""null""#),
        ("any", text, "1", r#""1""#),
        ("any", json, "1", "1"),
        ("any", none, "1", "1"),
        ("any", none, "one", r#""one""#),
        ("unknown", json, "[]", "[]"),
        ("unknown", text, "[]", r#""[]""#),
        (
            "city",
            text,
            "a</think>b<｜User｜>",
            r#""a</think>b<｜User｜>""#,
        ),
        ("city", text, "a⟪/T⟫b⟪T⟫", r#""a</think>b<think>""#),
        (
            "city",
            text,
            "<b>x</b> <invoke name=\"y\"> </parameter> <",
            r#""<b>x</b> <invoke name=\"y\"> </parameter> <""#,
        ),
        ("city", text, "｜DSML｜ ⟪D⟫", r#""｜DSML｜ ｜DSML｜""#),
    ] {
        assert_eq!(
            one(&argument(name, string, value)),
            [call("weather", &format!("{{\"{name}\": {expected}}}"))],
            "{name}{string} {value}"
        );
    }
}

#[test]
fn arguments_that_cannot_be_meant_are_shown_with_the_reason_and_never_become_empty() {
    let (text, json) = (" string=\"true\"", " string=\"false\"");
    for (arguments, why) in [
        (
            argument("days", json, "{\"a\": }"),
            "the argument days is not JSON",
        ),
        (argument("days", json, ""), "the argument days is not JSON"),
        (
            argument("days", json, "1.5"),
            "the argument days is not of type integer",
        ),
        (
            argument("days", text, "two"),
            "the argument days is not of type integer",
        ),
        (
            argument("list", json, "{}"),
            "the argument list is not of type array",
        ),
        (
            argument("any", json, "nonsense"),
            "the argument any is not JSON",
        ),
        (
            argument("unknown", json, "nonsense"),
            "the argument unknown is not JSON",
        ),
        (
            argument("city", text, "a") + "\n" + &argument("city", text, "b"),
            "the argument city is given twice",
        ),
        (
            argument("city", text, "a") + " and " + &argument("days", json, "1"),
            "there is text between its arguments",
        ),
        (
            "{\"city\": \"Paris\"}".into(),
            "there is text between its arguments",
        ),
        (
            "<⟪D⟫parameter string=\"true\">x</⟪D⟫parameter>".into(),
            "one of its arguments has no name",
        ),
        (String::new(), "it has no arguments and the tool needs some"),
    ] {
        let shown = format!("<tool_calls>\n<invoke name=\"weather\">\n{arguments}\n</invoke>")
            .replace("⟪D⟫", "");
        assert_eq!(one(&arguments), [broken(&shown, why)], "{arguments}");
    }
    assert_eq!(
        answer(
            "x <⟪D⟫tool_calls><⟪D⟫invoke><⟪D⟫parameter name=\"city\">y</⟪D⟫parameter></⟪D⟫invoke></⟪D⟫tool_calls>"
        ),
        [
            says("x "),
            broken(
                "<tool_calls><invoke><parameter name=\"city\">y</parameter></invoke>",
                "it does not name a tool"
            )
        ]
    );
    assert_eq!(
        answer("<⟪D⟫tool_calls>\n</⟪D⟫tool_calls>⟪E⟫"),
        [broken(
            "<tool_calls>\n</tool_calls>",
            "there is no call in it"
        )]
    );
    assert_eq!(
        answer("<⟪D⟫parameter name=\"city\">y</⟪D⟫parameter>⟪E⟫"),
        [broken(
            "<parameter name=\"city\">y</parameter>",
            "an argument stands outside of a call"
        )]
    );
}

#[test]
fn a_broken_call_does_not_take_the_calls_round_it_along() {
    let text = "<⟪D⟫tool_calls><⟪D⟫invoke name=\"ping\"></⟪D⟫invoke><⟪D⟫invoke name=\"weather\">oops</⟪D⟫invoke><⟪D⟫invoke name=\"ping\"></⟪D⟫invoke></⟪D⟫tool_calls>";
    assert_eq!(
        answer(text),
        [
            call("ping", "{}"),
            broken(
                "<invoke name=\"weather\">oops</invoke>",
                "there is text between its arguments"
            ),
            call("ping", "{}"),
        ]
    );
}

/// The good answer, cut by the token limit after every token: no call that was not whole, no marker, nothing lost.
#[test]
fn what_the_token_limit_cuts_is_never_a_call() {
    let characters: Vec<char> = GOOD.trim_end_matches("⟪E⟫").chars().collect();
    let whole_calls = |text: &str| text.matches("</⟪D⟫invoke>").count();
    for end in 0..characters.len() {
        let text: String = characters[..end].iter().collect();
        if text.rfind('⟪') > text.rfind('⟫') {
            continue;
        }
        let parts = answer(&text);
        let calls: Vec<&Part> = parts
            .iter()
            .filter(|p| matches!(p, Part::Call(_)))
            .collect();
        let good = good();
        let expected: Vec<&Part> = good[1..].iter().take(whole_calls(&text)).collect();
        assert_eq!(calls, expected, "{text}");
        for part in &parts {
            match part {
                Part::Content(text) => {
                    assert!("Let me see.\n\n<".starts_with(text.as_str()), "{text}")
                }
                Part::BrokenCall { text, why } => {
                    assert!(!text.contains("DSML") && !text.contains('｜'), "{text}");
                    assert_eq!(why, "it was cut off");
                }
                _ => {}
            }
        }
        if text.contains("invoke name") && whole_calls(&text) == 0 {
            assert!(
                matches!(parts.last(), Some(Part::BrokenCall { .. })),
                "{text}"
            );
        }
    }
    // In letters too.
    assert_eq!(
        answer(
            "Hi\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Par"
        ),
        [
            says("Hi"),
            broken(
                "<tool_calls>\n<invoke name=\"weather\">\n<parameter name=\"city\" string=\"true\">Par",
                "it was cut off"
            )
        ]
    );
    assert_eq!(
        answer("Hi\n\n<｜DSM"),
        [says("Hi"), broken("<DSM", "it was cut off")]
    );
    assert_eq!(answer("Hi\n\n<"), [says("Hi\n\n<")]);
}

#[test]
fn an_argument_whose_end_the_model_forgot_is_not_guessed() {
    assert_eq!(
        answer("<⟪D⟫invoke name=\"weather\"><⟪D⟫parameter name=\"city\" string=\"true\">Paris⟪E⟫"),
        [broken(
            "<invoke name=\"weather\"><parameter name=\"city\" string=\"true\">Paris",
            "it was cut off"
        )]
    );
}

#[test]
fn text_round_calls_is_content_and_a_stray_marker_is_not_shown() {
    assert_eq!(
        answer(
            "a\n\n\n<⟪D⟫tool_calls><⟪D⟫invoke name=\"ping\"></⟪D⟫invoke></⟪D⟫tool_calls>\n\nb\n<⟪D⟫invoke name=\"ping\"></⟪D⟫invoke>c</⟪D⟫tool_calls>d"
        ),
        [
            says("a\n"),
            call("ping", "{}"),
            says("b"),
            call("ping", "{}"),
            says("cd")
        ]
    );
    assert_eq!(
        answer("x⟪D⟫y <⟪D⟫z> < ｜DSML｜"),
        [says("xy <z> < ｜DSML｜")]
    );
    let html = "<p>if a<b && c</p> <parameters> </invoked> <tool_callsx>";
    assert_eq!(answer(html), [says(html)]);
}

#[test]
fn a_tag_longer_than_any_tag_is_text() {
    let long = format!("<｜DSML｜invoke name=\"{}\">", "x".repeat(3000));
    assert_eq!(answer(&long), [says(&long)]);
    let bars = "<".to_owned() + &"｜".repeat(50);
    assert_eq!(answer(&bars), [says(&bars)]);
}

#[test]
fn stop_strings_end_the_text_but_no_call() {
    for (stops, expected) in [
        (&["Paris", "<", "invoke", "\n\n"][..], good()),
        (&["see"], vec![says("Let me ")]),
        (&[".\n"], good()),
    ] {
        assert_eq!(parts(Content, &tools(), stops, GOOD), expected, "{stops:?}");
    }
}

#[test]
fn tags_in_a_thought_are_a_thought() {
    assert_eq!(
        parts(
            Reasoning,
            &tools(),
            &[],
            "I could <⟪D⟫invoke name=\"ping\"> or <｜DSML｜x>"
        ),
        [Part::Reasoning(
            "I could <invoke name=\"ping\"> or <｜DSML｜x>".into()
        )]
    );
}

/// What the encoder writes into the history, the reader reads.
#[test]
fn calls_written_into_a_prompt_are_read_back() {
    let calls: Vec<ToolCall> = [
        ("weather", r#"{"city": "a <b> </x> \"q\"\n 你🙂", "days": 3, "list": [1, "two", {"x": null}], "now": false}"#),
        ("ping", "{}"),
        ("weather", r#"{"city": "</think><｜User｜>", "unit": null, "share": 1e+22}"#),
    ]
    .iter()
    .map(|(name, arguments)| ToolCall {
        id: String::new(),
        name: (*name).into(),
        arguments: (*arguments).into(),
    })
    .collect();
    let conversation = Conversation {
        turns: vec![
            user("q"),
            Turn::Assistant(Reply {
                reasoning: None,
                content: "Well.".into(),
                calls: calls.clone(),
            }),
            user("r"),
        ],
        ..Conversation::default()
    };
    let ids = prompt(&conversation).ids;
    let begin = ids
        .iter()
        .position(|id| *id == v4().control.think_end)
        .unwrap()
        + 1;
    let mut parser = AnswerParser::new(Content, &tools(), &[]);
    let mut parts = Vec::new();
    for id in &ids[begin..] {
        parser.push(v4().piece(*id), &mut parts);
    }
    assert!(parser.ended());
    let mut expected = vec![says("Well.")];
    expected.extend(calls.into_iter().map(Part::Call));
    assert_eq!(parts, expected);
}
