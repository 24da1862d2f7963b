//! One file: ranges in flight, retries for ever, the check at the end.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use reqwest::StatusCode;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use url::Url;

use crate::blocks::{BLOCK, Checked, Cursor, Opened, Table, open, partial_path};
use crate::control::Wish;
use crate::progress::{Activity, Board, Line};
use crate::retry::Backoff;
use crate::snapshot::clean_etag;
use crate::web::{Answer, Fault, Web};
use crate::{Control, Error, Limiter, RemoteFile, Result, Settings};

/// Blocks of one request.
const SPAN: u64 = 16;
/// Bytes that are written at once; what a kill can lose on a connection besides the socket's own buffer.
const FLUSH: usize = 512 << 10;
/// Skipping costs the line what is there already, so a single wrong answer is only asked again.
const MOST_WRONG_RANGES: u32 = 3;
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

/// Brings one file whole and checked under its final name.
pub(crate) async fn transfer(
    job: Arc<Job>,
    file: RemoteFile,
    dest: std::path::PathBuf,
) -> Result<()> {
    let recheck = job.recheck;
    let (opened, file) = blocking(move || Ok((open(&file, &dest, recheck)?, file))).await?;
    let (table, mut complete) = match opened {
        Opened::Whole => {
            job.gain(file.bytes);
            return Ok(());
        }
        Opened::Unchecked(table) => (Arc::new(table), true),
        Opened::Partial(table) => (Arc::new(table), false),
    };
    let unrecorded = complete && !table.has_records();
    let mut counted = if complete {
        file.bytes
    } else {
        table.present()
    };
    job.gain(counted);
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
                    counted = 0;
                    continue;
                }
                Err(End::Fault(Fault::Final(error))) => return Err(error),
                Err(End::Fault(_) | End::Stop(_)) => return Err(Error::Cancelled),
            }
        }
        counted = file.bytes.max(counted);
        let Checked { sha256, bad } = check(&job, &table).await?;
        let right = file
            .sha256
            .as_ref()
            .map_or(bad.is_empty() || unrecorded, |expected| *expected == sha256);
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
                    hashes: format!(
                        "sha256 {sha256} instead of {}",
                        file.sha256.as_deref().unwrap_or("none")
                    ),
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
    let parts: Vec<&str> = file
        .repo
        .split('/')
        .chain(["resolve", &file.revision])
        .chain(file.path.split('/'))
        .collect();
    let source = Arc::new(Source {
        table: table.clone(),
        resolve: job.web.address(&parts),
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

/// One request.
async fn attempt(
    job: &Arc<Job>,
    source: &Arc<Source>,
    cursor: &mut Option<Cursor>,
    end: u64,
    backoff: &mut Backoff,
    line: &Line,
) -> std::result::Result<(), End> {
    let file = &source.table.file;
    let mut position = cursor.as_ref().map_or(0, Cursor::position);
    let Ok(_permit) = job
        .unless_stopped(&source.quit, job.connections.acquire())
        .await
        .map_err(End::Stop)?
    else {
        return Err(End::Stop(Stop::Halt));
    };
    let start = locked(&source.address).unwrap_or_else(|| source.resolve.clone());
    let whole = position == 0 && end == file.bytes
        || source.wrong_ranges.load(Ordering::Relaxed) >= MOST_WRONG_RANGES;
    let part = (!whole).then(|| (position, (end != file.bytes).then_some(end)));
    let etag = locked(&source.etag);
    let asked = job.web.get(&start, part, etag.as_deref(), &source.what);
    let mut answer = job
        .unless_stopped(&source.quit, asked)
        .await
        .map_err(End::Stop)??;
    let mut skip = accept(source, &answer, position)?;
    if answer.url.origin() != source.resolve.origin() {
        put(&source.address, Some(answer.url.clone()));
    }
    source.served.store(true, Ordering::Relaxed);
    line.set(Activity::Receiving(Instant::now()));
    let host = answer.host();
    let mut buffer = Vec::with_capacity(FLUSH + (64 << 10));
    let ended = loop {
        if position + buffer.len() as u64 == end {
            break Ok(());
        }
        let next = tokio::time::timeout(job.settings.stall, answer.response.chunk());
        let chunk = match job.unless_stopped(&source.quit, next).await {
            Err(stop) => break Err(End::Stop(stop)),
            Ok(Err(_)) => {
                break Err(Fault::again(format!(
                    "nothing came from {host} for {} s",
                    job.settings.stall.as_secs_f64().ceil()
                ))
                .into());
            }
            Ok(Ok(Err(_))) => {
                break Err(Fault::again(format!("the connection to {host} broke")).into());
            }
            Ok(Ok(Ok(None))) => {
                break Err(Fault::again(format!("{host} ended the transfer early")).into());
            }
            Ok(Ok(Ok(Some(chunk)))) => chunk,
        };
        job.board
            .fetched
            .fetch_add(chunk.len() as u64, Ordering::Relaxed);
        line.set(Activity::Receiving(Instant::now()));
        let skipped = skip.min(chunk.len() as u64);
        skip -= skipped;
        let room = end - position - buffer.len() as u64;
        let useful = &chunk[skipped as usize..];
        let useful = &useful[..useful
            .len()
            .min(usize::try_from(room).unwrap_or(usize::MAX))];
        if position == 0 && buffer.is_empty() && looks_like_a_page(useful) && !is_page(&file.path) {
            return Err(Error::WebPage {
                host,
                path: file.path.clone(),
            }
            .into());
        }
        buffer.extend_from_slice(useful);
        if !useful.is_empty() {
            backoff.progress();
        }
        if buffer.len() >= FLUSH {
            position = flush(job, source, cursor, &mut buffer).await?;
        }
        if let Err(stop) = job
            .unless_stopped(&source.quit, job.control.limiter().pass(chunk.len()))
            .await
        {
            break Err(End::Stop(stop));
        }
        line.set(Activity::Receiving(Instant::now()));
    };
    drop(answer);
    flush(job, source, cursor, &mut buffer).await?;
    ended
}

async fn flush(
    job: &Arc<Job>,
    source: &Arc<Source>,
    cursor: &mut Option<Cursor>,
    buffer: &mut Vec<u8>,
) -> Result<u64> {
    let Some(mut at) = cursor.take() else {
        return Err(Error::Cancelled);
    };
    let bytes = std::mem::take(buffer);
    let table = source.table.clone();
    let before = at.position();
    let (at, bytes) = blocking(move || {
        table.append(&mut at, &bytes)?;
        Ok((at, bytes))
    })
    .await?;
    *buffer = bytes;
    buffer.clear();
    let position = at.position();
    job.gain(position - before);
    *cursor = Some(at);
    Ok(position)
}

/// Whether the body is what was asked for, and how many of its first bytes are there already.
fn accept(source: &Source, answer: &Answer, position: u64) -> std::result::Result<u64, End> {
    let file = &source.table.file;
    if answer.is_web_page() && !is_page(&file.path) {
        return Err(Error::WebPage {
            host: answer.host(),
            path: file.path.clone(),
        }
        .into());
    }
    let changed = |found: u64| Error::Changed {
        repo: file.repo.clone(),
        path: file.path.clone(),
        problem: format!("it has {found} bytes now instead of {}", file.bytes),
    };
    if let Some(found) = answer.linked_size.filter(|found| *found != file.bytes) {
        return Err(changed(found).into());
    }
    let status = answer.response.status();
    let range = answer.content_range();
    if let Some((_, Some(found))) =
        range.filter(|(_, total)| total.is_some_and(|total| total != file.bytes))
    {
        return Err(changed(found).into());
    }
    if status != StatusCode::RANGE_NOT_SATISFIABLE {
        same_contents(source, answer)?;
    }
    match status {
        StatusCode::PARTIAL_CONTENT if range.is_some_and(|(from, _)| from == position) => {
            source.wrong_ranges.store(0, Ordering::Relaxed);
            Ok(0)
        }
        StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
            source.wrong_ranges.fetch_add(1, Ordering::Relaxed);
            Err(Fault::again(format!(
                "{} answered with another part of the file",
                answer.host()
            ))
            .into())
        }
        StatusCode::OK => match answer.response.content_length() {
            Some(found) if found != file.bytes => Err(changed(found).into()),
            _ => Ok(position),
        },
        status => Err(Fault::again(format!(
            "{} answered with status {}",
            answer.host(),
            status.as_u16()
        ))
        .into()),
    }
}

/// Compares what the server calls the contents with what it called them before: its own hash if it names one, else the ETag.
fn same_contents(source: &Source, answer: &Answer) -> std::result::Result<(), End> {
    let table = &source.table;
    let etag = answer.etag();
    let plain = etag.as_deref().map(|etag| clean_etag(etag).to_owned());
    let name = match (&answer.linked, &plain) {
        (Some(linked), _) => Some(format!("linked:{linked}")),
        (None, Some(etag)) => Some(format!("etag:{etag}")),
        (None, None) => None,
    };
    if let Some(name) = name {
        match table.identity() {
            Some(known) if known.starts_with("linked:") && name.starts_with("etag:") => {
                // A signed address names the copy only. Another copy than before: let the hub say whether it is the same file.
                let before = locked(&source.etag);
                if before.is_some_and(|before| Some(clean_etag(&before)) != plain.as_deref()) {
                    put(&source.etag, None);
                    return Err(Fault::Expired {
                        why: format!("{} names the file differently", answer.host()),
                    }
                    .into());
                }
            }
            Some(known)
                if known.starts_with("etag:") == name.starts_with("etag:") && known != name =>
            {
                put(&source.etag, None);
                return Err(End::Changed(format!(
                    "{} says that the file was changed (another ETag)",
                    answer.host()
                )));
            }
            _ => table.set_identity(&name)?,
        }
    }
    put(&source.etag, etag);
    Ok(())
}

fn is_page(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    path.ends_with(".html") || path.ends_with(".htm")
}

fn looks_like_a_page(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    ["<!doctype html", "<html"].iter().any(|start| {
        text.get(..start.len())
            .is_some_and(|found| found.eq_ignore_ascii_case(start.as_bytes()))
    })
}

/// A small piece of a file in memory, with the same retries but not for ever.
pub(crate) async fn read(
    web: Arc<Web>,
    settings: Settings,
    limiter: Limiter,
    file: RemoteFile,
    from: u64,
    to: u64,
) -> Result<Vec<u8>> {
    let parts: Vec<&str> = file
        .repo
        .split('/')
        .chain(["resolve", &file.revision])
        .chain(file.path.split('/'))
        .collect();
    let resolve = web.address(&parts);
    let what = format!("file {:?} of {}", file.path, file.repo);
    let mut backoff = Backoff::new(settings.first_wait, settings.longest_wait);
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        let position = from + bytes.len() as u64;
        if position == to {
            return Ok(bytes);
        }
        let had = bytes.len();
        let (why, wait) = match read_once(
            &web, &settings, &limiter, &file, &resolve, &what, position, to, &mut bytes,
        )
        .await
        {
            Ok(()) => continue,
            Err(Fault::Final(error)) => return Err(error),
            Err(Fault::Again { why, wait }) => (why, wait),
            Err(Fault::Expired { why }) => (why, None),
        };
        if bytes.len() > had {
            backoff.progress();
        }
        let wait = backoff.next(wait);
        if backoff.failures() >= settings.tries.max(1) {
            return Err(Error::Unreachable {
                action: format!("read a part of {what}"),
                why,
            });
        }
        tokio::time::sleep(wait).await;
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "one request of `read`, split off for its own error type"
)]
async fn read_once(
    web: &Web,
    settings: &Settings,
    limiter: &Limiter,
    file: &RemoteFile,
    resolve: &Url,
    what: &str,
    position: u64,
    to: u64,
    bytes: &mut Vec<u8>,
) -> std::result::Result<(), Fault> {
    let mut answer = web
        .get(resolve, Some((position, Some(to))), None, what)
        .await?;
    if answer.is_web_page() && !is_page(&file.path) {
        return Err(Error::WebPage {
            host: answer.host(),
            path: file.path.clone(),
        }
        .into());
    }
    let mut skip = match (answer.response.status(), answer.content_range()) {
        (StatusCode::PARTIAL_CONTENT, Some((from, total)))
            if from == position && total.is_none_or(|total| total == file.bytes) =>
        {
            0
        }
        (StatusCode::OK, _)
            if answer
                .response
                .content_length()
                .is_none_or(|length| length == file.bytes) =>
        {
            position
        }
        _ => {
            return Err(Fault::again(format!(
                "{} answered with another part of the file",
                answer.host()
            )));
        }
    };
    let mut left = to - position;
    while left > 0 {
        let Ok(chunk) = tokio::time::timeout(settings.stall, answer.response.chunk()).await else {
            return Err(Fault::again(format!(
                "nothing came from {} for {} s",
                answer.host(),
                settings.stall.as_secs_f64().ceil()
            )));
        };
        let chunk = match chunk {
            Ok(Some(chunk)) => chunk,
            Ok(None) => {
                return Err(Fault::again(format!(
                    "{} ended the transfer early",
                    answer.host()
                )));
            }
            Err(_) => {
                return Err(Fault::again(format!(
                    "the connection to {} broke",
                    answer.host()
                )));
            }
        };
        let skipped = skip.min(chunk.len() as u64);
        skip -= skipped;
        let useful = &chunk[skipped as usize..];
        let useful = &useful[..useful
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX))];
        bytes.extend_from_slice(useful);
        left -= useful.len() as u64;
        limiter.pass(chunk.len()).await;
    }
    Ok(())
}
