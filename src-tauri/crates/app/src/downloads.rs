//! How models are fetched: mirror, proxy, speed, and the access token, which goes in and never comes out.
//!
//! The token is in a file of its own that only its owner can read, together with the address it was entered for. It is used with that
//! address only: who changes the mirror does not send an old token there.

use std::path::{Path, PathBuf};

use fastar_api::{DownloadSettings, DownloadSettingsChange};
use fastar_hub::{Proxies, Token};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::data::write_whole;
use crate::error::{Error, Result};
use crate::settings::Settings;
use crate::settings::registry::{
    DOWNLOAD_ENDPOINT as ENDPOINT, DOWNLOAD_LIMIT as LIMIT, DOWNLOAD_PROXY as PROXY,
    DOWNLOAD_RESUME as RESUME,
};

const STARS: &str = "***";
/// No address and no token is longer, in bytes.
const LONGEST: usize = 2000;

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

/// The settings as a face may see them.
pub(crate) fn shown(settings: &Settings, folder: &Path) -> DownloadSettings {
    let endpoint = settings.text(&ENDPOINT);
    DownloadSettings {
        has_token: stored_token(folder, &endpoint).is_some(),
        proxy: without_password(&settings.text(&PROXY)),
        bytes_per_second: limit(settings),
        resume_at_start: resume_at_start(settings),
        endpoint,
    }
}

pub(crate) fn limit(settings: &Settings) -> Option<u64> {
    settings.number(&LIMIT).filter(|limit| *limit > 0)
}

pub(crate) fn resume_at_start(settings: &Settings) -> bool {
    settings.flag(&RESUME)
}

/// Checks and saves. Nothing is changed when one of them is wrong.
pub(crate) fn change(
    settings: &mut Settings,
    folder: &Path,
    change: &DownloadSettingsChange,
) -> Result<()> {
    let endpoint = change.endpoint.trim().trim_end_matches('/').to_owned();
    check_address("The address of the mirror", &endpoint, false)?;
    let shown = without_password(&settings.text(&PROXY));
    let proxy = change.proxy.trim();
    let proxy = if proxy == shown {
        settings.text(&PROXY)
    } else {
        check_address("The address of the proxy", proxy, true)?;
        proxy.to_owned()
    };
    let token = change.token.as_deref().map(str::trim);
    if let Some(token) = token
        && (token.len() > LONGEST || !token.chars().all(|c| c.is_ascii_graphic()))
    {
        return Err(Error::BadRequest(
            "The access token contains characters that no token has. Copy it again.".into(),
        ));
    }
    let moved = endpoint != settings.text(&ENDPOINT);
    match token {
        Some("") => forget_token(folder)?,
        Some(token) => store_token(folder, &endpoint, token)?,
        None if moved => forget_token(folder)?,
        None => {}
    }
    settings.set(&[
        (&ENDPOINT, text(&endpoint)),
        (&PROXY, text(&proxy)),
        (
            &LIMIT,
            change
                .bytes_per_second
                .filter(|limit| *limit > 0)
                .map(Into::into),
        ),
        (&RESUME, change.resume_at_start.then(|| true.into())),
    ])
}

fn text(value: &str) -> Option<serde_json::Value> {
    (!value.is_empty()).then(|| value.into())
}

