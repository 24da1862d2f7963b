//! Replaying a routing trace through caches of several sizes, to compare policies with each other and with the best there can be.
//!
//! One cache holds the experts of all layers. The first half of the tokens fills it, the second is counted. As in the engine, tokens that are
//! computed together (a chunk of a prompt) ask a layer once for each expert that any of them takes, and what is in memory is used before
//! anything leaves for what is not; the engine's own policy gets slots back as experts are computed in order, a few reads behind. Belady's policy knows the future and evicts what is used farthest from now: no policy that keeps what it
//! has just read hits more often.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::policy::{self, Policy};
use super::trace::Trace;

/// Hit rates of one cache size, each from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Rates {
    /// Experts that fit.
    pub slots: usize,
    /// The experts most used in the first half, never exchanged.
    pub fixed: f64,
    /// Least recently used goes.
    pub lru: f64,
    /// Least frequently used goes, uses fading with a half-life of 64 tokens.
    pub lfu: f64,
    /// The engine's own policy.
    pub ours: f64,
    /// Best possible.
    pub belady: f64,
}

/// Reads under way while an expert of a chunk is computed.
const READ_AHEAD: usize = 8;

/// The trace as one list of pages, in the order they are needed, each once in a layer of a step.
struct Uses {
    /// Pages (layer x experts + expert), and how many tokens of the step take them.
    pages: Vec<(u32, u32)>,
    /// Where each layer of each step begins in `pages`, and the end.
    starts: Vec<usize>,
    /// Tokens of each step.
    tokens: Vec<usize>,
    /// Where counting begins.
    half: usize,
}

impl Uses {
    fn of(trace: &Trace) -> Self {
        let shape = trace.shape;
        let (mut pages, mut starts, mut half) = (Vec::new(), Vec::new(), None);
        let mut counts = vec![0u32; shape.experts];
        let steps = trace.steps();
        for step in &steps {
            // The last step, where a chunk lies across the middle.
            if half.is_none()
                && (2 * step.start + 1 >= trace.tokens() || step.end == trace.tokens())
            {
                half = Some(pages.len());
            }
            for layer in 0..shape.layers {
                starts.push(pages.len());
                let picked = step.clone().flat_map(|token| trace.picked(token, layer));
                picked.for_each(|expert| counts[usize::from(*expert)] += 1);
                for (expert, count) in counts.iter_mut().enumerate().filter(|(_, n)| **n > 0) {
                    let page = (layer * shape.experts + expert) as u32;
                    pages.push((page, std::mem::take(count)));
                }
            }
        }
        starts.push(pages.len());
        Self {
            pages,
            starts,
            tokens: steps.into_iter().map(|step| step.len()).collect(),
            half: half.unwrap_or(0),
        }
    }

    fn counted(&self) -> usize {
        self.pages.len() - self.half
    }
}

/// Hit rates of every policy for each number of slots. Fewer slots than a token takes in one layer count as that many; more than there are
/// experts as all of them.
pub fn compare(trace: &Trace, slots: &[usize]) -> Vec<Rates> {
    let all = trace.shape.layers * trace.shape.experts;
    let uses = Uses::of(trace);
    let next = next_uses(&uses.pages);
    slots
        .iter()
        .map(|slots| {
            let slots = (*slots).clamp(trace.shape.taken, all);
            let rate = |hits: usize| hits as f64 / uses.counted().max(1) as f64;
            Rates {
                slots,
                fixed: rate(fixed(&uses, slots)),
                lru: rate(by_key(&uses, slots, &mut |at| at as f64)),
                lfu: rate(lfu(&uses, slots)),
                ours: rate(ours(&uses, trace, slots)),
                belady: rate(by_key(&uses, slots, &mut |at| -(next[at] as f64))),
            }
        })
        .collect()
}

/// For each use, when its page is used next; the end and beyond where it is not.
fn next_uses(pages: &[(u32, u32)]) -> Vec<usize> {
    let mut next = vec![0; pages.len()];
    let mut seen = HashMap::new();
    for (at, (page, _)) in pages.iter().enumerate().rev() {
        next[at] = seen.insert(*page, at).unwrap_or(usize::MAX >> 12);
    }
    next
}

