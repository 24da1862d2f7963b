//! Long work: downloads, checks and repairs of model files. One of each kind is at work at a time; the others wait.
//!
//! A job's row is saved whenever its state changes. How far a download is, the files on the disk say: after a kill the row may be
//! behind, so it is asked from there ([`Workshop::leftover`]). What was at work when the process ended is paused at the next start, or goes
//! on by itself where the person chose so; what was cancelled stays cancelled. Not here: the work itself ([`crate::install`]).

mod rate;
mod rows;
#[cfg(test)]
mod tests;
mod work;

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastar_api::{ApiError, Job, JobKind, JobPhase, JobState};

pub use rate::Rate;
pub use work::{Ended, Leftover, Order, Report, Steering, Workshop};

use crate::chats::Chats;
use crate::clock;
use crate::error::{Error, Result, guard, lock};
use rows::Rows;

/// A row is brought up to date so often while its job is at work.
const SAVE_EVERY: Duration = Duration::from_secs(5);
/// Ended jobs that are remembered.
const KEPT: usize = 50;

pub(crate) struct Jobs {
    inner: Arc<Inner>,
    threads: Mutex<Vec<(JobKind, JoinHandle<()>)>>,
}

struct Inner {
    rows: Rows,
    workshop: Arc<dyn Workshop>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The newest first.
    jobs: Vec<Entry>,
    limit: Option<u64>,
    closing: bool,
}

struct Entry {
    order: Order,
    job: Job,
    rate: Rate,
    saved: Option<Instant>,
    /// While at work.
    steering: Option<Arc<Steering>>,
    /// What becomes of it once the work has ended, where the person has said so.
    wish: Option<Wish>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Pause,
    Cancel { keep: bool },
}

impl Entry {
    fn new(order: Order, job: Job) -> Self {
        Self {
            order,
            job,
            rate: Rate::default(),
            saved: None,
            steering: None,
            wish: None,
        }
    }

    fn rest(&mut self, state: JobState) {
        self.job.state = state;
        self.job.phase = None;
        self.job.bytes_per_second = None;
        self.job.seconds_left = None;
        self.rate = Rate::default();
    }

    fn is_for(&self, folder: &Path, file: &str) -> bool {
        self.order.file == file && self.order.folder == folder
    }
}

impl Jobs {
    /// Takes up the saved jobs. Those that were at work when the process ended are paused, or wait for their turn if `resume`.
    pub(crate) fn open(
        chats: Arc<Chats>,
        workshop: Arc<dyn Workshop>,
        limit: Option<u64>,
        resume: bool,
    ) -> Result<Self> {
        let rows = Rows::new(chats);
        let mut jobs: Vec<Entry> = Vec::new();
        for saved in rows.all()? {
            let mut entry = Entry::new(saved.order, saved.job);
            let ended = !matches!(
                entry.job.state,
                JobState::Queued | JobState::Running | JobState::Paused | JobState::Failed
            );
            if ended && jobs.len() >= KEPT {
                rows.remove(&entry.job.id)?;
                continue;
            }
            if !entry.job.state.is_at_rest() {
                let download = entry.order.kind == JobKind::Download;
                entry.rest(match (download, resume) {
                    (true, true) => JobState::Queued,
                    (true, false) => JobState::Paused,
                    // A check that did not come to its end says nothing.
                    (false, _) => JobState::Cancelled,
                });
                rows.save(&entry.order, &entry.job)?;
            }
            jobs.push(entry);
        }
        for entry in jobs
            .iter_mut()
            .filter(|entry| entry.order.kind == JobKind::Download)
        {
            if matches!(
                entry.job.state,
                JobState::Queued | JobState::Paused | JobState::Failed
            ) && let Some(left) = workshop.leftover(&entry.order.folder, &entry.order.file)
            {
                entry.job.done_bytes = left.done_bytes;
                entry.job.total_bytes = left.total_bytes.or(entry.job.total_bytes);
            }
        }
        let queued = jobs.iter().any(|entry| entry.job.state == JobState::Queued);
        let jobs = Self {
            inner: Arc::new(Inner {
                rows,
                workshop,
                state: Mutex::new(State {
                    jobs,
                    limit,
                    closing: false,
                }),
                changed: Condvar::new(),
            }),
            threads: Mutex::default(),
        };
        if queued {
            jobs.need_thread(JobKind::Download)?;
        }
        Ok(jobs)
    }

