//! Several at once: people, threads, and a slow disk.

use std::sync::Barrier;

use super::*;

#[test]
fn of_orders_for_one_file_that_come_together_one_is_taken() {
    for _ in 0..20 {
        let bench = Bench::new();
        let barrier = Barrier::new(4);
        let taken: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        bench
                            .jobs
                            .start(bench.order(JobKind::Download, "a.fst"))
                            .is_ok()
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
        assert_eq!((bench.jobs.list().len(), bench.rows().len()), (1, 1));
    }
}

#[test]
fn nothing_begins_in_what_is_being_removed() {
    let bench = Bench::new();
    // Once while the work has just ended, once at rest.
    for at_rest in [false, true] {
        let id = bench.downloading("a.fst");
        if at_rest {
            bench.jobs.pause(&id).unwrap();
            bench.until_state(&id, JobState::Paused);
        }
        std::thread::scope(|scope| {
            bench.shop.waits_for_disk.store(false, Ordering::SeqCst);
            bench.shop.slow_disk.store(true, Ordering::SeqCst);
            let cancel = scope.spawn(|| bench.jobs.cancel(&id, false).map(drop));
            wait_until("it is being removed", || {
                bench.shop.waits_for_disk.load(Ordering::SeqCst)
            });
            let refused = at_once(|| bench.jobs.start(bench.order(JobKind::Download, "a.fst")));
            assert!(matches!(refused, Err(Error::ModelBusy { .. })));
            assert!(bench.jobs.hold(bench.models(), "a.fst", "a").is_err());
            bench.shop.slow_disk.store(false, Ordering::SeqCst);
            cancel.join().unwrap().unwrap();
        });
        bench.until_state(&id, JobState::Cancelled);
        let job = bench
            .jobs
            .start(bench.order(JobKind::Download, "a.fst"))
            .unwrap();
        assert_eq!(job.done_bytes, 0);
        bench.jobs.cancel(&job.id, true).unwrap();
        bench.until_state(&job.id, JobState::Cancelled);
    }
}

#[test]
fn a_file_that_is_held_is_left_alone_until_it_is_free() {
    let bench = Bench::new();
    let id = bench.downloading("a.fst");
    assert!(bench.jobs.hold(bench.models(), "a.fst", "a").is_err());
    bench.jobs.pause(&id).unwrap();
    bench.until_state(&id, JobState::Paused);
    let hold = bench.jobs.hold(bench.models(), "a.fst", "a").unwrap();
    for refused in [
        bench.jobs.hold(bench.models(), "a.fst", "a").map(drop),
        bench
            .jobs
            .start(bench.order(JobKind::Verify, "a.fst"))
            .map(drop),
        bench.jobs.resume(&id).map(drop),
        bench.jobs.cancel(&id, false).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::ModelBusy { .. })));
    }
    assert_eq!(bench.job(&id).state, JobState::Paused);
    drop(hold);
    bench.jobs.resume(&id).unwrap();
    bench.until_state(&id, JobState::Running);
}

#[test]
fn the_list_waits_for_no_disk_and_no_work() {
    let bench = Bench::new();
    bench.shop.deaf.store(true, Ordering::SeqCst);
    let running = bench.downloading("running.fst");
    bench.jobs.pause(&running).unwrap();
    let waiting = bench.download("waiting.fst");
    let slow = |call: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            bench.shop.waits_for_disk.store(false, Ordering::SeqCst);
            bench.shop.slow_disk.store(true, Ordering::SeqCst);
            scope.spawn(call);
            wait_until("the disk is waited for", || {
                bench.shop.waits_for_disk.load(Ordering::SeqCst)
            });
            let files = at_once(|| bench.jobs.list().len());
            assert!(files >= 2);
            at_once(|| bench.jobs.set_limit(Some(7)));
            at_once(|| bench.jobs.pause(&running).unwrap());
            bench.shop.slow_disk.store(false, Ordering::SeqCst);
        });
    };
    slow(&|| drop(bench.download("new.fst")));
    bench.jobs.pause(&waiting).unwrap();
    slow(&|| drop(bench.jobs.resume(&waiting).unwrap()));
    slow(&|| drop(bench.jobs.cancel(&waiting, false).unwrap()));
    // The database is busy with something else.
    let (begun, wait_begun) = channel();
    let (end, wait_end) = channel::<()>();
    std::thread::scope(|scope| {
        let chats = &bench.chats;
        scope.spawn(move || {
            chats.read(|_| {
                begun.send(()).unwrap();
                let _ = wait_end.recv();
                Ok(())
            })
        });
        wait_begun.recv().unwrap();
        assert_eq!(at_once(|| bench.jobs.list().len()), 3);
        drop(end);
    });
    bench.shop.deaf.store(false, Ordering::SeqCst);
}

#[test]
fn a_job_is_dismissed_or_resumed_and_never_half_of_both() {
    let bench = Bench::new();
    for _ in 0..60 {
        let id = bench.download("a.fst");
        bench.jobs.pause(&id).unwrap();
        bench.until_state(&id, JobState::Paused);
        let barrier = Barrier::new(2);
        let dismissed = std::thread::scope(|scope| {
            let dismiss = scope.spawn(|| {
                barrier.wait();
                bench.jobs.dismiss(&id).is_ok()
            });
            barrier.wait();
            let resumed = bench.jobs.resume(&id).is_ok();
            let dismissed = dismiss.join().unwrap();
            assert!(resumed || dismissed);
            dismissed
        });
        assert_eq!(bench.jobs.list().is_empty(), dismissed);
        assert_eq!(bench.rows().is_empty(), dismissed);
        if !dismissed {
            bench.jobs.cancel(&id, true).unwrap();
            bench.until_state(&id, JobState::Cancelled);
            bench.jobs.dismiss(&id).unwrap();
        }
    }
}

#[test]
fn after_any_race_the_rows_say_what_the_list_says() {
    let bench = Bench::new();
    let ids: Vec<String> = (0..4)
        .map(|n| bench.download(&format!("{n}.fst")))
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (bench, ids) = (&bench, &ids);
            scope.spawn(move || {
                // Numbers that look random and are the same in every run.
                let mut number = 2_463_534_242_u32 ^ (thread * 7919);
                for _ in 0..150 {
                    number ^= number << 13;
                    number ^= number >> 17;
                    number ^= number << 5;
                    let id = &ids[(number >> 8) as usize % ids.len()];
                    // Refusals are as good as changes here.
                    let _ = match number % 32 {
                        0 => bench.jobs.dismiss(id),
                        1 => bench.jobs.cancel(id, true).map(drop),
                        n if n % 2 == 0 => bench.jobs.pause(id).map(drop),
                        _ => bench.jobs.resume(id).map(drop),
                    };
                }
            });
        }
    });
    for job in bench.jobs.list() {
        let _ = bench.jobs.pause(&job.id);
    }
    wait_until("all are at rest", || {
        bench.jobs.list().iter().all(|job| job.state.is_at_rest())
    });
    bench.jobs.shut_down();
    let mut listed: Vec<_> = bench
        .jobs
        .list()
        .into_iter()
        .map(|job| (job.id, job.state))
        .collect();
    let mut rows = bench.rows();
    listed.sort_by(|a, b| a.0.cmp(&b.0));
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(rows, listed);
}
