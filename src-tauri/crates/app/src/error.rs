//! What can go wrong in the app, as one sentence each, and how it reaches a face: [`fastar_api::ApiError`].
//!
//! Panics are turned into such errors here too, so that a bug of ours ends one request and not the window.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use fastar_api::{ApiError, ErrorCode};
use rusqlite::ffi;

/// Errors of this crate; every public method hands them out as [`ApiError`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("This chat does not exist any more.")]
    ChatNotFound,
    #[error("This answer does not exist any more.")]
    AnswerNotFound,
    #[error("This message does not exist any more.")]
    MessageNotFound,
    #[error("These saved instructions do not exist any more.")]
    PresetNotFound,
    #[error("This model is no longer there.")]
    ModelNotFound,
    #[error("This work is no longer in the list.")]
    JobNotFound,
    #[error("{name} is in use.")]
    ModelInUse { name: String },
    #[error("{name} is in use by another FaStar{}.", owner(*pid))]
    ModelLoadedElsewhere { name: String, pid: Option<u32> },
    #[error("Something is being done with {name} already.")]
    ModelBusy { name: String },
    #[error("The folder {folder}, where the download of {name} is, is not there.")]
    FolderGone { folder: String, name: String },
    #[error("{name} is being downloaded by another FaStar{}.", owner(*pid))]
    DownloadedElsewhere { name: String, pid: Option<u32> },
    #[error("{name} is damaged: {}.", parts_sentence(*parts))]
    ModelDamaged {
        name: String,
        parts: usize,
        /// It names the repository it was made from.
        can_be_fetched: bool,
        details: String,
    },
    #[error(transparent)]
    Hub(#[from] fastar_hub::Error),
    #[error(transparent)]
    Container(#[from] fastar_fst::Error),
    /// Something else has the name of a model.
    #[error("{0}")]
    Occupied(String),
    /// An error that has its words already.
    #[error("{0}")]
    Told(ApiError),
    #[error("{0}")]
    BadRequest(String),
    #[error("This chat already has an answer being written.")]
    Busy,
    #[error("An answer is being written.")]
    Answering,
    #[error("Too many answers are waiting for their turn already.")]
    QueueFull,
    #[error("No model is ready to answer.")]
    NoModel,
    #[error("{}", sqlite_sentence(file, source))]
    Database {
        file: PathBuf,
        source: rusqlite::Error,
    },
    #[error("{}", file_sentence(path, source))]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} is damaged.")]
    Damaged { path: String, details: String },
    #[error("{file} was written by a newer version of FaStar.")]
    TooNew { file: String },
    #[error("FaStar is already running with the data folder {folder}{}.", owner(*pid))]
    Locked { folder: String, pid: Option<u32> },
    #[error("There is no home folder to keep chats in.")]
    NoHome,
    #[error(transparent)]
    Engine(#[from] fastar_engine::Error),
    #[error("FaStar made a mistake of its own at {place}.")]
    Panic { place: String },
    #[error("FaStar could not start a thread.")]
    Thread(#[from] fastar_kernels::threads::Refused),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An input or output error at a path.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
        let path = path.to_path_buf();
        move |source| Error::File { path, source }
    }

    /// A file or folder that must not be written.
    pub(crate) fn is_no_permission(&self) -> bool {
        let refused = |kind| {
            matches!(
                kind,
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            )
        };
        matches!(self, Self::File { source, .. } if refused(source.kind()))
    }

    /// An error of the chat database.
    pub(crate) fn database(file: &Path) -> impl Fn(rusqlite::Error) -> Error + use<> {
        let file = file.to_path_buf();
        move |source| Error::Database {
            file: file.clone(),
            source,
        }
    }
}

fn parts_sentence(parts: usize) -> String {
    match parts {
        1 => "1 part is not as it was made".to_owned(),
        n => format!("{n} parts are not as they were made"),
    }
}

fn owner(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})"))
        .unwrap_or_default()
}

fn sqlite_code(error: &rusqlite::Error) -> i32 {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => failure.extended_code & 0xff,
        _ => ffi::SQLITE_ERROR,
    }
}

/// A statement does not fit the file's tables (or is wrong itself).
pub(crate) fn is_other_shape(error: &rusqlite::Error) -> bool {
    sqlite_code(error) == ffi::SQLITE_ERROR
}

