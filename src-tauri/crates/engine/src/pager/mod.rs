//! Experts as pages of virtual memory: they live in the file, and a fixed number of slots in memory holds those that are in use or hot.
//!
//! A layer asks for its experts with [`Pager::request`]. Those in slots are kept there while it computes; the others are read by threads of the
//! pager ([`reader`]) and can be taken as they arrive, so that what is there is computed meanwhile. Reads that a layer waits for come
//! first; when the disk has nothing else to do, it reads what later layers of the token need for certain (their experts follow from the token's
//! id), what the next layer probably needs ([`prefetch`]), and what was hot when the model was last in use. [`policy`] chooses what
//! leaves. A prompt is read layer by layer in large chunks: the experts a chunk takes come in ascending order through the slots that
//! are free, each once, while those before them are computed; as many as half of the slots hold begin to come while the layer's
//! attention is computed.
//!
//! What a layer gets never depends on any of this, only when it gets it.
//!
//! Not here: arithmetic, and how large the cache should be (see [`crate::plan`]).

mod arena;
mod dense;
mod disk;
pub mod hot;
mod policy;
mod prefetch;
mod reader;
pub mod simulate;
mod statistics;
pub mod synthetic;
mod table;
#[cfg(test)]
mod tests;
pub mod trace;

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastar_fst::Records;

use crate::{Cancel, Error, Result};
use arena::Arena;
pub use dense::{Dense, check as check_unkept};
pub use disk::{Disk, Source, read_whole};
pub use prefetch::Sight;
pub use reader::THREADS as READERS;
use statistics::Counts;
pub use statistics::{LayerStatistics, Statistics, StepStatistics};
use table::{Table, Want};
pub use trace::Recording;

/// A pass of more tokens than this is a chunk of a prompt: it takes many experts of each layer.
pub const FEW: usize = 8;
/// While a layer waits for the disk, it looks this often whether it was stopped.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Sizes of what is paged.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Layers.
    pub layers: usize,
    /// Experts in each.
    pub experts: usize,
    /// Experts a token takes in each: the fewest slots that work.
    pub taken: usize,
}

/// An expert as it is now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageView {
    /// It is in memory, read whole.
    pub is_resident: bool,
    /// The layer that is being computed takes it.
    pub is_used: bool,
    /// What its past uses are worth now: each counts one and fades within tens of tokens.
    pub heat: f64,
}

/// The experts of one model, in memory or on the way.
pub struct Pager {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    records: Records,
    source: Box<dyn Source>,
    arena: Arena,
    /// A record, rounded up to what can be read directly.
    slot_bytes: usize,
    experts: usize,
    table: Mutex<Table>,
    /// Something arrived, failed, or the turn is free.
    arrived: Condvar,
    /// There may be something to read.
    work: Condvar,
    counts: Counts,
}

/// Bytes of a slot for records of `bytes`.
pub fn slot_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(disk::ALIGNMENT)
}

