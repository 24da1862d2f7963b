//! Timelines on disk, so that a chat goes on after a restart without reading its conversation again.
//!
//! A timeline is written when another chat takes its place in memory and when the app ends. It saves time and nothing else: whatever is wrong
//! with a file (damaged, of another model, gone) means that the conversation is read again, and one line in the log.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::inference::Timeline;

/// All files together stay below this; the oldest go first. A 300,000-token chat of Flash takes about 4 GB.
const LIMIT: u64 = 8_000_000_000;

pub(crate) struct Sessions {
    folder: PathBuf,
    limit: u64,
    /// Bytes free on the disk of a folder, where the system says so.
    free: fn(&Path) -> Option<u64>,
}

impl Sessions {
    /// In the data folder. Removes what a crash left half-written.
    pub(crate) fn open(data: &Path) -> Self {
        Self::with(data, LIMIT, |folder| {
            let about = rustix::fs::statvfs(folder).ok()?;
            about.f_bavail.checked_mul(about.f_frsize)
        })
    }

    fn with(data: &Path, limit: u64, free: fn(&Path) -> Option<u64>) -> Self {
        let folder = data.join("sessions");
        for (path, ..) in files(&folder) {
            if path.extension().is_none_or(|e| e != "session") {
                remove(&path);
            }
        }
        Self {
            folder,
            limit,
            free,
        }
    }

    /// Keeps a chat's timeline, if it is not too large: for all of them together, or for the disk, on which chats and downloads need room
    /// too. It takes at most a quarter of what is free.
    pub(crate) fn save(&self, chat_id: &str, timeline: &dyn Timeline) {
        let Some(path) = self.path(chat_id) else {
            return;
        };
        let needed = timeline.bytes() as u64;
        if needed == 0 || needed > self.limit {
            return;
        }
        let written = fs::create_dir_all(&self.folder)
            .map_err(|e| e.to_string())
            .and_then(|()| match (self.free)(&self.folder) {
                Some(free) if needed > free / 4 => {
                    Err(format!("it has {needed} bytes, and {free} are free"))
                }
                _ => Ok(()),
            })
            .and_then(|()| timeline.save(&path).map_err(|e| e.to_string()));
        match written {
            Ok(()) => self.drop_oldest(),
            Err(error) => tracing::warn!(%error, "a chat's state was not kept"),
        }
    }

    /// Goes on with a chat's kept timeline, if there is one that fits.
    pub(crate) fn load(&self, chat_id: &str, timeline: &mut dyn Timeline) {
        let Some(path) = self.path(chat_id).filter(|path| path.exists()) else {
            return;
        };
        if let Err(error) = timeline.load(&path) {
            tracing::warn!(%error, "a chat is read again from its beginning");
            remove(&path);
        }
    }

    /// Drops a chat's kept timeline.
    pub(crate) fn forget(&self, chat_id: &str) {
        if let Some(path) = self.path(chat_id).filter(|path| path.exists()) {
            remove(&path);
        }
    }

    /// None for an id that is not one of ours: it comes out of a file.
    fn path(&self, chat_id: &str) -> Option<PathBuf> {
        is_id(chat_id).then(|| self.folder.join(format!("{chat_id}.session")))
    }

    fn drop_oldest(&self) {
        let mut files = files(&self.folder);
        files.sort_by_key(|(_, _, written)| *written);
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (path, bytes, _) in files {
            if total <= self.limit {
                break;
            }
            remove(&path);
            total -= bytes;
        }
    }
}

/// Path, bytes and time of every file of ours: the folder may be a link to another, in which a person keeps other things.
fn files(folder: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let about = entry
                .metadata()
                .ok()
                .filter(|about| about.is_file() && is_ours(&name.to_string_lossy()))?;
            let written = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            Some((entry.path(), about.len(), written))
        })
        .collect()
}

/// A timeline that was kept, or is being written.
fn is_ours(name: &str) -> bool {
    let being_written = name.strip_prefix(".tmp");
    match name.strip_suffix(".session").or(being_written) {
        Some(rest) => is_id(rest),
        None => false,
    }
}

