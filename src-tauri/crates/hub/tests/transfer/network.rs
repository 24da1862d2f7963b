//! Proxies and protected connections.

use super::*;

#[test]
fn a_dead_proxy_is_named_without_its_password() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let settings = Settings {
        endpoint: "http://hub.invalid".into(),
        proxies: Proxies::all(format!("http://me:hidden@{closed}")),
        first_wait: Duration::from_millis(1),
        tries: 2,
        ..Settings::default()
    };
    let error = Hub::new(settings)
        .unwrap()
        .snapshot(REPO, "main", &Control::new())
        .unwrap_err();
    assert!(error.is_transient());
    let error = error.to_string();
    assert!(
        error.contains(&format!("through the proxy http://{closed}")) && !error.contains("hidden"),
        "{error}"
    );
}

#[test]
fn requests_go_through_the_proxy_unless_the_host_is_excepted() {
    let (server, contents, folder) = one(MIB);
    // The fake hub answers requests for any host, as a proxy does.
    let through = Settings {
        endpoint: "http://hub.invalid".into(),
        proxies: Proxies::all(server.endpoint()),
        tries: 1,
        ..settings(&server)
    };
    let hub = Hub::new(through.clone()).unwrap();
    let snapshot = hub.snapshot(REPO, "main", &Control::new()).unwrap();
    fetch(&hub, &snapshot, folder.path()).unwrap();
    holds(folder.path(), &contents);
    let seen = server.requests().len();
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.host == "hub.invalid")
    );
    let mut direct = through;
    direct.proxies.direct = "hub.invalid".into();
    let error = Hub::new(direct)
        .unwrap()
        .snapshot(REPO, "main", &Control::new())
        .unwrap_err();
    assert!(
        error.is_transient() && !error.to_string().contains("proxy"),
        "{error}"
    );
    assert_eq!(server.requests().len(), seen);
}

#[test]
fn https_to_a_server_that_does_not_speak_it_is_a_clean_error() {
    let (server, _, _) = one(1);
    let endpoint = server.endpoint().replace("http://", "https://");
    let hub = Hub::new(Settings {
        endpoint,
        tries: 2,
        ..settings(&server)
    })
    .unwrap();
    let error = hub.snapshot(REPO, "main", &Control::new()).unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("cannot be reached"),
        "{error}"
    );
    assert_eq!(server.requests().len(), 0);
}
