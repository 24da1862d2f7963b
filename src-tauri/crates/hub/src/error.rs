//! What can go wrong with a download. Every error is one sentence that names the repository, the file or the folder, and what to do. No
//! message holds a token, a proxy's password or a signed address.

use std::io;
use std::path::{Path, PathBuf};

use fastar_files::holders::Holder;
use fastar_kernels::threads::Refused;

/// Errors of this crate. Whatever happens, bytes that arrived stay on the disk and the next attempt goes on from them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting that cannot be used.
    #[error("{what} cannot be used: {problem}.")]
    Setting {
        /// Which one, at the start of a sentence.
        what: &'static str,
        /// Why.
        problem: String,
    },
    /// The system starts no more threads.
    #[error(transparent)]
    Threads(#[from] Refused),
    /// Not the name of a repository or revision.
    #[error(
        "{name:?} is not {what}. A repository is written OWNER/NAME, a revision as a branch, tag or commit."
    )]
    Name {
        /// What was given.
        name: String,
        /// What it should have been.
        what: &'static str,
    },
    /// The hub lists a file whose name would leave the folder or cannot be stored.
    #[error(
        "{repo} lists the file {path:?}, which {problem}. Nothing was downloaded; do not trust this repository or mirror."
    )]
    HostilePath {
        /// The repository.
        repo: String,
        /// The name, shortened.
        path: String,
        /// Why it is refused.
        problem: &'static str,
    },
    /// Nobody answered, several times.
    #[error("Could not {action}: {why}. Check the connection and try again.")]
    Unreachable {
        /// What was tried, as a verb.
        action: String,
        /// The last reason.
        why: String,
    },
    /// A protected connection to somebody who cannot prove who it is.
    #[error("{host} cannot be trusted: its certificate {problem}.")]
    Untrusted {
        /// The host that was asked.
        host: String,
        /// What is wrong with the certificate, and what to do.
        problem: String,
    },
    /// 401 or 403 from the hub.
    #[error(
        "{host} does not give {what} without permission (status {status}). If the repository is gated, accept its terms on its page there, \
             and set a token that may read it (HF_TOKEN or the settings)."
    )]
    Denied {
        /// The hub.
        host: String,
        /// Repository, or file and repository.
        what: String,
        /// HTTP status.
        status: u16,
    },
    /// 404 from the hub.
    #[error(
        "{host} has no {what}. Check the spelling and the revision; a private repository needs a token."
    )]
    NotFound {
        /// The hub.
        host: String,
        /// What was asked for.
        what: String,
    },
    /// Another answer that waiting does not change.
    #[error("{host} refused {what}: {problem}.")]
    Refused {
        /// Who answered.
        host: String,
        /// What was asked for.
        what: String,
        /// Status or defect.
        problem: String,
    },
    /// A web page instead of the file.
    #[error(
        "A web page came back from {host} instead of {path} (a log-in portal or a proxy?). Open a browser, log in to the network if it asks, and try again."
    )]
    WebPage {
        /// Who sent it.
        host: String,
        /// The file asked for.
        path: String,
    },
    /// Not enough room, found before the first byte.
    #[error("The download needs {} more, and {} has {} free. Free some space or choose another folder.", size(*.needed), shown(.folder), size(*.free))]
    NotEnoughSpace {
        /// Bytes still needed, reserve included.
        needed: u64,
        /// Bytes free.
        free: u64,
        /// Where.
        folder: PathBuf,
    },
    /// The disk filled up in the middle.
    #[error("{} is full: {} more are needed. Everything so far is kept; free some space and the download goes on from there.", shown(.folder), size(*.missing))]
    Full {
        /// Where.
        folder: PathBuf,
        /// Bytes that did not fit.
        missing: u64,
    },
    /// No right to write there.
    #[error("{} is not writable ({source}). Choose another folder.", shown(.folder))]
    NotWritable {
        /// Where.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused to read or write.
    #[error("Could not {action} {}: {source}.", shown(.path))]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another process, or another job of this one, downloads or checks the file.
    #[error("{} is being {} already{}. Stop that first, or wait for it.", shown(.path), if .pid.is_some() { "downloaded" } else { "downloaded or checked" }, owner(*.pid))]
    Busy {
        /// The file.
        path: PathBuf,
        /// Who, if it is a download that left its number.
        pid: Option<u32>,
    },
    /// A program has loaded the model that the download would replace.
    #[error("{holder} has {} loaded, and the download would take its place. Close it and try again; what has arrived is kept.", shown(.path))]
    Loaded {
        /// The file.
        path: PathBuf,
        /// Who has it.
        holder: Holder,
    },
    /// Another file lies under the final name.
    #[error("{} exists and is not the file of {repo}. Move it away or choose another folder.", shown(.path))]
    Occupied {
        /// The file.
        path: PathBuf,
        /// The repository.
        repo: String,
    },
    /// The finished file is not what the hub describes.
    #[error("{} is damaged: {problem}.", shown(.path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where, and what to do.
        problem: String,
    },
    /// The server sent the same wrong bytes twice.
    #[error(
        "{host} sends {file} with wrong contents ({hashes}), the same each time. It is the server's fault: \
         try another mirror, or later. The bytes are kept in {}.",
        shown(.partial)
    )]
    WrongContents {
        /// Who sent it.
        host: String,
        /// Path and repository.
        file: String,
        /// What was compared, the hash of the bytes and the promised one.
        hashes: String,
        /// Where they are.
        partial: PathBuf,
    },
    /// The file on the server is another one than was listed.
    #[error(
        "{path} in {repo} was changed on the server since it was listed: {problem}. Start the download again."
    )]
    Changed {
        /// The repository.
        repo: String,
        /// The file.
        path: String,
        /// What differs.
        problem: String,
    },
    /// Stopped by the person.
    #[error("Stopped; what has arrived is kept.")]
    Cancelled,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// An I/O failure while reading or writing `path`; full disks and missing rights get their own words.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let folder = || path.parent().unwrap_or(path).to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::Full {
                folder: folder(),
                missing: 0,
            },
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
                if action != "read" =>
            {
                Self::NotWritable {
                    folder: folder(),
                    source,
                }
            }
            _ => Self::Io {
                action,
                path: path.to_owned(),
                source,
            },
        }
    }
}

fn owner(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" by process {pid}"))
        .unwrap_or_default()
}

/// A path for people, with control characters made visible.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.chars().any(char::is_control) {
        format!("{text:?}")
    } else {
        text.into_owned()
    }
}

/// A number of bytes for people: exact below a thousand, then three digits in decimal units.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for next in ["kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if unit == "bytes" || value >= 99.95 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}
