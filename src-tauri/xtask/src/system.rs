//! System packages and tools: what is missing, and installing it where that is possible.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::{Command, Stdio};

use crate::place::{Place, on_path};
use crate::steps::{Problem, execute};

/// Needed to build the window.
pub const WINDOW_BUILD: &[Package] = &[
    Package::new("build-essential", Sign::Program("cc")),
    Package::new("pkg-config", Sign::Program("pkg-config")),
    Package::new("libwebkit2gtk-4.1-dev", Sign::Library("webkit2gtk-4.1")),
];
/// Needed to build everything but the window.
pub const PLAIN_BUILD: &[Package] = &[Package::new("build-essential", Sign::Program("cc"))];
/// Needed to drive the window in tests, to install its packages in a folder, and to see all letters in it.
pub const WINDOW_TESTS: &[Package] = &[
    Package::new("webkit2gtk-driver", Sign::Program("WebKitWebDriver")),
    Package::new("xvfb", Sign::Program("xvfb-run")),
    Package::new("xauth", Sign::Program("xauth")),
    Package::new("xdotool", Sign::Program("xdotool")),
    Package::new("imagemagick", Sign::Program("import")),
    Package::new("rpm", Sign::Program("rpm")),
    Package::new("dbus-daemon", Sign::Program("dbus-daemon")),
    Package::new("weston", Sign::Program("weston")),
    Package::new("fonts-noto-cjk", Sign::None),
    Package::new("fonts-noto-color-emoji", Sign::None),
];
/// The browser, where the distribution has it as a package.
pub const BROWSER: Package = Package::new("chromium", Sign::Program("chromium"));

/// A package of Debian and Ubuntu, and how to recognise that its content is there on other systems.
#[derive(Clone, Copy)]
pub struct Package {
    name: &'static str,
    sign: Sign,
}

#[derive(Clone, Copy)]
enum Sign {
    Program(&'static str),
    Library(&'static str),
    /// Nice to have; cannot be told without the package manager.
    None,
}

impl Package {
    const fn new(name: &'static str, sign: Sign) -> Self {
        Self { name, sign }
    }

    fn is_there(&self) -> bool {
        match self.sign {
            Sign::Program(program) => on_path(program).is_some(),
            Sign::Library(library) => Command::new("pkg-config")
                .args(["--exists", library])
                .stdin(Stdio::null())
                .status()
                .is_ok_and(|status| status.success()),
            Sign::None => true,
        }
    }
}

/// Makes sure that `packages` are installed: as root at once, otherwise after asking.
pub fn install(packages: &[Package]) -> Result<(), Problem> {
    if on_path("apt-get").is_none() || on_path("dpkg-query").is_none() {
        let missing: Vec<_> = packages
            .iter()
            .filter(|package| !package.is_there())
            .map(|package| package.name)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        return Err(Problem::new(format!(
            "Please install what Debian calls {} with your system's package manager, then run this again.",
            missing.join(", ")
        )));
    }
    let names: Vec<&str> = packages.iter().map(|package| package.name).collect();
    let missing = missing(&names)?;
    if missing.is_empty() {
        println!("All system packages are installed.");
        return Ok(());
    }
    println!("Installing: {}", missing.join(" "));
    let prefix = rights(&missing)?;
    let apt = |arguments: &[&str]| {
        let mut words: Vec<&str> = prefix.to_vec();
        words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        // Another job may hold the lock; a mirror may hiccup.
        words.extend(["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]);
        words.extend(arguments);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        if prefix.is_empty() {
            command.stdin(Stdio::null());
        }
        execute(&mut command)
    };
    apt(&["update", "-q"])?;
    let mut arguments = vec!["install", "-q", "-y", "--no-install-recommends"];
    arguments.extend(&missing);
    apt(&arguments)
}

/// What of `names` dpkg does not know as installed.
fn missing<'a>(names: &[&'a str]) -> Result<Vec<&'a str>, Problem> {
    // Exit code 1 only says that some package is unknown; the output has the rest.
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat=${Package} ${Status}\\n"])
        .args(names)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|e| Problem::new(format!("dpkg-query could not be started: {e}.")))?;
    Ok(not_installed(
        &String::from_utf8_lossy(&output.stdout),
        names,
    ))
}

fn not_installed<'a>(listing: &str, names: &[&'a str]) -> Vec<&'a str> {
    names
        .iter()
        .copied()
        .filter(|name| {
            !listing.lines().any(|line| {
                line.split_once(' ').is_some_and(|(package, status)| {
                    package == *name && status.ends_with(" installed")
                })
            })
        })
        .collect()
}

/// Whether this person may do everything.
pub fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

