//! Fetching a checkpoint and making its container meanwhile.
//!
//! While shards arrive, a thread of its own puts those that are whole into the container, notes that, removes them, and only then lets the next
//! one start: the disk holds the container and two shards at most, and whatever moment the process dies in, the next start finds what is done.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::Duration;

use fastar_api::JobPhase;
use fastar_fst::{Checkpoint, Conversion, Start};
use fastar_hub::{Event, Hub, Options, Phase, Progress, RemoteFile, Slot};
use fastar_kernels::threads;

use super::unfinished::{Record, Unfinished};
use super::{Result, Tell, at, remote, set, waiting};
use crate::error::Error;
use crate::jobs::{Ended, Order, Report, Steering};
use crate::library;

/// Files on their way, or whole and not yet in the container.
const FILES_AT_ONCE: usize = 2;
/// How often the end of the last conversion is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a disk that does not give back what was written may have another go.
const ATTEMPTS: usize = 3;

pub(super) fn download(
    hub: &Hub,
    order: &Order,
    steering: &Steering,
    tell: Tell<'_>,
) -> Result<Ended> {
    tell(Report {
        phase: JobPhase::Resolving,
        done_bytes: 0,
        total_bytes: None,
    });
    let unfinished = Unfinished::take(order)?;
    let (mut record, mut was_known) = match unfinished.load() {
        Some(record) => (going_on(record, order)?, true),
        None => match resolve(hub, order, steering, tell) {
            Ok(record) => (record, false),
            Err(error) => {
                // Nothing has come of it yet.
                unfinished.remove()?;
                return Err(error);
            }
        },
    };
    loop {
        match bring(hub, order, &unfinished, &mut record, steering, tell) {
            // What the hub said then need not be what it says now.
            Err(error) if was_known && record.done.is_empty() && may_be_outdated(&error) => {
                tracing::warn!(%error, "the hub is asked anew");
                let Ok(anew) = resolve(hub, order, steering, tell) else {
                    return Err(error);
                };
                unfinished.forget(&record)?;
                (record, was_known) = (anew, false);
            }
            // It can never be begun: nothing may be left in the way of another one.
            Err(error) if !was_known && record.wanted.is_empty() && !is_stop(&error) => {
                unfinished.remove()?;
                return Err(error);
            }
            ended => return ended,
        }
    }
}

fn resolve(hub: &Hub, order: &Order, steering: &Steering, tell: Tell<'_>) -> Result<Record> {
    let snapshot = waiting::told(steering, tell, || {
        Ok(hub.snapshot(&order.repository, &order.revision, steering.transfer())?)
    })?;
    remote::check_kind(&snapshot)?;
    Ok(Record::new(order, snapshot))
}

fn is_stop(error: &Error) -> bool {
    matches!(
        error,
        Error::Hub(fastar_hub::Error::Cancelled) | Error::Container(fastar_fst::Error::Cancelled)
    )
}

/// Whether another listing or another commit could change that.
fn may_be_outdated(error: &Error) -> bool {
    use fastar_fst::Error as Container;
    use fastar_hub::Error as Transfer;
    match error {
        Error::Hub(error) => matches!(
            error,
            Transfer::NotFound { .. }
                | Transfer::Changed { .. }
                | Transfer::WrongContents { .. }
                | Transfer::Refused { .. }
        ),
        Error::Container(error) => !matches!(
            error,
            Container::Cancelled
                | Container::NoSpace { .. }
                | Container::Io { .. }
                | Container::Output { .. }
                | Container::ReadBack { .. }
        ),
        Error::BadRequest(_) => true,
        _ => false,
    }
}

/// Brings what the record names, from wherever it is.
fn bring(
    hub: &Hub,
    order: &Order,
    unfinished: &Unfinished,
    record: &mut Record,
    steering: &Steering,
    tell: Tell<'_>,
) -> Result<Ended> {
    if set::is_set(&record.snapshot) {
        return set::download(hub, order, unfinished, record, steering, tell);
    }
    if order.path().exists() {
        return made_before(order, unfinished, record);
    }
    unfinished.save(record)?;
    let mut work = Work {
        hub,
        order,
        steering,
        unfinished,
        record,
    };
    let kept = unfinished.headers().exists();
    let (checkpoint, conversion) = match work.open(tell) {
        // Headers are kept for convenience only, and the disk may have lost some.
        Err(error) if kept && may_be_outdated(&error) => {
            unfinished.forget_headers()?;
            work.open(tell)?
        }
        opened => opened?,
    };
    work.convert(&checkpoint, conversion, tell)
}

