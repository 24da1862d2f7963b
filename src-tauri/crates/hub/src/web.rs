//! Requests: redirects followed by hand so that the token never leaves the endpoint's origin, and every answer sorted into "go on",
//! "try again" and "final".

use std::collections::HashSet;
use std::error::Error as _;
use std::time::{Duration, SystemTime};

use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderValue, IF_RANGE, LOCATION, RANGE,
};
use reqwest::{Client, Response, StatusCode};
use url::Url;

use crate::certificates;
use crate::proxy::Rules;
use crate::retry::asked;
use crate::snapshot::{clean_etag, sha256};
use crate::{Error, RemoteFile, Result, Settings};

const MOST_REDIRECTS: usize = 10;

/// Why a request brought nothing.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Waiting does not help.
    Final(Error),
    /// Try again, after `wait` if the server asked for it.
    Again { why: String, wait: Option<Duration> },
    /// The signed address is no longer valid: ask the endpoint again.
    Expired { why: String },
}

impl Fault {
    pub(crate) fn again(why: impl Into<String>) -> Self {
        Self::Again {
            why: why.into(),
            wait: None,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// Part of a file: from a byte, up to and without another, `None` to the end.
pub(crate) type Part = (u64, Option<u64>);

/// An answer with a body.
pub(crate) struct Answer {
    pub(crate) response: Response,
    /// Where it came from after all redirects.
    pub(crate) url: Url,
    /// The hub's own hash of the contents, from the first answer of the chain that has it.
    pub(crate) linked: Option<String>,
    /// The hub's own length, likewise.
    pub(crate) linked_size: Option<u64>,
}

impl Answer {
    pub(crate) fn host(&self) -> String {
        host(&self.url)
    }

    pub(crate) fn etag(&self) -> Option<String> {
        header(self.response.headers(), ETAG.as_str()).map(str::to_owned)
    }

    /// First byte and length of the whole file, if the answer is a part.
    pub(crate) fn content_range(&self) -> Option<(u64, Option<u64>)> {
        content_range(self.response.headers())
    }

    pub(crate) fn is_web_page(&self) -> bool {
        header(self.response.headers(), CONTENT_TYPE.as_str()).is_some_and(|kind| {
            kind.trim_start()
                .to_ascii_lowercase()
                .starts_with("text/html")
        })
    }
}

pub(crate) struct Web {
    client: Client,
    endpoint: Url,
    token: Option<HeaderValue>,
    stall: Duration,
    rules: std::sync::Arc<Rules>,
}

impl Web {
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        // Already installed by somebody else is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let endpoint = settings.endpoint()?;
        let token = settings
            .token
            .as_ref()
            .map(crate::Token::header)
            .transpose()?;
        let rules = std::sync::Arc::new(settings.proxies.rules()?);
        let choose = rules.clone();
        let authorities = match &settings.certificates {
            Some(path) => certificates::read(path)?,
            None => Vec::new(),
        };
        let client = Client::builder()
            .tls_certs_merge(authorities)
            .user_agent(concat!("fastar/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .retry(reqwest::retry::never())
            .no_proxy()
            .proxy(reqwest::Proxy::custom(move |url| choose.proxy(url)))
            .connect_timeout(settings.stall.min(Duration::from_secs(30)))
            .tcp_keepalive(Duration::from_secs(30))
            .build()
            .map_err(|error| Error::Setting {
                what: "The network",
                problem: format!(
                    "{}. Install the system's certificates (the package ca-certificates), or name a file of them in SSL_CERT_FILE",
                    root(&error).trim_end_matches('.')
                ),
            })?;
        Ok(Self {
            client,
            endpoint,
            token,
            stall: settings.stall,
            rules,
        })
    }

    /// An address below the endpoint.
    pub(crate) fn address(&self, parts: &[&str]) -> Url {
        let mut url = self.endpoint.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(parts);
        }
        url
    }

    /// Where the endpoint gives a file, or says who does.
    pub(crate) fn resolve(&self, file: &RemoteFile) -> Url {
        let parts: Vec<&str> = file
            .repo
            .split('/')
            .chain(["resolve", &file.revision])
            .chain(file.path.split('/'))
            .collect();
        self.address(&parts)
    }

    pub(crate) fn host(&self) -> String {
        host(&self.endpoint)
    }

    /// GET with redirects. `what` is the thing asked for, for people.
    pub(crate) async fn get(
        &self,
        start: &Url,
        part: Option<Part>,
        if_range: Option<&str>,
        what: &str,
    ) -> std::result::Result<Answer, Fault> {
        let mut url = start.clone();
        let mut seen = HashSet::new();
        let (mut linked, mut linked_size) = (None, None);
        loop {
            let response = self.one(&url, part, if_range).await?;
            let headers = response.headers();
            linked = linked.or_else(|| {
                header(headers, "x-linked-etag")
                    .map(|etag| sha256(etag).unwrap_or_else(|| clean_etag(etag).to_owned()))
            });
            linked_size = linked_size.or_else(|| header(headers, "x-linked-size")?.parse().ok());
            if response.status().is_redirection() && response.status() != StatusCode::NOT_MODIFIED {
                seen.insert(url.clone());
                let next = self.follow(&url, headers, what)?;
                if seen.len() > MOST_REDIRECTS || seen.contains(&next) {
                    return Err(self
                        .refused(&url, what, "its redirects lead in a circle")
                        .into());
                }
                url = next;
                continue;
            }
            if response.status() == StatusCode::RANGE_NOT_SATISFIABLE
                || response.status().is_success()
            {
                if header(headers, CONTENT_ENCODING.as_str())
                    .is_some_and(|coding| !coding.eq_ignore_ascii_case("identity"))
                {
                    return Err(Fault::again(format!(
                        "{} sent a compressed copy",
                        host(&url)
                    )));
                }
                return Ok(Answer {
                    response,
                    url,
                    linked,
                    linked_size,
                });
            }
            // The first address of a chain that starts at the endpoint speaks for the hub; any later one is a signed address.
            return Err(if url == *start && self.is_ours(&url) {
                self.at_endpoint(&response, what)
            } else {
                at_storage(&response, &url)
            });
        }
    }

    async fn one(
        &self,
        url: &Url,
        part: Option<Part>,
        if_range: Option<&str>,
    ) -> std::result::Result<Response, Fault> {
        let mut request = self
            .client
            .get(url.clone())
            .header(ACCEPT_ENCODING, "identity");
        if let (Some(token), true) = (&self.token, self.is_ours(url)) {
            request = request.header(AUTHORIZATION, token.clone());
        }
        if let Some((from, to)) = part {
            let to = to.map(|to| (to - 1).to_string()).unwrap_or_default();
            request = request.header(RANGE, format!("bytes={from}-{to}"));
            if let Some(etag) = if_range.filter(|etag| etag.starts_with('"')) {
                request = request.header(IF_RANGE, etag);
            }
        }
        tracing::debug!(host = %host(url), path = url.path(), ?part, "request");
        match tokio::time::timeout(self.stall, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(match certificates::distrust(&error) {
                Some(problem) => Fault::Final(Error::Untrusted {
                    host: host(url),
                    problem,
                }),
                None => Fault::again(self.why(&error, url)),
            }),
            Err(_) => Err(Fault::again(format!(
                "{} did not answer for {} s",
                host(url),
                self.stall.as_secs()
            ))),
        }
    }

    /// A network failure for people: no address but the host's, and the proxy without its password.
    fn why(&self, error: &reqwest::Error, url: &Url) -> String {
        let proxy = self
            .rules
            .shown(url)
            .map(|proxy| format!(" through the proxy {proxy}"))
            .unwrap_or_default();
        format!("{} cannot be reached{proxy} ({})", host(url), root(error))
    }

    fn follow(&self, from: &Url, headers: &HeaderMap, what: &str) -> Result<Url> {
        let target = header(headers, LOCATION.as_str()).and_then(|text| from.join(text).ok());
        let Some(target) = target.filter(|url| matches!(url.scheme(), "http" | "https")) else {
            return Err(self.refused(from, what, "it redirects to no usable address"));
        };
        if from.scheme() == "https" && target.scheme() == "http" {
            return Err(self.refused(
                from,
                what,
                "it redirects from https to an unprotected address",
            ));
        }
        let is_hub = |url: &Url| {
            matches!(
                url.host_str(),
                Some("huggingface.co" | "www.huggingface.co")
            )
        };
        if is_hub(&target) && !is_hub(&self.endpoint) {
            return Err(self.refused(
                from,
                what,
                "it redirects to huggingface.co, and another mirror was chosen",
            ));
        }
        Ok(target)
    }

    fn at_endpoint(&self, response: &Response, what: &str) -> Fault {
        let status = response.status();
        let host = self.host();
        match status.as_u16() {
            401 | 403 => Fault::Final(Error::Denied {
                host,
                what: what.to_owned(),
                status: status.as_u16(),
            }),
            404 | 410 => Fault::Final(Error::NotFound {
                host,
                what: what.to_owned(),
            }),
            408 | 425 | 429 | 500..=599 => busy(response, &host),
            code => Fault::Final(Error::Refused {
                host,
                what: what.to_owned(),
                problem: format!("status {code}"),
            }),
        }
    }

    pub(crate) fn refused(&self, url: &Url, what: &str, problem: &str) -> Error {
        Error::Refused {
            host: host(url),
            what: what.to_owned(),
            problem: problem.to_owned(),
        }
    }

    fn is_ours(&self, url: &Url) -> bool {
        url.origin() == self.endpoint.origin()
    }
}

fn busy(response: &Response, host: &str) -> Fault {
    let why = match response.status() {
        StatusCode::TOO_MANY_REQUESTS => format!("{host} asks for a pause (status 429)"),
        status => format!("{host} has a problem (status {})", status.as_u16()),
    };
    Fault::Again {
        why,
        wait: asked(response.headers(), SystemTime::now()),
    }
}

fn at_storage(response: &Response, url: &Url) -> Fault {
    match response.status().as_u16() {
        408 | 425 | 429 | 500..=599 => busy(response, &host(url)),
        code => Fault::Expired {
            why: format!(
                "{} no longer accepts the address (status {code})",
                host(url)
            ),
        },
    }
}

/// Host, and the port if it is not the usual one.
fn host(url: &Url) -> String {
    let port = url
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap_or_default())
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

pub(crate) fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let (range, total) = header(headers, CONTENT_RANGE.as_str())?
        .trim()
        .strip_prefix("bytes")?
        .trim()
        .split_once('/')?;
    let total = total.trim().parse().ok();
    let from = if range.trim() == "*" {
        0
    } else {
        range.split_once('-')?.0.trim().parse().ok()?
    };
    Some((from, total))
}

/// The innermost reason, which names no address.
pub(crate) fn root(error: &reqwest::Error) -> String {
    let mut reason: &dyn std::error::Error = error;
    if error.source().is_none() {
        return if error.is_timeout() {
            "it took too long".to_owned()
        } else {
            "the connection failed".to_owned()
        };
    }
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    reason.to_string()
}

/// The query of `Link: <...>; rel="next"`.
pub(crate) fn next_query(headers: &HeaderMap, base: &Url) -> Option<String> {
    let link = header(headers, "link")?;
    let next = link
        .split(',')
        .find(|link| link.contains("rel=\"next\"") || link.contains("rel=next"))?;
    let address = next.trim().strip_prefix('<')?.split_once('>')?.0;
    base.join(address).ok()?.query().map(str::to_owned)
}

/// Whether a file of this name may be a web page.
pub(crate) fn is_page(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    path.ends_with(".html") || path.ends_with(".htm")
}

/// Whether contents begin like a web page.
pub(crate) fn looks_like_a_page(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    ["<!doctype html", "<html"].iter().any(|start| {
        text.get(..start.len())
            .is_some_and(|found| found.eq_ignore_ascii_case(start.as_bytes()))
    })
}
