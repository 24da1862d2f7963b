//! The computer as the engine sees it: the same facts for the page, for `fastar doctor` and for a report.

use std::path::Path;

use fastar_api::{Disk, Hardware, Instructions};
use fastar_kernels::dispatch::{self, Level};
use fastar_kernels::processors::Processors;
use fastar_probe::machine;

use crate::library::free_bytes;

/// Looks at the computer. `data` and `models` are the folders for chats and for models.
pub fn hardware(data: &Path, models: &Path) -> Hardware {
    of(Path::new("/"), &Processors::find(), data, models)
}

fn of(root: &Path, processors: &Processors, data: &Path, models: &Path) -> Hardware {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let disk = |folder: &Path| Disk {
        folder: folder.display().to_string(),
        free_bytes: free_bytes(folder),
    };
    Hardware {
        system: system(root),
        processor: machine::processor(),
        instructions: match dispatch::level() {
            Level::Baseline => Instructions::Baseline,
            Level::Avx2 => Instructions::Avx2,
            Level::Avx512 => Instructions::Avx512,
        },
        processors: count(processors.allowed),
        cores: count(match processors.cores.len() {
            0 => processors.allowed,
            n => n,
        }),
        quota: processors.quota,
        threads: count(processors.threads()),
        memory_bytes: machine::memory(),
        available_bytes: fastar_engine::plan::available(root).map(|now| now.bytes),
        data: disk(data),
        models: disk(models),
        npu: has_npu(root),
    }
}

/// `Linux 6.1.0, Debian GNU/Linux 12 (bookworm), x86_64`, as much of it as the system tells.
fn system(root: &Path) -> String {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let kernel = text("proc/sys/kernel/osrelease");
    let name = text("etc/os-release").and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?;
        Some(line.trim().trim_matches('"').to_owned())
    });
    let mut parts = vec![match kernel {
        Some(version) => format!("{} {}", std::env::consts::OS, version.trim()),
        None => std::env::consts::OS.to_owned(),
    }];
    parts.extend(name);
    parts.push(std::env::consts::ARCH.to_owned());
    parts.join(", ")
}

/// Linux lists what it takes for accelerators of arithmetic, NPUs among them, in one place.
fn has_npu(root: &Path) -> bool {
    std::fs::read_dir(root.join("sys/class/accel"))
        .is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_the_system_says_is_shown_and_nothing_is_made_up() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/osrelease", "6.1.0-test\n");
        write("etc/os-release", "ID=x\nPRETTY_NAME=\"Some Linux 12\"\n");
        write("proc/meminfo", "MemAvailable:    1024 kB\n");
        let processors = Processors {
            cores: vec![0, 2],
            allowed: 4,
            quota: Some(1.5),
        };
        let missing = root.path().join("not/there");
        let seen = of(root.path(), &processors, root.path(), &missing);
        assert_eq!((seen.cores, seen.processors, seen.threads), (2, 4, 1));
        assert_eq!(seen.quota, Some(1.5));
        assert_eq!(seen.available_bytes, Some(1024 * 1024));
        assert!(
            seen.system.contains("6.1.0-test, Some Linux 12, "),
            "{}",
            seen.system
        );
        assert!(seen.data.free_bytes.is_some_and(|free| free > 0));
        assert!(!seen.npu);
        write("sys/class/accel/accel0/name", "x");
        assert!(of(root.path(), &processors, root.path(), &missing).npu);
    }
}
