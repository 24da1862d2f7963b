//! Jobs in the database: what was ordered and how it stands, so that nothing is forgotten when the process ends.

use std::sync::Arc;

use fastar_api::{Job, JobState};
use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::work::Order;
use crate::chats::Chats;
use crate::error::Result;

/// A job as it is saved.
pub(super) struct Row {
    pub(super) order: Order,
    pub(super) job: Job,
    /// What it has on the disk is to be removed.
    pub(super) discard: bool,
}

/// The column `work`.
#[derive(Serialize, Deserialize)]
struct Work {
    #[serde(flatten)]
    order: Order,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    discard: bool,
}

pub(super) struct Rows(Arc<Chats>);

impl Rows {
    pub(super) fn new(chats: Arc<Chats>) -> Self {
        Self(chats)
    }

    /// All jobs, the newest first. Rows that a newer version wrote in a way this one does not understand are left alone.
    pub(super) fn all(&self) -> Result<Vec<Row>> {
        let texts: Vec<(String, String)> = self.0.read(|connection| {
            connection
                .prepare_cached("SELECT work, job FROM jobs ORDER BY created_at DESC, id DESC")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })?;
        let row = |(work, job): (String, String)| {
            let work: Work = serde_json::from_str(&work).ok()?;
            Some(Row {
                order: work.order,
                job: serde_json::from_str(&job).ok()?,
                discard: work.discard,
            })
        };
        Ok(texts.into_iter().filter_map(row).collect())
    }

    /// Writes jobs as they now are and removes others, all or nothing. The file is told of the state in a column of its own too, for
    /// whoever looks into it.
    pub(super) fn write(&self, rows: &[Row], gone: &[String]) -> Result<()> {
        self.0.write(|transaction| {
            let mut put = transaction.prepare_cached(
                "INSERT INTO jobs (id, state, created_at, work, job) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (id) DO UPDATE SET state = ?2, work = ?4, job = ?5",
            )?;
            for row in rows {
                let work = Work {
                    order: row.order.clone(),
                    discard: row.discard,
                };
                let (Ok(work), Ok(job)) = (
                    serde_json::to_string(&work),
                    serde_json::to_string(&row.job),
                ) else {
                    // Plain data with text keys: only a path that is no text cannot be written, and such orders are refused.
                    continue;
                };
                let state = word(row.job.state);
                put.execute(params![row.job.id, state, row.job.created_at, work, job])?;
            }
            let mut remove = transaction.prepare_cached("DELETE FROM jobs WHERE id = ?1")?;
            for id in gone {
                remove.execute([id])?;
            }
            Ok(())
        })
    }
}

fn word(state: JobState) -> &'static str {
    match state {
        JobState::Queued => "queued",
        JobState::Running => "running",
        JobState::Paused => "paused",
        JobState::Failed => "failed",
        JobState::Done => "done",
        JobState::Cancelled => "cancelled",
    }
}
