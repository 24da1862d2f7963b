//! The threads that read experts into slots.
//!
//! A handful of threads that each read one record at a time are as fast as io_uring here and cost the same: 2.5 and 2.7 GB/s with 4 and 8 threads
//! against 2.4 and 2.6 GB/s with 4 and 8 reads in a ring (2.3 and 2.6 with registered buffers), at 0.003 to 0.005 against 0.002 to
//! 0.004 core-seconds for each GB, all into huge pages. They need no permission, which rings do in many containers. Each thread also
//! checks what it has read while others read on: with the checksum a GB costs 0.040 core-seconds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use fastar_kernels::threads;

use super::Shared;
use super::disk::read_whole;
use super::table::{Job, Origin, Table};
use crate::{Error, Result};

/// Threads that read.
pub const THREADS: usize = 8;
/// What is read ahead is read in pieces of this size, so that it can stand back when a layer begins to wait.
const PIECE: usize = 2 << 20;

/// Starts the threads; they end when the table says so.
pub(super) fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>> {
    (0..THREADS)
        .map(|number| {
            let shared = Arc::clone(shared);
            Ok(threads::start(format!("pager-{number}"), move || {
                work(&shared)
            })?)
        })
        .collect()
}

fn work(shared: &Shared) {
    let mut table = shared.lock();
    while !table.stop {
        let Some(job) = table.next_job(&shared.counts) else {
            table = shared.wait_for_work(table);
            continue;
        };
        drop(table);
        // Whatever happens here, the read has to come to its end: a layer may be waiting for it.
        let result = catch_unwind(AssertUnwindSafe(|| read(shared, job)))
            .unwrap_or_else(|_| Err(failed(shared, job)));
        table = shared.lock();
        let bytes = match job.origin {
            Origin::Demand => &shared.counts.demand_bytes,
            Origin::Certain | Origin::Guess => &shared.counts.ahead_bytes,
            Origin::Warm => &shared.counts.warm_bytes,
        };
        if result.is_ok() {
            bytes.add(shared.records.bytes() as u64);
        }
        table.finish(job, result, &shared.counts);
        shared.arrived.notify_all();
        // A slot may have become free for a read that found none, and the disk may be idle now.
        shared.wake(&table);
    }
}

fn read(shared: &Shared, job: Job) -> Result<()> {
    let (layer, expert) = (
        job.page as usize / shared.experts,
        job.page as usize % shared.experts,
    );
    let start = job.slot * shared.slot_bytes;
    // SAFETY: a slot that is being read belongs to the thread that reads it: the table gives it to nobody until `finish`.
    let slot = unsafe { shared.arena.bytes_mut(start..start + shared.slot_bytes) };
    let offset = shared.records.offset(layer, expert);
    let piece = match job.origin {
        Origin::Demand => shared.slot_bytes,
        _ => PIECE,
    };
    for (number, part) in slot.chunks_mut(piece).enumerate() {
        if job.origin != Origin::Demand {
            stand_back(shared, job.slot);
        }
        read_whole(shared.source.as_ref(), part, offset + (number * piece) as u64).map_err(|error| {
            Error::Read(format!(
                "Could not read expert {expert} of layer {layer} from {}: {}. Check the disk and the file, then try again.",
                shared.records.name(),
                shown(&error)
            ))
        })?;
    }
    Ok(shared
        .records
        .check(layer, expert, &slot[..shared.records.bytes()])?)
}

/// The error of a read that ended in a panic, which is a bug and has said where.
fn failed(shared: &Shared, job: Job) -> Error {
    let page = job.page as usize;
    Error::Read(format!(
        "Reading expert {} of layer {} ended unexpectedly. Load the model again.",
        page % shared.experts,
        page / shared.experts
    ))
}

/// Waits while other reads are waited for. Not while those cannot begin: they may need this very slot.
fn stand_back(shared: &Shared, slot: usize) {
    let mut table = shared.lock();
    while table.demand_reading > 0 && table.origin(slot) != Origin::Demand && !table.stop {
        table.standing_back += 1;
        table = shared.wait_for_work(table);
        table.standing_back -= 1;
    }
}

/// The system's reason without its number.
fn shown(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((reason, _)) => reason.to_owned(),
        None => text,
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the readers if there is something for them: they are many, and a layer that finds everything in memory must not.
    pub(super) fn wake(&self, table: &Table) {
        if table.has_work() {
            self.work.notify_all();
        }
    }

    fn wait_for_work<'a>(&self, table: MutexGuard<'a, Table>) -> MutexGuard<'a, Table> {
        self.work
            .wait(table)
            .unwrap_or_else(PoisonError::into_inner)
    }
}
