//! What is where, what is wanted, and what to read next: the pager's state behind its lock. Nothing here waits or reads.

use std::collections::VecDeque;

use super::policy::Policy;
use super::prefetch::{Guess, Prefetch, Sight};
use super::statistics::Counts;
use crate::Error;

const NONE: u32 = u32::MAX;
/// Most experts that are read ahead at once: the other threads stay free for what is waited for.
pub(super) const MOST_AHEAD: usize = 4;

/// Why an expert is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// A layer waits for it, or will in a moment.
    Demand,
    /// A later layer of this token needs it for certain.
    Certain,
    /// The next layer probably needs it.
    Guess,
    /// It was among the hottest when the model was last in use.
    Warm,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Nothing,
    /// Being read; the origin becomes `Demand` when a layer asks for it meanwhile.
    Reading(Origin),
    Page,
}

pub(super) struct Slot {
    pub page: u32,
    pub content: Content,
    /// Read ahead, and not used since.
    ahead: bool,
    /// Read ahead for the layer a chunk comes to next: stays until that layer has asked.
    kept: bool,
}

/// What the active request knows of an expert of its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    No,
    Missing,
    Ready(u32),
    Taken(u32),
    Failed,
}

/// One read to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub page: u32,
    pub slot: usize,
    pub origin: Origin,
}

pub(super) struct Table {
    pub policy: Policy,
    pub prefetch: Prefetch,
    experts: usize,
    slot_of: Vec<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    demand: VecDeque<u32>,
    certain: VecDeque<u32>,
    guesses: VecDeque<(u32, Guess)>,
    /// What a chunk will take in layer `coming_to`, in ascending order, and the slots that are kept for it: never more than half of those that can
    /// be spared, so that reads that are waited for always find one.
    coming: VecDeque<u32>,
    coming_to: usize,
    kept: usize,
    most_kept: usize,
    /// Coldest first.
    warm: Vec<u32>,
    /// Reads under way that a layer waits for, and others.
    pub demand_reading: usize,
    pub ahead_reading: usize,
    /// Reads ahead that wait because others are waited for.
    pub standing_back: usize,
    /// A request is active; there is one at a time.
    pub busy: bool,
    pub layer: usize,
    pub want: Vec<Want>,
    pub failures: Vec<(u32, Error)>,
    /// The active request cannot go on without this page.
    pub waits_for: Option<u32>,
    pub stop: bool,
}

impl Table {
    pub fn new(layers: usize, experts: usize, taken: usize, slots: usize, prefetch: bool) -> Self {
        Self {
            policy: Policy::new(layers, experts, slots),
            prefetch: Prefetch::new(taken, prefetch),
            experts,
            slot_of: vec![NONE; layers * experts],
            slots: (0..slots)
                .map(|_| Slot {
                    page: 0,
                    content: Content::Nothing,
                    ahead: false,
                    kept: false,
                })
                .collect(),
            free: (0..slots as u32).rev().collect(),
            demand: VecDeque::with_capacity(experts),
            certain: VecDeque::new(),
            guesses: VecDeque::new(),
            coming: VecDeque::with_capacity(experts),
            coming_to: 0,
            kept: 0,
            most_kept: slots.saturating_sub(taken) / 2,
            warm: Vec::new(),
            demand_reading: 0,
            ahead_reading: 0,
            standing_back: 0,
            busy: false,
            layer: 0,
            want: vec![Want::No; experts],
            failures: Vec::new(),
            waits_for: None,
            stop: false,
        }
    }

    pub fn page(&self, layer: usize, expert: u32) -> u32 {
        (layer * self.experts) as u32 + expert
    }

    pub fn resident(&self, page: u32) -> bool {
        self.slot_of[page as usize] != NONE
    }

    /// Pages in slots, read whole, and those that free slots are still being filled with.
    pub fn pages(&self) -> impl Iterator<Item = u32> {
        let whole = |slot: &&Slot| slot.content == Content::Page;
        let held = self.slots.iter().filter(whole).map(|slot| slot.page);
        let coming = self.warm.iter().copied().filter(|p| !self.resident(*p));
        held.chain(coming)
    }

    /// Experts there are.
    pub fn count(&self) -> u32 {
        self.slot_of.len() as u32
    }

    /// Whether a page is in a slot, read whole.
    pub fn is_whole(&self, page: u32) -> bool {
        let slot = self.slots.get(self.slot_of[page as usize] as usize);
        slot.is_some_and(|slot| slot.content == Content::Page)
    }

    /// Whether the active request has this page, or waits for it.
    pub fn is_used(&self, page: u32) -> bool {
        let (layer, expert) = (page as usize / self.experts, page as usize % self.experts);
        self.busy && layer == self.layer && self.want[expert] != Want::No
    }

