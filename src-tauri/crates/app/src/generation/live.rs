//! One answer while it is being written, and those who listen to it.
//!
//! Listeners pull: each remembers how far it has read and is woken when there is more. So nothing is buffered per listener, a slow
//! one gets its text in larger pieces, one that vanished costs nothing, and none of them can hold up the engine or take text from
//! another. Attaching is one look at the state: no text can fall between "so far" and "what follows".

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastar_api::{
    AnswerStats, ApiError, ChatSummary, GenerationEvent, Message, MessageStatus, Thinking,
};
use fastar_engine::Cancel;
use tokio::sync::watch;

use super::pace::Pace;
use crate::chats::Begun;
use crate::error::lock;

/// Listeners hear of new text at most this often ...
pub(super) const TELL_EVERY: Duration = Duration::from_millis(40);
/// ... unless so many bytes are waiting.
const TELL_BYTES: usize = 2048;

pub(crate) struct Live {
    pub(super) id: String,
    pub(super) chat_id: String,
    /// How it is asked to think.
    pub(super) thinking: Thinking,
    /// There was something of it already, and it goes on from there.
    pub(super) continues: bool,
    /// The message that the new rows stand behind.
    after: Option<String>,
    /// The message before the answer.
    question: Option<String>,
    pub(super) cancel: Cancel,
    state: Mutex<State>,
    /// Counts what is worth a look.
    news: watch::Sender<u64>,
}

struct State {
    chat: ChatSummary,
    answer: Message,
    /// Answers that are written before this one.
    ahead: u32,
    /// Prompt tokens read, of how many, and the seconds that the rest will take.
    prefill: Option<(u32, u32, Option<f64>)>,
    reading: Reading,
    pace: Pace,
    /// Tokens a second lately.
    speed: Option<f64>,
    /// The first thought or word is there.
    begun: bool,
    thinks_since: Option<Instant>,
    /// How long it had thought before it was continued.
    thought_ms: f64,
    /// Someone has decided how it ends; later text and later ends are ignored.
    ended: bool,
    /// The end is saved and may be told.
    closed: bool,
    /// Bytes of the text that listeners were woken for.
    told: usize,
    told_at: Option<Instant>,
    /// Bytes of the text that are in the row.
    saved: usize,
}

impl Live {
    /// `after` is the message that the rows which are new stand behind, `question` the one before the answer.
    pub(super) fn new(
        chat: ChatSummary,
        answer: Message,
        (after, question): (Option<String>, Option<String>),
        ahead: u32,
    ) -> Arc<Self> {
        let closed = answer.status != MessageStatus::Writing;
        Arc::new(Self {
            id: answer.id.clone(),
            chat_id: answer.chat_id.clone(),
            thinking: answer.thinking,
            continues: size(&answer) > 0,
            after,
            question,
            cancel: Cancel::default(),
            state: Mutex::new(State {
                told: size(&answer),
                saved: size(&answer),
                reading: Reading::default(),
                pace: Pace::default(),
                speed: None,
                begun: false,
                thinks_since: None,
                thought_ms: answer.reasoning_ms.unwrap_or(0.0),
                chat,
                answer,
                ahead,
                prefill: None,
                ended: closed,
                closed,
                told_at: None,
            }),
            news: watch::Sender::new(0),
        })
    }

    pub(super) fn begun(begun: &Begun, ahead: u32) -> Arc<Self> {
        let after = begun.after.clone();
        let question = begun.user.as_ref().map(|user| user.id.clone());
        let question = question.or_else(|| after.clone());
        Self::new(
            begun.chat.clone(),
            begun.answer.clone(),
            (after, question),
            ahead,
        )
    }

    /// A listener that hears everything from here on; `user` is the message that it sent itself.
    pub(super) fn listen(self: &Arc<Self>, user: Option<Message>) -> Listener {
        Listener {
            news: self.news.subscribe(),
            live: Arc::clone(self),
            user: user.map(Box::new),
            heard: None,
            finished: false,
        }
    }

    pub(super) fn chat(&self) -> ChatSummary {
        lock(&self.state).chat.clone()
    }

