//! Writes answers: one engine thread, a queue before it, and a second thread that wakes listeners and saves the growing text, so that
//! neither a slow disk nor a slow listener can hold up the engine.
//!
//! The row in [`crate::chats`] is the truth. An answer is written to its end whether or not anyone listens.

mod live;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastar_api::{AnswerStats, ApiError, Chat, Finish, Message, MessageStatus, Role};
use fastar_engine::{Event, Sampling};

pub use live::Listener;
use live::{Live, TELL_EVERY};

use crate::chats::{Begun, Chats, Durability};
use crate::clock;
use crate::error::{Error, Result, guard, lock};
use crate::inference::Timeline;
use crate::models::{Loaded, Models};
use crate::sessions::Sessions;

/// The text of an answer is saved so often, ...
const SAVE_EVERY: Duration = Duration::from_millis(500);
/// ... and every so many times in a way that survives a power cut.
const SYNC_EVERY: u32 = 10;
/// Longest message, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 2_000_000;
/// So many answers may wait for their turn.
const MOST_WAITING: usize = 64;
/// At the end of the app, the engine gets so long to come to rest. Rows are saved before that.
const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) struct Generation {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    chats: Arc<Chats>,
    models: Arc<Models>,
    sessions: Sessions,
    /// How words are chosen, asked for anew with every answer.
    sampling: Box<dyn Fn() -> Sampling + Send + Sync>,
    work: Mutex<Work>,
    changed: Condvar,
    /// Held from "is this chat free" over "its rows are written" to "it is in the queue".
    beginning: Mutex<()>,
}

/// Every answer whose row says `writing` is in one of the lists, from the moment that its row exists (see [`Shared::beginning`])
/// until its row says how it ended. So who finds it in none of them can believe the row.
#[derive(Default)]
struct Work {
    queue: VecDeque<Arc<Live>>,
    running: Option<Arc<Live>>,
    /// Taken out of the queue, and their rows are about to say so.
    ending: Vec<Arc<Live>>,
    /// Ended answers whose row could not be written (full disk). They are tried again and shown meanwhile.
    unsaved: Vec<(Message, ApiError)>,
    closing: bool,
}

impl Work {
    fn all(&self) -> impl Iterator<Item = &Arc<Live>> {
        self.running.iter().chain(&self.queue).chain(&self.ending)
    }

    fn find(&self, answer_id: &str) -> Option<&Arc<Live>> {
        self.all().find(|live| live.id == answer_id)
    }

    fn ahead(&self) -> u32 {
        count(self.running.iter().chain(&self.queue).count())
    }

    fn tell_places(&self) {
        let running = u32::from(self.running.is_some());
        for (place, live) in (running..).zip(&self.queue) {
            live.set_ahead(place);
        }
    }
}

/// The timeline of the most recent chat, kept so that its next turn computes only what is new.
struct Recent {
    chat_id: String,
    model: u64,
    timeline: Box<dyn Timeline>,
}

