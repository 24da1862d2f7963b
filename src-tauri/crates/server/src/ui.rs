//! The built interface, embedded at compile time.

use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

static FILES: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/ui.rs"));

/// Names below this folder contain a hash of their content.
const HASHED: &str = "/assets/";

/// The same policy as in the desktop window, except that answers come from this server.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-src 'none'; frame-ancestors 'none'; object-src 'none'; trusted-types svelte-trusted-html; require-trusted-types-for 'script'";

/// A file of the interface; `/` is its page, and no other path is.
pub(crate) async fn file(uri: Uri) -> Response {
    let path = if uri.path() == "/" {
        "/index.html"
    } else {
        uri.path()
    };
    let Some((name, bytes)) = FILES.iter().find(|(name, _)| *name == path) else {
        return (StatusCode::NOT_FOUND, "There is no such page.\n").into_response();
    };
    let caching = if name.starts_with(HASHED) {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    (
        [
            (
                header::CONTENT_TYPE,
                HeaderValue::from_static(media_type(name)),
            ),
            (header::CACHE_CONTROL, HeaderValue::from_static(caching)),
        ],
        *bytes,
    )
        .into_response()
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
