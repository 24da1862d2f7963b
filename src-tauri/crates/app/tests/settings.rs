//! Promises about settings: one list, one way to change them, and what a reload makes of them with a real model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scripted;

use std::path::Path;

use fastar_api::{ErrorCode, Face, ModelState, Setting, SettingScope};
use fastar_app::{App, Options};
use scripted::{Script, Step, hear, hear_until, loaded, wait_until};
use serde_json::{Value, json};

fn one(list: &[Setting], key: &str) -> Setting {
    let found = list.iter().find(|setting| setting.key == key);
    found.unwrap_or_else(|| panic!("no {key}")).clone()
}

fn get(app: &App, key: &str) -> Setting {
    one(&app.setting_list(), key)
}

fn file(folder: &Path) -> Value {
    let text = std::fs::read(folder.join("settings.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn a_mirror_whose_bytes_others_can_change_is_told() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    let told = |address: &str| {
        app.setting_set("download_endpoint", &json!(address))
            .unwrap();
        get(&app, "download_endpoint").problem
    };
    assert!(told("http://mirror.example/hf").is_some_and(|told| told.contains("over http")));
    assert_eq!(told("https://mirror.example/hf"), None);
    assert_eq!(told("http://127.0.0.1:8080"), None);
    assert_eq!(told(""), None);
}

#[test]
fn the_file_holds_what_differs_from_the_defaults_and_a_wrong_value_changes_nothing() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    assert!(app.setting_list().iter().all(|setting| !setting.is_set));
    app.setting_set("temperature", &json!(1.2)).unwrap();
    app.setting_set("theme", &json!("dark")).unwrap();
    app.setting_set("text_size", &json!(120)).unwrap();
    app.setting_set("text_size", &json!(100)).unwrap();
    assert_eq!(
        file(folder.path()),
        json!({"temperature": 1.2, "theme": "dark"})
    );
    for (key, value, what) in [
        ("temperature", json!(11), "must be a number from 0 to 10"),
        ("temperature", json!("1"), "must be a number from 0 to 10"),
        ("theme", json!("blue"), "must be system, light or dark"),
        ("threads", json!(0), "must be a whole number from 1 to 512"),
        (
            "model",
            json!("/etc/passwd"),
            "is chosen in a dialog of the desktop app",
        ),
        (
            "models_folder",
            json!("/etc"),
            "is chosen in a dialog of the desktop app",
        ),
        ("download_token", json!(7), "must be a text"),
    ] {
        let error = app.setting_set(key, &value).unwrap_err();
        assert_eq!(error.code, ErrorCode::BadRequest);
        assert_eq!(error.message, format!("The setting `{key}` {what}."));
    }
    let error = app.setting_set("colour", &json!(1)).unwrap_err();
    assert_eq!(error.message, "There is no setting `colour`.");
    let list = app.setting_reset("temperature").unwrap();
    assert_eq!(one(&list, "temperature").value, json!(0.6));
    assert_eq!(file(folder.path()), json!({"theme": "dark"}));
    drop(app);

    // Another start; and what cannot be used is told with its setting.
    std::fs::write(
        folder.path().join("settings.json"),
        r#"{"theme":"blue","threads":3}"#,
    )
    .unwrap();
    let app = script.app(folder.path());
    let theme = get(&app, "theme");
    assert_eq!((theme.value, theme.is_set), (json!("system"), false));
    let problem = theme.problem.unwrap();
    assert!(problem.contains("is \"blue\" and must be system, light or dark"));
    assert_eq!(get(&app, "threads").value, json!(3));
}

