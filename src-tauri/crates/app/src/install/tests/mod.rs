//! The work of jobs, with a small checkpoint on a hub on this computer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod check;
mod converted;
mod disk;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fastar_api::{ErrorCode, JobKind, JobPhase};
use fastar_fst::{Checkpoint, Conversion};
use fastar_testkit::hub::{COMMIT, Fault, HubServer};
use fastar_testkit::{Kind, Original, Synthetic, original_checkpoint};
use tempfile::TempDir;

use super::Installer;
use crate::jobs::{Ended, Order, Report, Steering, Workshop};
use crate::library;

const REPO: &str = "deepseek-ai/DeepSeek-V4-Flash-0731";

/// A small checkpoint on a hub, and a folder to bring it into.
struct Scene {
    source: TempDir,
    models: TempDir,
    hub: HubServer,
    installer: Arc<Installer>,
}

fn folder_files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

impl Scene {
    fn new() -> Self {
        let source = tempfile::tempdir().unwrap();
        Synthetic::small(Kind::DSpark)
            .save(source.path(), &mut |_, _| {})
            .unwrap();
        Self::of(source)
    }

    fn of(source: TempDir) -> Self {
        let files = folder_files(source.path());
        let files: Vec<_> = files
            .iter()
            .map(|(name, bytes)| (name.as_str(), bytes.clone()))
            .collect();
        let hub = HubServer::start(REPO, "", &files);
        let endpoint = hub.endpoint();
        let installer = Installer::new(move || fastar_hub::Settings {
            endpoint: endpoint.clone(),
            first_wait: Duration::from_millis(10),
            longest_wait: Duration::from_millis(50),
            ..fastar_hub::Settings::default()
        });
        Self {
            source,
            models: tempfile::tempdir().unwrap(),
            hub,
            installer: Arc::new(installer),
        }
    }

    fn order(&self) -> Order {
        Order {
            kind: JobKind::Download,
            folder: self.models.path().to_owned(),
            file: "flash.fst".into(),
            title: "Flash".into(),
            repository: REPO.into(),
            revision: "main".into(),
            drafter: true,
        }
    }

    fn out(&self) -> PathBuf {
        self.models.path().join("flash.fst")
    }

    fn download(&self) -> PathBuf {
        self.models.path().join("flash.download")
    }

    fn work(&self) -> Result<Ended, fastar_api::ApiError> {
        self.installer
            .work(&self.order(), &Steering::default(), &mut |_| {})
    }

    /// Works until `stop` says so of a report.
    fn work_until(
        &self,
        order: &Order,
        mut stop: impl FnMut(&Report) -> bool,
    ) -> Result<Ended, fastar_api::ApiError> {
        let steering = Steering::default();
        self.installer.work(order, &steering, &mut |report| {
            if stop(&report) {
                steering.stop();
            }
        })
    }

    /// What a conversion of the local folder makes of it, under the name that the hub gives it.
    fn expected(&self, drafter: bool) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("expected.fst");
        let mut checkpoint = Checkpoint::open(self.source.path()).unwrap();
        checkpoint.repository = Some(REPO.into());
        checkpoint.revision = Some(COMMIT.into());
        checkpoint.without_drafter = !drafter;
        let go_on = AtomicBool::new(false);
        let mut conversion = Conversion::open(checkpoint, &out).unwrap();
        conversion
            .add_folder(self.source.path(), &go_on, &mut |_, _, _| {})
            .unwrap();
        conversion.finish(&go_on, &mut |_, _| {}).unwrap();
        fs::read(out).unwrap()
    }

    fn shard_bytes(&self) -> u64 {
        folder_files(self.source.path())
            .iter()
            .filter(|(name, _)| name.ends_with(".safetensors"))
            .map(|(_, bytes)| bytes.len() as u64)
            .sum()
    }

    fn assert_only_the_model(&self) {
        let names: Vec<_> = folder_files(self.models.path())
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["flash.fst"]);
    }
}
