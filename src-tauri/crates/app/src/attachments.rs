//! Text files that the person chose to send along.

use std::io::Read;
use std::path::{Path, PathBuf};

use fastar_api::Attachment;

use crate::error::{Error, Result};
use crate::generation::{MAX_MESSAGE_BYTES, MOST_FILES};

/// Reads the files of one message; too many are refused before one is read.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Attachment>> {
    if paths.len() > MOST_FILES {
        return Err(Error::BadRequest(format!(
            "These are {} files, and {MOST_FILES} is the limit for one message.",
            paths.len()
        )));
    }
    paths.iter().map(|path| read(path)).collect()
}

/// Reads a file and its name. Files that are no text, and those that are longer than any message, are refused.
fn read(path: &Path) -> Result<Attachment> {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let text = read_text(path, MAX_MESSAGE_BYTES)?;
    if text.trim().is_empty() {
        return Err(Error::BadRequest(format!("{name} is empty.")));
    }
    Ok(Attachment { name, text })
}

/// The text of a plain file of at most `most` bytes.
pub(crate) fn read_text(path: &Path, most: usize) -> Result<String> {
    let facts = std::fs::metadata(path).map_err(Error::file(path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A pipe or device could be waited for for ever.
    if !facts.is_file() {
        return Err(Error::BadRequest(format!("{name} is not a file.")));
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    std::fs::File::open(path)
        .and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes))
        .map_err(Error::file(path))?;
    if bytes.len() > most {
        return Err(Error::BadRequest(format!(
            "{name} has {} bytes, and {most} is the limit.",
            facts.len().max(bytes.len() as u64)
        )));
    }
    text_of(bytes).ok_or_else(|| {
        Error::BadRequest(format!(
            "{name} is not a text file (or not in UTF-8), so the model cannot read it."
        ))
    })
}

/// Bytes as text: UTF-8 without NUL, a byte order mark taken off.
fn text_of(bytes: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(bytes).ok()?;
    if text.contains('\0') {
        return None;
    }
    Some(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_text_is_read_whole_and_anything_else_is_refused_with_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let read_one = |bytes: &[u8]| read(&file("notes 修.txt", bytes)).map_err(|e| e.to_string());
        assert_eq!(
            read_one("\u{feff}a\r\nü".as_bytes()).unwrap(),
            Attachment {
                name: "notes 修.txt".into(),
                text: "a\r\nü".into()
            }
        );
        let no_text =
            "notes 修.txt is not a text file (or not in UTF-8), so the model cannot read it.";
        assert_eq!(read_one(b"\x89PNG\r\n\x1a\n\xff"), Err(no_text.into()));
        assert_eq!(read_one(b"a\0b"), Err(no_text.into()));
        assert_eq!(read_one(b" \n"), Err("notes 修.txt is empty.".into()));
        let most = vec![b'x'; MAX_MESSAGE_BYTES];
        assert_eq!(read_one(&most).unwrap().text.len(), MAX_MESSAGE_BYTES);
        let longer = vec![b'x'; MAX_MESSAGE_BYTES + 1];
        assert_eq!(
            read_one(&longer),
            Err("notes 修.txt has 2000001 bytes, and 2000000 is the limit.".into())
        );
        // Too many are not even looked at.
        let many = vec![folder.path().join("not there"); MOST_FILES + 1];
        assert_eq!(
            read_all(&many).map_err(|e| e.to_string()),
            Err("These are 21 files, and 20 is the limit for one message.".into())
        );
        let two = [file("a.txt", b"a"), file("b.txt", b"b")];
        assert_eq!(read_all(&two).unwrap().len(), 2);
        let refused = read(folder.path()).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|why| why.ends_with("is not a file.")));
    }
}