#[test]
fn sampling_counts_from_the_next_message_on_and_what_was_given_for_a_run_comes_before() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    app.setting_set("temperature", &json!(0.25)).unwrap();
    app.setting_set("seed", &json!(7)).unwrap();
    let mut listener = app.message_send(None, "hi").unwrap();
    script.step(Step::End);
    hear(&mut listener);
    assert_eq!(script.asked()[0].temperature, 0.25);
    assert_eq!(script.asked()[0].seed, 7);
    assert_eq!(get(&app, "temperature").given, json!(null));
    drop(app);

    let mut options = script.options(folder.path());
    options.sampling = fastar_app::GivenSampling {
        temperature: Some(0.7),
        top_p: Some(0.3),
        seed: Some(5),
        max_tokens: Some(9),
    };
    options.cache_bytes = Some(8_000_000_000);
    options.models_folder = Some(folder.path().join("big"));
    let app = App::open(options).unwrap();
    loaded(&app);
    let temperature = get(&app, "temperature");
    assert_eq!(
        (temperature.given, temperature.value),
        (json!(0.7), json!(0.25))
    );
    for (key, expected) in [
        ("top_p", json!(0.3)),
        ("seed", json!(5)),
        ("max_tokens", json!(9)),
    ] {
        assert_eq!(get(&app, key).given, expected, "{key}");
    }
    let cache = get(&app, "expert_cache_bytes");
    assert_eq!(
        (cache.given, cache.value),
        (json!(8_000_000_000u64), json!(null))
    );
    let given = get(&app, "models_folder").given;
    assert_eq!(given, json!(folder.path().join("big")));
    assert_eq!(get(&app, "model").given, json!(null));
    let mut listener = app.message_send(None, "hi").unwrap();
    script.step(Step::End);
    hear(&mut listener);
    assert_eq!(script.asked()[1].temperature, 0.7);
    assert_eq!(script.asked()[1].seed, 5);
}

#[test]
fn an_answer_is_only_stopped_for_a_reload_when_the_person_says_so() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    let mut listener = app.message_send(None, "hi").unwrap();
    script.say("one");
    hear_until(&mut listener, "one");
    let refused = app.model_reload(false).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Busy);
    assert_eq!(refused.message, "An answer is being written.");
    script.say(" two");
    hear_until_rest(&mut listener, " two");

    let mut waits = app.message_send(None, "and then?").unwrap();
    app.model_reload(true).unwrap();
    assert!(matches!(loaded(&app), ModelState::Ready { .. }));
    // The other one was kept in its queue, and is written now.
    script.step(Step::Text("three".into()));
    script.step(Step::End);
    assert_eq!(hear(&mut waits).text(), "three");
    let chats = app.chat_list().unwrap();
    let texts: Vec<String> = chats
        .iter()
        .map(|chat| app.chat_open(&chat.id).unwrap())
        .map(|chat| chat.messages.last().unwrap().text.clone())
        .collect();
    assert!(texts.contains(&"one two".to_owned()), "{texts:?}");
}

fn hear_until_rest(listener: &mut fastar_app::Listener, text: &str) {
    let mut heard = String::new();
    while heard != text {
        match scripted::next(listener) {
            Some(fastar_api::GenerationEvent::Text { text }) => heard.push_str(&text),
            other => panic!("{other:?} after {heard:?}"),
        }
    }
}

/// The real engine on the demo as a file, whose experts are paged.
fn paged(folder: &Path) -> App {
    let model = folder.join("demo.fst");
    std::fs::write(&model, fastar_app::demo::bytes()).unwrap();
    let options = Options {
        face: Face::Web,
        data_folder: Some(folder.join("data")),
        model: Some(model),
        sampling: fastar_app::GivenSampling {
            temperature: Some(0.0),
            ..fastar_app::GivenSampling::default()
        },
        loader: std::sync::Arc::new(fastar_app::inference::load),
        told: None,
        cache_bytes: None,
        models_folder: None,
        workshop: None,
        notice: None,
    };
    let app = App::open(options).unwrap();
    assert!(matches!(loaded(&app), ModelState::Ready { .. }));
    app
}

