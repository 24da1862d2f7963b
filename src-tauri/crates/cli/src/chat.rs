//! `fastar chat`: a conversation in the terminal or over a pipe.
//!
//! In a terminal there is a prompt with line editing, Ctrl+C stops an answer or clears the line, and Ctrl+D leaves. Over a pipe every
//! line is a message and the end of input is the end. Nothing is kept on disk.

use std::io::{self, BufRead, IsTerminal};

use fastar_engine::{Answer, Finish, Message, Role};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};

use crate::arguments::ChatOptions;
use crate::failure::Failure;
use crate::model::{self, Model};
use crate::terminal::Answers;
use crate::{interrupt, once, terminal};

const HELP: &str = "\
/reset   Forget the conversation and start over
/help    Show this text
/quit    Leave
Ctrl+C stops an answer, Ctrl+D leaves. To send a message that begins with /, put a space before it.";

/// Longest line of a pipe: far more text than any context holds.
const MOST_LINE_BYTES: u64 = 64 << 20;

/// What a person may enter.
#[derive(Debug, PartialEq, Eq)]
enum Entry<'a> {
    Nothing,
    Say(&'a str),
    Reset,
    Help,
    Quit,
    Unknown(&'a str),
}

impl<'a> Entry<'a> {
    fn read(line: &'a str) -> Self {
        let trimmed = line.trim();
        if trimmed.is_empty() {
            return Self::Nothing;
        }
        if !line.starts_with('/') {
            return Self::Say(trimmed);
        }
        match trimmed {
            "/reset" => Self::Reset,
            "/help" => Self::Help,
            "/quit" | "/exit" => Self::Quit,
            other => Self::Unknown(other.split_whitespace().next().unwrap_or(other)),
        }
    }
}

/// Holds the conversation.
pub fn chat(options: &ChatOptions) -> Result<(), Failure> {
    interrupt::take_over_with(model::threads(&options.model))?;
    let model = model::open_for_text(&options.model)?;
    let mut talk = Talk {
        session: model.engine.session(),
        messages: Vec::new(),
        answers: Answers::new(),
        options,
        model,
    };
    let outcome = if io::stdin().is_terminal() && talk.answers.is_terminal() {
        talk.in_terminal()
    } else {
        talk.over_pipe()
    };
    talk.model.ended(outcome)
}

struct Talk<'a> {
    model: Model,
    session: fastar_engine::Session,
    messages: Vec<Message>,
    answers: Answers,
    options: &'a ChatOptions,
}

impl Talk<'_> {
    fn in_terminal(&mut self) -> Result<(), Failure> {
        terminal::note(&format!(
            "Talking with {}. Type a message; /help shows the commands.",
            self.model.name
        ));
        let unreadable =
            |e: ReadlineError| Failure::Error(format!("The terminal could not be read: {e}."));
        // History stays in memory: what a person asks is nobody's business.
        let mut editor = Editor::<(), _>::with_history(Config::default(), MemHistory::new())
            .map_err(unreadable)?;
        let mut interrupted = false;
        loop {
            match editor.readline("> ") {
                Ok(line) => {
                    interrupted = false;
                    // Only for going back with the arrow keys.
                    let _ = editor.add_history_entry(line.as_str());
                    match self.take(&line) {
                        Ok(true) => {}
                        Ok(false) => return Ok(()),
                        Err(failure @ (Failure::Output(_) | Failure::ReaderGone)) => {
                            return Err(failure);
                        }
                        // The conversation goes on; the person decides what to do.
                        Err(failure) => terminal::note(&failure.to_string()),
                    }
                }
                Err(ReadlineError::Interrupted) if interrupted => return Err(Failure::Interrupted),
                Err(ReadlineError::Interrupted) => {
                    interrupted = true;
                    terminal::note("Press Ctrl+C again or Ctrl+D to leave.");
                }
                Err(ReadlineError::Eof) => return Ok(()),
                Err(error) => return Err(unreadable(error)),
            }
        }
    }

    fn over_pipe(&mut self) -> Result<(), Failure> {
        let mut input = io::stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = io::Read::take(&mut input, MOST_LINE_BYTES + 1);
            let read = limited
                .read_until(b'\n', &mut line)
                .map_err(|e| Failure::Error(format!("Could not read stdin: {e}.")))?;
            if read == 0 {
                return Ok(());
            }
            if line.len() as u64 > MOST_LINE_BYTES {
                return Err(Failure::Error(format!(
                    "A line of stdin is longer than {} MiB, more than any model can read.",
                    MOST_LINE_BYTES >> 20
                )));
            }
            let text = std::str::from_utf8(&line)
                .map_err(|_| Failure::Error("A line of stdin is not UTF-8 text.".into()))?;
            if !self.take(text)? {
                return Ok(());
            }
        }
    }

    /// Does what a line says; false to leave.
    fn take(&mut self, line: &str) -> Result<bool, Failure> {
        match Entry::read(line) {
            Entry::Nothing => {}
            Entry::Say(text) => self.say(text)?,
            Entry::Reset => {
                self.messages.clear();
                self.session = self.model.engine.session();
                terminal::note("The conversation starts over.");
            }
            Entry::Help => terminal::notes(HELP),
            Entry::Quit => return Ok(false),
            Entry::Unknown(command) => terminal::note(&format!(
                "There is no command {command}. /help shows those there are."
            )),
        }
        Ok(true)
    }

    fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.messages.push(Message {
            role: Role::User,
            text: text.to_owned(),
        });
        let sampling = model::sampling(&self.options.sampling);
        let written = once::write(
            &self.model.engine,
            &mut self.session,
            &self.messages,
            &sampling,
            &mut self.answers,
        );
        match written {
            Ok(answer) => {
                if terminal::is_watched() {
                    terminal::note(&summary(&answer));
                }
                if answer.text.is_empty() && answer.finish == Finish::Cancelled {
                    // Stopped before its first word: as if it had not been asked.
                    self.messages.pop();
                } else {
                    self.messages.push(Message {
                        role: Role::Assistant,
                        text: answer.text,
                    });
                }
                Ok(())
            }
            Err(failure) => {
                // A message that could not be answered is not part of the conversation.
                self.messages.pop();
                Err(failure)
            }
        }
    }
}

/// One line about an answer: how it ended if not by itself, and how fast it was.
fn summary(answer: &Answer) -> String {
    let end = match answer.finish {
        Finish::End => "",
        Finish::Length => "cut off at the limit, ",
        Finish::Cancelled => "stopped, ",
    };
    let seconds = answer.decode.as_secs_f64();
    // The first token is the end of reading; speed is about those after it.
    let speed = match answer.answer_tokens {
        n if n > 1 && seconds > 0.0 => format!(", {:.1} tokens/s", (n - 1) as f64 / seconds),
        _ => String::new(),
    };
    format!(
        "[{end}{} tokens{speed}, {} of the context used]",
        answer.answer_tokens, answer.position
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_commands_or_nothing() {
        for (line, entry) in [
            ("", Entry::Nothing),
            (" \t\r\n", Entry::Nothing),
            ("hi\r\n", Entry::Say("hi")),
            ("/reset\n", Entry::Reset),
            ("/help ", Entry::Help),
            ("/quit", Entry::Quit),
            ("/fly away", Entry::Unknown("/fly")),
            (" /etc is what?", Entry::Say("/etc is what?")),
        ] {
            assert_eq!(Entry::read(line), entry, "{line:?}");
        }
    }
}