impl Pager {
    /// Pages the records of `source` through so many slots: at least what a token takes in one layer, at most one for each expert.
    pub fn new(
        records: Records,
        source: Box<dyn Source>,
        sizes: Sizes,
        slots: usize,
        prefetch: bool,
    ) -> Result<Self> {
        let Sizes {
            layers,
            experts,
            taken,
        } = sizes;
        let slots = slots.clamp(taken, layers * experts);
        let slot_bytes = slot_bytes(records.bytes());
        let arena = slots
            .checked_mul(slot_bytes)
            .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::OutOfMemory))
            .and_then(Arena::new)
            .map_err(|error| {
                Error::Memory(format!(
                    "The system refused memory for {slots} experts of {slot_bytes} bytes: {error}. Choose a smaller cache."
                ))
            })?;
        let shared = Arc::new(Shared {
            counts: Counts::new(layers, slots, records.bytes()),
            table: Mutex::new(Table::new(layers, experts, taken, slots, prefetch)),
            records,
            source,
            arena,
            slot_bytes,
            experts,
            arrived: Condvar::new(),
            work: Condvar::new(),
        });
        let mut pager = Self {
            shared,
            threads: Vec::new(),
        };
        pager.threads = reader::start(&pager.shared)?;
        Ok(pager)
    }

    /// A step begins: one token of an answer or a chunk of a prompt.
    pub fn step(&self, tokens: usize) {
        self.shared.counts.step(tokens);
        self.shared.lock().step(tokens);
    }

    /// The step is computed, so many tokens.
    pub fn computed(&self, tokens: usize) {
        self.shared.counts.tokens.add(tokens as u64);
    }

    /// A later layer of this step needs these experts for certain.
    pub fn foresee(&self, layer: usize, experts: impl Iterator<Item = u32>) {
        let mut table = self.shared.lock();
        for expert in experts {
            let page = table.page(layer, expert);
            table.foresee(page);
        }
        self.shared.wake(&table);
    }

    /// Whether it pays to guess from this what a layer will take: not where all of it is in memory.
    pub fn wants(&self, layer: usize, sight: Sight) -> bool {
        self.shared.lock().wants(layer, sight)
    }

    /// A layer soon needs these experts of one token, likeliest first.
    pub fn guess(&self, layer: usize, sight: Sight, experts: &[u32]) {
        let mut table = self.shared.lock();
        table.guess(layer, sight, experts);
        self.shared.wake(&table);
    }

    /// A layer soon needs these experts of a chunk, ascending, each with the number of tokens that take it: probably, or for certain.
    pub fn expect(&self, layer: usize, experts: &[(u32, u32)], certain: bool) {
        let mut table = self.shared.lock();
        table.expect(layer, experts, certain);
        self.shared.wake(&table);
    }

    /// Fills free slots in the background with these (page, heat), hottest first.
    pub fn warm(&self, pages: &[(u32, f64)]) {
        let mut table = self.shared.lock();
        table.warm(pages);
        self.shared.wake(&table);
    }

    /// The pages in memory or still to be read from the saved list, with their heat, hottest first.
    pub fn hottest(&self) -> Vec<(u32, f64)> {
        let table = self.shared.lock();
        let mut pages: Vec<(u32, f64)> = table
            .pages()
            .map(|page| (page, table.policy.heat(page)))
            .collect();
        drop(table);
        pages.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        pages
    }

    /// Every expert as it is now, layer by layer.
    pub fn pages(&self) -> Vec<PageView> {
        let table = self.shared.lock();
        (0..table.count())
            .map(|page| PageView {
                is_resident: table.is_whole(page),
                is_used: table.is_used(page),
                heat: table.policy.heat(page),
            })
            .collect()
    }

    /// The experts a layer needs, in ascending order, each with the number of tokens that take it. One request is active at a time; another waits
    /// here for its turn.
    pub fn request<'a>(
        &'a self,
        layer: usize,
        wanted: &'a [(u32, u32)],
        cancel: &'a Cancel,
    ) -> Result<Pages<'a>> {
        debug_assert!(wanted.is_sorted_by(|a, b| a.0 < b.0));
        let shared = &*self.shared;
        let mut table = shared.lock();
        while table.busy {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            table = shared
                .arrived
                .wait_timeout(table, LOOK_EVERY)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        table.busy = true;
        table.begin(layer, wanted, &shared.counts);
        shared.wake(&table);
        drop(table);
        Ok(Pages {
            shared,
            layer,
            wanted,
            cancel,
        })
    }

    /// What was done so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.counts.snapshot()
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// The experts of one request. Those that were handed out stay in memory until they are released or this is dropped.
pub struct Pages<'a> {
    shared: &'a Shared,
    layer: usize,
    wanted: &'a [(u32, u32)],
    cancel: &'a Cancel,
}

