//! One answer while it is being written, and those who listen to it.
//!
//! Listeners pull: each remembers how far it has read and is woken when there is more. So nothing is buffered per listener, a slow
//! one gets its text in larger pieces, one that vanished costs nothing, and none of them can hold up the engine or take text from
//! another. Attaching is one look at the state: no text can fall between "so far" and "what follows".

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastar_api::{AnswerStats, ApiError, ChatSummary, GenerationEvent, Message, MessageStatus};
use fastar_engine::Cancel;
use tokio::sync::watch;

use crate::chats::Begun;
use crate::error::lock;

/// Listeners hear of new text at most this often ...
pub(super) const TELL_EVERY: Duration = Duration::from_millis(40);
/// ... unless so many bytes are waiting.
const TELL_BYTES: usize = 2048;

pub(crate) struct Live {
    pub(super) id: String,
    pub(super) chat_id: String,
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
    /// Prompt tokens read, of how many.
    prefill: Option<(u32, u32)>,
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
    pub(super) fn new(chat: ChatSummary, answer: Message, ahead: u32) -> Arc<Self> {
        let closed = answer.status != MessageStatus::Writing;
        Arc::new(Self {
            id: answer.id.clone(),
            chat_id: answer.chat_id.clone(),
            cancel: Cancel::default(),
            state: Mutex::new(State {
                told: answer.text.len(),
                saved: answer.text.len(),
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
        Self::new(begun.chat.clone(), begun.answer.clone(), ahead)
    }

    /// A listener that hears everything from here on; `user` is the message that it sent itself.
    pub(super) fn listen(self: &Arc<Self>, user: Option<Message>) -> Listener {
        Listener {
            news: self.news.subscribe(),
            live: Arc::clone(self),
            user,
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
        lock(&self.state).prefill = Some((done, total));
        self.tell();
    }

    /// More text from the engine. Costs an append; listeners are woken now and then.
    pub(super) fn push(&self, text: &str) {
        let wake = {
            let mut state = lock(&self.state);
            if state.ended {
                return;
            }
            state.answer.text.push_str(text);
            let waited = state.told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY);
            let wake = waited || state.answer.text.len() - state.told >= TELL_BYTES;
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
            if state.told == state.answer.text.len() {
                return;
            }
            state.note_told();
        }
        self.tell();
    }

    /// The whole text, if the row does not have it yet.
    pub(super) fn unsaved_text(&self) -> Option<String> {
        let state = lock(&self.state);
        (!state.ended && state.saved < state.answer.text.len()).then(|| state.answer.text.clone())
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
        state.answer.status = status;
        state.answer.stats = stats;
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
        self.told = self.answer.text.len();
        self.told_at = Some(Instant::now());
    }
}

/// Hears one answer: `started`, then what follows, then `finished`. Dropping it ends nothing: the answer is written into its row
/// in any case.
pub struct Listener {
    live: Arc<Live>,
    news: watch::Receiver<u64>,
    user: Option<Message>,
    heard: Option<Heard>,
    finished: bool,
}

struct Heard {
    bytes: usize,
    ahead: u32,
    prefill: Option<(u32, u32)>,
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
                bytes: state.answer.text.len(),
                ahead: 0,
                prefill: None,
            });
            return Some(GenerationEvent::Started {
                chat: state.chat.clone(),
                user: self.user.take(),
                answer: state.answer.clone(),
            });
        };
        if state.ahead > 0 && heard.ahead != state.ahead {
            heard.ahead = state.ahead;
            return Some(GenerationEvent::Queued { ahead: state.ahead });
        }
        if heard.bytes < state.answer.text.len() {
            let text = state.answer.text[heard.bytes..].to_owned();
            heard.bytes = state.answer.text.len();
            return Some(GenerationEvent::Text { text });
        }
        if state.closed {
            self.finished = true;
            return Some(GenerationEvent::Finished {
                chat: state.chat.clone(),
                answer: state.answer.clone(),
            });
        }
        if state.answer.text.is_empty() && heard.prefill != state.prefill {
            heard.prefill = state.prefill;
            if let Some((done, total)) = state.prefill {
                return Some(GenerationEvent::Prefill { done, total });
            }
        }
        None
    }
}
