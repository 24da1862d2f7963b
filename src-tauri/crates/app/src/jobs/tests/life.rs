//! From an order to its end, and all a person can ask on the way.

use super::*;

#[test]
fn an_order_is_worked_on_and_done_and_says_so_all_the_way() {
    let bench = Bench::new();
    let id = bench.download("a.fst");
    let job = bench.until_state(&id, JobState::Running);
    assert_eq!(
        (job.phase, job.total_bytes),
        (Some(JobPhase::Resolving), None)
    );
    for (phase, done) in [
        (JobPhase::Downloading, 10),
        (JobPhase::Stalled { seconds: 40 }, 10),
        (JobPhase::Converting, 90),
    ] {
        bench
            .shop
            .say("a.fst", Step::Report(phase.clone(), done, Some(100)));
        let job = bench.until(&id, |job| job.phase.as_ref() == Some(&phase));
        assert_eq!((job.done_bytes, job.total_bytes), (done, Some(100)));
    }
    bench.shop.say("a.fst", Step::Done(Some("It is there.")));
    let job = bench.until_state(&id, JobState::Done);
    assert_eq!(
        (job.done_bytes, job.total_bytes, job.phase),
        (100, Some(100), None)
    );
    assert_eq!(job.outcome.as_deref(), Some("It is there."));
    assert_eq!(
        (job.bytes_per_second, job.seconds_left, job.error),
        (None, None, None)
    );
    wait_until("the row says so", || {
        bench.rows() == [(id.clone(), JobState::Done)]
    });
    // Nothing that can be asked of it changes it.
    bench.jobs.pause(&id).unwrap();
    bench.jobs.resume(&id).unwrap();
    bench.jobs.cancel(&id, false).unwrap();
    assert_eq!(bench.job(&id).state, JobState::Done);
    assert_eq!(bench.shop.discarded(), [""; 0]);
    bench.jobs.dismiss(&id).unwrap();
    assert_eq!((bench.jobs.list(), bench.rows()), (vec![], vec![]));
}

#[test]
fn one_of_each_kind_is_at_work_the_others_wait_and_the_newest_is_first() {
    let bench = Bench::new();
    let ids = ["a.fst", "b.fst", "c.fst"].map(|file| bench.download(file));
    let check = bench
        .jobs
        .start(bench.order(JobKind::Verify, "d.fst"))
        .unwrap()
        .id;
    bench.until_state(&ids[0], JobState::Running);
    let checked = bench.until_state(&check, JobState::Running);
    assert_eq!(checked.phase, Some(JobPhase::Verifying));
    let files: Vec<_> = bench
        .jobs
        .list()
        .into_iter()
        .map(|job| (job.file, job.state))
        .collect();
    let expected = [
        ("d.fst", JobState::Running),
        ("c.fst", JobState::Queued),
        ("b.fst", JobState::Queued),
        ("a.fst", JobState::Running),
    ];
    assert_eq!(
        files,
        expected.map(|(file, state)| (file.to_owned(), state))
    );
    for file in ["a.fst", "b.fst", "c.fst"] {
        bench.shop.say(file, Step::Done(None));
    }
    bench.until_state(&ids[2], JobState::Done);
    let mut worked = bench.shop.worked();
    worked.retain(|file| file != "d.fst");
    assert_eq!(worked, ["a.fst", "b.fst", "c.fst"]);
}

#[test]
fn a_job_that_waits_can_be_paused_resumed_and_cancelled_without_having_begun() {
    let bench = Bench::new();
    let first = bench.downloading("first.fst");
    let [kept, dropped, back] = ["kept.fst", "dropped.fst", "back.fst"].map(|f| bench.download(f));
    assert_eq!(bench.jobs.pause(&back).unwrap().state, JobState::Paused);
    bench.jobs.cancel(&kept, true).unwrap();
    bench.jobs.cancel(&dropped, false).unwrap();
    for id in [&kept, &dropped] {
        assert_eq!(bench.job(id).state, JobState::Cancelled);
    }
    assert_eq!(bench.shop.discarded(), ["dropped.fst"]);
    bench.shop.say("first.fst", Step::Done(None));
    bench.until_state(&first, JobState::Done);
    assert_eq!(bench.jobs.resume(&back).unwrap().kind, JobKind::Download);
    wait_until("it is worked on", || {
        bench.shop.worked() == ["first.fst", "back.fst"]
    });
}

