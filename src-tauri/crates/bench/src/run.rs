//! The run: every group of lines after the other, each against its limit in the same moments.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use fastar_kernels::dispatch::{self, Level};
use fastar_kernels::processors::Processors;
use fastar_probe::products::{Format, Round, Sample};
use fastar_probe::{Memory, Threads, direct, machine, median};

use crate::paged::{Paged, SHORT_PROMPT, hit_rates};
use crate::peer::{self, Speed, Test};
use crate::report::{About, Bar, Line, Report, Unit};
use crate::resident::Resident;
use crate::{Error, Result};

/// Lines that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Memory and arithmetic of the machine.
    Machine,
    /// Products of single matrices.
    Kernels,
    /// The disk under the model.
    Disk,
    /// Writing answers and reading prompts with a model that is in memory.
    Model,
    /// Pairs with another engine.
    Peer,
    /// The same model with its experts on the disk.
    Pager,
}

impl Group {
    /// All of them with the names they have on the command line.
    pub const ALL: [(Group, &str); 6] = [
        (Group::Machine, "machine"),
        (Group::Kernels, "kernels"),
        (Group::Disk, "disk"),
        (Group::Model, "model"),
        (Group::Peer, "peer"),
        (Group::Pager, "pager"),
    ];

    /// Whether its lines are of a model.
    pub fn needs_model(self) -> bool {
        matches!(self, Self::Disk | Self::Model | Self::Peer | Self::Pager)
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Groups of lines; those that need a model are left out where there is none.
    pub groups: Vec<Group>,
    /// Threads to compute on; as the engine chooses when not given.
    pub threads: Option<usize>,
    /// Rounds of each line, of which the median is told.
    pub rounds: usize,
    /// A peer's benchmark command, and how many pairs are run with it where the group is wanted.
    pub peer: Option<(String, usize)>,
}

/// Weights that one product reads: far more than any cache holds.
const PRODUCT_BYTES: usize = 448 << 20;
/// Tokens of an answer and of a prompt.
const ANSWER: usize = 24;
const PROMPT: usize = 256;
/// Bytes of a read, about an expert of DeepSeek V4 Flash, and how many in a round.
const READ_BYTES: usize = 13_369_344;
const READS: usize = 24;
/// Threads that read.
const READERS: usize = 8;

/// Measures. `says` hears what is being done.
///
/// # Errors
/// When a model cannot be opened or computes no numbers, a peer cannot be run, or `stop` is set.
pub fn run(
    model: Option<&Path>,
    options: &Options,
    stop: &AtomicBool,
    says: &mut dyn FnMut(&str),
) -> Result<Report> {
    let wanted = |group: Group| options.groups.contains(&group);
    let engine = fastar_engine::Options {
        threads: options.threads,
        ..Default::default()
    };
    let mut resident = match model {
        Some(path)
            if [Group::Model, Group::Peer, Group::Pager]
                .into_iter()
                .any(wanted) =>
        {
            says("Reading the model");
            Some(Resident::open(path, &engine, stop)?)
        }
        _ => None,
    };
    let threads = match (&resident, options.threads) {
        (Some(resident), _) => resident.threads,
        (None, Some(threads)) => threads,
        (None, None) => Processors::find().threads(),
    };
    let level = dispatch::level();
    let mut run = Run {
        rounds: options.rounds,
        stop,
        level,
        teams: [Threads::new(1), Threads::new(threads)]
            .into_iter()
            .collect::<std::result::Result<Vec<_>, _>>()?,
        report: Report {
            about: About {
                processor: machine::processor(),
                threads,
                level: named(level).to_owned(),
                memory: machine::memory(),
                model: resident.as_ref().map(|r| r.about.clone()),
                version: env!("CARGO_PKG_VERSION"),
            },
            lines: Vec::new(),
            notes: Vec::new(),
        },
    };
    let is_read = [Group::Machine, Group::Kernels, Group::Model]
        .into_iter()
        .any(wanted);
    let mut data = Memory::new(if is_read { PRODUCT_BYTES } else { 0 }).map_err(Error::Memory)?;
    // What was never written is not read from memory.
    data.fill(1);
    if wanted(Group::Machine) {
        says("Measuring memory and arithmetic");
        run.machine(&data)?;
    }
    if let Some(path) = model.filter(|_| wanted(Group::Disk)) {
        says("Measuring the disk");
        run.disk(path)?;
    }
    if wanted(Group::Kernels) {
        run.kernels(&mut data, says)?;
    }
    if let Some(resident) = resident.as_mut().filter(|_| wanted(Group::Model)) {
        run.model(resident, &data, says)?;
    }
    drop(data);
    if let (Some(resident), Some((command, pairs))) = (&mut resident, &options.peer)
        && wanted(Group::Peer)
    {
        run.peer(resident, command, *pairs, says)?;
    }
    if let (Some(path), Some(resident)) = (model.filter(|_| wanted(Group::Pager)), resident) {
        run.pager(path, resident, options.threads, says)?;
    }
    let note = run.report.uneven();
    run.report.notes.extend(note);
    Ok(run.report)
}

fn named(level: Level) -> &'static str {
    match level {
        Level::Baseline => "no vector instructions",
        Level::Avx2 => "AVX2",
        Level::Avx512 => "AVX-512",
    }
}

