//! The title of a new chat.

use fastar_api::NewMessage;

/// Longest automatic title, in characters.
const AUTOMATIC: usize = 60;
/// Longest title a person may set, in characters.
pub(crate) const LONGEST: usize = 200;

/// Joins white space and control characters into single spaces.
pub(crate) fn one_line(text: &str) -> String {
    // Nothing beyond this can matter: a title is short, the text may be megabytes.
    let beginning: String = text.chars().take(10 * LONGEST).collect();
    beginning
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The beginning of the first message: whole words, one line, about sixty characters.
pub(super) fn from_first_message(message: &NewMessage) -> String {
    let text = one_line(&message.text);
    let files = message.attachments.iter().map(|file| one_line(&file.name));
    let Some(line) = std::iter::once(text)
        .chain(files)
        .find(|line| !line.is_empty())
    else {
        return "New chat".to_owned();
    };
    let Some((cut, _)) = line.char_indices().nth(AUTOMATIC) else {
        return line;
    };
    let beginning = &line[..cut];
    let next_is_space = line[cut..].starts_with(' ');
    let whole = if next_is_space {
        beginning
    } else {
        // A single word longer than the title (a link, or a language without spaces) is cut where it is.
        beginning
            .rsplit_once(' ')
            .map_or(beginning, |(words, _)| words)
    };
    format!("{}…", whole.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_beginning_of_the_message_in_whole_words_on_one_line() {
        for (text, title) in [
            ("Hello!", "Hello!"),
            ("  two\n\nlines\tand\0a NUL ", "two lines and a NUL"),
            (
                "Tell me a story about a fox who lives in the forest and meets a friend",
                "Tell me a story about a fox who lives in the forest and…",
            ),
            (
                "123456789 123456789 123456789 123456789 123456789 1234567890 next",
                "123456789 123456789 123456789 123456789 123456789 1234567890…",
            ),
            ("\u{7}\n", "New chat"),
        ] {
            assert_eq!(from_first_message(&text.into()), title);
        }
    }

    #[test]
    fn a_text_without_spaces_is_cut_between_characters() {
        let title = from_first_message(&"修".repeat(500).as_str().into());
        assert_eq!(title, format!("{}…", "修".repeat(60)));
    }
}
