//! The folder with the models: what is in it, how much room it takes, and deleting.
//!
//! A model is named by the name of its container. To it belong files of the same name with an ending of ours, the folder of its unfinished
//! download, and the files of its set ([`set`]). Everything else in the folder is somebody else's and is never touched.

pub(crate) mod catalogue;
pub(crate) mod set;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fastar_api::{ApiError, Condition, ErrorCode, Library, ModelFile};
use fastar_files::holders::{self, Holder};

use crate::error::{Error, Result};
use crate::jobs::Workshop;

/// Ending of a container.
pub(crate) const CONTAINER: &str = ".fst";
/// No file system has longer names, in bytes.
const LONGEST_NAME: usize = 255;
/// What is added to a container's name for the sidecars of the older format.
pub(crate) const SIDECARS: &[&str] = &[".hc", ".norm", ".tid2eid"];
/// What is added to a container's name by unfinished work.
const UNFINISHED: &[&str] = &[".partial", ".partial.state", ".partial.state.new"];
/// In the place of [`CONTAINER`]: the folder of an unfinished download.
const DOWNLOAD: &str = ".download";
/// What is in such a folder ([`crate::install`]). Other programs name folders so too, and those are not ours.
const IN_DOWNLOAD: &[&str] = &[
    "download.json",
    "download.partial",
    "lock",
    "files",
    "headers",
];

/// The folder of the unfinished download of a container.
pub(crate) fn download_folder(folder: &Path, file: &str) -> PathBuf {
    let name = file.strip_suffix(CONTAINER).unwrap_or(file);
    folder.join(format!("{name}{DOWNLOAD}"))
}

/// The model's name in a request, checked: a plain file name with the right ending, so that no request reaches out of the folder.
pub(crate) fn checked_name(file: &str) -> Result<&str> {
    let plain = Path::new(file).file_name().is_some_and(|name| name == file)
        && file.ends_with(CONTAINER)
        && (CONTAINER.len() + 1..=LONGEST_NAME).contains(&file.len())
        && !file.chars().any(char::is_control);
    if plain {
        Ok(file)
    } else {
        Err(Error::ModelNotFound)
    }
}

/// A model file anywhere on this computer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundModel {
    /// The file's name.
    pub name: String,
    /// The folder it is in.
    pub folder: String,
    /// Its size in bytes, with the files that belong to it.
    pub bytes: u64,
}

/// Looks at a model file anywhere, as far as its beginning says what it is.
pub(crate) fn look(path: &Path) -> Result<FoundModel> {
    let path = std::path::absolute(path).map_err(Error::file(path))?;
    let container = fastar_fst::Container::open(&path)?;
    let shown = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    Ok(FoundModel {
        name: shown(path.file_name()),
        folder: shown(path.parent().map(Path::as_os_str)),
        bytes: container.file_bytes(),
    })
}

/// What there is, by name. `used` are the files in use or remembered.
pub(crate) fn list(folder: &Path, used: &[PathBuf], workshop: &dyn Workshop) -> Result<Library> {
    let mut files = Vec::new();
    for (file, parts) in models(folder, workshop)? {
        let path = set::path_of(folder, &file);
        let disk_bytes = parts.iter().map(|part| bytes(part)).sum();
        let (condition, source) = condition(folder, &file, disk_bytes, workshop);
        let linked = linked(&path);
        files.push(ModelFile {
            linked_bytes: linked.as_ref().map(|(_, bytes)| *bytes),
            linked_to: linked.map(|(to, _)| to.display().to_string()),
            name: file.strip_suffix(CONTAINER).unwrap_or(&file).to_owned(),
            disk_bytes,
            condition,
            in_use: used.iter().any(|used| is_same(used, &path)),
            source,
            file,
        });
    }
    Ok(Library {
        folder: folder.display().to_string(),
        free_bytes: free_bytes(folder),
        files,
        catalogue: catalogue::entries(),
    })
}

/// Deletes a model with everything that belongs to it. Returns the bytes that were freed. Refused while another program is at work on it.
pub(crate) fn delete(folder: &Path, file: &str, workshop: &dyn Workshop) -> Result<u64> {
    let parts = models(folder, workshop)?
        .remove(file)
        .ok_or(Error::ModelNotFound)?;
    let freed = parts.iter().map(|part| bytes(part)).sum();
    let _alone = alone(&set::path_of(folder, file), file)?;
    let download = download_folder(folder, file);
    let foreign = download.exists() && !parts.contains(&download);
    if !foreign && parts.iter().any(|part| is_unfinished(part)) {
        // First, by those who know whether another program is at it.
        workshop.discard(folder, file).map_err(Error::Told)?;
    }
    for part in parts {
        let removed = match fs::symlink_metadata(&part) {
            Ok(facts) if facts.is_dir() => fs::remove_dir_all(&part),
            Ok(_) => fs::remove_file(&part),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::file(&part)(error));
            }
            _ => {}
        }
    }
    // Stays where somebody else's files are in it.
    let _ = fs::remove_dir(set::folder_of(folder, file));
    Ok(freed)
}

/// Holds the main file of a model alone, if it is there.
fn alone(path: &Path, name: &str) -> Result<Option<fs::File>> {
    let name = name.to_owned();
    holders::alone(path).map_err(|Holder { pid }| match pid {
        Some(pid) if pid == std::process::id() => Error::ModelInUse { name },
        pid => Error::ModelLoadedElsewhere { name, pid },
    })
}

