//! Every setting there is: its key in the file, what values it takes, its default, when a change counts, and what it does for a person.
//!
//! The file, the settings screen and the errors all come from this one list. What a setting does is where it is used.

use std::ops::RangeInclusive;

use fastar_api::{SettingKind, SettingScope as Scope, SettingSection as Section};
use fastar_engine::Sampling;
use serde_json::Value;
use url::Url;

/// No address and no token is longer, in bytes.
pub(crate) const LONGEST: usize = 2000;
/// The largest whole number that every reader of JSON keeps exactly.
const LARGEST: u64 = (1 << 53) - 1;

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its key in `settings.json`.
    pub key: &'static str,
    /// Where it is shown.
    pub section: Section,
    /// What values it takes.
    pub kind: Kind,
    /// What counts while none is set.
    pub default: Default,
    /// When a change counts.
    pub scope: Scope,
    /// What it does, for people.
    pub help: &'static str,
}

/// What values a setting takes.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A path, chosen in a dialog; empty is as good as not set.
    Path,
    /// An address on the web; empty is as good as not set.
    Address {
        /// A name and a password may be in it, and a proxy's schemes.
        proxy: bool,
    },
    /// Web origins (`https://name:port`) with spaces between them; empty is as good as not set.
    Origins,
    /// Kept in a file of its own, never in the settings.
    Secret,
    /// A whole number.
    Whole(RangeInclusive<u64>),
    /// A number.
    Decimal(RangeInclusive<f64>),
    /// Yes or no.
    Switch,
    /// One of some words.
    Choice(&'static [&'static str]),
}

/// What counts while nothing is set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Default {
    /// Whatever the app finds best, or nothing.
    Automatic,
    /// A number.
    Number(f64),
    /// Yes or no.
    Switch(bool),
    /// A word.
    Word(&'static str),
}

