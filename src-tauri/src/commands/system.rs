//! Facts about the app, what it is doing, and links.

use fastar_api::{ApiError, AppInfo, Hardware, LogPage, MachinePlan, Monitor, TraceFile};
use fastar_app::{App, guard};
use tauri::{AppHandle, State};

use crate::browser;

type Result<T> = std::result::Result<T, ApiError>;

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn app_info(app: State<'_, App>) -> Result<AppInfo> {
    guard(|| Ok(app.app_info()))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn page_shown(app: State<'_, App>) -> Result<()> {
    guard(|| {
        app.page_shown();
        Ok(())
    })
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn monitor(app: State<'_, App>) -> Result<Monitor> {
    guard(|| Ok(app.monitor()))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn trace_start(app: State<'_, App>) -> Result<TraceFile> {
    guard(|| app.trace_start())
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn trace_stop(app: State<'_, App>) -> Result<Option<TraceFile>> {
    guard(|| app.trace_stop())
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn hardware(app: State<'_, App>) -> Result<Hardware> {
    guard(|| Ok(app.hardware()))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn machine_plan(app: State<'_, App>) -> Result<MachinePlan> {
    guard(|| Ok(app.machine_plan()))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn machine_measure(app: State<'_, App>, again: bool) -> Result<MachinePlan> {
    guard(|| Ok(app.machine_measure(again)))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn log_read(app: State<'_, App>, after: u64) -> Result<LogPage> {
    guard(|| Ok(app.log_read(after)))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn diagnostics(app: State<'_, App>) -> Result<String> {
    guard(|| Ok(app.diagnostics()))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn notify(
    handle: AppHandle,
    app: State<'_, App>,
    title: String,
    text: String,
) -> Result<()> {
    guard(|| {
        if app.notifications_wanted() {
            #[cfg(target_os = "linux")]
            crate::notify::show(&handle, &title, &text);
            #[cfg(not(target_os = "linux"))]
            let _ = (&handle, &title, &text);
        }
        Ok(())
    })
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn link_open(app: State<'_, App>, url: String) -> Result<()> {
    guard(|| {
        app.link_open(&url)
            .and_then(|checked| browser::open(&checked))
    })
}
