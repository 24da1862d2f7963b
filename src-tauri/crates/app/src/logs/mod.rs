//! What the app writes down about itself: a file in the data folder that is rotated, and the last lines in memory for whoever looks.
//!
//! Only events of our own crates are kept, at the level the person chose. None of them holds a message or an answer at the default level, and every line goes
//! through [`redact`]. A face puts [`layer`] into its subscriber before it opens the app; nothing is kept until then.

mod file;
mod redact;

use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use fastar_api::{LogLevel, LogPage};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::clock;
use crate::error::lock;
use file::LogFile;
pub(crate) use file::word;
pub(crate) use redact::redact;

/// No line is longer, in characters.
const LONGEST: usize = 2000;

/// The log of the app that was opened last. There is one process-wide, as there is one subscriber.
static LOG: Mutex<Option<LogFile>> = Mutex::new(None);
/// 0 keeps nothing; 1 to 4 are errors to details.
static KEPT: AtomicU8 = AtomicU8::new(0);

fn number(level: LogLevel) -> u8 {
    match level {
        LogLevel::Error => 1,
        LogLevel::Warn => 2,
        LogLevel::Info => 3,
        LogLevel::Debug => 4,
    }
}

/// Begins to keep what is logged, in this folder.
pub(crate) fn begin(data: &Path, level: LogLevel) {
    let opened = LogFile::open(&data.join("logs"));
    *lock(&LOG) = Some(opened);
    set_level(level);
}

/// Keeps events of this level and graver ones from now on.
pub(crate) fn set_level(level: LogLevel) {
    KEPT.store(number(level), Ordering::Relaxed);
}

/// The lines after this number, as many as are remembered.
pub(crate) fn read(after: u64) -> LogPage {
    lock(&LOG)
        .as_ref()
        .map_or_else(LogPage::default, |log| log.page(after))
}

/// Keeps events of our own crates; for the subscriber of a face.
pub fn layer<S>() -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    Keep.with_filter(dynamic_filter_fn(|about, _| {
        about.target().starts_with("fastar") && grade(about.level()) <= KEPT.load(Ordering::Relaxed)
    }))
}

fn grade(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => u8::MAX,
    }
}

struct Keep;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Keep {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => LogLevel::Error,
            Level::WARN => LogLevel::Warn,
            Level::INFO => LogLevel::Info,
            _ => LogLevel::Debug,
        };
        let mut text = Text::default();
        event.record(&mut text);
        let line = one_line(&text.whole());
        // Waits for nobody but another line.
        if let Some(log) = lock(&LOG).as_mut() {
            log.write(clock::now(), level, event.metadata().target(), &line);
        }
    }
}

/// A line of bounded length without what would break it, and without secrets.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for c in text.chars().take(LONGEST) {
        match c {
            '\n' => line.push_str("\\n"),
            c if c.is_control() => line.push(' '),
            c => line.push(c),
        }
    }
    redact(&line)
}

/// The message of an event, and its fields as `name=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn whole(&self) -> String {
        format!("{}{}", self.message, self.fields)
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
