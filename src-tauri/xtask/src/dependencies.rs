//! What the project takes from others: licences, sources, and known vulnerabilities.
//!
//! Licences, bans and sources need no network and are always checked. Known vulnerabilities stand in lists on the network: where one
//! cannot be had, a line says that it was not checked, and the rest still counts.

use std::path::Path;
use std::process::Stdio;

use crate::place::Place;
use crate::steps::{Problem, execute};

/// Checks the Rust packages with `deny`, the program cargo-deny; `.cargo/deny.toml` says what is allowed.
pub fn rust(place: &Place, deny: &Path) -> Result<(), Problem> {
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(deny);
        command
            .arg("--manifest-path")
            .arg(place.root().join("Cargo.toml"))
            .args(["--workspace", "--locked"])
            .args(arguments)
            .stdin(Stdio::null())
            // The list comes with git, which must not ask for a password that nobody can give.
            .env("GIT_TERMINAL_PROMPT", "0");
        command
    };
    execute(&mut run(&["check", "bans", "licenses", "sources"]))?;
    let fetched = run(&["fetch", "db"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|e| Problem::new(format!("cargo-deny could not be started: {e}.")))?;
    if fetched.success() {
        execute(&mut run(&["check", "advisories"]))
    } else {
        println!(
            "NOT CHECKED: known vulnerabilities of the Rust packages. Their list (github.com/RustSec/advisory-db) could not be fetched."
        );
        Ok(())
    }
}

/// Checks the UI's packages with npm.
pub fn npm(place: &Place) -> Result<(), Problem> {
    const AUDIT: &[&str] = &["audit", "--package-lock-only", "--audit-level=moderate"];
    let output = place
        .npm(AUDIT.iter().chain(&["--json"]))
        .output()
        .map_err(|e| Problem::new(format!("npm could not be started: {e}.")))?;
    match verdict(
        output.status.success(),
        &String::from_utf8_lossy(&output.stdout),
    ) {
        Verdict::Clean => {
            println!("No vulnerabilities of the UI's packages are known.");
            Ok(())
        }
        // Once more, for people.
        Verdict::Found => execute(&mut place.npm(AUDIT)),
        Verdict::NotChecked => {
            println!(
                "NOT CHECKED: known vulnerabilities of the UI's packages. The npm registry in use gives no list of them."
            );
            Ok(())
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Clean,
    Found,
    NotChecked,
}

/// What `npm audit --json` found. It ends with the same code for a vulnerability and for a registry that does not answer, and only a
/// report has a version.
fn verdict(success: bool, stdout: &str) -> Verdict {
    match (stdout.contains("\"auditReportVersion\""), success) {
        (true, true) => Verdict::Clean,
        (true, false) => Verdict::Found,
        (false, _) => Verdict::NotChecked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_that_does_not_answer_is_told_from_a_clean_report() {
        // The beginnings of what npm 11 prints.
        let report = "{\n  \"auditReportVersion\": 2,\n  \"vulnerabilities\": {}";
        let silence = "{\n  \"message\": \"405 Method Not Allowed - POST https://registry.example/advisories\"";
        assert_eq!(verdict(true, report), Verdict::Clean);
        assert_eq!(verdict(false, report), Verdict::Found);
        assert_eq!(verdict(false, silence), Verdict::NotChecked);
        assert_eq!(verdict(true, ""), Verdict::NotChecked);
    }
}