fn check_address(what: &str, address: &str, may_have_password: bool) -> Result<()> {
    if address.is_empty() {
        return Ok(());
    }
    let wrong = |why: &str| Err(Error::BadRequest(format!("{what} cannot be used: {why}.")));
    if address.len() > LONGEST {
        return wrong("it is too long");
    }
    let Ok(url) = Url::parse(address) else {
        return wrong("it is not a whole web address, with https:// or http:// at its beginning");
    };
    let scheme = matches!(url.scheme(), "http" | "https")
        || (may_have_password && matches!(url.scheme(), "socks5" | "socks5h"));
    if !scheme || url.host_str().is_none() {
        return wrong("it does not begin with https:// or http://");
    }
    if !may_have_password && (!url.username().is_empty() || url.password().is_some()) {
        return wrong("it contains a name or password; enter a token instead");
    }
    Ok(())
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

fn forget_token(folder: &Path) -> Result<()> {
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

    fn wish() -> DownloadSettingsChange {
        DownloadSettingsChange {
            endpoint: String::new(),
            proxy: String::new(),
            bytes_per_second: None,
            token: None,
            resume_at_start: false,
        }
    }

    #[test]
    fn a_token_is_used_for_the_address_it_was_entered_for_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let (mut settings, _) = Settings::open(dir.path(), "d").unwrap();
        let with_token = DownloadSettingsChange {
            token: Some(" hf_secret ".into()),
            ..wish()
        };
        change(&mut settings, dir.path(), &with_token).unwrap();
        let elsewhere = || fastar_hub::Settings {
            token: Token::new("hf_of_the_environment"),
            ..fastar_hub::Settings::default()
        };
        let used = |settings: &Settings| reach(settings, dir.path(), elsewhere());
        assert_eq!(used(&settings).token, Token::new("hf_secret"));
        let seen = shown(&settings, dir.path());
        assert!(seen.has_token);
        assert!(!serde_json::to_string(&seen).unwrap().contains("secret"));
        let file = std::fs::read_to_string(dir.path().join("settings.json")).unwrap_or_default();
        assert!(!file.contains("secret"), "{file}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let facts = std::fs::metadata(token_file(dir.path())).unwrap();
            assert_eq!(facts.permissions().mode() & 0o777, 0o600);
        }
        // Another setting leaves it, another address forgets it.
        let faster = DownloadSettingsChange {
            bytes_per_second: Some(5),
            ..wish()
        };
        change(&mut settings, dir.path(), &faster).unwrap();
        assert!(shown(&settings, dir.path()).has_token);
        let mirror = DownloadSettingsChange {
            endpoint: "https://mirror.example/hf/".into(),
            ..wish()
        };
        change(&mut settings, dir.path(), &mirror).unwrap();
        // No token that was entered for another address goes to the mirror, wherever it comes from.
        assert_eq!(used(&settings).token, None);
        assert_eq!(used(&settings).endpoint, "https://mirror.example/hf");
        assert!(!token_file(dir.path()).exists());
        assert_eq!(
            shown(&settings, dir.path()).endpoint,
            "https://mirror.example/hf"
        );
    }

    #[test]
    fn a_password_of_a_proxy_is_kept_and_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let (mut settings, _) = Settings::open(dir.path(), "d").unwrap();
        let proxy = DownloadSettingsChange {
            proxy: "http://me:hidden@proxy.example:3128".into(),
            ..wish()
        };
        change(&mut settings, dir.path(), &proxy).unwrap();
        let seen = shown(&settings, dir.path());
        assert!(!seen.proxy.contains("hidden") && seen.proxy.contains("me:***@proxy.example"));
        let again = DownloadSettingsChange {
            proxy: seen.proxy,
            resume_at_start: true,
            ..wish()
        };
        change(&mut settings, dir.path(), &again).unwrap();
        assert_eq!(
            reach(&settings, dir.path(), fastar_hub::Settings::default()).proxies,
            Proxies::all("http://me:hidden@proxy.example:3128")
        );
        assert!(shown(&settings, dir.path()).resume_at_start);
    }

    #[test]
    fn what_cannot_be_an_address_or_a_token_is_refused_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (mut settings, _) = Settings::open(dir.path(), "d").unwrap();
        for wrong in [
            DownloadSettingsChange {
                endpoint: "mirror.example".into(),
                ..wish()
            },
            DownloadSettingsChange {
                endpoint: "file:///etc".into(),
                ..wish()
            },
            DownloadSettingsChange {
                endpoint: "https://me:x@mirror.example".into(),
                ..wish()
            },
            DownloadSettingsChange {
                proxy: "proxy:3128".into(),
                ..wish()
            },
            DownloadSettingsChange {
                token: Some("a b".into()),
                ..wish()
            },
            DownloadSettingsChange {
                token: Some("x".repeat(3000)),
                ..wish()
            },
        ] {
            assert!(change(&mut settings, dir.path(), &wrong).is_err());
            assert_eq!(
                shown(&settings, dir.path()),
                shown(&Settings::open(dir.path(), "d").unwrap().0, dir.path())
            );
        }
        assert!(!dir.path().join("settings.json").exists() && !token_file(dir.path()).exists());
    }
}
