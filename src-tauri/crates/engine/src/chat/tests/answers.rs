//! Reasoning, text and stop strings of an answer.

use super::{parts, script, v4};
use crate::chat::encode::Opening::{self, Content, Reasoning};
use crate::chat::tokenizer::{Mark, Piece};
use crate::chat::{AnswerParser, Part, Tool};

fn thought(text: &str) -> Part {
    Part::Reasoning(text.into())
}

fn says(text: &str) -> Part {
    Part::Content(text.into())
}

fn plain(opening: Opening, text: &str) -> Vec<Part> {
    parts(opening, &[], &[], text)
}

#[test]
fn reasoning_and_answer_are_told_apart_by_a_closing_tag_alone() {
    for text in [
        "abc⟪/T⟫xyz⟪E⟫",
        "abc</think>xyz⟪E⟫",
        "⟪T⟫abc⟪/T⟫xyz",
        "abc</th⟪S⟫ink>xyz",
    ] {
        assert_eq!(
            plain(Reasoning, text),
            [thought("abc"), says("xyz")],
            "{text}"
        );
    }
    assert_eq!(
        plain(
            Reasoning,
            "a </think b</thin</think>\n\nx</think>⟪/T⟫y<think>"
        ),
        [thought("a </think b</thin"), says("\n\nx</think>y<think>")]
    );
    assert_eq!(plain(Reasoning, "⟪/T⟫x"), [says("x")]);
    assert_eq!(plain(Reasoning, "</think>"), []);
}

#[test]
fn with_thinking_off_all_letters_are_the_answer() {
    assert_eq!(
        plain(
            Content,
            "Use <think> and </think>, ｜DSML｜, <｜User｜> here.⟪E⟫"
        ),
        [says("Use <think> and </think>, ｜DSML｜, <｜User｜> here.")]
    );
    assert_eq!(plain(Content, "a⟪T⟫b⟪/T⟫c⟪S⟫d"), [says("abcd")]);
    assert_eq!(
        plain(Content, "ends in <\n\n<\n\n"),
        [says("ends in <\n\n<\n\n")]
    );
}

#[test]
fn an_answer_that_stops_while_thinking_is_reasoning_only() {
    assert_eq!(
        plain(Reasoning, "one two </thi"),
        [thought("one two </thi")]
    );
    assert_eq!(plain(Reasoning, "one two⟪E⟫"), [thought("one two")]);
}

#[test]
fn characters_are_whole_whatever_the_tokens_are_and_at_the_end_too() {
    let text = "修复🙂👨\u{200d}👩\u{200d}👧e\u{301}";
    assert_eq!(plain(Content, text), [says(text)]);
    assert_eq!(plain(Reasoning, text), [thought(text)]);
    assert_eq!(plain(Content, "a⟪e4bd⟫"), [says("a\u{fffd}")]);
    assert_eq!(plain(Content, "a⟪f09f⟫⟪E⟫b"), [says("a\u{fffd}")]);
    assert_eq!(
        plain(Reasoning, "a⟪f09f⟫⟪/T⟫b"),
        [thought("a\u{fffd}"), says("b")]
    );
    assert_eq!(
        plain(Content, "⟪ff⟫x⟪c0af⟫"),
        [says("\u{fffd}x\u{fffd}\u{fffd}")]
    );
    // A token without meaning inside of a character does not break it.
    assert_eq!(plain(Content, "⟪e4bd⟫⟪S⟫⟪a0⟫"), [says("你")]);
}

#[test]
fn the_answer_ends_before_a_stop_string_however_it_is_cut() {
    let fox = "The quick brown fox ab";
    for (stops, text) in [
        (&["own fox"][..], "The quick br"),
        (&["ox"], "The quick brown f"),
        (&["b fox"], fox),
        (&["brown", "quick"], "The "),
        (&[" "], "The"),
        (&[""], fox),
        (&["abc"], fox),
        (&["v", "w", "x", "y", "z"], "The quick bro"),
    ] {
        assert_eq!(parts(Content, &[], stops, fox), [says(text)], "{stops:?}");
    }
    assert_eq!(parts(Content, &[], &["好🙂"], "你好好🙂x"), [says("你好")]);
    assert_eq!(parts(Content, &[], &["\n\n"], "a\nb\n\nc"), [says("a\nb")]);
    assert_eq!(parts(Content, &[], &["<"], "a<b"), [says("a")]);
    assert_eq!(parts(Content, &[], &["The"], fox), []);
    // What was a thought ends nothing.
    assert_eq!(
        parts(Reasoning, &[], &["b"], "abc</think>xbz"),
        [thought("abc"), says("x")]
    );
}

#[test]
fn nothing_comes_after_the_end_of_a_turn() {
    for text in [
        "Hi⟪E⟫there⟪E⟫",
        "Hi⟪D⟫x",
        "Hi\n\n<⟪D⟫tool_calls>\n<⟪D⟫invoke name=\"x\">",
    ] {
        assert_eq!(plain(Content, text), [says("Hi")], "{text}");
    }
    let ends = [
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜latest_reminder｜>",
        "<|EOT|>",
    ];
    for end in ends {
        let mut parser = AnswerParser::new(Content, &[], &[]);
        let mut parts = Vec::new();
        let mut ids = Vec::new();
        v4().encode("Hi", &mut ids).unwrap();
        ids.push(v4().control_named(end).unwrap());
        v4().encode("there", &mut ids).unwrap();
        for id in ids {
            parser.push(v4().piece(id), &mut parts);
        }
        assert!(parser.ended());
        assert_eq!(parts, [says("Hi")], "{end}");
    }
}

#[test]
fn every_control_token_of_the_model_is_silent_or_ends_the_answer() {
    for (id, text) in super::added_tokens() {
        let Piece::Mark(mark) = v4().piece(id) else {
            panic!("{text} has bytes");
        };
        let mut parser = AnswerParser::new(Content, &[Tool::new("{\"name\":\"x\"}").unwrap()], &[]);
        let mut parts = Vec::new();
        parser.push(Piece::Bytes(b"a"), &mut parts);
        parser.push(Piece::Mark(mark), &mut parts);
        parser.push(Piece::Bytes(b"b"), &mut parts);
        parser.finish(false, &mut parts);
        let expected = if mark == Mark::End { "a" } else { "ab" };
        assert_eq!(parts, [says(expected)], "{text}");
    }
    // Ids the vocabulary has no entry for.
    assert_eq!(v4().piece(129_280), Piece::Mark(Mark::Silent));
    assert_eq!(v4().piece(u32::MAX), Piece::Mark(Mark::Silent));
}

#[test]
fn text_is_given_out_at_once_where_nothing_can_change_it() {
    let mut parser = AnswerParser::new(Content, &[], &["xyz".into()]);
    let mut given = Vec::new();
    for wrote in ["Hel", "lo", " x", "a", "b\n", "c", "<", "d"] {
        let mut parts = Vec::new();
        for piece in script(wrote) {
            if let super::Wrote::Bytes(bytes) = piece {
                parser.push(Piece::Bytes(&bytes), &mut parts);
            }
        }
        let text: String = parts
            .into_iter()
            .map(|part| match part {
                Part::Content(text) => text,
                other => panic!("{other:?}"),
            })
            .collect();
        given.push(text);
    }
    assert_eq!(given, ["Hel", "lo", " ", "xa", "b", "\nc", "", "<d"]);
}