pub(crate) static MODEL: Setting = Setting {
    key: "model",
    section: Section::Models,
    kind: Kind::Path,
    default: Default::Automatic,
    scope: Scope::Live,
    help: "The model file in use. Without one, the built-in demo answers.",
};
pub(crate) static MODELS_FOLDER: Setting = Setting {
    key: "models_folder",
    section: Section::Models,
    kind: Kind::Path,
    default: Default::Automatic,
    scope: Scope::Live,
    help: "Where models are kept and downloaded to. Models in another folder stay there.",
};
pub(crate) static DOWNLOAD_ENDPOINT: Setting = Setting {
    key: "download_endpoint",
    section: Section::Models,
    kind: Kind::Address { proxy: false },
    default: Default::Automatic,
    scope: Scope::Live,
    help: "A mirror that models come from. Empty: Hugging Face, or what HF_ENDPOINT names. Nothing is asked of any other place once a mirror is set. \
        A stored token is forgotten when this changes.",
};
pub(crate) static DOWNLOAD_PROXY: Setting = Setting {
    key: "download_proxy",
    section: Section::Models,
    kind: Kind::Address { proxy: true },
    default: Default::Automatic,
    scope: Scope::Live,
    help: "Empty: what the system says.",
};
pub(crate) static DOWNLOAD_TOKEN: Setting = Setting {
    key: "download_token",
    section: Section::Models,
    kind: Kind::Secret,
    default: Default::Automatic,
    scope: Scope::Live,
    help: "Only needed for repositories that ask for one. It is sent to the mirror, or to Hugging Face where there is none, and nowhere else.",
};
pub(crate) static DOWNLOAD_LIMIT: Setting = Setting {
    key: "download_bytes_per_second",
    section: Section::Models,
    kind: Kind::Whole(0..=LARGEST),
    default: Default::Automatic,
    scope: Scope::Live,
    help: "Most that a download takes of the line. Empty: as fast as it goes. Also counts for a download that is running.",
};
pub(crate) static DOWNLOAD_RESUME: Setting = Setting {
    key: "download_resume_at_start",
    section: Section::Models,
    kind: Kind::Switch,
    default: Default::Switch(false),
    scope: Scope::RestartApp,
    help: "Unfinished downloads go on by themselves when FaStar starts.",
};
pub(crate) static EXPERT_CACHE: Setting = Setting {
    key: "expert_cache_bytes",
    section: Section::Performance,
    kind: Kind::Whole(0..=1 << 50),
    default: Default::Automatic,
    scope: Scope::ReloadModel,
    help: "Memory that keeps the model’s experts at hand. More of it means fewer waits for the disk. Empty: all that this computer has free, less a reserve.",
};
pub(crate) static THREADS: Setting = Setting {
    key: "threads",
    section: Section::Performance,
    kind: Kind::Whole(1..=512),
    default: Default::Automatic,
    scope: Scope::ReloadModel,
    help: "Processors that compute at the same time. Empty: one for each core, which is fastest.",
};
pub(crate) static CONTEXT: Setting = Setting {
    key: "context_tokens",
    section: Section::Performance,
    kind: Kind::Whole(256..=1 << 20),
    default: Default::Automatic,
    scope: Scope::ReloadModel,
    help: "Longest conversation, in tokens. Empty: what the model was made for; a larger number is cut to that.",
};
pub(crate) static READ_AHEAD: Setting = Setting {
    key: "read_ahead",
    section: Section::Performance,
    kind: Kind::Switch,
    default: Default::Switch(true),
    scope: Scope::ReloadModel,
    help: "Read experts that will probably be needed while the disk has nothing else to do.",
};
pub(crate) static EXACT: Setting = Setting {
    key: "exact_arithmetic",
    section: Section::Performance,
    kind: Kind::Switch,
    default: Default::Switch(false),
    scope: Scope::ReloadModel,
    help: "Never round to eight bits where that is faster. Slower; for comparing.",
};
pub(crate) static THINKING: Setting = Setting {
    key: "thinking",
    section: Section::Answers,
    kind: Kind::Choice(&["off", "on", "max"]),
    default: Default::Word("off"),
    scope: Scope::Live,
    help: "Whether the model thinks before it answers, where a message does not say otherwise.",
};
pub(crate) static TEMPERATURE: Setting = Setting {
    key: "temperature",
    section: Section::Answers,
    kind: Kind::Decimal(0.0..=Sampling::MOST_TEMPERATURE),
    default: Default::Number(Sampling::TEMPERATURE),
    scope: Scope::NextMessage,
    help: "How daring the choice of words is. 0 always takes the likeliest; above 1 it becomes wild.",
};
pub(crate) static TOP_P: Setting = Setting {
    key: "top_p",
    section: Section::Answers,
    kind: Kind::Decimal(Sampling::LEAST_TOP_P..=1.0),
    default: Default::Number(Sampling::TOP_P),
    scope: Scope::NextMessage,
    help: "Only the likeliest words that together have this probability are considered. 1 considers all.",
};
pub(crate) static TOP_K: Setting = Setting {
    key: "top_k",
    section: Section::Answers,
    kind: Kind::Whole(0..=1_000_000),
    default: Default::Number(0.0),
    scope: Scope::NextMessage,
    help: "Only so many of the likeliest words are considered. 0 considers all.",
};
pub(crate) static MIN_P: Setting = Setting {
    key: "min_p",
    section: Section::Answers,
    kind: Kind::Decimal(0.0..=1.0),
    default: Default::Number(0.0),
    scope: Scope::NextMessage,
    help: "Words less likely than this share of the likeliest one are left out. 0 leaves none out.",
};
pub(crate) static REPETITION_PENALTY: Setting = Setting {
    key: "repetition_penalty",
    section: Section::Answers,
    kind: Kind::Decimal(0.1..=10.0),
    default: Default::Number(1.0),
    scope: Scope::NextMessage,
    help: "Above 1, words that were there already become less likely. 1 is off.",
};
pub(crate) static PRESENCE_PENALTY: Setting = Setting {
    key: "presence_penalty",
    section: Section::Answers,
    kind: Kind::Decimal(-10.0..=10.0),
    default: Default::Number(0.0),
    scope: Scope::NextMessage,
    help: "Above 0, words of the answer become less likely, once each. 0 is off.",
};
pub(crate) static FREQUENCY_PENALTY: Setting = Setting {
    key: "frequency_penalty",
    section: Section::Answers,
    kind: Kind::Decimal(-10.0..=10.0),
    default: Default::Number(0.0),
    scope: Scope::NextMessage,
    help: "Above 0, words of the answer become less likely each time they occur. 0 is off.",
};
pub(crate) static MAX_TOKENS: Setting = Setting {
    key: "max_tokens",
    section: Section::Answers,
    kind: Kind::Whole(1..=1 << 20),
    default: Default::Automatic,
    scope: Scope::NextMessage,
    help: "Longest answer, in tokens. Empty: until the model ends it, or the context is full.",
};
pub(crate) static SEED: Setting = Setting {
    key: "seed",
    section: Section::Answers,
    kind: Kind::Whole(0..=LARGEST),
    default: Default::Automatic,
    scope: Scope::NextMessage,
    help: "The same seed gives the same answer to the same conversation. Empty: another one each time.",
};
pub(crate) static THEME: Setting = Setting {
    key: "theme",
    section: Section::Appearance,
    kind: Kind::Choice(&["system", "light", "dark"]),
    default: Default::Word("system"),
    scope: Scope::Live,
    help: "Light, dark, or as the system is.",
};
pub(crate) static LANGUAGE: Setting = Setting {
    key: "language",
    section: Section::Appearance,
    kind: Kind::Choice(&["system", "en", "zh"]),
    default: Default::Word("system"),
    scope: Scope::Live,
    help: "Language of the window. Automatic is that of the system.",
};
pub(crate) static TEXT_SIZE: Setting = Setting {
    key: "text_size",
    section: Section::Appearance,
    kind: Kind::Whole(80..=200),
    default: Default::Number(100.0),
    scope: Scope::Live,
    help: "Size of everything in the window, in percent.",
};
pub(crate) static NOTIFICATIONS: Setting = Setting {
    key: "notifications",
    section: Section::Appearance,
    kind: Kind::Switch,
    default: Default::Switch(true),
    scope: Scope::Live,
    help: "While you look at something else, the system tells you when a download has ended or a long answer is ready.",
};
pub(crate) static KEEP_AWAKE: Setting = Setting {
    key: "keep_awake",
    section: Section::Performance,
    kind: Kind::Switch,
    default: Default::Switch(true),
    scope: Scope::Live,
    help: "The computer does not go to sleep by itself while an answer, a download or a check is under way. Closing the lid still puts it to sleep.",
};

