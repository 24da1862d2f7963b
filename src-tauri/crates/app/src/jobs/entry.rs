//! One job in the list, the list itself, and what becomes of a job: changes of memory only, nothing here waits.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastar_api::{ApiError, Job, JobKind, JobPhase, JobState};

use super::rate::Rate;
use super::rows::Row;
use super::{Ended, Leftover, Order, Report, Steering};
use crate::clock;

/// A row is brought up to date so often while its job is at work.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// All jobs.
#[derive(Default)]
pub(super) struct State {
    /// The newest first.
    pub(super) jobs: Vec<Entry>,
    /// Ids whose rows are to be removed.
    pub(super) gone: Vec<String>,
    /// Files that no work may be begun for.
    pub(super) held: Vec<(PathBuf, String)>,
    pub(super) limit: Option<u64>,
    pub(super) closing: bool,
}

/// One job.
pub(super) struct Entry {
    pub(super) order: Order,
    pub(super) job: Job,
    /// What it has on the disk is to be removed: asked for, and not done yet.
    pub(super) discard: bool,
    /// While at work.
    pub(super) steering: Option<Arc<Steering>>,
    /// What becomes of it once the work has ended, where the person has said so.
    wish: Option<Wish>,
    rate: Rate,
    /// Its row says something else.
    unsaved: bool,
    saved: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Pause,
    /// Paused and at once resumed: the work ends, and begins again.
    GoOn,
    Cancel,
}

/// What the disk has of a download.
pub(super) enum Found {
    Left(Leftover),
    Nothing,
    /// The folder itself is not there: its disk may not be connected.
    NoFolder,
}

impl State {
    pub(super) fn find(&mut self, id: &str) -> Option<&mut Entry> {
        self.jobs.iter_mut().find(|entry| entry.job.id == id)
    }

    pub(super) fn is_held(&self, folder: &Path, file: &str) -> bool {
        let held = |(of, name): &(PathBuf, String)| of == folder && name == file;
        self.held.iter().any(held)
    }

    /// Holds a file that no job is at work on or waits for, and nobody holds.
    pub(super) fn hold(&mut self, folder: &Path, file: &str) -> bool {
        let busy = |entry: &Entry| entry.is_for(folder, file) && !entry.job.state.is_at_rest();
        let free = !self.jobs.iter().any(busy) && !self.is_held(folder, file);
        if free {
            self.held.push((folder.to_owned(), file.to_owned()));
        }
        free
    }

    /// Puts a new job first, and returns those that gave way to it.
    pub(super) fn put(&mut self, entry: Entry) -> Vec<Entry> {
        let replaced = self.take(|other| other.is_for(&entry.order.folder, &entry.order.file));
        self.jobs.insert(0, entry);
        replaced
    }

    /// Undoes [`put`](Self::put).
    pub(super) fn take_back(&mut self, id: &str, replaced: Vec<Entry>) {
        self.remove(|entry| entry.job.id == id);
        let is_back = |id: &String| replaced.iter().any(|entry| entry.job.id == *id);
        self.gone.retain(|id| !is_back(id));
        self.jobs.extend(replaced);
        // The order of the rows.
        self.jobs
            .sort_by(|a, b| (b.job.created_at, &b.job.id).cmp(&(a.job.created_at, &a.job.id)));
    }

    /// Takes jobs and their rows out of the list.
    pub(super) fn remove(&mut self, which: impl Fn(&Entry) -> bool) {
        drop(self.take(which));
    }

    fn take(&mut self, which: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let (taken, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.jobs)
            .into_iter()
            .partition(|entry| which(entry));
        self.jobs = kept;
        self.gone
            .extend(taken.iter().map(|entry| entry.job.id.clone()));
        taken
    }

    /// What has to be written, marked as written.
    pub(super) fn unsaved(&mut self) -> (Vec<Row>, Vec<String>) {
        let changed = self.jobs.iter_mut().filter(|entry| entry.unsaved);
        let rows = changed
            .map(|entry| {
                entry.unsaved = false;
                entry.row()
            })
            .collect();
        (rows, std::mem::take(&mut self.gone))
    }