    /// All jobs, the newest first.
    pub(crate) fn list(&self) -> Vec<Job> {
        let now = Instant::now();
        let state = lock(&self.inner.state);
        let with_rate = |entry: &Entry| {
            let mut job = entry.job.clone();
            if job.state == JobState::Running {
                let left = job
                    .total_bytes
                    .map_or(0, |all| all.saturating_sub(job.done_bytes));
                job.bytes_per_second = entry.rate.per_second(now);
                job.seconds_left = job
                    .total_bytes
                    .and_then(|_| entry.rate.seconds_left(now, left));
            }
            job
        };
        state.jobs.iter().map(with_rate).collect()
    }

    /// Whether a job for this file is at work, or waits for it.
    pub(crate) fn is_busy(&self, folder: &Path, file: &str) -> bool {
        lock(&self.inner.state)
            .jobs
            .iter()
            .any(|entry| entry.is_for(folder, file) && !entry.job.state.is_at_rest())
    }

    /// Takes an order. Jobs for the same file that are at rest give way to it.
    pub(crate) fn start(&self, order: Order) -> Result<Job> {
        if order.folder.to_str().is_none() {
            return Err(Error::BadRequest(format!(
                "The path {} contains bytes that are not text. Rename the folder, or choose another one.",
                order.folder.display()
            )));
        }
        if self.is_busy(&order.folder, &order.file) {
            return Err(Error::ModelBusy {
                name: order.title.clone(),
            });
        }
        let left = match order.kind {
            JobKind::Download => self.inner.workshop.leftover(&order.folder, &order.file),
            JobKind::Verify | JobKind::Repair => None,
        };
        let job = Job {
            id: uuid::Uuid::now_v7().to_string(),
            kind: order.kind,
            title: order.title.clone(),
            file: order.file.clone(),
            state: JobState::Queued,
            phase: None,
            done_bytes: left.as_ref().map_or(0, |left| left.done_bytes),
            total_bytes: left.and_then(|left| left.total_bytes),
            bytes_per_second: None,
            seconds_left: None,
            error: None,
            outcome: None,
            created_at: clock::now(),
        };
        // The row first: what was asked for survives a kill right after.
        self.inner.rows.save(&order, &job)?;
        {
            let mut state = lock(&self.inner.state);
            let (replaced, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut state.jobs)
                .into_iter()
                .partition(|entry| entry.is_for(&order.folder, &order.file));
            state.jobs = kept;
            state.jobs.insert(0, Entry::new(order.clone(), job.clone()));
            drop(state);
            for entry in replaced {
                self.inner.rows.remove(&entry.job.id)?;
            }
        }
        self.need_thread(order.kind)?;
        Ok(job)
    }

    /// Stops a job so that it can go on later.
    pub(crate) fn pause(&self, id: &str) -> Result<Job> {
        self.change(id, |entry| match entry.job.state {
            JobState::Queued => entry.rest(JobState::Paused),
            JobState::Running => entry.ask(Wish::Pause),
            _ => {}
        })
    }

    /// Goes on with a job that is paused or has failed.
    pub(crate) fn resume(&self, id: &str) -> Result<Job> {
        let job = self.change(id, |entry| {
            if matches!(entry.job.state, JobState::Paused | JobState::Failed) {
                entry.rest(JobState::Queued);
                entry.job.error = None;
            }
        })?;
        self.need_thread(job.kind)?;
        Ok(job)
    }

