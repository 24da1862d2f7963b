//! Embeds the built interface: every file of `ui/dist` becomes one row of a table.

#[path = "../../xtask/src/built.rs"]
mod built;

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ui = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../../ui");
    let dist = ui.join("dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    for source in built::SOURCES.map(|source| ui.join(source)) {
        // What is not there would have this run each time.
        if source.exists() {
            println!("cargo::rerun-if-changed={}", source.display());
        }
    }
    if let Some(why) = built::stale(&ui)? {
        println!(
            "cargo::error={why}: build the interface first, with `cargo xtask run` or with `npm run build` in ui/"
        );
        return Ok(());
    }
    let dist = dist.canonicalize()?;
    let mut files = Vec::new();
    collect(&dist, &mut files)?;
    // Not a page.
    files.retain(|file| *file != dist.join(built::LIST));
    files.sort();
    let mut table = String::from("[\n");
    for file in files {
        let name = file
            .strip_prefix(&dist)?
            .to_str()
            .ok_or("a file name in ui/dist is not text")?;
        writeln!(
            table,
            "    ({:?}, include_bytes!({:?})),",
            format!("/{name}"),
            file
        )?;
    }
    table.push(']');
    let out = Path::new(&std::env::var("OUT_DIR")?).join("ui.rs");
    std::fs::write(out, table)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