impl Generation {
    pub(crate) fn start(
        chats: Arc<Chats>,
        models: Arc<Models>,
        sessions: Sessions,
        sampling: Box<dyn Fn() -> Sampling + Send + Sync>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            chats,
            models,
            sessions,
            sampling,
            work: Mutex::default(),
            changed: Condvar::new(),
            beginning: Mutex::default(),
        });
        // A weak reference: the models must not keep the generation alive.
        let weak = Arc::downgrade(&shared);
        shared.models.when_changed(Box::new(move || {
            if let Some(shared) = weak.upgrade() {
                shared.wake();
            }
        }));
        let spawn = |name: &str, body: fn(&Shared)| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || body(&shared))
                .map_err(Error::Thread)
        };
        let threads = vec![
            spawn("fastar-answers", Shared::answer_in_turn)?,
            spawn("fastar-saving", Shared::tell_and_save)?,
        ];
        Ok(Self {
            shared,
            threads: Mutex::new(threads),
        })
    }

    /// Begins the answer to a new message.
    pub(crate) fn send(&self, chat_id: Option<&str>, text: &str) -> Result<Listener> {
        if text.len() > MAX_MESSAGE_BYTES {
            return Err(Error::BadRequest(format!(
                "The message has {} bytes, and {MAX_MESSAGE_BYTES} is the limit.",
                text.len()
            )));
        }
        if text.chars().all(|c| c.is_whitespace() || c.is_control()) {
            return Err(Error::BadRequest("The message is empty.".into()));
        }
        self.begin(chat_id, |chats, model| {
            chats.begin(chat_id, text, model, clock::now())
        })
    }

    /// Begins a new answer in place of the last one.
    pub(crate) fn regenerate(&self, chat_id: &str) -> Result<Listener> {
        self.begin(Some(chat_id), |chats, model| {
            chats.begin_again(chat_id, model, clock::now())
        })
    }

    fn begin(
        &self,
        chat_id: Option<&str>,
        rows: impl FnOnce(&Chats, Option<&str>) -> Result<Begun>,
    ) -> Result<Listener> {
        let shared = &self.shared;
        let model = shared.models.expected_name()?;
        let _one_at_a_time = lock(&shared.beginning);
        shared.save_unsaved();
        {
            let work = lock(&shared.work);
            if chat_id.is_some_and(|id| work.all().any(|live| live.chat_id == id)) {
                return Err(Error::Busy);
            }
            if work.queue.len() >= MOST_WAITING {
                return Err(Error::QueueFull);
            }
        }
        let begun = rows(&shared.chats, Some(&model))?;
        let mut work = lock(&shared.work);
        let live = Live::begun(&begun, work.ahead());
        let listener = live.listen(begun.user);
        if work.closing {
            drop(work);
            shared.finish(&live, MessageStatus::Interrupted, None, None);
        } else {
            work.queue.push_back(live);
            drop(work);
            shared.wake();
        }
        Ok(listener)
    }

    /// Listens to an answer: its text so far, then the rest. One that has ended is told as it is.
    pub(crate) fn attach(&self, answer_id: &str) -> Result<Listener> {
        let shared = &self.shared;
        if let Some(live) = lock(&shared.work).find(answer_id) {
            return Ok(live.listen(None));
        }
        // It may have a row already and be on its way into the queue.
        let _none_begins = lock(&shared.beginning);
        shared.save_unsaved();
        let unsaved = {
            let work = lock(&shared.work);
            if let Some(live) = work.find(answer_id) {
                return Ok(live.listen(None));
            }
            work.unsaved.clone()
        };
        let (chat, mut message) = shared.chats.message(answer_id)?;
        if message.role != Role::Assistant {
            return Err(Error::AnswerNotFound);
        }
        overlay(&unsaved, std::slice::from_mut(&mut message));
        if message.status == MessageStatus::Writing {
            // Nobody writes it: the row was changed by another program.
            message.status = MessageStatus::Interrupted;
        }
        Ok(Live::new(chat, message, 0).listen(None))
    }

    /// Stops an answer, also while it waits. One that has ended stays as it is.
    pub(crate) fn stop(&self, answer_id: &str) -> Result<()> {
        let shared = &self.shared;
        if lock(&shared.work).find(answer_id).is_none() {
            // It may have a row already and be on its way into the queue.
            drop(lock(&shared.beginning));
        }
        let mut work = lock(&shared.work);
        if let Some(place) = work.queue.iter().position(|live| live.id == answer_id) {
            let waiting = work.queue.remove(place);
            work.ending.extend(waiting.clone());
            work.tell_places();
            drop(work);
            if let Some(live) = waiting {
                shared.finish(&live, MessageStatus::Stopped, None, None);
            }
            return Ok(());
        }
        if let Some(live) = work.running.as_ref().filter(|live| live.id == answer_id) {
            live.cancel.cancel();
            return Ok(());
        }
        drop(work);
        shared.chats.message(answer_id).map(|_| ())
    }

    /// Stops whatever is being written in a chat.
    pub(crate) fn stop_chat(&self, chat_id: &str) -> Result<()> {
        let id = lock(&self.shared.work)
            .all()
            .find(|live| live.chat_id == chat_id)
            .map(|live| live.id.clone());
        id.map_or(Ok(()), |id| self.stop(&id))
    }

    /// Whether an answer is being written at this moment.
    pub(crate) fn is_writing(&self) -> bool {
        lock(&self.shared.work).running.is_some()
    }

    /// Stops the answer that is being written; those that wait stay in their queue.
    pub(crate) fn stop_writing(&self) {
        if let Some(live) = &lock(&self.shared.work).running {
            live.cancel.cancel();
        }
    }

    /// Drops what was kept of a chat's computation.
    pub(crate) fn forget(&self, chat_id: &str) {
        self.shared.sessions.forget(chat_id);
    }

    /// A chat as its rows are, with ended answers that could not be saved.
    pub(crate) fn chat(&self, id: &str) -> Result<Chat> {
        self.shared.save_unsaved();
        let unsaved = lock(&self.shared.work).unsaved.clone();
        let mut chat = self.shared.chats.chat(id)?;
        overlay(&unsaved, &mut chat.messages);
        Ok(chat)
    }

    /// Ends all work: rows first, then the threads. Later messages are refused.
    pub(crate) fn shut_down(&self) {
        let shared = &self.shared;
        let open: Vec<_> = {
            let mut work = lock(&shared.work);
            work.closing = true;
            let waiting = std::mem::take(&mut work.queue);
            work.ending.extend(waiting);
            work.all().cloned().collect()
        };
        for live in open {
            live.cancel.cancel();
            shared.finish(&live, MessageStatus::Interrupted, None, None);
        }
        shared.save_unsaved();
        shared.wake();
        let since = Instant::now();
        for thread in lock(&self.threads).drain(..) {
            while !thread.is_finished() && since.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
            if thread.is_finished() && thread.join().is_err() {
                tracing::warn!("a thread had ended in a panic");
            }
        }
    }
}