    fn tell(&self) {
        self.news
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(super) fn set_ahead(&self, ahead: u32) {
        lock(&self.state).ahead = ahead;
        self.tell();
    }

    /// Its turn has come.
    pub(super) fn start(&self, model: &str) {
        {
            let mut state = lock(&self.state);
            state.ahead = 0;
            state.answer.model = Some(model.to_owned());
        }
        self.tell();
    }

    pub(super) fn prefill(&self, done: u32, total: u32) {
        {
            let mut state = lock(&self.state);
            let left = state.reading.left(done, total, Instant::now());
            state.prefill = Some((done, total, left));
        }
        self.tell();
    }

    /// What the engine has counted: tokens computed one by one since the model was loaded, and the time that took.
    pub(super) fn look_at_pace(&self, tokens: u64, time: Duration) {
        {
            let mut state = lock(&self.state);
            if !state.begun || state.ended {
                return;
            }
            state.speed = state.pace.look(tokens, time);
        }
        self.tell();
    }

    /// More thoughts from the engine.
    pub(super) fn push_reasoning(&self, text: &str) {
        self.push_to(text, true);
    }

    /// More text from the engine. Costs an append; listeners are woken now and then.
    pub(super) fn push(&self, text: &str) {
        self.push_to(text, false);
    }

    fn push_to(&self, text: &str, reasoning: bool) {
        let wake = {
            let mut state = lock(&self.state);
            if state.ended {
                return;
            }
            state.begun = true;
            if reasoning {
                state.thinks_since.get_or_insert_with(Instant::now);
                let thoughts = state.answer.reasoning.get_or_insert_default();
                thoughts.push_str(text);
            } else {
                state.note_thought();
                state.answer.text.push_str(text);
            }
            let waited = state.told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY);
            let wake = waited || size(&state.answer) - state.told >= TELL_BYTES;
            if wake {
                state.note_told();
            }
            wake
        };
        if wake {
            self.tell();
        }
    }

    /// Wakes listeners for text that [`Live::push`] left waiting.
    pub(super) fn tell_waiting(&self) {
        {
            let mut state = lock(&self.state);
            if state.told == size(&state.answer) {
                return;
            }
            state.note_told();
        }
        self.tell();
    }

    /// All thoughts and the whole text, if the row does not have them yet.
    pub(super) fn unsaved_text(&self) -> Option<(Option<String>, String)> {
        let state = lock(&self.state);
        (!state.ended && state.saved < size(&state.answer))
            .then(|| (state.answer.reasoning.clone(), state.answer.text.clone()))
    }

    /// What there is of the answer.
    pub(super) fn answer(&self) -> Message {
        lock(&self.state).answer.clone()
    }

    pub(super) fn note_saved(&self, bytes: usize) {
        lock(&self.state).saved = bytes;
    }

    /// Decides how the answer ends and returns its row; none when that was decided before. Listeners hear of it in [`Live::close`].
    pub(super) fn end(
        &self,
        status: MessageStatus,
        stats: Option<AnswerStats>,
        error: Option<ApiError>,
    ) -> Option<Message> {
        let mut state = lock(&self.state);
        if state.ended {
            return None;
        }
        state.ended = true;
        state.note_thought();
        state.answer.status = status;
        // An answer that was to go on and did not keeps the numbers of what there is.
        if stats.is_some() || !self.continues {
            state.answer.stats = stats;
        }
        state.answer.error = error;
        Some(state.answer.clone())
    }

    /// Tells the end, after the row was saved (or could not be).
    pub(super) fn close(&self, chat: ChatSummary, answer: Message) {
        {
            let mut state = lock(&self.state);
            state.chat = chat;
            state.answer = answer;
            state.closed = true;
        }
        self.tell();
    }
}

impl State {
    fn note_told(&mut self) {
        self.told = size(&self.answer);
        self.told_at = Some(Instant::now());
    }

    /// The thinking is over, if there was some.
    fn note_thought(&mut self) {
        if let Some(since) = self.thinks_since.take() {
            self.thought_ms += since.elapsed().as_secs_f64() * 1000.0;
            self.answer.reasoning_ms = Some(self.thought_ms);
        }
    }
}

/// Bytes of thoughts and text.
pub(super) fn size(answer: &Message) -> usize {
    answer.text.len() + answer.reasoning.as_ref().map_or(0, String::len)
}

/// How fast the prompt was read lately: later pieces take longer than early ones, so the speed from the beginning would promise too much.
#[derive(Default)]
struct Reading(VecDeque<(u32, Instant)>);

impl Reading {
    const PIECES: usize = 6;

