//! One window for each data folder: a second start shows the window of the first and ends.
//!
//! The first listens on a socket in the data folder, which only its owner can enter. Tauri's plugin for this is a name on the session bus:
//! without a bus it does nothing, and it knows nothing of data folders. Who owns the folder is decided by its lock alone ([`fastar_app`]);
//! where the socket does not answer, that lock refuses the second start with a sentence.
//!
//! A message is the id that the desktop gave to the start (so that the window may take the focus), a line break, and the path of a file
//! to open, if any. The answer is [`SHOWN`].

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const NAME: &str = "window";
const SHOWN: &[u8] = b"shown\n";
/// A window that hangs does not hold up the second start.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest message: a path has at most 4096 bytes.
const MOST_BYTES: u64 = 8192;

/// What a second start asks of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// What the desktop calls this start.
    pub(crate) id: String,
    /// A file to open.
    pub(crate) file: Option<PathBuf>,
}

impl Start {
    fn encode(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.id.bytes().filter(|byte| *byte != b'\n').collect();
        bytes.push(b'\n');
        if let Some(file) = &self.file {
            bytes.extend_from_slice(file.as_os_str().as_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (id, file) = (bytes.get(..end)?, bytes.get(end + 1..)?);
        Some(Self {
            id: String::from_utf8(id.to_vec()).ok()?,
            file: (!file.is_empty()).then(|| OsString::from_vec(file.to_vec()).into()),
        })
    }
}

/// The address of the socket; its name may have at most 107 bytes, and data folders may be longer. While the folder is open, it has a
/// short name as well.
struct Address {
    path: PathBuf,
    _folder: Option<std::fs::File>,
}

impl Address {
    fn of(folder: &Path) -> io::Result<Self> {
        let path = folder.join(NAME);
        if path.as_os_str().len() < 100 || cfg!(not(target_os = "linux")) {
            return Ok(Self {
                path,
                _folder: None,
            });
        }
        let opened = std::fs::File::open(folder)?;
        let number = std::os::fd::AsRawFd::as_raw_fd(&opened);
        Ok(Self {
            path: format!("/proc/self/fd/{number}/{NAME}").into(),
            _folder: Some(opened),
        })
    }
}

/// Asks the window on this data folder to show itself; whether it did.
pub(crate) fn shown_by_the_first(folder: &Path, start: &Start) -> bool {
    let ask = || -> io::Result<bool> {
        let address = Address::of(folder)?;
        let mut stream = UnixStream::connect(&address.path)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&start.encode())?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut answer = Vec::new();
        stream.take(64).read_to_end(&mut answer)?;
        Ok(answer == SHOWN)
    };
    ask().unwrap_or(false)
}

/// The socket of the first start; its file goes with it.
pub(crate) struct Listening(PathBuf);

impl Drop for Listening {
    fn drop(&mut self) {
        // The next start replaces it anyway.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Hears further starts from now on, on a thread of its own. The caller holds the lock of the folder.
pub(crate) fn listen(
    folder: &Path,
    show: impl Fn(Start) + Send + 'static,
) -> io::Result<Listening> {
    let path = folder.join(NAME);
    // One that a killed process has left: the lock says that nobody uses it.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&Address::of(folder)?.path)?;
    std::thread::Builder::new()
        .name("fastar-starts".into())
        .spawn(move || {
            for stream in listener.incoming() {
                match stream.and_then(hear) {
                    Ok((start, mut stream)) => {
                        show(start);
                        // It has been shown, whether or not anyone waits for the answer.
                        let _ = stream.write_all(SHOWN);
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a second start was not understood");
                        // Out of file descriptors, this would spin.
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            }
        })?;
    Ok(Listening(path))
}

fn hear(stream: UnixStream) -> io::Result<(Start, UnixStream)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut bytes = Vec::new();
    (&stream).take(MOST_BYTES).read_to_end(&mut bytes)?;
    let start = Start::decode(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    Ok((start, stream))
}

/// What the desktop calls this start. Read before GTK takes the variables out of the environment.
pub(crate) fn id(value: impl Fn(&str) -> Option<OsString>) -> String {
    ["XDG_ACTIVATION_TOKEN", "DESKTOP_STARTUP_ID"]
        .into_iter()
        .filter_map(value)
        .map(|id: OsString| OsStr::to_string_lossy(&id).into_owned())
        .find(|id| !id.is_empty())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_first_start_hears_the_second_however_long_the_folders_name_is() {
        let dir = tempfile::tempdir().unwrap();
        for folder in [dir.path().join("a"), dir.path().join("b".repeat(150))] {
            std::fs::create_dir(&folder).unwrap();
            let start = Start {
                id: "fox_TIME1".into(),
                file: Some("/models/a b\nc.fst".into()),
            };
            assert!(!shown_by_the_first(&folder, &start), "nobody is there");
            let (heard, starts) = mpsc::channel();
            let listening = listen(&folder, move |start| heard.send(start).unwrap()).unwrap();
            assert!(shown_by_the_first(&folder, &start));
            assert_eq!(starts.recv().unwrap(), start);
            // Nonsense is no start, and the next one is heard.
            UnixStream::connect(Address::of(&folder).unwrap().path)
                .unwrap()
                .write_all(b"GET")
                .unwrap();
            assert!(shown_by_the_first(&folder, &Start::default()));
            assert_eq!(starts.recv().unwrap(), Start::default());
            drop(listening);
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_socket_that_was_left_behind_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(dir.path().join(NAME)).unwrap());
        assert!(!shown_by_the_first(dir.path(), &Start::default()));
        let _listening = listen(dir.path(), |_| {}).unwrap();
        assert!(shown_by_the_first(dir.path(), &Start::default()));
    }

    #[test]
    fn the_id_of_a_start_is_what_the_desktop_said_last() {
        let both = |name: &str| Some(OsString::from(format!("the {name}")));
        assert_eq!(id(both), "the XDG_ACTIVATION_TOKEN");
        let x11 = |name: &str| (name == "DESKTOP_STARTUP_ID").then(|| OsString::from("x"));
        assert_eq!(id(x11), "x");
        assert_eq!(id(|_| None), "");
    }
}
