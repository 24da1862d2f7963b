//! Makes the container of the demo model, which is embedded into the app.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=demo/config.json");
    println!("cargo::rerun-if-changed=demo/model.safetensors");
    println!("cargo::rerun-if-changed=demo/tokenizer.json");
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    let warnings = fastar_fst::convert(
        Path::new("demo"),
        &Path::new(&out).join("demo.fst"),
        &mut |_, _| {},
    )
    .map_err(|error| format!("the demo model in src-tauri/crates/app/demo: {error}"))?;
    for warning in warnings {
        println!("cargo::warning={warning}");
    }
    Ok(())
}