    fn is_wanted(&self, page: u32) -> Option<usize> {
        let (layer, expert) = (page as usize / self.experts, page as usize % self.experts);
        (self.busy && layer == self.layer && self.want[expert] == Want::Missing).then_some(expert)
    }

    /// A request begins: what is there is kept from leaving, what is not is queued. `wanted` holds each expert with the tokens that take it.
    pub fn begin(&mut self, layer: usize, wanted: &[(u32, u32)], counts: &Counts) {
        self.layer = layer;
        if layer == self.coming_to {
            self.let_go();
        }
        let of_layer = self.of_layer(layer);
        let first = of_layer.start;
        self.certain.retain(|page| !of_layer.contains(page));
        self.forget_guesses(layer);
        let taken: usize = wanted.iter().map(|(_, tokens)| *tokens as usize).sum();
        let together = taken / self.prefetch.taken();
        if together > 1 {
            self.policy.chunk(layer, together);
        }
        let asked = |page: u32| {
            of_layer
                .contains(&page)
                .then(|| wanted.iter().any(|(expert, _)| first + expert == page))
        };
        self.prefetch.settle(asked);
        let layer_counts = &counts.layers[layer];
        let mut missing = 0;
        for (expert, tokens) in wanted {
            let page = first + expert;
            self.policy.used(page, *tokens as usize, together);
            let slot = self.slot_of[page as usize];
            self.want[*expert as usize] = Want::Missing;
            let Some(state) = self.slots.get_mut(slot as usize) else {
                self.demand.push_back(page);
                missing += 1;
                continue;
            };
            if std::mem::take(&mut state.ahead) {
                counts.useful.add(1);
            }
            if let Content::Reading(origin) = &mut state.content {
                layer_counts.late.add(1);
                if *origin != Origin::Demand {
                    *origin = Origin::Demand;
                    self.ahead_reading -= 1;
                    self.demand_reading += 1;
                }
            } else {
                layer_counts.hits.add(1);
                self.policy.withhold(slot as usize);
                self.want[*expert as usize] = Want::Ready(slot);
            }
        }
        layer_counts.misses.add(missing);
        self.prefetch.demanded(missing as usize);
    }

    /// The request is done with an expert.
    pub fn release(&mut self, expert: usize) {
        if let Want::Ready(slot) | Want::Taken(slot) = self.want[expert] {
            self.policy
                .offer(slot as usize, self.slots[slot as usize].page);
        }
        self.want[expert] = Want::No;
    }

    /// The request is over, whether it got everything or not.
    pub fn end(&mut self, wanted: &[(u32, u32)]) {
        for (expert, _) in wanted {
            self.release(*expert as usize);
        }
        self.demand.clear();
        self.failures.clear();
        self.waits_for = None;
        self.busy = false;
    }

    /// Why an expert of the active request could not be read.
    pub fn failure(&mut self, layer: usize, expert: u32) -> Error {
        let page = self.page(layer, expert);
        let at = self.failures.iter().position(|(of, _)| *of == page);
        match at {
            Some(at) => self.failures.swap_remove(at).1,
            None => Error::Read(format!(
                "Expert {expert} of layer {layer} could not be read."
            )),
        }
    }

    /// A later layer of this token needs `page`.
    pub fn foresee(&mut self, page: u32) {
        if !self.resident(page) && !self.certain.contains(&page) {
            self.certain.push_back(page);
        }
    }

    /// A layer probably needs these experts, likeliest first. Guesses from before its attention replace earlier ones that are not being read yet.
    pub fn guess(&mut self, layer: usize, sight: Sight, experts: &[u32]) {
        if sight == Sight::BeforeAttention {
            self.forget_guesses(layer);
        }
        for (rank, expert) in experts.iter().enumerate() {
            let (page, guess) = (self.page(layer, *expert), Guess::Rank(sight, rank));
            if !self.resident(page) && self.prefetch.consider(page, guess) {
                self.guesses.push_back((page, guess));
            }
        }
    }

    /// A chunk comes to `layer` next, which will take these experts, ascending, each with the tokens that do: probably, or for certain.
    pub fn expect(&mut self, layer: usize, experts: &[(u32, u32)], certain: bool) {
        self.let_go();
        self.coming_to = layer;
        for (expert, tokens) in experts {
            let page = self.page(layer, *expert);
            if !self.resident(page)
                && (certain || self.prefetch.consider(page, Guess::Tokens(*tokens)))
            {
                self.coming.push_back(page);
            }
        }
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        assert_eq!(
            self.kept,
            self.slots.iter().filter(|slot| slot.kept).count()
        );
        self.kept
    }

