//! Another engine's benchmark command: running it, and reading what it says. Understood is llama.cpp's `llama-bench`, whose forks print the
//! same: JSON (`-o json`), and the table it prints when not asked for anything else.

use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::{Error, Result};

/// What was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Reading a prompt of so many tokens.
    Prompt(usize),
    /// Writing so many tokens, from an empty context.
    Answer(usize),
}

/// One speed a peer reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Of what.
    pub test: Test,
    /// Tokens a second.
    pub rate: f64,
}

/// Runs the command in a shell and returns the speeds it reports. What it says besides goes where ours goes.
///
/// # Errors
/// When it cannot be run, fails, or says nothing that is understood.
pub fn run(command: &str) -> Result<Vec<Speed>> {
    let (shell, flag) = if cfg!(windows) {
        ("cmd", "/C")
    } else {
        ("sh", "-c")
    };
    let peer = |problem: String| Error::Peer {
        command: command.to_owned(),
        problem,
    };
    let output = Command::new(shell)
        .args([flag, command])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| peer(format!("could not be started: {e}")))?;
    if !output.status.success() {
        return Err(peer(format!("failed ({})", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let speeds = speeds(&text);
    if speeds.is_empty() {
        return Err(peer(
            "printed no speed that is understood, as `llama-bench -p 0 -n 24 -o json` does".into(),
        ));
    }
    Ok(speeds)
}

/// The speeds in what a peer prints: those of prompts and answers from an empty context.
pub fn speeds(text: &str) -> Vec<Speed> {
    let from = text.find('[').and_then(|start| {
        let end = text.rfind(']')?;
        serde_json::from_str::<Vec<Entry>>(text.get(start..=end)?).ok()
    });
    let found: Vec<Speed> = match from {
        Some(entries) => entries.iter().filter_map(Entry::speed).collect(),
        None => table(text),
    };
    found
        .into_iter()
        .filter(|speed| speed.rate.is_finite() && speed.rate > 0.0)
        .collect()
}

/// What is used of an entry of llama-bench's JSON.
#[derive(Deserialize)]
struct Entry {
    n_prompt: usize,
    n_gen: usize,
    #[serde(default)]
    n_depth: usize,
    avg_ts: f64,
}

impl Entry {
    fn speed(&self) -> Option<Speed> {
        let test = match (self.n_prompt, self.n_gen, self.n_depth) {
            (n, 0, 0) if n > 0 => Test::Prompt(n),
            (0, n, 0) if n > 0 => Test::Answer(n),
            _ => return None,
        };
        Some(Speed {
            test,
            rate: self.avg_ts,
        })
    }
}

/// Speeds in a Markdown table with the columns `test` and `t/s`.
fn table(text: &str) -> Vec<Speed> {
    let mut columns = None;
    let mut speeds = Vec::new();
    for line in text
        .lines()
        .filter(|line| line.trim_start().starts_with('|'))
    {
        let cells: Vec<&str> = line
            .trim()
            .trim_matches('|')
            .split('|')
            .map(str::trim)
            .collect();
        let named = |name: &str| cells.iter().position(|cell| *cell == name);
        if let (Some(test), Some(rate)) = (named("test"), named("t/s")) {
            columns = Some((test, rate));
        } else if let Some((test, rate)) = columns {
            let test = cells.get(test).and_then(|cell| test_named(cell));
            // `9.29 ± 0.19`
            let rate = cells
                .get(rate)
                .and_then(|cell| cell.split_whitespace().next()?.parse().ok());
            if let (Some(test), Some(rate)) = (test, rate) {
                speeds.push(Speed { test, rate });
            }
        }
    }
    speeds
}

/// `pp256` or `tg24`; none for what is measured otherwise (`tg24 @ d512`, `pp512+tg128`).
fn test_named(name: &str) -> Option<Test> {
    let count = |prefix: &str| name.strip_prefix(prefix)?.parse().ok().filter(|n| *n > 0);
    count("pp")
        .map(Test::Prompt)
        .or_else(|| count("tg").map(Test::Answer))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What llama-bench printed of a small model, with `-o json` and without.
    const JSON: &str = include_str!("../tests/fixtures/llama-bench.json");
    const TABLE: &str = include_str!("../tests/fixtures/llama-bench.md");

    fn speed(test: Test, rate: f64) -> Speed {
        Speed { test, rate }
    }

    #[test]
    fn llama_bench_is_understood_in_both_of_its_ways() {
        let expected = [
            speed(Test::Prompt(16), 32.297056),
            speed(Test::Answer(8), 6.98591),
        ];
        assert_eq!(speeds(JSON), expected);
        // Of the table only what starts from an empty context and is one thing.
        let expected = [speed(Test::Prompt(16), 50.01), speed(Test::Answer(8), 1.17)];
        assert_eq!(speeds(TABLE), expected);
    }

    #[test]
    fn what_a_program_says_before_its_json_does_not_matter() {
        let text = format!("warming up\n{JSON}\ndone\n");
        assert_eq!(speeds(&text).len(), 2);
    }

    #[test]
    fn nothing_is_made_of_other_words() {
        for text in [
            "",
            "[",
            "][",
            "[]",
            "[1, 2]",
            "no table",
            "| test | t/s |",
            "| test | t/s |\n| tg24 |",
            "| test | t/s |\n| tg24 | fast |",
            "| test | t/s |\n| tg0 | 1.0 |",
            "| test | t/s |\n| tg24 | -1.0 |",
            "| test | t/s |\n| tg24 | NaN |",
            "| test | t/s |\n| tg24 | inf |",
            r#"[{"n_prompt": 0, "n_gen": 24, "n_depth": 512, "avg_ts": 1.0}]"#,
            r#"[{"n_prompt": 8, "n_gen": 24, "avg_ts": 1.0}]"#,
            r#"[{"n_prompt": 0, "n_gen": 24, "avg_ts": 0.0}]"#,
        ] {
            assert_eq!(speeds(text), [], "{text:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_command_that_does_not_do_it_is_named_with_what_it_did() {
        let sentence = |command: &str| run(command).unwrap_err().to_string();
        let failed = sentence("exit 3");
        assert!(
            failed.contains("`exit 3` failed (exit status: 3)"),
            "{failed}"
        );
        let silent = sentence("echo 12");
        assert!(
            silent.contains("`echo 12` printed no speed") && silent.contains("llama-bench"),
            "{silent}"
        );
        let speeds = run("printf '| test | t/s |\\n| tg8 | 2.5 ± 0.1 |\\n'").unwrap();
        assert_eq!(speeds, [speed(Test::Answer(8), 2.5)]);
    }
}