/// The disk under a model.
struct Disk<'a> {
    path: &'a Path,
    file: File,
    places: Vec<u64>,
}

impl<'a> Disk<'a> {
    /// Opens the model for direct reads, or says why the disk cannot be measured with it.
    fn open(path: &'a Path) -> Result<std::result::Result<Self, String>> {
        let file = match direct::open(path) {
            Ok(file) => file,
            Err(error) => {
                let path = path.display();
                return Ok(Err(format!(
                    "{path} cannot be read past the system's cache ({error})"
                )));
            }
        };
        let failed = |source| Error::Read {
            path: path.to_owned(),
            source,
        };
        let pieces = file.metadata().map_err(failed)?.len() / READ_BYTES as u64;
        if pieces == 0 {
            return Ok(Err("the model file is too small".to_owned()));
        }
        // Far apart, in no order that a disk could guess.
        let places = (0..READS as u64)
            .map(|i| i * 7919 % pieces * READ_BYTES as u64)
            .collect();
        Ok(Ok(Self { path, file, places }))
    }

    /// GB/s right now.
    fn rate(&self) -> Result<f64> {
        let reads = direct::read(&self.file, &self.places, READ_BYTES, READERS);
        let reads = reads.map_err(|source| Error::Read {
            path: self.path.to_owned(),
            source,
        })?;
        Ok(reads.rate())
    }
}

struct Run<'a> {
    rounds: usize,
    stop: &'a AtomicBool,
    level: Level,
    /// One thread, and all of them.
    teams: Vec<Threads>,
    report: Report,
}

