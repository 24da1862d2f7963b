//! The settings file: a small JSON object that holds only what differs from the defaults.
//!
//! Keys this version does not know are kept, so that an older version does not undo a newer one. A value that its setting does not take counts as
//! not set and is told about; it stays in the file until the setting is changed.

mod face;
pub(crate) mod registry;
pub(crate) mod sampling;

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::data::{set_aside, write_whole};
use crate::error::{Error, Result};

pub(crate) use face::Given;
use registry::{ALL, Default, MODEL, Setting};

/// No settings are longer, in bytes.
const LONGEST: u64 = 1_000_000;
/// Characters of a wrong value that are shown.
const SHOWN: usize = 60;

pub(crate) struct Settings {
    file: PathBuf,
    values: Map<String, Value>,
}

impl Settings {
    /// Reads `settings.json` of the data folder. A damaged or unreadable file, or what is no file at all, is set aside with the date in its name; the second value
    /// is then a sentence for the person.
    pub(crate) fn open(folder: &Path, date: &str) -> Result<(Self, Option<String>)> {
        let file = folder.join("settings.json");
        let read = match read(&file) {
            Ok(bytes) => serde_json::from_slice::<Map<String, Value>>(&bytes).ok(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok((
                    Self {
                        file,
                        values: Map::new(),
                    },
                    None,
                ));
            }
            Err(_) => None,
        };
        match read {
            Some(values) => {
                let settings = Self { file, values };
                let notice = settings.wrong();
                Ok((settings, notice))
            }
            None => {
                let aside = set_aside(&file, date)?;
                let notice = format!(
                    "The settings could not be read, so the defaults are used. The old file is kept as {}.",
                    aside.display()
                );
                Ok((
                    Self {
                        file,
                        values: Map::new(),
                    },
                    Some(notice),
                ))
            }
        }
    }

    /// The same without touching the file, for reading only: what cannot be read counts as nothing. The second value says what is wrong.
    pub(crate) fn peek(folder: &Path) -> (Self, Option<String>) {
        let file = folder.join("settings.json");
        let values = match read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).ok(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(Map::new()),
            Err(_) => None,
        };
        let unreadable = values.is_none().then(|| {
            format!(
                "The settings in {} could not be read, so the defaults are used.",
                file.display()
            )
        });
        let settings = Self {
            file,
            values: values.unwrap_or_default(),
        };
        let problem = unreadable.or_else(|| settings.wrong());
        (settings, problem)
    }

    /// One sentence for each value that its setting does not take.
    fn wrong(&self) -> Option<String> {
        let sentences: Vec<_> = ALL
            .iter()
            .filter_map(|setting| self.problem(setting))
            .collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }

    /// What is wrong with the value of a setting in the file, a sentence.
    fn problem(&self, setting: &Setting) -> Option<String> {
        let value = self.values.get(setting.key)?;
        (!setting.kind.takes(value)).then(|| {
            let mut value = value.to_string();
            if value.chars().count() > SHOWN {
                value = value.chars().take(SHOWN).chain("...".chars()).collect();
            }
            format!(
                "The setting `{}` in {} is {value} and must be {}; until it is changed, the default is used.",
                setting.key,
                self.file.display(),
                setting.kind.words()
            )
        })
    }

    /// A value that the setting takes; none where none is set.
    fn value(&self, setting: &Setting) -> Option<&Value> {
        let value = self.values.get(setting.key)?;
        setting.kind.takes(value).then_some(value)
    }

    /// The model file the person chose; none for the demo.
    pub(crate) fn model(&self) -> Option<PathBuf> {
        Some(self.text(&MODEL))
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
    }

    /// Remembers the model file; none for the demo, which is the default and therefore not written.
    pub(crate) fn set_model(&mut self, path: Option<&Path>) -> Result<()> {
        let value = match path {
            None => None,
            Some(path) => Some(path.to_str().ok_or_else(|| {
                Error::BadRequest(format!(
                    "The path {} contains bytes that are not text and cannot be remembered. Rename the file or folder.",
                    path.display()
                ))
            })?),
        };
        self.set(&[(&MODEL, value.map(Value::from))])
    }

    /// A text; empty when it is not set.
    pub(crate) fn text(&self, setting: &Setting) -> String {
        let value = self.value(setting).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    }

    /// A whole number, where one is set.
    pub(crate) fn number(&self, setting: &Setting) -> Option<u64> {
        self.value(setting).and_then(Value::as_u64)
    }

    /// A number, or its default.
    pub(crate) fn decimal(&self, setting: &Setting) -> f64 {
        match (self.value(setting).and_then(Value::as_f64), setting.default) {
            (Some(n), _) | (None, Default::Number(n)) => n,
            (None, _) => 0.0,
        }
    }

    /// A switch, or its default.
    pub(crate) fn flag(&self, setting: &Setting) -> bool {
        self.value(setting)
            .and_then(Value::as_bool)
            .unwrap_or(matches!(setting.default, Default::Switch(true)))
    }

    /// How much is written into the log.
    pub(crate) fn log_level(&self) -> fastar_api::LogLevel {
        use fastar_api::LogLevel;
        match self.text(&registry::LOG_LEVEL).as_str() {
            "error" => LogLevel::Error,
            "warn" => LogLevel::Warn,
            "debug" => LogLevel::Debug,
            _ => LogLevel::Info,
        }
    }

    /// Sets values, all or none; none for a default, which is not written.
    pub(crate) fn set(&mut self, changes: &[(&Setting, Option<Value>)]) -> Result<()> {
        let mut values = self.values.clone();
        for (setting, value) in changes {
            match value {
                Some(value) => values.insert(setting.key.to_owned(), value.clone()),
                None => values.remove(setting.key),
            };
        }
        if values == self.values {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(&values).map_err(|error| Error::File {
            path: self.file.clone(),
            source: error.into(),
        })?;
        write_whole(&self.file, &text)?;
        self.values = values;
        Ok(())
    }
}

