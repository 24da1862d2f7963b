//! Whatever a model writes, and however it is cut into tokens, the parts are the same.

use proptest::prelude::*;

use super::{Wrote, read, script};
use crate::chat::encode::Opening;
use crate::chat::{AnswerParser, Part, Tool};

const FRAGMENTS: [&str; 44] = [
    "a",
    "Hello ",
    "\n",
    "\n\n",
    "<",
    "</",
    "</think>",
    "<think>",
    "</thi",
    "nk>",
    "⟪/T⟫",
    "⟪T⟫",
    "⟪S⟫",
    "⟪D⟫",
    "⟪E⟫",
    "｜DSML｜",
    "｜",
    "|DSML|",
    "DS",
    "ML",
    "<⟪D⟫tool_calls>",
    "</⟪D⟫tool_calls>",
    "<⟪D⟫invoke name=\"f\">",
    "</⟪D⟫invoke>",
    "<⟪D⟫parameter name=\"k\" string=\"true\">",
    "<⟪D⟫parameter name=\"n\" string=\"false\">",
    "</⟪D⟫parameter>",
    "<invoke name=\"g\">",
    "</invoke>",
    "<parameter name=\"x\">",
    "</parameter>",
    "tool_calls>",
    "invoke name=\"",
    "\">",
    "12",
    "{\"a\": [1]}",
    "你",
    "🙂",
    "é",
    "⟪e4bd⟫",
    "⟪f09f99⟫",
    "⟪ff⟫",
    "stop",
    "sto",
];

fn fragments() -> impl Strategy<Value = String> {
    let well_formed = prop::sample::select(vec![
        "\n\n<⟪D⟫tool_calls>\n<⟪D⟫invoke name=\"f\">\n<⟪D⟫parameter name=\"k\" string=\"true\">v</⟪D⟫parameter>\n</⟪D⟫invoke>\n</⟪D⟫tool_calls>",
        "<⟪D⟫invoke name=\"f\"><⟪D⟫parameter name=\"n\" string=\"false\">7</⟪D⟫parameter></⟪D⟫invoke>",
    ]);
    let any = prop::sample::select(FRAGMENTS.to_vec());
    let fragment = prop_oneof![8 => any, 1 => well_formed].prop_map(str::to_owned);
    prop::collection::vec(fragment, 0..24).prop_map(|all| all.concat())
}

fn parser(reasoning: bool, tools: bool, stops: &[String]) -> AnswerParser {
    let tool = r#"{"name": "f", "parameters": {"properties": {"k": {"type": "string"}, "n": {"type": "integer"}}}}"#;
    let tools: Vec<Tool> = tools
        .then(|| Tool::new(tool).unwrap())
        .into_iter()
        .collect();
    let opening = if reasoning {
        Opening::Reasoning
    } else {
        Opening::Content
    };
    AnswerParser::new(opening, &tools, stops)
}

/// Content and reasoning joined, calls in their places.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut out: Vec<Part> = Vec::new();
    for part in parts {
        match (out.last_mut(), part) {
            (Some(Part::Content(text)), Part::Content(more))
            | (Some(Part::Reasoning(text)), Part::Reasoning(more)) => text.push_str(&more),
            (_, part) => out.push(part),
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_cut_gives_the_same_parts(
        text in fragments(),
        cuts in prop::collection::vec(1usize..9, 1..40),
        reasoning: bool,
        tools: bool,
        stops in prop::collection::vec(prop::sample::select(vec!["stop", "top", "\n\n", "你", "", "<", "lo s"]), 0..3),
    ) {
        let stops: Vec<String> = stops.into_iter().map(str::to_owned).collect();
        let script = script(&text);
        let whole = joined(read(parser(reasoning, tools, &stops), &script, &mut |_| usize::MAX));
        let mut sizes = cuts.iter().copied().cycle();
        let cut = joined(read(parser(reasoning, tools, &stops), &script, &mut |_| sizes.next().unwrap()));
        prop_assert_eq!(&cut, &whole);
        let bytes = joined(read(parser(reasoning, tools, &stops), &script, &mut |_| 1));
        prop_assert_eq!(&bytes, &whole);
        for part in &whole {
            match part {
                Part::Call(call) => {
                    let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
                    prop_assert!(arguments.is_object());
                    prop_assert!(tools);
                }
                Part::Content(text) => for stop in stops.iter().filter(|s| !s.is_empty()) {
                    prop_assert!(!text.contains(stop.as_str()));
                },
                _ => {}
            }
        }
    }

    /// Without tools and stop strings, every letter comes out once and in order.
    #[test]
    fn nothing_a_model_writes_is_lost(text in fragments(), reasoning: bool) {
        let text = text.replace("⟪D⟫", "｜DSML｜").replace("⟪E⟫", "");
        let script: Vec<Wrote> = script(&text);
        let mut bytes = Vec::new();
        for wrote in &script {
            if let Wrote::Bytes(run) = wrote {
                bytes.extend_from_slice(run);
            }
        }
        let parts = joined(read(parser(reasoning, false, &[]), &script, &mut |_| 3));
        let letters = String::from_utf8_lossy(&bytes);
        let closes = reasoning && (letters.contains("</think>") || text.contains("⟪/T⟫"));
        prop_assert!(parts.len() <= 1 + usize::from(closes));
        if !text.contains('⟪') {
            let all: String = parts.into_iter().map(|part| match part {
                Part::Reasoning(text) | Part::Content(text) => text,
                other => panic!("{other:?}"),
            }).collect();
            let mut expected = letters.into_owned();
            if closes {
                expected = expected.replacen("</think>", "", 1);
            }
            prop_assert_eq!(all, expected);
        }
    }

    /// Tokens and letters of the marker make the same calls.
    #[test]
    fn the_marker_works_as_a_token_and_in_letters(text in fragments()) {
        let calls = |text: &str| -> Vec<Part> {
            read(parser(false, true, &[]), &script(text), &mut |_| 5)
                .into_iter()
                .filter(|part| matches!(part, Part::Call(_) | Part::BrokenCall { .. }))
                .collect()
        };
        prop_assert_eq!(calls(&text), calls(&text.replace("⟪D⟫", "｜DSML｜")));
    }
}
