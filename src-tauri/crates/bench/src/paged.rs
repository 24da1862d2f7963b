//! A model whose experts come from the disk: how near the pager comes to what disk and processor can do.
//!
//! Each part opens the model anew with the cache it needs. What is asked of the disk is counted by the pager itself; what the disk could do
//! at most is measured before and after, past the system's cache, in pieces of an expert.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use fastar_engine::routing::{Synthetic, compare};
use fastar_engine::{Engine, Options, Statistics};
use fastar_fst::Container;
use fastar_probe::{direct, machine, median};

use crate::peer::Test;
use crate::report::{Bar, Line, Unit};
use crate::resident::Resident;
use crate::{Error, Result};

/// Tokens of a prompt that takes most experts of every layer and leaves the processor little to do.
const SHORT_PROMPT: usize = 32;
/// Tokens that are measured once the cache is full.
const MEASURED: usize = 48;
/// How often the size of the cache is guessed.
const TRIES: usize = 3;

/// What is measured, and with what.
pub(crate) struct Paged<'a> {
    pub path: &'a Path,
    pub threads: Option<usize>,
    pub rounds: usize,
    pub stop: &'a AtomicBool,
    /// GB/s of the disk right now.
    pub disk: &'a dyn Fn() -> Result<f64>,
    /// Seconds for a token when every expert is in memory.
    pub resident: f64,
}

impl Paged<'_> {
    /// The lines of all parts.
    pub fn lines(&self, says: &mut dyn FnMut(&str)) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        says("Measuring the first token from a cold start");
        lines.push(self.cold()?);
        says("Measuring a prompt that comes from the disk");
        self.streaming(&mut lines)?;
        says("Measuring answers with disk and processor equally busy");
        self.balanced(&mut lines)?;
        Ok(lines)
    }

    fn options(&self, cache_bytes: u64, without_guesses: bool) -> Options {
        Options {
            threads: self.threads,
            cache_bytes: Some(cache_bytes),
            without_guesses,
            ..Options::default()
        }
    }

    /// From the opening of a file of which nothing is in memory to the first token, against reading what every token reads.
    fn cold(&self) -> Result<Line> {
        let before = (self.disk)()?;
        direct::forget(self.path).map_err(|source| Error::Read {
            path: self.path.to_owned(),
            source,
        })?;
        let start = Instant::now();
        let engine = Engine::open(self.path, &self.options(0, true))?;
        engine.session().decode(0)?;
        let seconds = start.elapsed().as_secs_f64();
        let dense = engine.facts().memory.dense_bytes as f64 / 1e9;
        let least = dense / ((before + (self.disk)()?) / 2.0);
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

    /// A prompt with the smallest cache there is.
    fn streaming(&self, lines: &mut Vec<Line>) -> Result<()> {
        let mut paged = Resident::cold(self.path, &self.options(0, true))?;
        let mut rounds = Vec::new();
        for _ in 0..self.rounds.min(3) {
            let disk = (self.disk)()?;
            let (before, busy) = (counted(&paged)?, machine::thread_seconds("pager-"));
            let seconds = paged.seconds(Test::Prompt(SHORT_PROMPT), self.stop)?;
            let (after, busy) = (counted(&paged)?, machine::thread_seconds("pager-") - busy);
            let disk = (disk + (self.disk)()?) / 2.0;
            let read = (after.demand_bytes - before.demand_bytes) as f64 / 1e9;
            let missed = (after.misses - before.misses) * after.expert_bytes;
            rounds.push((
                read / seconds,
                disk,
                busy / read,
                read * 1e9 / missed as f64,
            ));
        }
        let middle = |of: fn(&(f64, f64, f64, f64)) -> f64| median(rounds.iter().map(of));
        lines.push(
            Line::plain(
                "pager.misses",
                "Experts from the disk, none in memory",
                middle(|r| r.0),
                Unit::Rate,
            )
            .of(middle(|r| r.1), middle(|r| r.0 / r.1))
            .bar(Bar::least(0.92, 0.97)),
        );
        let name = "Seconds of a core for each GB of them";
        lines.push(
            Line::plain("pager.core-seconds", name, middle(|r| r.2), Unit::Ratio)
                .bar(Bar::most(0.08, Some(0.05))),
        );
        let name = "Bytes read for a prompt over those that were missing";
        lines.push(
            Line::plain("pager.prompt-bytes", name, middle(|r| r.3), Unit::Ratio)
                .bar(Bar::most(1.02, Some(1.0))),
        );
        Ok(())
    }

    /// Answers with a cache of a size with which reading what is missing takes about as long as computing.
    fn balanced(&self, lines: &mut Vec<Line>) -> Result<()> {
        let experts = Experts::of(self.path)?;
        let computing = self.resident * MEASURED as f64;
        let mut missing = experts.missing(self.resident * (self.disk)()? * 1e9);
        let mut tries = 0;
        let (paged, before, after, seconds, reading) = loop {
            let slots = (experts.all as f64 * (1.0 - missing)) as u64;
            let options = self.options(slots * experts.slot_bytes(), false);
            let mut paged = Resident::cold(self.path, &options)?;
            paged.seconds(Test::Answer(2 * MEASURED), self.stop)?;
            let (disk, before) = ((self.disk)()?, counted(&paged)?);
            let seconds = paged.seconds(Test::Answer(MEASURED), self.stop)?;
            let after = counted(&paged)?;
            let disk = (disk + (self.disk)()?) / 2.0;
            // What was read for nothing is no reason to be slower.
            let needed = |s: &Statistics| s.misses + s.late + s.useful;
            let bytes = (needed(&after) - needed(&before)) * experts.record;
            let reading = bytes as f64 / 1e9 / disk;
            tries += 1;
            if tries == TRIES || (0.8..1.25).contains(&(reading / computing)) {
                break (paged, before, after, seconds, reading);
            }
            // Experts that are popular are in memory sooner than others, so a guess is wrong at first.
            missing = (missing * (computing / reading).clamp(0.25, 4.0)).clamp(0.01, 1.0);
        };
        let since = |of: fn(&Statistics) -> u64| (of(&after) - of(&before)) as f64;
        let bytes = experts.record as f64;
        let least = reading.max(computing);
        let name =
            format!("{MEASURED} tokens; alone, computing {computing:.1} s, reading {reading:.1} s");
        lines.push(
            Line::plain("pager.overlap", name, seconds, Unit::Seconds)
                .of(least, seconds / least)
                .bar(Bar::most(1.3, Some(1.15))),
        );
        let wasted = since(|s| s.wasted) * bytes / since(|s| s.demand_bytes).max(bytes);
        let name = "Bytes read ahead for nothing over those that were waited for";
        lines.push(
            Line::plain("pager.wasted", name, wasted, Unit::Ratio).bar(Bar::most(0.25, Some(0.15))),
        );

        if let Some(resident) = machine::resident_bytes() {
            let known = paged.planned_bytes() as f64;
            let line = Line::plain("memory.used", "Memory in use", resident as f64, Unit::Bytes);
            lines.push(
                line.of(known, resident as f64 / known)
                    .bar(Bar::most(1.03, None)),
            );
        }
        Ok(())
    }
}

/// The experts of a model.
struct Experts {
    all: u64,
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
            all: (layers * experts) as u64,
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
            all: 192,
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
