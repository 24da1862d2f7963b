//! How models are fetched: mirror, proxy, speed, and the access token, which goes in and never comes out.
//!
//! The token is in a file of its own that only its owner can read, together with the address it was entered for. It is used with that
//! address only: who changes the mirror does not send an old token there.

use std::path::{Path, PathBuf};

use fastar_hub::{Proxies, Token};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::data::write_whole;
use crate::error::{Error, Result};
use crate::settings::Settings;
use crate::settings::registry::{
    DOWNLOAD_ENDPOINT as ENDPOINT, DOWNLOAD_LIMIT as LIMIT, DOWNLOAD_PROXY as PROXY,
    DOWNLOAD_RESUME as RESUME, LONGEST,
};

const STARS: &str = "***";

#[derive(Serialize, Deserialize)]
struct Stored {
    endpoint: String,
    token: String,
}

fn token_file(folder: &Path) -> PathBuf {
    folder.join("hub-token")
}

/// How the hub is reached: what the person chose here, and `environment` where nothing was chosen. Where a mirror was chosen, only a token that
/// was entered for it goes there.
pub(crate) fn reach(
    settings: &Settings,
    folder: &Path,
    environment: fastar_hub::Settings,
) -> fastar_hub::Settings {
    let mut reach = environment;
    let endpoint = settings.text(&ENDPOINT);
    let token = stored_token(folder, &endpoint);
    let token = token.as_deref().and_then(Token::new);
    if endpoint.is_empty() {
        reach.token = token.or(reach.token);
    } else {
        reach.token = token;
        reach.endpoint = endpoint;
    }
    let proxy = settings.text(&PROXY);
    if !proxy.is_empty() {
        reach.proxies = Proxies {
            direct: reach.proxies.direct,
            ..Proxies::all(proxy)
        };
    }
    reach
}

pub(crate) fn limit(settings: &Settings) -> Option<u64> {
    settings.number(&LIMIT).filter(|limit| *limit > 0)
}

pub(crate) fn resume_at_start(settings: &Settings) -> bool {
    settings.flag(&RESUME)
}

/// What is done besides when the address of the mirror changes: a token that was stored for another one is forgotten.
pub(crate) fn moved(settings: &Settings, folder: &Path) -> Result<()> {
    if has_token(settings, folder) || !token_file(folder).exists() {
        return Ok(());
    }
    forget_token(folder)
}

/// Whether a token is stored for the address that is set.
pub(crate) fn has_token(settings: &Settings, folder: &Path) -> bool {
    stored_token(folder, &settings.text(&ENDPOINT)).is_some()
}

/// Stores a token for the address that is set; an empty one forgets it.
pub(crate) fn set_token(settings: &Settings, folder: &Path, token: &str) -> Result<()> {
    let token = token.trim();
    if token.is_empty() {
        return forget_token(folder);
    }
    if token.len() > LONGEST || !token.chars().all(|c| c.is_ascii_graphic()) {
        return Err(Error::BadRequest(
            "The access token contains characters that no token has. Copy it again.".into(),
        ));
    }
    store_token(folder, &settings.text(&ENDPOINT), token)
}

/// The address of the proxy as a person sees it.
pub(crate) fn shown_proxy(settings: &Settings) -> String {
    without_password(&settings.text(&PROXY))
}

/// The address with its password replaced by stars.
fn without_password(address: &str) -> String {
    match Url::parse(address) {
        Ok(mut url) if url.password().is_some() => match url.set_password(Some(STARS)) {
            Ok(()) => url.into(),
            Err(()) => STARS.to_owned(),
        },
        _ => address.to_owned(),
    }
}

fn stored_token(folder: &Path, endpoint: &str) -> Option<String> {
    let text = std::fs::read(token_file(folder)).ok()?;
    let stored: Stored = serde_json::from_slice(&text).ok()?;
    (stored.endpoint == endpoint && !stored.token.is_empty()).then_some(stored.token)
}

fn store_token(folder: &Path, endpoint: &str, token: &str) -> Result<()> {
    let path = token_file(folder);
    let stored = Stored {
        endpoint: endpoint.to_owned(),
        token: token.to_owned(),
    };
    let text = serde_json::to_vec(&stored).map_err(|error| Error::File {
        path: path.clone(),
        source: error.into(),
    })?;
    write_whole(&path, &text)
}

pub(crate) fn forget_token(folder: &Path) -> Result<()> {
    let path = token_file(folder);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file(&path)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn set(settings: &mut Settings, folder: &Path, key: &str, value: &str) {
        let setting = crate::settings::registry::find(key).unwrap();
        settings.set(&[(setting, Some(value.into()))]).unwrap();
        moved(settings, folder).unwrap();
    }

    #[test]
    fn a_token_is_used_for_the_address_it_was_entered_for_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let (mut settings, _) = Settings::open(dir.path(), "d").unwrap();
        set_token(&settings, dir.path(), " hf_secret ").unwrap();
        let elsewhere = || fastar_hub::Settings {
            token: Token::new("hf_of_the_environment"),
            ..fastar_hub::Settings::default()
        };
        let used = |settings: &Settings| reach(settings, dir.path(), elsewhere());
        assert_eq!(used(&settings).token, Token::new("hf_secret"));
        assert!(has_token(&settings, dir.path()));
        let file = std::fs::read_to_string(dir.path().join("settings.json")).unwrap_or_default();
        assert!(!file.contains("secret"), "{file}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let facts = std::fs::metadata(token_file(dir.path())).unwrap();
            assert_eq!(facts.permissions().mode() & 0o777, 0o600);
        }
        // Another setting leaves it, another address forgets it.
        set(&mut settings, dir.path(), "download_proxy", "http://p:1");
        assert!(has_token(&settings, dir.path()));
        let mirror = "https://mirror.example/hf";
        set(&mut settings, dir.path(), "download_endpoint", mirror);
        // No token that was entered for another address goes to the mirror, wherever it comes from.
        assert_eq!(used(&settings).token, None);
        assert_eq!(used(&settings).endpoint, mirror);
        assert!(!token_file(dir.path()).exists());
        set_token(&settings, dir.path(), "hf_other").unwrap();
        assert_eq!(used(&settings).token, Token::new("hf_other"));
        set_token(&settings, dir.path(), "").unwrap();
        assert!(!has_token(&settings, dir.path()));
    }

    #[test]
    fn a_password_of_a_proxy_is_used_and_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let (mut settings, _) = Settings::open(dir.path(), "d").unwrap();
        let whole = "http://me:hidden@proxy.example:3128";
        set(&mut settings, dir.path(), "download_proxy", whole);
        let seen = shown_proxy(&settings);
        assert!(!seen.contains("hidden") && seen.contains("me:***@proxy.example"));
        assert_eq!(
            reach(&settings, dir.path(), fastar_hub::Settings::default()).proxies,
            Proxies::all(whole)
        );
    }

    #[test]
    fn what_cannot_be_a_token_is_refused_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (settings, _) = Settings::open(dir.path(), "d").unwrap();
        for wrong in ["a b", "\u{fc}", &"x".repeat(3000)] {
            assert!(set_token(&settings, dir.path(), wrong).is_err());
        }
        assert!(!token_file(dir.path()).exists());
    }
}
