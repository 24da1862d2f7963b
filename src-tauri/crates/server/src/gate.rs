//! Who may talk to the server: only pages that it served itself, and programs of the person on this computer.
//!
//! A web page in the person's browser can send requests to 127.0.0.1. The `Host` check stops names that were rebound to it, the
//! `Origin` check stops other pages, and the content type that commands require cannot be sent by a plain form. Other accounts of the
//! computer can send whatever they like; they do not have the key. The interface itself holds nothing of the person and needs none.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fastar_api::{ApiError, ErrorCode};

use crate::api::refusal;
use crate::ui::CONTENT_SECURITY_POLICY;

/// What is asked of every request.
#[derive(Clone)]
pub(crate) struct Gate {
    port: u16,
    key: Option<Arc<str>>,
}

impl Gate {
    pub(crate) fn new(port: u16, key: Option<String>) -> Self {
        Self {
            port,
            key: key.map(Arc::from),
        }
    }
}

/// Checks every request and puts the security headers on every response.
pub(crate) async fn check(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let problem = problem(&request, gate.port).or_else(|| no_key(&request, gate.key.as_deref()));
    let mut response = match problem {
        Some(response) => response,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
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

fn problem(request: &Request, port: u16) -> Option<Response> {
    let headers = request.headers();
    let host = only(headers, header::HOST);
    let target = request
        .uri()
        .authority()
        .map(|authority| authority.as_str());
    if !host.is_some_and(|host| is_ours(host, port)) || target.is_some_and(|t| !is_ours(t, port)) {
        return Some(
            refusal(
                StatusCode::FORBIDDEN,
                "This address is not FaStar's: use the one that it printed at start.",
            )
            .into_response(),
        );
    }
    if headers.contains_key(header::ORIGIN) {
        let same = only(headers, header::ORIGIN)
            .and_then(|origin| origin.strip_prefix("http://"))
            .is_some_and(|origin| is_ours(origin, port));
        if !same {
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
        hint: Some("Open the whole address that fastar serve printed when it started.".to_owned()),
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
