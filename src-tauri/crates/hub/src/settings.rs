//! Where to download from and how: explicit values, or what the environment says in the conventions of Hugging Face's own tools.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::HeaderValue;
use url::Url;

use crate::proxy::Proxies;
use crate::{Error, Result};

/// The hub itself.
pub const HUGGING_FACE: &str = "https://huggingface.co";

/// An access token. Never shown: its `Debug` is a placeholder, and it goes to the endpoint's own origin only.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token without the white space around it; `None` if nothing is left.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    pub(crate) fn header(&self) -> Result<HeaderValue> {
        let mut value =
            HeaderValue::from_str(&format!("Bearer {}", self.0)).map_err(|_| Error::Setting {
                what: "The access token",
                problem: "it contains characters that no token has".into(),
            })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// How a [`Hub`](crate::Hub) reaches its server. Start from [`from_environment`](Self::from_environment) and overwrite what the person chose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address of the hub or of a mirror, with or without a path prefix and a slash at the end.
    pub endpoint: String,
    /// Sent to the endpoint only, never along a redirect to another host.
    pub token: Option<Token>,
    /// Proxies; loopback addresses never go through one.
    pub proxies: Proxies,
    /// A PEM file of authorities to believe besides those of the system.
    pub certificates: Option<PathBuf>,
    /// A connection that brings nothing for this long is dropped and resumed.
    pub stall: Duration,
    /// First wait after a failure; doubled each time, with jitter, and reset by every byte that arrives.
    pub first_wait: Duration,
    /// Longest wait between two attempts, unless the server asks for more (`Retry-After`), which counts up to one hour.
    pub longest_wait: Duration,
    /// Attempts without progress before [`Hub::snapshot`](crate::Hub::snapshot) and [`Hub::read`](crate::Hub::read) give up. Transfers never do.
    pub tries: u32,
    /// Connections at once, all files together.
    pub connections: usize,
}

impl Default for Settings {
    /// Hugging Face without a token or proxy; the environment is not read.
    fn default() -> Self {
        Self {
            endpoint: HUGGING_FACE.to_owned(),
            token: None,
            proxies: Proxies::default(),
            certificates: None,
            stall: Duration::from_secs(45),
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
            tries: 5,
            connections: 4,
        }
    }
}

impl Settings {
    /// `HF_ENDPOINT`; `HF_TOKEN`, `HF_TOKEN_PATH` or the file that `hf auth login` writes (under `HF_HOME`, `XDG_CACHE_HOME` or `~/.cache`);
    /// `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` in either case; `SSL_CERT_FILE`.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// The same from any source of variables.
    #[must_use]
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name: &str| {
            let value = variable(name)?.into_string().ok()?;
            let value = value.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        let mut settings = Self {
            proxies: Proxies::from_variables(&text),
            token: token(&text, &variable),
            certificates: variable("SSL_CERT_FILE")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            ..Self::default()
        };
        if let Some(endpoint) = text("HF_ENDPOINT") {
            settings.endpoint = endpoint;
        }
        settings
    }

    /// The endpoint as an address whose path ends with a slash.
    pub(crate) fn endpoint(&self) -> Result<Url> {
        let wrong = |problem: &str| Error::Setting {
            what: "The address of the hub",
            problem: format!("{problem} (example: {HUGGING_FACE})"),
        };
        let mut url =
            Url::parse(self.endpoint.trim()).map_err(|_| wrong("it is not a web address"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong("it does not start with https:// or http://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("it contains a name or password; use a token instead"));
        }
        url.set_query(None);
        url.set_fragment(None);
        let path = format!("{}/", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(url)
    }
}

fn token(
    text: &impl Fn(&str) -> Option<String>,
    variable: &impl Fn(&str) -> Option<OsString>,
) -> Option<Token> {
    if let Some(token) = text("HF_TOKEN") {
        return Token::new(&token);
    }
    if text("HF_HUB_DISABLE_IMPLICIT_TOKEN").is_some_and(|value| {
        matches!(
            value.to_ascii_lowercase().as_str(),
            "1" | "on" | "yes" | "true"
        )
    }) {
        return None;
    }
    let folder = |name: &str| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(path) = folder("HF_TOKEN_PATH") {
        return Token::new(&std::fs::read_to_string(path).ok()?);
    }
    let home = folder("HF_HOME")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("huggingface")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/huggingface")))?;
    Token::new(&hf_hub::Cache::new(home.join("hub")).token()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Settings {
        Settings::from_variables(|name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn an_endpoint_keeps_its_path_prefix_with_and_without_a_slash() {
        for (given, used) in [
            ("https://mirror.test/hf", "https://mirror.test/hf/"),
            ("https://mirror.test/hf//", "https://mirror.test/hf/"),
            (" http://127.0.0.1:8080 ", "http://127.0.0.1:8080/"),
        ] {
            assert_eq!(
                from(&[("HF_ENDPOINT", given)])
                    .endpoint()
                    .map(String::from)
                    .ok()
                    .as_deref(),
                Some(used)
            );
        }
        assert_eq!(from(&[("HF_ENDPOINT", "  ")]).endpoint, HUGGING_FACE);
        for wrong in [
            "mirror.test",
            "ftp://mirror.test",
            "https://me:secret@mirror.test",
        ] {
            let message = from(&[("HF_ENDPOINT", wrong)])
                .endpoint()
                .map(|_| ())
                .unwrap_err()
                .to_string();
            assert!(
                message.starts_with("The address of the hub cannot be used: ")
                    && !message.contains("secret"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_token_comes_from_the_variable_or_the_usual_files_and_is_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        std::fs::create_dir_all(folder.path().join(".cache/huggingface")).unwrap();
        std::fs::write(folder.path().join(".cache/huggingface/token"), "hf_home\n").unwrap();
        std::fs::write(folder.path().join("token"), "hf_own").unwrap();
        let own = folder.path().join("token");
        let own = own.to_str().unwrap();
        let token = |variables: &[(&str, &str)]| from(variables).token.map(|token| token.0);
        assert_eq!(token(&[]), None);
        assert_eq!(token(&[("HOME", home)]).as_deref(), Some("hf_home"));
        assert_eq!(
            token(&[("HOME", home), ("HF_HOME", home)]).as_deref(),
            Some("hf_own")
        );
        assert_eq!(
            token(&[("HOME", home), ("HF_TOKEN_PATH", own)]).as_deref(),
            Some("hf_own")
        );
        assert_eq!(
            token(&[("HOME", home), ("HF_TOKEN", " hf_variable ")]).as_deref(),
            Some("hf_variable")
        );
        assert_eq!(
            token(&[("HOME", home), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]),
            None
        );
        let settings = from(&[
            ("HF_TOKEN", "hf_secret"),
            ("HTTPS_PROXY", "http://me:hidden@proxy.test:3128"),
        ]);
        let debug = format!("{settings:?}");
        assert!(
            !debug.contains("hf_secret") && !debug.contains("hidden"),
            "{debug}"
        );
        assert!(Token::new("a\u{1}b").unwrap().header().is_err());
    }
}
