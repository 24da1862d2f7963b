//! `fastar simulate` and the traces it reads.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{refused, run, text};
use serde_json::Value;

#[test]
fn an_invented_trace_is_kept_and_read_to_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a trace");
    let sizes = ["--slots", "10%,33%", "--json"];
    let made = run(&[
        &["simulate", "--tokens", "40", "--save", text(&file)],
        &sizes[..],
    ]
    .concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    let value: Value = serde_json::from_str(&made.out).unwrap();
    assert_eq!(value["rates"][0]["slots"], 1100);
    assert_eq!(value["rates"][1]["slots"], 3632);
    for rates in value["rates"].as_array().unwrap() {
        let rate = |name: &str| rates[name].as_f64().unwrap();
        assert!(0.0 < rate("ours") && rate("ours") <= rate("belady") && rate("belady") < 1.0);
    }
    assert_eq!(
        std::fs::metadata(&file).unwrap().len(),
        32 + 40 * (1 + 43 * 6)
    );
    let read = run(&[&["simulate", text(&file)], &sizes[..]].concat());
    assert_eq!((&read.out, &read.err), (&made.out, &made.err));
    assert_eq!(
        made.err,
        "fastar: A trace of 40 tokens says little about any cache; from 100 tokens on the numbers mean something.\n"
    );
    let enough = run(&["simulate", "--tokens", "100", "--slots", "10%"]);
    assert_eq!((enough.code, enough.err.as_str()), (Some(0), ""));
    let shown = run(&["simulate", text(&file), "--slots", "6"]);
    assert!(
        shown
            .out
            .starts_with("40 tokens through 43 layers of 256 experts, 6 taken in each")
    );
    assert!(
        shown.out.lines().nth(3).unwrap().starts_with("6 "),
        "{}",
        shown.out
    );
    // A recording that was killed.
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let cut = run(&["simulate", text(&file), "--slots", "6"]);
    assert_eq!(cut.code, Some(0));
    assert!(
        cut.err.contains("its 39 whole ones are used"),
        "{}",
        cut.err
    );
}

#[test]
fn sizes_that_cannot_be_are_told_and_each_is_tried_once() {
    let tried = |slots: &str| {
        let ran = run(&["simulate", "--tokens", "100", "--slots", slots, "--json"]);
        let value: Value = serde_json::from_str(&ran.out).unwrap();
        let rates = value["rates"].as_array().unwrap().clone();
        let slots: Vec<u64> = rates.iter().map(|r| r["slots"].as_u64().unwrap()).collect();
        (slots, ran.err)
    };
    // 10 % of 43 layers of 256 experts, rounded down.
    assert_eq!(tried("1100,10%,12,1100"), (vec![1100, 12], String::new()));
    assert_eq!(
        tried("100000,100%"),
        (
            vec![11008],
            "fastar: There are 11008 experts; instead of 100000, 11008 slots are tried.\n".into()
        )
    );
    assert_eq!(
        tried("1,6,2"),
        (
            vec![6],
            "fastar: A layer takes 6 experts at once; instead of 1, 6 slots are tried.\n".into()
        )
    );
}

#[test]
fn what_is_no_trace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    let refusal = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        refused(&["simulate", text(&file)])
    };
    assert!(refusal(b"").contains("is not a routing trace of FaStar"));
    assert!(refusal(&[b'x'; 100]).contains("is not a routing trace of FaStar"));
    let mut header = b"FSTROUTE\x01\0\0\0\x02\0\0\0\x04\0\0\0\x01\0\0\0".to_vec();
    header.extend([0; 8]);
    assert!(refusal(&header).contains("too few"));
    header.extend([2, 0, 4]);
    assert!(refusal(&header).contains("goes to expert 4, and there are 4"));
    header.truncate(32);
    header[20] = 2;
    header.extend([0, 0, 3, 1, 2]);
    header.extend([2, 0, 1, 3, 3]);
    let told = refusal(&header);
    assert!(
        told.contains("trace is damaged: token 1 goes to expert 3 of layer 1 twice"),
        "{told}"
    );
    assert!(refused(&["simulate", text(folder.path())]).contains("is a folder"));
    assert!(refused(&["simulate", "no-such-file"]).contains("no-such-file"));
    for wrong in ["0", "0%", "101%", "x", "-1"] {
        assert_eq!(
            run(&["simulate", "--slots", wrong]).code,
            Some(2),
            "{wrong}"
        );
    }
}
