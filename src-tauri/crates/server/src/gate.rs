//! Who may talk to the server: only pages that it served itself, those the person has named, and programs with the key.
//!
//! A web page in the person's browser can send requests to 127.0.0.1. The `Host` check stops names that were rebound to it, the
//! `Origin` check stops other pages, and the content type that commands require cannot be sent by a plain form. Other accounts of the
//! computer can send whatever they like; they do not have the key. The interface itself holds nothing of the person and needs none.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Json;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use fastar_api::{ApiError, ErrorCode};
use tokio::net::TcpListener;

use crate::api::refusal;
use crate::ui::CONTENT_SECURITY_POLICY;

/// What is asked of every request.
#[derive(Clone)]
pub(crate) struct Gate {
    port: u16,
    key: Option<Arc<str>>,
    /// Other pages that may use it, as browsers write their origins.
    origins: Arc<[String]>,
    /// Other computers may ask, by the number that this one has in their network: a name could be rebound to it.
    lan: bool,
}

impl Gate {
    pub(crate) fn new(port: u16, key: Option<String>) -> Self {
        Self {
            port,
            key: key.map(Arc::from),
            origins: Arc::new([]),
            lan: false,
        }
    }

    /// For those who were let in besides. The key is not optional then.
    pub(crate) fn open_to(port: u16, key: String, origins: Vec<String>, lan: bool) -> Self {
        Self {
            origins: origins.into(),
            lan,
            ..Self::new(port, Some(key))
        }
    }

    fn is_ours(&self, host: &str, here: Option<IpAddr>) -> bool {
        is_ours(host, self.port)
            || (self.lan
                && here.is_some_and(|ip| host == SocketAddr::new(ip, self.port).to_string()))
    }

    /// The origin of a request that is another page's, and named.
    fn named<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let origin = only(headers, header::ORIGIN)?;
        self.origins.iter().any(|o| o == origin).then_some(origin)
    }
}

/// The number of this computer that a connection came to.
#[derive(Clone, Copy)]
pub(crate) struct Here(Option<IpAddr>);

impl Connected<IncomingStream<'_, TcpListener>> for Here {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self(stream.io().local_addr().ok().map(|address| address.ip()))
    }
}

/// Checks every request and puts the security headers on every response.
pub(crate) async fn check(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let named = gate.named(request.headers()).map(str::to_owned);
    let mut response = match problem(&request, &gate) {
        Some(response) => response,
        // A browser asks first, without the key, whether another page may send what it wants to.
        None if named.is_some() && request.method() == Method::OPTIONS => allowed(),
        None => match no_key(&request, gate.key.as_deref()) {
            Some(response) => response,
            None => next.run(request).await,
        },
    };
    let headers = response.headers_mut();
    if let Some(origin) = named.and_then(|origin| HeaderValue::from_str(&origin).ok()) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    if !gate.origins.is_empty() {
        headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    }
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in [
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// What a page of a named origin may send.
fn allowed() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

fn problem(request: &Request, gate: &Gate) -> Option<Response> {
    let headers = request.headers();
    let here = request
        .extensions()
        .get::<ConnectInfo<Here>>()
        .and_then(|ConnectInfo(Here(ip))| *ip);
    let is_ours = |host: &str| gate.is_ours(host, here);
    let host = only(headers, header::HOST);
    let target = request
        .uri()
        .authority()
        .map(|authority| authority.as_str());
    if !host.is_some_and(is_ours) || target.is_some_and(|t| !is_ours(t)) {
        return Some(
            refusal(
                StatusCode::FORBIDDEN,
                "This address is not FaStar's: use the one that it printed at start, or that its settings show.",
            )
            .into_response(),
        );
    }
    if headers.contains_key(header::ORIGIN) {
        let same = only(headers, header::ORIGIN)
            .and_then(|origin| origin.strip_prefix("http://"))
            .is_some_and(is_ours);
        if !same && gate.named(headers).is_none() {
            return Some(
                refusal(
                    StatusCode::FORBIDDEN,
                    "Another web page may not use FaStar.",
                )
                .into_response(),
            );
        }
    }
    if request.method() == Method::POST {
        let json = only(headers, header::CONTENT_TYPE)
            .and_then(|value| value.split(';').next())
            .is_some_and(|value| value.trim().eq_ignore_ascii_case("application/json"));
        if !json {
            return Some(
                refusal(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "The request needs the header Content-Type: application/json.",
                )
                .into_response(),
            );
        }
    }
    None
}

/// The refusal of a command without the key.
fn no_key(request: &Request, key: Option<&str>) -> Option<Response> {
    let key = key?;
    let path = request.uri().path();
    if path != "/api" && !path.starts_with("/api/") {
        return None;
    }
    let given = only(request.headers(), header::AUTHORIZATION)
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map_or("", |(_, given)| given.trim());
    if is_same(given, key) {
        return None;
    }
    let error = ApiError {
        code: ErrorCode::NoAccess,
        message: "This page does not have the key of FaStar.".to_owned(),
        hint: Some(
            "Open the whole address that fastar serve printed when it started, or that the settings of the window copy."
                .to_owned(),
        ),
        details: None,
    };
    let headers = [(header::WWW_AUTHENTICATE, "Bearer")];
    Some((StatusCode::UNAUTHORIZED, headers, Json(error)).into_response())
}

/// Compares in a time that says nothing of where the two differ.
fn is_same(given: &str, key: &str) -> bool {
    let differ = given
        .bytes()
        .zip(key.bytes())
        .fold(0, |differ, (a, b)| differ | (a ^ b));
    given.len() == key.len() && std::hint::black_box(differ) == 0
}

fn only(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}

/// `127.0.0.1`, `localhost` or `[::1]` with this port (which browsers leave out when it is 80).
fn is_ours(host: &str, port: u16) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, number)) if number.parse() == Ok(port) => name,
        _ if port == 80 => host,
        _ => return false,
    };
    name == "127.0.0.1" || name == "[::1]" || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::is_ours;

    #[test]
    fn only_loopback_names_with_the_right_port_are_ours() {
        for host in [
            "127.0.0.1:8080",
            "localhost:8080",
            "LOCALHOST:8080",
            "[::1]:8080",
        ] {
            assert!(is_ours(host, 8080), "{host}");
        }
        for host in [
            "",
            ":8080",
            "localhost",
            "localhost:80",
            "localhost:808",
            "localhost:8080.evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example:8080",
            "localhost.:8080",
            "x@localhost:8080",
            "[::2]:8080",
            "::1:8080",
            "127.0.0.2:8080",
            "0.0.0.0:8080",
        ] {
            assert!(!is_ours(host, 8080), "{host}");
        }
        assert!(is_ours("localhost", 80) && is_ours("localhost:80", 80));
    }
}
