//! The model in use, and choosing another one.

use fastar_api::{ApiError, ModelState};
use fastar_app::{App, guard};
use tauri::{State, WebviewWindow};

use crate::dialogs;

type Result<T> = std::result::Result<T, ApiError>;

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn model_state(app: State<'_, App>) -> Result<ModelState> {
    guard(|| Ok(app.model_state()))
}

/// The page never sends a path: the person picks the file in a dialog of ours. A cancelled dialog changes nothing.
#[tauri::command(rename_all = "snake_case")]
pub(crate) async fn model_choose(app: State<'_, App>, window: WebviewWindow) -> Result<ModelState> {
    let picked = dialogs::pick_model(&window).await;
    guard(|| picked.map_or_else(|| Ok(app.model_state()), |path| app.model_choose(&path)))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn model_use_demo(app: State<'_, App>) -> Result<ModelState> {
    guard(|| app.model_use_demo())
}