    /// Gives a job up. What it has on the disk stays if `keep`, and is removed otherwise.
    pub(crate) fn cancel(&self, id: &str, keep: bool) -> Result<Job> {
        let mut discard = None;
        let job = self.change(id, |entry| match entry.job.state {
            JobState::Running => entry.ask(Wish::Cancel { keep }),
            JobState::Queued | JobState::Paused | JobState::Failed => {
                entry.rest(JobState::Cancelled);
                entry.job.error = None;
                if !keep && entry.order.kind == JobKind::Download {
                    discard = Some(entry.order.clone());
                }
            }
            JobState::Done | JobState::Cancelled => {}
        })?;
        if let Some(order) = discard {
            self.inner
                .workshop
                .discard(&order.folder, &order.file)
                .map_err(Error::Told)?;
        }
        Ok(job)
    }

    /// Takes a job that is at rest out of the list.
    pub(crate) fn dismiss(&self, id: &str) -> Result<()> {
        let mut state = lock(&self.inner.state);
        let place = state
            .jobs
            .iter()
            .position(|entry| entry.job.id == id)
            .ok_or(Error::JobNotFound)?;
        let entry = &state.jobs[place];
        if !entry.job.state.is_at_rest() {
            return Err(Error::ModelBusy {
                name: entry.job.title.clone(),
            });
        }
        state.jobs.remove(place);
        drop(state);
        self.inner.rows.remove(id)
    }

    /// Takes what is at rest of a file that is no longer there out of the list.
    pub(crate) fn forget_file(&self, folder: &Path, file: &str) -> Result<()> {
        let mut state = lock(&self.inner.state);
        let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut state.jobs)
            .into_iter()
            .partition(|entry| entry.is_for(folder, file) && entry.job.state.is_at_rest());
        state.jobs = kept;
        drop(state);
        for entry in gone {
            self.inner.rows.remove(&entry.job.id)?;
        }
        Ok(())
    }

    /// Most bytes a second, at once.
    pub(crate) fn set_limit(&self, bytes_per_second: Option<u64>) {
        let mut state = lock(&self.inner.state);
        state.limit = bytes_per_second;
        for entry in &state.jobs {
            if let Some(steering) = &entry.steering {
                steering.set_limit(bytes_per_second);
            }
        }
    }

    /// Stops all work and waits for it. Rows of what was at work say so, and the next start takes them up.
    pub(crate) fn shut_down(&self) {
        {
            let mut state = lock(&self.inner.state);
            state.closing = true;
            for entry in &state.jobs {
                if let Some(steering) = &entry.steering {
                    steering.stop();
                }
            }
        }
        self.inner.changed.notify_all();
        for (_, thread) in std::mem::take(&mut *lock(&self.threads)) {
            // A panic in it was told by its guard already.
            let _ = thread.join();
        }
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Entry)) -> Result<Job> {
        let (order, job) = {
            let mut state = lock(&self.inner.state);
            let entry = state
                .jobs
                .iter_mut()
                .find(|entry| entry.job.id == id)
                .ok_or(Error::JobNotFound)?;
            change(entry);
            (entry.order.clone(), entry.job.clone())
        };
        self.inner.changed.notify_all();
        self.inner.rows.save(&order, &job)?;
        Ok(job)
    }

    fn need_thread(&self, kind: JobKind) -> Result<()> {
        let mut threads = lock(&self.threads);
        if !threads.iter().any(|(of, _)| *of == kind) {
            let inner = Arc::clone(&self.inner);
            let thread = std::thread::Builder::new()
                .name("fastar-job".into())
                .spawn(move || inner.run(kind))
                .map_err(Error::Thread)?;
            threads.push((kind, thread));
        }
        self.inner.changed.notify_all();
        Ok(())
    }
}

impl Entry {
    /// The last wish counts, but nobody takes back that a download was cancelled.
    fn ask(&mut self, wish: Wish) {
        if !matches!(self.wish, Some(Wish::Cancel { .. })) {
            self.wish = Some(wish);
        }
        self.job.phase = Some(JobPhase::Stopping);
        if let Some(steering) = &self.steering {
            steering.stop();
        }
    }
}

