//! Which addresses of a model's answer may leave the app. Opening them is the face's work.

use std::borrow::Cow;

use url::Url;

use crate::error::{Error, Result};

/// Longest address that is opened, in bytes.
pub const MAX_LINK_BYTES: usize = 2000;

/// What a link may fill in of a mail. Some programs take files from `attach`, whoever's they are (CVE-2020-11879).
const MAIL_FIELDS: [&str; 3] = ["subject", "body", "cc"];

/// Checks an address that a person clicked: `http`, `https` or `mailto`, no user name or password, no file for a mail, no control or
/// direction-changing characters, shorter than [`MAX_LINK_BYTES`]. The result is the address as it will be opened.
pub(crate) fn check(link: &str) -> Result<Url> {
    let refuse = |why: &str| {
        Err(Error::BadRequest(format!(
            "This link was not opened: {why}."
        )))
    };
    if link.len() >= MAX_LINK_BYTES {
        return refuse(&format!(
            "it is {} bytes long, and {MAX_LINK_BYTES} is the limit",
            link.len()
        ));
    }
    if link.chars().any(is_deceptive) {
        return refuse("it contains characters that hide where it leads");
    }
    let Ok(url) = Url::parse(link) else {
        return refuse("it is not a whole web address");
    };
    match url.scheme() {
        "http" | "https" => {
            if !url.username().is_empty() || url.password().is_some() {
                return refuse("it contains a user name or a password");
            }
            if url.host_str().is_none_or(str::is_empty) {
                return refuse("it names no host");
            }
        }
        "mailto" => {
            let harmless = |(name, _): (Cow<'_, str>, Cow<'_, str>)| {
                MAIL_FIELDS
                    .iter()
                    .any(|field| name.eq_ignore_ascii_case(field))
            };
            if !url.query_pairs().all(harmless) {
                return refuse(
                    "it asks the mail program for more than receivers, a subject and a text",
                );
            }
        }
        scheme => {
            // The scheme is ASCII by the parser's promise; cut, because it may be as long as the link.
            let scheme: String = scheme.chars().take(20).collect();
            return refuse(&format!(
                "only http, https and mailto links are, and this is {scheme}:"
            ));
        }
    }
    Ok(url)
}

/// Control characters, white space, direction marks and characters without width.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || c.is_whitespace()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn web_and_mail_links_pass() {
        for link in [
            "https://example.org/a?b=c#d",
            "http://127.0.0.1:8080/",
            "https://example.org/%E2%80%AE",
            "https://bücher.example/",
            "mailto:someone@example.org",
            "mailto:someone@example.org?Subject=Hi&body=two%0Alines&cc=a@b.example",
            "HTTPS://EXAMPLE.ORG",
        ] {
            assert!(check(link).is_ok(), "{link}");
        }
        assert_eq!(
            check("HTTPS://EXAMPLE.ORG").expect("passes").as_str(),
            "https://example.org/"
        );
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        let long = format!("https://example.org/{}", "a".repeat(MAX_LINK_BYTES));
        for (link, reason) in [
            ("javascript:alert(1)", "only http"),
            ("data:text/html,hi", "only http"),
            ("file:///etc/passwd", "only http"),
            ("smb://host/share", "only http"),
            ("ms-msdt:/id", "only http"),
            ("tauri://localhost/", "only http"),
            ("java\nscript:alert(1)", "hide"),
            ("https://example.org/\u{202e}gpj.exe", "hide"),
            ("https://exa\u{200b}mple.org", "hide"),
            ("https://example.org/a b", "hide"),
            (" https://example.org", "hide"),
            ("https://example.org\0.evil", "hide"),
            ("https://user@example.org", "user name"),
            ("https://user:word@example.org", "user name"),
            ("https://good.example%2f@evil.example/", "user name"),
            (
                "mailto:x@example.org?attach=/home/me/.ssh/id_rsa",
                "mail program",
            ),
            ("mailto:x?subject=a&ATTACHMENT=b", "mail program"),
            ("mailto:x?subject=a&%61ttach=b", "mail program"),
            ("mailto:?to=x@example.org", "mail program"),
            ("mailto:x?bcc=spy@example.org", "mail program"),
            ("mailto:x?in-reply-to=1", "mail program"),
            ("example.org", "whole web address"),
            ("//example.org", "whole web address"),
            ("", "whole web address"),
            ("https://", "whole web address"),
            (long.as_str(), "2000 is the limit"),
        ] {
            let error = check(link).expect_err(link).to_string();
            assert!(error.contains(reason), "{link}: {error}");
        }
    }
}