    /// Whether something is still to be written.
    pub(super) fn has_unsaved(&self) -> bool {
        !self.gone.is_empty() || self.jobs.iter().any(|entry| entry.unsaved)
    }

    /// It could not be written: the next time, then.
    pub(super) fn still_unsaved(&mut self, rows: &[Row], gone: Vec<String>) {
        for row in rows {
            if let Some(entry) = self.find(&row.job.id) {
                entry.unsaved = true;
            }
        }
        self.gone.extend(gone);
    }
}

impl From<Row> for Entry {
    fn from(row: Row) -> Self {
        Self {
            order: row.order,
            job: row.job,
            discard: row.discard,
            steering: None,
            wish: None,
            rate: Rate::default(),
            unsaved: false,
            saved: None,
        }
    }
}

impl Entry {
    /// A new order, waiting for its turn.
    pub(super) fn new(order: Order) -> Self {
        let job = Job {
            id: uuid::Uuid::now_v7().to_string(),
            kind: order.kind,
            title: order.title.clone(),
            file: order.file.clone(),
            state: JobState::Queued,
            phase: None,
            done_bytes: 0,
            total_bytes: None,
            bytes_per_second: None,
            seconds_left: None,
            error: None,
            outcome: None,
            created_at: clock::now(),
        };
        Self {
            unsaved: true,
            ..Self::from(Row {
                order,
                job,
                discard: false,
            })
        }
    }

    pub(super) fn is_for(&self, folder: &Path, file: &str) -> bool {
        self.order.file == file && self.order.folder == folder
    }

