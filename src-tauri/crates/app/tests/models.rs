//! Promises about the model in use: the one that works is never lost, and a broken file never silently.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scripted;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use fastar_api::{ErrorCode, MessageStatus, ModelState};
use fastar_app::App;
use scripted::{Script, Step, hear, loaded, wait_until};

fn ready_name(state: ModelState) -> String {
    match state {
        ModelState::Ready { model } => model.name,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_app_uses_the_demo_and_a_chosen_file_is_remembered_once_it_works() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    let ModelState::Ready { model } = app.model_state() else {
        panic!()
    };
    assert!(model.is_demo && model.path.is_none());
    assert_eq!(
        (model.layers, model.experts, model.context_size),
        (3, 4, 4096)
    );

    let shown = app
        .model_choose(Path::new("/models/good-flash.fst"))
        .unwrap();
    assert_eq!(
        shown,
        ModelState::Loading {
            name: "good-flash".into()
        }
    );
    let ModelState::Ready { model } = loaded(&app) else {
        panic!()
    };
    assert_eq!(model.name, "good-flash");
    assert_eq!(model.path.as_deref(), Some("/models/good-flash.fst"));
    assert!(!model.is_demo);
    drop(app);

    let app = script.app(folder.path());
    assert_eq!(ready_name(app.model_state()), "good-flash");
    app.model_use_demo().unwrap();
    loaded(&app);
    drop(app);
    assert_eq!(
        ready_name(script.app(folder.path()).model_state()),
        "Demo model"
    );
}

#[test]
fn a_file_that_does_not_load_leaves_the_one_that_works_in_use_and_is_not_remembered() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    app.model_choose(Path::new("/models/good.fst")).unwrap();
    loaded(&app);
    for file in ["/models/broken.fst", "/models/panic.fst"] {
        app.model_choose(Path::new(file)).unwrap();
        let ModelState::Failed {
            name,
            error,
            in_use,
        } = loaded(&app)
        else {
            panic!()
        };
        assert_eq!(format!("/models/{name}.fst"), file);
        let code = if name == "broken" {
            ErrorCode::NoModel
        } else {
            ErrorCode::Internal
        };
        assert_eq!(error.code, code);
        assert_eq!(in_use.unwrap().name, "good");
    }
    let mut listener = app.message_send(None, "hi").unwrap();
    script.step(Step::End);
    assert_eq!(hear(&mut listener).answer().model.as_deref(), Some("good"));
    drop(app);
    assert_eq!(ready_name(script.app(folder.path()).model_state()), "good");
}

#[test]
fn a_remembered_file_that_broke_is_told_the_demo_steps_in_and_the_file_stays_remembered() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let settings = folder.path().join("settings.json");
    std::fs::write(&settings, r#"{"model":"/models/gone.fst"}"#).unwrap();
    let app = script.app(folder.path());
    let ModelState::Failed {
        name,
        error,
        in_use,
    } = app.model_state()
    else {
        panic!()
    };
    assert_eq!(name, "gone");
    assert!(error.message.contains("gone.fst is damaged"), "{error}");
    assert!(in_use.unwrap().is_demo);
    let mut listener = app.message_send(None, "hi").unwrap();
    script.step(Step::End);
    assert_eq!(hear(&mut listener).answer().status, MessageStatus::Done);
    assert!(
        std::fs::read_to_string(&settings)
            .unwrap()
            .contains("/models/gone.fst")
    );
}

