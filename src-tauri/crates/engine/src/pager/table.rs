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
    /// Read ahead: stays until its layer has asked, or the step is over.
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
    guesses: VecDeque<u32>,
    /// What a chunk will take in layer `coming_to`, in ascending order.
    coming: VecDeque<u32>,
    coming_to: usize,
    /// Pages that were read ahead and stay until their layer has asked: never more than half of the slots that can be spared, so that reads
    /// that are waited for always find one.
    kept: Vec<u32>,
    most_kept: usize,
    /// Pages in slots, by layer.
    resident: Vec<u32>,
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
            kept: Vec::new(),
            most_kept: slots.saturating_sub(taken) / 2,
            resident: vec![0; layers],
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
        self.let_go(layer);
        let of_layer = self.of_layer(layer);
        let first = of_layer.start;
        self.certain.retain(|page| !of_layer.contains(page));
        self.forget_guesses(layer);
        let taken: usize = wanted.iter().map(|(_, tokens)| *tokens as usize).sum();
        let together = taken / self.prefetch.taken();
        self.policy.reach(layer, together);
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
        self.prefetch.demanded(missing as usize, together > 1);
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
                self.guesses.push_back(page);
            }
        }
    }

    /// A chunk comes to `layer` next, which will take these experts, ascending, each with the tokens that do: probably, or for certain.
    pub fn expect(&mut self, layer: usize, experts: &[(u32, u32)], certain: bool) {
        self.let_go(self.coming_to);
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
        let slots = self.slots.iter().filter(|slot| slot.kept);
        assert_eq!(self.kept.len(), slots.count());
        self.kept.len()
    }

    /// Whether it pays to guess what a layer will take.
    pub fn wants(&self, layer: usize, sight: Sight) -> bool {
        (self.resident[layer] as usize) < self.experts && self.prefetch.wants(sight)
    }

    /// Nothing is kept any more for this layer, which has come, or to which another comes first.
    fn let_go(&mut self, layer: usize) {
        if layer == self.coming_to {
            for page in self.coming.drain(..) {
                self.prefetch.withdrawn(page);
            }
        }
        let of_layer = self.of_layer(layer);
        let mut kept = std::mem::take(&mut self.kept);
        kept.retain(|page| {
            let stays = !of_layer.contains(page);
            if !stays {
                self.offer_kept(*page);
            }
            stays
        });
        self.kept = kept;
    }

    /// A page that was kept may leave from now on, once it is read.
    fn offer_kept(&mut self, page: u32) {
        let slot = self.slot_of[page as usize] as usize;
        let Some(state) = self.slots.get_mut(slot) else {
            return;
        };
        state.kept = false;
        if state.content == Content::Page {
            self.policy.offer(slot, page);
        }
    }

    /// Guesses about a layer that are not being read yet are not read any more.
    fn forget_guesses(&mut self, layer: usize) {
        let (of_layer, prefetch) = (self.of_layer(layer), &mut self.prefetch);
        self.guesses.retain(|page| {
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

    /// A step of so many tokens begins: what was foreseen for the last one is of no use now.
    pub fn step(&mut self, tokens: usize) {
        self.policy.begin(tokens);
        self.prefetch.advance();
        self.certain.clear();
        self.guesses.clear();
        self.let_go(self.coming_to);
        let mut kept = std::mem::take(&mut self.kept);
        kept.drain(..).for_each(|page| self.offer_kept(page));
        self.kept = kept;
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
            || (!self.coming.is_empty() && self.can_keep())
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
            if let Some(slot) = self.slot_for_guess(counts) {
                return Some(self.start(page, slot, Origin::Certain, counts));
            }
        }
        // The rest only while the disk has nothing better to do.
        if self.demand_reading > 0 {
            return None;
        }
        while self.can_keep()
            && let Some(page) = self.coming.pop_front()
        {
            if self.resident(page) {
                self.prefetch.withdrawn(page);
                continue;
            }
            let Some(slot) = self.slot_for_coming(counts) else {
                self.coming.push_front(page);
                break;
            };
            return Some(self.start(page, slot, Origin::Guess, counts));
        }
        while let Some(page) = self.guesses.pop_front() {
            if self.resident(page) {
                self.prefetch.withdrawn(page);
                continue;
            }
            if let Some(slot) = self.slot_for_guess(counts) {
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

    /// Whether what is read ahead now can stay until it is wanted.
    fn can_keep(&self) -> bool {
        self.kept.len() < self.most_kept
    }

    fn start(&mut self, page: u32, slot: usize, origin: Origin, counts: &Counts) -> Job {
        let ahead = matches!(origin, Origin::Certain | Origin::Guess);
        let kept = ahead && self.can_keep();
        self.slots[slot] = Slot {
            page,
            content: Content::Reading(origin),
            ahead,
            kept,
        };
        if kept {
            self.kept.push(page);
        }
        self.slot_of[page as usize] = slot as u32;
        self.resident[page as usize / self.experts] += 1;
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

    /// A slot for what is not waited for: a free one, or that of the coldest page, however hot that is. A guess that comes true would have taken it
    /// a moment later anyway, and how many may be wrong is bounded. What came now and left again before its layer asks would be read
    /// twice, so where nothing more can be kept there is none.
    fn slot_for_guess(&mut self, counts: &Counts) -> Option<usize> {
        if let Some(slot) = self.free.pop() {
            return Some(slot as usize);
        }
        if !self.can_keep() {
            return None;
        }
        let slot = self.policy.victim(self.layer)?;
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
        self.resident[state.page as usize / self.experts] -= 1;
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
                self.resident[job.page as usize / self.experts] -= 1;
                self.slots[job.slot].content = Content::Nothing;
                self.slots[job.slot].ahead = false;
                if std::mem::take(&mut self.slots[job.slot].kept) {
                    self.kept.retain(|page| *page != job.page);
                }
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
        // Three experts of demand allow one doubtful guess (0.2 x 3), and seven no wrong one beside it (0.2 x 7 = 1.4).
        let three = [(0, 1), (1, 1), (2, 1)];
        table.begin(0, &three, &counts);
        table.end(&three);
        guessed(&mut table, &counts, 1, 5);
        guessed(&mut table, &counts, 2, 4);
        table.guess(3, Sight::LayerBefore, &[5]);
        assert_eq!(table.guesses.len(), 1);
    }

    #[test]
    fn a_wrong_guess_that_was_read_was() {
        let counts = Counts::new(5, 40, 1);
        let mut table = Table::new(5, 8, 2, 40, true);
        let three = [(0, 1), (1, 1), (2, 1)];
        table.begin(0, &three, &counts);
        table.end(&three);
        table.demand.clear();
        guessed(&mut table, &counts, 1, 5);
        table.guess(2, Sight::LayerBefore, &[5]);
        let job = table.next_job(&counts).map(|job| (job.page, job.origin));
        assert_eq!(job, Some((2 * 8 + 5, Origin::Guess)));
        table.begin(2, &[(4, 1), (7, 1)], &counts);
        table.end(&[(4, 1), (7, 1)]);
        table.guess(3, Sight::LayerBefore, &[5]);
        assert_eq!(table.guesses.len(), 0);
    }

    #[test]
    fn what_is_read_ahead_stays_until_its_layer_has_asked() {
        let counts = Counts::new(5, 40, 1);
        let mut table = Table::new(5, 8, 2, 8, true);
        let read = |table: &mut Table| {
            std::iter::from_fn(|| {
                let job = table.next_job(&counts)?;
                table.finish(job, Ok(()), &counts);
                Some(job.page)
            })
            .collect::<Vec<_>>()
        };
        // All slots are full.
        for first in [0, 2, 4, 6] {
            let pair = [(first, 1), (first + 1, 1)];
            table.begin(0, &pair, &counts);
            read(&mut table);
            table.end(&pair);
        }
        table.step(1);
        // What is foreseen is colder than all else, and still there when other layers have read what they miss. It is at most three
        // of the six slots that can be spared.
        for expert in 0..4 {
            table.foresee(table.page(3, expert));
        }
        assert_eq!(read(&mut table), [24, 25, 26]);
        for layer in [1, 2] {
            let pair = [(3, 1), (4, 1)];
            table.begin(layer, &pair, &counts);
            assert_eq!(read(&mut table).len(), 2);
            table.end(&pair);
        }
        assert!([24, 25, 26].iter().all(|page| table.is_whole(*page)));
        assert_eq!(table.kept(), 3);
        table.begin(3, &[(0, 1), (1, 1)], &counts);
        assert_eq!((table.kept(), counts.useful.get()), (0, 2));
        table.end(&[(0, 1), (1, 1)]);
        // The one that was not taken is the first to leave.
        table.begin(4, &[(0, 1)], &counts);
        assert_eq!(read(&mut table), [32]);
        assert!(!table.is_whole(26) && table.is_whole(24));
    }

    #[test]
    fn what_is_foreseen_takes_the_place_of_what_is_hot() {
        let counts = Counts::new(4, 16, 1);
        let mut table = Table::new(4, 8, 2, 8, true);
        // Four pairs are in all slots, used in every step: far hotter than what was never used.
        for _ in 0..20 {
            table.step(1);
            for layer in 0..4 {
                let pair = [(0, 1), (1, 1)];
                table.begin(layer, &pair, &counts);
                while let Some(job) = table.next_job(&counts) {
                    table.finish(job, Ok(()), &counts);
                }
                table.end(&pair);
            }
        }
        table.step(1);
        let certain = table.page(3, 6);
        table.foresee(certain);
        table.guess(2, Sight::BeforeAttention, &[5]);
        let jobs: Vec<_> = std::iter::from_fn(|| {
            let job = table.next_job(&counts)?;
            table.finish(job, Ok(()), &counts);
            Some((job.page, job.origin))
        })
        .collect();
        let guessed = table.page(2, 5);
        assert_eq!(jobs, [(certain, Origin::Certain), (guessed, Origin::Guess)]);
    }

    #[test]
    fn nothing_is_guessed_about_a_layer_that_is_all_there() {
        let counts = Counts::new(2, 16, 1);
        let mut table = Table::new(2, 8, 2, 16, true);
        let all: Vec<(u32, u32)> = (0..8).map(|expert| (expert, 1)).collect();
        let pair = [(0, 1), (1, 1)];
        for wanted in [&pair[..], &all] {
            table.begin(1, wanted, &counts);
            while let Some(job) = table.next_job(&counts) {
                table.finish(job, Ok(()), &counts);
            }
            table.end(wanted);
            assert_eq!(table.wants(1, Sight::LayerBefore), wanted.len() == 2);
            assert_eq!(table.wants(1, Sight::BeforeAttention), wanted.len() == 2);
        }
    }
}
