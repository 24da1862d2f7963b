//! A model whose experts come from the disk: how near the pager comes to what disk and processor can do.
//!
//! Each part opens the model anew with the cache it needs. What is asked of the disk is counted by the pager itself; what the disk could do
//! at most is measured before and after, past the system's cache, in pieces of an expert.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fastar_engine::routing::{Synthetic, compare};
use fastar_engine::{Engine, Options, Statistics};
use fastar_fst::Container;
use fastar_probe::{direct, machine, median};

use crate::between::{Between, Search, Shared};
use crate::peer::Test;
use crate::report::{Bar, Line, Report, Unit};
use crate::resident::Resident;
use crate::{Error, Result};

/// Tokens of a prompt that takes most experts of every layer and keeps the processor about as busy as the disk.
pub(crate) const SHORT_PROMPT: usize = 32;
/// Answers that are measured once the cache is full, and the tokens of each.
const PIECES: usize = 4;
const PIECE: usize = 24;
/// How many sizes of the cache are tried for balance.
const TRIES: usize = 6;

/// What is measured, and with what.
pub(crate) struct Paged<'a> {
    pub path: &'a Path,
    pub threads: Option<usize>,
    pub rounds: usize,
    pub stop: &'a AtomicBool,
    /// GB/s of the disk right now.
    pub disk: &'a dyn Fn() -> Result<f64>,
    /// Seconds for a token when every expert is in memory, as measured before.
    pub resident: f64,
    /// Seconds for a prompt of [`SHORT_PROMPT`] tokens then.
    pub prompt: f64,
}

/// The model with every expert in memory, beside that whose experts come from the disk: what computing takes is measured around it, because a
/// machine computes at another speed from one minute to the next.
struct Whole(Option<Resident>);