/// The contents of the file, and not its surroundings, are the trouble.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(sqlite_code(error), ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB)
}

/// There is no room on the disk of `folder`, for the database itself or for what is beside it. The database cannot tell what it had no room
/// to make from what a fault of the disk did not let it make, so the disk is asked.
pub(crate) fn is_no_room(error: &rusqlite::Error, folder: &Path) -> bool {
    match sqlite_code(error) {
        ffi::SQLITE_FULL => true,
        ffi::SQLITE_IOERR | ffi::SQLITE_CANTOPEN => is_full(folder),
        _ => false,
    }
}

/// Something could not be made or read, perhaps only the index beside the database. Opening it without one tells.
pub(crate) fn is_without_index(error: &rusqlite::Error) -> bool {
    matches!(
        sqlite_code(error),
        ffi::SQLITE_FULL | ffi::SQLITE_IOERR | ffi::SQLITE_CANTOPEN
    )
}

/// Whether not even what a database needs beside it can be written.
fn is_full(folder: &Path) -> bool {
    use std::io::Write as _;
    let written =
        tempfile::tempfile_in(folder).and_then(|mut file| file.write_all(&[0; 128 << 10]));
    written.is_err_and(|error| {
        matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded
        )
    })
}

fn sqlite_sentence(file: &Path, error: &rusqlite::Error) -> String {
    let code = sqlite_code(error);
    if matches!(code, ffi::SQLITE_FULL | ffi::SQLITE_IOERR)
        && let Some(most) = longest(file)
    {
        return format!(
            "{} cannot grow: this program may write files of {} at most.",
            file.display(),
            fastar_fst::size(most)
        );
    }
    let file = file.display();
    match code {
        ffi::SQLITE_FULL => format!("The disk is full: nothing more can be saved in {file}."),
        ffi::SQLITE_READONLY | ffi::SQLITE_PERM | ffi::SQLITE_CANTOPEN => {
            format!("{file} cannot be written.")
        }
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => format!("{file} is in use by another program."),
        ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => format!("{file} is damaged."),
        _ => format!("{file} could not be read or written."),
    }
}

fn file_sentence(path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!("The disk is full: {path} could not be written.")
        }
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            format!("{path} cannot be opened or written: no permission.")
        }
        ErrorKind::NotFound => format!("{path} does not exist."),
        ErrorKind::FileTooLarge => {
            format!("{path} cannot grow: the limit on the size of a file is reached.")
        }
        _ => format!("{path} could not be read or written: {error}."),
    }
}

const STORAGE_HINT: &str =
    "Make room on the disk, or check that you may write there, and try again.";
const ROOM_HINT: &str = "Make room on the disk and try again.";
const WRITE_HINT: &str = "Make it writable, or choose another folder.";
const GROW_HINT: &str = "Raise the limit (`ulimit -f unlimited`) and start FaStar again.";

/// What to do about a database that is not damaged.
fn sqlite_hint(file: &Path, error: &rusqlite::Error) -> &'static str {
    match sqlite_code(error) {
        ffi::SQLITE_FULL | ffi::SQLITE_IOERR if longest(file).is_some() => GROW_HINT,
        ffi::SQLITE_FULL => ROOM_HINT,
        ffi::SQLITE_READONLY | ffi::SQLITE_PERM | ffi::SQLITE_CANTOPEN => WRITE_HINT,
        _ => STORAGE_HINT,
    }
}

fn file_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::InvalidInput
        | ErrorKind::InvalidFilename
        | ErrorKind::AlreadyExists => "Check the path, or choose another folder.",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ROOM_HINT,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => WRITE_HINT,
        ErrorKind::FileTooLarge => GROW_HINT,
        _ => STORAGE_HINT,
    }
}

/// Bytes the files of this program may have (`ulimit -f`), where a database, or what is written beside it, has come near that.
#[cfg(unix)]
fn longest(file: &Path) -> Option<u64> {
    /// More than a database writes at once.
    const NEAR: u64 = 128 << 10;
    let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current?;
    let beside = ["", "-wal", "-journal", "-shm"].map(|ending| {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        std::fs::metadata(name).map_or(0, |facts| facts.len())
    });
    let length = beside.into_iter().max()?;
    (length.saturating_add(NEAR) > most).then_some(most)
}