    /// Notes how far it is, and returns the seconds to the end.
    fn left(&mut self, done: u32, total: u32, now: Instant) -> Option<f64> {
        self.0.push_back((done, now));
        if self.0.len() > Self::PIECES {
            self.0.pop_front();
        }
        let (before, since) = *self.0.front()?;
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        let read = done.checked_sub(before).filter(|read| *read > 0)?;
        Some(f64::from(total.saturating_sub(done)) * seconds / f64::from(read))
    }
}

/// Hears one answer: `started`, then what follows, then `finished`. Dropping it ends nothing: the answer is written into its row
/// in any case.
pub struct Listener {
    live: Arc<Live>,
    news: watch::Receiver<u64>,
    user: Option<Box<Message>>,
    heard: Option<Heard>,
    finished: bool,
}

struct Heard {
    thoughts: usize,
    bytes: usize,
    ahead: u32,
    prefill: Option<(u32, u32, Option<f64>)>,
    speed: Option<f64>,
}

impl Listener {
    /// The answer's id, for [`crate::App::generation_attach`] and [`crate::App::generation_stop`].
    pub fn answer_id(&self) -> &str {
        &self.live.id
    }

    /// The next event; none after `finished`. Needs no particular runtime, and can be dropped and called again without loss.
    pub async fn next(&mut self) -> Option<GenerationEvent> {
        loop {
            if self.finished {
                return None;
            }
            // Marked as seen before looking: news that come in between wake us again.
            self.news.borrow_and_update();
            if let Some(event) = self.look() {
                return Some(event);
            }
            if self.news.changed().await.is_err() {
                return None;
            }
        }
    }

    fn look(&mut self) -> Option<GenerationEvent> {
        let state = lock(&self.live.state);
        let Some(heard) = &mut self.heard else {
            self.heard = Some(Heard {
                thoughts: state.answer.reasoning.as_ref().map_or(0, String::len),
                bytes: state.answer.text.len(),
                ahead: 0,
                prefill: None,
                speed: None,
            });
            let user = self.user.take().map(|user| *user);
            return Some(GenerationEvent::Started {
                after: match &user {
                    Some(_) => self.live.after.clone(),
                    None => self.live.question.clone(),
                },
                chat: state.chat.clone(),
                user,
                answer: state.answer.clone(),
            });
        };
        if state.ahead > 0 && heard.ahead != state.ahead {
            heard.ahead = state.ahead;
            return Some(GenerationEvent::Queued { ahead: state.ahead });
        }
        let thoughts = state.answer.reasoning.as_deref().unwrap_or_default();
        if heard.thoughts < thoughts.len() {
            let text = thoughts[heard.thoughts..].to_owned();
            heard.thoughts = thoughts.len();
            return Some(GenerationEvent::Reasoning { text });
        }
        if heard.bytes < state.answer.text.len() {
            let text = state.answer.text[heard.bytes..].to_owned();
            heard.bytes = state.answer.text.len();
            return Some(GenerationEvent::Text { text });
        }
        if !state.ended && heard.speed != state.speed {
            heard.speed = state.speed;
            if let Some(tokens_per_second) = state.speed {
                return Some(GenerationEvent::Pace { tokens_per_second });
            }
        }
        if state.closed {
            self.finished = true;
            return Some(GenerationEvent::Finished {
                chat: state.chat.clone(),
                answer: state.answer.clone(),
            });
        }
        if !state.begun && heard.prefill != state.prefill {
            heard.prefill = state.prefill;
            if let Some((done, total, seconds_left)) = state.prefill {
                return Some(GenerationEvent::Prefill {
                    done,
                    total,
                    seconds_left,
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_latest_pieces() {
        let (mut reading, begin) = (Reading::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        assert_eq!(reading.left(0, 1000, at(0)), None);
        // 100 tokens in 10 seconds: 900 take 90.
        assert_eq!(reading.left(100, 1000, at(10)), Some(90.0));
        assert_eq!(reading.left(100, 1000, at(11)), Some(99.0));
        // Then 100 tokens take 20 seconds; what is older than six pieces no longer counts.
        for n in 2..=7 {
            reading.left(100 * n, 1000, at(20 * u64::from(n)));
        }
        assert_eq!(reading.left(800, 1000, at(160)), Some(40.0));
        assert_eq!(reading.left(1000, 1000, at(200)), Some(0.0));
    }
}