pub(crate) static SERVER: Setting = Setting {
    key: "server",
    section: Section::Server,
    kind: Kind::Switch,
    default: Default::Switch(false),
    scope: Scope::Live,
    help: "A browser and other programs of this computer can use FaStar while its window is open. Whoever has the key can read and delete your chats.",
};
pub(crate) static SERVER_PORT: Setting = Setting {
    key: "server_port",
    section: Section::Server,
    kind: Kind::Whole(1024..=65535),
    default: Default::Number(8642.0),
    scope: Scope::Live,
    help: "Where it listens. No other program can use the same port meanwhile.",
};
pub(crate) static SERVER_LAN: Setting = Setting {
    key: "server_lan",
    section: Section::Server,
    kind: Kind::Switch,
    default: Default::Switch(false),
    scope: Scope::Live,
    help: "Other computers of this network reach it too, with the key. Nothing is encrypted on the way: turn this on only in a network that you trust.",
};
pub(crate) static SERVER_ORIGINS: Setting = Setting {
    key: "server_origins",
    section: Section::Server,
    kind: Kind::Origins,
    default: Default::Automatic,
    scope: Scope::Live,
    help: "Web pages that may use it from a browser, with the key: their exact addresses, with spaces between them. Empty: none but its own.",
};

pub(crate) static LOG_LEVEL: Setting = Setting {
    key: "log_level",
    section: Section::Logs,
    kind: Kind::Choice(&["error", "warn", "info", "debug"]),
    default: Default::Word("info"),
    scope: Scope::Live,
    help: "What is written down: errors alone, warnings too, what happens as well, or every detail. Never a message or an answer.",
};