#[cfg(not(unix))]
fn longest(_file: &Path) -> Option<u64> {
    None
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let (code, hint, details) = match &error {
            Error::ChatNotFound
            | Error::AnswerNotFound
            | Error::MessageNotFound
            | Error::PresetNotFound
            | Error::ModelNotFound
            | Error::JobNotFound => (ErrorCode::NotFound, None, None),
            Error::Told(told) => return told.clone(),
            Error::ModelInUse { .. } => (ErrorCode::Busy, Some("Use another model first."), None),
            Error::ModelBusy { .. } => (
                ErrorCode::Busy,
                Some("Wait until that has ended, or stop it first."),
                None,
            ),
            Error::FolderGone { .. } => (
                ErrorCode::Storage,
                Some("Connect the disk it is on and resume, or cancel the download."),
                None,
            ),
            Error::DownloadedElsewhere { .. } => {
                (ErrorCode::Busy, Some("Stop that one first."), None)
            }
            Error::ModelDamaged {
                can_be_fetched: true,
                details,
                ..
            } => (
                ErrorCode::Damaged,
                Some("A repair fetches just what is damaged again."),
                Some(details.clone()),
            ),
            Error::ModelDamaged { details, .. } => (
                ErrorCode::Spoilt,
                Some(
                    "It does not say which repository it was made from, so nothing can be fetched again: download, copy or convert the model again.",
                ),
                Some(details.clone()),
            ),
            Error::ModelLoadedElsewhere { .. } => (
                ErrorCode::Busy,
                Some("Close that one, or let it use another model first."),
                None,
            ),
            Error::Hub(hub) => (hub_code(hub), None, None),
            Error::Container(container) => (container_code(container), None, None),
            Error::BadRequest(_) | Error::Occupied(_) => (ErrorCode::BadRequest, None, None),
            Error::Busy => (
                ErrorCode::Busy,
                Some("Wait until it is written, or stop it first."),
                None,
            ),
            Error::Answering => (
                ErrorCode::Busy,
                Some("Wait until it is written, or let it be stopped."),
                None,
            ),
            Error::QueueFull => (
                ErrorCode::Busy,
                Some("Wait until some of them are written, or stop them first."),
                None,
            ),
            Error::NoModel => (
                ErrorCode::NoModel,
                Some("Choose a model file, or use the demo model."),
                None,
            ),
            Error::Database { file, source } => {
                let hint = if is_damage(source) {
                    "Start FaStar again: it sets the damaged file aside and keeps it."
                } else {
                    sqlite_hint(file, source)
                };
                (ErrorCode::Storage, Some(hint), Some(source.to_string()))
            }
            Error::File { source, .. } => (
                ErrorCode::Storage,
                Some(file_hint(source)),
                Some(source.to_string()),
            ),
            Error::Damaged { details, .. } => (
                ErrorCode::Storage,
                Some("Start FaStar again: it sets the damaged file aside and keeps it."),
                Some(details.clone()),
            ),
            Error::TooNew { .. } => (
                ErrorCode::Storage,
                Some("Update FaStar, or set FASTAR_DATA_DIR to another folder."),
                None,
            ),
            Error::Locked { .. } => (
                ErrorCode::Storage,
                Some("Use that one, or set FASTAR_DATA_DIR to another folder."),
                None,
            ),
            Error::NoHome => (
                ErrorCode::Storage,
                Some("Set FASTAR_DATA_DIR to a folder you can write in."),
                None,
            ),
            Error::Engine(engine) => return from_engine(engine),
            Error::Panic { .. } => (
                ErrorCode::Internal,
                Some("Your chats are safe. Try again, or start FaStar again."),
                None,
            ),
            Error::Thread(source) => (
                ErrorCode::Internal,
                Some("The system may be out of memory or processes."),
                Some(source.to_string()),
            ),
        };
        ApiError {
            code,
            message: error.to_string(),
            hint: hint.map(str::to_owned),
            details,
        }
    }
}

fn hub_code(error: &fastar_hub::Error) -> ErrorCode {
    use fastar_hub::Error as Hub;
    match error {
        Hub::NotEnoughSpace { .. } | Hub::Full { .. } => ErrorCode::NoSpace,
        Hub::Denied { .. } => ErrorCode::NoAccess,
        Hub::NotWritable { .. } | Hub::Io { .. } | Hub::Occupied { .. } => ErrorCode::Storage,
        Hub::Setting { .. } | Hub::Name { .. } => ErrorCode::BadRequest,
        Hub::Busy { .. } | Hub::Loaded { .. } => ErrorCode::Busy,
        _ => ErrorCode::Hub,
    }
}

