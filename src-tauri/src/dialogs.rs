//! The system's own dialogs.

use std::path::PathBuf;
use std::sync::mpsc;

use fastar_api::ApiError;
use tauri::{AppHandle, Manager, WebviewWindow};
use tauri_plugin_dialog::{DialogExt, FilePath, MessageDialogButtons, MessageDialogKind};

/// Lets the person pick a model file; none when the dialog was closed.
pub(crate) async fn pick_model(window: &WebviewWindow) -> Option<PathBuf> {
    let dialog = window
        .dialog()
        .file()
        .set_parent(window)
        .set_title("Choose a model")
        .add_filter("FaStar models", &["fst"]);
    picked(|answer| dialog.pick_file(answer)).await
}

/// Lets the person pick the folder for models; none when the dialog was closed.
pub(crate) async fn pick_folder(window: &WebviewWindow) -> Option<PathBuf> {
    let dialog = window
        .dialog()
        .file()
        .set_parent(window)
        .set_title("Choose the folder for models")
        .set_can_create_directories(true);
    picked(|answer| dialog.pick_folder(answer)).await
}

/// Lets the person pick text files to send; none when the dialog was closed.
pub(crate) async fn pick_texts(window: &WebviewWindow) -> Vec<PathBuf> {
    let dialog = window
        .dialog()
        .file()
        .set_parent(window)
        .set_title("Attach text files");
    answered(|answer| dialog.pick_files(answer))
        .await
        .unwrap_or_default()
        .into_iter()
        .filter_map(|path| path.into_path().ok())
        .collect()
}

/// Lets the person pick a file of exported chats; none when the dialog was closed.
pub(crate) async fn pick_chats(window: &WebviewWindow) -> Option<PathBuf> {
    let dialog = window
        .dialog()
        .file()
        .set_parent(window)
        .set_title("Import chats")
        .add_filter("Chats exported from FaStar", &["json"]);
    picked(|answer| dialog.pick_file(answer)).await
}

/// Lets the person say where a file goes; none when the dialog was closed.
pub(crate) async fn save_as(window: &WebviewWindow, name: &str) -> Option<PathBuf> {
    let dialog = window
        .dialog()
        .file()
        .set_parent(window)
        .set_title("Export chat")
        .set_file_name(name)
        .set_can_create_directories(true);
    picked(|answer| dialog.save_file(answer)).await
}

type Answer<T> = Box<dyn FnOnce(Option<T>) + Send>;

async fn picked(show: impl FnOnce(Answer<FilePath>)) -> Option<PathBuf> {
    answered(show).await.and_then(|path| path.into_path().ok())
}

async fn answered<T: Send + 'static>(show: impl FnOnce(Answer<T>)) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    show(Box::new(move |answer| {
        // The receiver waits for exactly this.
        let _ = sender.send(answer);
    }));
    // A dialog may stay open for minutes: it waits on a thread of its own.
    tauri::async_runtime::spawn_blocking(move || receiver.recv().ok().flatten())
        .await
        .ok()
        .flatten()
}

/// Asks before downloads are ended by closing the window; `answer` hears whether it shall close.
pub(crate) fn ask_to_close(
    handle: &AppHandle,
    question: &str,
    answer: impl FnOnce(bool) + Send + 'static,
) {
    let mut dialog = handle
        .dialog()
        .message(question)
        .title("Close FaStar?")
        .kind(MessageDialogKind::Warning)
        .buttons(MessageDialogButtons::OkCancelCustom(
            "Close FaStar".into(),
            "Keep downloading".into(),
        ));
    if let Some(window) = handle.get_webview_window("main") {
        dialog = dialog.parent(&window);
    }
    dialog.show(answer);
}

/// Says why the app cannot start, and ends it when the person has read it.
pub(crate) fn cannot_start(handle: &AppHandle, error: &ApiError) {
    let handle_of_end = handle.clone();
    handle
        .dialog()
        .message(error.to_string())
        .title("FaStar cannot start")
        .kind(MessageDialogKind::Error)
        .show(move |_| handle_of_end.exit(1));
}