impl Run<'_> {
    fn go_on(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }

    /// Rounds after one that warms up.
    fn rounds<T>(&self, mut round: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
        self.go_on()?;
        round()?;
        (0..self.rounds)
            .map(|_| {
                self.go_on()?;
                round()
            })
            .collect()
    }

    fn machine(&mut self, data: &[u8]) -> Result<()> {
        for team in &self.teams {
            let rates = self.rounds(|| Ok(machine::reading(team, data)))?;
            let line = Line::plain(
                format!("memory.{}", team.count()),
                format!("Reading memory, {team}"),
                median(rates.iter().copied()),
                Unit::Rate,
            )
            .between(rates);
            self.report.lines.push(line);
        }
        let one = &self.teams[0];
        let rates = self.rounds(|| Ok(machine::multiplying(one, self.level)))?;
        let name = "Multiply-adds in f32, 1 thread";
        let line = Line::plain("multiply-adds.1", name, median(rates), Unit::Flops);
        self.report.lines.push(line);
        Ok(())
    }

    fn disk(&mut self, path: &Path) -> Result<()> {
        let disk = match Disk::open(path)? {
            Ok(disk) => disk,
            Err(why) => {
                self.report
                    .notes
                    .push(format!("The disk was not measured: {why}."));
                return Ok(());
            }
        };
        let rates = self.rounds(|| disk.rate())?;
        let name = "Reading the disk past the system's cache";
        self.report
            .lines
            .push(Line::plain("disk", name, median(rates), Unit::Rate));
        Ok(())
    }

    fn pager(
        &mut self,
        path: &Path,
        mut resident: Resident,
        threads: Option<usize>,
        says: &mut dyn FnMut(&str),
    ) -> Result<()> {
        self.report.lines.extend(hit_rates());
        let disk = Disk::open(path)?;
        let disk = match (disk, resident.in_memory()) {
            (Ok(disk), true) => disk,
            (Ok(_), false) => {
                let note = "The pager was not measured: that needs a model that also fits into memory, to tell what computing alone takes.";
                self.report.notes.push(note.to_owned());
                return Ok(());
            }
            (Err(why), _) => {
                self.report
                    .notes
                    .push(format!("The pager was not measured: {why}."));
                return Ok(());
            }
        };
        let rates = self.rounds(|| resident.rate(Test::Answer(ANSWER), self.stop))?;
        let prompts = (0..self.rounds.min(3))
            .map(|_| resident.seconds(Test::Prompt(SHORT_PROMPT), self.stop))
            .collect::<Result<Vec<_>>>()?;
        // Its memory is needed.
        drop(resident);
        let paged = Paged {
            path,
            threads,
            rounds: self.rounds,
            stop: self.stop,
            disk: &|| disk.rate(),
            resident: 1.0 / median(rates),
            prompt: median(prompts),
        };
        paged.lines(&mut self.report, says)
    }

    fn kernels(&mut self, data: &mut [u8], says: &mut dyn FnMut(&str)) -> Result<()> {
        for (format, id, name, bar) in PRODUCTS {
            says(&format!("Measuring {name} with one token"));
            format.fill(data);
            let mut product = Sample::one_token(format, self.level, data);
            for (number, team) in self.teams.iter().enumerate() {
                let rounds = self.rounds(|| Ok(product.against_reading(team)))?;
                let line = line(
                    format!("{id}.one.{}", team.count()),
                    format!("{name} times one token, {team}"),
                    &rounds,
                    Unit::Rate,
                );
                // The bars are for the whole machine.
                let whole = number + 1 == self.teams.len();
                self.report.lines.push(line.bar(bar.filter(|_| whole)));
            }
        }
        let (format, id, name, _) = PRODUCTS[0];
        let weights = &mut data[..Sample::many_tokens_bytes(format)];
        format.fill(weights);
        for tokens in [64, 512] {
            says(&format!("Measuring {name} with {tokens} tokens"));
            let mut product = Sample::many_tokens(format, self.level, weights, tokens);
            let rounds = self.rounds(|| Ok(product.against_multiplying(&self.teams[0])))?;
            let line = line(
                format!("{id}.{tokens}.1"),
                format!("{name} times {tokens} tokens, 1 thread"),
                &rounds,
                Unit::Flops,
            );
            self.report.lines.push(line.bar(Bar::least(0.6, 0.9)));
        }
        Ok(())
    }

    fn model(
        &mut self,
        resident: &mut Resident,
        data: &[u8],
        says: &mut dyn FnMut(&str),
    ) -> Result<()> {
        says("Measuring answers");
        let per_token = resident.about.bytes_per_token as f64 / 1e9;
        let all = &self.teams[self.teams.len() - 1];
        let rounds = self.rounds(|| {
            // Before and after, because an answer takes longer than a machine stays the same.
            let before = machine::reading(all, data);
            let done = resident.rate(Test::Answer(ANSWER), self.stop)?;
            let after = machine::reading(all, data);
            let limit = (before + after) / 2.0 / per_token;
            Ok(Round { done, limit })
        })?;
        let partly = (!resident.in_memory()).then(|| resident.experts_in_memory());
        let (decode, note) = answers(&rounds, partly.as_deref());
        self.report.notes.extend(note);
        says("Measuring prompts");
        let rates = self.rounds(|| resident.rate(Test::Prompt(PROMPT), self.stop))?;
        let name = format!("Reading a prompt of {PROMPT} tokens");
        self.report.lines.extend([
            decode,
            Line::plain("prefill", name, median(rates), Unit::Tokens),
        ]);
        Ok(())
    }

    /// Pairs of the same test with us and with the peer, in turns of who is first.
    fn peer(
        &mut self,
        resident: &mut Resident,
        command: &str,
        pairs: usize,
        says: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let mut results: Vec<(Test, Vec<Round>)> = Vec::new();
        for pair in 0..pairs {
            self.go_on()?;
            says(&format!("Running the peer, {} of {pairs}", pair + 1));
            // What is measured first of all is what the peer measures, so the first pair begins with it.
            let mut ours = Vec::new();
            if pair % 2 == 1 {
                for (test, _) in &results {
                    ours.push((*test, resident.rate(*test, self.stop)?));
                }
            }
            for Speed { test, rate } in peer::run(command, self.stop)? {
                self.go_on()?;
                let known = ours.iter().find(|(t, _)| *t == test).map(|(_, rate)| *rate);
                let done = match known {
                    Some(done) => done,
                    None => resident.rate(test, self.stop)?,
                };
                let round = Round { done, limit: rate };
                match results.iter_mut().find(|(t, _)| *t == test) {
                    Some((_, rounds)) => rounds.push(round),
                    None => results.push((test, vec![round])),
                }
            }
        }
        for (test, rounds) in results {
            let (id, name, bar) = match test {
                Test::Answer(n) => (
                    "answer",
                    format!("Writing {n} tokens"),
                    Bar::least(1.4, 1.7),
                ),
                Test::Prompt(n) => (
                    "prompt",
                    format!("Reading {n} tokens"),
                    Bar::least(1.6, 2.5),
                ),
            };
            let whole = line(
                format!("peer.{id}"),
                format!("{name}, of the peer's"),
                &rounds,
                Unit::Tokens,
            );
            let pairs = rounds.iter().enumerate().map(|(number, pair)| {
                let number = number + 1;
                let id = format!("peer.{id}.{number}");
                line(id, format!("  pair {number}"), &[*pair], Unit::Tokens)
            });
            self.report.lines.push(whole.bar(bar));
            self.report.lines.extend(pairs);
        }
        Ok(())
    }
}

