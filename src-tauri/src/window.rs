//! The one window, and what the page in it cannot do: leave the app, or open other windows.

use tauri::webview::NewWindowResponse;
use tauri::{AppHandle, WebviewUrl, WebviewWindowBuilder};
use url::Url;

/// Makes the window `main`; the capability of the same name belongs to it.
pub(crate) fn open(handle: &AppHandle) -> tauri::Result<()> {
    let window = WebviewWindowBuilder::new(handle, "main", WebviewUrl::App("index.html".into()))
        .title("FaStar")
        .inner_size(1100.0, 760.0)
        .min_inner_size(480.0, 400.0)
        .on_navigation(is_ours)
        .on_new_window(|_, _| NewWindowResponse::Deny)
        .build()?;
    #[cfg(target_os = "linux")]
    show_text_being_composed(&window)?;
    Ok(())
}

/// The page itself. A link in an answer would otherwise replace the whole app.
fn is_ours(url: &Url) -> bool {
    match url.scheme() {
        "tauri" => url.host_str() == Some("localhost"),
        // The same address on Windows.
        "http" => url.host_str() == Some("tauri.localhost") && url.port().is_none(),
        _ => false,
    }
}

/// wry switches the preview of input methods off; without it Chinese, Japanese and Korean are typed blindly.
#[cfg(target_os = "linux")]
fn show_text_being_composed(window: &tauri::WebviewWindow) -> tauri::Result<()> {
    use webkit2gtk::{InputMethodContextExt, WebViewExt};
    window.with_webview(|view| {
        if let Some(context) = view.inner().input_method_context() {
            context.set_enable_preedit(true);
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn only_the_page_itself_may_be_navigated_to() {
        for ours in [
            "tauri://localhost",
            "tauri://localhost/index.html#a",
            "http://tauri.localhost/",
        ] {
            assert!(is_ours(&Url::parse(ours).unwrap()), "{ours}");
        }
        for foreign in [
            "https://example.org/",
            "http://localhost/",
            "http://127.0.0.1:1234/",
            "https://tauri.localhost/",
            "http://tauri.localhost:81/",
            "http://tauri.localhost.example.org/",
            "tauri://example.org/",
            "file:///etc/passwd",
            "data:text/html,hi",
            "about:blank",
            "javascript:alert(1)",
            "blob:tauri://localhost/1",
        ] {
            assert!(!is_ours(&Url::parse(foreign).unwrap()), "{foreign}");
        }
    }
}