    /// Nothing is kept any more for the layer that was to come next.
    fn let_go(&mut self) {
        for page in self.coming.drain(..) {
            self.prefetch.withdrawn(page);
        }
        for page in self.of_layer(self.coming_to) {
            let slot = self.slot_of[page as usize] as usize;
            let Some(state) = self.slots.get_mut(slot) else {
                continue;
            };
            if std::mem::take(&mut state.kept) {
                self.kept -= 1;
                if state.content == Content::Page {
                    self.policy.offer(slot, page);
                }
            }
        }
    }

    /// Guesses about a layer that are not being read yet are not read any more.
    fn forget_guesses(&mut self, layer: usize) {
        let (of_layer, prefetch) = (self.of_layer(layer), &mut self.prefetch);
        self.guesses.retain(|(page, _)| {
            let late = of_layer.contains(page);
            if late {
                prefetch.withdrawn(*page);
            }
            !late
        });
    }

    fn of_layer(&self, layer: usize) -> std::ops::Range<u32> {
        self.page(layer, 0)..self.page(layer + 1, 0)
    }

    /// A step begins: what was foreseen for the last one is of no use now.
    pub fn step(&mut self) {
        self.policy.advance(1);
        self.prefetch.advance();
        self.certain.clear();
        self.guesses.clear();
        self.let_go();
    }

    /// Pages to fill free slots with, hottest first, and what their uses were worth.
    pub fn warm(&mut self, pages: &[(u32, f64)]) {
        for (page, heat) in pages {
            self.policy.remember(*page, *heat);
        }
        self.warm = pages.iter().rev().map(|(page, _)| *page).collect();
    }

    /// Whether a reader has a reason to look: something to read, or a read that stands back.
    pub fn has_work(&self) -> bool {
        !self.demand.is_empty()
            || !self.certain.is_empty()
            || !self.guesses.is_empty()
            || (!self.coming.is_empty() && self.kept < self.most_kept)
            || !self.warm.is_empty()
            || self.standing_back > 0
    }

    /// The next read, and a slot for it.
    pub fn next_job(&mut self, counts: &Counts) -> Option<Job> {
        if let Some(page) = self.demand.front().copied() {
            let slot = self.slot_for_demand(page, counts)?;
            self.demand.pop_front();
            return Some(self.start(page, slot, Origin::Demand, counts));
        }
        if self.ahead_reading >= MOST_AHEAD {
            return None;
        }
        while let Some(page) = self.certain.pop_front() {
            if self.resident(page) {
                continue;
            }
            if let Some(slot) = self.slot_for_guess(page, 1.0, counts) {
                return Some(self.start(page, slot, Origin::Certain, counts));
            }
        }
        // The rest only while the disk has nothing better to do.
        if self.demand_reading > 0 {
            return None;
        }
        while self.kept < self.most_kept
            && let Some(page) = self.coming.pop_front()
        {
            if self.resident(page) {
                continue;
            }
            let Some(slot) = self.slot_for_coming(counts) else {
                self.coming.push_front(page);
                break;
            };
            let job = self.start(page, slot, Origin::Guess, counts);
            self.slots[slot].kept = true;
            self.kept += 1;
            return Some(job);
        }
        while let Some((page, guess)) = self.guesses.pop_front() {
            if self.resident(page) {
                continue;
            }
            let likelihood = self.prefetch.likelihood(guess);
            if let Some(slot) = self.slot_for_guess(page, likelihood, counts) {
                return Some(self.start(page, slot, Origin::Guess, counts));
            }
            self.prefetch.withdrawn(page);
        }
        if self.free.is_empty() {
            self.warm.clear();
        }
        while let Some(page) = self.warm.pop() {
            if self.resident(page) {
                continue;
            }
            let slot = self.free.pop()?;
            return Some(self.start(page, slot as usize, Origin::Warm, counts));
        }
        None
    }

    fn start(&mut self, page: u32, slot: usize, origin: Origin, counts: &Counts) -> Job {
        self.slots[slot] = Slot {
            page,
            content: Content::Reading(origin),
            ahead: matches!(origin, Origin::Certain | Origin::Guess),
            kept: false,
        };
        self.slot_of[page as usize] = slot as u32;
        if origin == Origin::Demand {
            self.demand_reading += 1;
        } else {
            self.ahead_reading += 1;
        }
        counts
            .filled
            .set((self.slots.len() - self.free.len()) as u64);
        Job { page, slot, origin }
    }

