//! What a server may answer and what is made of it.

use super::*;

#[test]
fn too_many_requests_waits_as_long_as_the_server_asks() {
    let (server, contents, folder) = one(MIB);
    server.fault("*", Fault::Status(429, Some("1".into())), 2);
    server.fault("*", Fault::Status(503, None), 1);
    ends_whole(&server, folder.path(), &contents);
    let seen = server.data_requests();
    assert_eq!(
        seen.iter().map(|seen| seen.status).collect::<Vec<_>>(),
        [429, 429, 503, 200]
    );
    assert!(
        seen[1].at - seen[0].at >= Duration::from_secs(1)
            && seen[2].at - seen[1].at >= Duration::from_secs(1)
    );
}

#[test]
fn refusals_at_the_endpoint_are_final_and_name_repository_and_file() {
    for (status, part) in [
        (404, "has no file \"model.safetensors\" of acme/tiny"),
        (401, "does not give file \"model.safetensors\" of acme/tiny"),
        (403, "gated"),
    ] {
        let (server, _, folder) = one(MIB);
        let (hub, snapshot) = hub(&server);
        server.fault("*", Fault::Status(status, None), u32::MAX);
        let error = fetch(&hub, &snapshot, folder.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(server.data_requests().len(), 1);
    }
}

#[test]
fn a_mirror_with_a_prefix_relative_redirects_and_weak_etags_works_and_nothing_leaves_it() {
    for slash in ["", "/"] {
        let contents = bytes(MIB, 3);
        let server = HubServer::start(
            REPO,
            "/mirror",
            &[("sub dir/model.safetensors", contents.clone())],
        );
        server.store(Storage::Relative);
        server.set_etag("sub dir/model.safetensors", "W/\"abc/def\"");
        let settings = Settings {
            endpoint: server.endpoint() + slash,
            ..settings(&server)
        };
        let folder = tempfile::tempdir().unwrap();
        let hub = Hub::new(settings).unwrap();
        let snapshot = hub.snapshot(REPO, "main", &Control::new()).unwrap();
        fetch(&hub, &snapshot, folder.path()).unwrap();
        assert!(
            std::fs::read(folder.path().join("sub dir/model.safetensors")).unwrap() == contents
        );
        let host = server
            .endpoint()
            .replace("http://", "")
            .replace("/mirror", "");
        assert!(
            server
                .requests()
                .iter()
                .all(|seen| seen.host == host && seen.target.starts_with("/mirror/"))
        );
    }
}

#[test]
fn a_redirect_to_the_hub_from_a_chosen_mirror_and_a_circle_are_refused() {
    let (server, _, folder) = one(MIB);
    let (hub, snapshot) = hub(&server);
    server.store(Storage::To("https://huggingface.co/x".into()));
    let error = fetch(&hub, &snapshot, folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("redirects to huggingface.co, and another mirror was chosen"),
        "{error}"
    );
    server.store(Storage::Circle);
    let error = fetch(&hub, &snapshot, folder.path())
        .unwrap_err()
        .to_string();
    assert!(error.contains("in a circle"), "{error}");
}

#[test]
fn an_expired_address_is_asked_for_again_and_the_token_stays_at_the_endpoint() {
    let (server, contents, folder) = one(10 * MIB);
    server.store(Storage::Signed { requests: 2 });
    server.fault(
        "*",
        Fault::Cut {
            after: 2 * MIB,
            clean: false,
        },
        u32::MAX,
    );
    let hub = Hub::new(Settings {
        token: Token::new("hf_secret"),
        ..settings(&server)
    })
    .unwrap();
    let snapshot = hub.snapshot(REPO, "main", &Control::new()).unwrap();
    fetch(&hub, &snapshot, folder.path()).unwrap();
    holds(folder.path(), &contents);
    let seen = server.requests();
    assert!(seen.iter().any(|seen| seen.status == 403));
    for request in seen {
        let expected = (request.host != server.storage_host()).then_some("Bearer hf_secret");
        assert_eq!(
            request.authorization.as_deref(),
            expected,
            "{}",
            request.target
        );
    }
}

#[test]
fn a_web_page_is_never_taken_for_the_file() {
    let (server, contents, folder) = one(MIB);
    let (hub, snapshot) = hub(&server);
    server.fault("*", Fault::WebPage, 1);
    let error = fetch(&hub, &snapshot, folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("A web page came back from 127.0.0.1:"),
        "{error}"
    );
    assert!(!folder.path().join("model.safetensors").exists());
    assert_eq!(
        fastar_hub::presence(&snapshot.files[0], &folder.path().join("model.safetensors")),
        Presence::Partial(0)
    );
    fetch(&hub, &snapshot, folder.path()).unwrap();
    holds(folder.path(), &contents);
}

#[test]
fn wrong_contents_that_come_twice_alike_are_the_servers_fault_and_are_kept() {
    let (server, mut contents, folder) = one(2 * MIB);
    let (hub, snapshot) = hub(&server);
    contents[5] ^= 1;
    server.damage("model.safetensors", contents.clone());
    let error = fetch(&hub, &snapshot, folder.path()).unwrap_err();
    assert!(matches!(error, Error::WrongContents { .. }), "{error}");
    assert!(std::fs::read(folder.path().join("model.safetensors.partial")).unwrap() == contents);
    assert!(!folder.path().join("model.safetensors").exists());
}

#[test]
fn a_listing_with_a_path_out_of_the_folder_is_refused() {
    let server = HubServer::start(REPO, "", &[]);
    server.list(serde_json::json!([{ "type": "file", "path": "../../.bashrc", "size": 5 }]));
    let hub = Hub::new(settings(&server)).unwrap();
    let error = hub.snapshot(REPO, "main", &Control::new()).unwrap_err();
    assert!(matches!(error, Error::HostilePath { .. }), "{error}");
}

#[test]
fn a_listing_that_repeats_an_entry_counts_it_once_and_one_that_contradicts_itself_is_refused() {
    let server = HubServer::start(REPO, "", &[]);
    let hub = Hub::new(settings(&server)).unwrap();
    let list = |entries: &[serde_json::Value]| {
        server.list(entries.into());
        hub.snapshot(REPO, "main", &Control::new())
    };
    let small = serde_json::json!({ "type": "file", "path": "config.json", "size": 5 });
    let large = |digit: &str, size: u64| {
        let lfs = serde_json::json!({ "oid": digit.repeat(64), "size": size });
        serde_json::json!({ "type": "file", "path": "a/b.safetensors", "size": size, "lfs": lfs })
    };
    let page = [small.clone(), large("1", 9)];
    let snapshot = list(&[page.clone(), page.clone()].concat()).unwrap();
    let paths: Vec<&str> = snapshot
        .files
        .iter()
        .map(|file| file.path.as_str())
        .collect();
    assert_eq!(paths, ["config.json", "a/b.safetensors"]);
    assert_eq!(snapshot.bytes(), 14);
    for other in [large("2", 9), large("1", 8)] {
        let error = list(&[page.as_slice(), &[other]].concat()).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        let error = error.to_string();
        assert!(
            error.contains("it lists the file \"a/b.safetensors\" twice"),
            "{error}"
        );
    }
}
