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

/// A time as it stands in a line of the log: `2026-11-30T00:53:20.123Z`.
pub(crate) fn stamp(at: i64) -> String {
    let (days, rest) = (at.div_euclid(DAY), at.rem_euclid(DAY));
    let (year, month, day) = date(days);
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, millisecond) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

/// The time of such a stamp; none for what is none.
pub(crate) fn of_stamp(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let at = days(number(0..4)?, number(5..7)?, number(8..10)?) * DAY
        + number(11..13)? * 3_600_000
        + number(14..16)? * 60_000
        + number(17..19)? * 1000
        + number(20..23)?;
    // Whatever stands between the numbers, and whether there is such a day, is seen by writing it again.
    (stamp(at) == text).then_some(at)
}

const DAY: i64 = 86_400_000;

/// Year, month and day of a day since 1970, in the Gregorian calendar (Howard Hinnant, chrono-compatible low-level date algorithms).
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// The other way round.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    #[test]
    fn dates_in_file_names_are_sortable_utc() {
        assert_eq!(super::file_date(1_796_000_000_123), "2026-11-30-005320");
    }

    #[test]
    fn stamps_are_those_of_sqlite_and_come_back() {
        for at in [0, 1_796_000_000_123, 951_827_696_789, 4_102_444_800_000 - 1] {
            let stamp = super::stamp(at);
            let day = super::file_date(at);
            assert_eq!(stamp[..10], day[..10]);
            assert_eq!(stamp[11..19].replace(':', ""), day[11..]);
            assert_eq!(super::of_stamp(&stamp), Some(at));
        }
        assert_eq!(super::stamp(951_827_696_789), "2000-02-29T12:34:56.789Z");
        for wrong in [
            "",
            "2026-11-30",
            "2026-13-30T00:00:00.000Z",
            "2026-02-30T00:00:00.000Z",
            "+026-11-30T00:53:20.123Z",
        ] {
            assert_eq!(super::of_stamp(wrong), None, "{wrong}");
        }
    }
}
