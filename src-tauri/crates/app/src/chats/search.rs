//! Search over all chats: titles, and the words of every version of every message.
//!
//! The index (`words`, kept up to date by triggers of the database) knows sequences of three characters, which suits languages without
//! spaces too. What is searched for is text, never a query language. One or two characters are looked for in the texts themselves.

use fastar_api::Found;
use rusqlite::{Connection, Row, params_from_iter};

use super::Chats;
use super::rows::{CHAT_COLUMNS, from_word, summary};
use crate::error::{Error, Result};

/// The index has nothing for shorter words.
const INDEXED_FROM: usize = 3;
/// As many as anyone reads.
const MOST_FOUND: usize = 200;
/// Longest text that is looked for, in characters.
const LONGEST_QUERY: usize = 200;
/// Characters shown before and after a match.
const AROUND: (usize, usize) = (32, 96);

impl Chats {
    /// Chats whose titles contain `query`, then messages that do, the latest first. Upper and lower case count as the same.
    pub(crate) fn search(&self, query: &str) -> Result<Vec<Found>> {
        let query = query.trim();
        let characters = query.chars().count();
        if characters > LONGEST_QUERY {
            return Err(Error::BadRequest(format!(
                "The text to search for has {characters} characters, and {LONGEST_QUERY} is the limit."
            )));
        }
        // No text of ours has a NUL in it, and the index would take it for the end of what is asked.
        if query.is_empty() || query.contains('\0') {
            return Ok(Vec::new());
        }
        self.read(|connection| {
            let mut found = titles(connection, query)?;
            found.extend(messages(connection, query, characters)?);
            Ok(found)
        })
    }
}

/// Titles are few and short: each is looked at here, because the database's LIKE knows the case of ASCII letters only.
fn titles(connection: &Connection, query: &str) -> rusqlite::Result<Vec<Found>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {CHAT_COLUMNS} FROM chats WHERE deleted_at IS NULL ORDER BY updated_at DESC, id DESC"
    ))?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let chat = summary(row)?;
        let Some((before, matched, after)) = cut(&chat.title, query) else {
            continue;
        };
        found.push(Found {
            before,
            matched,
            after,
            chat,
            message_id: None,
            role: None,
        });
        if found.len() == MOST_FOUND {
            break;
        }
    }
    Ok(found)
}

fn messages(
    connection: &Connection,
    query: &str,
    characters: usize,
) -> rusqlite::Result<Vec<Found>> {
    let chat: String = CHAT_COLUMNS
        .split(", ")
        .map(|c| format!("c.{c}, "))
        .collect();
    let both = |condition: &str| {
        let of = |table: &str| {
            format!(
                "SELECT {chat} m.id, m.role, m.text, m.reasoning, m.position FROM {table} m JOIN chats c ON c.id = m.chat_id
                 WHERE c.deleted_at IS NULL AND {condition}"
            )
        };
        format!(
            "{} UNION ALL {} ORDER BY 11 DESC LIMIT {MOST_FOUND}",
            of("messages"),
            of("other_versions")
        )
    };
    let (sql, values) = if characters < INDEXED_FROM {
        let ways: Vec<String> = cases(query).iter().map(|way| like(way)).collect();
        let condition: Vec<String> = (1..=ways.len())
            .map(|n| format!("m.text LIKE ?{n} ESCAPE '\\' OR m.reasoning LIKE ?{n} ESCAPE '\\'"))
            .collect();
        (both(&format!("({})", condition.join(" OR "))), ways)
    } else {
        let sql = both("m.position IN (SELECT rowid FROM words WHERE words MATCH ?1)");
        // Quoted: whatever stands in it is text.
        (sql, vec![format!("\"{}\"", query.replace('"', "\"\""))])
    };
    connection
        .prepare_cached(&sql)?
        .query_map(params_from_iter(values), |row| found(row, query))?
        .collect()
}

fn found(row: &Row<'_>, query: &str) -> rusqlite::Result<Found> {
    let text: String = row.get(8)?;
    let reasoning: Option<String> = row.get(9)?;
    let (before, matched, after) = cut(&text, query)
        .or_else(|| cut(reasoning.as_deref()?, query))
        .unwrap_or_default();
    Ok(Found {
        chat: summary(row)?,
        message_id: row.get(6)?,
        role: from_word(&row.get::<_, String>(7)?),
        before,
        matched,
        after,
    })
}

/// The ways to write one or two characters in lower and upper case. LIKE sees to ASCII letters itself.
fn cases(query: &str) -> Vec<String> {
    let mut ways = vec![String::new()];
    for c in query.chars() {
        let mut of_one = vec![c.to_string()];
        if !c.is_ascii() {
            of_one.extend([c.to_lowercase().collect(), c.to_uppercase().collect()]);
            of_one.sort();
            of_one.dedup();
        }
        ways = ways
            .iter()
            .flat_map(|before| of_one.iter().map(move |one| format!("{before}{one}")))
            .collect();
    }
    ways
}

fn like(query: &str) -> String {
    let escaped = query
        .replace('\\', "\\\\")
        .replace('%', "\\%")
        .replace('_', "\\_");
    format!("%{escaped}%")
}

/// The words before the first match, the match, and the words after it, each on one line.
fn cut(text: &str, query: &str) -> Option<(String, String, String)> {
    let (start, end) = place(text, query)?;
    let before: Vec<char> = text[..start].chars().rev().take(AROUND.0).collect();
    let more_before = text[..start].chars().nth(AROUND.0).is_some();
    let after: String = text[end..].chars().take(AROUND.1).collect();
    let more_after = text[end..].chars().nth(AROUND.1).is_some();
    let line = |text: String| -> String {
        text.chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect()
    };
    let before: String = before.into_iter().rev().collect();
    Some((
        format!("{}{}", if more_before { "…" } else { "" }, line(before)),
        line(text[start..end].to_owned()),
        format!("{}{}", line(after), if more_after { "…" } else { "" }),
    ))
}

/// Where `query` stands in `text`, upper and lower case being the same.
fn place(text: &str, query: &str) -> Option<(usize, usize)> {
    let wanted: Vec<char> = query.chars().flat_map(char::to_lowercase).collect();
    let first = *wanted.first()?;
    for (start, c) in text.char_indices() {
        if c.to_lowercase().next() != Some(first) {
            continue;
        }
        let mut rest = wanted.iter();
        for (at, c) in text[start..].char_indices() {
            if c.to_lowercase().any(|lower| rest.next() != Some(&lower)) {
                break;
            }
            if rest.as_slice().is_empty() {
                return Some((start, start + at + c.len_utf8()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_match_is_cut_out_whole_with_the_words_around_it() {
        let of = |text: &str, query: &str| cut(text, query).unwrap();
        assert_eq!(
            of("The\n FOX runs\n", "fox r"),
            ("The  ".into(), "FOX r".into(), "uns ".into())
        );
        assert_eq!(
            of("用中文解释量子计算。", "量子"),
            ("用中文解释".into(), "量子".into(), "计算。".into())
        );
        let long = format!("{}x{}", "é".repeat(40), "ü".repeat(100));
        let (before, matched, after) = of(&long, "X");
        assert_eq!(before, format!("…{}", "é".repeat(32)));
        assert_eq!(matched, "x");
        assert_eq!(after, format!("{}…", "ü".repeat(96)));
        // A letter that becomes two when it is made small.
        assert_eq!(of("İstanbul", "i\u{307}st").1, "İst");
        assert_eq!(cut("abc", "abcd"), None);
        assert_eq!(cut("ab", "b").unwrap().2, "");
    }
}
