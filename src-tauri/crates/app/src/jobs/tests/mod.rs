//! Jobs with scripted work, so that every moment can be reached.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod kills;
mod life;
mod races;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use fastar_api::{ApiError, ErrorCode, JobPhase};

use super::*;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
const MOMENT: std::time::Duration = std::time::Duration::from_millis(1);

pub(super) enum Step {
    Report(JobPhase, u64, Option<u64>),
    Done(Option<&'static str>),
    Fail(&'static str),
    Panic,
}

/// Does what a test says, file by file.
#[derive(Default)]
pub(super) struct Scripted {
    steps: Mutex<HashMap<String, VecDeque<Step>>>,
    left: Mutex<HashMap<String, Leftover>>,
    worked: Mutex<Vec<Order>>,
    steering: Mutex<HashMap<String, Option<u64>>>,
    discarded: Mutex<Vec<String>>,
    /// Work does not look whether it shall stop.
    deaf: AtomicBool,
    /// Looking at the disk and removing from it does not come to an end.
    slow_disk: AtomicBool,
    waits_for_disk: AtomicBool,
    refuses_discard: AtomicBool,
    panics_at_discard: AtomicBool,
}

impl Scripted {
    fn say(&self, file: &str, step: Step) {
        let mut steps = lock(&self.steps);
        steps.entry(file.into()).or_default().push_back(step);
    }

    fn leave(&self, folder: &Path, file: &str, done_bytes: u64) {
        let left = Leftover {
            order: order(folder, JobKind::Download, file),
            done_bytes,
            total_bytes: Some(100),
        };
        lock(&self.left).insert(file.into(), left);
    }

    fn worked(&self) -> Vec<String> {
        lock(&self.worked)
            .iter()
            .map(|order| order.file.clone())
            .collect()
    }

    fn discarded(&self) -> Vec<String> {
        lock(&self.discarded).clone()
    }

    fn wait_for_disk(&self) {
        let begun = Instant::now();
        while self.slow_disk.load(Ordering::SeqCst) {
            assert!(
                begun.elapsed() < 2 * PATIENCE,
                "the test has forgotten the disk"
            );
            self.waits_for_disk.store(true, Ordering::SeqCst);
            std::thread::sleep(MOMENT);
        }
    }
}

impl Workshop for Scripted {
    fn work(
        &self,
        order: &Order,
        steering: &Steering,
        report: &mut dyn FnMut(Report),
    ) -> std::result::Result<Ended, ApiError> {
        lock(&self.worked).push(order.clone());
        loop {
            lock(&self.steering).insert(order.file.clone(), steering.limit());
            if steering.is_stopped() && !self.deaf.load(Ordering::SeqCst) {
                return Ok(Ended::Stopped);
            }
            let step = lock(&self.steps)
                .get_mut(&order.file)
                .and_then(VecDeque::pop_front);
            match step {
                Some(Step::Report(phase, done_bytes, total_bytes)) => report(Report {
                    phase,
                    done_bytes,
                    total_bytes,
                }),
                Some(Step::Done(outcome)) => return Ok(Ended::Done(outcome.map(str::to_owned))),
                Some(Step::Fail(message)) => {
                    return Err(ApiError {
                        code: ErrorCode::Hub,
                        message: message.into(),
                        hint: None,
                        details: None,
                    });
                }
                Some(Step::Panic) => panic!("a bug in the work"),
                None => std::thread::sleep(MOMENT),
            }
        }
    }

    fn leftover(&self, _: &Path, file: &str) -> Option<Leftover> {
        self.wait_for_disk();
        lock(&self.left).get(file).cloned()
    }

    fn discard(&self, _: &Path, file: &str) -> std::result::Result<(), ApiError> {
        self.wait_for_disk();
        if self.panics_at_discard.load(Ordering::SeqCst) {
            panic!("a bug in removing");
        }
        if self.refuses_discard.load(Ordering::SeqCst) {
            return Err(ApiError {
                code: ErrorCode::Storage,
                message: "No permission.".into(),
                hint: None,
                details: None,
            });
        }
        lock(&self.left).remove(file);
        lock(&self.discarded).push(file.into());
        Ok(())
    }
}

pub(super) fn order(folder: &Path, kind: JobKind, file: &str) -> Order {
    Order {
        kind,
        folder: folder.to_owned(),
        file: file.into(),
        title: format!("The model {file}"),
        repository: "a/b".into(),
        revision: "main".into(),
        drafter: true,
    }
}

/// Jobs on a data folder of their own.
pub(super) struct Bench {
    jobs: Jobs,
    shop: Arc<Scripted>,
    chats: Arc<Chats>,
    folder: tempfile::TempDir,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The jobs wait for their work to end.
        self.shop.deaf.store(false, Ordering::SeqCst);
        self.shop.slow_disk.store(false, Ordering::SeqCst);
    }
}

impl Bench {
    fn new() -> Self {
        crate::error::install_panic_hook();
        let folder = tempfile::tempdir().unwrap();
        let chats = Arc::new(Chats::open(folder.path(), 0).unwrap().0);
        let shop = Arc::new(Scripted::default());
        let jobs = opened(&chats, &shop, false);
        Self {
            jobs,
            shop,
            chats,
            folder,
        }
    }

