//! What a person can put into a report: the app, the computer, the model, the settings that differ, and the end of the log, as one text.
//!
//! It is shown before it is copied. Messages, titles and answers are not in it; secrets are taken out, and the home folder is written as `~`.

use std::fmt::Write as _;
use std::path::Path;

use fastar_api::{Face, Hardware, Instructions, LogPage, ModelState, Setting};
use fastar_fst::size;

use crate::hardware::hardware;
use crate::{App, logs};

/// Lines of the log at its end.
const LINES: usize = 100;

impl App {
    /// The computer as the engine sees it.
    pub fn hardware(&self) -> Hardware {
        hardware(self.0.data.path(), &self.models_folder())
    }

    /// What the app wrote down about itself after this line; 0 for all that is remembered.
    pub fn log_read(&self, after: u64) -> LogPage {
        logs::read(after)
    }

    /// A text for a report about a problem.
    pub fn diagnostics(&self) -> String {
        let face = match self.1 {
            Face::Desktop => "desktop",
            Face::Web => "web",
        };
        let mut text = format!("FaStar {}, {face}\n", env!("CARGO_PKG_VERSION"));
        computer(&mut text, &self.hardware());
        model(&mut text, &self.model_state());
        if let Some(memory) = self.model_memory() {
            let _ = writeln!(
                text,
                "Experts: {} of {} fit, {} for them",
                memory.slots,
                memory.experts,
                size(memory.cache_bytes)
            );
        }
        settings(&mut text, &self.setting_list());
        log(&mut text, &self.log_read(0));
        let home = directories::BaseDirs::new().map(|dirs| dirs.home_dir().to_owned());
        private(&text, home.as_deref())
    }
}

// Writing to a text cannot fail.

fn computer(text: &mut String, seen: &Hardware) {
    let bytes = |n: Option<u64>| n.map_or("unknown".to_owned(), size);
    let instructions = match seen.instructions {
        Instructions::Baseline => "no AVX2",
        Instructions::Avx2 => "AVX2",
        Instructions::Avx512 => "AVX-512",
    };
    let _ = write!(
        text,
        "System: {}\nProcessor: {}, {instructions}, {} threads on {} cores of {} processors{}\nMemory: {} available of {}\nNPU: {}\n",
        seen.system,
        seen.processor,
        seen.threads,
        seen.cores,
        seen.processors,
        seen.quota
            .map_or(String::new(), |quota| format!(", time of {quota} granted")),
        bytes(seen.available_bytes),
        bytes(seen.memory_bytes),
        if seen.npu {
            "found, not used"
        } else {
            "none found"
        },
    );
    for (what, disk) in [("Data", &seen.data), ("Models", &seen.models)] {
        let _ = writeln!(
            text,
            "{what}: {}, {} free",
            disk.folder,
            bytes(disk.free_bytes)
        );
    }
}

fn model(text: &mut String, state: &ModelState) {
    let _ = match state {
        ModelState::Loading { name } => writeln!(text, "Model: {name}, being loaded"),
        ModelState::Ready { model } => writeln!(
            text,
            "Model: {}, {}, {} layers of {} experts, {} threads",
            model.name,
            size(model.file_bytes),
            model.layers,
            model.experts,
            model.threads
        ),
        ModelState::Failed { name, error, .. } => {
            writeln!(text, "Model: {name} could not be loaded: {}", error.message)
        }
    };
}

fn settings(text: &mut String, list: &[Setting]) {
    text.push_str("Settings that differ from the defaults:\n");
    for setting in list.iter().filter(|setting| setting.is_set) {
        let _ = writeln!(text, "  {} = {}", setting.key, setting.value);
    }
    for problem in list.iter().filter_map(|setting| setting.problem.as_ref()) {
        let _ = writeln!(text, "  {problem}");
    }
}

fn log(text: &mut String, page: &LogPage) {
    let _ = writeln!(text, "Log ({}):", page.file);
    for line in page.lines.iter().rev().take(LINES).rev() {
        let _ = writeln!(
            text,
            "  {} {} {}: {}",
            crate::clock::stamp(line.at),
            logs::word(line.level),
            line.target,
            line.text
        );
    }
}

/// Without secrets, and without the name of the home folder, which is mostly that of its owner.
fn private(text: &str, home: Option<&Path>) -> String {
    let text: String = text
        .lines()
        .flat_map(|line| [logs::redact(line), "\n".to_owned()])
        .collect();
    match home.and_then(Path::to_str) {
        Some(home) if home.len() > 1 => text.replace(home, "~"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_the_home_folder_are_taken_out() {
        let home = Path::new("/home/somebody");
        assert_eq!(
            private("Data: /home/somebody/x, 1 GB free\ntoken=abc\n", Some(home)),
            "Data: ~/x, 1 GB free\ntoken=***\n"
        );
        assert_eq!(private("a / b\n", Some(Path::new("/"))), "a / b\n");
    }
}