#[test]
fn a_cache_of_another_size_counts_after_a_reload_and_the_plan_said_so_before() {
    let folder = tempfile::tempdir().unwrap();
    let app = paged(folder.path());
    let all = app.cache_plan(None).unwrap();
    assert_eq!(all.experts, 6 * 16);
    assert_eq!((all.slots, all.note), (96, None));
    let expert = all.all_bytes / 96;
    // Nothing was computed yet, so nothing is promised.
    assert_eq!(all.tokens_per_second, None);
    let wish = 20 * expert + 1;
    let plan = app.cache_plan(Some(wish)).unwrap();
    assert_eq!((plan.slots, plan.cache_bytes), (20, 20 * expert));

    let before = get(&app, "expert_cache_bytes");
    assert_eq!(before.scope, SettingScope::ReloadModel);
    assert_eq!((before.value, before.pending), (Value::Null, false));
    assert_eq!(before.in_use, json!(all.all_bytes));
    app.setting_set("expert_cache_bytes", &json!(wish)).unwrap();
    app.setting_set("threads", &json!(1)).unwrap();
    app.setting_set("context_tokens", &json!(512)).unwrap();
    let pending = |app: &App| -> Vec<String> {
        let list = app.setting_list().into_iter();
        list.filter(|s| s.pending).map(|s| s.key).collect()
    };
    assert_eq!(
        pending(&app),
        ["expert_cache_bytes", "threads", "context_tokens"]
    );
    // Back and forth is no change.
    app.setting_set("read_ahead", &json!(false)).unwrap();
    app.setting_set("read_ahead", &json!(true)).unwrap();
    assert_eq!(pending(&app).len(), 3);
    assert_eq!(
        app.model_memory().unwrap().cache_bytes,
        all.all_bytes,
        "not before the reload"
    );

    app.model_reload(false).unwrap();
    let ModelState::Ready { model } = loaded(&app) else {
        panic!()
    };
    assert_eq!((model.threads, model.context_size), (1, 512));
    assert_eq!(get(&app, "threads").problem, None);
    assert_eq!(pending(&app), [""; 0]);
    assert_eq!(
        get(&app, "expert_cache_bytes").in_use,
        json!(20 * expert),
        "what is really used, beside the wish"
    );
    let memory = app.model_memory().unwrap();
    assert_eq!((memory.slots, memory.cache_bytes), (20, 20 * expert));
    // More threads than any computer has for this: told once they are in use, and of no other number.
    app.setting_set("threads", &json!(512)).unwrap();
    assert_eq!(get(&app, "threads").problem, None);
    app.model_reload(false).unwrap();
    assert!(matches!(loaded(&app), ModelState::Ready { .. }));
    let told = get(&app, "threads").problem.unwrap();
    assert!(
        told.starts_with("512 threads were asked for and this program "),
        "{told}"
    );
    app.setting_set("threads", &json!(1)).unwrap();
    assert_eq!(get(&app, "threads").problem, None);
    app.model_reload(false).unwrap();
    assert!(matches!(loaded(&app), ModelState::Ready { .. }));

    // Once it has written something, there is an estimate: more slots are never slower.
    for text in ["Hello!", "Tell me a story about a fox."] {
        hear(&mut app.message_send(None, text).unwrap());
    }
    let speed = |slots: u64| {
        let plan = app.cache_plan(Some(slots * expert)).unwrap();
        assert_eq!(plan.slots, slots);
        plan.tokens_per_second.unwrap()
    };
    assert!(speed(96) >= speed(40) && speed(40) >= speed(20));
    let all = app.cache_plan(None).unwrap();
    assert_eq!(all.hit_rate, Some(1.0));
    // Too small is raised, and said.
    let least = app.cache_plan(Some(1)).unwrap();
    assert_eq!(least.cache_bytes, least.fewest_bytes);
    assert!(least.note.unwrap().contains("was raised to"));
}

#[test]
fn the_monitor_shows_what_the_engine_did_and_a_recording_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let app = paged(folder.path());
    let before = app.monitor();
    let activity = before.activity.unwrap();
    assert_eq!((activity.prompt_tokens, activity.answer_tokens), (0, 0));
    assert_eq!(before.experts.len(), 6);
    assert!(before.experts.iter().all(|layer| layer.len() == 16));
    assert_eq!(before.recording, None);
    assert_eq!(app.trace_stop().unwrap(), None);

    let begun = app.trace_start().unwrap();
    assert!(Path::new(&begun.path).starts_with(folder.path().join("data/traces")));
    let heard = hear(&mut app.message_send(None, "Hello!").unwrap());
    let stats = heard.answer().stats.clone().unwrap();
    let now = app.monitor();
    let activity = now.activity.unwrap();
    // The last token of an answer is not computed: nothing follows from it.
    let computed = u64::from(stats.prompt_tokens + stats.answer_tokens) - 1;
    assert_eq!(activity.prompt_tokens + activity.answer_tokens, computed);
    assert_eq!(activity.layers_ms.len(), 6);
    assert!(activity.layers_ms.iter().all(|ms| *ms > 0.0));
    // All layers of all tokens, and what is beside them.
    let layers: f64 = activity.layers_ms.iter().sum();
    assert!(activity.answer_ms > 0.0 && activity.prompt_ms > 0.0);
    assert!(activity.answer_ms + activity.prompt_ms > layers);
    let memory = app.model_memory().unwrap().paging.unwrap();
    assert_eq!(memory.tokens, computed);
    let resident = now.experts.concat().chars().filter(|c| *c != '.').count();
    assert_eq!(resident as u64, memory.filled);
    assert_eq!(now.load, before.load);

    // A byte of kind and a byte for each of 6 layers and 4 experts, after 32 of the header.
    let ended = app.trace_stop().unwrap().unwrap();
    let bytes = std::fs::read(&ended.path).unwrap();
    assert_eq!((bytes.len() as u64, ended.whole), (ended.bytes, true));
    assert_eq!(&bytes[..8], b"FSTROUTE");
    let taken = u64::from(u32::from_le_bytes(bytes[20..24].try_into().unwrap()));
    assert_eq!(ended.bytes, 32 + computed * (1 + 6 * taken));
    assert_eq!(app.monitor().recording, None);
}

