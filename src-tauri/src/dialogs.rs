//! The system's own dialogs.

use std::path::PathBuf;
use std::sync::mpsc;

use fastar_api::ApiError;
use tauri::{AppHandle, Manager, WebviewWindow};
use tauri_plugin_dialog::{
    DialogExt, FilePath, MessageDialogBuilder, MessageDialogButtons, MessageDialogKind,
};

use crate::words::words;

/// Lets the person pick a model file; none when the dialog was closed.
pub(crate) async fn pick_model(window: &WebviewWindow) -> Option<PathBuf> {
    let words = words(window.app_handle());
    let dialog = window
        .dialog()
        .file()
        .set_parent(window)
        .set_title(words.choose_model)
        .add_filter(words.models, &["fst"]);
    picked(|answer| dialog.pick_file(answer)).await
}

/// Lets the person pick the folder for models; none when the dialog was closed.
pub(crate) async fn pick_folder(window: &WebviewWindow) -> Option<PathBuf> {
    let words = words(window.app_handle());
    let dialog = window
        .dialog()
        .file()
        .set_parent(window)
        .set_title(words.choose_folder)
        .set_can_create_directories(true);
    picked(|answer| dialog.pick_folder(answer)).await
}

/// Lets the person pick text files to send; none when the dialog was closed.
pub(crate) async fn pick_texts(window: &WebviewWindow) -> Vec<PathBuf> {
    let words = words(window.app_handle());
    let dialog = window
        .dialog()
        .file()
        .set_parent(window)
        .set_title(words.attach);
    answered(|answer| dialog.pick_files(answer))
        .await
        .unwrap_or_default()
        .into_iter()
        .filter_map(|path| path.into_path().ok())
        .collect()
}

/// Lets the person pick a file of exported chats; none when the dialog was closed.
pub(crate) async fn pick_chats(window: &WebviewWindow) -> Option<PathBuf> {
    let words = words(window.app_handle());
    let dialog = window
        .dialog()
        .file()
        .set_parent(window)
        .set_title(words.import)
        .add_filter(words.exported, &["json"]);
    picked(|answer| dialog.pick_file(answer)).await
}

/// Lets the person say where a file goes; none when the dialog was closed.
pub(crate) async fn save_as(window: &WebviewWindow, name: &str) -> Option<PathBuf> {
    let words = words(window.app_handle());
    let dialog = window
        .dialog()
        .file()
        .set_parent(window)
        .set_title(words.export)
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
    let words = words(handle);
    let dialog = handle
        .dialog()
        .message(question)
        .title(words.close_title)
        .kind(MessageDialogKind::Warning)
        .buttons(MessageDialogButtons::OkCancelCustom(
            words.close.into(),
            words.keep_downloading.into(),
        ));
    over_the_window(handle, dialog).show(answer);
}

/// Says why the app cannot start, and ends it when the person has read it.
pub(crate) fn cannot_start(handle: &AppHandle, error: &ApiError) {
    let handle_of_end = handle.clone();
    handle
        .dialog()
        .message(error.to_string())
        .title(words(handle).cannot_start)
        .kind(MessageDialogKind::Error)
        .show(move |_| handle_of_end.exit(1));
}

/// Says that the window stays empty, also without the graphics card; waiting on is possible.
pub(crate) fn window_stays_empty(handle: &AppHandle) {
    let words = words(handle);
    let handle_of_end = handle.clone();
    handle
        .dialog()
        .message(words.empty)
        .title(words.empty_title)
        .kind(MessageDialogKind::Error)
        .buttons(MessageDialogButtons::OkCancelCustom(
            words.close.into(),
            words.keep_waiting.into(),
        ))
        .show(move |close| {
            if close {
                handle_of_end.exit(1);
            }
        });
}

/// Asks whether a model file that was opened from outside shall be used.
pub(crate) fn ask_to_use(
    handle: &AppHandle,
    question: &str,
    answer: impl FnOnce(bool) + Send + 'static,
) {
    let words = words(handle);
    let dialog = handle
        .dialog()
        .message(question)
        .title(words.use_title)
        .buttons(MessageDialogButtons::OkCancelCustom(
            words.use_it.into(),
            words.not_now.into(),
        ));
    over_the_window(handle, dialog).show(answer);
}

/// Says why a model file that was opened from outside cannot be used.
pub(crate) fn cannot_use(handle: &AppHandle, error: &ApiError) {
    let dialog = handle
        .dialog()
        .message(error.to_string())
        .title(words(handle).cannot_use)
        .kind(MessageDialogKind::Error);
    over_the_window(handle, dialog).show(|_| {});
}

fn over_the_window(
    handle: &AppHandle,
    dialog: MessageDialogBuilder<tauri::Wry>,
) -> MessageDialogBuilder<tauri::Wry> {
    match handle.get_webview_window("main") {
        Some(window) => dialog.parent(&window),
        None => dialog,
    }
}
