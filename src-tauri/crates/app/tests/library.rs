//! Promises about models on the disk and downloads, through the app as every face uses it, with the real work and a hub of the test's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scripted;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastar_api::{Condition, DownloadRequest, ErrorCode, Job, JobKind, JobState, ModelState};
use fastar_app::jobs::{Ended, Leftover, Order, Report, Steering, Workshop};
use fastar_app::{App, Options};
use fastar_testkit::hub::{Fault, HubServer};
use fastar_testkit::{Kind, Synthetic};
use scripted::{Script, loaded, wait_until};
use serde_json::Value;

const REPO: &str = "deepseek-ai/DeepSeek-V4-Flash-0731";
const FILE: &str = "DeepSeek-V4-Flash-0731.fst";

/// A hub with a small checkpoint under the name of the first model of the catalogue.
fn hub() -> HubServer {
    let source = tempfile::tempdir().unwrap();
    Synthetic::small(Kind::DSpark)
        .save(source.path(), &mut |_, _| {})
        .unwrap();
    let files: Vec<(String, Vec<u8>)> = std::fs::read_dir(source.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                std::fs::read(entry.path()).unwrap(),
            )
        })
        .collect();
    let files: Vec<_> = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.clone()))
        .collect();
    HubServer::start(REPO, "", &files)
}

/// The app with its real work.
struct Scene {
    hub: HubServer,
    data: tempfile::TempDir,
    app: Option<App>,
}

impl Scene {
    fn new() -> Self {
        let (hub, data) = (hub(), tempfile::tempdir().unwrap());
        let app = Script::new().app(data.path());
        let set = |key: &str, value: Value| app.setting_set(key, &value).unwrap();
        set("download_endpoint", hub.endpoint().into());
        // Until the size is known; see `begun`.
        set("download_bytes_per_second", 1_000_000.into());
        Self {
            hub,
            data,
            app: Some(app),
        }
    }

    fn app(&self) -> &App {
        self.app.as_ref().unwrap()
    }

    fn models(&self) -> PathBuf {
        self.data.path().join("models")
    }

    fn start(&self) -> Job {
        let request = DownloadRequest {
            entry: self.app().model_library().unwrap().catalogue[0].id.clone(),
            drafter: true,
        };
        self.app().download_start(&request).unwrap()
    }

    fn job(&self) -> Job {
        self.app().job_list().remove(0)
    }

    fn until(&self, state: JobState) -> Job {
        wait_until("the job is where it should be", || {
            let job = self.job();
            assert!(
                job.state == state || job.state != JobState::Failed,
                "{job:?}"
            );
            job.state == state
        });
        self.job()
    }

    fn set(&self, bytes_per_second: Option<u64>, resume_at_start: bool) {
        for (key, value) in [
            ("download_bytes_per_second", Value::from(bytes_per_second)),
            ("download_resume_at_start", resume_at_start.into()),
        ] {
            self.app().setting_set(key, &value).unwrap();
        }
    }

    /// Downloads until a tenth has arrived. The rest would take many times as long at this speed.
    fn begun(&self) -> Job {
        self.start();
        wait_until("its size is known", || self.job().total_bytes.is_some());
        self.set(self.job().total_bytes.map(|total| total / 30), false);
        wait_until("some of it has arrived", || {
            let job = self.job();
            assert!(!job.state.is_at_rest(), "{job:?}");
            job.total_bytes
                .is_some_and(|total| job.done_bytes * 10 >= total)
        });
        self.job()
    }