fn is_id(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !text.is_empty() && text.len() <= 64 && text.chars().all(plain)
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(%error, path = %path.display(), "a chat's state could not be removed");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use fastar_engine::{Answer, Cancel, Conversation, Error, Event, Result, Sampling};

    struct Sized(usize);

    impl Timeline for Sized {
        fn reply(
            &mut self,
            _: &Conversation,
            _: &Sampling,
            _: &Cancel,
            _: &mut dyn FnMut(Event<'_>),
        ) -> Result<Answer> {
            Err(Error::Cancelled)
        }
        fn save(&self, path: &Path) -> Result<()> {
            fs::write(path, vec![0; self.0]).map_err(|e| Error::SessionFile(e.to_string()))
        }
        fn load(&mut self, path: &Path) -> Result<()> {
            match fs::read(path) {
                Ok(bytes) if bytes.len() == self.0 => Ok(()),
                _ => Err(Error::SessionFile("not this one".into())),
            }
        }
        fn bytes(&self) -> usize {
            self.0
        }
    }

    fn names(data: &Path) -> Vec<String> {
        let mut names: Vec<String> = files(&data.join("sessions"))
            .iter()
            .map(|(path, ..)| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_go_first_and_what_is_too_large_is_not_kept() {
        let data = tempfile::tempdir().unwrap();
        let sessions = Sessions::with(data.path(), 250, |_| None);
        for (age, id) in [(30, "a"), (20, "b")] {
            sessions.save(id, &Sized(100));
            let file = fs::File::open(data.path().join(format!("sessions/{id}.session"))).unwrap();
            let then = SystemTime::now() - std::time::Duration::from_secs(age);
            file.set_modified(then).unwrap();
        }
        sessions.save("c", &Sized(100));
        assert_eq!(names(data.path()), ["b", "c"]);
        sessions.save("d", &Sized(251));
        assert_eq!(names(data.path()), ["b", "c"]);
        sessions.forget("b");
        assert_eq!(names(data.path()), ["c"]);
    }

    #[test]
    fn a_timeline_leaves_room_on_the_disk() {
        let data = tempfile::tempdir().unwrap();
        let sessions = Sessions::with(data.path(), 1000, |_| Some(400));
        sessions.save("a", &Sized(100));
        sessions.save("b", &Sized(101));
        assert_eq!(names(data.path()), ["a"]);
        // Nobody knows how much is free.
        let sessions = Sessions::with(data.path(), 1000, |_| None);
        sessions.save("b", &Sized(101));
        assert_eq!(names(data.path()), ["a", "b"]);
    }

    #[test]
    fn a_file_that_cannot_be_used_and_one_half_written_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let sessions = Sessions::with(data.path(), 1000, |_| None);
        sessions.save("a", &Sized(100));
        fs::write(data.path().join("sessions/.tmpXYZ"), "half").unwrap();
        sessions.load("a", &mut Sized(100));
        assert_eq!(names(data.path()), [".tmpXYZ", "a"]);
        let sessions = Sessions::with(data.path(), 1000, |_| None);
        assert_eq!(names(data.path()), ["a"]);
        sessions.load("a", &mut Sized(99));
        assert!(names(data.path()).is_empty());
    }

    #[test]
    fn what_others_keep_in_the_folder_stays_and_does_not_count() {
        let (data, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let foreign = [
            "keep.txt",
            "photo",
            ".tmp",
            ".tmp.x",
            "old.session.bak",
            "über.session",
        ];
        for name in foreign {
            fs::write(elsewhere.path().join(name), [7; 300]).unwrap();
        }
        fs::write(elsewhere.path().join(".tmpAb3xYz"), "half").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), data.path().join("sessions")).unwrap();
        let sessions = Sessions::with(data.path(), 250, |_| None);
        for id in ["a", "b", "c"] {
            sessions.save(id, &Sized(100));
        }
        assert_eq!(names(data.path()).len(), 2);
        for name in foreign {
            assert_eq!(
                fs::read(elsewhere.path().join(name)).unwrap(),
                [7; 300],
                "{name}"
            );
        }
        assert!(!elsewhere.path().join(".tmpAb3xYz").exists());
    }

    #[test]
    fn an_id_never_leads_out_of_the_folder() {
        let data = tempfile::tempdir().unwrap();
        let sessions = Sessions::with(data.path(), 1000, |_| None);
        for id in ["", "../x", "a/b", "..", "a.b", "a\0b", &"x".repeat(100)] {
            sessions.save(id, &Sized(10));
            sessions.forget(id);
        }
        assert!(names(data.path()).is_empty());
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
    }
}
