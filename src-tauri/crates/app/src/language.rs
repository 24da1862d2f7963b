//! The language that a person reads: what is set, else that of the system. The page chooses in the same way from what its browser knows.

use crate::App;
use crate::error::lock;
use crate::settings::registry::LANGUAGE;

/// One of those that there are words in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// Where nothing else is known, too.
    English,
    /// In simplified characters.
    Chinese,
}

impl App {
    /// The language of the window as it is set now.
    pub fn language(&self) -> Language {
        let chosen = lock(&self.0.settings).text(&LANGUAGE);
        match chosen.as_str() {
            "en" => Language::English,
            "zh" => Language::Chinese,
            _ => Language::of_the_system(),
        }
    }
}

impl Language {
    /// The first of the system's languages that there are words in.
    pub fn of_the_system() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    /// In the order of gettext, which the window's own library follows.
    fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_MESSAGES", "LANG"]
            .into_iter()
            .find_map(variable)
            .unwrap_or_default();
        // A list of languages counts only where there is a language at all.
        let list = match locale.as_str() {
            "" | "C" | "POSIX" => None,
            _ => variable("LANGUAGE"),
        };
        let list = list.unwrap_or(locale);
        list.split(':')
            .find_map(|tag| match tag.split(['_', '.', '@', '-']).next() {
                Some("zh") => Some(Self::Chinese),
                Some("en") => Some(Self::English),
                _ => None,
            })
            .unwrap_or(Self::English)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_its_languages_as_it_does_to_gettext() {
        let of = |environment: &[(&str, &str)]| {
            Language::of(|name| {
                let found = environment.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let chinese = ("LANG", "zh_CN.UTF-8");
        assert_eq!(of(&[chinese]), Language::Chinese);
        assert_eq!(of(&[]), Language::English);
        assert_eq!(of(&[("LANG", "fr_FR")]), Language::English);
        assert_eq!(of(&[("LC_ALL", "en_GB"), chinese]), Language::English);
        assert_eq!(of(&[("LC_ALL", ""), chinese]), Language::Chinese);
        let listed = [("LANGUAGE", "de:zh_TW:en"), ("LANG", "de_DE")];
        assert_eq!(of(&listed), Language::Chinese);
        assert_eq!(of(&[("LANGUAGE", "en:zh"), chinese]), Language::English);
        assert_eq!(
            of(&[("LANGUAGE", "zh"), ("LC_ALL", "C")]),
            Language::English
        );
    }
}
