//! Several files: started in order, at most so many unfinished at once, their events brought to the caller's thread.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::progress::{Board, Meter};
use crate::transfer::{Job, transfer};
use crate::web::Web;
use crate::{Control, Error, Progress, RemoteFile, Result, Settings, space};

/// At most five progress events a second.
const TICK: Duration = Duration::from_millis(200);

/// A file and where it goes.
pub(crate) type Place = (RemoteFile, PathBuf);

/// How a set is fetched.
#[derive(Debug, Clone)]
pub struct Options {
    /// Files that may be on their way at once. A file counts from its start until the [`Slot`] of its [`Event::Done`] is dropped.
    pub files_at_once: usize,
    /// Room that must be free before the start, instead of what is missing of the set: for callers that remove files as they come.
    pub needed: Option<u64>,
    /// Read finished files again, even if they were checked before.
    pub recheck: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            files_at_once: 2,
            needed: None,
            recheck: false,
        }
    }
}

/// What happens in a transfer; told on the thread that called.
#[derive(Debug)]
pub enum Event {
    /// At most five times a second, and once at the end.
    Progress(Progress),
    /// A file is whole, checked and under its final name.
    Done {
        /// Which.
        file: RemoteFile,
        /// Where.
        path: PathBuf,
        /// Keep it to hold back the start of further files, for instance until this one is converted and removed; it may go to another thread.
        slot: Slot,
    },
    /// The file was changed on the server and starts over from its first byte.
    StartedOver {
        /// Which.
        path: String,
        /// Who says so, a sentence without its full stop.
        why: String,
    },
}

/// The place of a file among [`Options::files_at_once`], free when dropped.
#[derive(Debug)]
pub struct Slot {
    _permit: OwnedSemaphorePermit,
}

/// What a finished transfer did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Files that are there.
    pub files: usize,
    /// Bytes of these files.
    pub bytes: u64,
    /// Bytes that came over the line in this run.
    pub fetched: u64,
}

enum Message {
    Event(Event),
    End(Result<()>),
}

/// Stops the work if the caller's own code panics.
struct HaltOnDrop(Arc<Job>);

impl Drop for HaltOnDrop {
    fn drop(&mut self) {
        self.0.halt.send_replace(true);
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "the one body of the three ways to fetch"
)]
pub(crate) fn fetch(
    runtime: &Runtime,
    web: &Arc<Web>,
    settings: &Settings,
    places: Vec<Place>,
    folder: &Path,
    options: &Options,
    control: &Control,
    mut on_event: impl FnMut(Event),
) -> Result<Summary> {
    let files: Vec<RemoteFile> = places.iter().map(|(file, _)| file.clone()).collect();
    space::writable(folder)?;
    let mut space = space::space(&files, folder)?;
    if let [(file, dest)] = places.as_slice() {
        // A single file may have another name than in the repository.
        let there = crate::presence(file, dest).bytes(file);
        space.needed = file.bytes.saturating_sub(there);
    }
    if let Some(needed) = options.needed {
        space.needed = needed;
    }
    space.check()?;
    let total = space.total;
    // What is on the disk counts from the first moment, also of files whose turn comes later.
    let places: Vec<(RemoteFile, PathBuf, u64)> = places
        .into_iter()
        .map(|(file, path)| {
            let there = crate::presence(&file, &path).bytes(&file);
            (file, path, there)
        })
        .collect();
    let (sender, receiver) = mpsc::channel();
    let board = Arc::new(Board::default());
    let there = places.iter().map(|(_, _, there)| there).sum();
    board.done.store(there, Ordering::Relaxed);
    let events = Mutex::new(sender.clone());
    let job = Arc::new(Job {
        web: web.clone(),
        settings: settings.clone(),
        control: control.clone(),
        board: board.clone(),
        connections: Arc::new(Semaphore::new(settings.connections.max(1))),
        halt: watch::Sender::new(false),
        recheck: options.recheck,
        started_over: Box::new(move |file, why| {
            let event = Event::StartedOver {
                path: file.path.clone(),
                why,
            };
            let _ = events
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .send(Message::Event(event));
        }),
    });
    let _halt = HaltOnDrop(job.clone());
    let slots = Arc::new(Semaphore::new(options.files_at_once.max(1)));
    let count = places.len();
    runtime.spawn({
        let job = job.clone();
        async move {
            let ended = all(&job, places, slots, &sender).await;
            let _ = sender.send(Message::End(ended));
        }
    });
    let mut meter = Meter::new(&board, total, settings.stall);
    let mut next = Instant::now();
    loop {
        match receiver.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Message::Event(event)) => on_event(event),
            Ok(Message::End(ended)) => {
                on_event(Event::Progress(meter.now(control.is_paused())));
                ended.map_err(|error| with_missing(error, total, &board, folder))?;
                return Ok(Summary {
                    files: count,
                    bytes: total,
                    fetched: board.fetched.load(Ordering::Relaxed),
                });
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(Error::Cancelled),
        }
        if Instant::now() >= next {
            on_event(Event::Progress(meter.now(control.is_paused())));
            next = Instant::now() + TICK;
        }
    }
}

/// A full disk, with what is missing on it.
fn with_missing(error: Error, total: u64, board: &Board, folder: &Path) -> Error {
    match error {
        Error::Full { folder: at, .. } => {
            let left = total.saturating_sub(board.done.load(Ordering::Relaxed));
            Error::Full {
                folder: at,
                missing: left.saturating_sub(space::free(folder).unwrap_or(0)).max(1),
            }
        }
        other => other,
    }
}

async fn all(
    job: &Arc<Job>,
    places: Vec<(RemoteFile, PathBuf, u64)>,
    slots: Arc<Semaphore>,
    sender: &mpsc::Sender<Message>,
) -> Result<()> {
    let mut running: JoinSet<Result<()>> = JoinSet::new();
    let mut places = places.into_iter();
    let mut first = Ok(());
    let mut starting = true;
    let mut wish = job.control.watch();
    loop {
        tokio::select! {
            biased;
            _ = wish.wait_for(|wish| *wish == crate::control::Wish::Cancel), if starting => {
                starting = false;
                first = Err(Error::Cancelled);
            }
            ended = running.join_next(), if !running.is_empty() => {
                if let Some(Ok(Err(error))) = ended {
                    job.halt.send_replace(true);
                    starting = false;
                    // The others stop because of the first.
                    if matches!(first, Ok(()) | Err(Error::Cancelled)) {
                        first = Err(error);
                    }
                }
            }
            permit = slots.clone().acquire_owned(), if starting => {
                let (Some((file, path, there)), Ok(permit)) = (places.next(), permit) else {
                    starting = false;
                    continue;
                };
                let (job, sender) = (job.clone(), sender.clone());
                running.spawn(async move {
                    transfer(job, file.clone(), path.clone(), there).await?;
                    let _ = sender.send(Message::Event(Event::Done { file, path, slot: Slot { _permit: permit } }));
                    Ok(())
                });
            }
            else => return first,
        }
    }
}
