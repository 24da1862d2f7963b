//! What the app is doing, in a file that a clean end removes: the next start finds it after a crash, a kill or a power cut, says what
//! happened, and does not do by itself again what may have been the cause.
//!
//! A model that was being loaded when the process ended is held back from then on: it is loaded when the person asks for it, and by
//! itself only after that has worked once. So no crash repeats itself at every start. Chats and jobs need nothing of the kind; their own
//! rows say what was interrupted.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fastar_api::{Face, JobKind};
use serde::{Deserialize, Serialize};

use crate::data::write_quickly;
use crate::error::{Error, lock};

const NAME: &str = "doing.json";
/// Far more than there is ever in it.
const MOST_BYTES: u64 = 1 << 16;

/// Something that may be going on when the process ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "doing", rename_all = "snake_case")]
pub(crate) enum Doing {
    /// The window opens, and its page has not been drawn yet.
    Opening,
    /// The chats are opened, and brought to the newest shape where they are older.
    Chats,
    /// A model file is being loaded.
    Loading { name: String, path: PathBuf },
    /// An answer is being written.
    Answering { chat: String },
    /// A job is at work.
    Working { kind: JobKind, title: String },
}

/// The file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Note {
    /// What is going on; none after a clean end.
    #[serde(default)]
    running: Option<Vec<Doing>>,
    /// A model that is not loaded by itself.
    #[serde(default)]
    held: Option<PathBuf>,
}

/// What the process before left behind.
#[derive(Debug, Default)]
pub(crate) struct Before {
    doing: Vec<Doing>,
}

/// The app's own note; clones are the same one.
#[derive(Clone)]
pub(crate) struct Sentinel(Arc<Inner>);

struct Inner {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    doing: Vec<(u64, Doing)>,
    next: u64,
    held: Option<PathBuf>,
    ended: bool,
}

/// Takes an entry out of the note when it is dropped.
pub(crate) struct Entry {
    sentinel: Sentinel,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut state = lock(&self.sentinel.0.state);
        state.doing.retain(|(number, _)| *number != self.number);
        self.sentinel.write(&state);
    }
}

impl Sentinel {
    /// Begins the note of this process, and says what the last one was doing when it ended without taking its note away.
    pub(crate) fn begin(folder: &Path) -> (Self, Before) {
        let left = read(folder);
        let doing = left.running.unwrap_or_default();
        let crashed = doing.iter().find_map(|doing| match doing {
            Doing::Loading { path, .. } => Some(path.clone()),
            _ => None,
        });
        let sentinel = Self(Arc::new(Inner {
            file: folder.join(NAME),
            state: Mutex::new(State {
                held: crashed.or(left.held),
                ..State::default()
            }),
        }));
        sentinel.write(&lock(&sentinel.0.state));
        (sentinel, Before { doing })
    }

    /// Notes that something has begun, until the entry is dropped.
    pub(crate) fn note(&self, doing: Doing) -> Entry {
        let mut state = lock(&self.0.state);
        let number = state.next;
        state.next += 1;
        state.doing.push((number, doing));
        self.write(&state);
        Entry {
            sentinel: self.clone(),
            number,
        }
    }

    /// Whether a person waits for something that takes long: a model, an answer, a job.
    pub(crate) fn is_at_work(&self) -> bool {
        let is_work = |(_, doing): &(u64, Doing)| !matches!(doing, Doing::Opening | Doing::Chats);
        lock(&self.0.state).doing.iter().any(is_work)
    }

    /// Whether a model must not be loaded by itself.
    pub(crate) fn holds(&self, model: &Path) -> bool {
        lock(&self.0.state).held.as_deref() == Some(model)
    }

    /// A model that has been loaded is trusted again.
    pub(crate) fn trust(&self, model: &Path) {
        let mut state = lock(&self.0.state);
        if state.held.as_deref() == Some(model) {
            state.held = None;
            self.write(&state);
        }
    }

    /// The process ends as it should.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.0.state);
        state.ended = true;
        self.write(&state);
    }

    /// Not synced: it need not survive a power cut, and an answer shall not wait for the disk. The note helps the next start; where it cannot be
    /// written, this one goes on without.
    fn write(&self, state: &State) {
        let note = Note {
            running: (!state.ended)
                .then(|| state.doing.iter().map(|(_, doing)| doing.clone()).collect()),
            held: state.held.clone(),
        };
        let written = if state.ended && state.held.is_none() {
            std::fs::remove_file(&self.0.file).map_err(Error::file(&self.0.file))
        } else {
            // A list of words and paths: it can always be written as JSON.
            let text = serde_json::to_vec(&note).unwrap_or_default();
            write_quickly(&self.0.file, &text)
        };
        if let Err(error) = written {
            tracing::debug!(%error, "what the app is doing could not be noted");
        }
    }
}

/// The note in a folder; an empty one where there is none that can be read. Whatever stands there may be anybody's.
fn read(folder: &Path) -> Note {
    let mut text = Vec::new();
    let read = std::fs::File::open(folder.join(NAME))
        .and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text));
    match read {
        Ok(_) => serde_json::from_slice(&text).unwrap_or_default(),
        Err(_) => Note::default(),
    }
}

/// Whether the last process that used the folder ended before its window had been drawn. A look from outside: a process that is running
/// has the same note until then.
pub(crate) fn ended_while_opening(folder: &Path) -> bool {
    read(folder)
        .running
        .is_some_and(|doing| doing.contains(&Doing::Opening))
}

