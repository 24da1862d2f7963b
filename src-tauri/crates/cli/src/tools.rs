//! `fastar convert` and `fastar inspect`.

use std::time::Instant;

use fastar_fst::{Checkpoint, Conversion, Start};

use crate::arguments::{ConvertOptions, InspectOptions};
use crate::failure::Failure;
use crate::terminal::{Answers, Progress};
use crate::{interrupt, terminal};

/// Makes a model file, or goes on making it. Ctrl+C stops it; what was done is kept.
pub fn convert(options: &ConvertOptions) -> Result<(), Failure> {
    interrupt::take_over()?;
    if options.restart && fastar_fst::discard_unfinished(&options.out)? {
        terminal::note("fastar: The unfinished conversion was removed.");
    }
    let mut checkpoint = Checkpoint::open(&options.checkpoint_dir)?;
    checkpoint.effort = options.effort;
    checkpoint.without_drafter = options.without_drafter;
    let mut conversion = Conversion::open(checkpoint, &options.out)?;
    for warning in conversion.warnings() {
        terminal::note(&format!("fastar: warning: {warning}"));
    }
    if *conversion.start() != Start::New {
        terminal::note(&format!("fastar: {}", conversion.start()));
    }
    let size = conversion.file_bytes();
    let mut progress = Progress::new();
    let converted = interrupt::stops_work(|cancel| {
        let mut speed = Speed::new();
        conversion.add_folder(&options.checkpoint_dir, cancel, &mut |shard, done, all| {
            progress.show(|| {
                let shard = terminal::harmless(shard);
                format!("Converting {shard}: {}", speed.line(done, all))
            });
        })?;
        let mut speed = Speed::new();
        conversion.finish(cancel, &mut |done, all| {
            progress.show(|| format!("Reading back: {}", speed.line(done, all)));
        })
    });
    progress.clear();
    stopped(
        converted,
        "what was converted is kept. The same command goes on; --restart begins anew.",
    )?;
    Answers::new().write(&format!(
        "Wrote {} ({size} bytes).\n",
        options.out.display()
    ))
}

/// Says what Ctrl+C has left.
fn stopped<T>(result: fastar_fst::Result<T>, kept: &str) -> Result<T, Failure> {
    match result {
        Err(fastar_fst::Error::Cancelled) => {
            terminal::note(&format!("fastar: Stopped; {kept}"));
            Err(Failure::Interrupted)
        }
        other => Ok(other?),
    }
}

/// How fast bytes go by, and how long the rest will take.
struct Speed {
    start: Option<(Instant, u64)>,
}

impl Speed {
    fn new() -> Self {
        Self { start: None }
    }

    /// `12 % of 156.0 GB, 850.2 MB/s, 2 min 41 s left`.
    fn line(&mut self, done: u64, all: u64) -> String {
        let (start, before) = *self.start.get_or_insert((Instant::now(), done));
        let mut text = format!("{} % of {}", share(done, all), fastar_fst::size(all));
        let seconds = start.elapsed().as_secs_f64();
        let bytes = done.saturating_sub(before) as f64;
        // The first moments say nothing about the rest.
        if seconds > 1.0 && bytes > 0.0 {
            let per_second = bytes / seconds;
            let left = all.saturating_sub(done) as f64 / per_second;
            text.push_str(&format!(
                ", {}/s, {} left",
                fastar_fst::size(per_second as u64),
                duration(left.ceil() as u64)
            ));
        }
        text
    }
}

/// Whole percent, 100 only when all is done.
fn share(done: u64, all: u64) -> u64 {
    (u128::from(done) * 100)
        .checked_div(u128::from(all))
        .map_or(100, |percent| percent.min(100) as u64)
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Says what is in a model file.
pub fn inspect(options: &InspectOptions) -> Result<(), Failure> {
    let about = fastar_fst::inspect(&options.file)?;
    let text = if options.json {
        let json = serde_json::to_string_pretty(&about)
            .map_err(|e| Failure::Error(format!("The description could not be made: {e}.")))?;
        format!("{json}\n")
    } else {
        about.to_string()
    };
    Answers::new().write(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_durations_are_read_at_a_glance() {
        assert_eq!(
            (share(0, 0), share(0, 3), share(2, 3), share(3, 3)),
            (100, 0, 66, 100)
        );
        assert_eq!(share(u64::MAX - 1, u64::MAX), 99);
        assert_eq!(duration(59), "59 s");
        assert_eq!(duration(61), "1 min 1 s");
        assert_eq!(duration(7260), "2 h 1 min");
    }
}
