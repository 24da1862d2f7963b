//! The model in use, models on the disk, and choosing others. The page names a model by its file name and never by a path.

use fastar_api::{ApiError, Job, Library, ModelMemory, ModelState};
use fastar_app::{App, guard};
use tauri::{State, WebviewWindow};

use crate::{browser, dialogs};

type Result<T> = std::result::Result<T, ApiError>;

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn model_state(app: State<'_, App>) -> Result<ModelState> {
    guard(|| Ok(app.model_state()))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn model_memory(app: State<'_, App>) -> Result<Option<ModelMemory>> {
    guard(|| Ok(app.model_memory()))
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

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn model_library(app: State<'_, App>) -> Result<Library> {
    guard(|| app.model_library())
}

/// As with [`model_choose`], the folder comes from a dialog of ours, and a cancelled one changes nothing.
#[tauri::command(rename_all = "snake_case")]
pub(crate) async fn model_folder_choose(
    app: State<'_, App>,
    window: WebviewWindow,
) -> Result<Library> {
    let picked = dialogs::pick_folder(&window).await;
    guard(|| {
        picked.map_or_else(
            || app.model_library(),
            |path| app.model_folder_choose(&path),
        )
    })
}

/// The same, and the models move there.
#[tauri::command(rename_all = "snake_case")]
pub(crate) async fn model_folder_move(
    app: State<'_, App>,
    window: WebviewWindow,
) -> Result<Library> {
    let picked = dialogs::pick_folder(&window).await;
    guard(|| picked.map_or_else(|| app.model_library(), |path| app.model_folder_move(&path)))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn model_use(app: State<'_, App>, file: String) -> Result<ModelState> {
    guard(|| app.model_use(&file))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn model_show(app: State<'_, App>, file: String) -> Result<()> {
    guard(|| app.model_path(&file).and_then(|path| browser::show(&path)))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn model_delete(app: State<'_, App>, file: String) -> Result<u64> {
    guard(|| app.model_delete(&file))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn model_verify(app: State<'_, App>, file: String) -> Result<Job> {
    guard(|| app.model_verify(&file))
}

#[tauri::command(rename_all = "snake_case", async)]
pub(crate) fn model_repair(app: State<'_, App>, file: String) -> Result<Job> {
    guard(|| app.model_repair(&file))
}