    fn slot_for_demand(&mut self, page: u32, counts: &Counts) -> Option<usize> {
        if let Some(slot) = self.free.pop() {
            return Some(slot as usize);
        }
        if let Some(slot) = self.policy.victim(self.layer) {
            self.evict(slot, counts);
            return Some(slot);
        }
        if self.waits_for != Some(page) || self.demand_reading + self.ahead_reading > 0 {
            return None;
        }
        // More experts wait to be used than there are slots, and none of them is the one whose turn it is: the last gives way and is
        // read again. Happens only where the cache holds less than one layer's experts.
        let last = self
            .want
            .iter()
            .rposition(|w| matches!(w, Want::Ready(_)))?;
        let Want::Ready(slot) = self.want[last] else {
            return None;
        };
        self.want[last] = Want::Missing;
        self.evict(slot as usize, counts);
        let again = self.page(self.layer, last as u32);
        let at = self.demand.partition_point(|page| *page < again);
        self.demand.insert(at, again);
        Some(slot as usize)
    }

    /// A slot for what is not waited for: a free one, or that of something colder than the guess is worth.
    fn slot_for_guess(&mut self, page: u32, likelihood: f64, counts: &Counts) -> Option<usize> {
        if let Some(slot) = self.free.pop() {
            return Some(slot as usize);
        }
        let slot = self.policy.victim(self.layer)?;
        // One use to come counts like one just made.
        let worth = self.policy.heat(page) + likelihood;
        if self.policy.heat(self.slots[slot].page) >= worth {
            return None;
        }
        self.evict(slot, counts);
        Some(slot)
    }

    /// A slot for what a chunk takes next: as if it were waited for, but never that of another expert of the same layer.
    fn slot_for_coming(&mut self, counts: &Counts) -> Option<usize> {
        if let Some(slot) = self.free.pop() {
            return Some(slot as usize);
        }
        let slot = self.policy.victim(self.layer)?;
        if self
            .of_layer(self.coming_to)
            .contains(&self.slots[slot].page)
        {
            return None;
        }
        self.evict(slot, counts);
        Some(slot)
    }

    fn evict(&mut self, slot: usize, counts: &Counts) {
        self.policy.withhold(slot);
        let state = &mut self.slots[slot];
        self.slot_of[state.page as usize] = NONE;
        state.content = Content::Nothing;
        if std::mem::take(&mut state.ahead) {
            counts.wasted.add(1);
        }
    }

    /// The origin of a read under way now.
    pub fn origin(&self, slot: usize) -> Origin {
        match self.slots[slot].content {
            Content::Reading(origin) => origin,
            _ => Origin::Demand,
        }
    }

    /// A read has come to its end.
    pub fn finish(&mut self, job: Job, result: Result<(), Error>, counts: &Counts) {
        if self.origin(job.slot) == Origin::Demand {
            self.demand_reading -= 1;
        } else {
            self.ahead_reading -= 1;
        }
        let wanted = self.is_wanted(job.page);
        match result {
            Ok(()) => {
                self.slots[job.slot].content = Content::Page;
                match wanted {
                    Some(expert) => self.want[expert] = Want::Ready(job.slot as u32),
                    None if self.slots[job.slot].kept => {}
                    None => self.policy.offer(job.slot, job.page),
                }
            }
            Err(error) => {
                self.slot_of[job.page as usize] = NONE;
                self.slots[job.slot].content = Content::Nothing;
                self.slots[job.slot].ahead = false;
                self.kept -= usize::from(std::mem::take(&mut self.slots[job.slot].kept));
                self.free.push(job.slot as u32);
                match wanted {
                    Some(expert) => {
                        self.want[expert] = Want::Failed;
                        self.failures.push((job.page, error));
                    }
                    // Told when a layer asks for it.
                    None => tracing::debug!(%error, "reading ahead failed"),
                }
            }
        }
        counts
            .filled
            .set((self.slots.len() - self.free.len()) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expert 5 of `layer` is guessed, is not read, and the layer takes another expert or that one.
    fn guessed(table: &mut Table, counts: &Counts, layer: usize, taken: u32) {
        table.guess(layer, Sight::LayerBefore, &[5]);
        table.begin(layer, &[(taken, 1), (7, 1)], counts);
        table.end(&[(taken, 1), (7, 1)]);
    }

    #[test]
    fn a_guess_that_was_not_read_was_no_waste() {
        let counts = Counts::new(5, 40, 1);
        let mut table = Table::new(5, 8, 2, 40, true);
        // Seven experts of demand allow the waste of one (0.15 x 7).
        let seven: Vec<(u32, u32)> = (0..7).map(|expert| (expert, 1)).collect();
        table.begin(0, &seven, &counts);
        table.end(&seven);
        guessed(&mut table, &counts, 1, 5);
        guessed(&mut table, &counts, 2, 4);
        table.guess(3, Sight::LayerBefore, &[5]);
        assert_eq!(table.guesses.len(), 1);
    }
}
