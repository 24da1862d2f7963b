//! What arrived is kept and continued, whatever ended the connection.

use super::*;

#[test]
fn a_short_body_with_a_clean_end_is_continued_at_the_byte_where_it_ended() {
    let (server, contents, folder) = one(10 * MIB);
    server.fault(
        "*",
        Fault::Cut {
            after: 6 * MIB,
            clean: true,
        },
        1,
    );
    ends_whole(&server, folder.path(), &contents);
    assert_eq!(ranges(&server), ["", "bytes=6291456-"]);
}

#[test]
fn thirty_drops_end_in_a_whole_file_and_no_byte_comes_twice() {
    let (server, contents, folder) = one(30 * MIB);
    server.fault(
        "*",
        Fault::Cut {
            after: MIB,
            clean: false,
        },
        u32::MAX,
    );
    let summary = ends_whole(&server, folder.path(), &contents);
    assert_eq!(ranges(&server).len(), 30);
    assert_eq!(summary.fetched, 30 * MIB);
}

#[test]
fn a_whole_partial_costs_no_byte_and_a_partial_that_is_too_long_is_cut() {
    for extra in [0, 100] {
        let (server, contents, folder) = one(5 * MIB);
        server.fault("*", Fault::NoSuchRange, u32::MAX);
        let (hub, snapshot) = hub(&server);
        let mut partial = contents.clone();
        partial.extend(vec![1; extra]);
        std::fs::write(folder.path().join("model.safetensors.partial"), partial).unwrap();
        let summary = fetch(&hub, &snapshot, folder.path()).unwrap();
        holds(folder.path(), &contents);
        assert_eq!((summary.fetched, server.data_requests().len()), (0, 0));
    }
}

#[test]
fn a_connection_that_brings_nothing_is_dropped_and_resumed() {
    let (server, contents, folder) = one(5 * MIB);
    server.fault("*", Fault::Stall { after: 3 * MIB }, 1);
    ends_whole(&server, folder.path(), &contents);
    assert_eq!(ranges(&server), ["", "bytes=3145728-"]);
}

#[test]
fn ranges_that_are_ignored_or_answered_wrongly_still_end_whole() {
    for fault in [
        Fault::IgnoreRange,
        Fault::WrongRange,
        Fault::NoSuchRange,
        Fault::NoLength,
    ] {
        let (server, contents, folder) = one(6 * MIB);
        server.fault(
            "*",
            Fault::Cut {
                after: 5 * MIB,
                clean: false,
            },
            1,
        );
        server.fault("*", fault.clone(), 1);
        let (hub, snapshot) = hub(&server);
        fetch(&hub, &snapshot, folder.path()).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        holds(folder.path(), &contents);
    }
}

#[test]
fn a_server_that_never_answers_ranges_still_ends_whole() {
    let (server, contents, folder) = one(6 * MIB);
    server.fault(
        "*",
        Fault::Cut {
            after: 5 * MIB,
            clean: false,
        },
        1,
    );
    server.fault("*", Fault::WrongRange, 3);
    server.fault("*", Fault::IgnoreRange, u32::MAX);
    ends_whole(&server, folder.path(), &contents);
    assert_eq!(ranges(&server).last().map(String::as_str), Some(""));
}

#[test]
fn a_file_that_changes_on_the_server_starts_over_and_says_so() {
    let first = bytes(3 * MIB, 1);
    let second = bytes(3 * MIB, 2);
    // Without a hash in the listing only the ETag can tell.
    let server = HubServer::start(REPO, "", &[("notes.bin", first)]);
    server.fault(
        "*",
        Fault::Cut {
            after: 2 * MIB,
            clean: false,
        },
        1,
    );
    // Nobody gets further until the contents have changed.
    server.fault("*", Fault::Status(503, None), u32::MAX);
    let (hub, mut snapshot) = hub(&server);
    snapshot.files[0].git_oid = None;
    let folder = tempfile::tempdir().unwrap();
    let mut said = Vec::new();
    let control = Control::new();
    hub.fetch_set(
        &snapshot.files,
        folder.path(),
        &Options::default(),
        &control,
        |event| match event {
            Event::Progress(progress) if progress.done == 2 * MIB => {
                server.put("notes.bin", second.clone());
                server.heal();
            }

            Event::StartedOver { path, why } => said.push((path, why)),
            _ => {}
        },
    )
    .unwrap();
    let found = std::fs::read(folder.path().join("notes.bin")).unwrap();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].0 == "notes.bin" && said[0].1.contains("changed"));
    assert!(found == second);
}

#[test]
fn a_small_piece_is_read_with_the_same_retries() {
    let (server, contents, _) = one(3 * MIB);
    let (hub, snapshot) = hub(&server);
    server.fault(
        "*",
        Fault::Cut {
            after: 100_000,
            clean: false,
        },
        2,
    );
    let read = |range| hub.read(&snapshot.files[0], range, &Control::new());
    assert!(read(1000..500_000).unwrap() == contents[1000..500_000]);
    assert_eq!(
        ranges(&server),
        [
            "bytes=1000-499999",
            "bytes=101000-499999",
            "bytes=201000-499999"
        ]
    );
    assert!(read(0..3 * MIB + 1).is_err());
}

#[test]
fn a_resumed_range_names_the_contents_it_began_with() {
    let (server, contents, folder) = one(10 * MIB);
    server.set_etag("model.safetensors", "\"first\"");
    for after in [2 * MIB, 3 * MIB] {
        server.fault(
            "*",
            Fault::Cut {
                after,
                clean: false,
            },
            1,
        );
    }
    ends_whole(&server, folder.path(), &contents);
    let seen: Vec<_> = server
        .data_requests()
        .into_iter()
        .map(|seen| (seen.range, seen.if_range, seen.status))
        .collect();
    let first = || Some("\"first\"".to_owned());
    let expected = [
        (None, None, 200),
        (Some("bytes=2097152-".to_owned()), first(), 206),
        (Some("bytes=5242880-".to_owned()), first(), 206),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_weak_etag_is_never_sent_as_a_condition_of_a_range() {
    let (server, contents, folder) = one(4 * MIB);
    server.set_etag("model.safetensors", "W/\"weak\"");
    server.fault(
        "*",
        Fault::Cut {
            after: 2 * MIB,
            clean: false,
        },
        1,
    );
    ends_whole(&server, folder.path(), &contents);
    let seen = server.data_requests();
    assert_eq!(seen[1].range.as_deref(), Some("bytes=2097152-"));
    assert_eq!(seen[1].if_range, None);
}