/// The bytes of a plain file: opening a pipe or device could wait for ever.
fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let facts = std::fs::metadata(file)?;
    if !facts.is_file() || facts.len() > LONGEST {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    std::fs::File::open(file)?
        .take(LONGEST)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn text(dir: &tempfile::TempDir) -> String {
        std::fs::read_to_string(dir.path().join("settings.json")).unwrap()
    }

    #[test]
    fn the_file_holds_only_what_differs_and_keeps_what_it_does_not_know() {
        let dir = tempfile::tempdir().unwrap();
        let (mut settings, notice) = Settings::open(dir.path(), "d").unwrap();
        assert_eq!(notice, None);
        settings.set_model(None).unwrap();
        assert!(!dir.path().join("settings.json").exists());

        std::fs::write(
            dir.path().join("settings.json"),
            r#"{"from_the_future":[1]}"#,
        )
        .unwrap();
        let (mut settings, _) = Settings::open(dir.path(), "d").unwrap();
        settings.set_model(Some(Path::new("/m/flash.fst"))).unwrap();
        let (mut again, _) = Settings::open(dir.path(), "d").unwrap();
        assert_eq!(again.model().as_deref(), Some(Path::new("/m/flash.fst")));
        again.set_model(None).unwrap();
        let value: Value = serde_json::from_str(&text(&dir)).unwrap();
        assert_eq!(value, serde_json::json!({"from_the_future": [1]}));
        assert!(!dir.path().join("settings.partial").exists());
    }

    #[test]
    fn damaged_settings_are_set_aside_and_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("settings.json"), "\0\0\0\0").unwrap();
        let (settings, notice) = Settings::open(dir.path(), "2026-01-02").unwrap();
        assert_eq!(settings.model(), None);
        let aside = dir.path().join("settings-damaged-2026-01-02.json");
        assert_eq!(std::fs::read(&aside).unwrap(), b"\0\0\0\0");
        assert!(notice.unwrap().contains(&aside.display().to_string()));
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_told_and_stays_until_it_is_changed() {
        for setting in ALL {
            let dir = tempfile::tempdir().unwrap();
            let wrong = serde_json::json!({ setting.key: ["x".repeat(1000)], "other": 1 });
            std::fs::write(dir.path().join("settings.json"), wrong.to_string()).unwrap();
            let (mut settings, notice) = Settings::open(dir.path(), "d").unwrap();
            let notice = notice.unwrap();
            let beginning = format!(
                "The setting `{}` in {} is [\"xxx",
                setting.key,
                dir.path().join("settings.json").display()
            );
            assert!(notice.starts_with(&beginning), "{notice}");
            assert!(notice.len() < 500, "{notice}");
            assert_eq!(settings.text(setting), "");
            assert_eq!(settings.number(setting), None);
            assert_eq!(settings.flag(setting), setting.default_value() == true);
            assert_eq!(
                settings.decimal(setting),
                setting.default_value().as_f64().unwrap_or(0.0)
            );

            let right = match &setting.kind {
                registry::Kind::Path | registry::Kind::Address { .. } | registry::Kind::Origins => {
                    Value::from("t")
                }
                registry::Kind::Secret => continue,
                registry::Kind::Whole(range) => Value::from(*range.end()),
                registry::Kind::Decimal(range) => Value::from(*range.end()),
                registry::Kind::Switch => Value::from(true),
                registry::Kind::Choice(words) => Value::from(words[0]),
            };
            settings.set(&[(setting, Some(right.clone()))]).unwrap();
            let (_, notice) = Settings::open(dir.path(), "d").unwrap();
            assert_eq!(notice, None);
            let value: Value = serde_json::from_str(&text(&dir)).unwrap();
            assert_eq!(value, serde_json::json!({ setting.key: right, "other": 1 }));
        }
    }

    #[test]
    fn numbers_outside_their_range_count_as_not_set() {
        let few = registry::Kind::Whole(1..=512);
        for (value, takes) in [("0", false), ("1", true), ("512", true), ("513", false)] {
            let value: Value = serde_json::from_str(value).unwrap();
            assert_eq!(few.takes(&value), takes, "{value}");
        }
        for value in ["-1", "1.5", "1e3", "\"7\"", "null", "true"] {
            let value: Value = serde_json::from_str(value).unwrap();
            assert!(!few.takes(&value), "{value}");
        }
        assert_eq!(few.words(), "a whole number from 1 to 512");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_readable_file_is_set_aside_and_the_next_choice_is_kept() {
        use std::os::unix::fs::{FileTypeExt, PermissionsExt};
        type Put = fn(&Path);
        type Kept = fn(&std::fs::Metadata) -> bool;
        let cases: [(Put, Kept); 4] = [
            (
                |path| {
                    let made = std::process::Command::new("mkfifo").arg(path).status();
                    assert!(made.unwrap().success());
                },
                |facts| facts.file_type().is_fifo(),
            ),
            (
                |path| std::fs::create_dir(path).unwrap(),
                |facts| facts.is_dir(),
            ),
            (
                |path| {
                    let file = std::fs::File::create(path).unwrap();
                    file.set_permissions(PermissionsExt::from_mode(0o0))
                        .unwrap();
                },
                |facts| facts.is_file(),
            ),
            (
                |path| {
                    std::fs::File::create(path)
                        .unwrap()
                        .set_len(1 << 40)
                        .unwrap()
                },
                |facts| facts.len() == 1 << 40,
            ),
        ];
        for (put, kept) in cases {
            let dir = tempfile::tempdir().unwrap();
            put(&dir.path().join("settings.json"));
            let (mut settings, notice) = Settings::open(dir.path(), "d").unwrap();
            let aside = dir.path().join("settings-damaged-d.json");
            assert!(notice.unwrap().contains(&aside.display().to_string()));
            assert!(kept(&std::fs::metadata(aside).unwrap()));
            assert_eq!(settings.model(), None);
            settings.set_model(Some(Path::new("/m/flash.fst"))).unwrap();
            let (again, notice) = Settings::open(dir.path(), "d").unwrap();
            assert_eq!(again.model().as_deref(), Some(Path::new("/m/flash.fst")));
            assert_eq!(notice, None);
        }
    }
}
