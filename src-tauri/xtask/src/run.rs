//! `cargo xtask run`: from a clone to the open window; and `cargo xtask bench`: from a clone to a table of speeds.

use std::process::Command;

use crate::place::Place;
use crate::steps::{Problem, Steps, execute};
use crate::{system, ui};

/// Installs, builds, opens. Without a display the same interface is served to a browser, and the window is not even built.
pub fn run(place: &Place) -> Result<(), Problem> {
    let display = has_display();
    if !display {
        println!("There is no display here, so FaStar is served to a browser on this computer.");
    }
    build(place, "cargo xtask run", display)?;
    if display {
        println!("Opening FaStar.");
        become_program(&mut Command::new(place.built("release", "fastar-desktop")))
    } else {
        become_program(
            Command::new(place.built("release", "fastar")).args(["serve", "--port", "0"]),
        )
    }
}

/// Builds the `fastar` command and measures with it, the project's bars shown. `arguments` are its own.
pub fn bench(place: &Place, arguments: &[String]) -> Result<(), Problem> {
    build(place, "cargo xtask bench", false)?;
    become_program(
        Command::new(place.built("release", "fastar"))
            .args(["bench", "--bars"])
            .args(arguments),
    )
}

/// Builds what people run: the command, and with a display the window.
fn build(place: &Place, title: &'static str, display: bool) -> Result<(), Problem> {
    let mut steps = Steps::new(title);
    steps.run("System packages", || {
        system::install(if display {
            system::WINDOW_BUILD
        } else {
            system::PLAIN_BUILD
        })
    })?;
    steps.run("Node", system::node)?;
    steps.run("UI packages", || ui::install(place))?;
    steps.run("UI build", || ui::build(place))?;
    steps.run("App build", || {
        let mut build = place.cargo(["build", "--release", "--locked", "-p", "fastar-cli"]);
        if display {
            build.args(["-p", "fastar-desktop"]);
        }
        execute(&mut build)
    })?;
    steps.summary();
    println!();
    Ok(())
}

fn has_display() -> bool {
    cfg!(not(target_os = "linux"))
        || ["DISPLAY", "WAYLAND_DISPLAY"]
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Hands this process over, so that Ctrl+C reaches the program itself and the shell waits for its clean end.
#[cfg(unix)]
fn become_program(command: &mut Command) -> Result<(), Problem> {
    use std::os::unix::process::CommandExt as _;
    let error = command.exec();
    Err(Problem::new(format!(
        "{} could not be started: {error}.",
        command.get_program().to_string_lossy()
    )))
}

#[cfg(not(unix))]
fn become_program(command: &mut Command) -> Result<(), Problem> {
    execute(command)
}
