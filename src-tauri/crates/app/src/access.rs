//! The key of the local server: who has it is the person themselves, and no other account of this computer.
//!
//! A port on 127.0.0.1 is open to every program of every account. The key is in a file that only its owner can read, and stays the same, so
//! that programs that were given it work after the next start; a page keeps it for its tab. Not here: who asks for it (the server), and how a
//! page comes by it (its address).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::App;
use crate::data::write_whole;
use crate::error::{Error, Result, lock};
use crate::settings::registry::{SERVER, SERVER_LAN, SERVER_ORIGINS, SERVER_PORT};

const FILE: &str = "server.key";
/// Hexadecimal digits of two random identifiers: 244 random bits.
const DIGITS: usize = 64;

/// What the settings say of the local server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerWish {
    /// It should run.
    pub on: bool,
    /// At this port.
    pub port: u16,
    /// Other computers of the network may use it too.
    pub lan: bool,
    /// Web pages that may use it, as browsers write their origins.
    pub origins: Vec<String>,
}

impl App {
    /// What the settings say of the local server.
    pub fn server_wish(&self) -> ServerWish {
        let settings = lock(&self.0.settings);
        // The registry has whole numbers that fit.
        let port = settings.decimal(&SERVER_PORT) as u16;
        ServerWish {
            on: settings.flag(&SERVER),
            port,
            lan: settings.flag(&SERVER_LAN),
            origins: settings
                .text(&SERVER_ORIGINS)
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Calls `hook` whenever that may have changed. Only the first hook counts.
    pub fn when_server_changes(&self, hook: Box<dyn Fn() + Send + Sync>) {
        // A second one would be a mistake of a face.
        let _ = self.0.server_changed.set(hook);
    }

    /// Another key in the place of the one there is.
    ///
    /// # Errors
    /// When the file cannot be written. The old key may be gone then, and the next that is asked for is another one.
    pub fn server_key_new(&self) -> crate::Result<String> {
        let path = self.0.data.path().join(FILE);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::file(&path)(error).into())
            }
            _ => Ok(key_in(self.0.data.path())?),
        }
    }

    /// The key of the local server; made, and kept in the data folder, when there is none.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn server_key(&self) -> crate::Result<String> {
        Ok(key_in(self.0.data.path())?)
    }
}

fn key_in(folder: &Path) -> Result<String> {
    let path = folder.join(FILE);
    if let Some(key) = kept(&path) {
        return Ok(key);
    }
    let half = || uuid::Uuid::new_v4().simple().to_string();
    let key = half() + &half();
    match write_whole(&path, format!("{key}\n").as_bytes()) {
        // Then it is for this run.
        Err(Error::File { source, .. }) if source.kind() == std::io::ErrorKind::StorageFull => {
            tracing::warn!(error = %source, "the key of the server is not kept");
            return Ok(key);
        }
        written => written?,
    }
    // What was read by others before is theirs; a file that cannot be kept to oneself is of no use.
    match kept(&path) {
        Some(kept) if kept == key => Ok(key),
        _ => Err(Error::Occupied(format!(
            "{} is in the way: the key of the server could not be kept there.",
            path.display()
        ))),
    }
}

/// The key in the file, if it is one that only its owner can have read.
fn kept(path: &Path) -> Option<String> {
    let file = fastar_files::open(path, File::options().read(true)).ok()?;
    let facts = file.metadata().ok()?;
    #[cfg(unix)]
    let others = std::os::unix::fs::PermissionsExt::mode(&facts.permissions()) & 0o077 != 0;
    #[cfg(not(unix))]
    let others = false;
    if others {
        return None;
    }
    let mut text = String::new();
    file.take(DIGITS as u64 + 2)
        .read_to_string(&mut text)
        .ok()?;
    let key = text.trim_end();
    let is_key = key.len() == DIGITS && key.bytes().all(|b| b.is_ascii_hexdigit());
    is_key.then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_key_stays_and_what_is_no_key_is_replaced() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let key = key_in(folder.path()).unwrap();
        assert_eq!(key.len(), 64);
        assert!(key.bytes().all(|b| b.is_ascii_hexdigit()), "{key}");
        assert_eq!(key_in(folder.path()).unwrap(), key);
        assert_ne!(key_in(other.path()).unwrap(), key);
        let path = folder.path().join(FILE);
        for damage in ["", "short\n", &"g".repeat(64), &"a".repeat(70)] {
            std::fs::write(&path, damage).unwrap();
            let anew = key_in(folder.path()).unwrap();
            assert_eq!(anew.len(), 64, "{damage:?}");
            assert_ne!(anew, key);
            assert_eq!(key_in(folder.path()).unwrap(), anew);
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_can_read_it_and_one_that_others_could_read_is_given_up() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let key = key_in(folder.path()).unwrap();
        let path = folder.path().join(FILE);
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let anew = key_in(folder.path()).unwrap();
        assert_ne!(anew, key);
        assert_eq!(mode(), 0o600);
    }
}
