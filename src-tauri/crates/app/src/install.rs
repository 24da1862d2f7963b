//! The real work of jobs: fetching a model from the hub and making its container meanwhile, checking, and repairing.
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fastar_api::ApiError;

use crate::jobs::{Ended, Leftover, Order, Report, Steering, Workshop};
use crate::settings::Settings;

pub(crate) struct Installer {
    settings: Arc<Mutex<Settings>>,
    data: PathBuf,
}

impl Installer {
    pub(crate) fn new(settings: Arc<Mutex<Settings>>, data: &Path) -> Self {
        Self {
            settings,
            data: data.to_path_buf(),
        }
    }
}

impl Workshop for Installer {
    fn work(&self, _: &Order, _: &Steering, _: &mut dyn FnMut(Report)) -> Result<Ended, ApiError> {
        let _ = crate::downloads::access(&crate::error::lock(&self.settings), &self.data);
        Err(crate::unsupported("not yet"))
    }
    fn leftover(&self, _: &Path, _: &str) -> Option<Leftover> {
        None
    }
    fn discard(&self, _: &Path, _: &str) -> Result<(), ApiError> {
        Ok(())
    }
}
