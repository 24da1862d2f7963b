//! Takes secrets out of a line before it is kept: tokens, keys, and passwords in addresses. What is taken out too often costs nothing; what is
//! forgotten would be copied into a bug report.

const STARS: &str = "***";
/// How words end that a secret follows, as `token=…`, `"key": "…"` or `Authorization: Bearer …`.
const NAMES: [&str; 13] = [
    "token",
    "key",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "pass",
    "secret",
    "signature",
    "sig",
    "credential",
    "credentials",
    "auth",
];
/// Names of headers: the whole line after them is theirs.
const HEADERS: [&str; 2] = ["authorization", "cookie"];
/// How tokens begin that are known by themselves.
const BEGINNINGS: [&str; 4] = ["hf_", "sk-", "ghp_", "xoxb-"];

/// The line without its secrets.
pub(crate) fn redact(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let is_word =
            |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '~');
        if !is_word(first) {
            if let Some(after) = rest.strip_prefix("://") {
                out.push_str("://");
                rest = without_password(after, &mut out);
                continue;
            }
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        let known = BEGINNINGS
            .iter()
            .any(|b| word.starts_with(b) && word.len() > b.len() + 7);
        if known {
            out.push_str(STARS);
            continue;
        }
        out.push_str(word);
        let lower = word.to_lowercase();
        let header = HEADERS.iter().any(|name| lower.ends_with(name));
        if header || NAMES.iter().any(|name| lower.ends_with(name)) {
            rest = without_value(rest, header, &mut out);
        } else if lower == "bearer" {
            rest = without_bearer(rest, &mut out);
        }
    }
    out
}

/// What follows a name: copies what stands between it and its value, and stars for the value; what follows is returned. A value ends at its
/// closing quote, and without quotes at white space or a comma; that of a header at the end of the line.
fn without_value<'a>(after: &'a str, header: bool, out: &mut String) -> &'a str {
    let assignment = after.trim_start_matches(['"', '\'', '\\', ' ']);
    if !assignment.starts_with([':', '=']) || assignment.starts_with("://") {
        return after;
    }
    let value = assignment.trim_start_matches([':', '=', '>', ' ', '\\', '(', '[']);
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let value = &value[quote.map_or(0, char::len_utf8)..];
    let between = &after[..after.len() - value.len()];
    out.push_str(between);
    let value = match value.get(..7) {
        Some(bearer) if header && bearer.eq_ignore_ascii_case("bearer ") => {
            out.push_str(bearer);
            &value[7..]
        }
        _ => value,
    };
    let end = match quote {
        Some(quote) => closing(value, quote, between.contains('\\')),
        None if header => value.find(['\n', '\r']),
        None => value.find(|c: char| c.is_whitespace() || c == ','),
    };
    let end = end.unwrap_or(value.len());
    // An object is no value: names in it have their own.
    if end > 0 && !(quote.is_none() && is_object(value)) {
        out.push_str(STARS);
        return &value[end..];
    }
    value
}

/// Whether an object begins here: `{"name": `, or `{ name: ` as programs print what they hold.
fn is_object(value: &str) -> bool {
    let Some(inside) = value.strip_prefix('{') else {
        return false;
    };
    let inside = inside.trim_start_matches([' ', '\\']);
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    match inside.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        Some(quote) => inside[quote.len_utf8()..]
            .split_once(quote)
            .is_some_and(|(_, after)| after.trim_start().starts_with(':')),
        None => inside.trim_start_matches(is_name).starts_with(": "),
    }
}

/// Where a quoted value ends. Inside of a text that is quoted itself, every quote has a backslash before it.
fn closing(value: &str, quote: char, inside: bool) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in value.char_indices() {
        match c {
            '\\' if !inside => escaped = !escaped,
            c if c == quote && !escaped => return Some(at),
            _ => escaped = false,
        }
    }
    None
}

/// What follows the word "Bearer" without a name before it.
fn without_bearer<'a>(after: &'a str, out: &mut String) -> &'a str {
    let value = after.trim_start_matches(' ');
    out.push_str(&after[..after.len() - value.len()]);
    let end = value
        .find(|c: char| c.is_whitespace() || matches!(c, ',' | '"' | '\''))
        .unwrap_or(value.len());
    if value.len() < after.len() && end > 0 {
        out.push_str(STARS);
        return &value[end..];
    }
    value
}