/// Hits of a cache that evicts the page with the smallest key; `key` gives the new one of the page used at a time.
fn by_key(uses: &Uses, slots: usize, key: &mut dyn FnMut(usize) -> f64) -> usize {
    let mut keys: HashMap<u32, f64> = HashMap::new();
    let mut order: BTreeSet<(Ordered, u32)> = BTreeSet::new();
    let mut hits = 0;
    let mut missing = Vec::new();
    for range in uses.starts.windows(2) {
        missing.clear();
        for at in range[0]..range[1] {
            let page = uses.pages[at].0;
            let Some(old) = keys.get_mut(&page) else {
                missing.push(at);
                continue;
            };
            hits += usize::from(at >= uses.half);
            order.remove(&(Ordered(*old), page));
            *old = key(at);
            order.insert((Ordered(*old), page));
        }
        for at in &missing {
            if keys.len() >= slots
                && let Some((_, out)) = order.pop_first()
            {
                keys.remove(&out);
            }
            let (page, new) = (uses.pages[*at].0, key(*at));
            keys.insert(page, new);
            order.insert((Ordered(new), page));
        }
    }
    hits
}

/// A number with the total order of its bits.
#[derive(Clone, Copy, PartialEq)]
struct Ordered(f64);

impl Eq for Ordered {}
impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

fn fixed(uses: &Uses, slots: usize) -> usize {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for (page, _) in &uses.pages[..uses.half] {
        *counts.entry(*page).or_default() += 1;
    }
    let mut best: Vec<(usize, u32)> = counts.into_iter().map(|(page, n)| (n, page)).collect();
    best.sort_unstable_by(|a, b| b.cmp(a));
    best.truncate(slots);
    let kept: HashSet<u32> = best.into_iter().map(|(_, page)| page).collect();
    let counted = uses.pages[uses.half..].iter();
    counted.filter(|(page, _)| kept.contains(page)).count()
}

fn lfu(uses: &Uses, slots: usize) -> usize {
    const HALF_LIFE: f64 = 64.0;
    let tokens: usize = uses.tokens.iter().sum();
    let of = uses.pages.len() as f64 / tokens.max(1) as f64;
    // log2 of the sum of 2^(time / half-life): fading without touching what is idle.
    let mut sums: HashMap<u32, f64> = HashMap::new();
    by_key(uses, slots, &mut |at| {
        let now = at as f64 / of / HALF_LIFE;
        let sum = sums.entry(uses.pages[at].0).or_insert(f64::NEG_INFINITY);
        *sum = policy::add(*sum, now);
        *sum
    })
}

/// The engine's policy as the pager's table asks it.
fn ours(uses: &Uses, trace: &Trace, slots: usize) -> usize {
    let shape = trace.shape;
    let mut policy = Policy::new(shape.layers, shape.experts, slots);
    let mut slot_of: HashMap<u32, usize> = HashMap::new();
    let mut page_in = vec![None; slots];
    let (mut filled, mut hits) = (0, 0);
    // What the layer has and is not on offer.
    let mut held: Vec<(usize, u32)> = Vec::new();
    for (round, range) in uses.starts.windows(2).enumerate() {
        let layer = round % shape.layers;
        let tokens = uses.tokens[round / shape.layers];
        if layer == 0 {
            policy.begin(tokens);
        }
        policy.reach(layer, tokens);
        let wanted = &uses.pages[range[0]..range[1]];
        for (page, taking) in wanted {
            policy.used(*page, *taking as usize, tokens);
            if let Some(slot) = slot_of.get(page) {
                hits += usize::from(range[0] >= uses.half);
                policy.withhold(*slot);
                held.push((*slot, *page));
            }
        }
        let missing: Vec<u32> = wanted
            .iter()
            .map(|(page, _)| *page)
            .filter(|page| !slot_of.contains_key(page))
            .collect();
        for (number, page) in missing.iter().copied().enumerate() {
            if let Some(computed) = number.checked_sub(READ_AHEAD).filter(|_| tokens > 1) {
                let computed = missing[computed];
                let (done, rest) = held.iter().partition(|(_, page)| *page <= computed);
                held = rest;
                offer(&mut policy, &mut { done });
            }
            let slot = if filled < slots {
                filled += 1;
                filled - 1
            } else {
                let free = policy.victim(layer).or_else(|| {
                    // What has arrived is computed, and its slots are used for the rest of the layer.
                    offer(&mut policy, &mut held);
                    policy.victim(layer)
                });
                let Some(slot) = free else { continue };
                slot
            };
            if let Some(out) = page_in[slot].replace(page) {
                slot_of.remove(&out);
            }
            slot_of.insert(page, slot);
            policy.withhold(slot);
            held.push((slot, page));
        }
        offer(&mut policy, &mut held);
    }
    hits
}

