//! What the next start finds: after a kill in every state, after an orderly end, with other files on the disk, and with a full one.

use super::*;

/// Brings a download into a state. The work that is still under way stays as it is.
type Bring = fn(&Bench) -> String;

const QUEUED: Bring = |bench| {
    bench.downloading("other.fst");
    bench.download("a.fst")
};
const RUNNING: Bring = |bench| bench.downloading("a.fst");
const PAUSING: Bring = |bench| {
    bench.shop.deaf.store(true, Ordering::SeqCst);
    let id = bench.downloading("a.fst");
    bench.jobs.pause(&id).unwrap();
    id
};
const GOING_ON: Bring = |bench| {
    let id = PAUSING(bench);
    bench.jobs.resume(&id).unwrap();
    id
};
const CANCELLING: Bring = |bench| {
    bench.shop.deaf.store(true, Ordering::SeqCst);
    let id = bench.downloading("a.fst");
    bench.jobs.cancel(&id, true).unwrap();
    id
};
const PAUSED: Bring = |bench| {
    let id = bench.downloading("a.fst");
    bench.jobs.pause(&id).unwrap();
    bench.until_state(&id, JobState::Paused);
    id
};
const FAILED: Bring = |bench| {
    let id = bench.downloading("a.fst");
    bench.shop.say("a.fst", Step::Fail("No network."));
    bench.until_state(&id, JobState::Failed);
    id
};
const DONE: Bring = |bench| {
    let id = bench.downloading("a.fst");
    bench.shop.say("a.fst", Step::Done(Some("It is there.")));
    bench.until_state(&id, JobState::Done);
    id
};
const CANCELLED: Bring = |bench| {
    let id = bench.downloading("a.fst");
    bench.jobs.cancel(&id, true).unwrap();
    bench.until_state(&id, JobState::Cancelled);
    id
};

#[test]
fn after_a_kill_in_any_state_a_download_is_where_the_person_left_it() {
    // The state before, at the next start, and at a next start that goes on by itself.
    let cases: [(Bring, JobState, JobState); 9] = [
        (QUEUED, JobState::Paused, JobState::Running),
        (RUNNING, JobState::Paused, JobState::Running),
        (PAUSING, JobState::Paused, JobState::Paused),
        (GOING_ON, JobState::Paused, JobState::Running),
        (CANCELLING, JobState::Cancelled, JobState::Cancelled),
        (PAUSED, JobState::Paused, JobState::Paused),
        (FAILED, JobState::Failed, JobState::Failed),
        (DONE, JobState::Done, JobState::Done),
        (CANCELLED, JobState::Cancelled, JobState::Cancelled),
    ];
    for (number, (bring, asks, resumes)) in cases.into_iter().enumerate() {
        for (resume, expected) in [(false, asks), (true, resumes)] {
            let bench = Bench::new();
            let id = bring(&bench);
            // States at rest are reached before their row is written, by a moment.
            let rest = bench.job(&id).state.is_at_rest();
            wait_until("the row is written", || {
                !rest
                    || bench
                        .rows()
                        .iter()
                        .any(|(_, state)| *state == bench.job(&id).state)
            });
            let (jobs, shop) = bench.after_a_kill(resume);
            // The one before it ends at once.
            shop.say("other.fst", Step::Done(None));
            let job = until_of(&jobs, &id, |job| job.state == expected);
            assert_eq!(
                job.error.is_some(),
                expected == JobState::Failed,
                "case {number}"
            );
            assert_eq!(
                job.outcome.is_some(),
                expected == JobState::Done,
                "case {number}"
            );
            if matches!(expected, JobState::Paused | JobState::Cancelled) {
                assert_eq!(job.phase, None, "case {number}");
            }
            assert_eq!(shop.discarded(), [""; 0]);
            jobs.shut_down();
            assert_eq!(
                shop.worked().contains(&"a.fst".to_owned()),
                expected == JobState::Running,
                "case {number}"
            );
        }
    }
}