/// Copies an address up to its host, with stars for a name and password; what follows is returned.
fn without_password<'a>(after: &'a str, out: &mut String) -> &'a str {
    let end = after
        .find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\''))
        .unwrap_or(after.len());
    match after[..end].rfind('@') {
        Some(at) => {
            out.push_str(STARS);
            &after[at..]
        }
        None => after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_leave_and_everything_else_stays() {
        for (line, expected) in [
            ("nothing to hide, 7 tokens/s", "nothing to hide, 7 tokens/s"),
            ("tokens=12 hits=3", "tokens=12 hits=3"),
            ("token=abc123 next=1", "token=*** next=1"),
            (
                "the token hf_abcdefghijk was refused",
                "the token *** was refused",
            ),
            ("hf_short stays", "hf_short stays"),
            (
                "Authorization: Bearer abc.def-ghi",
                "Authorization: Bearer ***",
            ),
            (
                r#"{"api_key": "s3cr3t", "n": 1}"#,
                r#"{"api_key": "***", "n": 1}"#,
            ),
            ("password='hunter2'", "password='***'"),
            (
                "http://me:hidden@proxy.example:3128/x",
                "http://***@proxy.example:3128/x",
            ),
            ("https://example.org/a@b", "https://example.org/a@b"),
            (
                "key sentence without a value",
                "key sentence without a value",
            ),
            ("sk-0123456789abcdef", "***"),
            ("password=p@ss!word next", "password=*** next"),
            ("password=@begins-with-a-sign", "password=***"),
            ("token=abc%2Fdef, n=1", "token=***, n=1"),
            (
                "api_key: \"two words & a sign\" n=1",
                "api_key: \"***\" n=1",
            ),
            (r#"password="with \" a quote" n=1"#, r#"password="***" n=1"#),
            ("password='never closed, and more", "password='***"),
            (
                r#"body="{\"token\": \"a b\", \"n\": 1}""#,
                r#"body="{\"token\": \"***", \"n\": 1}""#,
            ),
            ("pwd=x PASSPHRASE=y", "pwd=*** PASSPHRASE=***"),
            (
                "https://cdn.example/x?Expires=1&Signature=Ab~c_&Key-Pair-Id=K next",
                "https://cdn.example/x?Expires=1&Signature=*** next",
            ),
            (
                "GET /x?X-Amz-Credential=AKIA/1&X-Amz-Signature=0f sent",
                "GET /x?X-Amz-Credential=*** sent",
            ),
            ("Authorization: Basic bWU6cGFzcw==", "Authorization: ***"),
            ("cookie: a=b; session=c d", "cookie: ***"),
            (
                r#"{"authorization": "Bearer abc", "n": 1}"#,
                r#"{"authorization": "Bearer ***", "n": 1}"#,
            ),
            ("sent Bearer abc/def= to it", "sent Bearer *** to it"),
            ("tokens: {\"key\": [\"a\"]}", "tokens: {\"key\": [\"***\"]}"),
            ("password=[abc next", "password=[*** next"),
            ("token={x", "token=***"),
            ("token={x} n=1", "token=*** n=1"),
            ("pass=[[{x, n=1", "pass=[[***, n=1"),
            ("secret={\"x", "secret=***"),
            ("password=\"{x y\" n=1", "password=\"***\" n=1"),
            (
                "auth: {\"user\": \"me\", \"token\":\"a b\"}",
                "auth: {\"user\": \"me\", \"token\":\"***\"}",
            ),
            (
                "Auth { user: me, key: Key { token: abc } }",
                "Auth { user: me, key: *** { token: *** } }",
            ),
            (
                "auth: { user: me, token: abc }",
                "auth: { user: me, token: *** }",
            ),
            ("the key: https://example.org/x y", "the key: *** y"),
            ("secret://example.org/x", "secret://example.org/x"),
            ("password=", "password="),
            ("password=\"\"", "password=\"\""),
            (
                "umlauts äöü 中文 🙂 token=ü",
                "umlauts äöü 中文 🙂 token=***",
            ),
            ("", ""),
        ] {
            assert_eq!(redact(line), expected, "{line}");
        }
    }
}