impl Whole {
    /// Nothing where there is no room for both.
    fn beside(of: &Paged) -> Result<Self> {
        let options = Options {
            threads: of.threads,
            ..Options::default()
        };
        let whole = match Resident::open(of.path, &options, of.stop) {
            Ok(whole) => Some(whole).filter(Resident::in_memory),
            Err(Error::Engine(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(Self(whole))
    }

    /// Seconds for a test now, or what was measured `before`.
    fn seconds(&mut self, test: Test, before: f64, stop: &AtomicBool) -> Result<f64> {
        match &mut self.0 {
            Some(whole) => whole.seconds(test, stop),
            None => Ok(before),
        }
    }
}

impl Paged<'_> {
    /// Adds the lines of all parts to a report.
    pub fn lines(&self, report: &mut Report, says: &mut dyn FnMut(&str)) -> Result<()> {
        says("Measuring the first token from a cold start");
        report.lines.push(self.cold()?);
        self.misses(&mut report.lines, says)?;
        self.balanced(report, says)?;
        self.streaming(&mut report.lines, says)
    }

    fn options(&self, cache_bytes: u64, without_guesses: bool) -> Options {
        Options {
            threads: self.threads,
            cache_bytes: Some(cache_bytes),
            without_guesses,
            ..Options::default()
        }
    }

    /// From the opening of a file of which nothing is in memory to the first token, against reading the weights that every token reads and
    /// the experts that this one takes.
    fn cold(&self) -> Result<Line> {
        let disk = (self.disk)()?;
        direct::forget(self.path).map_err(|source| Error::Read {
            path: self.path.to_owned(),
            source,
        })?;
        let start = Instant::now();
        let engine = Engine::open(self.path, &self.options(0, true))?;
        engine.session().decode(0)?;
        let seconds = start.elapsed().as_secs_f64();
        let disk = (disk + (self.disk)()?) / 2.0;
        let experts = engine.statistics().ok_or(Error::NotPaged)?;
        let bytes = engine.facts().memory.dense_bytes + experts.demand_bytes + experts.ahead_bytes;
        let least = bytes as f64 / 1e9 / disk;
        let line = Line::plain(
            "cold",
            "First token from a cold start",
            seconds,
            Unit::Seconds,
        );
        // How many times as long as it takes at least.
        Ok(line
            .of(least, seconds / least)
            .bar(Bar::most(1.3, Some(1.15))))
    }

    /// Every expert once through the smallest cache there is, with nothing to compute.
    fn misses(&self, lines: &mut Vec<Line>, says: &mut dyn FnMut(&str)) -> Result<()> {
        let paged = Resident::cold(self.path, &self.options(0, true))?;
        let mut rounds = Vec::new();
        let all = self.rounds.min(3);
        for round in 1..=all {
            says(&format!(
                "Measuring how fast experts come from the disk, {round} of {all}"
            ));
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let disk = (self.disk)()?;
            let (before, busy) = (counted(&paged)?, machine::thread_seconds("pager-"));
            let seconds = paged.page_through()?;
            let busy = machine::thread_seconds("pager-") - busy;
            let read = Between::new(&before, &counted(&paged)?).read();
            let disk = (disk + (self.disk)()?) / 2.0;
            rounds.push([read / seconds, disk, busy / read]);
        }
        let middle = |of: fn(&[f64; 3]) -> f64| median(rounds.iter().map(of));
        lines.push(
            Line::plain(
                "pager.misses",
                "Experts from the disk, none in memory",
                middle(|r| r[0]),
                Unit::Rate,
            )
            .of(middle(|r| r[1]), middle(|r| r[0] / r[1]))
            .bar(Bar::least(0.92, 0.97)),
        );
        let name = "Seconds of a core for each GB of them";
        lines.push(
            Line::plain("pager.core-seconds", name, middle(|r| r[2]), Unit::Ratio)
                .bar(Bar::most(0.08, Some(0.05))),
        );
        Ok(())
    }

    /// A prompt of which most experts come from the disk, with room for those of two layers.
    fn streaming(&self, lines: &mut Vec<Line>, says: &mut dyn FnMut(&str)) -> Result<()> {
        let experts = Experts::of(self.path)?;
        let slots = 2 * experts.all / experts.layers.max(1);
        let options = self.options(slots * experts.slot_bytes(), false);
        let mut paged = Resident::cold(self.path, &options)?;
        let mut whole = Whole::beside(self)?;
        let prompt = Test::Prompt(SHORT_PROMPT);
        let mut rounds = Vec::new();
        let all = self.rounds.min(3);
        for round in 1..=all {
            says(&format!(
                "Measuring a prompt that comes from the disk, {round} of {all}"
            ));
            let alone = whole.seconds(prompt, self.prompt, self.stop)?;
            let (disk, before) = ((self.disk)()?, counted(&paged)?);
            let seconds = paged.seconds(prompt, self.stop)?;
            let between = Between::new(&before, &counted(&paged)?);
            let disk = (disk + (self.disk)()?) / 2.0;
            let alone = (alone + whole.seconds(prompt, self.prompt, self.stop)?) / 2.0;
            let shared = Shared {
                seconds,
                computing: alone,
                reading: between.needed() / disk,
            };
            rounds.push((shared, between.read_of_needed()));
        }
        let middle = |of: fn(&(Shared, f64)) -> f64| median(rounds.iter().map(of));
        let name = format!(
            "Reading {SHORT_PROMPT} tokens, {}",
            of_both(middle(|r| r.0.computing), middle(|r| r.0.reading))
        );
        lines.push(
            Line::plain("pager.prompt", name, middle(|r| r.0.seconds), Unit::Seconds)
                .of(middle(|r| r.0.least()), middle(|r| r.0.share()))
                .bar(Bar::most(1.2, Some(1.1))),
        );
        let name = "Bytes read for a prompt over those that were missing";
        lines.push(
            Line::plain("pager.prompt-bytes", name, middle(|r| r.1), Unit::Ratio)
                .bar(Bar::most(1.02, Some(1.0))),
        );
        Ok(())
    }

    /// Answers with a cache of a size with which reading what is missing takes about as long as computing.
    fn balanced(&self, report: &mut Report, says: &mut dyn FnMut(&str)) -> Result<()> {
        let experts = Experts::of(self.path)?;
        let mut search = Search::new(experts.fewest, experts.all);
        // If each expert is taken as often. Popular ones are in memory sooner than others, so the first guess is wrong.
        let missing = experts.missing(self.resident * (self.disk)()? * 1e9);
        let mut slots = search.nearest((experts.all as f64 * (1.0 - missing)) as u64);
        let mut best: Option<Answered> = None;
        let mut beside = None;
        for one in 1..=TRIES {
            let Some(now) = slots else { break };
            let what = format!(
                "Looking for the cache that keeps disk and processor equally busy, size {one}"
            );
            let answered = self.answered(now, &experts, &mut beside, &mut |piece| {
                says(&format!("{what}, {piece} of {PIECES}"));
            })?;
            let ratio = answered.shared.ratio();
            if best
                .as_ref()
                .is_none_or(|best| answered.shared.distance() < best.shared.distance())
            {
                best = Some(answered);
            }
            slots = match best.as_ref().is_some_and(|best| best.shared.is_balanced()) {
                true => None,
                false => search.next(now, ratio),
            };
        }
        match best {
            Some(best) => best.tell(report, experts.all),
            None => report.notes.push(
                "Disk and processor were not measured together: the model has too few experts."
                    .into(),
            ),
        }
        Ok(())
    }

    /// Answers with one size of the cache, filled, each amid two with every expert in memory.
    fn answered(
        &self,
        slots: u64,
        experts: &Experts,
        beside: &mut Option<Beside>,
        begins: &mut dyn FnMut(usize),
    ) -> Result<Answered> {
        begins(1);
        let options = self.options(slots * experts.slot_bytes(), false);
        let mut paged = Resident::cold(self.path, &options)?;
        paged.seconds(Test::Answer(4 * PIECE), self.stop)?;
        let beside = match beside {
            Some(beside) => beside,
            None => {
                // Of the first model alone: later ones share the process with what those before have left.
                let memory = machine::resident_bytes().map(|now| (now, paged.planned_bytes()));
                let whole = Whole::beside(self)?;
                beside.insert(Beside { whole, memory })
            }
        };
        let mut shared = Shared::default();
        let before = counted(&paged)?;
        for piece in 1..=PIECES {
            begins(piece);
            shared = shared.and(self.piece(&mut paged, &mut beside.whole)?);
        }
        Ok(Answered {
            slots,
            shared,
            wasted: Between::new(&before, &counted(&paged)?).wasted(),
            memory: beside.memory,
        })
    }

    /// One answer.
    fn piece(&self, paged: &mut Resident, whole: &mut Whole) -> Result<Shared> {
        let (piece, known) = (Test::Answer(PIECE), self.resident * PIECE as f64);
        let disk = (self.disk)()?;
        let alone = whole.seconds(piece, known, self.stop)?;
        let before = counted(paged)?;
        let seconds = paged.seconds(piece, self.stop)?;
        let needed = Between::new(&before, &counted(paged)?).needed();
        let alone = alone + whole.seconds(piece, known, self.stop)?;
        let disk = (disk + (self.disk)()?) / 2.0;
        Ok(Shared {
            seconds,
            computing: alone / 2.0,
            reading: needed / disk,
        })
    }
}

/// What stands beside all sizes of the cache.
struct Beside {
    whole: Whole,
    /// Bytes in use before, and those that are accounted for.
    memory: Option<(u64, u64)>,
}

/// Answers with some of the experts in memory.
struct Answered {
    slots: u64,
    shared: Shared,
    wasted: f64,
    /// Bytes in use, and those that are accounted for.
    memory: Option<(u64, u64)>,
}

impl Answered {
    fn tell(&self, report: &mut Report, all: u64) {
        let (slots, shared) = (self.slots, &self.shared);
        let (computing, reading) = (shared.computing, shared.reading);
        let tokens = PIECES * PIECE;
        let name = format!("Writing {tokens} tokens, {}", of_both(computing, reading));
        let line = Line::plain("pager.overlap", name, shared.seconds, Unit::Seconds)
            .of(shared.least(), shared.share());
        report.lines.push(match shared.is_balanced() {
            true => line.bar(Bar::most(1.3, Some(1.15))),
            false => line,
        });
        if !shared.is_balanced() {
            report.notes.push(format!(
                "No size of the cache made disk and processor equally busy (the nearest, {slots} of {all} experts: reading {reading:.1} s, computing {computing:.1} s), so how well they go on at once cannot be told here."
            ));
        }
        let name = "Bytes read ahead for nothing over those that were waited for";
        report.lines.push(
            Line::plain("pager.wasted", name, self.wasted, Unit::Ratio)
                .bar(Bar::most(0.25, Some(0.15))),
        );
        if let Some((used, known)) = self.memory.map(|(a, b)| (a as f64, b as f64)) {
            let line = Line::plain("memory.used", "Memory in use", used, Unit::Bytes);
            report
                .lines
                .push(line.of(known, used / known).bar(Bar::most(1.03, None)));
        }
    }
}

/// With what a time is compared in which disk and processor work at once: it can be no shorter than the longer of both.
fn of_both(computing: f64, reading: f64) -> String {
    format!("by computing for {computing:.1} s and reading for {reading:.1} s at once")
}

/// The experts of a model.
struct Experts {
    layers: u64,
    all: u64,
    /// Without which no token can be computed.
    fewest: u64,
    /// Of which a token takes so many, in all layers.
    taken: u64,
    record: u64,
}

impl Experts {
    fn of(path: &Path) -> Result<Self> {
        let container = Container::open(path)?;
        let (layers, experts) = container.expert_counts();
        let used = container.config()["num_experts_per_tok"].as_u64();
        Ok(Self {
            layers: layers as u64,
            all: (layers * experts) as u64,
            fewest: used.unwrap_or(1),
            taken: layers as u64 * used.unwrap_or(1),
            record: container.expert_layout().bytes as u64,
        })
    }

    fn slot_bytes(&self) -> u64 {
        self.record.next_multiple_of(direct::ALIGNMENT as u64)
    }

    /// Which share of them has to be missing in memory so that a token reads about so many bytes from the disk, if each is taken as often.
    fn missing(&self, bytes: f64) -> f64 {
        (bytes / self.record as f64 / self.taken as f64).clamp(0.0, 1.0)
    }
}

/// Hit rates of the pager's policy with a third and a tenth of the experts in memory, against the best possible, on routing that is like a
/// model's. The same on every machine.
pub(crate) fn hit_rates() -> Vec<Line> {
    let trace = Synthetic::default().trace();
    let all = trace.shape.layers * trace.shape.experts;
    let shares = [(33, Bar::least(0.85, 0.88)), (10, Bar::least(0.67, 0.72))];
    let slots = shares.map(|(percent, _)| all * percent / 100);
    let rates = compare(&trace, &slots);
    let lines = shares.iter().zip(&rates).map(|((percent, bar), rates)| {
        let name = format!("Hits with {percent} % of the experts in memory, of the best possible");
        Line::plain(
            format!("pager.hits.{percent}"),
            name,
            rates.ours,
            Unit::Ratio,
        )
        .of(rates.belady, rates.ours / rates.belady)
        .bar(*bar)
    });
    lines.collect()
}

/// What the pager has counted.
fn counted(paged: &Resident) -> Result<Statistics> {
    paged.statistics().ok_or(Error::NotPaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_experts_are_missing_as_leave_a_token_that_much_to_read() {
        let experts = Experts {
            layers: 6,
            all: 192,
            fewest: 6,
            taken: 36,
            record: 1000,
        };
        // A quarter of the 36 are read.
        assert_eq!(experts.missing(9000.0), 0.25);
        assert_eq!(experts.missing(0.0), 0.0);
        assert_eq!(experts.missing(1e9), 1.0);
        assert_eq!(experts.slot_bytes(), 4096);
    }

    #[test]
    fn without_balance_there_is_no_bar_but_a_note() {
        let told = |reading| {
            let mut report = Report::example();
            (report.lines, report.notes) = Default::default();
            let answered = Answered {
                slots: 9,
                shared: Shared {
                    seconds: 3.0,
                    computing: 2.0,
                    reading,
                },
                wasted: 0.1,
                memory: Some((103, 100)),
            };
            answered.tell(&mut report, 192);
            report
        };
        let balanced = told(2.4);
        assert_eq!(balanced.lines[0].share, Some(1.25));
        assert!(balanced.lines[0].bar.is_some() && balanced.notes.is_empty());
        assert_eq!(balanced.lines[2].share, Some(1.03));
        let other = told(0.5);
        assert_eq!(other.lines[0].share, Some(1.5));
        assert_eq!(other.lines[0].bar, None);
        assert!(
            other.notes[0]
                .contains("the nearest, 9 of 192 experts: reading 0.5 s, computing 2.0 s"),
            "{:?}",
            other.notes
        );
    }

    #[test]
    fn hits_are_between_nothing_and_the_best_possible() {
        for line in hit_rates() {
            let best = line.limit.unwrap_or(0.0);
            assert!(
                0.0 < line.value && line.value <= best && best < 1.0,
                "{line:?}"
            );
        }
    }
}
