//! Checking a model, and mending it from where it was made.

use super::*;

#[test]
fn a_check_finds_damage_and_a_repair_fetches_just_that_from_the_hub() {
    let scene = Scene::new();
    assert!(matches!(scene.work(), Ok(Ended::Done(_))));
    let whole = fs::read(scene.out()).unwrap();
    let verify = Order {
        kind: JobKind::Verify,
        ..scene.order()
    };
    let repair = Order {
        kind: JobKind::Repair,
        ..scene.order()
    };
    let ended = scene.work_until(&verify, |_| false).unwrap();
    assert!(
        matches!(&ended, Ended::Done(Some(said)) if said.contains("as it was made")),
        "{ended:?}"
    );
    let sent = scene.hub.sent();
    let ended = scene.work_until(&repair, |_| false).unwrap();
    let nothing = format!("Nothing to mend in {}.", repair.title);
    assert_eq!(ended, Ended::Done(Some(nothing)));
    assert_eq!(scene.hub.sent(), sent);

    let mut damaged = whole.clone();
    let place = damaged.len() - 100_000;
    damaged[place] ^= 1;
    fs::write(scene.out(), &damaged).unwrap();
    let error = scene.work_until(&verify, |_| false).unwrap_err();
    assert_eq!(error.code, ErrorCode::Damaged);
    assert!(
        error.message.contains("1 part") && error.details.is_some(),
        "{error:?}"
    );
    let ended = scene.work_until(&repair, |_| false).unwrap();
    let mended = format!("One damaged part of {} was fetched again.", repair.title);
    assert_eq!(ended, Ended::Done(Some(mended)));
    assert!(fs::read(scene.out()).unwrap() == whole);
    scene.assert_only_the_model();
    let came = scene.hub.sent() - sent;
    assert!(came < scene.shard_bytes() / 2, "{came}");
}

#[test]
fn a_model_of_a_folder_says_where_a_repair_can_come_from() {
    let scene = Scene::new();
    fastar_fst::convert(scene.source.path(), &scene.out(), &mut |_, _| {}).unwrap();
    let repair = Order {
        kind: JobKind::Repair,
        ..scene.order()
    };
    let ended = scene.work_until(&repair, |_| false).unwrap();
    assert!(
        matches!(&ended, Ended::Done(Some(said)) if said.starts_with("Nothing to mend in ")),
        "{ended:?}"
    );
    let mut damaged = fs::read(scene.out()).unwrap();
    let place = damaged.len() - 100_000;
    damaged[place] ^= 1;
    fs::write(scene.out(), &damaged).unwrap();
    let error = scene.work_until(&repair, |_| false).unwrap_err();
    let command = format!(
        "`fastar repair {} --from FOLDER`",
        fastar_fst::quoted(&scene.out())
    );
    assert!(
        error.message.contains("does not say which repository") && error.message.contains(&command),
        "{error}"
    );
    // A check offers no repair that would be refused.
    let verify = Order {
        kind: JobKind::Verify,
        ..scene.order()
    };
    let error = scene.work_until(&verify, |_| false).unwrap_err();
    assert_eq!(error.code, ErrorCode::Spoilt);
    let hint = error.hint.unwrap_or_default();
    assert!(
        hint.contains("download, copy or convert the model again"),
        "{hint}"
    );
    assert!(scene.hub.requests().is_empty());
}
