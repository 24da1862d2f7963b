//! Downloads, and all long work.

use fastar_api::{ApiError, DownloadRequest, Job};
use fastar_app::{App, guard};
use tauri::State;

type Result<T> = std::result::Result<T, ApiError>;

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn download_start(app: State<'_, App>, request: DownloadRequest) -> Result<Job> {
    guard(|| app.download_start(&request))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn download_resume(app: State<'_, App>, file: String) -> Result<Job> {
    guard(|| app.download_resume(&file))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn job_list(app: State<'_, App>) -> Result<Vec<Job>> {
    guard(|| Ok(app.job_list()))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn job_pause(app: State<'_, App>, id: String) -> Result<Job> {
    guard(|| app.job_pause(&id))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn job_resume(app: State<'_, App>, id: String) -> Result<Job> {
    guard(|| app.job_resume(&id))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn job_cancel(app: State<'_, App>, id: String, keep: bool) -> Result<Job> {
    guard(|| app.job_cancel(&id, keep))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn job_dismiss(app: State<'_, App>, id: String) -> Result<()> {
    guard(|| app.job_dismiss(&id))
}