impl Shared {
    fn wake(&self) {
        // Taken and released so that no thread is between its look at the work and its wait.
        drop(lock(&self.work));
        self.changed.notify_all();
    }

    /// The engine thread.
    fn answer_in_turn(&self) {
        let mut recent: Option<Recent> = None;
        loop {
            let live = {
                let mut work = lock(&self.work);
                loop {
                    if work.closing {
                        drop(work);
                        self.keep(recent.take());
                        return;
                    }
                    // An idle timeline must not keep the memory of a model that was replaced.
                    if recent
                        .as_ref()
                        .is_some_and(|r| Some(r.model) != self.models.number_in_use())
                    {
                        drop(work);
                        self.keep(recent.take());
                        work = lock(&self.work);
                        continue;
                    }
                    if let Some(live) = work.queue.pop_front() {
                        work.running = Some(Arc::clone(&live));
                        work.tell_places();
                        break live;
                    }
                    work = self
                        .changed
                        .wait(work)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            };
            self.changed.notify_all();
            match guard(|| self.write(&live, &mut recent)) {
                Ok((status, stats)) => self.finish(&live, status, stats, None),
                Err(error) => {
                    tracing::warn!(answer = %live.id, code = ?error.code, "an answer failed");
                    recent = None;
                    self.finish(&live, MessageStatus::Failed, None, Some(error));
                }
            }
        }
    }

    fn write(
        &self,
        live: &Live,
        recent: &mut Option<Recent>,
    ) -> std::result::Result<(MessageStatus, Option<AnswerStats>), ApiError> {
        let Some(loaded) = self.models.wait(&live.cancel)? else {
            return Ok((MessageStatus::Stopped, None));
        };
        if live.cancel.is_cancelled() {
            return Ok((MessageStatus::Stopped, None));
        }
        live.start(&loaded.info.name);
        let messages = self.history(live)?;
        let fits = |r: &Recent| r.chat_id == live.chat_id && r.model == loaded.number;
        let current = match recent.take_if(|recent| fits(recent)) {
            Some(current) => current,
            None => {
                // The old timeline is gone before a new one takes memory.
                self.keep(recent.take());
                let mut timeline = loaded.model.timeline();
                self.sessions.load(&live.chat_id, timeline.as_mut());
                Recent {
                    chat_id: live.chat_id.clone(),
                    model: loaded.number,
                    timeline,
                }
            }
        };
        let recent = recent.insert(current);
        let sampling = (self.sampling)();
        let answer = recent
            .timeline
            .answer(
                &messages,
                &sampling,
                &live.cancel,
                &mut |event| match event {
                    Event::Prefill { done, total } => live.prefill(count(done), count(total)),
                    Event::Text(text) => live.push(text),
                    // Plain messages ask for neither reasoning nor tools.
                    Event::Reasoning(_) | Event::Call(_) | Event::BrokenCall { .. } => {}
                },
            )
            .map_err(Error::from)?;
        let status = match answer.finish {
            fastar_engine::Finish::Cancelled => MessageStatus::Stopped,
            fastar_engine::Finish::End | fastar_engine::Finish::Length => MessageStatus::Done,
        };
        Ok((status, Some(stats(&answer, &loaded))))
    }

    /// Writes a timeline down before it is dropped, unless its chat has been deleted.
    fn keep(&self, recent: Option<Recent>) {
        if let Some(recent) = recent
            && self.chats.chat(&recent.chat_id).is_ok()
        {
            self.sessions
                .save(&recent.chat_id, recent.timeline.as_ref());
        }
    }

    /// The conversation before an answer, as the engine wants it.
    fn history(&self, live: &Live) -> Result<Vec<fastar_engine::Message>> {
        let unsaved = lock(&self.work).unsaved.clone();
        let mut messages = self.chats.chat(&live.chat_id)?.messages;
        overlay(&unsaved, &mut messages);
        // An answer that failed before its first word is no part of the conversation, nor is the message that it failed at: it was
        // never taken in, and one that is too long would make all later ones fail.
        let failed = |message: &Message| {
            message.role == Role::Assistant
                && message.status == MessageStatus::Failed
                && message.text.is_empty()
        };
        let refused: Vec<String> = messages
            .windows(2)
            .filter(|pair| pair[0].role == Role::User && failed(&pair[1]))
            .map(|pair| pair[0].id.clone())
            .collect();
        Ok(messages
            .into_iter()
            .take_while(|message| message.id != live.id)
            .filter(|message| match message.role {
                Role::User => !refused.contains(&message.id),
                Role::Assistant => !message.text.is_empty(),
            })
            .map(|message| fastar_engine::Message {
                role: match message.role {
                    Role::User => fastar_engine::Role::User,
                    Role::Assistant => fastar_engine::Role::Assistant,
                },
                text: message.text,
            })
            .collect())
    }

    /// Ends an answer once: its row, then the chat is free again, then its listeners hear of it (and may send the next message at once).
    fn finish(
        &self,
        live: &Live,
        status: MessageStatus,
        stats: Option<AnswerStats>,
        error: Option<ApiError>,
    ) {
        let Some(mut answer) = live.end(status, stats, error) else {
            return;
        };
        let chat = match self.chats.finish(&answer, clock::now()) {
            Ok(chat) => chat,
            Err(error) => {
                let error = ApiError::from(error);
                tracing::warn!(answer = %live.id, %error, "an answer could not be saved");
                lock(&self.work)
                    .unsaved
                    .push((answer.clone(), error.clone()));
                answer.status = MessageStatus::Failed;
                answer.error = Some(error);
                live.chat()
            }
        };
        {
            let mut work = lock(&self.work);
            if work.running.as_ref().is_some_and(|it| it.id == live.id) {
                work.running = None;
            }
            work.ending.retain(|it| it.id != live.id);
        }
        live.close(chat, answer);
    }

    /// Tries again to write rows that could not be written. They stay listed until they are.
    fn save_unsaved(&self) {
        let waiting = lock(&self.work).unsaved.clone();
        for (answer, _) in waiting {
            let saved = self.chats.finish(&answer, clock::now());
            let unsaved = &mut lock(&self.work).unsaved;
            match saved {
                Ok(_) => unsaved.retain(|(it, _)| it.id != answer.id),
                Err(error) => {
                    if let Some((_, why)) = unsaved.iter_mut().find(|(it, _)| it.id == answer.id) {
                        *why = error.into();
                    }
                }
            }
        }
    }

    /// The second thread: wakes listeners and saves the growing text.
    fn tell_and_save(&self) {
        let mut saved_at = Instant::now();
        let mut saves: u32 = 0;
        loop {
            let live = {
                let mut work = lock(&self.work);
                loop {
                    if work.closing {
                        return;
                    }
                    if let Some(live) = &work.running {
                        break Arc::clone(live);
                    }
                    work = self
                        .changed
                        .wait(work)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            };
            std::thread::sleep(TELL_EVERY);
            live.tell_waiting();
            if saved_at.elapsed() < SAVE_EVERY {
                continue;
            }
            saved_at = Instant::now();
            let Some(text) = live.unsaved_text() else {
                continue;
            };
            saves = saves.wrapping_add(1);
            let durability = if saves.is_multiple_of(SYNC_EVERY) {
                Durability::PowerCut
            } else {
                Durability::Process
            };
            match self.chats.save_text(&live.id, &text, durability) {
                Ok(()) => live.note_saved(text.len()),
                // Tried again in half a second; if the end cannot be saved either, the person is told.
                Err(error) => tracing::warn!(%error, "the text so far could not be saved"),
            }
        }
    }
}

/// Puts ended answers that could not be saved over their rows. The list must be older than the rows: an answer leaves it when its
/// row is written.
fn overlay(unsaved: &[(Message, ApiError)], messages: &mut [Message]) {
    for message in messages {
        if let Some((answer, error)) = unsaved.iter().find(|(it, _)| it.id == message.id) {
            *message = answer.clone();
            message.status = MessageStatus::Failed;
            message.error = Some(error.clone());
        }
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn stats(answer: &fastar_engine::Answer, loaded: &Loaded) -> AnswerStats {
    let seconds = answer.decode.as_secs_f64();
    // The first token ends the prefill; the decode time is that of the others.
    let intervals = answer.answer_tokens.saturating_sub(1);
    AnswerStats {
        prompt_tokens: count(answer.prompt_tokens),
        reused_tokens: count(answer.reused_tokens),
        answer_tokens: count(answer.answer_tokens),
        first_token_ms: milliseconds(answer.first_token.unwrap_or(answer.prefill)),
        prefill_ms: milliseconds(answer.prefill),
        decode_ms: milliseconds(answer.decode),
        tokens_per_second: (intervals > 0 && seconds > 0.0).then(|| intervals as f64 / seconds),
        context_used: count(answer.position),
        context_size: loaded.info.context_size,
        finish: match answer.finish {
            fastar_engine::Finish::End => Finish::End,
            fastar_engine::Finish::Length => Finish::Length,
            fastar_engine::Finish::Cancelled => Finish::Stopped,
        },
    }
}