#[test]
fn a_model_that_ended_the_process_while_it_was_loaded_is_not_loaded_by_itself_again() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let settings = folder.path().join("settings.json");
    std::fs::write(settings, r#"{"model":"/models/good.fst"}"#).unwrap();
    let note = folder.path().join("doing.json");
    // What stands there while the file is being loaded is what a crash leaves behind.
    let during = Arc::new(Mutex::new(String::new()));
    let mut options = script.options(folder.path());
    let (load, seen, place) = (
        Arc::clone(&options.loader),
        Arc::clone(&during),
        note.clone(),
    );
    options.loader = Arc::new(move |source, options| {
        *seen.lock().unwrap() = std::fs::read_to_string(&place).unwrap();
        load(source, options)
    });
    let app = App::open(options).unwrap();
    assert_eq!(ready_name(loaded(&app)), "good");
    assert!(app.app_info().notices.is_empty());
    drop(app);
    assert!(!note.exists());

    std::fs::write(&note, &*during.lock().unwrap()).unwrap();
    let app = script.app(folder.path());
    assert_eq!(ready_name(app.model_state()), "Demo model");
    let [notice] = &app.app_info().notices[..] else {
        panic!("{:?}", app.app_info());
    };
    assert!(
        notice.starts_with("FaStar ended unexpectedly while loading good. It is not loaded by itself until that has worked again"),
        "{notice}"
    );
    drop(app);
    // Said once, and still so after a clean end; the person's word counts.
    let app = script.app(folder.path());
    assert!(app.app_info().notices.is_empty());
    assert_eq!(ready_name(app.model_state()), "Demo model");
    app.model_choose(Path::new("/models/good.fst")).unwrap();
    assert_eq!(ready_name(loaded(&app)), "good");
    drop(app);
    let app = script.app(folder.path());
    assert_eq!(ready_name(app.model_state()), "good");
}

#[test]
fn a_model_given_for_one_run_is_not_remembered() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let mut options = script.options(folder.path());
    options.model = Some("/models/good-once.fst".into());
    let app = App::open(options).unwrap();
    assert_eq!(ready_name(loaded(&app)), "good-once");
    drop(app);
    assert_eq!(
        ready_name(script.app(folder.path()).model_state()),
        "Demo model"
    );
}

#[test]
fn without_any_model_sending_is_refused_before_anything_is_written() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let mut options = script.options(folder.path());
    options.loader =
        std::sync::Arc::new(|_, _| Err(fastar_engine::Error::Config("nothing loads here.".into())));
    let app = App::open(options).unwrap();
    let ModelState::Failed { in_use, .. } = loaded(&app) else {
        panic!()
    };
    assert_eq!(in_use, None);
    assert_eq!(
        app.message_send(None, "hi").err().unwrap().code,
        ErrorCode::NoModel
    );
    assert_eq!(app.chat_list().unwrap(), []);
}

#[test]
fn a_message_sent_while_a_model_loads_waits_for_it_and_can_be_stopped() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    app.model_choose(Path::new("/models/slow-a.fst")).unwrap();
    let mut stopped = app.message_send(None, "stop me").unwrap();
    let mut waits = app.message_send(None, "wait").unwrap();
    app.generation_stop(stopped.answer_id()).unwrap();
    assert_eq!(hear(&mut stopped).answer().status, MessageStatus::Stopped);
    assert!(
        matches!(app.model_state(), ModelState::Loading { .. }),
        "stopped before the load ended"
    );
    script.step(Step::End);
    let answer = hear(&mut waits).answer().clone();
    assert_eq!(answer.model.as_deref(), Some("slow-a"));
    assert_eq!(script.asked()[0].model, "slow-a");
}

#[test]
fn the_last_wish_wins() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    app.model_choose(Path::new("/models/slow-a.fst")).unwrap();
    app.model_choose(Path::new("/models/broken.fst")).unwrap();
    app.model_choose(Path::new("/models/good-last.fst"))
        .unwrap();
    assert_eq!(ready_name(loaded(&app)), "good-last");
    drop(app);
    assert_eq!(
        ready_name(script.app(folder.path()).model_state()),
        "good-last"
    );
}

#[test]
fn an_idle_timeline_of_a_replaced_model_is_let_go() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "hi").unwrap();
    script.step(Step::End);
    hear(&mut listener);
    assert_eq!(script.alive.load(Ordering::SeqCst), 1);
    app.model_choose(Path::new("/models/good.fst")).unwrap();
    loaded(&app);
    wait_until("the timeline is gone", || {
        script.alive.load(Ordering::SeqCst) == 0
    });
}
