//! What was measured: lines for people and for programs.

use std::fmt::Write as _;

use serde::Serialize;

/// Unit of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// 10^9 bytes a second.
    #[serde(rename = "GB/s")]
    Rate,
    /// 10^9 operations a second; a multiply-add is two.
    #[serde(rename = "GFLOP/s")]
    Flops,
    /// Tokens a second.
    #[serde(rename = "tokens/s")]
    Tokens,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Bytes, shown as gigabytes.
    #[serde(rename = "bytes")]
    Bytes,
    /// One quantity over another.
    #[serde(rename = "ratio")]
    Ratio,
}

impl Unit {
    fn shown(self, value: f64) -> String {
        match self {
            Self::Rate => format!("{value:.2} GB/s"),
            Self::Flops => format!("{value:.1} GFLOP/s"),
            Self::Tokens => format!("{value:.2} tokens/s"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Bytes => format!("{:.2} GB", value / 1e9),
            Self::Ratio => format!("{value:.3}"),
        }
    }
}

/// A share above is not measured but the computer's change between two moments.
const MOST_SHARE: f64 = 1.02;
/// Most over least of what rounds find on a computer that does nothing else.
const MOST_SPREAD: f64 = 1.25;
const COSTS: &str = "Times and sizes are compared with the least they could be, × says how many times that they are; rates with the most.\n";
const ABOVE: &str = "A share above 100 % means that the computer became faster between the two measurements it is made of; measure again while nothing else runs.";

/// What the project wants of a line, for its developers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// What it has to be.
    pub must: f64,
    /// What it should be.
    pub stretch: Option<f64>,
    /// Less is better.
    pub less: bool,
}

impl Bar {
    /// At least so much.
    pub const fn least(must: f64, stretch: f64) -> Option<Self> {
        Some(Self {
            must,
            stretch: Some(stretch),
            less: false,
        })
    }

    /// At most so much.
    pub const fn most(must: f64, stretch: Option<f64>) -> Option<Self> {
        Some(Self {
            must,
            stretch,
            less: true,
        })
    }

    fn verdict(&self, value: f64) -> &'static str {
        let reaches = |bar: f64| {
            if self.less {
                value <= bar
            } else {
                value >= bar
            }
        };
        match self.stretch {
            Some(stretch) if reaches(stretch) => "reached, and the stretch",
            _ if reaches(self.must) => "reached",
            _ => "MISSED",
        }
    }

    fn shown(&self) -> String {
        match self.stretch {
            Some(stretch) => format!("{} ({stretch})", self.must),
            None => self.must.to_string(),
        }
    }
}

/// One measured thing.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Name for programs, which stays.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Of the round with the median share, or the median where there is no share.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
    /// What could be had at most in the same round, in the same unit; of products with many tokens what multiply-adds in `f32` could do, which
    /// arithmetic in eight bits may exceed.
    pub limit: Option<f64>,
    /// The ratio of the two.
    pub share: Option<f64>,
    /// The bar of the share, or of the value where there is no share.
    pub bar: Option<Bar>,
    /// Least and most of the limit over the rounds, or of the value where there is no limit; none where that was not told.
    pub between: Option<[f64; 2]>,
}

impl Line {
    /// Something that stands for itself.
    pub fn plain(id: impl Into<String>, name: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            value,
            unit,
            limit: None,
            share: None,
            bar: None,
            between: None,
        }
    }

    /// The same with what each round found.
    pub fn between(mut self, rounds: impl IntoIterator<Item = f64>) -> Self {
        self.between = rounds.into_iter().fold(None, |between, round| {
            let [least, most] = between.unwrap_or([round; 2]);
            Some([least.min(round), most.max(round)])
        });
        self
    }

    /// Less of it is better, and it is compared with the least there could be.
    fn is_cost(&self) -> bool {
        matches!(self.unit, Unit::Seconds | Unit::Bytes)
    }

    /// The same with what could be had at most, and the share of it.
    pub fn of(mut self, limit: f64, share: f64) -> Self {
        (self.limit, self.share) = (Some(limit), Some(share));
        self
    }

    /// The same with a bar.
    pub fn bar(mut self, bar: Option<Bar>) -> Self {
        self.bar = bar;
        self
    }
}

/// The machine and what it was measured with.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// Name of the processor, as far as the system tells.
    pub processor: String,
    /// Threads that computed.
    pub threads: usize,
    /// Instruction set that was used.
    pub level: String,
    /// Memory of the machine in bytes, as far as the system tells.
    pub memory: Option<u64>,
    /// The model, its size in bytes and what it reads for a token, where one was measured.
    pub model: Option<Model>,
    /// Version of this program.
    pub version: &'static str,
}