    fn models(&self) -> &Path {
        self.folder.path()
    }

    fn order(&self, kind: JobKind, file: &str) -> Order {
        order(self.models(), kind, file)
    }

    fn download(&self, file: &str) -> String {
        let order = self.order(JobKind::Download, file);
        self.jobs.start(order).unwrap().id
    }

    /// A download that is at work and has 40 of 100 bytes.
    fn downloading(&self, file: &str) -> String {
        let id = self.download(file);
        self.shop.leave(self.models(), file, 40);
        self.shop
            .say(file, Step::Report(JobPhase::Downloading, 40, Some(100)));
        self.until(&id, |job| {
            job.done_bytes == 40 && job.phase == Some(JobPhase::Downloading)
        });
        id
    }

    fn job(&self, id: &str) -> Job {
        found(&self.jobs, id)
    }

    fn until(&self, id: &str, condition: impl Fn(&Job) -> bool) -> Job {
        until_of(&self.jobs, id, condition)
    }

    fn until_state(&self, id: &str, state: JobState) -> Job {
        self.until(id, |job| job.state == state)
    }

    /// What is in the database now.
    fn rows(&self) -> Vec<(String, JobState)> {
        rows_of(&self.chats)
    }

    /// What the next start finds after a kill at this moment: the rows as they are, and another app on them.
    fn after_a_kill(&self, resume: bool) -> (Jobs, Arc<Scripted>) {
        let shop = Arc::new(Scripted::default());
        lock(&shop.left).clone_from(&lock(&self.shop.left));
        (opened(&self.chats, &shop, resume), shop)
    }

    /// Nothing can be written any more, or all can again.
    fn writable(&self, writable: bool) {
        self.chats
            .read(|connection| connection.pragma_update(None, "query_only", !writable))
            .unwrap();
    }
}

pub(super) fn opened(chats: &Arc<Chats>, shop: &Arc<Scripted>, resume: bool) -> Jobs {
    let workshop: Arc<dyn Workshop> = Arc::<Scripted>::clone(shop);
    // Its folder may be gone: what is being done is noted where that is possible.
    let (sentinel, _) = Sentinel::begin(tempfile::tempdir().unwrap().path());
    Jobs::open(Arc::clone(chats), workshop, sentinel, None, resume).unwrap()
}

pub(super) fn rows_of(chats: &Arc<Chats>) -> Vec<(String, JobState)> {
    let rows = Rows::new(Arc::clone(chats)).all().unwrap();
    rows.into_iter()
        .map(|row| (row.job.id, row.job.state))
        .collect()
}

pub(super) fn found(jobs: &Jobs, id: &str) -> Job {
    let all = jobs.list();
    all.into_iter()
        .find(|job| job.id == id)
        .expect("the job is in the list")
}

pub(super) fn until_of(jobs: &Jobs, id: &str, condition: impl Fn(&Job) -> bool) -> Job {
    let mut job = found(jobs, id);
    wait_until("the job is as it should be", || {
        job = found(jobs, id);
        condition(&job)
    });
    job
}

pub(super) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(MOMENT);
    }
}

/// What a call returns, which must not wait for anything that the test holds up.
pub(super) fn at_once<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        scope.spawn(move || sender.send(call()));
        match receiver.recv_timeout(PATIENCE) {
            Ok(value) => value,
            // The scope would wait for ever.
            Err(_) => {
                eprintln!("a call waits for what the test holds up");
                std::process::abort()
            }
        }
    })
}