#[test]
fn a_reload_that_fails_brings_the_model_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let app = paged(folder.path());
    std::fs::write(folder.path().join("demo.fst"), "no model").unwrap();
    app.model_reload(false).unwrap();
    wait_until("the reload has failed", || {
        matches!(app.model_state(), ModelState::Failed { .. })
    });
    let ModelState::Failed { in_use, .. } = app.model_state() else {
        panic!()
    };
    // The file itself is gone, so the demo steps in.
    assert!(in_use.unwrap().is_demo);
    hear(&mut app.message_send(None, "Hello!").unwrap());
}

#[test]
fn another_model_is_read_when_the_memory_of_the_one_before_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let app = paged(folder.path());
    let first = app.model_memory().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::copy(path("demo.fst"), path("other.fst")).unwrap();
    // What is no model does not cost the one that works: its numbers are still those of before.
    hear(&mut app.message_send(None, "Hello!").unwrap());
    let computed = |app: &App| app.model_memory().unwrap().paging.unwrap().tokens;
    let before = computed(&app);
    std::fs::write(path("bad.fst"), "no model").unwrap();
    app.model_choose(Path::new(&path("bad.fst"))).unwrap();
    wait_until("the choice has failed", || {
        matches!(app.model_state(), ModelState::Failed { .. })
    });
    assert_eq!(computed(&app), before);

    // One that opens and cannot be used brings back the one before, read anew.
    let mut damaged = std::fs::read(path("other.fst")).unwrap();
    let container = fastar_fst::Container::open(Path::new(&path("other.fst"))).unwrap();
    let place = container
        .dense_places()
        .find(|place| place.name == "norm.weight")
        .unwrap();
    damaged[place.offset as usize] ^= 64;
    std::fs::write(path("damaged.fst"), &damaged).unwrap();
    app.model_choose(Path::new(&path("damaged.fst"))).unwrap();
    wait_until("the choice has failed", || match app.model_state() {
        ModelState::Failed { error, .. } => error.message.contains("norm.weight"),
        _ => false,
    });
    let ModelState::Failed { in_use, .. } = app.model_state() else {
        panic!()
    };
    assert_eq!(in_use.unwrap().path, Some(path("demo.fst")));
    assert_eq!(computed(&app), 0);
    assert_eq!(app.model_memory().unwrap().slots, first.slots);

    app.model_choose(Path::new(&path("other.fst"))).unwrap();
    let ModelState::Ready { model } = loaded(&app) else {
        panic!()
    };
    assert_eq!(model.path, Some(path("other.fst")));
    hear(&mut app.message_send(None, "Hello!").unwrap());
}

#[test]
fn a_report_holds_what_helps_and_neither_messages_nor_secrets() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Script::new());
    let app = script.app(folder.path());
    app.setting_set("download_token", &json!("hf_secretsecret"))
        .unwrap();
    let proxy = json!("http://me:hidden@proxy.example:3128");
    app.setting_set("download_proxy", &proxy).unwrap();
    app.setting_set("threads", &json!(3)).unwrap();
    let mut listener = app.message_send(None, "a question of mine").unwrap();
    script.say("an answer of its own");
    script.step(Step::End);
    hear(&mut listener);
    let report = app.diagnostics();
    assert!(
        report.starts_with("FaStar 0.1.0, web\nSystem: "),
        "{report}"
    );
    for line in [
        "\nMemory: ",
        "\nModel: Demo model, ",
        "\n  threads = 3\n",
        "\nLog (",
    ] {
        assert!(report.contains(line), "{line}: {report}");
    }
    for hidden in ["secretsecret", "hidden", "a question", "an answer"] {
        assert!(!report.contains(hidden), "{hidden}: {report}");
    }
}
