//! Jobs in the database: what was ordered and how it stands, so that nothing is forgotten when the process ends.

use std::sync::Arc;

use fastar_api::{Job, JobState};
use rusqlite::params;

use super::work::Order;
use crate::chats::Chats;
use crate::error::Result;

/// A job as it is saved.
pub(super) struct Saved {
    pub(super) order: Order,
    pub(super) job: Job,
}

pub(super) struct Rows(Arc<Chats>);

impl Rows {
    pub(super) fn new(chats: Arc<Chats>) -> Self {
        Self(chats)
    }

    /// All jobs, the newest first. Rows that a newer version wrote in a way this one does not understand are left alone.
    pub(super) fn all(&self) -> Result<Vec<Saved>> {
        let texts: Vec<(String, String)> = self.0.read(|connection| {
            connection
                .prepare_cached("SELECT work, job FROM jobs ORDER BY created_at DESC, id DESC")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })?;
        Ok(texts
            .into_iter()
            .filter_map(|(order, job)| {
                Some(Saved {
                    order: serde_json::from_str(&order).ok()?,
                    job: serde_json::from_str(&job).ok()?,
                })
            })
            .collect())
    }

    /// Writes a job as it now is; the file is told of its state in a column of its own too, for whoever looks into it.
    pub(super) fn save(&self, order: &Order, job: &Job) -> Result<()> {
        let state = match job.state {
            JobState::Queued => "queued",
            JobState::Running => "running",
            JobState::Paused => "paused",
            JobState::Failed => "failed",
            JobState::Done => "done",
            JobState::Cancelled => "cancelled",
        };
        let (Ok(order), Ok(text)) = (serde_json::to_string(order), serde_json::to_string(job))
        else {
            // Plain data with text keys: only a path that is no text cannot be written, and such orders are refused.
            return Ok(());
        };
        self.0.write(|transaction| {
            transaction.execute(
                "INSERT INTO jobs (id, state, created_at, work, job) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (id) DO UPDATE SET state = ?2, work = ?4, job = ?5",
                params![job.id, state, job.created_at, order, text],
            )
        })?;
        Ok(())
    }

    pub(super) fn remove(&self, id: &str) -> Result<()> {
        self.0
            .write(|transaction| transaction.execute("DELETE FROM jobs WHERE id = ?1", [id]))?;
        Ok(())
    }
}
