//! Arguments of a call: from the text of its parameters to a JSON object of the types the tool declared.

use super::{Tool, json};

/// A parameter as the model wrote it.
#[derive(Debug)]
pub(super) struct Argument {
    pub key: String,
    /// Its attribute `string`: plain text or JSON; none when it is missing.
    pub string: Option<bool>,
    pub value: String,
}

/// The JSON object, or why there can be none. Of an unknown tool, and of a parameter without a declared type, the attribute is believed.
pub(super) fn to_json(tool: Option<&Tool>, arguments: &[Argument]) -> Result<String, String> {
    if arguments.is_empty() && tool.is_some_and(Tool::needs_arguments) {
        return Err("it has no arguments and the tool needs some".into());
    }
    let mut out = String::from("{");
    for (i, argument) in arguments.iter().enumerate() {
        let key = &argument.key;
        if arguments.iter().take(i).any(|other| other.key == *key) {
            return Err(format!("the argument {key} is given twice"));
        }
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(&json::quoted(key));
        out.push_str(": ");
        out.push_str(&value(argument, tool.map_or(&[], |tool| tool.types(key)))?);
    }
    out.push('}');
    Ok(out)
}

/// The value as JSON. `types` are the declared ones, none if any will do.
fn value(argument: &Argument, types: &[String]) -> Result<String, String> {
    let declared = |name: &str| types.iter().any(|t| t == name);
    let json = json::as_python_writes(argument.value.trim()).ok();
    let as_text = || {
        let fits = match types {
            [] => argument.string != Some(false),
            _ => declared("string"),
        };
        fits.then(|| json::quoted(&argument.value))
    };
    let as_json = || {
        json.clone().filter(|json| match types {
            [] => argument.string != Some(true),
            _ => type_names(json).iter().any(|name| declared(name)),
        })
    };
    let only_text = matches!(types, [only] if only == "string");
    let chosen = match argument.string {
        Some(true) => as_text().or_else(as_json),
        None if only_text => as_text(),
        Some(false) | None => as_json().or_else(as_text),
    };
    let key = &argument.key;
    chosen.ok_or_else(|| match (&json, types) {
        (None, _) if argument.string == Some(false) => format!("the argument {key} is not JSON"),
        (_, types) => format!("the argument {key} is not of type {}", types.join(" or ")),
    })
}

/// Names that JSON Schema has for the type of a JSON value.
fn type_names(json: &str) -> &'static [&'static str] {
    match json.as_bytes().first() {
        Some(b'{') => &["object"],
        Some(b'[') => &["array"],
        Some(b'"') => &["string"],
        Some(b't' | b'f') => &["boolean"],
        Some(b'n') => &["null"],
        _ if json.parse::<f64>().is_ok_and(|n| n.fract() == 0.0) => &["integer", "number"],
        _ => &["number"],
    }
}