/// All of them, in the order of the screen.
pub(crate) static ALL: [&Setting; 32] = [
    &THEME,
    &LANGUAGE,
    &TEXT_SIZE,
    &NOTIFICATIONS,
    &THINKING,
    &TEMPERATURE,
    &TOP_P,
    &TOP_K,
    &MIN_P,
    &REPETITION_PENALTY,
    &PRESENCE_PENALTY,
    &FREQUENCY_PENALTY,
    &MAX_TOKENS,
    &SEED,
    &EXPERT_CACHE,
    &THREADS,
    &CONTEXT,
    &READ_AHEAD,
    &EXACT,
    &KEEP_AWAKE,
    &MODEL,
    &MODELS_FOLDER,
    &DOWNLOAD_LIMIT,
    &DOWNLOAD_ENDPOINT,
    &DOWNLOAD_PROXY,
    &DOWNLOAD_TOKEN,
    &DOWNLOAD_RESUME,
    &SERVER,
    &SERVER_PORT,
    &SERVER_LAN,
    &SERVER_ORIGINS,
    &LOG_LEVEL,
];

/// The setting with this key.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    ALL.into_iter().find(|setting| setting.key == key)
}

impl Setting {
    /// What counts while nothing is set; null where the app finds the best by itself.
    pub fn default_value(&self) -> Value {
        match self.default {
            Default::Automatic => Value::Null,
            Default::Switch(on) => on.into(),
            Default::Word(word) => word.into(),
            // The table below holds numbers of both kinds; whole ones are written as such.
            Default::Number(n) if matches!(self.kind, Kind::Whole(_)) => (n as u64).into(),
            Default::Number(n) => n.into(),
        }
    }
}

impl Kind {
    /// Whether a value of the file is one of these. Addresses are looked at when they are used: who has one in the file that cannot work is told there.
    pub fn takes(&self, value: &Value) -> bool {
        match self {
            Self::Path | Self::Address { .. } | Self::Origins => value.is_string(),
            // It does not belong into the file.
            Self::Secret => false,
            Self::Whole(range) => value.as_u64().is_some_and(|n| range.contains(&n)),
            Self::Decimal(range) => value.as_f64().is_some_and(|n| range.contains(&n)),
            Self::Switch => value.is_boolean(),
            Self::Choice(words) => value.as_str().is_some_and(|w| words.contains(&w)),
        }
    }

    /// A value from a person as it is kept, or what is wrong with it after the setting's name.
    pub fn check(&self, value: &Value) -> Result<Value, String> {
        let value = match (self, value) {
            // Some writers of JSON write whole numbers with a point.
            (Self::Whole(_), Value::Number(n)) => match n.as_f64() {
                Some(x) if x >= 0.0 && x.fract() == 0.0 && x <= LARGEST as f64 => {
                    n.as_u64().unwrap_or(x as u64).into()
                }
                _ => value.clone(),
            },
            (Self::Address { .. }, Value::String(text)) => text.trim().trim_end_matches('/').into(),
            (Self::Origins, Value::String(text)) => origins(text)?.into(),
            _ => value.clone(),
        };
        if let (Self::Address { proxy }, Value::String(address)) = (self, &value) {
            check_address(address, *proxy)?;
        }
        if self.takes(&value) {
            Ok(value)
        } else {
            Err(format!("must be {}", self.words()))
        }
    }

    /// The values in words, after "must be".
    pub fn words(&self) -> String {
        match self {
            Self::Path | Self::Address { .. } | Self::Origins => "a text in quotation marks".into(),
            Self::Secret => "kept elsewhere".into(),
            Self::Whole(range) if *range.end() == LARGEST => {
                format!("a whole number from {} on", range.start())
            }
            Self::Whole(range) => {
                format!("a whole number from {} to {}", range.start(), range.end())
            }
            Self::Decimal(range) => format!("a number from {} to {}", range.start(), range.end()),
            Self::Switch => "true or false".into(),
            Self::Choice(words) => match words.split_last() {
                Some((last, before)) => format!("{} or {last}", before.join(", ")),
                None => "nothing".into(),
            },
        }
    }

    /// As a face sees it.
    pub fn shown(&self) -> SettingKind {
        match self {
            Self::Path => SettingKind::Path,
            Self::Address { .. } | Self::Origins => SettingKind::Address,
            Self::Secret => SettingKind::Secret,
            Self::Whole(range) => SettingKind::Whole {
                min: *range.start(),
                max: *range.end(),
            },
            Self::Decimal(range) => SettingKind::Decimal {
                min: *range.start(),
                max: *range.end(),
            },
            Self::Switch => SettingKind::Switch,
            Self::Choice(words) => SettingKind::Choice {
                options: words.iter().map(|word| (*word).to_owned()).collect(),
            },
        }
    }
}