impl Before {
    /// What happened and what the person can do, in a sentence each; none where nothing was going on. `title` finds the title of a chat.
    pub(crate) fn sentences(&self, title: impl Fn(&str) -> Option<String>) -> Vec<String> {
        self.doing
            .iter()
            .filter_map(|doing| doing.sentence(&title))
            .collect()
    }
}

impl Doing {
    /// Whole sentences, so that each can be said in another language.
    fn sentence(&self, title: impl Fn(&str) -> Option<String>) -> Option<String> {
        Some(match self {
            // Who opens the window says it: it is drawn in another way.
            Self::Opening => return None,
            Self::Chats => "FaStar ended unexpectedly while opening your chats. They were read again and are whole. From before every change of their form there is a copy beside them.".to_owned(),
            Self::Loading { name, .. } => format!(
                "FaStar ended unexpectedly while loading {name}. It is not loaded by itself until that has worked again: choose it under Models to try, or check its file there first."
            ),
            Self::Answering { chat } => match title(chat).filter(|title| !title.is_empty()) {
                Some(title) => format!(
                    "FaStar ended unexpectedly while writing an answer in “{title}”. What was written is there: let it go on with Continue."
                ),
                None => "FaStar ended unexpectedly while writing an answer. What was written is there: let it go on with Continue.".to_owned(),
            },
            Self::Working { kind, title } => match kind {
                JobKind::Download => format!(
                    "FaStar ended unexpectedly while downloading {title}. What has arrived is kept: resume it under Models."
                ),
                JobKind::Verify => format!(
                    "FaStar ended unexpectedly while checking {title}. Check it again under Models."
                ),
                JobKind::Repair => format!(
                    "FaStar ended unexpectedly while repairing {title}. Repair it again under Models."
                ),
                JobKind::Move => format!(
                    "FaStar ended unexpectedly while moving {title}. One whole model is there at any moment: move it again under Models."
                ),
            },
        })
    }
}

/// Whether a face has a window that must come up.
pub(crate) fn has_window(face: Face) -> bool {
    face == Face::Desktop
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn loading(path: &Path) -> Doing {
        Doing::Loading {
            name: "big".into(),
            path: path.into(),
        }
    }

    /// As a process that is killed: nothing is taken away any more.
    fn killed<T>(kept: T) {
        std::mem::forget(kept);
    }

    #[test]
    fn a_clean_end_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (sentinel, before) = Sentinel::begin(dir.path());
        assert!(before.doing.is_empty());
        drop(sentinel.note(Doing::Chats));
        let entry = sentinel.note(Doing::Opening);
        assert!(ended_while_opening(dir.path()));
        drop(entry);
        assert!(!ended_while_opening(dir.path()));
        sentinel.end();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        // What ends after it says nothing any more.
        drop(sentinel.note(Doing::Chats));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_next_start_says_what_was_going_on_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let (sentinel, _) = Sentinel::begin(dir.path());
        drop(sentinel.note(Doing::Chats));
        for doing in [
            Doing::Opening,
            Doing::Answering { chat: "1".into() },
            Doing::Answering { chat: "2".into() },
            Doing::Working {
                kind: JobKind::Download,
                title: "Flash".into(),
            },
        ] {
            killed(sentinel.note(doing));
        }
        let (_, before) = Sentinel::begin(dir.path());
        let said = before.sentences(|chat| (chat == "1").then(|| "A fox".into()));
        assert_eq!(
            said,
            [
                "FaStar ended unexpectedly while writing an answer in “A fox”. What was written is there: let it go on with Continue.",
                "FaStar ended unexpectedly while writing an answer. What was written is there: let it go on with Continue.",
                "FaStar ended unexpectedly while downloading Flash. What has arrived is kept: resume it under Models.",
            ]
        );
        // Said once.
        let (_, before) = Sentinel::begin(dir.path());
        assert!(before.sentences(|_| None).is_empty());
    }

    #[test]
    fn a_model_that_ended_the_process_is_held_back_until_it_has_worked() {
        let dir = tempfile::tempdir().unwrap();
        let (big, other) = (Path::new("/models/big.fst"), Path::new("/models/other.fst"));
        let (sentinel, _) = Sentinel::begin(dir.path());
        assert!(!sentinel.holds(big));
        killed(sentinel.note(loading(big)));
        // Over a clean end and a kill alike.
        for clean in [true, false] {
            let (sentinel, _) = Sentinel::begin(dir.path());
            assert!(sentinel.holds(big) && !sentinel.holds(other));
            sentinel.trust(other);
            if clean {
                sentinel.end();
            }
        }
        let (sentinel, _) = Sentinel::begin(dir.path());
        assert!(sentinel.holds(big));
        sentinel.trust(big);
        sentinel.end();
        let (sentinel, _) = Sentinel::begin(dir.path());
        assert!(!sentinel.holds(big));
    }

    #[test]
    fn whatever_stands_in_the_file_counts_for_nothing_if_it_is_no_note() {
        let dir = tempfile::tempdir().unwrap();
        for text in [
            "",
            "{",
            "[]",
            "{\"running\": 7}",
            "{\"running\": [{\"doing\": \"dancing\"}]}",
            &"x".repeat(100_000),
        ] {
            std::fs::write(dir.path().join(NAME), text).unwrap();
            let (_, before) = Sentinel::begin(dir.path());
            assert!(before.doing.is_empty());
        }
    }
}