impl Pages<'_> {
    /// An expert's record; waits for it.
    pub fn get(&mut self, expert: u32) -> Result<&[u8]> {
        let mut waiting = Waiting::new(self.shared, self.layer);
        let mut table = self.shared.lock();
        let slot = loop {
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            match table.want[expert as usize] {
                Want::Ready(slot) | Want::Taken(slot) => {
                    table.want[expert as usize] = Want::Taken(slot);
                    break slot;
                }
                Want::Failed => return Err(table.failure(self.layer, expert)),
                // Asking for what was not requested would wait for ever.
                Want::No => {
                    return Err(Error::Input(format!("Expert {expert} was not requested.")));
                }
                Want::Missing => {}
            }
            table.waits_for = Some(table.page(self.layer, expert));
            table = waiting.wait(table);
        };
        table.waits_for = None;
        drop(table);
        drop(waiting);
        Ok(self.record(slot))
    }

    /// Adds the experts that have arrived and were not handed out yet, in ascending order; waits for at least one. False when there are none left.
    pub fn arrived(&mut self, experts: &mut Vec<u32>) -> Result<bool> {
        let mut waiting = Waiting::new(self.shared, self.layer);
        let mut table = self.shared.lock();
        loop {
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let (before, mut missing) = (experts.len(), None);
            for (expert, _) in self.wanted {
                match table.want[*expert as usize] {
                    Want::Ready(slot) => {
                        table.want[*expert as usize] = Want::Taken(slot);
                        experts.push(*expert);
                    }
                    Want::Failed => return Err(table.failure(self.layer, *expert)),
                    Want::Missing => missing = missing.or(Some(*expert)),
                    Want::Taken(_) | Want::No => {}
                }
            }
            if experts.len() > before {
                return Ok(true);
            }
            let Some(missing) = missing else {
                return Ok(false);
            };
            table.waits_for = Some(table.page(self.layer, missing));
            table = waiting.wait(table);
            table.waits_for = None;
        }
    }

    /// The record of an expert that was handed out and not released.
    pub fn bytes(&self, expert: u32) -> Option<&[u8]> {
        let Want::Taken(slot) = self.shared.lock().want[expert as usize] else {
            return None;
        };
        Some(self.record(slot))
    }

    /// The computation is done with an expert: its slot may be used for another.
    pub fn release(&mut self, expert: u32) {
        let mut table = self.shared.lock();
        table.release(expert as usize);
        self.shared.wake(&table);
    }

    fn record(&self, slot: u32) -> &[u8] {
        let range = self.shared.range(slot);
        // SAFETY: a slot whose expert was handed out is withheld from the policy, so nobody writes to it before `release` or `drop`, which need
        // this request for themselves.
        unsafe { self.shared.arena.bytes(range) }
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        let mut table = self.shared.lock();
        table.end(self.wanted);
        self.shared.arrived.notify_all();
        self.shared.wake(&table);
    }
}

impl Shared {
    /// Where a slot's record lies in the arena.
    fn range(&self, slot: u32) -> Range<usize> {
        let start = slot as usize * self.slot_bytes;
        start..start + self.records.bytes()
    }
}

/// Waits for arrivals and counts the time.
struct Waiting<'a> {
    shared: &'a Shared,
    layer: usize,
    since: Option<Instant>,
}

impl<'a> Waiting<'a> {
    fn new(shared: &'a Shared, layer: usize) -> Self {
        Self {
            shared,
            layer,
            since: None,
        }
    }

    fn wait<'t>(
        &mut self,
        table: std::sync::MutexGuard<'t, Table>,
    ) -> std::sync::MutexGuard<'t, Table> {
        self.since.get_or_insert_with(Instant::now);
        // Readers that found no slot look again: this wait may be what entitles them to one.
        self.shared.wake(&table);
        self.shared
            .arrived
            .wait_timeout(table, LOOK_EVERY)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            let nanoseconds = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.shared.counts.layers[self.layer]
                .waited
                .add(nanoseconds);
        }
    }
}