/// An unfinished download goes on only with what it was begun with: anything else would lose what it has.
fn going_on(record: Record, order: &Order) -> Result<Record> {
    let begun = &record.order;
    let same = begun.repository == order.repository
        && begun.revision == order.revision
        && begun.drafter == order.drafter;
    if same {
        return Ok(record);
    }
    let drafter = if begun.drafter { "with" } else { "without" };
    Err(Error::BadRequest(format!(
        "{} has an unfinished download of {} at {} ({drafter} its drafter), which is another one than {} at {}. Go on with that one, or delete it first: \
         fastar models --model-dir {} --delete {}",
        library::download_folder(&order.folder, &order.file).display(),
        begun.repository,
        begun.revision,
        order.repository,
        order.revision,
        order.folder.display(),
        order.file,
    )))
}

/// The container has its name. If this download made it, only its folder is left to remove.
fn made_before(order: &Order, unfinished: &Unfinished, record: &Record) -> Result<Ended> {
    let path = order.path();
    let made_here = fastar_fst::inspect(&path).is_ok_and(|about| {
        about.repository.as_deref() == Some(&record.snapshot.repo)
            && about.revision.as_deref() == Some(&record.snapshot.revision)
    });
    if !made_here {
        return Err(Error::Occupied(format!(
            "{} is there already, and it is another model. Move it away or choose another folder.",
            path.display()
        )));
    }
    // Its journal may be left as well.
    fastar_fst::discard_unfinished(&path)?;
    unfinished.remove()?;
    Ok(Ended::Done(None))
}

struct Work<'a> {
    hub: &'a Hub,
    order: &'a Order,
    steering: &'a Steering,
    unfinished: &'a Unfinished,
    record: &'a mut Record,
}

