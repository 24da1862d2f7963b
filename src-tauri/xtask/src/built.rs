//! Whether the built user interface, `ui/dist`, is made of the sources that lie beside it: programs that embed it must not carry an old one
//! unnoticed. The build of the pages lists what it was made of in `dist/.sources` (see `ui/sources.ts`), a line for each file: FNV-1a of 32
//! bits in hexadecimal, length, path. Times of files would not do: a checkout sets them as it likes.
//!
//! A module of `cargo xtask` and of the build scripts of what embeds the pages, so it uses nothing but the standard library.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The list, in the folder of the built pages.
pub const LIST: &str = ".sources";
/// What the pages are made of, seen from `ui`. Below a folder all but tests.
pub const SOURCES: [&str; 8] = [
    "../icons/icon.svg",
    "index.html",
    "package-lock.json",
    "package.json",
    "src",
    "svelte.config.js",
    "tsconfig.json",
    "vite.config.ts",
];

/// Why the pages built in `ui` are to be built again; none where they are made of the sources as they are, or where there are no sources.
///
/// # Errors
/// When a source cannot be read.
pub fn stale(ui: &Path) -> io::Result<Option<String>> {
    let dist = ui.join("dist");
    if !dist.join("index.html").is_file() {
        return Ok(Some("ui/dist/index.html is missing".into()));
    }
    if !ui.join("src").is_dir() {
        return Ok(None);
    }
    let Ok(list) = fs::read_to_string(dist.join(LIST)) else {
        return Ok(Some("ui/dist does not say what it was built of".into()));
    };
    let built: BTreeMap<&str, &str> = list
        .lines()
        .filter_map(|line| line.rsplit_once(' ').map(|(facts, path)| (path, facts)))
        .collect();
    let mut now = BTreeMap::new();
    for source in SOURCES {
        add(ui, source, &mut now)?;
    }
    let other = now
        .iter()
        .find(|(path, facts)| built.get(path.as_str()) != Some(&facts.as_str()))
        .map(|(path, _)| path.as_str())
        .or_else(|| built.into_keys().find(|path| !now.contains_key(*path)));
    Ok(other.map(|path| format!("ui/dist was built of another {path} than is there now")))
}

fn add(ui: &Path, path: &str, to: &mut BTreeMap<String, String>) -> io::Result<()> {
    let place = ui.join(path);
    if place.is_dir() {
        let entries: Vec<PathBuf> = fs::read_dir(&place)?
            .map(|entry| entry.map(|e| e.path()))
            .collect::<io::Result<_>>()?;
        for name in entries.iter().filter_map(|path| path.file_name()?.to_str()) {
            add(ui, &format!("{path}/{name}"), to)?;
        }
    } else if !path.ends_with(".test.ts") {
        let bytes = fs::read(&place)?;
        let hash = bytes.iter().fold(0x811c_9dc5, |hash: u32, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
        to.insert(path.to_owned(), format!("{hash:08x} {}", bytes.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn pages_of_other_sources_are_told() {
        let folder = std::env::temp_dir().join(format!("fastar-built-{}", std::process::id()));
        let ui = folder.join("ui");
        fs::create_dir_all(ui.join("src/lib")).unwrap();
        fs::create_dir_all(ui.join("dist")).unwrap();
        fs::create_dir_all(folder.join("icons")).unwrap();
        // From the published test vectors of FNV-1a: of nothing, "a" and "foobar".
        let mut list = String::from("811c9dc5 0 ../icons/icon.svg\n");
        fs::write(folder.join("icons/icon.svg"), "").unwrap();
        for name in &SOURCES[1..] {
            if *name != "src" {
                fs::write(ui.join(name), "a").unwrap();
                list.push_str(&format!("e40c292c 1 {name}\n"));
            }
        }
        fs::write(ui.join("src/lib/page.ts"), "foobar").unwrap();
        list.push_str("bf9cf968 6 src/lib/page.ts\n");
        let why = || stale(&ui).unwrap().unwrap_or_default();
        assert_eq!(why(), "ui/dist/index.html is missing");
        fs::write(ui.join("dist/index.html"), "").unwrap();
        assert_eq!(why(), "ui/dist does not say what it was built of");
        fs::write(ui.join("dist").join(LIST), &list).unwrap();
        assert_eq!(why(), "");
        // A test is in no page.
        fs::write(ui.join("src/lib/page.test.ts"), "").unwrap();
        assert_eq!(why(), "");
        fs::write(ui.join("src/lib/page.ts"), "foobaz").unwrap();
        assert!(why().contains("another src/lib/page.ts"), "{}", why());
        fs::write(ui.join("src/lib/page.ts"), "foobar").unwrap();
        fs::write(ui.join("src/new.ts"), "").unwrap();
        assert!(why().contains("another src/new.ts"), "{}", why());
        fs::remove_file(ui.join("src/new.ts")).unwrap();
        fs::rename(ui.join("src/lib/page.ts"), ui.join("src/page.ts")).unwrap();
        assert!(why().contains("page.ts"), "{}", why());
        // Where there are only pages there is nothing to compare.
        fs::remove_dir_all(ui.join("src")).unwrap();
        assert_eq!(why(), "");
        fs::remove_dir_all(&folder).unwrap();
    }
}
