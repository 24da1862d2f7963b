//! What keeps the page in its place: the policy, the capabilities, and that all lists of commands agree.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

include!("../src/commands/names.rs");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn config() -> Value {
    serde_json::from_str(&text("tauri.conf.json")).unwrap()
}

fn files(folder: &str) -> Vec<PathBuf> {
    std::fs::read_dir(root().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect()
}

/// Every string of a JSON value.
fn strings(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => out.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, out)),
        Value::Object(fields) => fields.iter().for_each(|(key, item)| {
            out.push(key.clone());
            strings(item, out);
        }),
        _ => {}
    }
}

#[test]
fn the_policy_allows_own_files_and_commands_and_nothing_else() {
    let config = config();
    let security = &config["app"]["security"];
    let policy = security["csp"].as_str().unwrap();
    let mut directives: Vec<(&str, Vec<&str>)> = policy
        .split(';')
        .map(|directive| {
            let mut words = directive.split_whitespace();
            (words.next().unwrap(), words.collect())
        })
        .collect();
    directives.sort();
    let expected: &[(&str, &[&str])] = &[
        ("base-uri", &["'none'"]),
        ("connect-src", &["ipc:", "http://ipc.localhost"]),
        ("default-src", &["'none'"]),
        ("font-src", &["'self'"]),
        ("form-action", &["'none'"]),
        ("frame-src", &["'none'"]),
        ("img-src", &["'self'", "data:"]),
        ("object-src", &["'none'"]),
        ("require-trusted-types-for", &["'script'"]),
        ("script-src", &["'self'"]),
        ("style-src", &["'self'"]),
        ("trusted-types", &["svelte-trusted-html"]),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, words)| (*name, words.to_vec()))
        .collect();
    assert_eq!(directives, expected);
    // The rest of the section: nothing that loosens it.
    assert_eq!(security["freezePrototype"], true);
    assert_eq!(security["capabilities"], serde_json::json!(["main"]));
    let keys: BTreeSet<_> = security
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys,
        BTreeSet::from(["csp", "freezePrototype", "capabilities"])
    );
    assert_eq!(config["app"]["withGlobalTauri"], false);
    assert_eq!(config["app"]["windows"], serde_json::json!([]));
    assert_eq!(config["build"].get("devUrl"), None);
}

#[test]
fn no_setting_is_unsafe_remote_or_a_wildcard() {
    let mut all = Vec::new();
    strings(&config(), &mut all);
    for file in files("capabilities") {
        let text = std::fs::read_to_string(&file).unwrap();
        strings(&serde_json::from_str(&text).unwrap(), &mut all);
    }
    for file in files("permissions") {
        all.extend(
            std::fs::read_to_string(&file)
                .unwrap()
                .lines()
                .map(str::to_owned),
        );
    }
    for text in all {
        let without_own = text.replace("http://ipc.localhost", "");
        for forbidden in [
            "unsafe-",
            "*",
            "remote",
            "http:",
            "ws:",
            "dangerous",
            "assetProtocol",
        ] {
            assert!(
                !without_own.contains(forbidden),
                "{forbidden:?} in {text:?}"
            );
        }
    }
}

#[test]
fn the_one_capability_gives_the_main_window_our_own_commands_only() {
    assert_eq!(
        files("capabilities"),
        [root().join("capabilities/main.json")]
    );
    let main: Value = serde_json::from_str(&text("capabilities/main.json")).unwrap();
    assert_eq!(main["windows"], serde_json::json!(["main"]));
    assert_eq!(
        main["permissions"],
        serde_json::json!(["chat", "models", "settings", "system"])
    );
    assert_eq!(main.get("webviews"), None);
}

#[test]
fn all_lists_of_commands_agree() {
    let expected: BTreeSet<String> = COMMANDS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(expected.len(), COMMANDS.len(), "a command is listed twice");

    let http = fastar_server::COMMANDS
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    assert_eq!(expected, http, "the HTTP router");

    let shell = text("src/lib.rs");
    let handlers = shell
        .split_once("generate_handler![")
        .unwrap()
        .1
        .split_once(']')
        .unwrap()
        .0;
    let handlers: BTreeSet<String> = handlers
        .split(',')
        .map(str::trim)
        .filter(|path| !path.is_empty())
        .map(|path| path.rsplit("::").next().unwrap().to_owned())
        .collect();
    assert_eq!(expected, handlers, "generate_handler!");

    let mut permitted = BTreeSet::new();
    for file in files("permissions") {
        let text = std::fs::read_to_string(&file).unwrap();
        for quoted in text.split('"').skip(1).step_by(2) {
            if let Some(command) = quoted.strip_prefix("allow-") {
                assert!(
                    permitted.insert(command.replace('-', "_")),
                    "{quoted} is listed twice"
                );
            }
        }
    }
    assert_eq!(expected, permitted, "permissions/*.toml");

    let page = text("../ui/src/lib/backend/tauri.ts");
    for name in COMMANDS {
        assert!(
            page.contains(&format!("'{name}'")),
            "the interface never calls {name}"
        );
    }
}