#[test]
fn a_paused_download_says_how_far_it_is_and_goes_on_from_there() {
    let bench = Bench::new();
    let id = bench.downloading("a.fst");
    bench.shop.deaf.store(true, Ordering::SeqCst);
    let job = bench.jobs.pause(&id).unwrap();
    assert_eq!(
        (job.state, job.phase),
        (JobState::Running, Some(JobPhase::Stopping))
    );
    // What the work says while it ends does not hide that it ends.
    bench
        .shop
        .say("a.fst", Step::Report(JobPhase::Downloading, 50, Some(100)));
    let job = bench.until(&id, |job| job.done_bytes == 50);
    assert_eq!(job.phase, Some(JobPhase::Stopping));
    bench.shop.deaf.store(false, Ordering::SeqCst);
    let job = bench.until_state(&id, JobState::Paused);
    assert_eq!(
        (job.phase, job.done_bytes, job.total_bytes),
        (None, 50, Some(100))
    );

    bench.shop.leave(bench.models(), "a.fst", 55);
    assert_eq!(bench.jobs.resume(&id).unwrap().done_bytes, 55);
    bench.until_state(&id, JobState::Running);
    wait_until("it is worked on", || bench.shop.worked().len() == 2);
    let worked = lock(&bench.shop.worked).clone();
    assert_eq!(worked[0], worked[1]);
}

#[test]
fn the_last_wish_counts_while_the_work_ends_but_cancelled_stays_cancelled() {
    let bench = Bench::new();
    bench.shop.deaf.store(true, Ordering::SeqCst);
    let on = bench.downloading("on.fst");
    bench.jobs.pause(&on).unwrap();
    bench.jobs.resume(&on).unwrap();
    bench.shop.deaf.store(false, Ordering::SeqCst);
    wait_until("it has begun again", || {
        bench.shop.worked() == ["on.fst", "on.fst"]
    });
    bench.until_state(&on, JobState::Running);

    bench.shop.deaf.store(true, Ordering::SeqCst);
    bench.jobs.cancel(&on, true).unwrap();
    bench.jobs.pause(&on).unwrap();
    bench.jobs.resume(&on).unwrap();
    bench.jobs.cancel(&on, false).unwrap();
    bench.shop.deaf.store(false, Ordering::SeqCst);
    bench.until_state(&on, JobState::Cancelled);
    bench.jobs.resume(&on).unwrap();
    assert_eq!(bench.job(&on).state, JobState::Cancelled);
    assert_eq!(bench.shop.worked().len(), 2);
    assert_eq!(bench.shop.discarded(), [""; 0]);
}

