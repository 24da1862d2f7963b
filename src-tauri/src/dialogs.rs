//! The system's own dialogs.

use std::path::PathBuf;
use std::sync::mpsc;

use fastar_api::ApiError;
use tauri::{AppHandle, WebviewWindow};
use tauri_plugin_dialog::{DialogExt, MessageDialogKind};

/// Lets the person pick a model file; none when the dialog was closed.
pub(crate) async fn pick_model(window: &WebviewWindow) -> Option<PathBuf> {
    let (sender, receiver) = mpsc::sync_channel(1);
    window
        .dialog()
        .file()
        .set_parent(window)
        .set_title("Choose a model")
        .add_filter("FaStar models", &["fst"])
        .pick_file(move |file| {
            // The receiver waits for exactly this.
            let _ = sender.send(file);
        });
    // A dialog may stay open for minutes: it waits on a thread of its own.
    tauri::async_runtime::spawn_blocking(move || receiver.recv().ok().flatten())
        .await
        .ok()
        .flatten()
        .and_then(|file| file.into_path().ok())
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
