//! Everything a program does with a container it was given.

#![allow(
    dead_code,
    reason = "every target has its own copy and uses a part of it"
)]

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use fastar_fst::{Container, Depth, verify};

pub fn read_everything(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    read_file(file.path());
}

pub fn read_file(path: &Path) {
    let go_on = AtomicBool::new(false);
    if let Ok(report) = verify(path, Depth::Full, &go_on, &mut |_, _| {}) {
        assert!(report.checked_bytes <= report.file_bytes);
        for damage in &report.damaged {
            assert!(damage.offset + damage.bytes <= report.file_bytes);
        }
    }
    let Ok(container) = Container::open(path) else {
        return;
    };
    read_container(&container);
}

/// Everything that can be had of an open container.
pub fn read_container(container: &Container) {
    std::hint::black_box(container.inspect().to_string());
    for (name, tensor) in container.tensors() {
        if let Ok(data) = container.read(name) {
            assert_eq!(data.len() as u64, tensor.bytes);
        }
    }
    let (layers, experts) = container.expert_counts();
    for layer in 0..layers {
        for expert in 0..experts {
            if let Ok(record) = container.expert(layer, expert) {
                assert_eq!(record.len(), container.expert_layout().bytes);
            }
        }
    }
}
