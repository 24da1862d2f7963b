//! One file: ranges in flight, retries for ever, the check at the end.

mod attempt;
mod read;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use url::Url;

use crate::blocks::{BLOCK, Checked, Opened, Table, open, partial_path};
use crate::contents::Compared;
use crate::control::Wish;
use crate::progress::{Activity, Board, Line};
use crate::retry::Backoff;
use crate::web::{Fault, Web};
use crate::{Control, Error, RemoteFile, Result, Settings};

use attempt::attempt;
pub(crate) use read::read;

/// Blocks of one request.
const SPAN: u64 = 16;
/// Times that a file is started over or repaired in one run before somebody must look.
const MOST_ROUNDS: u32 = 4;

/// Told of a file that starts over, and why.
pub(crate) type Tell = Box<dyn Fn(&RemoteFile, String) + Send + Sync>;

/// What all files of a transfer share.
pub(crate) struct Job {
    pub(crate) web: Arc<Web>,
    pub(crate) settings: Settings,
    pub(crate) control: Control,
    pub(crate) board: Arc<Board>,
    pub(crate) connections: Arc<Semaphore>,
    /// Set when another file failed for good.
    pub(crate) halt: watch::Sender<bool>,
    pub(crate) recheck: bool,
    pub(crate) started_over: Tell,
}

/// Why work stopped in the middle.
enum Stop {
    Pause,
    Cancel,
    Halt,
}

/// How an attempt or a range ended without being done.
enum End {
    Fault(Fault),
    Stop(Stop),
    /// Other contents than before: the file starts over.
    Changed(String),
}

impl<T: Into<Fault>> From<T> for End {
    fn from(fault: T) -> Self {
        Self::Fault(fault.into())
    }
}

/// What the ranges of one file share.
struct Source {
    table: Arc<Table>,
    resolve: Url,
    what: String,
    /// The signed address, while it works.
    address: Mutex<Option<Url>>,
    /// Of the last data answer.
    etag: Mutex<Option<String>>,
    /// Wrong answers to ranges in a row; after some, the whole file is asked for and skipped up to the place.
    wrong_ranges: AtomicU32,
    /// The endpoint has given this file in this run.
    served: AtomicBool,
    quit: watch::Sender<bool>,
}

fn locked<T: Clone>(value: &Mutex<T>) -> T {
    value.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn put<T>(place: &Mutex<T>, value: T) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = value;
}

/// Runs disk work off the network's threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or(Err(Error::Cancelled))
}

impl Job {
    async fn interrupted(&self, quit: &watch::Sender<bool>) -> Stop {
        let (mut wish, mut halt, mut quit) = (
            self.control.watch(),
            self.halt.subscribe(),
            quit.subscribe(),
        );
        tokio::select! {
            biased;
            _ = halt.wait_for(|halt| *halt) => Stop::Halt,
            _ = quit.wait_for(|quit| *quit) => Stop::Halt,
            wish = wish.wait_for(|wish| *wish != Wish::Go) => match wish.as_deref() {
                Ok(Wish::Pause) => Stop::Pause,
                _ => Stop::Cancel,
            },
        }
    }

    /// `work`, unless somebody wants it to stop.
    async fn unless_stopped<T>(
        &self,
        quit: &watch::Sender<bool>,
        work: impl Future<Output = T>,
    ) -> std::result::Result<T, Stop> {
        tokio::select! {
            biased;
            stop = self.interrupted(quit) => Err(stop),
            done = work => Ok(done),
        }
    }

    async fn resumed(&self) {
        let (mut wish, mut halt) = (self.control.watch(), self.halt.subscribe());
        tokio::select! {
            _ = wish.wait_for(|wish| *wish != Wish::Pause) => {}
            _ = halt.wait_for(|halt| *halt) => {}
        }
    }

