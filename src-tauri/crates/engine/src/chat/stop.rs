//! Stop strings: the text an answer ends before.
//!
//! What counts is the text, not how it was cut into tokens: the answer ends at the stop string that is complete first, and of several that
//! are complete with the same character at the longest.

/// Looks for stop strings in text that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct StopStrings {
    stops: Vec<String>,
    held: String,
}

impl StopStrings {
    /// Empty strings are ignored.
    pub fn new(stops: &[String]) -> Self {
        Self {
            stops: stops.iter().filter(|s| !s.is_empty()).cloned().collect(),
            held: String::new(),
        }
    }

    /// Adds text. Gives back what cannot be part of a stop string any more, and whether one was found; then the answer has ended.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        let found = self
            .stops
            .iter()
            .filter_map(|stop| {
                let start = self.held.find(stop.as_str())?;
                Some((start + stop.len(), start))
            })
            .min();
        if let Some((_, start)) = found {
            self.held.truncate(start);
            return (std::mem::take(&mut self.held), true);
        }
        let kept = self
            .stops
            .iter()
            .map(|stop| overlap(&self.held, stop))
            .max()
            .unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// What was held back: it has become no stop string.
    pub fn release(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Length of the longest end of `text` that `whole` begins with, short of all of it.
pub(super) fn overlap(text: &str, whole: &str) -> usize {
    let longest = text.len().min(whole.len().saturating_sub(1));
    (1..=longest)
        .rev()
        .find(|n| text.as_bytes().ends_with(&whole.as_bytes()[..*n]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(text: &str, stops: &[&str], piece: usize) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|s| (*s).to_owned()).collect();
        let mut finder = StopStrings::new(&stops);
        let mut out = String::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(piece) {
            let (text, stop) = finder.push(&piece.iter().collect::<String>());
            out.push_str(&text);
            if stop {
                return (out, true);
            }
        }
        out.push_str(&finder.release());
        (out, false)
    }

    #[test]
    fn the_answer_ends_before_the_stop_string_that_is_complete_first() {
        let fox = "The quick brown fox ab";
        for (stops, text, stop) in [
            (&["own fox"][..], "The quick br", true),
            (&["ox"], "The quick brown f", true),
            (&["b fox"], fox, false),
            (&["abc", "fox b"], fox, false),
            (&["brown", "quick"], "The ", true),
            (&[" "], "The", true),
            (&[""], fox, false),
            (&["", "zzz", "k", "brown", "fox"], "The quic", true),
            (&["uick", "quick"], "The ", true),
            (&["quick brown", "uick"], "The q", true),
        ] {
            for piece in 1..=fox.len() {
                assert_eq!(
                    stopped(fox, stops, piece),
                    (text.into(), stop),
                    "{stops:?} by {piece}"
                );
            }
        }
    }

    #[test]
    fn only_what_could_still_become_a_stop_string_is_held_back() {
        let mut finder = StopStrings::new(&["aab".into(), "ac".into()]);
        assert_eq!(finder.push("xa"), ("x".into(), false));
        assert_eq!(finder.push("a"), (String::new(), false));
        assert_eq!(finder.push("a"), ("a".into(), false));
        assert_eq!(finder.push("d"), ("aad".into(), false));
        assert_eq!(finder.push("好a"), ("好".into(), false));
        assert_eq!(finder.release(), "a");
    }
}
