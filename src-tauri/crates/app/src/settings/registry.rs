//! Every setting there is: its key in the file and what values it takes. What it does is where it is used.
//!
//! What the file holds is checked against this one list.

use std::ops::RangeInclusive;

use serde_json::Value;

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its key in `settings.json`.
    pub key: &'static str,
    /// What values it takes.
    pub kind: Kind,
}

/// What values a setting takes.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Any text; empty is as good as not set.
    Text,
    /// A whole number.
    Number(RangeInclusive<u64>),
    /// Yes or no; no is the default.
    Switch,
}

/// The model file; not set for the demo.
pub(crate) const MODEL: Setting = text("model");
/// The folder with the models; not set for the one beside the chats.
pub(crate) const MODELS_FOLDER: Setting = text("models_folder");
/// Address of the mirror that models come from; not set for the hub itself.
pub(crate) const DOWNLOAD_ENDPOINT: Setting = text("download_endpoint");
/// Address of the proxy on the way to it.
pub(crate) const DOWNLOAD_PROXY: Setting = text("download_proxy");
/// Most bytes a second; not set for as fast as it goes.
pub(crate) const DOWNLOAD_LIMIT: Setting = Setting {
    key: "download_bytes_per_second",
    kind: Kind::Number(0..=u64::MAX),
};
/// Whether unfinished downloads go on when the app starts.
pub(crate) const DOWNLOAD_RESUME: Setting = Setting {
    key: "download_resume_at_start",
    kind: Kind::Switch,
};

/// Most bytes of memory for experts, from the next load of a model on; not set for all that this process may use.
pub(crate) const EXPERT_CACHE: Setting = Setting {
    key: "expert_cache_bytes",
    kind: Kind::Number(0..=1 << 50),
};

/// All of them.
pub(crate) const ALL: [&Setting; 7] = [
    &MODEL,
    &MODELS_FOLDER,
    &DOWNLOAD_ENDPOINT,
    &DOWNLOAD_PROXY,
    &DOWNLOAD_LIMIT,
    &DOWNLOAD_RESUME,
    &EXPERT_CACHE,
];

const fn text(key: &'static str) -> Setting {
    Setting {
        key,
        kind: Kind::Text,
    }
}

impl Kind {
    /// Whether a value of the file is one of these.
    pub fn takes(&self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Number(range) => value.as_u64().is_some_and(|n| range.contains(&n)),
            Self::Switch => value.is_boolean(),
        }
    }

    /// The values in words, after "must be".
    pub fn words(&self) -> String {
        match self {
            Self::Text => "a text in quotation marks".into(),
            Self::Number(range) if *range.end() == u64::MAX => {
                format!("a whole number from {} on", range.start())
            }
            Self::Number(range) => {
                format!("a whole number from {} to {}", range.start(), range.end())
            }
            Self::Switch => "true or false".into(),
        }
    }
}