/// What is multiplied in a model of this kind, with names for programs and for people, and the bar with one token.
const PRODUCTS: [(Format, &str, &str, Option<Bar>); 4] = [
    (
        Format::Mxfp4,
        "mxfp4",
        "Experts (MXFP4)",
        Bar::least(0.85, 0.95),
    ),
    (Format::Fp8, "fp8", "FP8 weights", Bar::least(0.85, 0.93)),
    (Format::Q8, "q8_0", "Q8_0 weights", Bar::least(0.85, 0.93)),
    (Format::Bf16, "bf16", "BF16 weights", None),
];

/// The line of answers. Where only part of the experts is in memory (so many, in words) an answer waits for the disk too: that is no measure of
/// how near the arithmetic comes to memory, and a note says so.
fn answers(rounds: &[Round], partly: Option<&str>) -> (Line, Option<String>) {
    let whole = line(
        "decode".into(),
        "Writing an answer".into(),
        rounds,
        Unit::Tokens,
    );
    let Some(some) = partly else {
        return (whole.bar(Bar::least(0.8, 0.9)), None);
    };
    let note = format!(
        "Only {some} fit into memory, so an answer waits for the disk as well and is not set beside what memory allows."
    );
    let value = median(rounds.iter().map(|round| round.done));
    let alone = Line::plain(whole.id, whole.name, value, whole.unit);
    (alone, Some(note))
}

/// The line of some rounds: all three numbers are those of the round whose share is the median, the lower of two.
fn line(id: String, name: String, rounds: &[Round], unit: Unit) -> Line {
    let share = |round: &Round| round.done / round.limit;
    let mut sorted = rounds.to_vec();
    sorted.sort_by(|a, b| share(a).total_cmp(&share(b)));
    let between = rounds.iter().map(|round| round.limit);
    match sorted.get(sorted.len().saturating_sub(1) / 2) {
        Some(middle) => Line::plain(id, name, middle.done, unit)
            .of(middle.limit, share(middle))
            .between(between),
        None => Line::plain(id, name, f64::NAN, unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_two_numbers_beside_it() {
        let round = |done, limit| Round { done, limit };
        // Shares 0.5, 0.9, 0.25, 2 and 0.8: the medians of each column, 4 and 5, would be none of them.
        let rounds = [
            round(2.0, 4.0),
            round(9.0, 10.0),
            round(1.0, 4.0),
            round(10.0, 5.0),
            round(4.0, 5.0),
        ];
        for (some, expected) in [
            (&rounds[..], (4.0, Some(5.0), Some(0.8))),
            (&rounds[..4], (2.0, Some(4.0), Some(0.5))),
            (&rounds[..1], (2.0, Some(4.0), Some(0.5))),
        ] {
            let line = line("a".into(), "A".into(), some, Unit::Rate);
            assert_eq!((line.value, line.limit, line.share), expected);
        }
    }

    #[test]
    fn an_answer_that_waits_for_the_disk_is_not_set_beside_memory() {
        let round = |done, limit| Round { done, limit };
        let rounds = [round(8.0, 10.0), round(9.0, 10.0), round(6.0, 6.0)];
        let (line, note) = answers(&rounds, None);
        assert_eq!(
            (line.value, line.limit, line.share),
            (9.0, Some(10.0), Some(0.9))
        );
        assert!(line.bar.is_some() && note.is_none());
        let (line, note) = answers(&rounds, Some("5 of 192 experts"));
        assert_eq!((line.value, line.limit, line.share), (8.0, None, None));
        assert_eq!(line.bar, None);
        assert!(note.is_some_and(|note| note.starts_with("Only 5 of 192 experts fit into memory")));
    }
}
