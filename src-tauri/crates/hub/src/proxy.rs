//! Which requests go through a proxy: the rules of curl, and never for loopback. Passwords are used and never shown.

use std::fmt;
use std::net::IpAddr;

use hyper_util::client::proxy::matcher::Matcher;
use url::{Host, Url};

use crate::{Error, Result};

/// Proxies by the scheme of the address that is fetched, and the hosts that are reached directly.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// For `http://` addresses.
    pub http: Option<String>,
    /// For `https://` addresses.
    pub https: Option<String>,
    /// For both, where the above say nothing. `http`, `https` and `socks5` proxies work.
    pub all: Option<String>,
    /// Hosts, domains, addresses or networks that are reached directly, separated by commas; `*` is all.
    pub direct: String,
}

impl Proxies {
    /// One proxy for everything.
    #[must_use]
    pub fn all(address: impl Into<String>) -> Self {
        Self {
            all: Some(address.into()),
            ..Self::default()
        }
    }

    pub(crate) fn from_variables(text: &impl Fn(&str) -> Option<String>) -> Self {
        let either = |upper: &str| text(upper).or_else(|| text(&upper.to_ascii_lowercase()));
        Self {
            http: either("HTTP_PROXY"),
            https: either("HTTPS_PROXY"),
            all: either("ALL_PROXY"),
            direct: either("NO_PROXY").unwrap_or_default(),
        }
    }

    pub(crate) fn rules(&self) -> Result<Rules> {
        let all = self.all.as_deref().map(address).transpose()?;
        let http = self
            .http
            .as_deref()
            .map(address)
            .transpose()?
            .or_else(|| all.clone());
        let https = self.https.as_deref().map(address).transpose()?.or(all);
        // Only the list of exceptions is left to the matcher; it answers "a proxy" for every other host.
        let matcher = Matcher::builder()
            .all("http://proxy.invalid")
            .no(self.direct.as_str())
            .build();
        Ok(Rules {
            http,
            https,
            matcher,
        })
    }
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |text: &Option<String>| {
            text.as_deref().map(|text| {
                address(text).map_or_else(|_| "(unreadable)".to_owned(), |url| plain(&url))
            })
        };
        f.debug_struct("Proxies")
            .field("http", &hidden(&self.http))
            .field("https", &hidden(&self.https))
            .field("all", &hidden(&self.all))
            .field("direct", &self.direct)
            .finish()
    }
}

fn address(text: &str) -> Result<Url> {
    let wrong = || Error::Setting {
        what: "The proxy",
        problem: "its address is not of the form http://HOST:PORT".into(),
    };
    let text = text.trim();
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url = Url::parse(&full).map_err(|_| wrong())?;
    let known = matches!(
        url.scheme(),
        "http" | "https" | "socks4" | "socks4a" | "socks5" | "socks5h"
    );
    if known && url.host_str().is_some_and(|host| !host.is_empty()) {
        Ok(url)
    } else {
        Err(wrong())
    }
}

/// A proxy's address without name and password.
fn plain(url: &Url) -> String {
    let port = url
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    format!(
        "{}://{}{port}",
        url.scheme(),
        url.host_str().unwrap_or_default()
    )
}

/// The settings, checked.
pub(crate) struct Rules {
    http: Option<Url>,
    https: Option<Url>,
    matcher: Matcher,
}

impl Rules {
    /// The proxy for `url`, name and password included.
    pub(crate) fn proxy(&self, url: &Url) -> Option<Url> {
        if is_loopback(url) {
            return None;
        }
        let proxy = if url.scheme() == "https" {
            &self.https
        } else {
            &self.http
        };
        let proxy = proxy.clone()?;
        let uri = url.as_str().parse().ok()?;
        self.matcher.intercept(&uri).map(|_| proxy)
    }

    /// The proxy for `url`, for people.
    pub(crate) fn shown(&self, url: &Url) -> Option<String> {
        self.proxy(url).map(|proxy| plain(&proxy))
    }
}

/// Whether everybody on the way can read and change what comes from there.
pub fn is_open(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.scheme() == "http" && !is_loopback(&url))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name.eq_ignore_ascii_case("localhost")
                || name.to_ascii_lowercase().ends_with(".localhost")
        }
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).to_canonical().is_loopback(),
        None => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_http_to_another_computer_is_open() {
        for (url, open) in [
            ("http://mirror.test/hf", true),
            ("HTTP://10.0.0.1:8080/", true),
            ("https://mirror.test/hf", false),
            ("http://127.0.0.1:8080/", false),
            ("http://[::1]/", false),
            ("http://localhost/", false),
            ("mirror.test", false),
            ("", false),
        ] {
            assert_eq!(is_open(url), open, "{url}");
        }
    }

    fn chosen(variables: &[(&str, &str)], url: &str) -> Option<String> {
        let proxies = Proxies::from_variables(&|name: &str| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        });
        proxies.rules().unwrap().shown(&Url::parse(url).unwrap())
    }

    #[test]
    fn proxies_follow_the_variables_in_either_case_and_loopback_never_goes_through_one() {
        let http = Some("http://p.test:1".to_owned());
        assert_eq!(
            chosen(
                &[("HTTP_PROXY", "http://me:pw@p.test:1")],
                "http://hub.test/x"
            ),
            http
        );
        assert_eq!(
            chosen(&[("http_proxy", "p.test:1")], "http://hub.test/x"),
            http
        );
        assert_eq!(
            chosen(&[("HTTP_PROXY", "http://p.test:1")], "https://hub.test/x"),
            None
        );
        assert_eq!(
            chosen(&[("https_proxy", "http://p.test:1")], "https://hub.test/x"),
            http
        );
        assert_eq!(
            chosen(&[("ALL_PROXY", "http://p.test:1")], "https://hub.test/x"),
            http
        );
        assert_eq!(
            chosen(&[("all_proxy", "socks5://p.test:1")], "http://hub.test/x").as_deref(),
            Some("socks5://p.test:1")
        );
        for direct in ["hub.test", ".test", "other.org, hub.test", "*"] {
            for name in ["NO_PROXY", "no_proxy"] {
                assert_eq!(
                    chosen(
                        &[("ALL_PROXY", "http://p.test:1"), (name, direct)],
                        "https://hub.test/x"
                    ),
                    None,
                    "{direct}"
                );
            }
        }
        assert_eq!(
            chosen(
                &[("ALL_PROXY", "http://p.test:1"), ("NO_PROXY", "10.0.0.0/8")],
                "https://10.1.2.3/x"
            ),
            None
        );
        for local in [
            "http://127.0.0.1:80/",
            "http://127.9.9.9/",
            "http://localhost:1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
        ] {
            assert_eq!(
                chosen(&[("ALL_PROXY", "http://p.test:1")], local),
                None,
                "{local}"
            );
        }
    }

    #[test]
    fn an_unusable_proxy_is_refused_without_its_password() {
        for wrong in [
            "ftp://me:pw@p.test",
            "http://me:pw@",
            "http://me:pw@p.test:99999",
        ] {
            let message = Proxies::all(wrong)
                .rules()
                .map(|_| ())
                .unwrap_err()
                .to_string();
            assert!(
                message.starts_with("The proxy cannot be used: ") && !message.contains("pw"),
                "{message}"
            );
        }
    }
}
