//! A finished file is checked without writing, and only what is damaged is fetched again.

use sha2::{Digest, Sha256};

use super::*;

#[test]
fn one_flipped_byte_costs_one_block() {
    let (server, contents, folder) = one(40 * MIB);
    let (hub, snapshot) = hub(&server);
    fetch(&hub, &snapshot, folder.path()).unwrap();
    let path = folder.path().join("model.safetensors");
    let mut damaged = contents.clone();
    damaged[17_000_000] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    let file = &snapshot.files[0];
    let error = fastar_hub::verify(file, &path, &Control::new(), |_| {})
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("1 of its blocks") && error.contains("the first at byte 16777216"),
        "{error}"
    );
    let before = server.sent();
    let summary = hub.repair(file, &path, &Control::new(), |_| {}).unwrap();
    assert_eq!((summary.fetched, server.sent() - before), (BLOCK, BLOCK));
    holds(folder.path(), &contents);
    fastar_hub::verify(file, &path, &Control::new(), |_| {}).unwrap();
}

/// What a folder holds: names, times of the last change, contents.
fn everything_in(folder: &Path) -> Vec<(std::path::PathBuf, std::time::SystemTime, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
            let contents = std::fs::read(&path).unwrap();
            (path, changed, contents)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn a_file_that_nobody_may_write_is_checked_and_nothing_is_put_beside_it() {
    // Nobody, not even root, can make a file in this folder, and on most systems write to a program that runs.
    let program = Path::new("/proc/self/exe");
    let contents = std::fs::read(program).unwrap();
    assert!(std::fs::File::create("/proc/self/.exe.blocks").is_err());
    let file = |sha256| RemoteFile {
        repo: REPO.into(),
        revision: "1".into(),
        path: "exe".into(),
        bytes: contents.len() as u64,
        sha256: Some(sha256),
        git_oid: None,
    };
    let verify = |file, read: &mut u64| {
        fastar_hub::verify(&file, program, &Control::new(), |bytes| *read += bytes)
    };
    let sha256: String = Sha256::digest(&contents)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut read = 0;
    verify(file(sha256.clone()), &mut read).unwrap();
    assert_eq!(read, contents.len() as u64);
    let other = "0".repeat(64);
    let error = verify(file(other.clone()), &mut read).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "/proc/self/exe is damaged: its sha256 is {sha256} and should be {other}; download it again."
        )
    );
}

#[test]
fn checking_changes_nothing_in_the_folder() {
    let (server, contents, folder) = one(5 * MIB);
    let (hub, snapshot) = hub(&server);
    fetch(&hub, &snapshot, folder.path()).unwrap();
    let path = folder.path().join("model.safetensors");
    let file = &snapshot.files[0];
    let verify = || fastar_hub::verify(file, &path, &Control::new(), |_| {});
    let before = everything_in(folder.path());
    assert_eq!(before.len(), 2);
    verify().unwrap();
    assert!(everything_in(folder.path()) == before);
    // Without the state there is the whole hash, which can tell no place.
    std::fs::remove_file(folder.path().join(".model.safetensors.blocks")).unwrap();
    verify().unwrap();
    let mut damaged = contents;
    damaged[4_500_000] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    let before = everything_in(folder.path());
    let error = verify().unwrap_err().to_string();
    assert!(error.contains("its sha256 is "), "{error}");
    assert!(everything_in(folder.path()) == before);
    let away = folder.path().join("away/model.safetensors");
    assert!(fastar_hub::verify(file, &away, &Control::new(), |_| {}).is_err());
    assert!(!folder.path().join("away").exists());
}

#[test]
fn a_file_of_another_revision_is_called_that() {
    let (server, _, folder) = one(5 * MIB);
    let (hub, snapshot) = hub(&server);
    fetch(&hub, &snapshot, folder.path()).unwrap();
    let other = RemoteFile {
        revision: "2".into(),
        sha256: Some("0".repeat(64)),
        ..snapshot.files[0].clone()
    };
    let path = folder.path().join("model.safetensors");
    let error = fastar_hub::verify(&other, &path, &Control::new(), |_| {}).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("is damaged: it is of another revision; download it again."),
        "{error}"
    );
}

#[test]
fn a_file_is_not_repaired_while_it_is_checked_and_may_be_checked_twice_at_once() {
    let (server, _, folder) = one(5 * MIB);
    let (hub, snapshot) = hub(&server);
    fetch(&hub, &snapshot, folder.path()).unwrap();
    let path = folder.path().join("model.safetensors");
    let file = &snapshot.files[0];
    let mut outcomes = Vec::new();
    fastar_hub::verify(file, &path, &Control::new(), |_| {
        if outcomes.is_empty() {
            outcomes.push(fastar_hub::verify(file, &path, &Control::new(), |_| {}));
            outcomes.push(hub.repair(file, &path, &Control::new(), |_| {}).map(|_| ()));
        }
    })
    .unwrap();
    let [Ok(()), Err(busy)] = outcomes.as_slice() else {
        panic!("{outcomes:?}");
    };
    assert!(
        busy.to_string()
            .ends_with("is being downloaded or checked already. Stop that first, or wait for it."),
        "{busy}"
    );
}

#[test]
fn a_model_that_is_loaded_is_not_replaced_and_nothing_is_fetched_twice() {
    let (server, old, folder) = one(3 * MIB);
    ends_whole(&server, folder.path(), &old);
    let path = folder.path().join("model.safetensors");
    let loaded = || {
        let file = std::fs::File::open(&path).unwrap();
        file.try_lock_shared().unwrap();
        file
    };
    let new = bytes(3 * MIB, 9);
    let server = HubServer::start(REPO, "", &[("model.safetensors", new.clone())]);
    let (hub, snapshot) = hub(&server);
    // Loaded before the download began: it does not begin.
    let file = &snapshot.files[0];
    assert_eq!(fastar_hub::presence(file, &path), Presence::Absent);
    let held = loaded();
    let error = fetch(&hub, &snapshot, folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("this FaStar has ") && error.contains("model.safetensors loaded"),
        "{error}"
    );
    assert_eq!(server.data_requests().len(), 0);
    drop(held);
    // Loaded while it ran: what came waits under its other name.
    server.fault("*", Fault::Stall { after: MIB }, 1);
    let mut held = None;
    let ended = hub.fetch_set(
        &snapshot.files,
        folder.path(),
        &Options::default(),
        &Control::new(),
        |_| {
            if server.sent() >= MIB {
                held.get_or_insert_with(loaded);
            }
        },
    );
    assert!(matches!(ended, Err(Error::Loaded { .. })), "{ended:?}");
    assert!(std::fs::read(&path).unwrap() == old);
    assert!(std::fs::read(folder.path().join("model.safetensors.partial")).unwrap() == new);
    assert_eq!(
        fastar_hub::presence(file, &path),
        Presence::Partial(3 * MIB)
    );
    drop(held);
    let summary = fetch(&hub, &snapshot, folder.path()).unwrap();
    assert_eq!(summary.fetched, 0);
    holds(folder.path(), &new);
}
