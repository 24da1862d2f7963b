//! JSON text as Python's `json.dumps(json.loads(text), ensure_ascii=False)` writes it, which is how the model saw all JSON in training:
//! `", "` and `": "` between the parts, keys in their order, no escapes but the necessary ones, whole numbers digit by digit.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// As deep as the JSON that other programs read back.
const DEEPEST: usize = 120;

/// Rewrites JSON text; an error when it is none.
pub(super) fn as_python_writes(text: &str) -> serde_json::Result<String> {
    let mut out = String::with_capacity(text.len());
    write(serde_json::from_str(text)?, 0, &mut out)?;
    Ok(out)
}

/// The members of a JSON object in their order, or none when the text is something else. A repeated key keeps its first place and last value.
pub(super) fn members(text: &str) -> Option<Vec<(String, &RawValue)>> {
    serde_json::from_str::<Members<'_>>(text)
        .ok()
        .map(|members| members.0)
}

/// The text of a JSON string, or none when the value is something else.
pub(super) fn string(value: &RawValue) -> Option<String> {
    value
        .get()
        .starts_with('"')
        .then(|| serde_json::from_str(value.get()).ok())
        .flatten()
}

/// A JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn write(value: &RawValue, depth: usize, out: &mut String) -> serde_json::Result<()> {
    if depth > DEEPEST {
        return Err(serde_json::Error::custom("it is nested too deeply"));
    }
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            out.push('{');
            for (i, (key, value)) in serde_json::from_str::<Members<'_>>(text)?
                .0
                .iter()
                .enumerate()
            {
                if i > 0 {
                    out.push_str(", ");
                }
                out.push_str(&quoted(key));
                out.push_str(": ");
                write(value, depth + 1, out)?;
            }
            out.push('}');
        }
        Some(b'[') => {
            out.push('[');
            for (i, value) in serde_json::from_str::<Vec<&RawValue>>(text)?
                .iter()
                .enumerate()
            {
                if i > 0 {
                    out.push_str(", ");
                }
                write(value, depth + 1, out)?;
            }
            out.push(']');
        }
        Some(b'"') => out.push_str(&quoted(&serde_json::from_str::<String>(text)?)),
        Some(b'-' | b'0'..=b'9') => number(text, out),
        _ => out.push_str(text),
    }
    Ok(())
}

/// Whole numbers keep all their digits; others are the shortest text that reads back as the same double.
fn number(text: &str, out: &mut String) {
    if !text.contains(['.', 'e', 'E']) {
        out.push_str(if text == "-0" { "0" } else { text });
        return;
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => float(value, out),
        // Beyond a double, where Python would write what is no JSON.
        _ => out.push_str(text),
    }
}

fn float(value: f64, out: &mut String) {
    let shortest = format!("{:e}", value.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value.is_sign_negative() {
        out.push('-');
    }
    if (-4..16).contains(&exponent) {
        let plain = format!("{}", value.abs());
        out.push_str(&plain);
        if !plain.contains('.') {
            out.push_str(".0");
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        out.push_str(mantissa);
        out.push_str(&format!("e{sign}{:02}", exponent.abs()));
    }
}

struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members: Vec<(String, &RawValue)> = Vec::new();
                let mut places = HashMap::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    let place = *places.entry(key.clone()).or_insert(members.len());
                    match members.get_mut(place) {
                        Some(member) => member.1 = value,
                        None => members.push((key, value)),
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Left: given; right: what CPython 3.11 prints for `json.dumps(json.loads(given), ensure_ascii=False)`.
    #[test]
    fn json_is_written_as_python_writes_it() {
        for (given, python) in [
            (
                r#"{"b":1,"a":[true,false,null,{}],"c":[]}"#,
                r#"{"b": 1, "a": [true, false, null, {}], "c": []}"#,
            ),
            (" [ 1 ,\n2 ] ", "[1, 2]"),
            (
                r#""\u00e9\/\u4f60\ud83d\ude42\u0001\u001f\u007f\b\f\n\r\t\"\\""#,
                "\"é/你🙂\\u0001\\u001f\u{7f}\\b\\f\\n\\r\\t\\\"\\\\\"",
            ),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"a": 3, "b": 2}"#),
            (
                "123456789012345678901234567890",
                "123456789012345678901234567890",
            ),
            (
                "[-0,-7,0,1.0,1.50,-0.0,0.1]",
                "[0, -7, 0, 1.0, 1.5, -0.0, 0.1]",
            ),
            (
                "[1e5,1E+15,1e16,1.5e16,123456789012345680.0,1e22]",
                "[100000.0, 1000000000000000.0, 1e+16, 1.5e+16, 1.2345678901234568e+17, 1e+22]",
            ),
            (
                "[0.0001,0.00001,1.25e-7,1e-100,-2.5e-5]",
                "[0.0001, 1e-05, 1.25e-07, 1e-100, -2.5e-05]",
            ),
        ] {
            assert_eq!(as_python_writes(given).unwrap(), python);
        }
    }

    #[test]
    fn text_that_is_no_json_is_refused_and_so_is_bottomless_nesting() {
        for bad in [
            "",
            "{",
            "{a: 1}",
            "[1,]",
            "nul",
            "\"\\ud800\"",
            "1 2",
            "NaN",
        ] {
            assert!(as_python_writes(bad).is_err(), "{bad}");
        }
        let deep = |n| "[".repeat(n) + &"]".repeat(n);
        assert!(as_python_writes(&deep(100)).is_ok());
        assert!(as_python_writes(&deep(200)).is_err());
        assert!(as_python_writes(&deep(2_000)).is_err());
    }
}