    /// `now` bytes count instead of `before`, in one step: progress must not fall.
    fn recount(&self, before: u64, now: u64) {
        if now >= before {
            self.gain(now - before);
        } else {
            self.lose(before - now);
        }
    }

    fn gain(&self, bytes: u64) {
        self.board.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn lose(&self, bytes: u64) {
        let _ = self
            .board
            .done
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |done| {
                Some(done.saturating_sub(bytes))
            });
    }
}

/// Brings one file whole and checked under its final name. `counted` bytes of it are on the board already.
pub(crate) async fn transfer(
    job: Arc<Job>,
    file: RemoteFile,
    dest: std::path::PathBuf,
    counted: u64,
) -> Result<()> {
    let recheck = job.recheck;
    let (opened, file) = blocking(move || Ok((open(&file, &dest, recheck)?, file))).await?;
    let (table, mut complete) = match opened {
        Opened::Whole => {
            job.recount(counted, file.bytes);
            return Ok(());
        }
        Opened::Unchecked(table) => (Arc::new(table), true),
        Opened::Partial(table) => (Arc::new(table), false),
    };
    let unrecorded = complete && !table.has_records();
    let there = if complete {
        file.bytes
    } else {
        table.present()
    };
    job.recount(counted, there);
    let mut before: Option<Vec<u64>> = None;
    let mut host = job.web.host();
    for _ in 0..MOST_ROUNDS {
        if !complete {
            match ranges(&job, &table, &mut host).await {
                Ok(()) => {}
                Err(End::Changed(why)) => {
                    job.lose(file.bytes.min(table.present()));
                    let restarted = table.clone();
                    blocking(move || restarted.restart()).await?;
                    (job.started_over)(&file, why);
                    continue;
                }
                Err(End::Fault(Fault::Final(error))) => return Err(error),
                Err(End::Fault(_) | End::Stop(_)) => return Err(Error::Cancelled),
            }
        }
        let Checked { whole, bad } = check(&job, &table).await?;
        let right = whole
            .as_ref()
            .map_or(bad.is_empty() || unrecorded, Compared::is_right);
        let finished = table.clone();
        if right {
            let stale = !bad.is_empty();
            return blocking(move || {
                if stale {
                    finished.record_all()?;
                }
                finished.finish()
            })
            .await;
        }
        if unrecorded {
            return Err(Error::Occupied {
                path: table.dest.clone(),
                repo: file.repo.clone(),
            });
        }
        let again = if bad.is_empty() {
            // Every block is as it came, and the whole is wrong: only a second copy can tell where.
            let hashes = table.hashes();
            if before.as_ref() == Some(&hashes) {
                let partial = partial_path(&table.dest);
                return Err(Error::WrongContents {
                    host,
                    file: format!("{:?} of {}", file.path, file.repo),
                    hashes: whole.map(|whole| whole.to_string()).unwrap_or_default(),
                    partial,
                });
            }
            before = Some(hashes);
            (0..file.bytes.div_ceil(BLOCK)).collect()
        } else {
            bad
        };
        tracing::debug!(path = %file.path, blocks = again.len(), "fetching blocks again");
        let had = if complete {
            file.bytes
        } else {
            table.present()
        };
        blocking(move || finished.forget(again)).await?;
        job.lose(had.saturating_sub(table.present()));
        complete = false;
    }
    Err(Error::Changed {
        repo: file.repo,
        path: file.path,
        problem: "its contents differ at each attempt".into(),
    })
}

async fn check(job: &Arc<Job>, table: &Arc<Table>) -> Result<Checked> {
    let line = Line::new(&job.board);
    let (job, table) = (job.clone(), table.clone());
    blocking(move || {
        let (mut done, total) = (0, table.file.bytes);
        line.set(Activity::Verifying { done, total });
        table.check(|read| {
            done += read;
            line.set(Activity::Verifying { done, total });
            if job.control.is_cancelled() || *job.halt.borrow() {
                Err(Error::Cancelled)
            } else {
                Ok(())
            }
        })
    })
    .await
}

