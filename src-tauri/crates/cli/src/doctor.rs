//! `fastar doctor`: the computer as FaStar sees it, in words.

use std::fmt::Write as _;
use std::path::Path;

use fastar_api::{Hardware, Instructions};
use fastar_app::Preferences;

use crate::failure::Failure;
use crate::terminal::{self, Answers};

/// Looks at the computer and says what of it is used, and why.
pub fn doctor() -> Result<(), Failure> {
    let preferences = Preferences::read()?;
    if let Some(problem) = &preferences.problem {
        terminal::note(&format!("fastar: {problem}"));
    }
    let seen = fastar_app::hardware(&preferences.data_folder, &preferences.models_folder);
    let unmet = unmet(&seen, preferences.threads, preferences.cache_bytes);
    let unwritable = [
        (
            "Models",
            &preferences.models_folder,
            "FASTAR_MODELS_DIR, or the settings,",
        ),
        ("Data", &preferences.data_folder, "FASTAR_DATA_DIR"),
    ]
    .into_iter()
    .filter_map(|(name, folder, chooser)| unwritable(name, folder, chooser))
    .collect::<String>();
    Answers::new().write(&(described(&seen) + &unmet + &unwritable))
}

/// That nothing can be kept in a folder and what to do, a line; none where it can. What is not there yet is made in what is there of its path.
fn unwritable(name: &str, folder: &Path, chooser: &str) -> Option<String> {
    let there = folder.ancestors().find(|path| path.exists())?;
    let error = tempfile::tempfile_in(there).err()?;
    let text = error.to_string();
    // The system's words, without the name that was tried and the number.
    let reason = text.split(" at path ").next().unwrap_or_default();
    let reason = reason.split(" (os error").next().unwrap_or_default();
    Some(format!(
        "{name:<10} cannot be written in {} ({reason}); make it writable, or name another folder with {chooser} before you start FaStar\n",
        folder.display()
    ))
}

/// What the settings ask for and this computer does not have, and what is used instead; a line for each.
fn unmet(seen: &Hardware, threads: Option<u64>, cache_bytes: Option<u64>) -> String {
    let mut text = String::new();
    if let Some(wished) = threads.filter(|wished| *wished > u64::from(seen.processors)) {
        // As the engine does.
        let started = wished.min(4 * u64::from(seen.processors));
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "Settings   ask for {wished} threads; {started} are started, and {} would be faster",
            seen.threads
        );
    }
    let wished = cache_bytes.zip(seen.available_bytes);
    if let Some((wished, there)) = wished.filter(|(wished, there)| wished > there) {
        let _ = writeln!(
            text,
            "Settings   ask for {} of memory for experts; of the {} that may be used now they get what the rest of the model leaves",
            fastar_fst::size(wished),
            fastar_fst::size(there)
        );
    }
    text
}

fn described(seen: &Hardware) -> String {
    let size = |bytes: Option<u64>| bytes.map_or("an unknown amount".to_owned(), fastar_fst::size);
    let instructions = match seen.instructions {
        Instructions::Baseline => "has no AVX2, so computing is slow",
        Instructions::Avx2 => "computes with AVX2",
        Instructions::Avx512 => "computes with AVX-512",
    };
    let threads = match seen.quota {
        Some(quota) => format!("this program is granted the time of {quota} processors"),
        None => "one for each core is fastest".to_owned(),
    };
    let mut text = format!(
        "System     {}\nProcessor  {}; it {instructions}\nThreads    {} of {} processors on {} cores: {threads}\nMemory     {} may be used now, of {}\n",
        seen.system,
        seen.processor,
        seen.threads,
        seen.processors,
        seen.cores,
        size(seen.available_bytes),
        size(seen.memory_bytes),
    );
    for (name, disk) in [("Models", &seen.models), ("Data", &seen.data)] {
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "{name:<10} {} free in {}",
            size(disk.free_bytes),
            disk.folder
        );
    }
    text.push_str(if seen.npu {
        "NPU        found, but FaStar does not use it yet\n"
    } else {
        "NPU        none found; FaStar does not use one yet\n"
    });
    text.push_str("Speed      not measured by this command; `fastar bench` measures it\n");
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use fastar_api::Disk;

    #[test]
    fn a_folder_that_cannot_be_written_is_told_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let of = |folder: &Path| unwritable("Data", folder, "FASTAR_DATA_DIR");
        assert_eq!(of(folder.path()), None);
        assert_eq!(of(&folder.path().join("not/there/yet")), None);
        // Nobody, not even root, can write below a file.
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let below = file.join("data");
        assert_eq!(
            of(&below).unwrap(),
            format!(
                "Data       cannot be written in {} (Not a directory); make it writable, or name another folder with FASTAR_DATA_DIR before you start FaStar\n",
                below.display()
            )
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_known_is_said_and_what_is_not_known_too() {
        let disk = |folder: &str, free_bytes| Disk {
            folder: folder.into(),
            free_bytes,
        };
        let seen = Hardware {
            system: "linux 6.1".into(),
            processor: "A processor".into(),
            instructions: Instructions::Avx2,
            processors: 16,
            cores: 8,
            quota: None,
            threads: 8,
            memory_bytes: Some(64_000_000_000),
            available_bytes: None,
            data: disk("/d", Some(1_000_000_000)),
            models: disk("/m", None),
            npu: false,
        };
        let text = described(&seen);
        for line in [
            "Processor  A processor; it computes with AVX2\n",
            "Threads    8 of 16 processors on 8 cores: one for each core is fastest\n",
            "Memory     an unknown amount may be used now, of 64.0 GB\n",
            "Models     an unknown amount free in /m\n",
            "Data       1.0 GB free in /d\n",
            "NPU        none found",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(unmet(&seen, Some(16), Some(1 << 40)), "");
        let seen = Hardware {
            available_bytes: Some(20_000_000_000),
            ..seen
        };
        assert_eq!(
            unmet(&seen, Some(100), Some(64_000_000_000)),
            "Settings   ask for 100 threads; 64 are started, and 8 would be faster\n\
             Settings   ask for 64.0 GB of memory for experts; of the 20.0 GB that may be used now they get what the rest of the model leaves\n"
        );
    }
}
