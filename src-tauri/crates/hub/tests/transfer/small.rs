//! Small files have no sha256 on the hub, but git's own name of their contents, which is checked as strictly.

use super::*;

const NAME: &str = "config.json";
const CONTENTS: &[u8] = b"hello\n";
/// From `git hash-object`.
const OID: &str = "ce013625030ba8dba906f756967f9e9ca394464a";
/// Of `hallo` and a line feed, from the same.
const OTHER: &str = "4cf5aa5f9a644263dbe3d6e78bcbef45487a802c";

fn small() -> (HubServer, tempfile::TempDir) {
    let server = HubServer::start(REPO, "", &[(NAME, CONTENTS.to_vec())]);
    (server, tempfile::tempdir().unwrap())
}

#[test]
fn a_small_file_is_checked_against_gits_name_of_it_on_arrival_and_later() {
    let (server, folder) = small();
    let (hub, snapshot) = hub(&server);
    let file = &snapshot.files[0];
    assert_eq!((&file.sha256, file.git_oid.as_deref()), (&None, Some(OID)));
    fetch(&hub, &snapshot, folder.path()).unwrap();
    let path = folder.path().join(NAME);
    assert_eq!(std::fs::read(&path).unwrap(), CONTENTS);
    let verify = || fastar_hub::verify(file, &path, &Control::new(), |_| {});
    verify().unwrap();
    // The records tell the place of the damage; without them there is the hash alone.
    std::fs::write(&path, "hallo\n").unwrap();
    let error = verify().unwrap_err().to_string();
    assert!(error.contains("1 of its blocks"), "{error}");
    std::fs::remove_file(folder.path().join(".config.json.blocks")).unwrap();
    let error = verify().unwrap_err().to_string();
    let words = format!("its git blob sha1 is {OTHER} and should be {OID}; download it again.");
    assert!(error.ends_with(&words), "{error}");
}

#[test]
fn a_small_file_with_wrong_contents_of_the_right_length_never_gets_its_name() {
    let (server, folder) = small();
    let (hub, snapshot) = hub(&server);
    server.damage(NAME, b"hallo\n".to_vec());
    let error = fetch(&hub, &snapshot, folder.path()).unwrap_err();
    assert!(matches!(error, Error::WrongContents { .. }), "{error:?}");
    let error = error.to_string();
    let words = format!("(git blob sha1 {OTHER} instead of {OID})");
    assert!(error.contains(&words), "{error}");
    assert_eq!(server.data_requests().len(), 2);
    assert!(!folder.path().join(NAME).exists());
    let kept = std::fs::read(folder.path().join("config.json.partial")).unwrap();
    assert_eq!(kept, b"hallo\n");
}

#[test]
fn a_small_file_that_comes_wrong_once_and_right_the_second_time_ends_whole() {
    let (server, folder) = small();
    let (hub, snapshot) = hub(&server);
    server.fault(NAME, Fault::WrongByte, 1);
    fetch(&hub, &snapshot, folder.path()).unwrap();
    assert_eq!(std::fs::read(folder.path().join(NAME)).unwrap(), CONTENTS);
    assert!(!folder.path().join("config.json.partial").exists());
    assert_eq!(server.data_requests().len(), 2);
}

#[test]
fn somebody_elses_small_file_of_the_same_length_is_not_taken_for_the_hubs() {
    let (server, folder) = small();
    let (hub, snapshot) = hub(&server);
    let path = folder.path().join(NAME);
    std::fs::write(&path, "hallo\n").unwrap();
    let error = fetch(&hub, &snapshot, folder.path()).unwrap_err();
    assert!(matches!(error, Error::Occupied { .. }), "{error:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"hallo\n");
}

#[test]
fn a_snapshot_that_was_saved_before_gits_names_were_kept_still_loads() {
    let (server, folder) = small();
    let (hub, snapshot) = hub(&server);
    let mut saved = serde_json::to_value(&snapshot).unwrap();
    let kept = saved["files"][0].as_object_mut().unwrap().remove("git_oid");
    assert_eq!(kept, Some(OID.into()));
    let loaded: Snapshot = serde_json::from_value(saved).unwrap();
    assert_eq!(loaded.files[0].git_oid, None);
    fetch(&hub, &loaded, folder.path()).unwrap();
    assert_eq!(std::fs::read(folder.path().join(NAME)).unwrap(), CONTENTS);
}

#[test]
fn only_forty_hexadecimal_digits_of_a_file_that_lies_in_git_itself_are_its_name() {
    let server = HubServer::start(REPO, "", &[]);
    let hub = Hub::new(settings(&server)).unwrap();
    let listed = |oid: serde_json::Value, lfs: serde_json::Value| {
        server.list(serde_json::json!([
            { "type": "file", "path": "a", "size": 6, "oid": oid, "lfs": lfs }
        ]));
        let snapshot = hub.snapshot(REPO, "main", &Control::new()).unwrap();
        snapshot.files[0].git_oid.clone()
    };
    let none = serde_json::Value::Null;
    for oid in [OID.to_owned(), OID.to_uppercase()] {
        assert_eq!(listed(oid.into(), none.clone()).as_deref(), Some(OID));
    }
    for oid in [
        "0".into(),
        "z".repeat(40).into(),
        "0".repeat(41).into(),
        5.into(),
        none.clone(),
    ] {
        assert_eq!(listed(oid, none.clone()), None);
    }
    // The pointer's name, not that of the contents, even where the hash of these is unreadable.
    let lfs = serde_json::json!({ "oid": "unknown", "size": 6 });
    assert_eq!(listed(OID.into(), lfs), None);
}
