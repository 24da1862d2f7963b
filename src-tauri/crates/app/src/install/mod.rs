//! The work of jobs: fetching a model from the hub, checking a model file, mending it, and moving it to another folder.
//!
//! A checkpoint is converted while it arrives: each shard goes into the container as soon as it is whole and is removed then, so that the disk
//! holds the container and about two shards at most ([`download`]). Everything a download needs to go on is in its own folder beside the
//! container to be ([`unfinished`]), so that a kill, another program or another disk changes nothing. Not here: the list of jobs and when
//! they run ([`crate::jobs`]), the transfer itself (`fastar-hub`), and the container (`fastar-fst`).

mod check;
mod download;
mod moving;
mod remote;
mod set;
#[cfg(test)]
mod tests;
mod unfinished;
mod waiting;

use std::path::Path;

use fastar_api::{ApiError, JobKind, JobPhase};
use fastar_hub::Hub;

pub use remote::Survey;

use crate::error::Error;
use crate::jobs::{Ended, Leftover, Order, Report, Steering, Workshop};
use unfinished::Unfinished;

type Result<T> = std::result::Result<T, Error>;
/// Where reports go.
type Tell<'a> = &'a mut dyn FnMut(Report);

/// Does the real work.
pub struct Installer {
    settings: Box<dyn Fn() -> fastar_hub::Settings + Send + Sync>,
}

impl Installer {
    /// `settings` are asked for at the beginning of every work, so that changed ones count for the next.
    pub fn new(settings: impl Fn() -> fastar_hub::Settings + Send + Sync + 'static) -> Self {
        Self {
            settings: Box::new(settings),
        }
    }

    /// Asks the hub what a download would be, and the disk what it has room for. Writes nothing.
    ///
    /// # Errors
    /// What the hub says no to, as a sentence.
    pub fn survey(
        &self,
        order: &Order,
        steering: &Steering,
    ) -> std::result::Result<Survey, ApiError> {
        Ok(remote::survey(&self.hub()?, order, steering)?)
    }

    fn hub(&self) -> Result<Hub> {
        Ok(Hub::new((self.settings)())?)
    }

    /// For work that was agreed to: it asks for ever, and says that it does.
    fn patient_hub(&self) -> Result<Hub> {
        Ok(Hub::new(fastar_hub::Settings {
            tries: u32::MAX,
            ..(self.settings)()
        })?)
    }
}

impl Workshop for Installer {
    fn work(
        &self,
        order: &Order,
        steering: &Steering,
        report: &mut dyn FnMut(Report),
    ) -> std::result::Result<Ended, ApiError> {
        let ended = match order.kind {
            JobKind::Download => download::download(&self.patient_hub()?, order, steering, report),
            JobKind::Verify => check::verify(order, steering, report),
            JobKind::Repair => check::repair(&self.patient_hub()?, order, steering, report),
            JobKind::Move => moving::move_model(order, steering, report),
        };
        match ended {
            Err(
                Error::Hub(fastar_hub::Error::Cancelled)
                | Error::Container(fastar_fst::Error::Cancelled),
            ) => Ok(Ended::Stopped),
            other => Ok(other?),
        }
    }

    fn leftover(&self, folder: &Path, file: &str) -> Option<Leftover> {
        unfinished::leftover(folder, file)
    }

    fn discard(&self, folder: &Path, file: &str) -> std::result::Result<(), ApiError> {
        Ok(Unfinished::discard(folder, file)?)
    }

    fn discard_move(&self, order: &Order) -> std::result::Result<(), ApiError> {
        Ok(moving::discard(order)?)
    }
}

/// A report with its numbers.
fn at(phase: JobPhase, done_bytes: u64, total_bytes: u64) -> Report {
    Report {
        phase,
        done_bytes,
        total_bytes: Some(total_bytes),
    }
}
