//! Declares our own commands to Tauri's access control: what is not listed here and in a capability is refused.

// One list for this script and for the test that compares it with the handlers and the HTTP router.
include!("src/commands/names.rs");

fn main() {
    let manifest = tauri_build::AppManifest::new().commands(COMMANDS);
    let attributes = tauri_build::Attributes::new().app_manifest(manifest);
    if let Err(error) = tauri_build::try_build(attributes) {
        println!("cargo::error={error:#}");
    }
}