fn check_address(address: &str, proxy: bool) -> Result<(), String> {
    if address.is_empty() {
        return Ok(());
    }
    let wrong = |why: &str| Err(format!("cannot be used: {why}"));
    if address.len() > LONGEST {
        return wrong("it is too long");
    }
    let Ok(url) = Url::parse(address) else {
        return wrong("it is not a whole web address, with https:// or http:// at its beginning");
    };
    let scheme = matches!(url.scheme(), "http" | "https")
        || (proxy && matches!(url.scheme(), "socks5" | "socks5h"));
    if !scheme || url.host_str().is_none() {
        return wrong("it does not begin with https:// or http://");
    }
    if !proxy && (!url.username().is_empty() || url.password().is_some()) {
        return wrong("it contains a name or password; enter a token instead");
    }
    Ok(())
}

/// Origins as browsers write them, or what is wrong with one.
fn origins(text: &str) -> Result<String, String> {
    let wrong = |given: &str, why: &str| {
        let given: String = given.chars().take(60).collect();
        Err(format!("cannot be used: `{given}` {why}"))
    };
    let mut origins = Vec::new();
    for given in text
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|given| !given.is_empty())
    {
        let Ok(url) = Url::parse(given) else {
            return wrong(
                given,
                "is not a whole web address, with https:// or http:// at its beginning",
            );
        };
        if !matches!(url.scheme(), "http" | "https") {
            return wrong(given, "does not begin with https:// or http://");
        }
        let bare = url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if !bare {
            return wrong(given, "has more than a name and a port");
        }
        let origin = url.origin().ascii_serialization();
        if !origins.contains(&origin) {
            origins.push(origin);
        }
    }
    let origins = origins.join(" ");
    if origins.len() > LONGEST {
        return Err("cannot be used: it is too long".into());
    }
    Ok(origins)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_setting_and_every_key_is_there_once() {
        for (number, setting) in ALL.into_iter().enumerate() {
            let default = setting.default_value();
            assert!(
                default.is_null() || setting.kind.takes(&default),
                "{}",
                setting.key
            );
            assert!(setting.help.ends_with('.'), "{}", setting.key);
            let first = ALL.into_iter().position(|other| other.key == setting.key);
            assert_eq!(first, Some(number), "{}", setting.key);
        }
        assert_eq!(find("threads").unwrap().key, "threads");
        assert!(find("thread").is_none());
    }

    #[test]
    fn values_are_taken_or_refused_with_what_they_must_be() {
        let check = |setting: &Setting, text: &str| {
            setting.kind.check(&serde_json::from_str(text).unwrap())
        };
        assert_eq!(check(&THREADS, "8").unwrap(), Value::from(8));
        assert_eq!(check(&THREADS, "8.0").unwrap(), Value::from(8));
        for wrong in ["0", "513", "1.5", "-1", "\"8\"", "null", "true", "1e300"] {
            assert_eq!(
                check(&THREADS, wrong).unwrap_err(),
                "must be a whole number from 1 to 512",
                "{wrong}"
            );
        }
        assert_eq!(check(&TEMPERATURE, "1").unwrap(), Value::from(1));
        assert_eq!(
            check(&TEMPERATURE, "-0.1").unwrap_err(),
            "must be a number from 0 to 10"
        );
        assert_eq!(
            check(&THEME, "\"blue\"").unwrap_err(),
            "must be system, light or dark"
        );
        assert_eq!(check(&EXACT, "1").unwrap_err(), "must be true or false");
        assert_eq!(
            check(&DOWNLOAD_ENDPOINT, "\" https://mirror.example/hf/ \"").unwrap(),
            Value::from("https://mirror.example/hf")
        );
        for wrong in [
            "mirror.example",
            "file:///etc",
            "https://me:x@mirror.example",
            "socks5://proxy.example:1",
        ] {
            let wrong = Value::from(wrong);
            assert!(DOWNLOAD_ENDPOINT.kind.check(&wrong).is_err(), "{wrong}");
        }
        for right in ["socks5://proxy.example:1", "http://me:x@proxy.example"] {
            let right = Value::from(right);
            assert_eq!(DOWNLOAD_PROXY.kind.check(&right), Ok(right));
        }
        assert!(DOWNLOAD_PROXY.kind.check(&"proxy:3128".into()).is_err());
    }
}
