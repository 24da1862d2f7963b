//! The threads that do the work, one for each kind, and writing the rows.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastar_api::{ApiError, JobKind, JobState};

use super::entry::{Found, State};
use super::rows::Rows;
use super::{Ended, Order, Report, Steering, Workshop};
use crate::error::{Error, Result, guard, lock};
use crate::sentinel::{Doing, Sentinel};

/// Rows that could not be written are tried again so often, even if nothing changes.
const TRY_AGAIN: Duration = Duration::from_secs(2);

pub(super) struct Inner {
    rows: Rows,
    workshop: Arc<dyn Workshop>,
    sentinel: Sentinel,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    /// Held while rows are written, so that an older one never lands on a newer one.
    saving: Mutex<()>,
}

/// Work whose turn has come.
struct Task {
    id: String,
    order: Order,
    steering: Arc<Steering>,
    has_begun: bool,
}

impl Inner {
    pub(super) fn new(
        rows: Rows,
        workshop: Arc<dyn Workshop>,
        sentinel: Sentinel,
        limit: Option<u64>,
    ) -> Self {
        Self {
            rows,
            workshop,
            sentinel,
            state: Mutex::new(State {
                limit,
                ..State::default()
            }),
            changed: Condvar::new(),
            saving: Mutex::default(),
        }
    }

    /// What the disk has of an order.
    pub(super) fn look(&self, order: &Order) -> Found {
        if order.kind != JobKind::Download {
            return Found::Nothing;
        }
        let left = guard(|| Ok(self.workshop.leftover(&order.folder, &order.file)));
        match left.ok().flatten() {
            Some(left) => Found::Left(left),
            None if order.folder.is_dir() => Found::Nothing,
            None => Found::NoFolder,
        }
    }

    /// Removes what a cancelled download has on the disk. Its file is held, or its work has just ended.
    pub(super) fn discard(&self, id: &str, order: &Order) -> std::result::Result<(), ApiError> {
        guard(|| match order.kind {
            JobKind::Move => self.workshop.discard_move(order),
            _ => self.workshop.discard(&order.folder, &order.file),
        })?;
        if let Some(entry) = lock(&self.state).find(id) {
            entry.discarded();
        }
        Ok(())
    }

    /// Writes all rows that have changed. What cannot be written now is written with the next change.
    pub(super) fn save(&self) -> Result<()> {
        let _one_at_a_time = lock(&self.saving);
        let (rows, gone) = lock(&self.state).unsaved();
        if rows.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let written = self.rows.write(&rows, &gone);
        if written.is_err() {
            lock(&self.state).still_unsaved(&rows, gone);
            // Who waits for work tries again.
            self.changed.notify_all();
        }
        written
    }

    /// For changes that count whether their row can be written now or not.
    pub(super) fn save_if_possible(&self) {
        if let Err(error) = self.save() {
            tracing::warn!(%error, "the rows of jobs could not be written");
        }
    }

    /// A thread's life: work of one kind, until the app ends.
    pub(super) fn run(&self, kind: JobKind) {
        if kind == JobKind::Download {
            self.discard_what_was_given_up();
        }
        while let Some(task) = self.next(kind) {
            let _span = tracing::info_span!("job", ?kind, file = %task.order.file).entered();
            let _entry = self.sentinel.note(Doing::Working {
                kind,
                title: task.order.title.clone(),
            });
            let ended = guard(|| {
                if task.has_begun && !task.order.folder.is_dir() {
                    return Err(Error::FolderGone {
                        folder: task.order.folder.display().to_string(),
                        name: task.order.title.clone(),
                    }
                    .into());
                }
                self.workshop
                    .work(&task.order, &task.steering, &mut |report| {
                        self.hear(&task.id, report);
                    })
            });
            self.end(&task, ended);
        }
    }

    /// Removing was asked for, and the process ended before it was done.
    fn discard_what_was_given_up(&self) {
        let given_up: Vec<(String, Order)> = {
            let mut state = lock(&self.state);
            let asked: Vec<_> = state
                .jobs
                .iter()
                .filter(|entry| entry.discard && entry.job.state == JobState::Cancelled)
                .map(|entry| (entry.job.id.clone(), entry.order.clone()))
                .collect();
            asked
                .into_iter()
                .filter(|(_, order)| state.hold(&order.folder, &order.file))
                .collect()
        };
        for (id, order) in given_up {
            if let Err(error) = self.discard(&id, &order) {
                tracing::warn!(%error, "what was left of a download could not be removed");
            }
            lock(&self.state)
                .held
                .retain(|(folder, file)| (folder, file) != (&order.folder, &order.file));
        }
        self.save_if_possible();
    }

    /// Waits for the oldest job of a kind that waits for its turn; none when the app ends.
    fn next(&self, kind: JobKind) -> Option<Task> {
        let mut state = lock(&self.state);
        loop {
            if state.closing {
                return None;
            }
            if let Some(task) = state.next(kind) {
                drop(state);
                self.save_if_possible();
                return Some(task);
            }
            if !state.has_unsaved() {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self
                .changed
                .wait_timeout(state, TRY_AGAIN)
                .unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() {
                // The disk was full, and may have room by now.
                drop(state);
                self.save_if_possible();
                state = lock(&self.state);
            }
        }
    }

    fn hear(&self, id: &str, report: Report) {
        let due = lock(&self.state)
            .find(id)
            .is_some_and(|entry| entry.hear(report, Instant::now()));
        if due {
            self.save_if_possible();
        }
    }

    fn end(&self, task: &Task, ended: std::result::Result<Ended, ApiError>) {
        let mut state = lock(&self.state);
        let given_up = state
            .find(&task.id)
            .is_some_and(|entry| entry.is_given_up(&ended));
        let mut kept = None;
        if given_up {
            // Still at work for everybody else: nobody begins anew in what is being removed.
            drop(state);
            kept = self.discard(&task.id, &task.order).err();
            state = lock(&self.state);
        }
        let closing = state.closing;
        if let Some(entry) = state.find(&task.id) {
            entry.end(ended, closing);
            if let Some(error) = kept {
                tracing::warn!(%error, "what was left of a download could not be removed");
                entry.job.outcome = Some(format!("What had arrived could not be removed. {error}"));
            }
        }
        drop(state);
        self.save_if_possible();
    }
}

impl State {
    fn next(&mut self, kind: JobKind) -> Option<Task> {
        let (limit, held) = (self.limit, &self.held);
        let waits = self.jobs.iter_mut().rev().find(|entry| {
            entry.order.kind == kind
                && entry.job.state == JobState::Queued
                && !held.iter().any(|(folder, file)| entry.is_for(folder, file))
        })?;
        Some(Task {
            has_begun: kind == JobKind::Download && waits.job.done_bytes > 0,
            steering: waits.begin(limit),
            id: waits.job.id.clone(),
            order: waits.order.clone(),
        })
    }
}
