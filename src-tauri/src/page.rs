//! Whether the page in the window comes up. Some graphics drivers leave the window empty, or end the process that draws it, without an
//! error: FaStar then starts once more and draws without the graphics card, and when that does not help either, it says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastar_app::App;
use tauri::{AppHandle, Manager};

use crate::dialogs;

/// A page takes about a second; on a busy computer with a slow disk several.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What becomes of a window whose page does not come up, or ends again and again.
#[derive(Debug, PartialEq, Eq)]
enum Remedy {
    /// Start once more in the safe mode.
    Again,
    /// Tell the person.
    Say,
    /// It has been told.
    Nothing,
}

/// The page of the one window.
pub(crate) struct Page {
    safe: bool,
    again: AtomicBool,
    said: AtomicBool,
}

impl Page {
    /// `safe`: it is drawn without the graphics card already.
    pub(crate) fn new(safe: bool) -> Self {
        Self {
            safe,
            again: AtomicBool::new(false),
            said: AtomicBool::new(false),
        }
    }

    fn remedy(&self) -> Remedy {
        if !self.safe {
            Remedy::Again
        } else if self.said.load(Ordering::Relaxed) {
            Remedy::Nothing
        } else {
            Remedy::Say
        }
    }

    /// Whether the program shall start again in the safe mode instead of ending.
    pub(crate) fn is_to_start_again(&self) -> bool {
        self.again.load(Ordering::Relaxed)
    }
}

/// Waits for the page on a thread of its own.
pub(crate) fn watch(handle: &AppHandle) -> std::io::Result<()> {
    let handle = handle.clone();
    std::thread::Builder::new()
        .name("fastar-page".into())
        .spawn(move || {
            let awaited = || {
                let app = handle.try_state::<App>();
                app.is_some_and(|app| app.page_is_awaited())
            };
            let mut waited = Waited::default();
            while awaited() {
                if waited.look(Instant::now()) > PATIENCE {
                    let on_main = handle.clone();
                    let asked = handle.run_on_main_thread(move || {
                        tracing::warn!("the page has not come up");
                        mend(&on_main);
                    });
                    if let Err(error) = asked {
                        tracing::debug!(%error, "the window has ended meanwhile");
                    }
                    return;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        })
        .map(drop)
}

/// Time that has passed while this program could run: a computer that slept, or a program that was stopped, has waited for nothing.
#[derive(Default)]
struct Waited {
    last: Option<Instant>,
    sum: Duration,
}

impl Waited {
    fn look(&mut self, now: Instant) -> Duration {
        if let Some(last) = self.last.replace(now) {
            self.sum += now.saturating_duration_since(last).min(2 * LOOK_EVERY);
        }
        self.sum
    }
}

/// The window is of no use as it is. Called on the main thread.
pub(crate) fn mend(handle: &AppHandle) {
    let Some(page) = handle.try_state::<Page>() else {
        return;
    };
    match page.remedy() {
        Remedy::Again => {
            page.again.store(true, Ordering::Relaxed);
            // A process that hangs would outlive this one.
            #[cfg(target_os = "linux")]
            if let Some(window) = handle.get_webview_window("main") {
                use webkit2gtk::WebViewExt as _;
                let ended = window.with_webview(|view| view.inner().terminate_web_process());
                if let Err(error) = ended {
                    tracing::debug!(%error, "the page's process could not be ended");
                }
            }
            handle.exit(0);
        }
        Remedy::Say => {
            page.said.store(true, Ordering::Relaxed);
            dialogs::window_stays_empty(handle);
        }
        Remedy::Nothing => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_safe_mode_is_tried_once_and_then_it_is_said_once() {
        assert_eq!(Page::new(false).remedy(), Remedy::Again);
        let safe = Page::new(true);
        assert_eq!(safe.remedy(), Remedy::Say);
        safe.said.store(true, Ordering::Relaxed);
        assert_eq!(safe.remedy(), Remedy::Nothing);
    }

    #[test]
    fn time_in_which_the_program_did_not_run_does_not_count() {
        let start = Instant::now();
        let mut waited = Waited::default();
        let mut at = |ms| waited.look(start + Duration::from_millis(ms));
        assert_eq!(at(0), Duration::ZERO);
        assert_eq!(at(250), Duration::from_millis(250));
        // The lid was closed for an hour.
        assert_eq!(at(3_600_000), Duration::from_millis(750));
        assert_eq!(at(3_600_250), Duration::from_millis(1000));
    }
}