#[test]
fn cancelling_keeps_or_removes_what_is_on_the_disk_as_the_person_chose() {
    for keep in [true, false] {
        let bench = Bench::new();
        let running = bench.downloading("running.fst");
        bench.jobs.cancel(&running, keep).unwrap();
        bench.until_state(&running, JobState::Cancelled);
        let paused = bench.downloading("paused.fst");
        bench.jobs.pause(&paused).unwrap();
        bench.until_state(&paused, JobState::Paused);
        bench.jobs.cancel(&paused, keep).unwrap();
        let failed = bench.downloading("failed.fst");
        bench.shop.say("failed.fst", Step::Fail("No network."));
        bench.until_state(&failed, JobState::Failed);
        bench.jobs.cancel(&failed, keep).unwrap();
        for (id, file) in [
            (running, "running.fst"),
            (paused, "paused.fst"),
            (failed, "failed.fst"),
        ] {
            let job = bench.job(&id);
            assert_eq!(
                (job.state, job.error, job.outcome),
                (JobState::Cancelled, None, None)
            );
            assert_eq!(lock(&bench.shop.left).contains_key(file), keep, "{file}");
            assert_eq!(job.done_bytes, if keep { 40 } else { 0 }, "{file}");
        }
        // There is nothing to remove of a check.
        let check = bench
            .jobs
            .start(bench.order(JobKind::Verify, "check.fst"))
            .unwrap()
            .id;
        bench.until_state(&check, JobState::Running);
        bench.jobs.cancel(&check, keep).unwrap();
        bench.until_state(&check, JobState::Cancelled);
        assert!(!bench.shop.discarded().contains(&"check.fst".to_owned()));
    }
}

#[test]
fn work_that_comes_to_its_end_after_all_is_done_whatever_was_asked_meanwhile() {
    let bench = Bench::new();
    bench.shop.deaf.store(true, Ordering::SeqCst);
    let paused = bench.downloading("paused.fst");
    bench.jobs.pause(&paused).unwrap();
    bench.shop.say("paused.fst", Step::Done(None));
    bench.until_state(&paused, JobState::Done);
    let cancelled = bench.downloading("cancelled.fst");
    bench.jobs.cancel(&cancelled, false).unwrap();
    bench.shop.say("cancelled.fst", Step::Done(None));
    bench.until_state(&cancelled, JobState::Done);
    assert_eq!(bench.shop.discarded(), [""; 0]);
}

#[test]
fn a_failure_is_told_and_resuming_tries_again() {
    let bench = Bench::new();
    let id = bench.downloading("a.fst");
    bench
        .shop
        .say("a.fst", Step::Fail("The hub does not answer."));
    let job = bench.until_state(&id, JobState::Failed);
    let error = job.error.unwrap();
    assert_eq!(
        (error.code, error.message.as_str()),
        (ErrorCode::Hub, "The hub does not answer.")
    );
    assert_eq!((job.done_bytes, job.phase), (40, None));
    assert_eq!(bench.jobs.resume(&id).unwrap().error, None);
    bench.until_state(&id, JobState::Running);
    bench.shop.say("a.fst", Step::Done(None));
    assert_eq!(bench.until_state(&id, JobState::Done).error, None);
}

#[test]
fn a_bug_in_the_work_fails_its_job_and_the_next_one_is_worked_on() {
    let bench = Bench::new();
    let [bad, good] = ["bad.fst", "good.fst"].map(|file| bench.download(file));
    bench.shop.say("bad.fst", Step::Panic);
    bench.shop.say("good.fst", Step::Done(None));
    bench.until_state(&good, JobState::Done);
    let error = bench.job(&bad).error.unwrap();
    assert_eq!(
        (bench.job(&bad).state, error.code),
        (JobState::Failed, ErrorCode::Internal)
    );
    assert!(error.message.contains("jobs/tests/mod.rs:"), "{error}");
}

#[test]
fn what_cannot_be_removed_is_said_and_the_next_job_is_worked_on() {
    for bug in [false, true] {
        let bench = Bench::new();
        bench.shop.refuses_discard.store(true, Ordering::SeqCst);
        bench.shop.panics_at_discard.store(bug, Ordering::SeqCst);
        let id = bench.downloading("a.fst");
        bench.jobs.cancel(&id, false).unwrap();
        let outcome = bench.until_state(&id, JobState::Cancelled).outcome.unwrap();
        let reason = if bug {
            "mistake of its own"
        } else {
            "No permission."
        };
        assert!(
            outcome.contains("could not be removed") && outcome.contains(reason),
            "{outcome}"
        );
        let waiting = bench.downloading("b.fst");
        bench.jobs.pause(&waiting).unwrap();
        bench.until_state(&waiting, JobState::Paused);
        let error = ApiError::from(bench.jobs.cancel(&waiting, false).unwrap_err());
        assert!(error.message.contains(reason), "{error}");
        assert_eq!(bench.job(&waiting).state, JobState::Cancelled);
        // The file is not held any longer.
        bench.downloading("b.fst");
    }
}

