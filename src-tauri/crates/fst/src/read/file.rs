//! A file in memory, and what its first bytes say it is.

use std::fs::{self, File};
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

use crate::error::{Error, Result, shown_path};
use crate::format::{HEADER_BYTES, MAGIC, VERSION};
use crate::upgrade::is_unfinished;
use crate::v2;

/// A whole file.
pub(crate) enum Bytes {
    Mapped(Mmap, File),
    Static(&'static [u8]),
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map, _) => map,
            Self::Static(bytes) => bytes,
        }
    }
}

pub(super) fn is_version_2(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) && bytes.get(4..8) == Some(&v2::VERSION.to_le_bytes())
}

/// Maps a file that may be a container.
pub(crate) fn map(path: &Path) -> Result<Bytes> {
    let io = |source| Error::io("open", path, source);
    // Before opening: a named pipe would wait for a writer for ever.
    let about = fs::metadata(path).map_err(io)?;
    let name = shown_path(path);
    if !about.is_file() {
        return Err(Error::NotAContainer {
            name,
            found: if about.is_dir() {
                "is a folder".into()
            } else {
                "is not a regular file".into()
            },
        });
    }
    if about.len() == 0 {
        return Err(Error::NotAContainer {
            name,
            found: "is empty".into(),
        });
    }
    let file = File::open(path).map_err(io)?;
    // SAFETY: the mapping is read-only and private to its owner, and the crate's contract (documented on `Container`) is that
    // nobody truncates or rewrites the file in place while it is open; our own converter only ever replaces files by rename.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    Ok(Bytes::Mapped(map, file))
}

/// Checks length, magic and version, in the order that gives a person the most useful answer.
pub(super) fn check_start<'a>(bytes: &'a [u8], name: &str) -> Result<&'a [u8; HEADER_BYTES]> {
    let name = name.to_owned();
    if !bytes.starts_with(&MAGIC) {
        let found = match bytes {
            [] => "is empty".into(),
            [b'G', b'G', b'U', b'F', ..] => "is a GGUF file".into(),
            [b'P', b'K', ..] => "is a ZIP archive".into(),
            [0, 0, 0, 0, ..] => "begins with zeros, so it was never finished (an interrupted conversion or download)".into(),
            [b'<', ..] => "looks like a web page, perhaps a failed download".into(),
            [_, _, _, _, _, _, _, _, b'{', ..] => "looks like a safetensors file".into(),
            other => format!(
                "starts with {:?}",
                String::from_utf8_lossy(&other[..other.len().min(4)])
            ),
        };
        return Err(Error::NotAContainer { name, found });
    }
    let version = bytes
        .get(4..8)
        .and_then(|v| <[u8; 4]>::try_from(v).ok())
        .map(u32::from_le_bytes);
    match version {
        Some(VERSION) | None => {}
        Some(v2::VERSION) => return Err(Error::OldVersion { name }),
        Some(version) if is_unfinished(version) => {
            return Err(Error::Original {
                message: format!(
                    "The upgrade of {name} was interrupted; run `fastar upgrade {name}` again."
                ),
            });
        }
        Some(found) => {
            return Err(Error::Version {
                name,
                found,
                hint: if found > VERSION {
                    "Update FaStar to open it."
                } else {
                    "Convert the original checkpoint with `fastar convert`."
                },
            });
        }
    }
    bytes.first_chunk().ok_or(Error::Length {
        name,
        expected: HEADER_BYTES as u64,
        actual: bytes.len() as u64,
    })
}
