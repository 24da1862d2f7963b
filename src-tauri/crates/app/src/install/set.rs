//! Fetching model files that are containers already: the set that the original FaStar published.
//!
//! Its files belong together (a main file, sidecars, a drafter, tokenizer.json) and keep their names, so they get a folder of their own,
//! `NAME`, which appears only when all of them are there.

use std::fs::{self, File};

use fastar_hub::{Event, Hub, Options, RemoteFile, Snapshot};

use super::download::phase;
use super::unfinished::{Record, Unfinished};
use super::{Result, Tell, at};
use crate::error::Error;
use crate::jobs::{Ended, Order, Steering};
use crate::library::{CONTAINER, set};

/// Whether the repository holds containers instead of a checkpoint.
pub(super) fn is_set(snapshot: &Snapshot) -> bool {
    let ends = |ending: &str| {
        snapshot
            .files
            .iter()
            .any(|file| file.path.ends_with(ending))
    };
    ends(CONTAINER) && !ends(".safetensors")
}

/// The files at the top of the repository that are part of the model.
pub(super) fn wanted(snapshot: &Snapshot, drafter: bool) -> Vec<&RemoteFile> {
    snapshot
        .files
        .iter()
        .filter(|file| !file.path.contains('/') && set::is_part(&file.path))
        .filter(|file| drafter || file.path != set::DRAFT)
        .collect()
}

pub(super) fn download(
    hub: &Hub,
    order: &Order,
    unfinished: &Unfinished,
    record: &mut Record,
    steering: &Steering,
    tell: Tell<'_>,
) -> Result<Ended> {
    let folder = set::folder_of(&order.folder, &order.file);
    if folder.exists() {
        return Err(Error::Occupied(format!(
            "{} is there already. Move it away or choose another folder.",
            folder.display()
        )));
    }
    let files: Vec<RemoteFile> = wanted(&record.snapshot, order.drafter)
        .into_iter()
        .cloned()
        .collect();
    record.wanted = files.iter().map(|file| file.path.clone()).collect();
    unfinished.save(record)?;
    hub.fetch_set(
        &files,
        &unfinished.files(),
        &Options::default(),
        steering.transfer(),
        |event| {
            if let Event::Progress(progress) = event {
                tell(at(phase(&progress, false), progress.done, progress.total));
            }
        },
    )?;
    unfinished.become_folder(&folder)?;
    if let Ok(parent) = File::open(&order.folder) {
        // A power cut may otherwise bring the old name back, which the next start mends.
        let _ = parent.sync_all();
    }
    // Whether the files fit each other is said now rather than when the model is used.
    for file in fs::read_dir(&folder).map_err(Error::file(&folder))? {
        let path = file.map_err(Error::file(&folder))?.path();
        if path.extension().is_some_and(|ending| ending == "fst")
            && fastar_fst::draft(&path)?.is_none()
        {
            fastar_fst::inspect(&path)?;
        }
    }
    Ok(Ended::Done(None))
}
