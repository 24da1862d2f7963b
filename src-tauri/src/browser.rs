//! The person's other programs: their browser or mail program for an address, their file manager for a file. Both were checked before.

use std::path::Path;

use fastar_api::{ApiError, ErrorCode};

pub(crate) fn open(checked: &str) -> Result<(), ApiError> {
    tauri_plugin_opener::open_url(checked, None::<&str>).map_err(|error| ApiError {
        code: ErrorCode::Unsupported,
        message: "No program to open this link was found.".into(),
        hint: Some("Copy the link and open it yourself.".into()),
        details: Some(error.to_string()),
    })
}

/// Shows a file in its folder; the folder alone where the file manager cannot do that.
pub(crate) fn show(path: &Path) -> Result<(), ApiError> {
    tauri_plugin_opener::reveal_item_in_dir(path)
        .or_else(|error| match path.parent() {
            Some(folder) => tauri_plugin_opener::open_path(folder, None::<&str>),
            None => Err(error),
        })
        .map_err(|error| ApiError {
            code: ErrorCode::Unsupported,
            message: "No program to show the folder was found.".into(),
            hint: Some(format!("The file is {}.", path.display())),
            details: Some(error.to_string()),
        })
}
