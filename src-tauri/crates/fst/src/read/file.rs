//! Where the bytes of a container come from, and what the first of them say it is.
//!
//! A file is read, never mapped: one that is cut short while it is open would end the process through a mapping, and is an error here.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, shown_path};
use crate::format::{HEADER_BYTES, MAGIC, VERSION};
use crate::upgrade::is_unfinished;
use crate::v2;

/// A multiple of every size of entries.
const PIECE_BYTES: u64 = 1 << 20;

/// A whole file, open, or bytes in memory.
pub(crate) enum Bytes {
    File {
        file: File,
        path: PathBuf,
        /// As it was when the file was opened.
        length: u64,
    },
    Static(&'static [u8]),
}

impl Bytes {
    pub fn length(&self) -> u64 {
        match self {
            Self::File { length, .. } => *length,
            Self::Static(bytes) => bytes.len() as u64,
        }
    }

    /// A part that lay inside the file when it was opened. Whoever asks has bounded it: it is allocated.
    pub fn read(&self, range: Range<u64>) -> Result<Cow<'static, [u8]>> {
        match self {
            Self::File { .. } => {
                let mut part = Vec::new();
                let length = range.end.saturating_sub(range.start);
                usize::try_from(length)
                    .ok()
                    .and_then(|length| {
                        part.try_reserve_exact(length).ok()?;
                        part.resize(length, 0);
                        Some(())
                    })
                    .ok_or_else(|| self.failed(io::ErrorKind::OutOfMemory.into()))?;
                self.fill(&mut part, range.start)?;
                Ok(Cow::Owned(part))
            }
            Self::Static(bytes) => match slice(bytes, range) {
                Some(part) => Ok(Cow::Borrowed(part)),
                None => Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
            },
        }
    }

    /// The same, or none if the file is too short for it.
    pub fn get(&self, range: Range<u64>) -> Result<Option<Cow<'static, [u8]>>> {
        match range.start <= range.end && range.end <= self.length() {
            true => self.read(range).map(Some),
            false => Ok(None),
        }
    }

    /// The same into memory of the caller.
    pub fn fill(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        let outcome = match self {
            Self::File { file, .. } => read_exact_at(file, buffer, at),
            Self::Static(bytes) => match slice(bytes, at..at + buffer.len() as u64) {
                Some(part) => {
                    buffer.copy_from_slice(part);
                    Ok(())
                }
                None => Err(io::ErrorKind::UnexpectedEof.into()),
            },
        };
        outcome.map_err(|error| self.failed(error))
    }

    /// The same piece by piece, for what may be large.
    pub fn each_piece(
        &self,
        range: Range<u64>,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut piece = vec![0; PIECE_BYTES.min(range.end.saturating_sub(range.start)) as usize];
        let mut at = range.start;
        while at < range.end {
            let piece = &mut piece[..(range.end - at).min(PIECE_BYTES) as usize];
            self.fill(piece, at)?;
            each(piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// The first bytes, as many as there are of `most`.
    pub fn start(&self, most: u64) -> Result<Cow<'static, [u8]>> {
        self.read(0..most.min(self.length()))
    }

    fn failed(&self, error: io::Error) -> Error {
        match self {
            // Its parts were inside it when it was opened.
            Self::File { file, path, length } if error.kind() == io::ErrorKind::UnexpectedEof => {
                Error::Length {
                    name: shown_path(path),
                    expected: *length,
                    actual: file.metadata().map_or(0, |about| about.len()),
                }
            }
            Self::File { path, .. } => Error::io("read", path, error),
            Self::Static(_) => Error::io("read", Path::new("the built-in model"), error),
        }
    }
}

fn slice(bytes: &'static [u8], range: Range<u64>) -> Option<&'static [u8]> {
    let (start, end) = (range.start.try_into().ok()?, range.end.try_into().ok()?);
    bytes.get::<Range<usize>>(start..end)
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                buffer = &mut buffer[n..];
                at += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) fn is_version_2(start: &[u8]) -> bool {
    start.starts_with(&MAGIC) && start.get(4..8) == Some(&v2::VERSION.to_le_bytes())
}

/// Opens a file that may be a container.
pub(crate) fn open(path: &Path) -> Result<Bytes> {
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
    // Of what was opened: another file may have taken the name meanwhile.
    let length = file.metadata().map_err(io)?.len();
    Ok(Bytes::File {
        file,
        path: path.to_owned(),
        length,
    })
}

/// Checks length, magic and version of the first bytes, in the order that gives a person the most useful answer.
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
                    "It needs a newer FaStar: update FaStar."
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
