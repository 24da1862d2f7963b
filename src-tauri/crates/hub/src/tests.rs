//! The disk's own failure, which no server can cause: the write of a partial file is refused by a switch in front of it.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fastar_testkit::hub::{Fault, HubServer};

use crate::{Control, Error, Event, Hub, Options, Presence, Settings};

/// Partial files whose disk is full.
static FULL: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);

/// Stands before each write in this crate's own tests.
pub(crate) fn disk_fault(path: &Path) -> io::Result<()> {
    let full = FULL.lock().unwrap_or_else(PoisonError::into_inner);
    if full.as_ref().is_some_and(|full| full.contains(path)) {
        Err(io::ErrorKind::StorageFull.into())
    } else {
        Ok(())
    }
}

fn set_full(path: &Path, full: bool) {
    let mut paths = FULL.lock().unwrap_or_else(PoisonError::into_inner);
    let paths = paths.get_or_insert_default();
    if full {
        paths.insert(path.to_owned());
    } else {
        paths.remove(path);
    }
}

#[test]
fn a_disk_that_fills_up_keeps_everything_stops_once_and_goes_on_when_there_is_room() {
    let contents: Vec<u8> = (0..6_000_000_u32)
        .flat_map(|i| i.to_le_bytes())
        .take(12 << 20)
        .collect();
    let server = HubServer::start("acme/tiny", "", &[("model.safetensors", contents.clone())]);
    // The first connection ends in the middle, so that the disk can fill up at a known byte.
    server.fault(
        "*",
        Fault::Cut {
            after: 6 << 20,
            clean: false,
        },
        1,
    );
    server.fault("*", Fault::Status(503, None), u32::MAX);
    let hub = Hub::new(Settings {
        endpoint: server.endpoint(),
        first_wait: Duration::from_millis(5),
        longest_wait: Duration::from_millis(20),
        ..Settings::default()
    })
    .unwrap();
    let snapshot = hub.snapshot("acme/tiny", "main", &Control::new()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let dest = folder.path().join("model.safetensors");
    let partial = folder.path().join("model.safetensors.partial");
    let fetch = |on_event: &mut dyn FnMut(Event)| {
        hub.fetch_set(
            &snapshot.files,
            folder.path(),
            &Options::default(),
            &Control::new(),
            on_event,
        )
    };
    let error = fetch(&mut |event| {
        if let Event::Progress(progress) = event
            && progress.done == 6 << 20
        {
            set_full(&partial, true);
            server.heal();
        }
    })
    .unwrap_err();
    assert!(
        matches!(&error, Error::Full { folder: at, missing } if at == folder.path() && *missing > 0),
        "{error:?}"
    );
    assert!(error.to_string().contains(" is full: "), "{error}");
    assert_eq!(std::fs::metadata(&partial).unwrap().len(), 6 << 20);
    assert_eq!(
        crate::presence(&snapshot.files[0], &dest),
        Presence::Partial(6 << 20)
    );
    let before = server.data_requests();
    assert_eq!(
        before.last().unwrap().range.as_deref(),
        Some("bytes=6291456-")
    );
    set_full(&partial, false);
    fetch(&mut |_| {}).unwrap();
    assert!(std::fs::read(&dest).unwrap() == contents);
    let after = server.data_requests();
    assert_eq!(after.len(), before.len() + 1);
    assert_eq!(
        after.last().unwrap().range.as_deref(),
        Some("bytes=6291456-")
    );
}