#[test]
fn a_check_that_a_kill_ended_is_paused_and_does_not_begin_by_itself() {
    for kind in [JobKind::Verify, JobKind::Repair] {
        let bench = Bench::new();
        let id = bench.jobs.start(bench.order(kind, "a.fst")).unwrap().id;
        bench.until_state(&id, JobState::Running);
        let (jobs, shop) = bench.after_a_kill(true);
        assert_eq!(found(&jobs, &id).state, JobState::Paused);
        assert_eq!(shop.worked(), [""; 0]);
        jobs.resume(&id).unwrap();
        until_of(&jobs, &id, |job| job.state == JobState::Running);
        jobs.shut_down();
    }
}

#[test]
fn removing_that_a_kill_cut_off_is_done_at_the_next_start() {
    let bench = Bench::new();
    bench.shop.deaf.store(true, Ordering::SeqCst);
    let id = bench.downloading("a.fst");
    bench.jobs.cancel(&id, false).unwrap();
    for resume in [false, true] {
        let (jobs, shop) = bench.after_a_kill(resume);
        if !resume {
            wait_until("it is removed", || shop.discarded() == ["a.fst"]);
            assert!(lock(&shop.left).is_empty());
        }
        jobs.shut_down();
        assert_eq!(found(&jobs, &id).state, JobState::Cancelled);
        // And once is enough.
        assert_eq!(shop.discarded().is_empty(), resume);
        assert_eq!(shop.worked(), [""; 0]);
    }
}

#[test]
fn an_orderly_end_stops_the_work_and_the_next_start_decides() {
    for (resume, expected) in [(false, JobState::Paused), (true, JobState::Running)] {
        let bench = Bench::new();
        let id = bench.downloading("a.fst");
        let waiting = bench.download("b.fst");
        let check = bench
            .jobs
            .start(bench.order(JobKind::Verify, "c.fst"))
            .unwrap()
            .id;
        bench.until_state(&check, JobState::Running);
        at_once(|| bench.jobs.shut_down());
        at_once(|| bench.jobs.shut_down());
        // Nothing begins any more.
        bench.jobs.resume(&waiting).unwrap();
        assert_eq!(bench.shop.worked().len(), 2);
        let (jobs, shop) = bench.after_a_kill(resume);
        until_of(&jobs, &id, |job| job.state == expected);
        shop.say("a.fst", Step::Done(None));
        until_of(&jobs, &waiting, |job| job.state == expected);
        assert_eq!(found(&jobs, &check).state, JobState::Paused);
    }
}

#[test]
fn how_far_a_download_is_the_disk_says_and_not_the_row() {
    let bench = Bench::new();
    let [more, less, nothing] = ["more.fst", "less.fst", "nothing.fst"].map(|file| {
        let id = bench.downloading(file);
        bench.jobs.pause(&id).unwrap();
        bench.until_state(&id, JobState::Paused);
        id
    });
    bench.shop.leave(bench.models(), "more.fst", 70);
    bench.shop.leave(bench.models(), "less.fst", 30);
    lock(&bench.shop.left).remove("nothing.fst");
    let (jobs, _) = bench.after_a_kill(false);
    let done = |id| {
        let job = found(&jobs, id);
        (job.done_bytes, job.total_bytes)
    };
    assert_eq!(done(&more), (70, Some(100)));
    assert_eq!(done(&less), (30, Some(100)));
    assert_eq!(done(&nothing), (0, Some(100)));
    // The same when it is resumed without a start in between.
    assert_eq!(bench.jobs.resume(&nothing).unwrap().done_bytes, 0);
    assert_eq!(bench.jobs.resume(&more).unwrap().done_bytes, 70);
}