/// The files of a model, without what unfinished work has left: of a set that is just being moved too, whatever of it is still there.
pub(crate) fn whole_parts(folder: &Path, file: &str) -> Vec<PathBuf> {
    let mut parts: Vec<PathBuf> = std::iter::once(&"")
        .chain(SIDECARS)
        .map(|ending| folder.join(format!("{file}{ending}")))
        .filter(|path| fs::symlink_metadata(path).is_ok())
        .collect();
    if parts.is_empty() {
        parts = set::parts_of(&set::folder_of(folder, file)).unwrap_or_default();
    }
    parts
}

/// Whether two paths lead to one file.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path| fs::canonicalize(path).ok();
    one == other || real(one).is_some_and(|path| real(other) == Some(path))
}

/// Bytes that can still be written where `folder` is or will be.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|ancestor| ancestor.exists())?;
    let facts = rustix::fs::statvfs(there).ok()?;
    facts.f_bavail.checked_mul(facts.f_frsize)
}

/// Names of the models and the paths of what belongs to each. A folder that does not exist yet is empty.
fn models(folder: &Path, workshop: &dyn Workshop) -> Result<BTreeMap<String, Vec<PathBuf>>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(Error::file(folder)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(Error::file(folder))?;
        // A name that is no text is not one of ours, and neither is what is no file, link or folder: opening a pipe would wait for ever.
        let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else {
            continue;
        };
        if kind.is_dir() && set::main_of(&entry.path()).is_some() {
            let parts = found.entry(format!("{name}{CONTAINER}")).or_default();
            parts.extend(set::parts_of(&entry.path()).unwrap_or_default());
            continue;
        }
        let file = if kind.is_dir() {
            model_of_folder(&name).filter(|file| {
                workshop.leftover(folder, file).is_some() || holds_a_download(&entry.path())
            })
        } else if kind.is_file() || kind.is_symlink() {
            model_of_file(&name)
        } else {
            None
        };
        if let Some(file) = file {
            found.entry(file).or_default().push(entry.path());
        }
    }
    Ok(found)
}

/// Where a link of a model leads, and how large the file there is; none for a file, and for a link to nothing.
fn linked(path: &Path) -> Option<(PathBuf, u64)> {
    if !path.is_symlink() {
        return None;
    }
    let real = fs::canonicalize(path).ok()?;
    let bytes = fs::metadata(&real).ok()?.len();
    Some((real, bytes))
}

fn is_unfinished(part: &Path) -> bool {
    let name = part.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(DOWNLOAD) || UNFINISHED.iter().any(|ending| name.ends_with(ending))
}

/// The model whose unfinished download a folder of this name is.
fn model_of_folder(name: &str) -> Option<String> {
    let stem = name.strip_suffix(DOWNLOAD)?;
    (!stem.is_empty()).then(|| format!("{stem}{CONTAINER}"))
}

/// Whether there is nothing in a folder but what our downloads put there.
pub(crate) fn holds_a_download(folder: &Path) -> bool {
    let is_ours = |entry: std::io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| IN_DOWNLOAD.iter().any(|name| entry.file_name() == *name))
    };
    fs::read_dir(folder).is_ok_and(|mut entries| entries.all(is_ours))
}

/// The model that a file of this name belongs to.
fn model_of_file(name: &str) -> Option<String> {
    let whole = SIDECARS
        .iter()
        .chain(UNFINISHED)
        .find_map(|ending| {
            name.strip_suffix(ending)
                .filter(|rest| rest.ends_with(CONTAINER))
        })
        .unwrap_or(name);
    (whole.ends_with(CONTAINER) && whole.len() > CONTAINER.len()).then(|| whole.to_owned())
}

fn condition(
    folder: &Path,
    file: &str,
    disk_bytes: u64,
    workshop: &dyn Workshop,
) -> (Condition, Option<String>) {
    let path = set::path_of(folder, file);
    if path.is_file() {
        return match fastar_fst::inspect(&path) {
            Ok(about) => (Condition::Whole, about.repository.or(about.source)),
            Err(error) => {
                let error = Error::from(fastar_engine::Error::from(error)).into();
                (Condition::Unusable { error }, None)
            }
        };
    }
    if path.is_symlink() {
        let error = ApiError {
            code: ErrorCode::NoModel,
            message: format!("{} is a link that leads to no file.", path.display()),
            hint: Some("Connect the disk that the file is on, or delete the link.".into()),
            details: None,
        };
        return (Condition::Unusable { error }, None);
    }
    match workshop.leftover(folder, file) {
        Some(left) => (
            Condition::Incomplete {
                done_bytes: left.done_bytes,
                total_bytes: left.total_bytes,
                resumable: true,
            },
            Some(left.order.repository),
        ),
        None => (
            Condition::Incomplete {
                done_bytes: disk_bytes,
                total_bytes: None,
                resumable: false,
            },
            None,
        ),
    }
}

/// Bytes that a file or folder takes on the disk; what cannot be looked at counts nothing. Links are not followed.
pub(crate) fn bytes(path: &Path) -> u64 {
    let Ok(facts) = fs::symlink_metadata(path) else {
        return 0;
    };
    let inside = if facts.is_dir() {
        fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| bytes(&entry.path()))
            .sum()
    } else {
        0
    };
    inside + allocated(&facts)
}

#[cfg(unix)]
fn allocated(facts: &Metadata) -> u64 {
    // Blocks of 512 bytes whatever the file system's own are: files that are begun have their whole length and few blocks.
    std::os::unix::fs::MetadataExt::blocks(facts) * 512
}

#[cfg(not(unix))]
fn allocated(facts: &Metadata) -> u64 {
    facts.len()
}
