//! `cargo xtask icons`: every icon there is, from the one drawing.

use std::fs;
use std::process::{Command, Stdio};

use crate::place::Place;
use crate::steps::{Problem, execute};
use crate::ui;

/// Sizes of the icon themes of Linux, in pixels; the drawing itself is there as well.
const SIZES: [u32; 8] = [16, 24, 32, 48, 64, 128, 256, 512];
/// What macOS and Windows take, with all sizes inside.
const WHOLE: [&str; 2] = ["icon.icns", "icon.ico"];

/// Draws `icons/icon.svg` anew in all sizes.
pub fn icons(place: &Place) -> Result<(), Problem> {
    ui::install(place)?;
    let icons = place.root().join("icons");
    // The program draws many that nobody needs.
    let drawn = place.target().join("icons");
    let draw = |sizes: &[u32]| {
        execute(
            Command::new("node")
                .arg(place.ui().join("node_modules/@tauri-apps/cli/tauri.js"))
                .arg("icon")
                .arg(icons.join("icon.svg"))
                .arg("--output")
                .arg(&drawn)
                .args(sizes.iter().map(|size| format!("--png={size}")))
                .current_dir(place.root())
                .stdin(Stdio::null()),
        )
    };
    draw(&[])?;
    draw(&SIZES)?;
    let pngs = SIZES.map(|size| format!("{size}x{size}.png"));
    for name in pngs.iter().map(String::as_str).chain(WHOLE) {
        fs::copy(drawn.join(name), icons.join(name))
            .map_err(|e| Problem::new(format!("{name} could not be copied: {e}.")))?;
    }
    Ok(())
}
