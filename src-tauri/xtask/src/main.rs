//! `cargo xtask`: the project's own commands. Runs, tests and sets up; compiles in seconds because it uses nothing but the standard
//! library. What the commands do is in [`run`] and [`test`]; how steps are shown and timed in [`steps`].

mod built;
mod dependencies;
mod icons;
mod package;
mod place;
mod run;
mod steps;
mod system;
mod test;
mod ui;

use std::process::ExitCode;

use place::Place;
use steps::{Problem, Steps};

const HELP: &str = "\
Commands:
  cargo xtask run            Install what is missing, build, and open the app (without a display: serve it to a browser)
  cargo xtask test           Install the test tools and check everything
  cargo xtask test --only G  Only one group: format, dependencies, ui, rust, browser or window
  cargo xtask bench ...      Build, and measure this computer: `fastar bench` with the bars of the project, and its options; for the
                             pager with layers of all experts: --only pager --shape flash3L256E (12 GB)
  cargo xtask package        Install what is missing, build, and make the .deb and the .rpm
  cargo xtask icons          Draw icons/icon.svg anew in every size
  cargo xtask types          Write ui/src/lib/api/types.ts anew from the Rust contract
  cargo xtask setup          Install everything the other commands need, and stop there
  cargo xtask help           Show this text";

enum Command {
    Run,
    Test(Option<test::Group>),
    Bench(Vec<String>),
    Package,
    Icons,
    Types,
    Setup,
    Help,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = match parse(&arguments) {
        Ok(command) => command,
        Err(problem) => {
            eprintln!("{problem}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let outcome = Place::find().and_then(|place| perform(command, &place));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("\n{problem}");
            ExitCode::FAILURE
        }
    }
}

fn perform(command: Command, place: &Place) -> Result<(), Problem> {
    match command {
        Command::Run => run::run(place),
        Command::Test(only) => test::test(place, only),
        Command::Bench(arguments) => run::bench(place, &arguments),
        Command::Package => package::package(place),
        Command::Icons => icons::icons(place),
        Command::Types => types(place),
        Command::Setup => setup(place),
        Command::Help => {
            println!("{HELP}");
            Ok(())
        }
    }
}

fn parse(arguments: &[String]) -> Result<Command, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        // Release is what people run; the flag is accepted for those who expect it.
        ["run"] | ["run", "--release"] => Ok(Command::Run),
        ["test"] => Ok(Command::Test(None)),
        ["test", "--only", group] => test::Group::named(group)
            .map(|group| Command::Test(Some(group)))
            .ok_or_else(|| format!("There is no group of tests named {group:?}.")),
        // What it understands is the program's business.
        ["bench", ..] => Ok(Command::Bench(arguments[1..].to_vec())),
        ["package"] => Ok(Command::Package),
        ["icons"] => Ok(Command::Icons),
        ["types"] => Ok(Command::Types),
        ["setup"] => Ok(Command::Setup),
        [] | ["help" | "--help" | "-h"] => Ok(Command::Help),
        other => Err(format!("Unknown command: {}.", other.join(" "))),
    }
}

fn types(place: &Place) -> Result<(), Problem> {
    let output = place
        .cargo([
            "run",
            "--quiet",
            "--locked",
            "-p",
            "fastar-api",
            "--example",
            "types",
        ])
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| Problem::new(format!("cargo could not be started: {e}.")))?;
    if !output.status.success() {
        return Err(Problem::new("The types could not be generated."));
    }
    let target = place.ui().join("src/lib/api/types.ts");
    std::fs::write(&target, output.stdout)
        .map_err(|e| Problem::new(format!("{} could not be written: {e}.", target.display())))?;
    println!("Wrote {}.", target.display());
    Ok(())
}

fn setup(place: &Place) -> Result<(), Problem> {
    let mut steps = Steps::new("cargo xtask setup");
    test::tools(place, &mut steps, test::Group::ALL)?;
    steps.run("UI packages", || ui::install(place))?;
    steps.summary();
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn commands_are_understood_and_others_refused() {
        let parsed = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            parse(&words)
        };
        assert!(matches!(parsed("run"), Ok(Command::Run)));
        assert!(matches!(parsed("test"), Ok(Command::Test(None))));
        assert!(matches!(
            parsed("test --only rust"),
            Ok(Command::Test(Some(test::Group::Rust)))
        ));
        assert!(matches!(
            parsed("bench --only kernels"),
            Ok(Command::Bench(rest)) if rest == ["--only", "kernels"]
        ));
        assert!(matches!(parsed(""), Ok(Command::Help)));
        assert!(parsed("test --only everything").is_err());
        assert!(parsed("tset").is_err());
    }
}
