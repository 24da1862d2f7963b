//! A model file that was opened from outside, in a file manager or with the program's name before it: the person is asked whether to use
//! it. A file is never loaded because somebody made the person click on it.

use std::path::{Path, PathBuf};

use fastar_api::ApiError;
use fastar_app::{App, FoundModel};
use tauri::{AppHandle, Manager};

use crate::dialogs;
use crate::words::{Words, words};

/// Looks at the file and asks; not on the caller's thread, because a disk may be slow.
pub(crate) fn ask(handle: &AppHandle, file: PathBuf) {
    let handle = handle.clone();
    tauri::async_runtime::spawn_blocking(move || {
        let Some(app) = handle.try_state::<App>() else {
            return;
        };
        match app.model_file(&file) {
            Ok(found) => {
                let yes = handle.clone();
                dialogs::ask_to_use(&handle, &question(&found, words(&handle)), move |use_it| {
                    if use_it {
                        choose(&yes, &file);
                    }
                });
            }
            Err(error) => dialogs::cannot_use(&handle, &error),
        }
    });
}

fn choose(handle: &AppHandle, file: &Path) {
    let chosen: Result<_, ApiError> = match handle.try_state::<App>() {
        Some(app) => app.model_choose(file),
        None => return,
    };
    if let Err(error) = chosen {
        dialogs::cannot_use(handle, &error);
    }
}

fn question(found: &FoundModel, words: &Words) -> String {
    let gigabytes = found.bytes as f64 / 1e9;
    let digits = if gigabytes < 10.0 { 2 } else { 0 };
    (words.becomes)(&found.name, &format!("{gigabytes:.digits$}"), &found.folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_the_file_its_size_and_where_it_is() {
        let found = |bytes| {
            let found = FoundModel {
                name: "flash.fst".into(),
                folder: "/models".into(),
                bytes,
            };
            question(&found, &crate::words::ENGLISH)
        };
        assert!(found(160_123_456_789).starts_with("flash.fst (160 GB) in /models becomes"));
        assert!(found(3_456_789_000).starts_with("flash.fst (3.46 GB) in /models becomes"));
    }
}
