//! Where the window was: kept in the data folder, and brought back onto the screens there are now.
//!
//! All numbers are logical pixels, which is what a window manager places windows by.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tauri::{AppHandle, WebviewWindow, WindowEvent};

const NAME: &str = "window.json";
pub(crate) const SMALLEST: (f64, f64) = (480.0, 400.0);
const FIRST: Geometry = Geometry {
    place: None,
    width: 1100.0,
    height: 760.0,
    maximized: false,
};
/// No screen is larger.
const LARGEST: f64 = 100_000.0;

/// Size and place of the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Geometry {
    /// Its upper left corner; none where the system decides.
    pub(crate) place: Option<(f64, f64)>,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) maximized: bool,
}

/// A screen: its corner, and its size without panels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Geometry {
    fn is_sound(&self) -> bool {
        let (x, y) = self.place.unwrap_or_default();
        [x, y, self.width, self.height]
            .iter()
            .all(|n| n.is_finite() && n.abs() < LARGEST)
    }

    /// The nearest to it that is whole on one of `screens`: no larger than that screen, and no smaller than a window can be.
    fn on(self, screens: &[Screen]) -> Self {
        let overlap = |screen: &Screen| {
            let (x, y) = self.place.unwrap_or((screen.x, screen.y));
            let along = |from: f64, size: f64, start: f64, length: f64| {
                ((from + size).min(start + length) - from.max(start)).max(0.0)
            };
            along(x, self.width, screen.x, screen.width)
                * along(y, self.height, screen.y, screen.height)
        };
        let best = screens
            .iter()
            .max_by(|a, b| overlap(a).total_cmp(&overlap(b)));
        let Some(screen) = best else {
            return Self {
                place: None,
                ..self
            };
        };
        let width = self.width.min(screen.width).max(SMALLEST.0);
        let height = self.height.min(screen.height).max(SMALLEST.1);
        let along = |from: f64, size: f64, start: f64, length: f64| {
            from.min(start + length - size).max(start)
        };
        // One that is on no screen at all is put where the system puts new windows.
        let place = self.place.filter(|_| overlap(screen) > 0.0).map(|(x, y)| {
            (
                along(x, width, screen.x, screen.width),
                along(y, height, screen.y, screen.height),
            )
        });
        Self {
            place,
            width,
            height,
            maximized: self.maximized,
        }
    }
}

/// The geometry of the one window, as it was last and as it is.
pub(crate) struct Kept {
    file: PathBuf,
    now: Mutex<Geometry>,
}

impl Kept {
    /// What is in the data folder. Whatever stands there may be anybody's.
    pub(crate) fn read(folder: &Path) -> Self {
        let file = folder.join(NAME);
        let read = std::fs::read(&file)
            .ok()
            .and_then(|text| serde_json::from_slice::<Geometry>(&text).ok())
            .filter(Geometry::is_sound);
        Self {
            file,
            now: Mutex::new(read.unwrap_or(FIRST)),
        }
    }

    /// For a window that opens now.
    pub(crate) fn for_screens(&self, screens: &[Screen]) -> Geometry {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.on(screens);
        *now
    }

    /// Follows the window, and writes down where it is when it loses the focus or closes.
    pub(crate) fn hear(&self, window: &WebviewWindow, event: &WindowEvent) {
        match event {
            WindowEvent::Resized(_) | WindowEvent::Moved(_) => self.look(window),
            WindowEvent::Focused(false) | WindowEvent::CloseRequested { .. } => self.write(),
            _ => {}
        }
    }

    fn look(&self, window: &WebviewWindow) {
        let is = |answer: tauri::Result<bool>| answer.unwrap_or(false);
        // Where it is for a moment is not where it belongs.
        if is(window.is_minimized()) || is(window.is_fullscreen()) {
            return;
        }
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.maximized = is(window.is_maximized());
        if now.maximized {
            return;
        }
        let (Ok(scale), Ok(size), Ok(place)) = (
            window.scale_factor(),
            window.inner_size(),
            window.outer_position(),
        ) else {
            return;
        };
        let size = size.to_logical(scale);
        let place = place.to_logical(scale);
        let seen = Geometry {
            place: Some((place.x, place.y)),
            width: size.width,
            height: size.height,
            maximized: false,
        };
        if seen.is_sound() {
            *now = seen;
        }
    }

    pub(crate) fn write(&self) {
        let now = *self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let temporary = self.file.with_extension("partial");
        let written = serde_json::to_vec(&now)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&temporary, text))
            .and_then(|()| std::fs::rename(&temporary, &self.file));
        if let Err(error) = written {
            tracing::debug!(%error, "the place of the window could not be kept");
        }
    }
}

