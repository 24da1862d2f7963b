//! Settings, and what a change of them means.

use fastar_api::{ApiError, CachePlan, ModelState, Setting};
use fastar_app::{App, guard};
use serde_json::Value;
use tauri::State;

type Result<T> = std::result::Result<T, ApiError>;

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn setting_list(app: State<'_, App>) -> Result<Vec<Setting>> {
    guard(|| Ok(app.setting_list()))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn setting_set(app: State<'_, App>, key: String, value: Value) -> Result<Vec<Setting>> {
    guard(|| app.setting_set(&key, &value))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn setting_reset(app: State<'_, App>, key: String) -> Result<Vec<Setting>> {
    guard(|| app.setting_reset(&key))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn cache_plan(
    app: State<'_, App>,
    cache_bytes: Option<u64>,
) -> Result<Option<CachePlan>> {
    guard(|| Ok(app.cache_plan(cache_bytes)))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn model_reload(app: State<'_, App>, stop: bool) -> Result<ModelState> {
    guard(|| app.model_reload(stop))
}