    /// Another start of the app on the same folder.
    fn again(&mut self) {
        self.app().shut_down();
        self.app = None;
        self.app = Some(Script::new().app(self.data.path()));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn nothing_is_asked_of_the_network_before_the_person_says_so() {
    let mut scene = Scene::new();
    scene.app().model_library().unwrap();
    scene.app().job_list();
    scene.app().setting_list();
    scene.again();
    let offered = scene.app().model_library().unwrap().catalogue.remove(0);
    assert!(offered.download_bytes > 0 && offered.peak_bytes >= offered.disk_bytes);
    scene.app().shut_down();
    assert_eq!(scene.hub.requests().len(), 0);
    assert!(!scene.models().exists());
}

#[test]
fn a_download_survives_the_end_of_the_app_and_goes_on_from_where_it_was() {
    let mut scene = Scene::new();
    let before = scene.begun();
    scene.again();
    let asked = scene.hub.requests().len();
    let job = scene.job();
    assert_eq!((job.state, &job.id), (JobState::Paused, &before.id));
    assert!(
        job.done_bytes >= before.done_bytes,
        "{} < {}",
        job.done_bytes,
        before.done_bytes
    );
    let unfinished = scene.app().model_library().unwrap().files.remove(0);
    assert_eq!(unfinished.file, FILE);
    assert_eq!(
        unfinished.condition,
        Condition::Incomplete {
            done_bytes: job.done_bytes,
            total_bytes: job.total_bytes,
            resumable: true
        }
    );
    // It cannot be used, and its name is free.
    assert_eq!(
        scene.app().model_use(FILE).unwrap_err().code,
        ErrorCode::NotFound
    );
    assert_eq!(
        scene.app().model_verify(FILE).unwrap_err().code,
        ErrorCode::NotFound
    );
    assert!(!scene.models().join(FILE).exists());
    assert_eq!(
        scene.hub.requests().len(),
        asked,
        "it asks nothing by itself"
    );

    scene.set(None, false);
    let sent = scene.hub.sent();
    scene.app().job_resume(&job.id).unwrap();
    let done = scene.until(JobState::Done);
    let total = done.total_bytes.unwrap();
    // What was there was not fetched again, but for a block of each of two files.
    let fetched = scene.hub.sent() - sent;
    assert!(fetched < total, "{fetched} of {total}");
    let whole = scene.app().model_library().unwrap().files.remove(0);
    assert_eq!(
        (whole.file.as_str(), whole.condition),
        (FILE, Condition::Whole)
    );
    assert_eq!(names(&scene.models()), [FILE]);
    scene.app().model_verify(FILE).unwrap();
    scene.until(JobState::Done);
}

#[test]
fn a_cancelled_download_asks_nothing_more_and_what_was_chosen_becomes_of_its_bytes() {
    for keep in [true, false] {
        let mut scene = Scene::new();
        let job = scene.begun();
        scene.app().job_cancel(&job.id, keep).unwrap();
        scene.until(JobState::Cancelled);
        let asked = scene.hub.requests().len();
        scene.again();
        assert_eq!(scene.job().state, JobState::Cancelled);
        let files = scene.app().model_library().unwrap().files;
        assert_eq!(files.len(), usize::from(keep));
        assert_eq!(names(&scene.models()).is_empty(), !keep);
        if keep {
            // It can be gone on with, or deleted with all it has.
            assert_eq!(scene.app().model_delete(FILE).unwrap(), files[0].disk_bytes);
            assert_eq!(names(&scene.models()), [""; 0]);
            assert_eq!(scene.app().job_list(), []);
        }
        scene.app().shut_down();
        assert_eq!(scene.hub.requests().len(), asked);
    }
}

#[test]
fn a_download_can_be_cancelled_before_the_hub_has_answered() {
    let scene = Scene::new();
    // Longer than the test may take: only cancelling ends it.
    scene
        .hub
        .fault("", Fault::Delay(Duration::from_secs(300)), u32::MAX);
    let job = scene.start();
    scene.until(JobState::Running);
    scene.app().job_cancel(&job.id, false).unwrap();
    scene.until(JobState::Cancelled);
    assert_eq!(names(&scene.models()), [""; 0]);
}

#[test]
fn a_download_that_was_at_work_goes_on_by_itself_only_where_that_was_chosen() {
    let mut scene = Scene::new();
    scene.begun();
    scene.set(Some(100_000), true);
    scene.again();
    scene.until(JobState::Running);
    // The limit counts at once.
    scene.set(None, true);
    scene.until(JobState::Done);
    assert_eq!(names(&scene.models()), [FILE]);
}

#[test]
fn a_model_in_use_is_not_deleted_whatever_way_leads_to_it() {
    let data = tempfile::tempdir().unwrap();
    let app = Script::new().app(data.path());
    let models = data.path().join("models");
    std::fs::create_dir(&models).unwrap();
    for name in ["good.fst", "good.fst.hc", "good-other.fst"] {
        std::fs::write(models.join(name), vec![1; 6000]).unwrap();
    }
    let way = |app: &App, path: &Path| {
        app.model_choose(path).unwrap();
        loaded(app);
        let error = app.model_delete("good.fst").unwrap_err();
        assert_eq!(error.code, ErrorCode::Busy);
        assert!(
            error.message.contains("in use") && error.hint.is_some(),
            "{error}"
        );
        let files = app.model_library().unwrap().files;
        let used: Vec<_> = files
            .iter()
            .map(|file| (file.file.as_str(), file.in_use))
            .collect();
        assert_eq!(used, [("good-other.fst", false), ("good.fst", true)]);
    };
    way(&app, &models.join("good.fst"));
    #[cfg(unix)]
    {
        let link = data.path().join("link");
        std::os::unix::fs::symlink(&models, &link).unwrap();
        way(&app, &link.join("good.fst"));
    }
    // The next start would load it: that is use too.
    drop(app);
    let app = Script::new().app(data.path());
    assert_eq!(
        app.model_delete("good.fst").unwrap_err().code,
        ErrorCode::Busy
    );
    app.model_use("good-other.fst").unwrap();
    let ModelState::Ready { model } = loaded(&app) else {
        panic!()
    };
    assert_eq!(model.name, "good-other");
    assert!(app.model_delete("good.fst").unwrap() >= 12_000);
    assert_eq!(names(&models), ["good-other.fst"]);
}

#[test]
fn a_model_that_did_not_load_is_not_in_use_and_can_be_deleted() {
    let data = tempfile::tempdir().unwrap();
    let app = Script::new().app(data.path());
    let models = data.path().join("models");
    std::fs::create_dir(&models).unwrap();
    for name in ["good.fst", "broken.fst"] {
        std::fs::write(models.join(name), vec![1; 6000]).unwrap();
    }
    let used = || -> Vec<bool> {
        let files = app.model_library().unwrap().files;
        files.iter().map(|file| file.in_use).collect()
    };
    app.model_choose(&models.join("good.fst")).unwrap();
    loaded(&app);
    app.model_choose(&models.join("broken.fst")).unwrap();
    assert!(matches!(loaded(&app), ModelState::Failed { .. }));
    assert_eq!(used(), [false, true]);
    assert!(app.model_delete("broken.fst").is_ok());
    // Nor with the demo in use before.
    std::fs::write(models.join("broken.fst"), vec![1; 6000]).unwrap();
    app.model_use_demo().unwrap();
    loaded(&app);
    app.model_choose(&models.join("broken.fst")).unwrap();
    assert!(matches!(loaded(&app), ModelState::Failed { .. }));
    assert_eq!(used(), [false, false]);
}

#[test]
fn the_chosen_folder_is_remembered_once_it_can_be_looked_into() {
    let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let app = Script::new().app(data.path());
    let folder = other.path().join("田中 'q\" $x 🙂");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("good.fst"), "x").unwrap();
    let shown = app.model_folder_choose(&folder).unwrap();
    assert_eq!(shown.folder, folder.display().to_string());
    // A file is a folder for nobody, root included.
    let error = app
        .model_folder_choose(&folder.join("good.fst"))
        .unwrap_err();
    assert!(error.message.contains("good.fst"), "{error}");
    drop(app);
    let app = Script::new().app(data.path());
    let library = app.model_library().unwrap();
    assert_eq!(
        (library.folder, library.files.len()),
        (folder.display().to_string(), 1)
    );
    app.model_use("good.fst").unwrap();
    assert!(matches!(loaded(&app), ModelState::Ready { .. }));
    assert_eq!(app.model_path("good.fst").unwrap(), folder.join("good.fst"));
}

#[test]
fn a_folder_given_for_this_run_counts_whatever_was_chosen_and_is_made_whole() {
    let data = tempfile::tempdir().unwrap();
    let app = App::open(Options {
        models_folder: Some("some models".into()),
        ..Script::new().options(data.path())
    })
    .unwrap();
    let here = std::env::current_dir().unwrap();
    assert_eq!(
        app.model_library().unwrap().folder,
        here.join("some models").display().to_string()
    );
    let error = app.model_folder_choose(data.path()).unwrap_err();
    assert_eq!(error.code, ErrorCode::BadRequest);
    assert!(error.message.contains("FASTAR_MODELS_DIR"), "{error}");
}

#[test]
fn what_is_there_or_not_in_the_catalogue_is_not_downloaded() {
    let data = tempfile::tempdir().unwrap();
    let app = Script::new().app(data.path());
    let models = data.path().join("models");
    std::fs::create_dir(&models).unwrap();
    std::fs::write(models.join(FILE), "mine").unwrap();
    let start = |entry: &str| {
        app.download_start(&DownloadRequest {
            entry: entry.into(),
            drafter: true,
        })
        .unwrap_err()
    };
    let first = app.model_library().unwrap().catalogue[0].id.clone();
    assert!(start(&first).message.contains(FILE));
    assert_eq!(start("no-such-entry").code, ErrorCode::NotFound);
    assert_eq!(
        app.download_resume("no-such.fst").unwrap_err().code,
        ErrorCode::NotFound
    );
    assert_eq!(app.job_list(), []);
    assert_eq!(std::fs::read(models.join(FILE)).unwrap(), b"mine");
}

#[test]
fn models_move_to_another_folder_unless_one_is_in_use_and_foreign_files_and_downloads_stay() {
    let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let app = Script::new().app(data.path());
    let models = data.path().join("models");
    std::fs::create_dir(&models).unwrap();
    for name in [
        "good.fst",
        "good.fst.hc",
        "second.fst",
        "notes.txt",
        "left.fst.partial",
    ] {
        std::fs::write(models.join(name), name).unwrap();
    }
    app.model_use("good.fst").unwrap();
    loaded(&app);
    let error = app.model_folder_move(other.path()).unwrap_err();
    assert_eq!(error.code, ErrorCode::Busy);
    assert_eq!(error.message, "good is in use.");
    // Nothing has changed.
    let folder = |app: &App| app.model_library().unwrap().folder;
    assert_eq!(folder(&app), models.display().to_string());
    assert!(app.job_list().is_empty());

    app.model_use_demo().unwrap();
    loaded(&app);
    app.model_folder_move(other.path()).unwrap();
    assert_eq!(folder(&app), other.path().display().to_string());
    wait_until("they have moved", || {
        let jobs = app.job_list();
        assert!(
            jobs.iter().all(|job| job.state != JobState::Failed),
            "{jobs:?}"
        );
        jobs.iter().all(|job| job.state == JobState::Done)
    });
    let kinds: Vec<_> = app.job_list().iter().map(|job| job.kind).collect();
    assert_eq!(kinds, [JobKind::Move; 2]);
    let sorted = |folder: &Path| {
        let mut names = names(folder);
        names.sort();
        names
    };
    assert_eq!(
        sorted(other.path()),
        ["good.fst", "good.fst.hc", "second.fst"]
    );
    assert_eq!(sorted(&models), ["left.fst.partial", "notes.txt"]);
    for name in names(other.path()) {
        assert_eq!(
            std::fs::read_to_string(other.path().join(&name)).unwrap(),
            name
        );
    }
    app.model_use("good.fst").unwrap();
    assert!(matches!(loaded(&app), ModelState::Ready { .. }));
}

#[cfg(unix)]
#[test]
fn a_linked_model_is_listed_with_the_size_of_what_it_leads_to_and_frees_only_the_link() {
    let (data, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let app = Script::new().app(data.path());
    let models = data.path().join("models");
    std::fs::create_dir(&models).unwrap();
    let real = elsewhere.path().join("real.fst");
    std::fs::write(&real, vec![1; 300_000]).unwrap();
    std::os::unix::fs::symlink(&real, models.join("good.fst")).unwrap();
    let file = app.model_library().unwrap().files.remove(0);
    assert_eq!(file.disk_bytes, 0);
    assert_eq!(file.linked_bytes, Some(300_000));
    assert_eq!(file.linked_to, Some(real.display().to_string()));
    assert_eq!(app.model_delete("good.fst").unwrap(), 0);
    assert!(real.is_file());
    std::fs::write(models.join("good.fst"), "x").unwrap();
    let file = app.model_library().unwrap().files.remove(0);
    assert_eq!((file.linked_bytes, file.linked_to), (None, None));
}

/// The real work, and a file that grows while it is read.
struct Growing {
    inner: fastar_app::install::Installer,
    file: PathBuf,
}

impl Workshop for Growing {
    fn work(
        &self,
        order: &Order,
        steering: &Steering,
        report: &mut dyn FnMut(Report),
    ) -> Result<Ended, fastar_api::ApiError> {
        let mut has_grown = false;
        self.inner.work(order, steering, &mut |said| {
            if said.phase == fastar_api::JobPhase::Verifying && !has_grown {
                has_grown = true;
                let mut file = std::fs::File::options()
                    .append(true)
                    .open(&self.file)
                    .unwrap();
                std::io::Write::write_all(&mut file, &[0; 4096]).unwrap();
            }
            report(said);
        })
    }

    fn leftover(&self, folder: &Path, file: &str) -> Option<Leftover> {
        self.inner.leftover(folder, file)
    }

    fn discard(&self, folder: &Path, file: &str) -> Result<(), fastar_api::ApiError> {
        self.inner.discard(folder, file)
    }
}

#[test]
fn a_model_that_grows_while_it_is_checked_is_never_called_whole() {
    let data = tempfile::tempdir().unwrap();
    let models = data.path().join("models");
    std::fs::create_dir(&models).unwrap();
    let file = models.join("good.fst");
    let whole = fastar_testkit::tiny(&fastar_testkit::Tiny::default()).convert();
    let settings = fastar_hub::Settings::default();
    let app = App::open(Options {
        workshop: Some(Arc::new(Growing {
            inner: fastar_app::install::Installer::new(move || settings.clone()),
            file: file.clone(),
        })),
        ..Script::new().options(data.path())
    })
    .unwrap();
    loaded(&app);
    for begin in [App::model_verify, App::model_repair] {
        std::fs::copy(whole.path(), &file).unwrap();
        let id = begin(&app, "good.fst").unwrap().id;
        let job = || app.job_list().into_iter().find(|job| job.id == id).unwrap();
        wait_until("the work has ended", || job().state.is_at_rest());
        let job = job();
        assert_eq!(job.state, JobState::Failed, "{job:?}");
        let message = job.error.unwrap().message;
        assert!(
            message.contains("was changed while it was checked"),
            "{message}"
        );
    }
}