/// Words to put before a command that needs root: none for root, sudo after a person said yes.
fn rights(missing: &[&str]) -> Result<&'static [&'static str], Problem> {
    if is_root() {
        return Ok(&[]);
    }
    let by_hand = || {
        Problem::new(format!(
            "Please install them yourself: sudo apt-get install --no-install-recommends {}",
            missing.join(" ")
        ))
    };
    if on_path("sudo").is_none() || !io::stdin().is_terminal() {
        return Err(by_hand());
    }
    print!("Install them now with sudo? [Y/n] ");
    let mut answer = String::new();
    let heard = io::stdout().flush().is_ok() && io::stdin().lock().read_line(&mut answer).is_ok();
    match answer.trim().to_lowercase().as_str() {
        "" | "y" | "yes" if heard && !answer.is_empty() => Ok(&["sudo"]),
        _ => Err(by_hand()),
    }
}

/// Checks that Node is new enough and npm is there.
pub fn node() -> Result<(), Problem> {
    let version = |program: &str| {
        Command::new(program)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .ok()
            .filter(|output| output.status.success())
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let found = version("node");
    match found.as_deref().map(is_new_enough) {
        Some(true) => {}
        Some(false) => {
            return Err(Problem::new(format!(
                "Node {} is too old: version 20.19 or newer is needed (nodejs.org).",
                found.unwrap_or_default()
            )));
        }
        None => {
            return Err(Problem::new(
                "Node was not found: install version 20.19 or newer (nodejs.org).",
            ));
        }
    }
    match version(if cfg!(windows) { "npm.cmd" } else { "npm" }) {
        Some(_) => Ok(()),
        None => Err(Problem::new(
            "npm was not found: it comes with Node (nodejs.org).",
        )),
    }
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version
        .trim_start_matches('v')
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (20, 19)
}

/// Makes sure that rustfmt and clippy are there.
pub fn rust_components() -> Result<(), Problem> {
    for (component, program) in [("rustfmt", "rustfmt"), ("clippy", "clippy-driver")] {
        let works = || {
            Command::new(program)
                .arg("--version")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        if works() {
            continue;
        }
        if on_path("rustup").is_some() {
            execute(
                Command::new("rustup")
                    .args(["component", "add", component])
                    .stdin(Stdio::null()),
            )?;
        }
        if !works() {
            return Err(Problem::new(format!(
                "{component} was not found: install it with your Rust toolchain."
            )));
        }
    }
    Ok(())
}

/// Whether the distribution's chromium is a real package. Ubuntu's only points to a snap, which tests cannot drive.
pub fn has_chromium_package() -> bool {
    std::fs::read_to_string("/etc/os-release")
        .is_ok_and(|text| text.lines().any(|line| line == "ID=debian"))
}

/// A Chromium or Chrome that is installed already.
pub fn browser() -> Option<std::path::PathBuf> {
    if let Some(chosen) = std::env::var_os("CHROMIUM") {
        return Some(chosen.into());
    }
    ["chromium", "google-chrome", "google-chrome-stable"]
        .into_iter()
        .filter_map(on_path)
        .find(|path| !path.starts_with("/snap"))
}

/// A program for the tests that is built from its source.
pub struct Tool {
    name: &'static str,
    version: &'static str,
}

/// Drives the real window.
pub const TAURI_DRIVER: Tool = Tool {
    name: "tauri-driver",
    version: "2.1.0",
};
/// Checks the Rust packages that are used.
pub const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
};

/// Installs a tool, if this version of it is not there.
pub fn tool(place: &Place, tool: &Tool) -> Result<std::path::PathBuf, Problem> {
    let mut install = place.cargo(["install", "--locked", "--quiet", tool.name]);
    install
        .args(["--version", tool.version, "--root"])
        .arg(place.tools())
        // Not optimised: that takes many times as long to build, and they are quick enough.
        .arg("--debug")
        .env("CARGO_PROFILE_DEV_DEBUG", "false");
    execute(&mut install)?;
    Ok(place.tools().join("bin").join(tool.name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_removed_or_unknown_package_is_missing() {
        let listing = "xvfb install ok installed\nxauth deinstall ok config-files\nxdotool unknown ok not-installed\n";
        assert_eq!(
            not_installed(listing, &["xvfb", "xauth", "xdotool", "imagemagick"]),
            ["xauth", "xdotool", "imagemagick"]
        );
    }

    #[test]
    fn node_must_be_20_19_or_newer() {
        for (version, enough) in [
            ("v20.19.0", true),
            ("v22.1.3", true),
            ("v20.18.1", false),
            ("v18.20.0", false),
            ("what", false),
        ] {
            assert_eq!(is_new_enough(version), enough, "{version}");
        }
    }
}
