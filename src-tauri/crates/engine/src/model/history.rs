//! The latest rows of a sequence.
//!
//! Windows and unfinished blocks need only the last few rows, and a rewind needs a few more. So rows are appended, never overwritten, and
//! dropped at the front now and then: going back by up to [`SLACK`] positions is a truncation, exact because nothing was changed.

/// Rows kept beyond those that are needed: how far back a sequence can go by truncation alone.
pub const SLACK: usize = 128;

/// Consecutive rows of one width.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    width: usize,
    /// Rows before the newest position that must stay.
    needed: usize,
    /// Position of the first row held.
    first: usize,
    rows: Vec<f32>,
}

impl History {
    /// Empty, at position 0; always keeps the last `needed` rows.
    pub fn new(width: usize, needed: usize) -> Self {
        Self {
            width,
            needed,
            first: 0,
            rows: Vec::new(),
        }
    }

    /// Position after the newest row.
    pub fn end(&self) -> usize {
        self.first + self.rows.len() / self.width
    }

    /// Appends rows, then holds at least them, the needed ones before them, and [`SLACK`] more as far as there were so many.
    pub fn push(&mut self, rows: &[f32]) {
        let held = self.rows.len() / self.width;
        let keep = self.needed + SLACK;
        if held > keep + SLACK {
            self.rows.copy_within((held - keep) * self.width.., 0);
            self.rows.truncate(keep * self.width);
            self.first += held - keep;
        }
        self.rows.extend_from_slice(rows);
    }

    /// Rows of the positions `from..to`, which are held.
    pub fn between(&self, from: usize, to: usize) -> &[f32] {
        &self.rows[(from - self.first) * self.width..(to - self.first) * self.width]
    }

    /// Whether the sequence can go back to `position` by dropping rows.
    pub fn reaches(&self, position: usize) -> bool {
        self.first == 0 || position >= self.first + self.needed
    }

    /// Drops the rows from `position` on.
    pub fn truncate(&mut self, position: usize) {
        if position < self.end() {
            self.rows.truncate((position - self.first) * self.width);
        }
    }

    /// A copy of what is needed at the newest position, and no more.
    pub fn snapshot(&self) -> Self {
        let from = self.end().saturating_sub(self.needed).max(self.first);
        Self {
            width: self.width,
            needed: self.needed,
            first: from,
            rows: self.between(from, self.end()).to_vec(),
        }
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        4 * self.rows.capacity()
    }

    /// The rows held, oldest first.
    pub fn rows(&self) -> &[f32] {
        &self.rows
    }

    /// How many values a snapshot at `position` has.
    pub fn values_at(&self, position: usize) -> usize {
        self.needed.min(position) * self.width
    }

    /// The snapshot at `position` with these values, of which there are [`History::values_at`].
    pub fn set(&mut self, position: usize, rows: Vec<f32>) {
        self.first = position - rows.len() / self.width;
        self.rows = rows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_pushed_the_needed_rows_and_the_slack_stay() {
        for chunk in [1, 2, 7, 128, 1000] {
            let mut history = History::new(2, 5);
            let mut end = 0;
            while end < 3000 {
                let rows: Vec<f32> = (end..end + chunk)
                    .flat_map(|p| [p as f32, -(p as f32)])
                    .collect();
                let before = end;
                history.push(&rows);
                end += chunk;
                assert_eq!(history.end(), end);
                let back = before.saturating_sub(5 + SLACK);
                let rows = history.between(back, end);
                for (i, row) in rows.chunks_exact(2).enumerate() {
                    assert_eq!(row, [(back + i) as f32, -((back + i) as f32)]);
                }
                assert!(history.reaches(before.saturating_sub(SLACK)));
                assert!(
                    history.rows.len() / 2 <= 5 + 2 * SLACK + chunk,
                    "grows without bound"
                );
            }
        }
    }

    #[test]
    fn truncation_then_the_same_rows_is_the_same_history() {
        let mut history = History::new(1, 3);
        history.push(&(0..400).map(|p| p as f32).collect::<Vec<_>>());
        let whole = history.clone();
        history.truncate(300);
        history.truncate(350);
        assert_eq!(history.end(), 300);
        history.push(&(300..400).map(|p| p as f32).collect::<Vec<_>>());
        assert_eq!(history.between(200, 400), whole.between(200, 400));
    }
}
