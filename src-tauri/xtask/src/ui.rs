//! The user interface: packages and build, each only when something changed.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::built;
use crate::place::Place;
use crate::steps::{Problem, execute};

/// Installs the packages of package-lock.json, if that changed.
pub fn install(place: &Place) -> Result<(), Problem> {
    let ui = place.ui();
    let stamp = Stamp {
        file: ui.join("node_modules/.fastar-packages"),
        value: fingerprint(&[ui.join("package.json"), ui.join("package-lock.json")])?,
    };
    if stamp.is_current() {
        println!("The UI's packages are installed.");
        return Ok(());
    }
    // Packages may not run scripts of their own.
    execute(&mut place.npm(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]))?;
    stamp.write()
}

/// Builds the pages, if a source changed. An unchanged build keeps its files untouched, so that the programs that embed them need not
/// be linked again.
pub fn build(place: &Place) -> Result<(), Problem> {
    let ui = place.ui();
    let stale = || built::stale(&ui).map_err(|e| unreadable(&ui, &e));
    if stale()?.is_none() {
        println!("The UI is built.");
        return Ok(());
    }
    execute(&mut place.npm(["run", "build"]))?;
    match stale()? {
        None => Ok(()),
        Some(why) => Err(Problem::new(format!("{why}, even after it was built."))),
    }
}

/// Runs one of the UI's own scripts.
pub fn script(place: &Place, name: &str) -> Result<(), Problem> {
    execute(&mut place.npm(["run", name]))
}

/// A file that remembers what was last installed or built.
struct Stamp {
    file: PathBuf,
    value: String,
}

impl Stamp {
    fn is_current(&self) -> bool {
        fs::read_to_string(&self.file).is_ok_and(|text| text == self.value)
    }

    fn write(&self) -> Result<(), Problem> {
        fs::write(&self.file, &self.value).map_err(|e| {
            Problem::new(format!(
                "{} could not be written: {e}.",
                self.file.display()
            ))
        })
    }
}

/// A number that changes when a name or content below `paths` does. Paths that do not exist count as empty.
fn fingerprint(paths: &[PathBuf]) -> Result<String, Problem> {
    fn add(path: &Path, hasher: &mut DefaultHasher) -> std::io::Result<()> {
        path.file_name().hash(hasher);
        if path.is_dir() {
            let mut inside: Vec<PathBuf> = fs::read_dir(path)?
                .map(|entry| entry.map(|e| e.path()))
                .collect::<Result<_, _>>()?;
            inside.sort();
            inside.len().hash(hasher);
            inside.iter().try_for_each(|path| add(path, hasher))
        } else if path.exists() {
            fs::read(path)?.hash(hasher);
            Ok(())
        } else {
            Ok(())
        }
    }
    let mut hasher = DefaultHasher::new();
    let mut sorted = paths.to_vec();
    sorted.sort();
    for path in &sorted {
        add(path, &mut hasher).map_err(|e| unreadable(path, &e))?;
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(format!("{} could not be read: {error}.", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_fingerprint_changes_with_names_and_contents_only() {
        let folder = std::env::temp_dir().join(format!("fastar-xtask-{}", std::process::id()));
        fs::create_dir_all(folder.join("src")).unwrap();
        let file = folder.join("src/a.ts");
        let print = || fingerprint(&[folder.join("src"), folder.join("none")]).unwrap();
        fs::write(&file, "one").unwrap();
        let first = print();
        fs::write(&file, "one").unwrap();
        assert_eq!(print(), first);
        fs::write(&file, "two").unwrap();
        let second = print();
        assert_ne!(second, first);
        fs::rename(&file, folder.join("src/b.ts")).unwrap();
        assert_ne!(print(), second);
        fs::remove_dir_all(&folder).unwrap();
    }
}
