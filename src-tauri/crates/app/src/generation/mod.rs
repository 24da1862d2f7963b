//! Writes answers: one engine thread, a queue before it, and a second thread that wakes listeners and saves the growing text, so that
//! neither a slow disk nor a slow listener can hold up the engine.
//!
//! The row in [`crate::chats`] is the truth. An answer is written to its end whether or not anyone listens.

mod conversation;
mod live;
mod pace;
mod tally;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastar_api::{
    AnswerStats, ApiError, Attachment, Chat, Draft, ErrorCode, Message, MessageStatus, NewMessage,
    Role, Thinking, TokenCount,
};
use fastar_engine::{Conversation, Event, Sampling};
use fastar_kernels::threads;

pub use live::Listener;
use live::{Live, TELL_EVERY};

use crate::chats::{Begun, Chats, Durability};
use crate::clock;
use crate::error::{Error, Result, guard, lock};
use crate::inference::Timeline;
use crate::models::Models;
use crate::sentinel::{Doing, Sentinel};
use crate::sessions::Sessions;

/// The text of an answer is saved so often, ...
const SAVE_EVERY: Duration = Duration::from_millis(500);
/// ... and every so many times in a way that survives a power cut.
const SYNC_EVERY: u32 = 10;
/// Longest message, its files included, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 2_000_000;
/// Most files of one message.
pub(crate) const MOST_FILES: usize = 20;
/// Most tokens of one answer: a model that repeats itself comes to an end, and the person may let it go on.
const MOST_TOKENS: usize = 32_768;
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
    sentinel: Sentinel,
    /// How words are chosen, asked for anew with every answer.
    sampling: Box<dyn Fn() -> Sampling + Send + Sync>,
    work: Mutex<Work>,
    changed: Condvar,
    /// Tokens of the conversation that was counted last; counting a long one takes a second.
    counted: Mutex<Option<(Counted, usize)>>,
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

    /// Refuses a change to a chat whose last answer is in memory only: its row must stay where the text is to be written.
    fn all_saved(&self, chat_id: &str) -> Result<()> {
        match self.unsaved.iter().find(|(it, _)| it.chat_id == chat_id) {
            Some((_, why)) => Err(Error::Told(why.clone())),
            None => Ok(()),
        }
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

/// What a count of tokens depends on: chat, last message and its length (an answer may be continued), instructions, thinking, model.
type Counted = (
    Option<String>,
    Option<(String, usize)>,
    String,
    Thinking,
    u64,
);

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
        sentinel: Sentinel,
        sampling: Box<dyn Fn() -> Sampling + Send + Sync>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            chats,
            models,
            sessions,
            sentinel,
            sampling,
            work: Mutex::default(),
            changed: Condvar::new(),
            counted: Mutex::default(),
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
            threads::start(name, move || body(&shared))
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
    pub(crate) fn send(&self, chat_id: Option<&str>, message: &NewMessage) -> Result<Listener> {
        check_message(message)?;
        self.begin(chat_id, |chats, model| {
            chats.begin(chat_id, message, model, clock::now())
        })
    }

    /// Begins the answer to a new version of the person's message.
    pub(crate) fn edit(&self, message_id: &str, message: &NewMessage) -> Result<Listener> {
        check_message(message)?;
        let chat = self.shared.chats.chat_of(message_id)?;
        self.begin(Some(&chat), |chats, model| {
            chats.begin_edited(message_id, message, model, clock::now())
        })
    }

    /// Begins a new version of an answer.
    pub(crate) fn regenerate(&self, answer_id: &str, thinking: Thinking) -> Result<Listener> {
        let chat = self.shared.chats.chat_of(answer_id)?;
        self.begin(Some(&chat), |chats, model| {
            chats.begin_again(answer_id, thinking, model, clock::now())
        })
    }

    /// Goes on with an answer that was cut off.
    pub(crate) fn continue_answer(&self, answer_id: &str) -> Result<Listener> {
        let chat = self.shared.chats.chat_of(answer_id)?;
        self.begin(Some(&chat), |chats, model| {
            chats.begin_continued(answer_id, model, clock::now())
        })
    }

    /// Makes a new version of an answer out of what the person wrote, and shows it.
    pub(crate) fn edit_answer(&self, answer_id: &str, text: &str) -> Result<Chat> {
        check_text(text, text.len())?;
        self.rearrange(answer_id, |chats| {
            chats.edit_answer(answer_id, text, clock::now())
        })
    }

    /// Shows another version of a message.
    pub(crate) fn show_version(&self, message_id: &str) -> Result<Chat> {
        self.rearrange(message_id, |chats| chats.show_version(message_id))
    }

    /// Changes which messages of a chat are shown, while nothing is being written in it.
    fn rearrange(
        &self,
        message_id: &str,
        change: impl FnOnce(&Chats) -> Result<String>,
    ) -> Result<Chat> {
        let shared = &self.shared;
        let chat = shared.chats.chat_of(message_id)?;
        let _none_begins = lock(&shared.beginning);
        shared.save_unsaved();
        {
            let work = lock(&shared.work);
            if work.all().any(|live| live.chat_id == chat) {
                return Err(Error::Busy);
            }
            work.all_saved(&chat)?;
        }
        let chat = change(&shared.chats)?;
        self.chat(&chat)
    }

    /// How many tokens a message would have, and the prompt with it.
    pub(crate) fn count(&self, chat_id: Option<&str>, message: &NewMessage) -> Result<TokenCount> {
        let text = conversation::text_of(message);
        if text.len() > 2 * MAX_MESSAGE_BYTES {
            return Err(too_long(text.len()));
        }
        let shared = &self.shared;
        let loaded = shared.models.in_use().ok_or(Error::NoModel)?;
        let own = loaded.model.text_tokens(&text)?;
        let (system, messages) = match chat_id {
            None => (message.system.clone(), Vec::new()),
            Some(id) => {
                let chat = self.chat(id)?;
                (chat.system, chat.messages)
            }
        };
        let key: Counted = (
            chat_id.map(str::to_owned),
            messages
                .last()
                .map(|message| (message.id.clone(), live::size(message))),
            system.clone(),
            message.thinking,
            loaded.number,
        );
        let writing = |m: &Message| m.status == MessageStatus::Writing;
        let settled = !messages.last().is_some_and(writing);
        let known = lock(&shared.counted)
            .as_ref()
            .filter(|(of, _)| settled && *of == key)
            .map(|(_, tokens)| *tokens);
        let before = match known {
            Some(tokens) => tokens,
            None => {
                // The text of a message is tokenised by itself, so an empty one stands for it.
                let mut conversation =
                    conversation::before_answer(&system, messages, message.thinking, None);
                conversation
                    .turns
                    .push(fastar_engine::Turn::User(String::new()));
                let tokens = loaded.model.prompt_tokens(&conversation)?;
                if settled {
                    *lock(&shared.counted) = Some((key, tokens));
                }
                tokens
            }
        };
        Ok(TokenCount {
            message: count(own),
            prompt: count(before + own),
            context_size: loaded.info.context_size,
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
            chat_id.map_or(Ok(()), |id| work.all_saved(id))?;
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
        let (chat, mut message, before) = shared.chats.message(answer_id)?;
        if message.role != Role::Assistant {
            return Err(Error::AnswerNotFound);
        }
        overlay(&unsaved, std::slice::from_mut(&mut message));
        if message.status == MessageStatus::Writing {
            // Nobody writes it: the row was changed by another program.
            message.status = MessageStatus::Interrupted;
        }
        Ok(Live::new(chat, message, (before.clone(), before), 0).listen(None))
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
        match id.map_or(Ok(()), |id| self.stop(&id)) {
            // It has ended meanwhile, and where its chat is deleted nobody finds it any more.
            Err(Error::AnswerNotFound) => Ok(()),
            stopped => stopped,
        }
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
            let _entry = self.sentinel.note(Doing::Answering {
                chat: live.chat_id.clone(),
            });
            match guard(|| self.write(&live, &mut recent)) {
                Ok((status, stats)) => self.finish(&live, status, stats, None),
                Err(error) => {
                    tracing::warn!(answer = %live.id, code = ?error.code, "an answer failed");
                    // After a refusal or a fault of the disk a timeline is whole, and reading a long chat again takes minutes; after a mistake of
                    // ours, or numbers that are none, nobody knows.
                    if error.code == ErrorCode::Internal {
                        recent = None;
                    }
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
        let conversation = self.conversation(live)?;
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
        let mut sampling = (self.sampling)();
        sampling.max_tokens = sampling.max_tokens.or(Some(MOST_TOKENS));
        let before = live.answer();
        let mut tally = tally::Tally::begin(loaded.model.as_ref());
        let answer = recent
            .timeline
            .reply(
                &conversation,
                &sampling,
                &live.cancel,
                &mut |event| match event {
                    Event::Prefill { done, total } => {
                        if done == total {
                            tally.prompt_read(loaded.model.as_ref());
                        }
                        live.prefill(count(done), count(total));
                    }
                    Event::Reasoning(text) => live.push_reasoning(text),
                    Event::Text(text) => live.push(text),
                    // No tools are offered.
                    Event::Call(_) | Event::BrokenCall { .. } => {}
                },
            )
            .map_err(Error::from)?;
        let status = match answer.finish {
            fastar_engine::Finish::Cancelled => MessageStatus::Stopped,
            fastar_engine::Finish::End | fastar_engine::Finish::Length => MessageStatus::Done,
        };
        let stats = tally.stats(loaded.model.as_ref(), &answer, loaded.info.context_size);
        let earlier = before.stats.filter(|_| live.continues);
        let stats = match earlier {
            Some(earlier) => tally::sum(&earlier, stats),
            None => stats,
        };
        Ok((status, Some(stats)))
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
    fn conversation(&self, live: &Live) -> Result<Conversation> {
        let unsaved = lock(&self.work).unsaved.clone();
        let Chat {
            mut messages,
            system,
            ..
        } = self.chats.chat(&live.chat_id)?;
        overlay(&unsaved, &mut messages);
        let end = messages
            .iter()
            .position(|message| message.id == live.id)
            .unwrap_or(messages.len());
        messages.truncate(end);
        let begun = live.continues.then(|| live.answer());
        Ok(conversation::before_answer(
            &system,
            messages,
            live.thinking,
            begun,
        ))
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
            if let Some(loaded) = self.models.loaded() {
                let activity = loaded.model.activity();
                live.look_at_pace(activity.alone, activity.alone_time);
            }
            let Some((reasoning, text)) = live.unsaved_text() else {
                continue;
            };
            saves = saves.wrapping_add(1);
            let durability = if saves.is_multiple_of(SYNC_EVERY) {
                Durability::PowerCut
            } else {
                Durability::Process
            };
            let saved = self
                .chats
                .save_text(&live.id, reasoning.as_deref(), &text, durability);
            match saved {
                Ok(()) => live.note_saved(text.len() + reasoning.map_or(0, |text| text.len())),
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

/// Refuses a message that is empty or too long.
pub(crate) fn check_message(message: &NewMessage) -> Result<()> {
    let files = &message.attachments;
    check_files(files, "message")?;
    let bytes: usize = files.iter().map(|file| file.text.len()).sum();
    match files.iter().find(|file| !file.text.trim().is_empty()) {
        Some(file) => check_text(&file.text, bytes + message.text.len()),
        None => check_text(&message.text, bytes + message.text.len()),
    }?;
    crate::chats::check_system(&message.system)
}

/// Refuses too many files, and names that no line of the window could show. A name is only ever shown, never opened.
fn check_files(files: &[Attachment], of: &str) -> Result<()> {
    if files.len() > MOST_FILES {
        return Err(Error::BadRequest(format!(
            "The {of} has {} files, and {MOST_FILES} is the limit.",
            files.len()
        )));
    }
    if let Some(file) = files.iter().find(|file| {
        file.name.is_empty() || file.name.len() > 255 || file.name.chars().any(char::is_control)
    }) {
        return Err(Error::BadRequest(format!(
            "A file cannot be attached under the name {:?}.",
            file.name.chars().take(80).collect::<String>()
        )));
    }
    Ok(())
}

/// Refuses a draft with more in it than a message may have. It may be empty.
pub(crate) fn check_draft(draft: &Draft) -> Result<()> {
    check_files(&draft.attachments, "draft")?;
    let files: usize = draft.attachments.iter().map(|file| file.text.len()).sum();
    let edit = draft.edit.as_ref();
    for bytes in [
        files + draft.text.len(),
        edit.map_or(0, |edit| edit.text.len()),
    ] {
        if bytes > MAX_MESSAGE_BYTES {
            return Err(Error::BadRequest(format!(
                "The draft has {bytes} bytes, and {MAX_MESSAGE_BYTES} is the limit."
            )));
        }
    }
    Ok(())
}

fn check_text(text: &str, bytes: usize) -> Result<()> {
    if bytes > MAX_MESSAGE_BYTES {
        return Err(too_long(bytes));
    }
    if text.chars().all(|c| c.is_whitespace() || c.is_control()) {
        return Err(Error::BadRequest("The message is empty.".into()));
    }
    Ok(())
}

fn too_long(bytes: usize) -> Error {
    Error::BadRequest(format!(
        "The message has {bytes} bytes, and {MAX_MESSAGE_BYTES} is the limit."
    ))
}
