//! `fastar download`, and `fastar repair` from the hub: the same work as in the app, in a terminal or for a program.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastar_api::{JobKind, JobPhase};
use fastar_app::install::{Installer, Survey};
use fastar_app::jobs::{Ended, Order, Report, Steering, Workshop};
use fastar_app::{Preferences, file_of};
use serde::Serialize;

use crate::arguments::{DownloadOptions, ProgressFormat};
use crate::failure::Failure;
use crate::progress::Speed;
use crate::terminal::{Answers, Progress};
use crate::{interrupt, terminal};

/// What is fetched when nothing is named: the newest version.
const RECOMMENDED: &str = "deepseek-ai/DeepSeek-V4-Flash-0731";
/// How often a log hears how far it is.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// Fetches a model. Ctrl+C stops it; the same command goes on.
pub fn download(options: &DownloadOptions) -> Result<(), Failure> {
    interrupt::take_over()?;
    let preferences = Preferences::read()?;
    let repository = options.repository.as_deref().unwrap_or(RECOMMENDED);
    fastar_hub::check_repo(repository)
        .and_then(|()| fastar_hub::check_revision(&options.revision))
        .map_err(|e| Failure::Error(e.to_string()))?;
    let folder = options.to.clone().unwrap_or(preferences.models_folder);
    let folder = std::path::absolute(&folder)
        .map_err(|e| Failure::Error(format!("{} cannot be used: {e}.", folder.display())))?;
    let mut order = Order {
        kind: JobKind::Download,
        folder,
        file: file_of(repository),
        title: repository.to_owned(),
        repository: repository.to_owned(),
        revision: options.revision.clone(),
        drafter: options.with_drafter,
    };
    let hub = preferences.hub;
    let host = host(&hub.endpoint).to_owned();
    let installer = Installer::new(move || hub.clone());
    let left = installer.leftover(&order.folder, &order.file);
    if let Some(begun) = left.as_ref().map(|left| &left.order)
        && (&begun.repository, &begun.revision) == (&order.repository, &order.revision)
    {
        // It goes on as it was begun.
        order.drafter |= begun.drafter;
    }
    if left.is_none() && order.path().exists() {
        return there_already(&order);
    }
    let steering = Arc::new(Steering::default());
    steering.set_limit(options.limit.or(preferences.bytes_per_second));
    match &left {
        Some(left) => {
            let all = left.total_bytes.map_or(String::new(), |all| {
                format!(" of {}", fastar_fst::size(all))
            });
            terminal::note(&format!(
                "fastar: Going on with {repository}: {}{all} there already.",
                fastar_fst::size(left.done_bytes)
            ));
        }
        None => agree(&installer, &order, &steering, &host, options.yes)?,
    }
    let json = options.progress == Some(ProgressFormat::Json);
    let outcome = work(&installer, &order, &steering, json)?;
    if let Some(said) = outcome {
        terminal::note(&format!("fastar: {said}"));
    }
    // A set of files has a folder of its own.
    let made = [order.path(), order.path().with_extension("")]
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| order.path());
    if json {
        return line(&serde_json::json!({"phase": "done", "path": made.display().to_string()}));
    }
    Answers::new().write(&format!(
        "{} is ready. Talk with it: fastar chat {} {}\n",
        repository,
        if made.is_dir() {
            "--model-dir"
        } else {
            "--model"
        },
        made.display()
    ))
}

/// Nothing to do if it is this model, else in the way.
fn there_already(order: &Order) -> Result<(), Failure> {
    let path = order.path();
    let about = fastar_fst::inspect(&path);
    if about.is_ok_and(|about| about.repository.as_deref() == Some(&order.repository)) {
        return Answers::new().write(&format!(
            "{} is there already. `fastar verify --full` checks it.\n",
            path.display()
        ));
    }
    Err(Failure::Error(format!(
        "{} is there already, and it is another model. Move it away, or choose another folder with --to.",
        path.display()
    )))
}

