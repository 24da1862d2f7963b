//! Takes secrets out of a line before it is kept: tokens, keys, and passwords in addresses. What is taken out too often costs nothing; what is
//! forgotten would be copied into a bug report.

const STARS: &str = "***";
/// Words that a secret follows, as `token=…`, `"key": "…"` or `Authorization: Bearer …`.
const NAMES: [&str; 8] = [
    "token",
    "key",
    "password",
    "passwd",
    "secret",
    "authorization",
    "cookie",
    "bearer",
];
/// How tokens begin that are known by themselves.
const BEGINNINGS: [&str; 4] = ["hf_", "sk-", "ghp_", "xoxb-"];

/// The line without its secrets.
pub(crate) fn redact(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    // Set while the next word is the value of a name.
    let mut value = false;
    while let Some(first) = rest.chars().next() {
        let is_word =
            |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '~');
        if !is_word(first) {
            if let Some(after) = rest.strip_prefix("://") {
                out.push_str("://");
                rest = without_password(after, &mut out);
                value = false;
                continue;
            }
            out.push(first);
            rest = &rest[first.len_utf8()..];
            // What stands between a name and its value; anything else ends the wait.
            value = value && matches!(first, '=' | ':' | ' ' | '"' | '\'' | '(');
            continue;
        }
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let lower = word.to_lowercase();
        let is_name = NAMES.iter().any(|name| lower.ends_with(name));
        let known = BEGINNINGS
            .iter()
            .any(|b| word.starts_with(b) && word.len() > b.len() + 7);
        let assigned = after
            .trim_start_matches(['"', '\'', ' '])
            .starts_with([':', '=']);
        if known || (value && !is_name) {
            out.push_str(STARS);
            value = false;
        } else {
            out.push_str(word);
            value = is_name && (assigned || lower == "bearer" || value);
        }
        rest = after;
    }
    out
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
