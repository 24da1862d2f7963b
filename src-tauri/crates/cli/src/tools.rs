//! `fastar convert`, `upgrade`, `inspect`, `verify` and `repair`.

use std::path::Path;

use fastar_fst::{Checkpoint, CheckpointFolder, Conversion, Depth, Remedy, Report, Start};

use crate::arguments::{
    ConvertOptions, InspectOptions, RepairOptions, UpgradeOptions, VerifyOptions,
};
use crate::failure::Failure;
use crate::progress::Speed;
use crate::terminal::{Answers, Progress};
use crate::{download, interrupt, model, terminal};

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
        let mut speed = Speed::default();
        conversion.add_folder(&options.checkpoint_dir, cancel, &mut |shard, done, all| {
            progress.show(|| {
                let shard = terminal::harmless(shard);
                format!("Converting {shard}: {}", speed.line(done, all))
            });
        })?;
        let mut speed = Speed::default();
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

/// Says whether a model file is whole.
pub fn verify(options: &VerifyOptions) -> Result<(), Failure> {
    interrupt::take_over_for_pieces()?;
    let file = model::called(&options.file)?;
    let depth = if options.full {
        Depth::Full
    } else {
        Depth::Structure
    };
    let report = read_through(&file, depth)?;
    let mut text = String::new();
    if options.json {
        text = serde_json::to_string_pretty(&report)
            .map_err(|e| Failure::Error(format!("The result could not be made: {e}.")))?;
        text.push('\n');
    } else {
        for damage in &report.damaged {
            text.push_str(&format!("Damaged: {damage}\n"));
        }
        for sentence in &report.suspicious {
            text.push_str(&format!("Suspicious: {sentence}\n"));
        }
        if report.is_good() {
            let read = fastar_fst::size(report.checked_bytes);
            text = if options.full {
                format!("{} is whole: {read} read.\n", file.display())
            } else {
                format!(
                    "The structure of {} is right. --full also reads the weights.\n",
                    file.display()
                )
            };
        }
    }
    Answers::new().write(&text)?;
    if report.is_good() {
        return Ok(());
    }
    let name = file.display();
    let parts = match report.damaged.len() {
        0 => {
            return Err(Failure::Error(format!(
                "{name} is as it was made, but its weights cannot be right."
            )));
        }
        1 => "1 damaged part".to_owned(),
        n => format!("{n} damaged parts"),
    };
    let remedy = Remedy::of(&file)?.told(&file, report.damaged.len());
    Err(Failure::Error(format!("{name} has {parts}. {remedy}")))
}

/// Mends a model file from a checkpoint folder, or else from the repository it names.
pub fn repair(options: &RepairOptions) -> Result<(), Failure> {
    match options.from {
        Some(_) => interrupt::take_over_for_pieces()?,
        None => interrupt::take_over()?,
    }
    let file = model::called(&options.file)?;
    let Some(from) = &options.from else {
        return download::repair(&file);
    };
    let mut source = CheckpointFolder::open(from)?;
    let report = read_through(&file, Depth::Full)?;
    let mut progress = Progress::new();
    let repaired = interrupt::stops_work(|cancel| {
        let mut speed = Speed::default();
        fastar_fst::repair(
            &file,
            &report.damaged,
            &mut source,
            cancel,
            &mut |done, all| {
                progress.show(|| format!("Repairing: {}", speed.line(done, all)));
            },
        )
    });
    progress.clear();
    stopped(
        repaired,
        "what was mended is kept. The same command goes on.",
    )?;
    let name = file.display();
    Answers::new().write(&match report.damaged.len() {
        0 => format!("Nothing to mend in {name}.\n"),
        1 => format!("Mended {} in {name}.\n", report.damaged[0].part),
        n => format!("Mended {n} parts of {name}.\n"),
    })
}

fn read_through(file: &Path, depth: Depth) -> Result<Report, Failure> {
    let mut progress = Progress::new();
    let verified = interrupt::stops_work(|cancel| {
        let mut speed = Speed::default();
        fastar_fst::verify(file, depth, cancel, &mut |done, all| {
            progress.show(|| format!("Checking: {}", speed.line(done, all)));
        })
    });
    progress.clear();
    stopped(verified, "nothing was changed.")
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

/// Makes a container as this version writes them of an older one. Ctrl+C stops it; in place the same command goes on.
pub fn upgrade(options: &UpgradeOptions) -> Result<(), Failure> {
    interrupt::take_over()?;
    let file = model::called(&options.file)?;
    let mut progress = Progress::new();
    let upgraded = interrupt::stops_work(|cancel| {
        let mut speed = Speed::default();
        fastar_fst::upgrade(&file, options.out.as_deref(), cancel, &mut |done, all| {
            progress.show(|| format!("Upgrading: {}", speed.line(done, all)));
        })
    });
    progress.clear();
    let kept = match &options.out {
        Some(_) => "nothing was written.",
        None => "what was done is kept. The same command goes on.",
    };
    let upgraded = stopped(upgraded, kept)?;
    let from = file.display();
    match (&options.out, upgraded) {
        (out, true) => {
            let made = out.as_ref().unwrap_or(&file).display();
            Answers::new().write(&format!("Upgraded: {made} is version 3.\n"))
        }
        (None, false) => {
            Answers::new().write(&format!("Nothing to do: {from} is version 3 already.\n"))
        }
        // Whoever goes on with that file would not find it.
        (Some(out), false) => Err(Failure::Error(format!(
            "{from} is version 3 already and needs no upgrade, so {} was not made. Use {from} as it is, or copy it.",
            out.display()
        ))),
    }
}

/// Says what is in a model file.
pub fn inspect(options: &InspectOptions) -> Result<(), Failure> {
    let file = model::called(&options.file)?;
    let json = |about: serde_json::Result<String>| {
        about
            .map(|json| format!("{json}\n"))
            .map_err(|e| Failure::Error(format!("The description could not be made: {e}.")))
    };
    let text = match fastar_fst::draft(&file)? {
        Some(draft) if options.json => json(serde_json::to_string_pretty(&draft))?,
        Some(draft) => draft.describe(),
        None => {
            let about = fastar_fst::inspect(&file)?;
            if options.json {
                json(serde_json::to_string_pretty(&about))?
            } else {
                about.to_string()
            }
        }
    };
    Answers::new().write(&text)
}
