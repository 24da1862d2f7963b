//! The file behind the log: one line for each event, a few files of bounded size, and the last lines in memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fastar_api::{LogLevel, LogLine, LogPage};

use crate::clock;

/// A file is put aside when it is longer, in bytes.
const FULL: u64 = 1_000_000;
/// Files that were put aside and are kept.
const ASIDE: usize = 3;
/// Lines in memory.
const REMEMBERED: usize = 2000;

pub(super) struct LogFile {
    path: PathBuf,
    /// None when it cannot be written: the app goes on without.
    file: Option<File>,
    bytes: u64,
    lines: VecDeque<LogLine>,
    next: u64,
}

impl LogFile {
    /// Goes on with the log of a folder, and remembers its last lines.
    pub fn open(folder: &Path) -> Self {
        let path = folder.join("fastar.log");
        let mut log = Self {
            file: None,
            bytes: 0,
            lines: VecDeque::new(),
            next: 1,
            path,
        };
        let before = log.before();
        for line in before.lines() {
            if let Some((at, level, target, text)) = parse(line) {
                log.remember(at, level, target, text);
            }
        }
        log.begin(folder);
        log
    }

    fn begin(&mut self, folder: &Path) {
        let opened = std::fs::create_dir_all(folder).and_then(|()| {
            let mut options = File::options();
            options.append(true).create(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            fastar_files::open(&self.path, &mut options)
        });
        self.bytes = opened
            .as_ref()
            .ok()
            .and_then(|file| file.metadata().ok())
            .map_or(0, |facts| facts.len());
        self.file = opened.ok();
    }

    /// The end of the file as it is, as much as may be remembered.
    fn before(&self) -> String {
        const MOST: u64 = 200_000;
        let read = || -> std::io::Result<String> {
            // A pipe would wait for ever.
            let facts = std::fs::metadata(&self.path)?;
            if !facts.is_file() {
                return Ok(String::new());
            }
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(facts.len().saturating_sub(MOST)))?;
            let mut bytes = Vec::new();
            file.take(MOST).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_default()
    }

    pub fn write(&mut self, at: i64, level: LogLevel, target: &str, text: &str) {
        let line = format!("{} {} {target}: {text}\n", clock::stamp(at), word(level));
        self.remember(at, level, target, text);
        let Some(file) = &mut self.file else {
            return;
        };
        // Nothing can be told about a log that cannot be written but in the log.
        if file.write_all(line.as_bytes()).is_err() {
            self.file = None;
            return;
        }
        self.bytes += line.len() as u64;
        if self.bytes > FULL {
            self.put_aside();
        }
    }

    fn put_aside(&mut self) {
        let Some(folder) = self.path.parent().map(Path::to_owned) else {
            return;
        };
        let aside = |n: usize| folder.join(format!("fastar.{n}.log"));
        self.file = None;
        for n in (1..ASIDE).rev() {
            // Where there is none yet there is nothing to rename.
            let _ = std::fs::rename(aside(n), aside(n + 1));
        }
        let _ = std::fs::rename(&self.path, aside(1));
        self.begin(&folder);
    }

    fn remember(&mut self, at: i64, level: LogLevel, target: &str, text: &str) {
        if self.lines.len() == REMEMBERED {
            self.lines.pop_front();
        }
        self.lines.push_back(LogLine {
            number: self.next,
            at,
            level,
            target: target.to_owned(),
            text: text.to_owned(),
        });
        self.next += 1;
    }

    pub fn page(&self, after: u64) -> LogPage {
        LogPage {
            lines: self
                .lines
                .iter()
                .filter(|line| line.number > after)
                .cloned()
                .collect(),
            next: self.next - 1,
            file: self.path.display().to_string(),
            written: self.file.is_some(),
        }
    }
}

/// As it stands in a line.
pub(crate) fn word(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "ERROR",
        LogLevel::Warn => "WARN",
        LogLevel::Info => "INFO",
        LogLevel::Debug => "DEBUG",
    }
}

/// A line of the file; none for what is no whole line of ours.
fn parse(line: &str) -> Option<(i64, LogLevel, &str, &str)> {
    let (stamp, rest) = line.split_once(' ')?;
    let (level, rest) = rest.split_once(' ')?;
    let (target, text) = rest.split_once(": ")?;
    let level = match level {
        "ERROR" => LogLevel::Error,
        "WARN" => LogLevel::Warn,
        "INFO" => LogLevel::Info,
        "DEBUG" => LogLevel::Debug,
        _ => return None,
    };
    Some((clock::of_stamp(stamp)?, level, target, text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const AT: i64 = 1_796_000_000_123;

    #[test]
    fn the_last_lines_are_there_again_after_a_restart_and_nothing_else_is_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::open(folder.path());
        log.write(AT, LogLevel::Info, "fastar_app", "one: two");
        log.write(AT + 1, LogLevel::Error, "fastar_app::x", "three");
        drop(log);
        let path = folder.path().join("fastar.log");
        let mut text = std::fs::read(&path).unwrap();
        assert!(text.starts_with(b"2026-11-30T00:53:20.123Z INFO fastar_app: one: two\n"));
        text.splice(0..0, b"\xff\xfe half a line\n".iter().copied());
        std::fs::write(&path, text).unwrap();
        let log = LogFile::open(folder.path());
        let page = log.page(0);
        let told: Vec<_> = page
            .lines
            .iter()
            .map(|l| (l.at, l.level, l.target.as_str(), l.text.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                (AT, LogLevel::Info, "fastar_app", "one: two"),
                (AT + 1, LogLevel::Error, "fastar_app::x", "three")
            ]
        );
        assert_eq!(log.page(1).lines.len(), 1);
    }

    #[test]
    fn files_and_memory_stay_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::open(folder.path());
        let long = "x".repeat(990);
        for _ in 0..6000 {
            log.write(AT, LogLevel::Warn, "fastar_app", &long);
        }
        assert_eq!(log.page(0).lines.len(), REMEMBERED);
        let files: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(files.len(), 1 + ASIDE);
        assert!(files.iter().all(|bytes| *bytes < FULL + 2000));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_log_is_neither_written_to_nor_waited_for() {
        for trap in ["link", "pipe"] {
            let folder = tempfile::tempdir().unwrap();
            let (logs, victim) = (folder.path().join("logs"), folder.path().join("chats.db"));
            std::fs::create_dir(&logs).unwrap();
            std::fs::write(&victim, "all my chats").unwrap();
            let path = logs.join("fastar.log");
            if trap == "link" {
                std::os::unix::fs::symlink(&victim, &path).unwrap();
            } else {
                let made = std::process::Command::new("mkfifo").arg(&path).status();
                assert!(made.unwrap().success());
            }
            let mut log = LogFile::open(&logs);
            log.write(AT, LogLevel::Info, "fastar_app", "remembered");
            let page = log.page(0);
            assert_eq!(page.lines.last().unwrap().text, "remembered", "{trap}");
            assert!(!page.written, "{trap}");
            assert_eq!(std::fs::read(victim).unwrap(), b"all my chats", "{trap}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_stops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs");
        std::fs::write(&path, "a file").unwrap();
        let mut log = LogFile::open(&path);
        log.write(AT, LogLevel::Info, "fastar_app", "still remembered");
        let page = log.page(0);
        assert_eq!((page.lines.len(), page.written), (1, false));
    }
}
