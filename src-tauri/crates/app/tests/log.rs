//! Promises about the log. One test in a program of its own: there is one log for each process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scripted;

use fastar_api::LogLevel;
use scripted::Script;
use serde_json::json;
use tracing_subscriber::layer::SubscriberExt as _;

#[test]
fn our_own_events_are_kept_at_the_chosen_level_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let app = Script::new().app(folder.path());
    let level = |level: &str| app.setting_set("log_level", &json!(level)).unwrap();
    let subscriber = tracing_subscriber::registry().with(fastar_app::log_layer());
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!(target: "fastar_test", tokens = 7, "it begins");
        tracing::debug!(target: "fastar_test", "a detail");
        tracing::error!(target: "another_crate", "not ours");
        tracing::warn!(target: "fastar_test", "two\nlines and token=abcdef");
        level("debug");
        tracing::debug!(target: "fastar_test", "another detail");
        level("error");
        tracing::warn!(target: "fastar_test", "no longer");
    });
    let page = app.log_read(0);
    let ours = page.lines.iter().filter(|l| l.target == "fastar_test");
    let told: Vec<_> = ours.map(|l| (l.level, l.text.as_str())).collect();
    assert_eq!(
        told,
        [
            (LogLevel::Info, "it begins tokens=7"),
            (LogLevel::Warn, r"two\nlines and token=***"),
            (LogLevel::Debug, "another detail"),
        ]
    );
    assert_eq!(app.log_read(page.next).lines, []);
    let text = std::fs::read_to_string(folder.path().join("logs/fastar.log")).unwrap();
    assert!(
        text.contains(" INFO fastar_test: it begins tokens=7\n"),
        "{text}"
    );
    assert!(!text.contains("abcdef"));
    assert!(app.diagnostics().contains("WARN fastar_test: two"));
}
