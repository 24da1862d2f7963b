//! The folder of a download that has not come to its end: `NAME.download` beside `NAME.fst`.
//!
//! It holds `download.json` (what was ordered, the commit with its files, and which shards are in the container already), a lock that dies with
//! its process, and in folders of their own what arrives (the small files of the checkpoint, the one or two shards that are on their way) and the
//! headers of all shards. The container itself grows as `NAME.fst.partial`.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use fastar_hub::{Presence, RemoteFile, Snapshot};
use serde::{Deserialize, Serialize};

use super::Result;
use crate::data::{self, write_whole};
use crate::error::Error;
use crate::jobs::{Leftover, Order};
use crate::library::download_folder;

const RECORD: &str = "download.json";
/// What arrives; names in it are the repository's.
const FILES: &str = "files";
const HEADERS: &str = "headers";
const VERSION: u32 = 1;
/// No record of a download is longer: a hundred thousand files of a repository fit.
const LONGEST_RECORD: u64 = 64 << 20;

/// What `download.json` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    pub(super) order: Order,
    /// The program that began: the container says so, and a newer version goes on with what an older one has begun.
    pub(super) creator: String,
    pub(super) snapshot: Snapshot,
    /// Files that have to arrive, by path; none before that is known.
    pub(super) wanted: Vec<String>,
    /// Those of them that are in the container already.
    pub(super) done: Vec<String>,
}

impl Record {
    pub(super) fn new(order: &Order, snapshot: Snapshot) -> Self {
        Self {
            version: VERSION,
            order: order.clone(),
            creator: fastar_fst::CREATOR.to_owned(),
            snapshot,
            wanted: Vec::new(),
            done: Vec::new(),
        }
    }

    /// The files that have to arrive, in their order.
    pub(super) fn wanted_files(&self) -> Vec<&RemoteFile> {
        let wanted: HashSet<&str> = self.wanted.iter().map(String::as_str).collect();
        self.snapshot
            .files
            .iter()
            .filter(|file| wanted.contains(file.path.as_str()))
            .collect()
    }

    /// Bytes of what is in the container.
    pub(super) fn done_bytes(&self) -> u64 {
        let done: HashSet<&str> = self.done.iter().map(String::as_str).collect();
        self.wanted_files()
            .into_iter()
            .filter(|file| done.contains(file.path.as_str()))
            .map(|file| file.bytes)
            .sum()
    }
}

/// The folder, held by this process until dropped.
pub(super) struct Unfinished {
    folder: PathBuf,
    // The kernel releases it when the process dies, however it dies.
    _lock: File,
}

impl Unfinished {
    /// Makes the folder where it is missing, and takes it.
    pub(super) fn take(order: &Order) -> Result<Self> {
        let folder = download_folder(&order.folder, &order.file);
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        Self::hold(folder, &order.title)
    }

    fn hold(folder: PathBuf, title: &str) -> Result<Self> {
        let lock = data::take_lock(&folder, |pid| Error::DownloadedElsewhere {
            name: title.to_owned(),
            pid,
        })?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    /// Where files arrive.
    pub(super) fn files(&self) -> PathBuf {
        self.folder.join(FILES)
    }

    /// Where the headers of shards are kept.
    pub(super) fn headers(&self) -> PathBuf {
        self.folder.join(HEADERS)
    }

    /// What was going on here, if anything.
    pub(super) fn load(&self) -> Result<Option<Record>> {
        match read(&self.folder) {
            Ok(record) => Ok(record),
            // The files beside it are kept and found again by their names and hashes.
            Err(error) => {
                tracing::warn!(%error, "the record of a download is damaged and is made anew");
                Ok(None)
            }
        }
    }

    pub(super) fn save(&self, record: &Record) -> Result<()> {
        let path = self.folder.join(RECORD);
        let text = serde_json::to_vec(record).map_err(|error| Error::File {
            path: path.clone(),
            source: error.into(),
        })?;
        write_whole(&path, &text)
    }

    /// What has arrived becomes a folder of its own, and the rest is removed.
    pub(super) fn become_folder(self, folder: &Path) -> Result<()> {
        fs::rename(self.files(), folder).map_err(Error::file(folder))?;
        self.remove()
    }

    /// Removes the folder with everything in it.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.folder).map_err(Error::file(&self.folder))
    }

    /// Removes everything that an unfinished download of `file` has left. Refused while another process is at it.
    pub(super) fn discard(folder: &Path, file: &str) -> Result<()> {
        let own = download_folder(folder, file);
        let held = match fs::symlink_metadata(&own) {
            Ok(facts) if facts.is_dir() => Some(Self::hold(own, file)?),
            _ => None,
        };
        if folder.is_dir() {
            fastar_fst::discard_unfinished(&folder.join(file))?;
        }
        held.map_or(Ok(()), Self::remove)
    }
}

/// What an unfinished download of `file` has left, from the disk alone.
pub(super) fn leftover(folder: &Path, file: &str) -> Option<Leftover> {
    let own = download_folder(folder, file);
    let record = read(&own).ok()??;
    let done: HashSet<&str> = record.done.iter().map(String::as_str).collect();
    let wanted = record.wanted_files();
    let there = wanted
        .iter()
        .filter(|file| !done.contains(file.path.as_str()))
        .map(
            |file| match fastar_hub::presence(file, &own.join(FILES).join(&file.path)) {
                Presence::Whole => file.bytes,
                Presence::Partial(bytes) => bytes,
                Presence::Absent => 0,
            },
        )
        .sum::<u64>();
    let total = wanted.iter().map(|file| file.bytes).sum();
    Some(Leftover {
        done_bytes: record.done_bytes() + there,
        total_bytes: (!wanted.is_empty()).then_some(total),
        // The folder may have been moved since.
        order: Order {
            folder: folder.to_owned(),
            file: file.to_owned(),
            ..record.order
        },
    })
}

/// The record in a folder; none where there is none.
fn read(folder: &Path) -> io::Result<Option<Record>> {
    let file = match File::open(folder.join(RECORD)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    file.take(LONGEST_RECORD).read_to_end(&mut text)?;
    let record: Record = serde_json::from_slice(&text)?;
    if record.version == VERSION {
        Ok(Some(record))
    } else {
        Err(io::Error::other("it is of another version"))
    }
}
