//! Named, timed steps with a table at the end.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Why a command could not go on: sentences for a person.
#[derive(Debug)]
pub struct Problem(String);

impl Problem {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Steps done so far.
pub struct Steps {
    title: &'static str,
    started: Instant,
    done: Vec<(String, Duration)>,
}

impl Steps {
    pub fn new(title: &'static str) -> Self {
        Self {
            title,
            started: Instant::now(),
            done: Vec::new(),
        }
    }

    /// Runs one step and says how long it took.
    pub fn run<T>(
        &mut self,
        name: &str,
        step: impl FnOnce() -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = step();
        let took = start.elapsed();
        match &outcome {
            Ok(_) => println!("== {name}: {}", shown(took)),
            Err(_) => println!("== {name}: FAILED after {}", shown(took)),
        }
        self.done.push((name.to_owned(), took));
        if outcome.is_err() {
            self.table(Some(name));
        }
        outcome
    }

    /// Runs a step that several groups need, the first time only.
    pub fn once(
        &mut self,
        name: &str,
        step: impl FnOnce() -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        if self.done.iter().any(|(done, _)| done == name) {
            return Ok(());
        }
        self.run(name, step)
    }

    /// The table of a run without a failure.
    pub fn summary(&self) {
        self.table(None);
    }

    fn table(&self, failed: Option<&str>) {
        println!("\n{}", self.title);
        let width = self
            .done
            .iter()
            .map(|(name, _)| name.chars().count())
            .max()
            .unwrap_or(0)
            .max("all".len());
        for (name, took) in &self.done {
            let mark = if failed == Some(name) { "  FAILED" } else { "" };
            println!("  {name:<width$}  {:>9}{mark}", shown(*took));
        }
        println!("  {:<width$}  {:>9}", "all", shown(self.started.elapsed()));
    }
}

/// Runs a program to its end; its output is the person's to read.
pub fn execute(command: &mut Command) -> Result<(), Problem> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Problem::new(format!(
            "`{}` failed ({status}).",
            line(command)
        ))),
        Err(e) => Err(Problem::new(format!(
            "{program} could not be started: {e}."
        ))),
    }
}

/// A command as one would type it.
fn line(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or(&program).to_owned();
    std::iter::once(name)
        .chain(command.get_args().map(|a| a.to_string_lossy().into_owned()))
        .collect::<Vec<_>>()
        .join(" ")
}

fn shown(took: Duration) -> String {
    let seconds = took.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", took.as_secs_f64()),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn times_read_as_people_say_them() {
        assert_eq!(shown(Duration::from_millis(1234)), "1.2 s");
        assert_eq!(shown(Duration::from_secs(60)), "1 min 00 s");
        assert_eq!(shown(Duration::from_secs(754)), "12 min 34 s");
    }

    #[test]
    fn a_program_that_fails_is_named_with_its_arguments() {
        let problem = execute(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(problem.to_string().contains("`sh -c exit 3`"), "{problem}");
        let problem = execute(&mut Command::new("/no/such/program")).unwrap_err();
        assert!(
            problem.to_string().contains("could not be started"),
            "{problem}"
        );
    }
}