/// Puts everything that is held on offer.
fn offer(policy: &mut Policy, held: &mut Vec<(usize, u32)>) {
    for (slot, page) in held.drain(..) {
        policy.offer(slot, page);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::synthetic::Synthetic;
    use super::super::trace::Kind;
    use super::*;

    /// One layer, one expert a token.
    fn line(experts: &[u16]) -> Trace {
        let mut trace = Trace::new(1, 8, 1);
        for expert in experts {
            trace.push(Kind::Decode, &[*expert]);
        }
        trace
    }

    #[test]
    fn hits_are_those_counted_by_hand() {
        // Counted: 0 3 0 1 2 0, after 0 1 2 0 1 2, which leaves 1 and 2 in two slots.
        let trace = line(&[0, 1, 2, 0, 1, 2, 0, 3, 0, 1, 2, 0]);
        let [rates] = compare(&trace, &[2])[..] else {
            panic!("one size")
        };
        // Least recently used: [1 2] 0 misses, 3 misses, 0 hits, 1, 2 and 0 miss.
        assert_eq!(rates.lru, 1.0 / 6.0);
        // Knowing the future, [1 2] becomes [1 0], [0 3], 0 hits, [0 1], [0 2], 0 hits.
        assert_eq!(rates.belady, 2.0 / 6.0);
        // 0, 1 and 2 were used twice each; the higher numbers win a tie: [1 2] kept.
        assert_eq!(rates.fixed, 2.0 / 6.0);
    }

    #[test]
    fn with_room_for_all_only_the_first_uses_miss() {
        let trace = line(&[0, 1, 2, 3, 0, 1, 4, 0]);
        let [rates] = compare(&trace, &[100])[..] else {
            panic!("one size")
        };
        assert_eq!(rates.slots, 8);
        for rate in [rates.lru, rates.lfu, rates.ours, rates.belady] {
            assert_eq!(rate, 3.0 / 4.0);
        }
    }

    #[test]
    fn a_chunk_asks_once_for_each_expert_and_uses_first_what_is_there() {
        // Steps of one layer: 0 1; then 0 2 1 together, 3 alone, and 0 1 2 together.
        let mut trace = Trace::new(1, 4, 1);
        for (kind, expert) in [
            (Kind::First, 0),
            (Kind::Prefill, 1),
            (Kind::Chunk, 0),
            (Kind::Prefill, 2),
            (Kind::Prefill, 1),
            (Kind::Prefill, 2),
            (Kind::Decode, 3),
            (Kind::Chunk, 2),
            (Kind::Prefill, 0),
            (Kind::Prefill, 1),
        ] {
            trace.push(kind, &[expert]);
        }
        // Counted from the middle of ten tokens on, where the first step to begin is 3: one use, and then 0, 1 and 2.
        let [rates] = compare(&trace, &[2])[..] else {
            panic!("one size")
        };
        // Least recently used: [0 1] hits 0 and 1 and loses 0 to 2; 3 takes the place of 1, [2 3]; 2 hits, 0 and 1 miss.
        assert_eq!(rates.lru, 1.0 / 4.0);
        // Whatever is kept, 3 and two of the others miss.
        assert_eq!(rates.belady, 1.0 / 4.0);
        // Twice in the first half: 0 and 1.
        assert_eq!(rates.fixed, 2.0 / 4.0);
        let [whole] = compare(&trace, &[4])[..] else {
            panic!("one size")
        };
        assert_eq!((whole.lru, whole.ours, whole.belady), (0.75, 0.75, 0.75));
    }

    #[test]
    fn no_policy_is_better_than_the_best_on_chunks_that_fill_every_slot() {
        let synthetic = Synthetic {
            tokens: 120,
            layers: 3,
            experts: 24,
            taken: 3,
            text: 60,
            ..Synthetic::default()
        };
        let alone = synthetic.trace();
        let mut trace = Trace::new(3, 24, 3);
        for token in 0..alone.tokens() {
            let picked: Vec<u16> = (0..3)
                .flat_map(|l| alone.picked(token, l).to_vec())
                .collect();
            let kind = match token % 12 {
                0 => Kind::Chunk,
                1..9 => Kind::Prefill,
                _ => Kind::Decode,
            };
            trace.push(kind, &picked);
        }
        for rate in compare(&trace, &[3, 6, 12, 30, 50, 72]) {
            for other in [rate.lru, rate.lfu, rate.ours] {
                assert!(other <= rate.belady, "{rate:?}");
            }
        }
    }

    /// Fractions of all experts, and the fewest slots there can be.
    fn sizes(trace: &Trace) -> Vec<usize> {
        let all = (trace.shape.layers * trace.shape.experts) as f64;
        let token = trace.shape.layers * trace.shape.taken;
        let shares = [0.045, 0.10, 0.153, 0.25, 0.33, 0.5, 0.75];
        let few = [
            trace.shape.taken,
            2 * trace.shape.taken,
            token / 2,
            token,
            3 * token / 2,
            2 * token,
        ];
        few.into_iter()
            .chain(shares.map(|share| (share * all) as usize))
            .collect()
    }

    #[test]
    fn never_below_least_recently_used_and_near_the_best_possible() {
        for (name, synthetic) in [
            ("default", Synthetic::default()),
            ("skewed", Synthetic::skewed()),
        ] {
            let trace = synthetic.trace();
            let rates = compare(&trace, &sizes(&trace));
            for rate in &rates {
                assert!(rate.ours >= rate.lru, "{name}: {rate:?}");
                assert!(rate.ours <= rate.belady, "{name}: {rate:?}");
            }
            let all = (trace.shape.layers * trace.shape.experts) as f64;
            for (share, least) in [(0.33, 0.85), (0.10, 0.67)] {
                let rate = rates
                    .iter()
                    .find(|rate| rate.slots == (share * all) as usize)
                    .unwrap();
                assert!(rate.ours / rate.belady >= least, "{name}: {rate:?}");
            }
        }
    }

    #[test]
    fn a_text_that_goes_round_does_not_defeat_it() {
        // Every token needs other experts than the last, in a circle that is longer than the cache: where LRU never hits.
        let mut trace = Trace::new(4, 32, 2);
        for token in 0..400u16 {
            let pair = [2 * (token % 16), 2 * (token % 16) + 1];
            trace.push(Kind::Decode, &pair.repeat(4));
        }
        for rate in compare(&trace, &[2, 8, 16, 64, 100, 127]) {
            assert!(rate.ours >= rate.lru, "{rate:?}");
        }
    }

    #[test]
    fn a_long_prompt_keeps_what_fits() {
        // Every chunk takes every expert. Whatever is kept hits in the next chunk, if it is kept: with a third of them, a third at best.
        let synthetic = Synthetic {
            tokens: 30 * 64,
            layers: 6,
            experts: 64,
            taken: 6,
            ..Synthetic::default()
        };
        let alone = synthetic.trace();
        let mut trace = Trace::new(6, 64, 6);
        for token in 0..alone.tokens() {
            let picked = (0..6).flat_map(|l| alone.picked(token, l).to_vec());
            let kind = match token % 64 {
                0 => Kind::Chunk,
                _ => Kind::Prefill,
            };
            trace.push(kind, &picked.collect::<Vec<u16>>());
        }
        for rate in compare(&trace, &[96, 128, 256]) {
            assert!(rate.ours >= 0.9 * rate.belady, "{rate:?}");
            assert!(rate.belady < rate.slots as f64 / 384.0 + 0.15, "{rate:?}");
            assert!(rate.lru < 0.01, "{rate:?}");
        }
    }

    #[test]
    fn popularity_that_changes_is_followed() {
        let synthetic = Synthetic {
            tokens: 400,
            layers: 8,
            experts: 64,
            taken: 4,
            text: 50,
            popularity: 0.2,
            topic: 1.0,
            ..Synthetic::default()
        };
        let trace = synthetic.trace();
        for rate in compare(&trace, &sizes(&trace)) {
            assert!(rate.ours >= rate.lru, "{rate:?}");
        }
    }
}
