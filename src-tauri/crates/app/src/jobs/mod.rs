//! Long work: downloads, checks and repairs of model files. One of each kind is at work at a time; the others wait.
//!
//! A job's row is saved whenever its state changes. How far a download is, the files on the disk say: after a kill the row may be
//! behind, so it is asked from there ([`Workshop::leftover`]). What was at work when the process ended is paused at the next start, or goes
//! on by itself where the person chose so; what was cancelled stays cancelled. Here is what a person can ask of the jobs; what becomes of
//! one is in [`entry`], the threads are in [`worker`]. Not here: the work itself ([`crate::install`]).
//!
//! The lock of the list is held for moments only, never while the disk is waited for: the list can be looked at whatever is going on. What
//! must have a file for itself meanwhile (a new order, deleting) holds the file by its name ([`Hold`]).

mod entry;
mod rate;
mod rows;
#[cfg(test)]
mod tests;
mod work;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use fastar_api::{Job, JobKind, JobState};
use fastar_kernels::threads;

pub use rate::Rate;
pub use work::{Ended, Leftover, Order, Report, Steering, Workshop};

use crate::chats::Chats;
use crate::error::{Error, Result, lock};
use crate::library;
use crate::sentinel::Sentinel;
use entry::Entry;
use rows::Rows;
use worker::Inner;

/// Ended jobs that are remembered.
const KEPT: usize = 50;

pub(crate) struct Jobs {
    inner: Arc<Inner>,
    threads: Mutex<Vec<(JobKind, JoinHandle<()>)>>,
}

/// A file that no job may be begun for, until dropped.
pub(crate) struct Hold {
    inner: Arc<Inner>,
    folder: PathBuf,
    file: String,
}

