//! The wall clock, read in one place only; what needs a time gets it as a parameter.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, UTC.
pub(crate) fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}

/// A time as it stands in file names: `2026-11-30-014512` (UTC).
pub(crate) fn file_date(now: i64) -> String {
    // SQLite is here anyway and knows the calendar.
    rusqlite::Connection::open_in_memory()
        .and_then(|sqlite| {
            sqlite.query_row(
                "SELECT strftime('%Y-%m-%d-%H%M%S', ?1 / 1000, 'unixepoch')",
                [now],
                |row| row.get(0),
            )
        })
        .unwrap_or_else(|_| now.to_string())
}

#[cfg(test)]
mod tests {
    #[test]
    fn dates_in_file_names_are_sortable_utc() {
        assert_eq!(super::file_date(1_796_000_000_123), "2026-11-30-005320");
    }
}