impl Inner {
    fn run(&self, kind: JobKind) {
        while let Some((id, order, steering)) = self.next(kind) {
            let _span = tracing::info_span!("job", ?kind, file = %order.file).entered();
            let ended = guard(|| {
                self.workshop
                    .work(&order, &steering, &mut |report| self.hear(&id, report))
            });
            self.end(&id, ended);
        }
    }

    /// Waits for the oldest job of a kind that waits for its turn; none when the app ends.
    fn next(&self, kind: JobKind) -> Option<(String, Order, Arc<Steering>)> {
        let mut state = lock(&self.state);
        loop {
            if state.closing {
                return None;
            }
            let limit = state.limit;
            let waits = state
                .jobs
                .iter_mut()
                .rev()
                .find(|entry| entry.order.kind == kind && entry.job.state == JobState::Queued);
            if let Some(entry) = waits {
                let steering = Arc::new(Steering::default());
                steering.set_limit(limit);
                entry.steering = Some(Arc::clone(&steering));
                entry.wish = None;
                entry.job.state = JobState::Running;
                entry.job.phase = Some(match kind {
                    JobKind::Download | JobKind::Repair => JobPhase::Resolving,
                    JobKind::Verify => JobPhase::Verifying,
                });
                let (order, job) = (entry.order.clone(), entry.job.clone());
                drop(state);
                self.save(&order, &job);
                return Some((job.id, order, steering));
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn hear(&self, id: &str, report: Report) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let Some(entry) = state.jobs.iter_mut().find(|entry| entry.job.id == id) else {
            return;
        };
        entry.job.done_bytes = report.done_bytes;
        entry.job.total_bytes = report.total_bytes;
        if entry.wish.is_none() {
            entry.job.phase = Some(report.phase);
        }
        entry.rate.note(now, report.done_bytes);
        if entry
            .saved
            .is_none_or(|saved| now.saturating_duration_since(saved) >= SAVE_EVERY)
        {
            entry.saved = Some(now);
            let (order, job) = (entry.order.clone(), entry.job.clone());
            drop(state);
            self.save(&order, &job);
        }
    }

    fn end(&self, id: &str, ended: std::result::Result<Ended, ApiError>) {
        let (order, job, discard) = {
            let mut state = lock(&self.state);
            let closing = state.closing;
            let Some(entry) = state.jobs.iter_mut().find(|entry| entry.job.id == id) else {
                return;
            };
            entry.steering = None;
            let wish = entry.wish.take();
            let download = entry.order.kind == JobKind::Download;
            match ended {
                Ok(Ended::Done(outcome)) => {
                    entry.rest(JobState::Done);
                    entry.job.outcome = outcome;
                    entry.job.done_bytes = entry.job.total_bytes.unwrap_or(entry.job.done_bytes);
                }
                // The row keeps saying that it was at work: the next start decides.
                Ok(Ended::Stopped) if wish.is_none() && closing => return,
                _ if matches!(wish, Some(Wish::Cancel { .. })) => entry.rest(JobState::Cancelled),
                Ok(Ended::Stopped) => entry.rest(JobState::Paused),
                Err(error) => {
                    tracing::warn!(%error, "a job failed");
                    entry.rest(JobState::Failed);
                    entry.job.error = Some(error);
                }
            }
            let discard = download
                && entry.job.state == JobState::Cancelled
                && wish == Some(Wish::Cancel { keep: false });
            (entry.order.clone(), entry.job.clone(), discard)
        };
        self.save(&order, &job);
        if discard && let Err(error) = self.workshop.discard(&order.folder, &order.file) {
            tracing::warn!(%error, "what was left of a download could not be removed");
        }
    }

    /// A row that cannot be written now is written with the next change; what is on the disk does not depend on it.
    fn save(&self, order: &Order, job: &Job) {
        if let Err(error) = self.rows.save(order, job) {
            tracing::warn!(%error, "a job's row could not be written");
        }
    }
}