#[test]
fn a_download_whose_folder_is_not_there_keeps_its_numbers_and_begins_nothing_elsewhere() {
    let bench = Bench::new();
    let disk = bench.models().join("other disk");
    std::fs::create_dir(&disk).unwrap();
    bench.shop.leave(&disk, "a.fst", 40);
    let id = bench
        .jobs
        .start(order(&disk, JobKind::Download, "a.fst"))
        .unwrap()
        .id;
    bench.until_state(&id, JobState::Running);
    bench.jobs.pause(&id).unwrap();
    bench.until_state(&id, JobState::Paused);
    std::fs::remove_dir(&disk).unwrap();
    lock(&bench.shop.left).clear();

    assert_eq!(bench.jobs.resume(&id).unwrap().done_bytes, 40);
    let job = bench.until_state(&id, JobState::Failed);
    let error = job.error.unwrap();
    assert!(error.message.contains(disk.to_str().unwrap()), "{error}");
    assert!(error.hint.unwrap().contains("Connect the disk"));
    assert_eq!((job.done_bytes, bench.shop.worked().len()), (40, 1));

    std::fs::create_dir(&disk).unwrap();
    bench.shop.leave(&disk, "a.fst", 40);
    bench.jobs.resume(&id).unwrap();
    bench.until_state(&id, JobState::Running);
    wait_until("it is worked on", || bench.shop.worked().len() == 2);
}

#[test]
fn an_order_that_cannot_be_saved_is_refused_and_what_it_would_replace_stays() {
    let bench = Bench::new();
    let before = bench.downloading("a.fst");
    bench.jobs.pause(&before).unwrap();
    bench.until_state(&before, JobState::Paused);
    wait_until("the row says so", || {
        bench.rows() == [(before.clone(), JobState::Paused)]
    });

    bench.chats.pretend_the_disk_is_full(true);
    let mut order = bench.order(JobKind::Download, "a.fst");
    order.title = "long ".repeat(100_000);
    let error = ApiError::from(bench.jobs.start(order).unwrap_err());
    assert_eq!(error.code, ErrorCode::Storage);
    assert!(error.message.contains("disk is full"), "{error}");
    let ids: Vec<_> = bench.jobs.list().into_iter().map(|job| job.id).collect();
    assert_eq!(ids, std::slice::from_ref(&before));

    bench.chats.pretend_the_disk_is_full(false);
    bench.jobs.resume(&before).unwrap();
    wait_until("it is worked on", || {
        bench.shop.worked() == ["a.fst", "a.fst"]
    });
    wait_until("the row says so", || {
        bench.rows() == [(before.clone(), JobState::Running)]
    });
}

#[test]
fn what_cannot_be_saved_happens_all_the_same_and_is_saved_when_it_can_be() {
    let bench = Bench::new();
    let id = bench.downloading("a.fst");
    let check = bench
        .jobs
        .start(bench.order(JobKind::Verify, "b.fst"))
        .unwrap()
        .id;
    bench.until_state(&check, JobState::Running);
    wait_until("both rows are there", || bench.rows().len() == 2);
    bench.writable(false);
    bench.jobs.pause(&id).unwrap();
    bench.until_state(&id, JobState::Paused);
    bench.jobs.resume(&id).unwrap();
    bench.until_state(&id, JobState::Running);
    bench.shop.say("a.fst", Step::Done(None));
    bench.until_state(&id, JobState::Done);
    // Of a cancelled job it is said that the next start will not know, because that is what cancelling promises.
    let error = ApiError::from(bench.jobs.cancel(&check, true).unwrap_err());
    assert_eq!(error.code, ErrorCode::Storage);
    bench.until_state(&check, JobState::Cancelled);
    assert_eq!(
        bench.rows(),
        [
            (check.clone(), JobState::Running),
            (id.clone(), JobState::Running)
        ]
    );
    // The app starts all the same.
    let (jobs, _) = bench.after_a_kill(false);
    assert_eq!(found(&jobs, &id).state, JobState::Paused);
    jobs.shut_down();

    // Once there is room again nothing else need happen.
    bench.writable(true);
    wait_until("the rows say so", || {
        bench.rows()
            == [
                (check.clone(), JobState::Cancelled),
                (id.clone(), JobState::Done),
            ]
    });
}

