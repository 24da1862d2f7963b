//! A listing or a reading that waits before its next attempt says so.

use super::*;

/// A server that always answers one way would hang a test that waits for another.
const PATIENCE: Duration = Duration::from_secs(60);

fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "it never came");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Never gives up, so that the test decides when the server is well again.
fn patient(server: &HubServer) -> Hub {
    Hub::new(Settings {
        tries: u32::MAX,
        ..settings(server)
    })
    .unwrap()
}

fn problem(server: &HubServer) -> String {
    let host = server.endpoint().replace("http://", "");
    format!("{host} has a problem (status 503)")
}

#[test]
fn a_listing_that_waits_tells_how_long_and_why_and_nothing_once_it_is_there() {
    let (server, _, _) = one(MIB);
    let (hub, control) = (patient(&server), Control::new());
    assert_eq!(control.waiting(), None);
    server.fault("api", Fault::Status(503, Some("1".into())), u32::MAX);
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| hub.snapshot(REPO, "main", &control));
        let (seconds, why) = until(|| control.waiting());
        assert!(seconds <= 1, "{seconds}");
        assert_eq!(why, problem(&server));
        server.heal();
        assert_eq!(listing.join().unwrap().unwrap().files.len(), 1);
    });
    assert_eq!(control.waiting(), None);
}

#[test]
fn readers_that_share_a_control_wait_visibly_until_the_last_of_them_is_done() {
    let (server, contents, _) = one(MIB);
    let (hub, control) = (patient(&server), Control::new());
    let file = &hub.snapshot(REPO, "main", &control).unwrap().files[0];
    server.fault("*", Fault::Status(503, Some("1".into())), u32::MAX);
    std::thread::scope(|scope| {
        let readers = [0..7, 1000..2000].map(|range| {
            let (hub, control) = (&hub, &control);
            scope.spawn(move || (range.clone(), hub.read(file, range, control)))
        });
        assert_eq!(until(|| control.waiting()).1, problem(&server));
        server.heal();
        for reader in readers {
            let (range, read) = reader.join().unwrap();
            assert!(read.unwrap() == contents[range.start as usize..range.end as usize]);
        }
    });
    assert_eq!(control.waiting(), None);
}

#[test]
fn a_server_that_asks_for_a_day_gets_an_hour_and_a_cancelled_wait_is_over() {
    let (server, _, _) = one(MIB);
    let (hub, control) = (patient(&server), Control::new());
    server.fault("api", Fault::Status(503, Some("86400".into())), u32::MAX);
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| hub.snapshot(REPO, "main", &control));
        let (seconds, _) = until(|| control.waiting());
        assert!((3000..=3600).contains(&seconds), "{seconds}");
        control.cancel();
        assert!(matches!(listing.join().unwrap(), Err(Error::Cancelled)));
    });
    assert_eq!(control.waiting(), None);
}

#[test]
fn a_listing_that_gave_up_waits_no_more() {
    let (server, _, _) = one(MIB);
    let (hub, control) = (hub(&server).0, Control::new());
    server.fault("api", Fault::Status(503, None), u32::MAX);
    let error = hub.snapshot(REPO, "main", &control).unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(control.waiting(), None);
}