impl Work<'_> {
    /// Plans the container from the small files and the headers.
    fn open(&self, tell: Tell<'_>) -> Result<(Checkpoint, Conversion)> {
        let mut checkpoint = waiting::told(self.steering, tell, || {
            remote::checkpoint(
                self.hub,
                &self.record.snapshot,
                self.order.drafter,
                (&self.unfinished.files(), &self.unfinished.headers()),
                self.steering,
            )
        })?;
        checkpoint.creator = Some(self.record.creator.clone());
        let conversion = Conversion::open(checkpoint.clone(), &self.order.path())?;
        Ok((checkpoint, conversion))
    }

    fn convert(
        &mut self,
        checkpoint: &Checkpoint,
        mut conversion: Conversion,
        tell: Tell<'_>,
    ) -> Result<Ended> {
        let mut attempt = 1;
        loop {
            let warnings = conversion.warnings().join(" ");
            self.plan(&conversion)?;
            self.fetch(&mut conversion, tell)?;
            let finished = conversion.finish(self.steering.flag(), &mut |done, all| {
                tell(at(JobPhase::Verifying, done, all));
            });
            match finished {
                Ok(()) => {
                    self.unfinished.remove()?;
                    return Ok(Ended::Done((!warnings.is_empty()).then_some(warnings)));
                }
                // What the disk lost is missing again, and fetched again.
                Err(error @ fastar_fst::Error::ReadBack { .. }) if attempt < ATTEMPTS => {
                    tracing::warn!(%error, attempt, "parts of the container are made again");
                    attempt += 1;
                    conversion = Conversion::open(checkpoint.clone(), &self.order.path())?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Which shards there are to fetch, and which are done.
    fn plan(&mut self, conversion: &Conversion) -> Result<()> {
        let missing: Vec<String> = conversion.missing().iter().map(|s| (*s).into()).collect();
        let new = !matches!(conversion.start(), Start::Resumed { .. } | Start::Finished);
        if new || self.record.wanted.is_empty() {
            self.record.wanted.clone_from(&missing);
        }
        self.record.done = self.record.wanted.clone();
        self.record.done.retain(|shard| !missing.contains(shard));
        self.unfinished.save(self.record)?;
        // Those that were in the container when the process died before it could remove them.
        for shard in &self.record.done {
            fastar_hub::remove_file(&self.unfinished.files().join(shard))?;
        }
        Ok(())
    }

    fn fetch(&mut self, conversion: &mut Conversion, tell: Tell<'_>) -> Result<()> {
        let missing: Vec<RemoteFile> = {
            let missing = conversion.missing();
            let wanted = self.record.wanted_files().into_iter();
            wanted
                .filter(|file| missing.contains(&file.path.as_str()))
                .cloned()
                .collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let before = self.record.done_bytes();
        let total = before + missing.iter().map(|file| file.bytes).sum::<u64>();
        let options = Options {
            files_at_once: FILES_AT_ONCE,
            needed: Some(self.room(conversion, &missing)),
            recheck: false,
        };
        let folder = self.unfinished.files();
        let (hub, steering) = (self.hub, self.steering);
        let state = Converting::default();
        let (sender, arrived) = channel();
        let (fetched, converted) = std::thread::scope(|scope| {
            let convert = || {
                let converted = self.put_in(conversion, arrived, &state);
                if converted.is_err() {
                    steering.transfer().cancel();
                }
                converted
            };
            let converter = threads::start_scoped(Builder::new(), scope, convert)?;
            let fetched =
                hub.fetch_set(&missing, &folder, &options, steering.transfer(), |event| {
                    match event {
                        Event::Progress(progress) => {
                            let phase = phase(&progress, state.busy.load(Ordering::Relaxed));
                            tell(at(phase, before + progress.done, total));
                        }
                        Event::Done { file, path, slot } => {
                            // Fails only when the converter has ended, which cancels this.
                            let _ = sender.send((file, path, slot));
                        }
                        Event::StartedOver { path, why } => {
                            tracing::warn!(%path, %why, "a file starts over");
                        }
                    }
                });
            drop(sender);
            while !converter.is_finished() {
                let (done, all) = (&state.done, &state.all);
                if fetched.is_ok() && all.load(Ordering::Relaxed) > 0 {
                    tell(at(
                        JobPhase::Converting,
                        done.load(Ordering::Relaxed),
                        all.load(Ordering::Relaxed),
                    ));
                }
                std::thread::sleep(LOOK_EVERY);
            }
            let converted = converter.join();
            Ok::<_, Error>((
                fetched,
                converted.unwrap_or_else(|panic| resume_unwind(panic)),
            ))
        })?;
        // What went wrong first: the transfer was cancelled because the conversion failed, or the other way round.
        match converted {
            Err(Error::Container(fastar_fst::Error::Cancelled)) | Ok(()) => {}
            Err(error) => return Err(error),
        }
        fetched?;
        converted
    }

    /// Puts shards into the container as they come, until no more come.
    fn put_in(
        &mut self,
        conversion: &mut Conversion,
        arrived: Receiver<(RemoteFile, PathBuf, Slot)>,
        state: &Converting,
    ) -> Result<()> {
        for (file, path, slot) in arrived {
            let _span = tracing::info_span!("convert", shard = %file.path).entered();
            state.busy.store(true, Ordering::Relaxed);
            conversion.add(&file.path, &path, self.steering.flag(), &mut |done, all| {
                state.done.store(done, Ordering::Relaxed);
                state.all.store(all, Ordering::Relaxed);
            })?;
            self.record.done.push(file.path);
            self.unfinished.save(self.record)?;
            fastar_hub::remove_file(&path)?;
            state.busy.store(false, Ordering::Relaxed);
            drop(slot);
        }
        Ok(())
    }

    /// Bytes that the disk must have room for: the rest of the container, and the shards beside it.
    fn room(&self, conversion: &Conversion, missing: &[RemoteFile]) -> u64 {
        let mut partial = self.order.path().into_os_string();
        partial.push(".partial");
        let container = conversion
            .file_bytes()
            .saturating_sub(library::bytes(&PathBuf::from(partial)));
        let folder = self.unfinished.files();
        let beside = remote::two_largest(missing.iter().map(|file| file.bytes));
        let there: u64 = missing
            .iter()
            .map(|file| fastar_hub::presence(file, &folder.join(&file.path)).bytes(file))
            .sum();
        container + beside.saturating_sub(there)
    }
}

/// How far the converting thread is.
#[derive(Default)]
struct Converting {
    busy: AtomicBool,
    done: AtomicU64,
    all: AtomicU64,
}

/// What a transfer does, in the words of a job.
pub(super) fn phase(progress: &Progress, converting: bool) -> JobPhase {
    match &progress.phase {
        Phase::Downloading => JobPhase::Downloading,
        Phase::Stalled { seconds } => JobPhase::Stalled {
            seconds: u32::try_from(*seconds).unwrap_or(u32::MAX),
        },
        Phase::Waiting { seconds, why } => JobPhase::Retrying {
            seconds: u32::try_from(*seconds).unwrap_or(u32::MAX),
            reason: why.clone(),
        },
        Phase::Connecting | Phase::Verifying { .. } | Phase::Paused if converting => {
            JobPhase::Converting
        }
        Phase::Verifying { .. } => JobPhase::Verifying,
        Phase::Connecting | Phase::Paused => JobPhase::Downloading,
    }
}