/// Mends a model file from the repository that it names.
pub fn repair(file: &Path) -> Result<(), Failure> {
    let preferences = Preferences::read()?;
    let path = std::path::absolute(file)
        .map_err(|e| Failure::Error(format!("{} cannot be used: {e}.", file.display())))?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
    else {
        return Err(Failure::Error(format!(
            "{} is not the path of a file.",
            file.display()
        )));
    };
    let order = Order {
        kind: JobKind::Repair,
        folder: folder.to_owned(),
        file: name.to_owned(),
        title: file.display().to_string(),
        repository: String::new(),
        revision: String::new(),
        drafter: true,
    };
    let steering = Arc::new(Steering::default());
    steering.set_limit(preferences.bytes_per_second);
    let hub = preferences.hub;
    let installer = Installer::new(move || hub.clone());
    let outcome = work(&installer, &order, &steering, false)?;
    match outcome {
        Some(said) => Answers::new().write(&format!("{said}\n")),
        None => Ok(()),
    }
}

/// Says what a new download would be and asks. Without a terminal only `yes` is a yes, and nothing is asked of the network before it.
fn agree(
    installer: &Installer,
    order: &Order,
    steering: &Arc<Steering>,
    host: &str,
    yes: bool,
) -> Result<(), Failure> {
    let unasked = |size: Option<String>| {
        let free = fastar_app::free_bytes(&order.folder).map_or(String::new(), |free| {
            format!(", where {} are free", fastar_fst::size(free))
        });
        format!(
            "Nothing was downloaded: {} {} and would go to {}{free}. Run this in a terminal, or add --yes.",
            order.repository,
            match size {
                Some(size) => format!("has {size}"),
                None => "may be large".to_owned(),
            },
            order.folder.display()
        )
    };
    if !yes && !terminal::can_ask() {
        return Err(Failure::Error(unasked(known_size(order))));
    }
    terminal::note(&format!("fastar: Looking for {host} ..."));
    let survey = interrupt::stops_job(steering, || installer.survey(order, steering));
    let survey = match survey {
        Err(_) if steering.is_stopped() => return Err(Failure::Interrupted),
        other => other?,
    };
    terminal::notes(&described(order, &survey));
    if let Some(free) = survey.free_bytes.filter(|free| *free < survey.peak_bytes) {
        return Err(Failure::Error(format!(
            "{} needs {} for a while, and {} has {} free. Free some space, or choose another folder with --to.",
            order.repository,
            fastar_fst::size(survey.peak_bytes),
            order.folder.display(),
            fastar_fst::size(free)
        )));
    }
    let size = fastar_fst::size(survey.download_bytes);
    if terminal::agreed(yes, "Download it?", &unasked(Some(size)))? {
        return Ok(());
    }
    Err(Failure::Error("Nothing was downloaded.".into()))
}

/// What the catalogue, which needs no network, knows of how much it is.
fn known_size(order: &Order) -> Option<String> {
    let entry = fastar_app::catalogue()
        .into_iter()
        .find(|entry| entry.repository == order.repository && order.revision == "main")?;
    let left_out = entry.drafter_bytes.filter(|_| !order.drafter).unwrap_or(0);
    let size = fastar_fst::size(entry.download_bytes.saturating_sub(left_out));
    Some(if entry.approximate {
        format!("about {size}")
    } else {
        size
    })
}

/// The name of the computer in an address, without what may be secret in front of it.
fn host(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let rest = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    rest.rsplit_once('@').map_or(rest, |(_, host)| host)
}

fn described(order: &Order, survey: &Survey) -> String {
    let free = survey.free_bytes.map_or(String::new(), |free| {
        format!(", {} free there", fastar_fst::size(free))
    });
    format!(
        "{} at {}\n  {} to fetch in {} files\n  to {}{free}\n  at most {} on the disk while it is made",
        order.repository,
        survey.revision,
        fastar_fst::size(survey.download_bytes),
        survey.files,
        order.path().display(),
        fastar_fst::size(survey.peak_bytes),
    )
}