/// The screens there are.
pub(crate) fn screens(handle: &AppHandle) -> Vec<Screen> {
    let monitors = handle.available_monitors().unwrap_or_default();
    monitors
        .iter()
        .map(|monitor| {
            let (area, scale) = (monitor.work_area(), monitor.scale_factor());
            let corner = area.position.to_logical(scale);
            let size = area.size.to_logical(scale);
            Screen {
                x: corner.x,
                y: corner.y,
                width: size.width,
                height: size.height,
            }
        })
        .collect()
}

/// Shows the window in front of all others.
pub(crate) fn to_the_front(window: &WebviewWindow, start_id: &str) {
    let failed = |error: tauri::Error| tracing::debug!(%error, "the window could not be shown");
    if window.is_minimized().unwrap_or(false) {
        window.unminimize().unwrap_or_else(failed);
    }
    window.show().unwrap_or_else(failed);
    #[cfg(target_os = "linux")]
    {
        use gtk::prelude::GtkWindowExt as _;
        // A window manager lets a window take the focus when a click has asked for it; this names the click.
        match window.gtk_window() {
            Ok(gtk_window) if !start_id.is_empty() => gtk_window.set_startup_id(start_id),
            _ => {}
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = start_id;
    window.set_focus().unwrap_or_else(failed);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LAPTOP: Screen = Screen {
        x: 0.0,
        y: 30.0,
        width: 1280.0,
        height: 770.0,
    };
    const DESK: Screen = Screen {
        x: 1280.0,
        y: 0.0,
        width: 2560.0,
        height: 1440.0,
    };

    fn at(x: f64, y: f64, width: f64, height: f64) -> Geometry {
        Geometry {
            place: Some((x, y)),
            width,
            height,
            maximized: false,
        }
    }

    #[test]
    fn a_window_that_is_whole_on_a_screen_stays_where_it_was() {
        for there in [
            at(10.0, 40.0, 800.0, 600.0),
            at(2000.0, 300.0, 1800.0, 1100.0),
            Geometry {
                maximized: true,
                ..at(0.0, 30.0, 1280.0, 770.0)
            },
        ] {
            assert_eq!(there.on(&[LAPTOP, DESK]), there);
        }
    }

    #[test]
    fn a_window_is_never_off_the_screens() {
        // The other screen is unplugged.
        let gone = at(2000.0, 300.0, 1800.0, 1100.0).on(&[LAPTOP]);
        assert_eq!(gone.place, None);
        assert_eq!((gone.width, gone.height), (1280.0, 770.0));
        // Over the edge, on either side, and above the panel.
        let one = [LAPTOP];
        assert_eq!(
            at(1200.0, 700.0, 800.0, 600.0).on(&one),
            at(480.0, 200.0, 800.0, 600.0)
        );
        assert_eq!(
            at(-700.0, -500.0, 800.0, 600.0).on(&one),
            at(0.0, 30.0, 800.0, 600.0)
        );
        // Between two screens: on the one with more of it.
        assert_eq!(
            at(1000.0, 100.0, 800.0, 600.0).on(&[LAPTOP, DESK]).place,
            Some((1280.0, 100.0))
        );
        // Smaller than a window can be, and no screen at all.
        assert_eq!(
            at(5.0, 40.0, 1.0, 1.0).on(&one),
            at(5.0, 40.0, 480.0, 400.0)
        );
        assert_eq!(at(5.0, 40.0, 800.0, 600.0).on(&[]).place, None);
        assert_eq!(FIRST.on(&one).place, None);
    }

    #[test]
    fn what_is_written_is_read_again_and_nonsense_counts_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::read(dir.path());
        assert_eq!(kept.for_screens(&[DESK]), FIRST);
        *kept.now.lock().unwrap() = at(1300.0, 20.0, 900.0, 700.0);
        kept.write();
        assert_eq!(
            Kept::read(dir.path()).for_screens(&[LAPTOP, DESK]),
            at(1300.0, 20.0, 900.0, 700.0)
        );
        for nonsense in [
            "",
            "{",
            "{\"place\":[1e300,0],\"width\":800,\"height\":600,\"maximized\":false}",
            "{\"place\":null,\"width\":1e9,\"height\":600,\"maximized\":false}",
        ] {
            std::fs::write(dir.path().join(NAME), nonsense).unwrap();
            assert_eq!(
                Kept::read(dir.path()).for_screens(&[DESK]),
                FIRST,
                "{nonsense}"
            );
        }
    }
}
