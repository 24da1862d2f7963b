//! `fastar bench`: measures this computer with a model, which it makes for the purpose and removes again when none is given.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use fastar_bench::{Dense, Group, Options, Recipe, Report, Shape};
use fastar_kernels::dispatch::{self, Level};

use crate::arguments::{BenchOptions, DenseFormat, InstructionSet};
use crate::failure::Failure;
use crate::progress::Speed;
use crate::temporary::Temporary;
use crate::terminal::{Answers, Progress};
use crate::{interrupt, model, terminal};

/// Measures and prints one table. Ctrl+C stops it; a model that was made goes away then, too.
pub fn bench(options: &BenchOptions) -> Result<(), Failure> {
    interrupt::take_over()?;
    if let Some(level) = options.level {
        limit(level)?;
    }
    let mut progress = Progress::new();
    let report = interrupt::stops_work(|stop| measure(options, stop, &mut progress));
    progress.clear();
    let report = report?;
    if report.lines.is_empty() && !report.notes.is_empty() {
        // Who asked for this alone got nothing.
        return Err(Failure::Error(report.notes.join(" ")));
    }
    let text = if options.json {
        serde_json::to_string_pretty(&report)
            .map_err(|e| Failure::Error(format!("The result could not be made: {e}.")))?
            + "\n"
    } else {
        report.table(options.bars)
    };
    Answers::new().write(&text)
}

fn limit(level: InstructionSet) -> Result<(), Failure> {
    let level = match level {
        InstructionSet::Baseline => Level::Baseline,
        InstructionSet::Avx2 => Level::Avx2,
        InstructionSet::Avx512 => Level::Avx512,
    };
    if level.available() != level {
        return Err(Failure::Error(
            "This processor has no such instructions; leave --level out.".into(),
        ));
    }
    if !dispatch::limit(level) {
        return Err(Failure::Error(
            "The instruction set cannot be chosen any more; this is a defect of fastar.".into(),
        ));
    }
    Ok(())
}

fn measure(
    options: &BenchOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> Result<Report, Failure> {
    let groups = match options.only.as_slice() {
        [] => Group::ALL.map(|(group, _)| group).to_vec(),
        some => some.to_vec(),
    };
    if groups.contains(&Group::Peer) && options.peer.is_none() && !options.only.is_empty() {
        return Err(Failure::Usage(
            "What should be compared with? Give --peer COMMAND.".into(),
        ));
    }
    if options.peer.is_some() && !groups.contains(&Group::Peer) {
        return Err(Failure::Usage(
            "--peer has no effect with this --only; add --only peer, or leave --peer out.".into(),
        ));
    }
    let measured = Options {
        groups,
        threads: options.threads,
        rounds: options.rounds,
        peer: options.peer.clone().map(|command| (command, options.pairs)),
    };
    let needs_model = measured.groups.iter().any(|group| group.needs_model());
    if !needs_model && (options.keep || options.folder.is_some()) {
        return Err(Failure::Usage(
            "--keep and --folder have no effect with this --only, which needs no model; leave them out, or measure more.".into(),
        ));
    }
    let given = options.model.as_deref().map(model::called).transpose()?;
    match &given {
        _ if !needs_model => run(None, &measured, stop, progress),
        Some(file) => run(Some(file), &measured, stop, progress),
        None if options.keep => {
            let file = kept(options)?;
            make(options, &file, stop, progress)?;
            terminal::note(&format!("fastar: The model stays at {}.", file.display()));
            run(Some(&file), &measured, stop, progress)
        }
        None => {
            let folder = Temporary::new(&folder(options))?;
            let path = folder.path().to_owned();
            interrupt::removes(&path, || {
                let file = path.join(name(options));
                let report = make(options, &file, stop, progress)
                    .and_then(|()| run(Some(&file), &measured, stop, progress));
                drop(folder);
                report
            })
        }
    }
}

fn run(
    model: Option<&Path>,
    options: &Options,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> Result<Report, Failure> {
    let mut says = |text: &str| progress.show_now(text);
    Ok(fastar_bench::run(model, options, stop, &mut says)?)
}

fn name(options: &BenchOptions) -> String {
    match options.dense {
        DenseFormat::Fp8 => format!("{}-fp8.fst", options.shape),
        DenseFormat::Q8 => format!("{}-q8_0.fst", options.shape),
    }
}

fn folder(options: &BenchOptions) -> PathBuf {
    options.folder.clone().unwrap_or_else(on_the_disk)
}

/// Where a model is made that is to stay.
fn kept(options: &BenchOptions) -> Result<PathBuf, Failure> {
    let file = folder(options).join(name(options));
    match file.exists() {
        true => Err(Failure::Error(format!(
            "{} is there already; measure it with --model, or remove it.",
            file.display()
        ))),
        false => Ok(file),
    }
}

/// The usual folder for temporary files is in memory on many systems, and a model is large.
fn on_the_disk() -> PathBuf {
    let on_disk = Path::new("/var/tmp");
    if cfg!(unix) && std::env::var_os("TMPDIR").is_none() && on_disk.is_dir() {
        return on_disk.to_owned();
    }
    std::env::temp_dir()
}

fn make(
    options: &BenchOptions,
    file: &Path,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let shape = Shape::named(&options.shape)
        .ok_or_else(|| Failure::Usage(format!("There is no shape {:?}.", options.shape)))?;
    let dense = match options.dense {
        DenseFormat::Fp8 => Dense::Fp8,
        DenseFormat::Q8 => Dense::Q8,
    };
    let recipe = Recipe {
        shape,
        dense,
        seed: 1,
    };
    let mut speed = Speed::default();
    fastar_bench::generate(&recipe, file, stop, &mut |done, all| {
        progress.show(|| format!("Making a model: {}", speed.line(done, all)));
    })?;
    Ok(())
}
