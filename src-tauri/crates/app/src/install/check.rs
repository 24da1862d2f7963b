//! Reading a model file whole, and mending it from the repository it was made of.

use std::io;

use fastar_api::JobPhase;
use fastar_fst::{Depth, Remedy, RemoteCheckpoint};
use fastar_hub::{Hub, RemoteFile};

use super::{Result, Tell, at, remote};
use crate::error::Error;
use crate::jobs::{Ended, Order, Report, Steering};
use crate::library::set;

pub(super) fn verify(order: &Order, steering: &Steering, tell: Tell<'_>) -> Result<Ended> {
    let report = read_through(order, steering, tell)?;
    if !report.damaged.is_empty() {
        return Err(Error::ModelDamaged {
            name: order.title.clone(),
            parts: report.damaged.len(),
            can_be_fetched: remedy(order)? == Remedy::Repository,
            details: report
                .damaged
                .iter()
                .take(20)
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n"),
        });
    }
    if !report.suspicious.is_empty() {
        return Err(Error::BadRequest(format!(
            "{} is as it was made, but its weights cannot be right. {}",
            order.title,
            report.suspicious.join(" ")
        )));
    }
    Ok(Ended::Done(Some(format!(
        "Every weight is as it was made: {} read.",
        fastar_fst::size(report.checked_bytes)
    ))))
}

/// What helps this model where it is damaged.
fn remedy(order: &Order) -> Result<Remedy> {
    Ok(Remedy::of(&set::path_of(&order.folder, &order.file))?)
}

fn read_through(order: &Order, steering: &Steering, tell: Tell<'_>) -> Result<fastar_fst::Report> {
    Ok(fastar_fst::verify(
        &set::path_of(&order.folder, &order.file),
        Depth::Full,
        steering.flag(),
        &mut |done, all| tell(at(JobPhase::Verifying, done, all)),
    )?)
}

pub(super) fn repair(
    hub: &Hub,
    order: &Order,
    steering: &Steering,
    tell: Tell<'_>,
) -> Result<Ended> {
    let path = set::path_of(&order.folder, &order.file);
    let report = read_through(order, steering, tell)?;
    if report.damaged.is_empty() {
        return Ok(Ended::Done(Some(format!(
            "Nothing to mend in {}.",
            order.title
        ))));
    }
    let Some((repository, revision)) = fastar_fst::made_from(&path)? else {
        let remedy = remedy(order)?.told(&path, report.damaged.len());
        return Err(Error::BadRequest(format!(
            "{} is damaged. {remedy}",
            order.title
        )));
    };
    tell(Report {
        phase: JobPhase::Resolving,
        done_bytes: 0,
        total_bytes: None,
    });
    let snapshot = hub.snapshot(&repository, &revision, steering.transfer())?;
    // Headers and small files only, forgotten afterwards.
    let kept = tempfile::tempdir().map_err(Error::file(&std::env::temp_dir()))?;
    let checkpoint =
        remote::checkpoint(hub, &snapshot, true, (kept.path(), kept.path()), steering)?;
    let files: Vec<RemoteFile> = snapshot.files;
    let mut source = RemoteCheckpoint::new(checkpoint, |shard, range| {
        let file = files.iter().find(|file| file.path == shard);
        let file = file.ok_or_else(|| io::Error::other("the repository has no such file"))?;
        hub.read(file, range, steering.transfer())
            .map_err(io::Error::other)
    })?;
    fastar_fst::repair(
        &path,
        &report.damaged,
        &mut source,
        steering.flag(),
        &mut |done, all| tell(at(JobPhase::Downloading, done, all)),
    )?;
    Ok(Ended::Done(Some(match report.damaged.len() {
        1 => format!("One damaged part of {} was fetched again.", order.title),
        parts => format!(
            "{parts} damaged parts of {} were fetched again.",
            order.title
        ),
    })))
}