impl Drop for Hold {
    fn drop(&mut self) {
        lock(&self.inner.state)
            .held
            .retain(|(folder, file)| (folder, file) != (&self.folder, &self.file));
        self.inner.changed.notify_all();
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Jobs {
    /// Takes up the saved jobs. Downloads that were at work when the process ended are paused, or wait for their turn if `resume`.
    pub(crate) fn open(
        chats: Arc<Chats>,
        workshop: Arc<dyn Workshop>,
        sentinel: Sentinel,
        limit: Option<u64>,
        resume: bool,
    ) -> Result<Self> {
        let rows = Rows::new(chats);
        // A row with a name that no order has was not written by us.
        let saved = rows
            .all()?
            .into_iter()
            .filter(|saved| library::checked_name(&saved.order.file).is_ok());
        let inner = Inner::new(rows, workshop, sentinel, limit);
        let (mut jobs, mut gone) = (Vec::new(), Vec::new());
        for saved in saved {
            let mut entry = Entry::from(saved);
            if entry.has_ended() && jobs.len() >= KEPT {
                gone.push(entry.job.id);
                continue;
            }
            entry.wake(resume);
            if entry.order.kind == JobKind::Download && !entry.has_ended() {
                entry.found(inner.look(&entry.order));
            }
            jobs.push(entry);
        }
        let work = jobs
            .iter()
            .any(|entry| entry.job.state == JobState::Queued || entry.discard);
        {
            let mut state = lock(&inner.state);
            state.jobs = jobs;
            state.gone = gone;
        }
        // A full disk must not keep the app from starting.
        inner.save_if_possible();
        let jobs = Self {
            inner: Arc::new(inner),
            threads: Mutex::default(),
        };
        if work {
            jobs.need_thread(JobKind::Download)?;
        }
        Ok(jobs)
    }

    /// All jobs, the newest first.
    pub(crate) fn list(&self) -> Vec<Job> {
        let now = Instant::now();
        let state = lock(&self.inner.state);
        state.jobs.iter().map(|entry| entry.shown(now)).collect()
    }

    /// Keeps jobs away from a file. Refused while one is at work on it or waits for that, and while somebody else holds it.
    pub(crate) fn hold(&self, folder: &Path, file: &str, name: &str) -> Result<Hold> {
        if lock(&self.inner.state).hold(folder, file) {
            Ok(self.held(folder, file))
        } else {
            Err(Error::ModelBusy { name: name.into() })
        }
    }

    fn held(&self, folder: &Path, file: &str) -> Hold {
        Hold {
            inner: Arc::clone(&self.inner),
            folder: folder.to_owned(),
            file: file.to_owned(),
        }
    }

    /// Takes an order. Jobs for the same file that are at rest give way to it. When this returns, the row is there: what was asked for
    /// survives a kill; an order that cannot be saved is refused.
    pub(crate) fn start(&self, order: Order) -> Result<Job> {
        if order.folder.to_str().is_none() {
            return Err(Error::BadRequest(format!(
                "The path {} contains bytes that are not text. Rename the folder, or choose another one.",
                order.folder.display()
            )));
        }
        // Nobody begins the work while the file is held.
        let hold = self.hold(&order.folder, &order.file, &order.title)?;
        self.need_thread(order.kind)?;
        let found = self.inner.look(&order);
        let mut entry = Entry::new(order);
        entry.found(found);
        let job = entry.job.clone();
        let replaced = lock(&self.inner.state).put(entry);
        if let Err(error) = self.inner.save() {
            lock(&self.inner.state).take_back(&job.id, replaced);
            return Err(error);
        }
        drop(hold);
        Ok(job)
    }

    /// Stops a job so that it can go on later.
    pub(crate) fn pause(&self, id: &str) -> Result<Job> {
        let job = {
            let mut state = lock(&self.inner.state);
            let entry = state.find(id).ok_or(Error::JobNotFound)?;
            entry.pause();
            entry.job.clone()
        };
        self.inner.save_if_possible();
        Ok(job)
    }

    /// Goes on with a job that is paused or has failed, from what is on the disk by now.
    pub(crate) fn resume(&self, id: &str) -> Result<Job> {
        let order = {
            let mut state = lock(&self.inner.state);
            let entry = state.find(id).ok_or(Error::JobNotFound)?;
            entry.order.clone()
        };
        self.need_thread(order.kind)?;
        let found = self.inner.look(&order);
        let job = {
            let mut state = lock(&self.inner.state);
            let held = state.is_held(&order.folder, &order.file);
            let entry = state.find(id).ok_or(Error::JobNotFound)?;
            if held {
                return Err(Error::ModelBusy { name: order.title });
            }
            if entry.resume() {
                entry.found(found);
            }
            entry.job.clone()
        };
        self.inner.changed.notify_all();
        self.inner.save_if_possible();
        Ok(job)
    }

    /// Gives a job up. What it has on the disk stays if `keep`, and is removed otherwise.
    pub(crate) fn cancel(&self, id: &str, keep: bool) -> Result<Job> {
        let (job, order, now) = {
            let mut state = lock(&self.inner.state);
            let entry = state.find(id).ok_or(Error::JobNotFound)?;
            let (order, now) = (entry.order.clone(), !keep && entry.can_discard_now());
            if now && state.is_held(&order.folder, &order.file) {
                return Err(Error::ModelBusy { name: order.title });
            }
            let entry = state.find(id).ok_or(Error::JobNotFound)?;
            entry.cancel(keep);
            let job = entry.job.clone();
            if now {
                state.held.push((order.folder.clone(), order.file.clone()));
            }
            (job, order, now)
        };
        let hold = now.then(|| self.held(&order.folder, &order.file));
        let saved = self.inner.save();
        if hold.is_none() {
            return saved.map(|()| job);
        }
        self.inner.discard(id, &order).map_err(Error::Told)?;
        // Where the disk was full, there is room now.
        self.inner.save().map(|()| job)
    }

    /// Takes a job that is at rest out of the list.
    pub(crate) fn dismiss(&self, id: &str) -> Result<()> {
        {
            let mut state = lock(&self.inner.state);
            let entry = state.find(id).ok_or(Error::JobNotFound)?;
            if !entry.job.state.is_at_rest() {
                return Err(Error::ModelBusy {
                    name: entry.job.title.clone(),
                });
            }
            state.remove(|entry| entry.job.id == id);
        }
        self.inner.save_if_possible();
        Ok(())
    }

    /// Takes what is at rest of a file that is no longer there out of the list.
    pub(crate) fn forget_file(&self, folder: &Path, file: &str) {
        lock(&self.inner.state)
            .remove(|entry| entry.is_for(folder, file) && entry.job.state.is_at_rest());
        self.inner.save_if_possible();
    }

    /// Most bytes a second, at once.
    pub(crate) fn set_limit(&self, bytes_per_second: Option<u64>) {
        let mut state = lock(&self.inner.state);
        state.limit = bytes_per_second;
        for steering in state
            .jobs
            .iter()
            .filter_map(|entry| entry.steering.as_ref())
        {
            steering.set_limit(bytes_per_second);
        }
    }

    /// Stops all work and waits for it. Rows of what was at work say so, and the next start takes them up.
    pub(crate) fn shut_down(&self) {
        {
            let mut state = lock(&self.inner.state);
            state.closing = true;
            for steering in state
                .jobs
                .iter()
                .filter_map(|entry| entry.steering.as_ref())
            {
                steering.stop();
            }
        }
        self.inner.changed.notify_all();
        for (_, thread) in std::mem::take(&mut *lock(&self.threads)) {
            // A panic in it was told by its guard already.
            let _ = thread.join();
        }
        self.inner.save_if_possible();
    }

    /// A thread for a kind of work, begun with the first order and anew if it should have died.
    fn need_thread(&self, kind: JobKind) -> Result<()> {
        let mut threads = lock(&self.threads);
        threads.retain(|(_, thread)| !thread.is_finished());
        if !threads.iter().any(|(of, _)| *of == kind) {
            let inner = Arc::clone(&self.inner);
            let thread = threads::start("fastar-job", move || inner.run(kind))?;
            threads.push((kind, thread));
        }
        Ok(())
    }
}
