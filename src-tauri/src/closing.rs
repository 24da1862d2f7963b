//! Closing the window ends the app, and with it a download that is at work: that is asked about first. Answers that are being written
//! are saved and ended without a question.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastar_api::{Job, JobKind, JobPhase, JobState};
use fastar_app::App;
use tauri::AppHandle;

use crate::dialogs;
use crate::words::{Words, words};

/// What becomes of the wish to close the window.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The app ends.
    Close,
    /// The person is asked this.
    Ask(String),
    /// The question is on the screen already.
    Wait,
}

/// Decides from what the app is doing. `resume_at_start`: downloads go on by themselves at the next start.
fn verdict(jobs: &[Job], resume_at_start: bool, asking: bool, words: &Words) -> Verdict {
    if asking {
        return Verdict::Wait;
    }
    let at_work = |job: &&Job| {
        job.kind == JobKind::Download
            && (job.state == JobState::Queued
                // One that is being paused or cancelled ends anyway.
                || (job.state == JobState::Running && job.phase != Some(JobPhase::Stopping)))
    };
    let titles: Vec<&str> = jobs
        .iter()
        .rev()
        .filter(at_work)
        .map(|job| job.title.as_str())
        .collect();
    match titles.as_slice() {
        [] => Verdict::Close,
        [title, others @ ..] => {
            Verdict::Ask((words.downloading)(title, others.len(), resume_at_start))
        }
    }
}

/// The question, as far as it is on the screen.
#[derive(Clone, Default)]
pub(crate) struct Closing {
    asking: Arc<AtomicBool>,
}

impl Closing {
    /// Whether the window may close now. If not, the person is asked, and the app ends when that is their answer.
    pub(crate) fn may_close(&self, handle: &AppHandle, app: &App) -> bool {
        let asking = self.asking.load(Ordering::Relaxed);
        let resume_at_start = app.resumes_downloads();
        match verdict(&app.job_list(), resume_at_start, asking, words(handle)) {
            Verdict::Close => true,
            Verdict::Wait => false,
            Verdict::Ask(question) => {
                self.asking.store(true, Ordering::Relaxed);
                let (asking, end) = (Arc::clone(&self.asking), handle.clone());
                dialogs::ask_to_close(handle, &question, move |close| {
                    asking.store(false, Ordering::Relaxed);
                    if close {
                        end.exit(0);
                    }
                });
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(jobs: &[Job], resume_at_start: bool, asking: bool) -> Verdict {
        super::verdict(jobs, resume_at_start, asking, &crate::words::ENGLISH)
    }

    fn job(kind: JobKind, state: JobState, phase: Option<JobPhase>, title: &str) -> Job {
        Job {
            id: title.into(),
            kind,
            title: title.into(),
            file: format!("{title}.fst"),
            state,
            phase,
            done_bytes: 0,
            total_bytes: None,
            bytes_per_second: None,
            seconds_left: None,
            error: None,
            outcome: None,
            created_at: 0,
        }
    }

    fn downloading(title: &str) -> Job {
        let phase = Some(JobPhase::Downloading);
        job(JobKind::Download, JobState::Running, phase, title)
    }

    #[test]
    fn a_window_without_downloads_at_work_closes_at_once() {
        let mut jobs = vec![
            job(
                JobKind::Verify,
                JobState::Running,
                Some(JobPhase::Verifying),
                "check",
            ),
            job(
                JobKind::Repair,
                JobState::Running,
                Some(JobPhase::Downloading),
                "repair",
            ),
            job(
                JobKind::Download,
                JobState::Running,
                Some(JobPhase::Stopping),
                "stopping",
            ),
        ];
        for state in [
            JobState::Paused,
            JobState::Failed,
            JobState::Done,
            JobState::Cancelled,
        ] {
            jobs.push(job(JobKind::Download, state, None, "at rest"));
        }
        assert_eq!(verdict(&[], false, false), Verdict::Close);
        assert_eq!(verdict(&jobs, true, false), Verdict::Close);
    }

    #[test]
    fn a_download_at_work_is_named_and_what_becomes_of_it_is_said() {
        let mut jobs = vec![downloading("Flash")];
        assert_eq!(
            verdict(&jobs, false, false),
            Verdict::Ask(
                "Flash is being downloaded. What has arrived is kept, and the download goes on when you resume it after the next start.".into()
            )
        );
        assert_eq!(
            verdict(&jobs, true, false),
            Verdict::Ask(
                "Flash is being downloaded. What has arrived is kept, and the download goes on when FaStar is started again.".into()
            )
        );
        // The list has the newest first: the oldest is the one at work.
        jobs.insert(0, job(JobKind::Download, JobState::Queued, None, "Later"));
        assert_eq!(
            verdict(&jobs, true, false),
            Verdict::Ask(
                "Flash is being downloaded, and 1 more will be. What has arrived is kept, and the downloads go on when FaStar is started again.".into()
            )
        );
    }

    #[test]
    fn the_question_is_asked_once_and_nothing_closes_behind_it() {
        assert_eq!(verdict(&[downloading("Flash")], false, true), Verdict::Wait);
        assert_eq!(verdict(&[], false, true), Verdict::Wait);
    }
}