    /// Nothing more comes of it.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.job.state, JobState::Done | JobState::Cancelled)
    }

    /// As it is saved. What the person has said already counts, even if the process ends before the work does.
    fn row(&self) -> Row {
        let mut job = self.job.clone();
        job.state = match self.wish {
            Some(Wish::Cancel) => JobState::Cancelled,
            Some(Wish::Pause) => JobState::Paused,
            Some(Wish::GoOn) | None => job.state,
        };
        Row {
            order: self.order.clone(),
            job,
            discard: self.discard,
        }
    }

    /// As it is shown at `now`.
    pub(super) fn shown(&self, now: Instant) -> Job {
        let mut job = self.job.clone();
        if job.state == JobState::Running {
            let left = job
                .total_bytes
                .map(|total| total.saturating_sub(job.done_bytes));
            job.bytes_per_second = self.rate.per_second(now);
            job.seconds_left = left.and_then(|left| self.rate.seconds_left(now, left));
        }
        job
    }

    fn rest(&mut self, state: JobState) {
        self.job.state = state;
        self.job.phase = None;
        self.job.bytes_per_second = None;
        self.job.seconds_left = None;
        self.rate = Rate::default();
        self.saved = None;
        self.unsaved = true;
    }

    /// After a start of the process: whatever was at work is not.
    pub(super) fn wake(&mut self, resume: bool) {
        if self.job.state.is_at_rest() {
            // A row that was written while the work was ending.
            self.job.phase = None;
            return;
        }
        self.rest(match (self.order.kind, resume) {
            (JobKind::Download, true) => JobState::Queued,
            _ => JobState::Paused,
        });
    }

    /// Takes over how far the disk says it is.
    pub(super) fn found(&mut self, found: Found) {
        match found {
            Found::Left(left) => {
                self.job.done_bytes = left.done_bytes;
                self.job.total_bytes = left.total_bytes.or(self.job.total_bytes);
            }
            Found::Nothing => self.job.done_bytes = 0,
            Found::NoFolder => {}
        }
        self.unsaved = true;
    }

    pub(super) fn pause(&mut self) {
        match self.job.state {
            JobState::Queued => self.rest(JobState::Paused),
            JobState::Running => self.ask(Wish::Pause),
            _ => {}
        }
    }

    /// Whether it waits for its turn anew.
    pub(super) fn resume(&mut self) -> bool {
        match self.job.state {
            JobState::Paused | JobState::Failed => {
                self.rest(JobState::Queued);
                self.job.error = None;
                self.job.outcome = None;
                true
            }
            JobState::Running if self.wish == Some(Wish::Pause) => {
                self.ask(Wish::GoOn);
                false
            }
            _ => false,
        }
    }

    /// Whether it has something on the disk that is of no use when it is given up.
    fn leaves_something(&self) -> bool {
        matches!(self.order.kind, JobKind::Download | JobKind::Move)
    }

    /// Whether nothing is at work that has to end before what it has on the disk can be removed.
    pub(super) fn can_discard_now(&self) -> bool {
        self.leaves_something()
            && matches!(
                self.job.state,
                JobState::Queued | JobState::Paused | JobState::Failed
            )
    }

    pub(super) fn cancel(&mut self, keep: bool) {
        match self.job.state {
            JobState::Running if self.wish == Some(Wish::Cancel) => return,
            JobState::Running => self.ask(Wish::Cancel),
            JobState::Queued | JobState::Paused | JobState::Failed => {
                self.rest(JobState::Cancelled);
                self.job.error = None;
            }
            JobState::Done | JobState::Cancelled => return,
        }
        self.discard = !keep && self.leaves_something();
    }

    /// What it had on the disk is no longer there.
    pub(super) fn discarded(&mut self) {
        self.discard = false;
        self.job.done_bytes = 0;
        self.unsaved = true;
    }

    /// The last wish counts, but nobody takes back that a job was cancelled.
    fn ask(&mut self, wish: Wish) {
        if self.wish != Some(Wish::Cancel) {
            self.wish = Some(wish);
        }
        self.job.phase = Some(JobPhase::Stopping);
        self.unsaved = true;
        if let Some(steering) = &self.steering {
            steering.stop();
        }
    }

    /// Its turn has come.
    pub(super) fn begin(&mut self, limit: Option<u64>) -> Arc<Steering> {
        let steering = Arc::new(Steering::default());
        steering.set_limit(limit);
        self.steering = Some(Arc::clone(&steering));
        self.wish = None;
        self.job.state = JobState::Running;
        self.job.phase = Some(match self.order.kind {
            JobKind::Download | JobKind::Repair => JobPhase::Resolving,
            JobKind::Verify => JobPhase::Verifying,
            JobKind::Move => JobPhase::Copying,
        });
        self.unsaved = true;
        steering
    }

    /// Takes over what the work says. Whether it is time to write that down.
    pub(super) fn hear(&mut self, report: Report, now: Instant) -> bool {
        if report.total_bytes != self.job.total_bytes {
            // Another count begins: what it has from before did not arrive now.
            self.rate = Rate::default();
        }
        self.job.done_bytes = report.done_bytes;
        self.job.total_bytes = report.total_bytes;
        if self.wish.is_none() {
            self.job.phase = Some(report.phase);
        }
        self.rate.note(now, report.done_bytes);
        let due = self
            .saved
            .is_none_or(|saved| now.saturating_duration_since(saved) >= SAVE_EVERY);
        if due {
            self.saved = Some(now);
            self.unsaved = true;
        }
        due
    }

    /// Whether what it has on the disk is to be removed now that the work has ended so. What has come to its end is not.
    pub(super) fn is_given_up(&self, ended: &std::result::Result<Ended, ApiError>) -> bool {
        self.discard && !matches!(ended, Ok(Ended::Done(_)))
    }

    /// The work has ended.
    pub(super) fn end(&mut self, ended: std::result::Result<Ended, ApiError>, closing: bool) {
        self.steering = None;
        self.unsaved = true;
        let wish = self.wish.take();
        match (ended, wish) {
            (Ok(Ended::Done(outcome)), _) => {
                self.rest(JobState::Done);
                self.discard = false;
                self.job.outcome = outcome;
                self.job.done_bytes = self.job.total_bytes.unwrap_or(self.job.done_bytes);
            }
            (_, Some(Wish::Cancel)) => self.rest(JobState::Cancelled),
            // The row keeps saying that it was at work: the next start decides.
            (Ok(Ended::Stopped), None | Some(Wish::GoOn)) if closing => {}
            (Ok(Ended::Stopped), Some(Wish::GoOn)) => self.rest(JobState::Queued),
            (Ok(Ended::Stopped), None | Some(Wish::Pause)) => self.rest(JobState::Paused),
            (Err(error), _) => {
                tracing::warn!(%error, "a job failed");
                self.rest(JobState::Failed);
                self.job.error = Some(error);
            }
        }
    }
}