/// Does it, and shows how far it is.
fn work(
    installer: &Installer,
    order: &Order,
    steering: &Arc<Steering>,
    json: bool,
) -> Result<Option<String>, Failure> {
    let mut show = Show {
        progress: Progress::new(),
        speed: Speed::default(),
        noted: Instant::now(),
        total: None,
        trouble: None,
        json,
    };
    let ended = interrupt::stops_job(steering, || {
        installer.work(order, steering, &mut |report| {
            show.report(&report);
        })
    });
    show.progress.clear();
    match ended {
        Ok(Ended::Done(outcome)) => Ok(outcome),
        Ok(Ended::Stopped) => {
            terminal::note("fastar: Stopped; everything so far is kept. The same command goes on.");
            Err(Failure::Interrupted)
        }
        Err(error) => Err(error.into()),
    }
}

struct Show {
    progress: Progress,
    speed: Speed,
    noted: Instant,
    total: Option<u64>,
    /// What it waited for last.
    trouble: Option<String>,
    json: bool,
}

/// A line for a program.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    phase: &'a JobPhase,
    done_bytes: u64,
    total_bytes: Option<u64>,
    bytes_per_second: Option<f64>,
    seconds_left: Option<u64>,
}

impl Show {
    fn report(&mut self, report: &Report) {
        let all = report.total_bytes.unwrap_or(0);
        if report.total_bytes != self.total {
            // Another count begins: what is there from before did not arrive now.
            self.total = report.total_bytes;
            self.speed = Speed::default();
        }
        if self.json {
            let (bytes_per_second, seconds_left) = self.speed.numbers(report.done_bytes, all);
            // The download does not depend on anybody listening.
            let _ = line(&Line {
                phase: &report.phase,
                done_bytes: report.done_bytes,
                total_bytes: report.total_bytes,
                bytes_per_second,
                seconds_left,
            });
            return;
        }
        let text = match report.total_bytes {
            Some(all) => self.speed.line(report.done_bytes, all),
            None => String::new(),
        };
        let text = match &report.phase {
            JobPhase::Resolving => "Asking the hub".to_owned(),
            JobPhase::Downloading => format!("Downloading: {text}"),
            JobPhase::Stalled { seconds } => {
                format!("Nothing has arrived for {seconds} s, connecting anew: {text}")
            }
            JobPhase::Retrying { seconds, reason } => {
                let far = if text.is_empty() {
                    text
                } else {
                    format!(": {text}")
                };
                format!("{reason}; again in {seconds} s{far}")
            }
            JobPhase::Converting => format!("Putting it into the model file: {text}"),
            JobPhase::Verifying => format!("Checking: {text}"),
            JobPhase::Copying => format!("Copying: {text}"),
            JobPhase::Stopping => "Stopping".to_owned(),
        };
        let trouble = match &report.phase {
            JobPhase::Retrying { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        // Once for each reason, and now and then how far it is.
        let new_trouble = trouble.is_some() && trouble != self.trouble;
        if trouble.is_some() || report.phase == JobPhase::Downloading {
            self.trouble = trouble;
        }
        if !terminal::is_watched() && (new_trouble || self.noted.elapsed() >= NOTE_EVERY) {
            self.noted = Instant::now();
            terminal::note(&format!("fastar: {text}"));
        }
        self.progress
            .show(|| terminal::harmless(&text).into_owned());
    }
}

fn line(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|e| Failure::Error(format!("The progress could not be written: {e}.")))?;
    Answers::new().write(&format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_without_secrets() {
        for (address, name) in [
            ("https://huggingface.co", "huggingface.co"),
            ("http://127.0.0.1:80/hf?a", "127.0.0.1:80"),
            ("https://me:secret@mirror.example/", "mirror.example"),
            ("mirror.example/hf", "mirror.example"),
        ] {
            assert_eq!(host(address), name);
        }
    }

    #[test]
    fn a_line_for_a_program_says_the_phase_and_the_numbers() {
        let line = Line {
            phase: &JobPhase::Retrying {
                seconds: 3,
                reason: "the hub does not answer".into(),
            },
            done_bytes: 5,
            total_bytes: Some(10),
            bytes_per_second: None,
            seconds_left: None,
        };
        let expected = serde_json::json!({
            "phase": "retrying", "seconds": 3, "reason": "the hub does not answer", "done_bytes": 5,
            "total_bytes": 10, "bytes_per_second": null, "seconds_left": null
        });
        assert_eq!(serde_json::to_value(&line).ok(), Some(expected));
    }
}
