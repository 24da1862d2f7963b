//! Models of the older format: several files that keep their names, in a folder of their own. `NAME` is named `NAME.fst` like any other model.

use std::fs;
use std::path::{Path, PathBuf};

use super::{CONTAINER, SIDECARS};

/// Name of a drafter.
pub(crate) const DRAFT: &str = "dspark_draft.fst";
const TOKENIZER: &str = "tokenizer.json";

/// The folder of the set that is named `file`.
pub(crate) fn folder_of(folder: &Path, file: &str) -> PathBuf {
    folder.join(file.strip_suffix(CONTAINER).unwrap_or(file))
}

/// The model named `file`: its container, or the main one of its set.
pub(crate) fn path_of(folder: &Path, file: &str) -> PathBuf {
    let whole = folder.join(file);
    if fs::symlink_metadata(&whole).is_err()
        && let Some(main) = main_of(&folder_of(folder, file))
    {
        return main;
    }
    whole
}

/// The main container of a set: the only one in the folder that has a sidecar. A folder with anything else in that place is none of ours.
pub(super) fn main_of(set: &Path) -> Option<PathBuf> {
    let mut mains = parts_of(set)?
        .into_iter()
        .filter(|part| name_of(part).ends_with(CONTAINER) && name_of(part) != DRAFT)
        .filter(|main| {
            SIDECARS
                .iter()
                .any(|ending| set.join(format!("{}{ending}", name_of(main))).is_file())
        });
    mains.next().filter(|_| mains.next().is_none())
}

/// The files of a set; others in its folder are somebody else's.
pub(super) fn parts_of(set: &Path) -> Option<Vec<PathBuf>> {
    let parts = fs::read_dir(set)
        .ok()?
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()))
        .map(|entry| entry.path())
        .filter(|path| is_part(name_of(path)))
        .collect();
    Some(parts)
}

/// Whether a file of this name is part of such a model.
pub(crate) fn is_part(name: &str) -> bool {
    // What the download knows of its blocks lies beside each.
    let name = name
        .strip_prefix('.')
        .and_then(|name| name.strip_suffix(".blocks"))
        .unwrap_or(name);
    let sidecar = SIDECARS.iter().any(|ending| {
        name.strip_suffix(ending)
            .is_some_and(|main| main.ends_with(CONTAINER))
    });
    name.ends_with(CONTAINER) || sidecar || name == TOKENIZER
}

fn name_of(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_a_folder_with_one_container_and_its_sidecars_is_a_set() {
        let models = tempfile::tempdir().unwrap();
        let set = models.path().join("flash");
        let put = |name: &str| fs::write(set.join(name), "x").unwrap();
        assert_eq!(
            path_of(models.path(), "flash.fst"),
            models.path().join("flash.fst")
        );
        fs::create_dir(&set).unwrap();
        for name in ["big.fst", "dspark_draft.fst", "tokenizer.json", "notes.txt"] {
            put(name);
        }
        assert_eq!(main_of(&set), None);
        put("big.fst.norm");
        put(".big.fst.blocks");
        assert_eq!(path_of(models.path(), "flash.fst"), set.join("big.fst"));
        let mut parts = parts_of(&set).unwrap();
        parts.sort();
        let names: Vec<_> = parts.iter().map(|part| name_of(part)).collect();
        assert_eq!(
            names,
            [
                ".big.fst.blocks",
                "big.fst",
                "big.fst.norm",
                "dspark_draft.fst",
                "tokenizer.json"
            ]
        );
        // A container of that name comes first.
        fs::write(models.path().join("flash.fst"), "x").unwrap();
        assert_eq!(
            path_of(models.path(), "flash.fst"),
            models.path().join("flash.fst")
        );
        put("other.fst");
        put("other.fst.hc");
        assert_eq!(main_of(&set), None);
    }
}
