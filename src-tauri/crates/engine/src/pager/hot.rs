//! The experts that were hottest when a model was last in use, in a small file named after its identity: the next start reads them while it waits for a question.
//!
//! All integers are little-endian: `FSTHOT01`, the container's identity (u64), then for each expert its page (u32) and heat (f32), hottest first, then XXH3-64
//! of everything before. Whatever is wrong with the file, there is no list: it is a convenience.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use twox_hash::xxhash3_64::Hasher;

const MAGIC: [u8; 8] = *b"FSTHOT01";
const FIXED: usize = 8 + 8 + 8;
const ENTRY: usize = 8;

fn file(folder: &Path, identity: u64) -> PathBuf {
    folder.join(format!("{identity:016x}.hot"))
}

/// Writes the list into a folder, which is made if it is not there, in one step.
pub fn save(folder: &Path, identity: u64, pages: &[(u32, f64)]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(FIXED + ENTRY * pages.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&identity.to_le_bytes());
    for (page, heat) in pages {
        bytes.extend_from_slice(&page.to_le_bytes());
        bytes.extend_from_slice(&(*heat as f32).to_le_bytes());
    }
    bytes.extend_from_slice(&Hasher::oneshot(&bytes).to_le_bytes());
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&bytes)?;
    file.persist(self::file(folder, identity))
        .map_err(|e| e.error)?;
    Ok(())
}

/// The list of the container with this identity, of pages below `pages`; empty where there is none.
pub fn load(folder: &Path, identity: u64, pages: usize) -> Vec<(u32, f64)> {
    read(&file(folder, identity), identity, pages).unwrap_or_default()
}

fn read(path: &Path, identity: u64, pages: usize) -> Option<Vec<(u32, f64)>> {
    // A pipe would wait for ever.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let most = FIXED + ENTRY * pages;
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(most as u64 + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() < FIXED || bytes.len() > most || !(bytes.len() - FIXED).is_multiple_of(ENTRY) {
        return None;
    }
    let (content, checksum) = bytes.split_at(bytes.len() - 8);
    if checksum != Hasher::oneshot(content).to_le_bytes() {
        return None;
    }
    let entries = content
        .strip_prefix(&MAGIC)?
        .strip_prefix(&identity.to_le_bytes())?;
    let (entries, _) = entries.as_chunks::<ENTRY>();
    let mut list = Vec::with_capacity(entries.len());
    for [a, b, c, d, heat @ ..] in entries {
        let page = u32::from_le_bytes([*a, *b, *c, *d]);
        let heat = f64::from(f32::from_le_bytes(*heat));
        if page as usize >= pages || !heat.is_finite() || heat < 0.0 {
            return None;
        }
        list.push((page, heat));
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_list_comes_back_for_its_own_model_only() {
        let folder = tempfile::tempdir().unwrap();
        let lists = folder.path().join("new/lists");
        let list = [(7, 3.5), (0, 1.25), (99, 0.0)];
        save(&lists, 42, &list).unwrap();
        save(&lists, 42, &list).unwrap();
        assert_eq!(load(&lists, 42, 100), list);
        assert_eq!(load(&lists, 43, 100), []);
        assert_eq!(load(&lists, 42, 99), [], "a page that does not exist");
        assert_eq!(load(&lists, 42, 2), [], "longer than there are pages");
        assert_eq!(load(&folder.path().join("none"), 42, 100), []);
        assert_eq!(fs::read_dir(&lists).unwrap().count(), 1);
        // Under another's name.
        fs::rename(file(&lists, 42), file(&lists, 43)).unwrap();
        assert_eq!(load(&lists, 43, 100), []);
    }

    #[test]
    fn any_damage_means_no_list() {
        let folder = tempfile::tempdir().unwrap();
        save(folder.path(), 42, &[(7, 3.5), (1, 1.0)]).unwrap();
        let path = file(folder.path(), 42);
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            fs::write(&path, &bad).unwrap();
            assert_eq!(load(folder.path(), 42, 100), [], "byte {at}");
            fs::write(&path, &bytes[..at]).unwrap();
            assert_eq!(load(folder.path(), 42, 100), [], "cut at {at}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(load(folder.path(), 42, 100), []);
    }
}
