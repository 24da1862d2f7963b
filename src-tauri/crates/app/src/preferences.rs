//! What the person chose for model files, for a program that does the same work without opening the app's data.

use std::path::{Path, PathBuf};

use crate::data;
use crate::downloads;
use crate::error::Result;
use crate::settings::Settings;
use crate::settings::registry::{EXPERT_CACHE, MODELS_FOLDER, THREADS};

/// Where models go and how they are fetched. Read only: the app may be running.
pub struct Preferences {
    /// The folder with chats and settings.
    pub data_folder: PathBuf,
    /// The folder with the models.
    pub models_folder: PathBuf,
    /// How the hub is reached.
    pub hub: fastar_hub::Settings,
    /// Most bytes a second; none for as fast as it goes.
    pub bytes_per_second: Option<u64>,
    /// Threads to compute on, where a number was chosen.
    pub threads: Option<u64>,
    /// Bytes of memory for experts, where a number was chosen.
    pub cache_bytes: Option<u64>,
    /// What is wrong with the settings, sentences.
    pub problem: Option<String>,
    /// The folder for lists of hot experts; none before the app has made its own, which only the person can look into.
    pub hot_lists: Option<PathBuf>,
}

impl Preferences {
    /// What the settings of the app and the environment (`FASTAR_DATA_DIR`, `FASTAR_MODELS_DIR` and those of the hub) say. Settings that cannot be
    /// read count as none.
    ///
    /// # Errors
    /// When there is no home folder.
    pub fn read() -> std::result::Result<Self, fastar_api::ApiError> {
        let folder = data::default_folder(data::path_variable("FASTAR_DATA_DIR"))?;
        let environment = fastar_hub::Settings::from_environment();
        let given = data::path_variable("FASTAR_MODELS_DIR");
        Ok(Self::of(&folder, given, environment)?)
    }

    fn of(
        folder: &Path,
        given: Option<PathBuf>,
        environment: fastar_hub::Settings,
    ) -> Result<Self> {
        let (settings, problem) = Settings::peek(folder);
        Ok(Self {
            problem,
            hot_lists: folder.is_dir().then(|| hot_lists(folder)),
            data_folder: folder.to_owned(),
            models_folder: models_folder(&settings, given.as_deref(), folder),
            hub: downloads::reach(&settings, folder, environment),
            bytes_per_second: downloads::limit(&settings),
            threads: settings.number(&THREADS),
            cache_bytes: settings.number(&EXPERT_CACHE),
        })
    }
}

/// Where lists of hot experts are kept.
pub(crate) fn hot_lists(data: &Path) -> PathBuf {
    data.join("hot-experts")
}

/// The folder with the models: given for this run, chosen, or the one beside the chats.
pub(crate) fn models_folder(settings: &Settings, given: Option<&Path>, data: &Path) -> PathBuf {
    match (given, settings.text(&MODELS_FOLDER)) {
        (Some(folder), _) => folder.to_owned(),
        (None, chosen) if chosen.is_empty() => data.join("models"),
        (None, chosen) => chosen.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_run_comes_before_the_choice_and_the_choice_before_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let of = |given: Option<&str>| {
            Preferences::of(
                dir.path(),
                given.map(PathBuf::from),
                fastar_hub::Settings::default(),
            )
            .unwrap()
        };
        assert_eq!(of(None).models_folder, dir.path().join("models"));
        assert_eq!(of(None).bytes_per_second, None);
        let settings = r#"{"models_folder": "/big/disk", "download_bytes_per_second": 5,
            "download_endpoint": "https://mirror.example"}"#;
        std::fs::write(dir.path().join("settings.json"), settings).unwrap();
        assert_eq!(of(None).models_folder, Path::new("/big/disk"));
        assert_eq!(of(None).bytes_per_second, Some(5));
        assert_eq!(of(None).hub.endpoint, "https://mirror.example");
        assert_eq!(of(None).problem, None);
        assert_eq!(of(Some("/given")).models_folder, Path::new("/given"));
        std::fs::write(dir.path().join("settings.json"), r#"{"theme": "blue"}"#).unwrap();
        let problem = of(None).problem.unwrap();
        assert!(
            problem.contains("is \"blue\" and must be system"),
            "{problem}"
        );
        // Damaged settings are left for the app to set aside.
        std::fs::write(dir.path().join("settings.json"), "{").unwrap();
        assert_eq!(of(None).models_folder, dir.path().join("models"));
        let problem = of(None).problem.unwrap();
        let file = dir.path().join("settings.json");
        assert!(problem.contains(&file.display().to_string()), "{problem}");
        assert_eq!(
            std::fs::read(dir.path().join("settings.json")).unwrap(),
            b"{"
        );
    }
}
