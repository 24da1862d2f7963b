//! The user interface must be built against today's contract.

#[test]
fn typescript_of_the_ui_equals_the_contract() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../ui/src/lib/api/types.ts"
    );
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        stored == fastar_api::typescript(),
        "ui/src/lib/api/types.ts is stale: run `cargo xtask types`"
    );
}