#[test]
fn there_is_one_order_at_a_time_for_a_file_and_jobs_at_rest_give_way_to_it() {
    let bench = Bench::new();
    let first = bench.downloading("a.fst");
    for kind in [JobKind::Download, JobKind::Verify, JobKind::Repair] {
        let error = ApiError::from(bench.jobs.start(bench.order(kind, "a.fst")).unwrap_err());
        assert_eq!(error.code, ErrorCode::Busy);
        assert!(error.message.contains("The model a.fst"), "{error}");
    }
    let waiting = bench.download("b.fst");
    assert!(
        bench
            .jobs
            .start(bench.order(JobKind::Verify, "b.fst"))
            .is_err()
    );
    // The same name in another folder is another file.
    let other = bench.folder.path().join("other");
    bench
        .jobs
        .start(order(&other, JobKind::Download, "a.fst"))
        .unwrap();

    bench.jobs.pause(&first).unwrap();
    bench.until_state(&first, JobState::Paused);
    let second = bench
        .jobs
        .start(bench.order(JobKind::Download, "a.fst"))
        .unwrap();
    assert_eq!((second.done_bytes, second.total_bytes), (40, Some(100)));
    let ids: Vec<_> = bench.jobs.list().into_iter().map(|job| job.id).collect();
    assert_eq!((&ids[0], ids.len()), (&second.id, 3));
    assert!(ids.contains(&waiting) && !ids.contains(&first));
    assert!(!bench.rows().iter().any(|(id, _)| *id == first));
}

#[test]
fn a_speed_limit_counts_at_once_and_for_later_work() {
    let bench = Bench::new();
    bench.downloading("a.fst");
    let limit_of = |file: &str| lock(&bench.shop.steering).get(file).copied();
    assert_eq!(limit_of("a.fst"), Some(None));
    bench.jobs.set_limit(Some(1000));
    wait_until("the work knows", || limit_of("a.fst") == Some(Some(1000)));
    bench.shop.say("a.fst", Step::Done(None));
    bench.downloading("b.fst");
    assert_eq!(limit_of("b.fst"), Some(Some(1000)));
    bench.jobs.set_limit(None);
    wait_until("the work knows", || limit_of("b.fst") == Some(None));
}

#[test]
fn jobs_that_are_not_there_and_jobs_at_work_are_refused_with_a_sentence() {
    let bench = Bench::new();
    let id = bench.downloading("a.fst");
    let none = "no-such-job";
    for error in [
        bench.jobs.pause(none).unwrap_err(),
        bench.jobs.resume(none).unwrap_err(),
        bench.jobs.cancel(none, false).unwrap_err(),
        bench.jobs.dismiss(none).unwrap_err(),
    ] {
        assert_eq!(ApiError::from(error).code, ErrorCode::NotFound);
    }
    let error = ApiError::from(bench.jobs.dismiss(&id).unwrap_err());
    assert_eq!(error.code, ErrorCode::Busy);
    assert!(error.hint.is_some());
}

#[cfg(unix)]
#[test]
fn a_folder_whose_name_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let bench = Bench::new();
    let folder = bench.models().join(std::ffi::OsStr::from_bytes(b"\xff"));
    let error = bench
        .jobs
        .start(order(&folder, JobKind::Download, "a.fst"))
        .unwrap_err();
    assert_eq!(ApiError::from(error).code, ErrorCode::BadRequest);
    assert_eq!((bench.jobs.list(), bench.rows()), (vec![], vec![]));
}
