//! `cargo xtask test`: everything that must hold before a change is good.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::place::Place;
use crate::steps::{Problem, Steps, execute};
use crate::{dependencies, package, system, ui};

/// A part of the tests that can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Format,
    Dependencies,
    Ui,
    Rust,
    Browser,
    Window,
}

impl Group {
    pub const ALL: &[Self] = &[
        Self::Format,
        Self::Dependencies,
        Self::Ui,
        Self::Rust,
        Self::Browser,
        Self::Window,
    ];

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|group| group.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Dependencies => "dependencies",
            Self::Ui => "ui",
            Self::Rust => "rust",
            Self::Browser => "browser",
            Self::Window => "window",
        }
    }

    fn needs_rust(self) -> bool {
        matches!(self, Self::Rust | Self::Browser | Self::Window)
    }
}

/// Runs all groups, or one with what it needs.
pub fn test(place: &Place, only: Option<Group>) -> Result<(), Problem> {
    let groups = match &only {
        Some(group) => std::slice::from_ref(group),
        None => Group::ALL,
    };
    let mut steps = Steps::new("cargo xtask test");
    let tools = tools(place, &mut steps, groups)?;
    for &group in groups {
        run_group(place, &mut steps, group, &tools).map_err(|problem| {
            Problem::new(format!(
                "{problem}\nTo run only this again: cargo xtask test --only {}",
                group.name()
            ))
        })?;
    }
    steps.summary();
    println!("\nEverything passed.");
    Ok(())
}

/// What the tests are driven with.
#[derive(Default)]
pub struct Tools {
    browser: Option<PathBuf>,
    driver: Option<PathBuf>,
    deny: Option<PathBuf>,
}

/// Installs what `groups` need.
pub fn tools(place: &Place, steps: &mut Steps, groups: &[Group]) -> Result<Tools, Problem> {
    let has = |group| groups.contains(&group);
    let mut tools = Tools::default();
    if groups.iter().any(|group| group.needs_rust()) {
        steps.run("System packages", || {
            let mut packages = system::WINDOW_BUILD.to_vec();
            if has(Group::Window) {
                packages.extend(system::WINDOW_TESTS);
            }
            if has(Group::Browser) && system::browser().is_none() && system::has_chromium_package()
            {
                packages.push(system::BROWSER);
            }
            system::install(&packages)
        })?;
    }
    steps.run("Rust and Node tools", || {
        system::rust_components()?;
        system::node()
    })?;
    if has(Group::Browser) {
        tools.browser = Some(match system::browser() {
            Some(browser) => browser,
            None => steps.run("Browser", || playwright_browser(place))?,
        });
    }
    if has(Group::Window) {
        tools.driver = Some(steps.run("Window driver", || {
            system::tool(place, &system::TAURI_DRIVER)
        })?);
    }
    if has(Group::Dependencies) {
        tools.deny = Some(steps.run("Dependency checker", || {
            system::tool(place, &system::CARGO_DENY)
        })?);
    }
    Ok(tools)
}

fn run_group(place: &Place, steps: &mut Steps, group: Group, tools: &Tools) -> Result<(), Problem> {
    if !matches!(group, Group::Format | Group::Dependencies) {
        steps.once("UI packages", || ui::install(place))?;
    }
    if group.needs_rust() {
        steps.once("UI build", || ui::build(place))?;
        steps.once("Rust build and lints", || rust(place, "build"))?;
    }
    match group {
        Group::Format => steps.run("Rust format", || {
            execute(&mut place.cargo(["fmt", "--all", "--check"]))
        }),
        Group::Dependencies => {
            if let Some(deny) = &tools.deny {
                steps.run("Rust dependencies", || dependencies::rust(place, deny))?;
            }
            steps.run("UI dependencies", || dependencies::npm(place))
        }
        Group::Ui => {
            steps.run("UI check", || ui::script(place, "check"))?;
            steps.run("UI unit tests", || ui::script(place, "test"))?;
            steps.once("UI build", || ui::build(place))
        }
        Group::Rust => steps.run("Rust tests", || rust(place, "test")),
        Group::Browser => steps.run("Browser tests", || {
            let mut npm = place.npm(["run", "e2e"]);
            npm.env("FASTAR_BIN", place.built("debug", "fastar"));
            npm.env("FASTAR_HUB_BIN", place.built("debug/examples", "hub"));
            npm.envs(tools.browser.as_ref().map(|path| ("CHROMIUM", path)));
            execute(&mut npm)
        }),
        Group::Window => window(place, steps, tools),
    }
}

/// Drives the window as people get it: built without debugging, packed, and installed in a folder.
fn window(place: &Place, steps: &mut Steps, tools: &Tools) -> Result<(), Problem> {
    steps.run("App build", || package::build(place, package::QUICK))?;
    let packages = steps.run("Packages", || package::bundle(place, package::QUICK))?;
    let installed = steps.run("Packages installed", || {
        package::Installed::install(place, &packages)
    })?;
    steps.run("Window tests", || {
        let mut window = Command::new("xvfb-run");
        window
            .args(["-a", "-s", "-screen 0 1280x800x24 -nolisten tcp"])
            .args(["npm", "run", "e2e:window"])
            .current_dir(place.ui())
            .stdin(Stdio::null())
            .env("FASTAR_DESKTOP_BIN", installed.window())
            .envs(tools.driver.as_ref().map(|path| ("TAURI_DRIVER", path)));
        execute(&mut window)
    })?;
    steps.run("Packages removed", || installed.remove())
}

/// Builds or tests the workspace with the linter as compiler, warnings denied: one set of artefacts for lints, tests and the programs
/// that the browser and window tests drive. `cargo clippy` would compile everything a second time.
fn rust(place: &Place, what: &str) -> Result<(), Problem> {
    let mut cargo = place.cargo([what, "--workspace", "--locked"]);
    if what == "build" {
        // Not only the programs: with the tests, so that the dependencies are built once with the features that both need.
        cargo.args(["--lib", "--bins", "--tests", "--examples"]);
    }
    cargo
        .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
        // The linter's own separator between arguments.
        .env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings");
    execute(&mut cargo)
}

/// A browser from Playwright, for distributions without a package of it.
fn playwright_browser(place: &Place) -> Result<PathBuf, Problem> {
    ui::install(place)?;
    execute(&mut place.npm([
        "exec",
        "--",
        "playwright",
        "install",
        "--with-deps",
        "chromium",
    ]))?;
    let output = Command::new("node")
        .args([
            "--input-type=module",
            "--eval",
            "import { chromium } from '@playwright/test'; console.log(chromium.executablePath())",
        ])
        .current_dir(place.ui())
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Problem::new(format!("node could not be started: {e}.")))?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if path.is_file() {
        Ok(path)
    } else {
        Err(Problem::new(
            "Playwright's browser was not found: install Chromium or Chrome, or name one with CHROMIUM=/path/to/it.",
        ))
    }
}