fn container_code(error: &fastar_fst::Error) -> ErrorCode {
    use fastar_fst::Error as Container;
    match error {
        Container::NoSpace { .. } => ErrorCode::NoSpace,
        Container::Io { .. } | Container::Output { .. } => ErrorCode::Storage,
        Container::NotFetched { .. } => ErrorCode::Hub,
        _ => ErrorCode::BadRequest,
    }
}

fn from_engine(error: &fastar_engine::Error) -> ApiError {
    use fastar_engine::Error as Engine;
    let (code, hint) = match error {
        Engine::Container(_) | Engine::Config(_) | Engine::Tensor(_) | Engine::Tokenizer(_) => (
            ErrorCode::NoModel,
            Some("Choose another model file, or use the demo model."),
        ),
        Engine::ContextFull { .. } => (ErrorCode::ContextFull, None),
        Engine::Input(_) => (ErrorCode::BadRequest, None),
        Engine::NotFinite(_) => (
            ErrorCode::Internal,
            Some("The model file may be damaged. Try again, or choose another model file."),
        ),
        Engine::SessionFile(_) | Engine::Read(_) => (ErrorCode::Storage, None),
        Engine::Memory(_) => (
            ErrorCode::NoModel,
            Some("Close other programs, or choose a smaller expert cache."),
        ),
        Engine::Threads(_) | Engine::Cancelled => (ErrorCode::Internal, None),
    };
    ApiError {
        code,
        message: error.to_string(),
        hint: hint.map(str::to_owned),
        details: None,
    }
}

/// Locks even after a panic in another thread: every state behind our locks is whole between two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static PANIC_PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Remembers where a panic happened and prints the place only: its message may hold text of a chat. Developer builds print
/// the message as well.
pub(crate) fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let place = panic
                .location()
                .map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
            tracing::error!(%place, "panic");
            if cfg!(debug_assertions) {
                before(panic);
            } else {
                eprintln!("FaStar made a mistake of its own at {place}.");
            }
            PANIC_PLACE.with(|cell| *cell.borrow_mut() = Some(place));
        }));
    });
}

/// Runs a command; a panic in it becomes [`ErrorCode::Internal`] with its place.
pub fn guard<T>(
    command: impl FnOnce() -> std::result::Result<T, ApiError>,
) -> std::result::Result<T, ApiError> {
    match std::panic::catch_unwind(AssertUnwindSafe(command)) {
        Ok(result) => result,
        Err(_) => {
            let place = PANIC_PLACE
                .with(|cell| cell.borrow_mut().take())
                .unwrap_or_else(|| "an unknown place".to_owned());
            Err(Error::Panic { place }.into())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_panic_becomes_an_internal_error_that_names_the_place_and_not_the_text() {
        install_panic_hook();
        let error = guard::<()>(|| panic!("secret text of a chat")).expect_err("panicked");
        assert_eq!(error.code, ErrorCode::Internal);
        assert!(error.message.contains("error.rs:"), "{}", error.message);
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }

    #[test]
    fn a_fault_of_the_disk_is_no_lack_of_room() {
        let folder = tempfile::tempdir().unwrap();
        let is_no_room = |code| {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            super::is_no_room(&error, folder.path())
        };
        assert!(is_no_room(ffi::SQLITE_FULL));
        for code in [
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_IOERR_READ,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_CANTOPEN,
            ffi::SQLITE_READONLY,
        ] {
            assert!(!is_no_room(code), "{code}");
        }
    }

    #[test]
    fn a_full_disk_and_a_read_only_folder_are_told_apart() {
        let sentence = |code| {
            let source = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            ApiError::from(Error::Database {
                file: "/data/chats.db".into(),
                source,
            })
        };
        let full = sentence(ffi::SQLITE_FULL);
        assert_eq!(full.code, ErrorCode::Storage);
        assert!(full.message.contains("disk is full") && full.message.contains("/data/chats.db"));
        let read_only = sentence(ffi::SQLITE_READONLY_DIRECTORY);
        assert_eq!(read_only.code, ErrorCode::Storage);
        assert!(
            read_only.message.contains("cannot be written"),
            "{}",
            read_only.message
        );
    }
}