/// The model that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Size of its file.
    pub file_bytes: u64,
    /// Bytes of weights read for each token, early in a context.
    pub bytes_per_token: u64,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What with.
    pub about: About,
    /// Lines in order.
    pub lines: Vec<Line>,
    /// What could not be measured, sentences.
    pub notes: Vec<String>,
}

impl Report {
    /// The table; with `bars`, what the project wants of each line.
    pub fn table(&self, bars: bool) -> String {
        let mut text = self.head();
        let mut rows = vec![[
            String::new(),
            "measured".into(),
            "compared with".into(),
            "share".into(),
        ]];
        rows.extend(self.lines.iter().map(|line| {
            [
                line.name.clone(),
                line.unit.shown(line.value),
                line.limit.map_or(String::new(), |v| line.unit.shown(v)),
                line.share.map_or(String::new(), |s| match line.is_cost() {
                    true => format!("{s:.2} ×"),
                    false => format!("{:.0} %", 100.0 * s),
                }),
            ]
        }));
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths = [0, 1, 2, 3].map(width);
        let bar = |line: &Line| {
            let bar = line.bar?;
            let value = line.share.unwrap_or(line.value);
            Some(format!(
                "  {value:.3}; bar {}: {}",
                bar.shown(),
                bar.verdict(value)
            ))
        };
        for (number, row) in rows.iter().enumerate() {
            let [a, b, c, d] = widths;
            let mut line = format!(
                "{:<a$}  {:>b$}  {:>c$}  {:>d$}",
                row[0], row[1], row[2], row[3]
            );
            if let Some(text) = number.checked_sub(1).and_then(|n| bar(&self.lines[n]))
                && bars
            {
                line.push_str(&text);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        if self
            .lines
            .iter()
            .any(|line| line.is_cost() && line.share.is_some())
        {
            text.push_str(COSTS);
        }
        for note in &self.notes {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{note}");
        }
        text
    }

    /// What to think of the shares where the computer was not the same from round to round, a sentence; none where it was.
    pub fn uneven(&self) -> Option<String> {
        let spread = |line: &&Line| {
            line.between
                .filter(|[least, _]| *least > 0.0)
                .map_or(1.0, |[least, most]| most / least)
        };
        let above = self
            .lines
            .iter()
            // A pair with a peer is no share of what can be had, arithmetic in eight bits may well be faster than in f32, and times and
            // sizes are compared with the least they can be.
            .any(|line| {
                !line.id.starts_with("peer.")
                    && matches!(line.unit, Unit::Rate | Unit::Tokens)
                    && line.share > Some(MOST_SHARE)
            });
        let worst = self
            .lines
            .iter()
            .max_by(|a, b| spread(a).total_cmp(&spread(b)))
            .filter(|line| spread(line) > MOST_SPREAD);
        let changed = worst.and_then(|line| {
            let [least, most] = line.between?;
            let what = match line.limit {
                Some(_) => format!("what {} is compared with", line.name),
                None => line.name.clone(),
            };
            Some(format!(
                "This computer was uneven while it was measured: {what} went from {} to {}, so the shares are rough.",
                line.unit.shown(least),
                line.unit.shown(most)
            ))
        });
        match (changed, above) {
            (Some(changed), true) => Some(format!("{changed} {ABOVE}")),
            (Some(changed), false) => Some(changed),
            (None, true) => Some(ABOVE.to_owned()),
            (None, false) => None,
        }
    }

    fn head(&self) -> String {
        let about = &self.about;
        let memory = about.memory.map_or(String::new(), |bytes| {
            format!(", {} of memory", fastar_fst::size(bytes))
        });
        let threads = match about.threads {
            1 => "1 thread".to_owned(),
            n => format!("{n} threads"),
        };
        let mut text = format!("{}, {threads}, {}{memory}\n", about.processor, about.level);
        if let Some(model) = &about.model {
            let _ = writeln!(
                text,
                "{}, {}, of which {} are read for a token",
                model.name,
                fastar_fst::size(model.file_bytes),
                fastar_fst::size(model.bytes_per_token)
            );
        }
        text.push('\n');
        text
    }
}

#[cfg(test)]
impl Report {
    /// One with a line of each kind.
    pub fn example() -> Self {
        Self {
            about: About {
                processor: "Example CPU".into(),
                threads: 2,
                level: "AVX2".into(),
                memory: Some(24_000_000_000),
                model: Some(Model {
                    name: "flash6L32E".into(),
                    file_bytes: 5_140_000_000,
                    bytes_per_token: 1_990_000_000,
                }),
                version: "0",
            },
            lines: vec![
                Line::plain("memory", "Reading memory", 34.0, Unit::Rate),
                Line::plain("decode", "Writing an answer", 14.25, Unit::Tokens)
                    .of(17.0, 0.8379)
                    .bar(Bar::least(0.8, 0.9)),
                Line::plain("cost", "Processor time", 0.12, Unit::Ratio).bar(Bar::most(0.08, None)),
            ],
            notes: vec!["The disk was not measured.".into()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_from_top_to_bottom() {
        let expected = "\
Example CPU, 2 threads, AVX2, 24.0 GB of memory
flash6L32E, 5.1 GB, of which 2.0 GB are read for a token

                         measured   compared with  share
Reading memory         34.00 GB/s
Writing an answer  14.25 tokens/s  17.00 tokens/s   84 %
Processor time              0.120
The disk was not measured.
";
        assert_eq!(Report::example().table(false), expected);
    }

    #[test]
    fn what_costs_is_told_as_so_many_times_the_least() {
        let mut report = Report::example();
        report.lines.push(
            Line::plain("cold", "First token", 3.0, Unit::Seconds)
                .of(2.0, 1.5)
                .bar(Bar::most(1.3, None)),
        );
        let table = report.table(false);
        assert!(
            table.contains("  3.00 s          2.00 s  1.50 ×\nTimes and sizes"),
            "{table}"
        );
    }

    #[test]
    fn an_uneven_computer_is_told() {
        let mut report = Report::example();
        assert_eq!(report.uneven(), None);
        report.lines[0].between = Some([33.0, 34.5]);
        report.lines[1].share = Some(1.02);
        assert_eq!(report.uneven(), None);
        report.lines[1].share = Some(1.03);
        assert_eq!(report.uneven().as_deref(), Some(ABOVE));
        report.lines[0] = report.lines[0].clone().between([40.0, 33.0, 62.0]);
        let note = report.uneven().unwrap_or_default();
        assert!(
            note.contains("Reading memory went from 33.00 GB/s to 62.00 GB/s"),
            "{note}"
        );
        assert!(note.ends_with(ABOVE), "{note}");
        report.lines[1].share = Some(0.9);
        assert!(report.uneven().is_some_and(|note| note.ends_with("rough.")));
        // Eight bits may well be faster than f32, ...
        report.lines[0].between = None;
        report.lines[1].share = Some(2.78);
        report.lines[1].unit = Unit::Flops;
        assert_eq!(report.uneven(), None);
        // ... what takes time takes longer than it has to, ...
        for unit in [Unit::Seconds, Unit::Bytes, Unit::Ratio] {
            report.lines[1].unit = unit;
            assert_eq!(report.uneven(), None);
        }
        report.lines[1].unit = Unit::Rate;
        assert_eq!(report.uneven().as_deref(), Some(ABOVE));
        // ... and a peer slower.
        report.lines[1].share = Some(1.7);
        report.lines[1].id = "peer.answer".into();
        assert_eq!(report.uneven(), None);
    }

    #[test]
    fn developers_see_the_bars() {
        let table = Report::example().table(true);
        assert!(
            table.contains("84 %  0.838; bar 0.8 (0.9): reached\n"),
            "{table}"
        );
        assert!(table.contains("0.120; bar 0.08: MISSED\n"), "{table}");
    }

    #[test]
    fn a_bar_is_reached_from_its_side() {
        let least = Bar::least(0.8, 0.9).unwrap_or_else(|| unreachable!());
        let most = Bar::most(1.3, Some(1.15)).unwrap_or_else(|| unreachable!());
        let verdicts = |bar: &Bar, values: [f64; 3]| values.map(|value| bar.verdict(value));
        let all = ["MISSED", "reached", "reached, and the stretch"];
        assert_eq!(verdicts(&least, [0.79, 0.8, 0.9]), all);
        assert_eq!(verdicts(&most, [1.31, 1.3, 1.15]), all);
        // What could not be computed has not reached anything.
        assert_eq!(least.verdict(f64::NAN), "MISSED");
        assert_eq!(most.verdict(f64::NAN), "MISSED");
    }
}
