//! The folder of a download that has not come to its end: `NAME.download` beside `NAME.fst`.
//!
//! It holds `download.json` (what was ordered, the commit with its files, and which shards are in the container already), a lock that dies with
//! its process, and in folders of their own what arrives (the small files of the checkpoint, the one or two shards that are on their way) and the
//! headers of all shards. The container itself grows as `NAME.fst.partial`.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use fastar_hub::{RemoteFile, Snapshot};
use serde::{Deserialize, Serialize};

use super::Result;
use crate::data::{self, write_whole};
use crate::error::Error;
use crate::jobs::{Leftover, Order};
use crate::library::{self, download_folder};

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
        let somebody_elses =
            fs::symlink_metadata(&folder).is_ok_and(|facts| !facts.is_dir() || !is_ours(&folder));
        if somebody_elses {
            return Err(Error::BadRequest(format!(
                "{} is in the way: it holds files that are not of a download. Move it away, or choose another folder.",
                folder.display()
            )));
        }
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        for ending in ["partial", "partial.state", "partial.state.new"] {
            refuse_links(&order.folder.join(format!("{}.{ending}", order.file)))?;
        }
        refuse_links(&folder)?;
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
    pub(super) fn load(&self) -> Option<Record> {
        match read(&self.folder) {
            Ok(record) => record,
            // The files beside it are kept and found again by their names and hashes.
            Err(error) => {
                tracing::warn!(%error, "the record of a download is damaged and is made anew");
                None
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
    pub(super) fn become_folder(&self, folder: &Path) -> Result<()> {
        fs::rename(self.files(), folder).map_err(Error::file(folder))?;
        self.remove()
    }

    /// The headers are asked for anew.
    pub(super) fn forget_headers(&self) -> Result<()> {
        remove_folder(&self.headers())
    }

    /// The hub is asked anew for everything but shards that have arrived.
    pub(super) fn forget(&self, record: &Record) -> Result<()> {
        self.forget_headers()?;
        let shards: HashSet<&str> = record.wanted.iter().map(String::as_str).collect();
        for file in &record.snapshot.files {
            let path = self.files().join(&file.path);
            if !shards.contains(file.path.as_str()) && path.exists() {
                fastar_hub::remove_file(&path)?;
            }
        }
        remove_file(&self.folder.join(RECORD))
    }

    /// Removes the folder with everything of ours in it; what somebody else has put there stays. The record goes last, so that a kill
    /// meanwhile leaves something that can be gone on with.
    pub(super) fn remove(&self) -> Result<()> {
        remove_folder(&self.files())?;
        remove_folder(&self.headers())?;
        remove_file(&self.folder.join(RECORD))?;
        remove_file(&self.folder.join("lock"))?;
        // Not empty: then it is not only ours.
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }

    /// Removes everything that an unfinished download of `file` has left. Refused while another process is at it.
    pub(super) fn discard(folder: &Path, file: &str) -> Result<()> {
        let own = download_folder(folder, file);
        let held = match fs::symlink_metadata(&own) {
            Ok(facts) if facts.is_dir() && is_ours(&own) => Some(Self::hold(own, file)?),
            _ => None,
        };
        // Without a record of either kind, a file of that name is somebody else's.
        if held.is_some() || folder.join(format!("{file}.partial.state")).exists() {
            fastar_fst::discard_unfinished(&folder.join(file))?;
        }
        held.map_or(Ok(()), |held| held.remove())
    }
}

/// Whether a folder of that name is of a download: other programs name folders so too.
fn is_ours(folder: &Path) -> bool {
    library::holds_a_download(folder) || matches!(read(folder), Ok(Some(_)))
}

/// A folder of models may come from somebody else. A download makes files and folders; what is anything else, at any depth, could lead its
/// writing and removing to any place on the disk.
fn refuse_links(path: &Path) -> Result<()> {
    let facts = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        facts => facts.map_err(Error::file(path))?,
    };
    if facts.is_file() {
        return Ok(());
    }
    if !facts.is_dir() {
        return Err(Error::Occupied(format!(
            "{} is in the way: it is a link, or no file at all, and no download has made it. Move it away, or choose another folder.",
            path.display()
        )));
    }
    for entry in fs::read_dir(path).map_err(Error::file(path))? {
        refuse_links(&entry.map_err(Error::file(path))?.path())?;
    }
    Ok(())
}

fn remove_folder(folder: &Path) -> Result<()> {
    gone(folder, fs::remove_dir_all(folder))
}

fn remove_file(path: &Path) -> Result<()> {
    gone(path, fs::remove_file(path))
}

fn gone(path: &Path, removed: io::Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file(path)(error)),
        _ => Ok(()),
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
        .map(|file| fastar_hub::presence(file, &own.join(FILES).join(&file.path)).bytes(file))
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
    let path = folder.join(RECORD);
    match fs::metadata(&path) {
        // Opening a pipe would wait for ever.
        Ok(facts) if !facts.is_file() => return Err(io::Error::other("it is not a file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        _ => {}
    }
    let file = File::open(path)?;
    let mut text = Vec::new();
    file.take(LONGEST_RECORD).read_to_end(&mut text)?;
    let record: Record = serde_json::from_slice(&text)?;
    if record.version != VERSION {
        return Err(io::Error::other("it is of another version"));
    }
    // Nor paths be followed out of the folder.
    for file in &record.snapshot.files {
        file.check().map_err(io::Error::other)?;
    }
    // Numbers that a damaged file may hold must not be added up.
    let total = record
        .snapshot
        .files
        .iter()
        .try_fold(0_u64, |sum, file| sum.checked_add(file.bytes));
    match total {
        Some(_) => Ok(Some(record)),
        None => Err(io::Error::other("its sizes cannot be right")),
    }
}