/// Fetches every missing block, several ranges at once.
async fn ranges(
    job: &Arc<Job>,
    table: &Arc<Table>,
    host: &mut String,
) -> std::result::Result<(), End> {
    let file = &table.file;
    let source = Arc::new(Source {
        table: table.clone(),
        resolve: job.web.resolve(file),
        what: format!("file {:?} of {}", file.path, file.repo),
        address: Mutex::new(None),
        etag: Mutex::new(table.identity().and_then(|identity| {
            identity
                .strip_prefix("etag:")
                .map(|etag| format!("\"{etag}\""))
        })),
        wrong_ranges: AtomicU32::new(0),
        served: AtomicBool::new(false),
        quit: watch::Sender::new(false),
    });
    let missing = file.bytes.saturating_sub(table.present());
    let workers = missing
        .div_ceil(SPAN * BLOCK)
        .clamp(1, job.settings.connections.max(1) as u64);
    let mut running = JoinSet::new();
    for _ in 0..workers {
        let (job, source) = (job.clone(), source.clone());
        running.spawn(async move {
            while let Some(span) = source.table.claim(SPAN) {
                let ended = range(&job, &source, span).await;
                source.table.release(span);
                ended?;
            }
            Ok::<(), End>(())
        });
    }
    let mut first = Ok(());
    while let Some(ended) = running.join_next().await {
        let ended = ended.unwrap_or(Err(End::Stop(Stop::Cancel)));
        if ended.is_err() {
            source.quit.send_replace(true);
            if !matches!(first, Err(End::Fault(_) | End::Changed(_))) {
                first = ended;
            }
        }
    }
    if let Some(address) = locked(&source.address) {
        *host = address.host_str().unwrap_or_default().to_owned();
    }
    first
}

/// Fetches the blocks `first..end`, however often the connection fails.
async fn range(
    job: &Arc<Job>,
    source: &Arc<Source>,
    (first, end): (u64, u64),
) -> std::result::Result<(), End> {
    let table = source.table.clone();
    let mut cursor = Some(blocking(move || table.cursor(first)).await?);
    let end = (end * BLOCK).min(source.table.file.bytes);
    let mut backoff = Backoff::new(job.settings.first_wait, job.settings.longest_wait);
    let line = Line::new(&job.board);
    loop {
        let (why, wait) = match attempt(job, source, &mut cursor, end, &mut backoff, &line).await {
            Ok(()) => return Ok(()),
            Err(End::Stop(Stop::Pause)) => {
                line.set(Activity::Connecting);
                job.resumed().await;
                continue;
            }
            Err(End::Fault(Fault::Again { why, wait })) => (why, wait),
            Err(End::Fault(Fault::Expired { why })) => {
                put(&source.address, None);
                (why, None)
            }
            // Refused in the middle of a transfer that was allowed: a mirror's hiccup, up to a point.
            Err(End::Fault(Fault::Final(error @ Error::Denied { .. })))
                if source.served.load(Ordering::Relaxed) && backoff.failures() < 3 =>
            {
                (error.to_string(), None)
            }
            // A log-in portal in between, for example: it goes away, and nothing of what it says is used.
            Err(End::Fault(Fault::Final(error @ Error::Untrusted { .. })))
                if source.served.load(Ordering::Relaxed) =>
            {
                (error.to_string(), None)
            }
            Err(other) => return Err(other),
        };
        let wait = backoff.next(wait);
        tracing::debug!(path = %source.table.file.path, %why, ?wait, "retrying");
        line.set(Activity::Waiting(Instant::now() + wait, why));
        match job
            .unless_stopped(&source.quit, tokio::time::sleep(wait))
            .await
        {
            Ok(()) => line.set(Activity::Connecting),
            Err(Stop::Pause) => job.resumed().await,
            Err(stop) => return Err(End::Stop(stop)),
        }
    }
}
