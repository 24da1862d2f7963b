//! The app at work: numbers for the monitor, and recordings of routing. Nothing is counted here; it is read where it is counted.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use fastar_api::{Activity, Monitor, Process, TraceFile};
use fastar_engine::PageView;

use crate::error::{Error, Result, lock};
use crate::models::Loaded;
use crate::{App, clock};

/// Steps of heat on the map.
const STEPS: f64 = 7.0;

impl App {
    /// One look at the app at work.
    pub fn monitor(&self) -> Monitor {
        let loaded = self.0.models.loaded();
        let model = loaded.as_ref().map(|loaded| &loaded.model);
        Monitor {
            at_ms: since_start(),
            load: loaded.as_ref().map(|loaded| loaded.number),
            activity: model.map(|model| {
                let a = model.activity();
                Activity {
                    prompt_tokens: a.together,
                    answer_tokens: a.alone,
                    prompt_ms: a.together_time.as_secs_f64() * 1e3,
                    answer_ms: a.alone_time.as_secs_f64() * 1e3,
                    layers_ms: a.layers.iter().map(|t| t.as_secs_f64() * 1e3).collect(),
                }
            }),
            experts: loaded.as_ref().map_or_else(Vec::new, |loaded| {
                let pages = loaded.model.pages().unwrap_or_default();
                map(&pages, loaded.model.facts().experts)
            }),
            process: process(Path::new("/")),
            recording: loaded.as_ref().and_then(recording),
        }
    }

    /// Begins to record which experts tokens take, in a new file of the data folder. One under way ends.
    ///
    /// # Errors
    /// When there is no model, or the file cannot be written.
    pub fn trace_start(&self) -> crate::Result<TraceFile> {
        Ok(self.start_recording()?)
    }

    /// Ends the recording under way and says what came of it; none where there is none.
    ///
    /// # Errors
    /// When the last of it could not be written.
    pub fn trace_stop(&self) -> crate::Result<Option<TraceFile>> {
        let Some(loaded) = self.0.models.loaded() else {
            return Ok(None);
        };
        let ended = recording(&loaded);
        loaded.model.record(None).map_err(Error::from)?;
        Ok(ended)
    }

    fn start_recording(&self) -> Result<TraceFile> {
        let _one_at_a_time = lock(&self.0.tracing);
        let loaded = self.0.models.loaded().ok_or(Error::NoModel)?;
        let folder = self.0.data.path().join("traces");
        std::fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        let date = clock::file_date(clock::now());
        let path = (1..)
            .map(|n| match n {
                1 => folder.join(format!("routing-{date}.trace")),
                n => folder.join(format!("routing-{date}-{n}.trace")),
            })
            .find(|path| !path.exists())
            .unwrap_or_else(|| folder.join("routing.trace"));
        loaded.model.record(Some(&path))?;
        recording(&loaded).ok_or_else(|| {
            Error::BadRequest("This model cannot record which experts it takes.".into())
        })
    }
}

fn recording(loaded: &Loaded) -> Option<TraceFile> {
    let (path, bytes, whole) = loaded.model.recorded()?;
    Some(TraceFile {
        path: path.display().to_string(),
        bytes,
        whole,
    })
}

fn since_start() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64() * 1e3
}

/// The map of the experts as [`Monitor::experts`] has it. Heat is shown relative to the hottest, as a square root: most experts are much colder.
fn map(pages: &[PageView], experts: usize) -> Vec<String> {
    let hottest = pages.iter().map(|page| page.heat).fold(0.0, f64::max);
    let character = |page: &PageView| match page {
        page if page.is_used => 'x',
        page if !page.is_resident => '.',
        page => {
            let share = if hottest > 0.0 {
                page.heat / hottest
            } else {
                0.0
            };
            // From 0 to 7, so a digit in any case.
            let step = (STEPS * share.sqrt()).round().clamp(0.0, STEPS) as u8;
            char::from(b'0' + step)
        }
    };
    pages
        .chunks(experts.max(1))
        .map(|layer| layer.iter().map(character).collect())
        .collect()
}

/// `root` is `/`; tests put a tree of files in its place.
fn process(root: &Path) -> Process {
    Process {
        resident_bytes: fastar_probe::machine::resident_bytes(),
        available_bytes: fastar_engine::plan::available(root).map(|now| now.bytes),
        cpu_ms: processor_time(),
        processors: u32::try_from(fastar_kernels::processors::Processors::find().allowed)
            .unwrap_or(u32::MAX),
        read_bytes: std::fs::read_to_string(root.join("proc/self/io"))
            .ok()
            .and_then(|text| read_bytes(&text)),
    }
}

/// Milliseconds of processor time of all threads of this process, ended ones included.
fn processor_time() -> Option<f64> {
    #[cfg(unix)]
    {
        use rustix::time::{ClockId, clock_gettime};
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Some(time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6)
    }
    #[cfg(not(unix))]
    None
}

fn read_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("read_bytes:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_map_has_a_text_for_each_layer_and_a_character_for_each_expert() {
        let page = |is_resident, is_used, heat| PageView {
            is_resident,
            is_used,
            heat,
        };
        let pages = [
            page(false, false, 9.0),
            page(true, false, 16.0),
            page(true, false, 4.0),
            page(true, false, 0.0),
            page(true, true, 1.0),
            page(false, true, 0.0),
        ];
        // The square roots are 4, 2 and 0, of 4.
        assert_eq!(map(&pages, 3), [".74", "0xx"]);
        assert_eq!(map(&[], 3), [""; 0]);
        assert_eq!(map(&[page(true, false, 0.0)], 1), ["0"]);
    }

    #[test]
    fn what_the_system_says_is_read_and_what_it_does_not_say_is_not_made_up() {
        let text = "rchar: 10\nwchar: 0\nread_bytes: 4096\nwrite_bytes: 1\n";
        assert_eq!(read_bytes(text), Some(4096));
        assert_eq!(read_bytes("rchar: 10\n"), None);
        assert_eq!(read_bytes("read_bytes: many\n"), None);
        let nowhere = tempfile::tempdir().unwrap();
        let process = process(nowhere.path());
        assert_eq!((process.available_bytes, process.read_bytes), (None, None));
        assert!(process.processors >= 1);
    }

    #[cfg(unix)]
    #[test]
    fn processor_time_grows_with_work() {
        let before = processor_time().unwrap();
        let mut n = 1u64;
        while processor_time().unwrap() <= before {
            n = std::hint::black_box(n.wrapping_mul(3));
        }
    }
}
