//! Opens an address in the person's browser or mail program. The address was checked before.

use fastar_api::{ApiError, ErrorCode};

pub(crate) fn open(checked: &str) -> Result<(), ApiError> {
    tauri_plugin_opener::open_url(checked, None::<&str>).map_err(|error| ApiError {
        code: ErrorCode::Unsupported,
        message: "No program to open this link was found.".into(),
        hint: Some("Copy the link and open it yourself.".into()),
        details: Some(error.to_string()),
    })
}
