//! Declares our own commands to Tauri's access control: what is not listed here and in a capability is refused.

use std::path::Path;

// One list for this script and for the test that compares it with the handlers and the HTTP router.
include!("src/commands/names.rs");

#[path = "xtask/src/built.rs"]
mod built;

fn main() {
    println!("cargo::rerun-if-changed=../ui/dist");
    for source in built::SOURCES.map(|source| Path::new("../ui").join(source)) {
        // What is not there would have this run each time.
        if source.exists() {
            println!("cargo::rerun-if-changed={}", source.display());
        }
    }
    match built::stale(Path::new("../ui")) {
        Ok(None) => {}
        Ok(Some(why)) => println!(
            "cargo::error={why}: build the interface first, with `cargo xtask run` or with `npm run build` in ui/"
        ),
        Err(error) => println!("cargo::error=the sources in ui/ cannot be read: {error}"),
    }
    let manifest = tauri_build::AppManifest::new().commands(COMMANDS);
    let attributes = tauri_build::Attributes::new().app_manifest(manifest);
    if let Err(error) = tauri_build::try_build(attributes) {
        println!("cargo::error={error:#}");
    }
}
