//! The one window, and what the page in it cannot do: leave the app, or open other windows.

use std::time::{Duration, Instant};

use tauri::webview::NewWindowResponse;
use tauri::{AppHandle, Manager, WebviewUrl, WebviewWindowBuilder};
use url::Url;

use crate::geometry::{self, Kept};
use crate::{offer, page};

/// Makes the window `main`; the capability of the same name belongs to it.
pub(crate) fn open(handle: &AppHandle) -> tauri::Result<()> {
    let place = handle
        .state::<Kept>()
        .for_screens(&geometry::screens(handle));
    let (width, height) = geometry::SMALLEST;
    let mut window =
        WebviewWindowBuilder::new(handle, "main", WebviewUrl::App("index.html".into()))
            .title("FaStar")
            .inner_size(place.width, place.height)
            .min_inner_size(width, height)
            .maximized(place.maximized)
            .on_navigation(is_ours)
            .on_new_window(|_, _| NewWindowResponse::Deny);
    if let Some((x, y)) = place.place {
        window = window.position(x, y);
    }
    let window = window.build()?;
    #[cfg(target_os = "linux")]
    {
        show_text_being_composed(&window)?;
        begin_again_after_a_crash(&window)?;
    }
    Ok(())
}

/// Shows the window, and what a file is about, whenever somebody starts FaStar again.
#[cfg(unix)]
pub(crate) fn hear_further_starts(handle: &AppHandle, folder: &std::path::Path) {
    let asked = handle.clone();
    let listening = crate::second::listen(folder, move |start| {
        if let Some(window) = asked.get_webview_window("main") {
            let to_the_front = window.clone();
            let shown = window.run_on_main_thread(move || {
                geometry::to_the_front(&to_the_front, &start.id);
            });
            if let Err(error) = shown {
                tracing::debug!(%error, "the window has ended meanwhile");
            }
        }
        if let Some(file) = start.file {
            offer::ask(&asked, file);
        }
    });
    match listening {
        Ok(listening) => drop(handle.manage(listening)),
        // A folder on a disk that knows no sockets: a second start is then refused with a sentence.
        Err(error) => tracing::warn!(%error, "further starts cannot show the window"),
    }
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

/// The page runs in a process of WebKit's own. When that dies (a crash, or the system was out of memory) the window would stay dead;
/// answers are written on meanwhile, and the page finds them again.
#[cfg(target_os = "linux")]
fn begin_again_after_a_crash(window: &tauri::WebviewWindow) -> tauri::Result<()> {
    use webkit2gtk::{WebProcessTerminationReason, WebViewExt};
    let handle = window.app_handle().clone();
    window.with_webview(move |view| {
        let reloads = std::cell::RefCell::new(Reloads::default());
        view.inner()
            .connect_web_process_terminated(move |view, reason| {
                if reason == WebProcessTerminationReason::TerminatedByApi {
                    return;
                }
                tracing::warn!(?reason, "the page's process has ended");
                // Never borrowed twice: signals of one page come one after the other.
                if reloads
                    .try_borrow_mut()
                    .is_ok_and(|mut reloads| reloads.allow(Instant::now()))
                {
                    view.reload();
                } else {
                    page::mend(&handle);
                }
            });
    })
}

/// When the page was loaded again lately: a page that dies at once must not do so for ever.
#[derive(Default)]
struct Reloads(Vec<Instant>);

impl Reloads {
    const MOST: usize = 3;
    const WITHIN: Duration = Duration::from_secs(60);

    fn allow(&mut self, now: Instant) -> bool {
        self.0
            .retain(|at| now.saturating_duration_since(*at) < Self::WITHIN);
        let allowed = self.0.len() < Self::MOST;
        if allowed {
            self.0.push(now);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_page_is_loaded_again_three_times_a_minute_and_no_more() {
        let start = Instant::now();
        let mut reloads = Reloads::default();
        let mut at = |seconds| reloads.allow(start + Duration::from_secs(seconds));
        let allowed = [0, 10, 20, 30, 59].map(&mut at);
        assert_eq!(allowed, [true, true, true, false, false]);
        // The first has left the minute, the second has not.
        assert_eq!([60, 61, 70].map(&mut at), [true, false, true]);
    }

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