#[test]
fn fifty_ended_jobs_are_remembered_and_all_that_can_go_on() {
    let bench = Bench::new();
    let paused = PAUSED(&bench);
    let mut ended = Vec::new();
    for n in 0..55 {
        let id = bench.download(&format!("{n}.fst"));
        bench.jobs.cancel(&id, true).unwrap();
        bench.until_state(&id, JobState::Cancelled);
        ended.insert(0, id);
    }
    let (jobs, _) = bench.after_a_kill(false);
    let ids: Vec<_> = jobs.list().into_iter().map(|job| job.id).collect();
    assert_eq!(ids[..50], ended[..50]);
    assert_eq!(ids[50..], [paused]);
    assert_eq!(bench.rows().len(), 51);
}

#[test]
fn jobs_that_the_first_version_saved_are_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    rusqlite::Connection::open(folder.path().join("chats.db"))
        .unwrap()
        .execute_batch(include_str!("../../../tests/schemas/2.sql"))
        .unwrap();
    let chats = Arc::new(Chats::open(folder.path(), 0).unwrap().0);
    let shop = Arc::new(Scripted::default());
    shop.leave(Path::new("/models"), "DeepSeek-V4-Flash-0731.fst", 41);
    let jobs = opened(&chats, &shop, false);
    wait_until("what was given up is removed", || {
        shop.discarded() == ["given-up.fst"]
    });
    jobs.shut_down();
    let list: Vec<_> = jobs
        .list()
        .into_iter()
        .map(|job| (job.id, job.kind, job.state, job.done_bytes, job.created_at))
        .collect();
    let expected = [
        ("j1", JobKind::Download, JobState::Paused, 41, 5000),
        ("j2", JobKind::Download, JobState::Failed, 7, 4000),
        ("j3", JobKind::Verify, JobState::Done, 9, 3000),
        ("j4", JobKind::Download, JobState::Cancelled, 0, 2000),
    ];
    assert_eq!(
        list,
        expected.map(|(id, kind, state, done, at)| (id.to_owned(), kind, state, done, at))
    );
    let failed = found(&jobs, "j2").error.unwrap();
    assert_eq!(
        (failed.code, failed.hint.as_deref()),
        (ErrorCode::NoSpace, Some("Make room."))
    );
    assert_eq!(
        found(&jobs, "j3").outcome.as_deref(),
        Some("All parts are as they were made.")
    );
    assert_eq!(shop.worked(), [""; 0]);
}

#[test]
fn rows_of_a_newer_version_and_rows_with_a_name_that_leads_elsewhere_are_left_alone() {
    let bench = Bench::new();
    let id = PAUSED(&bench);
    wait_until("the row says so", || {
        bench.rows() == [(id.clone(), JobState::Paused)]
    });
    bench
        .chats
        .write(|transaction| {
            transaction.execute_batch(
                "INSERT INTO jobs SELECT 'escapes', state, created_at, replace(work, 'a.fst', '../a.fst'), replace(job, id, 'escapes') FROM jobs;
                 INSERT INTO jobs SELECT 'newer', state, created_at, replace(work, '\"download\"', '\"upload\"'), job FROM jobs WHERE id <> 'escapes';
                 INSERT INTO jobs VALUES ('nonsense', 'x', 0, 'x', 'x');",
            )
        })
        .unwrap();
    let (jobs, _) = bench.after_a_kill(true);
    let ids: Vec<_> = jobs.list().into_iter().map(|job| job.id).collect();
    assert_eq!(ids, [id]);
    jobs.shut_down();
    let left: i64 = bench
        .chats
        .read(|connection| connection.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)))
        .unwrap();
    assert_eq!(left, 4);
}
