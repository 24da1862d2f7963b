//! What FaStar does, without a window and without HTTP: chats, models, and answers that are being written.
//!
//! [`App`] has one method per command of the contract ([`fastar_api`]); the desktop shell and the server call them and add nothing.
//! Methods may wait for the disk, so a face calls them away from its own event loop.

mod chats;
mod clock;
mod data;
pub mod demo;
mod error;
mod generation;
pub mod inference;
mod links;
mod models;
mod sessions;
mod settings;
#[cfg(test)]
mod tests;

#[cfg(test)]
extern crate self as fastar_app;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastar_api::{ApiError, AppInfo, Chat, ChatSummary, ErrorCode, Face, ModelState};

pub use error::guard;
pub use generation::Listener;
pub use links::MAX_LINK_BYTES;

use chats::Chats;
use data::DataFolder;
use error::Error;
use generation::Generation;
use models::Models;
use sessions::Sessions;
use settings::Settings;

type Result<T> = std::result::Result<T, ApiError>;

/// Temperature of answers; `FASTAR_TEMPERATURE` overrides it.
const TEMPERATURE: f32 = 0.6;

/// How to open the app.
#[derive(Clone)]
pub struct Options {
    /// The face that asks.
    pub face: Face,
    /// Where chats and settings are kept; the system's place for application data when none.
    pub data_folder: Option<PathBuf>,
    /// A model file for this run only, instead of the remembered one.
    pub model: Option<PathBuf>,
    /// Temperature of answers; 0 makes them repeatable.
    pub temperature: f32,
    /// Loads models.
    pub loader: inference::Loader,
}

impl Options {
    /// The defaults with what the environment sets: `FASTAR_DATA_DIR`, `FASTAR_MODEL`, `FASTAR_TEMPERATURE`.
    pub fn from_environment(face: Face) -> Result<Self> {
        let path = |name| {
            std::env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let temperature = match std::env::var("FASTAR_TEMPERATURE") {
            Err(_) => TEMPERATURE,
            Ok(text) => text
                .trim()
                .parse()
                .ok()
                .filter(|t: &f32| t.is_finite() && (0.0..=10.0).contains(t))
                .ok_or_else(|| {
                    Error::BadRequest(format!(
                        "FASTAR_TEMPERATURE is {text:?}; it must be a number from 0 to 10."
                    ))
                })?,
        };
        Ok(Self {
            face,
            data_folder: path("FASTAR_DATA_DIR"),
            model: path("FASTAR_MODEL"),
            temperature,
            loader: Arc::new(inference::load),
        })
    }
}

/// The running app. Clones share everything; the last one to go saves and ends what is being written.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    // Dropped in this order: the lock of the folder goes last.
    generation: Generation,
    models: Arc<Models>,
    chats: Arc<Chats>,
    data: DataFolder,
    face: Face,
    notice: Option<String>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.generation.shut_down();
    }
}

impl App {
    /// Takes the data folder, opens the chats, and begins to load a model.
    pub fn open(options: Options) -> Result<Self> {
        error::install_panic_hook();
        let data = DataFolder::take(&data::default_folder(options.data_folder)?)?;
        let now = clock::now();
        let (settings, settings_notice) = Settings::open(data.path(), &clock::file_date(now))?;
        let (chats, chats_notice) = Chats::open(data.path(), now)?;
        let given = match options.model {
            Some(path) => Some(std::path::absolute(&path).map_err(Error::file(&path))?),
            None => None,
        };
        let chats = Arc::new(chats);
        let models = Models::start(options.loader, settings, given)?;
        let generation = Generation::start(
            Arc::clone(&chats),
            Arc::clone(&models),
            Sessions::open(data.path()),
            options.temperature,
        )?;
        let notices: Vec<_> = chats_notice.into_iter().chain(settings_notice).collect();
        Ok(Self(Arc::new(Inner {
            generation,
            models,
            chats,
            data,
            face: options.face,
            notice: (!notices.is_empty()).then(|| notices.join(" ")),
        })))
    }

    /// Facts about the running app.
    pub fn app_info(&self) -> AppInfo {
        AppInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            face: self.0.face,
            data_folder: self.0.data.path().display().to_string(),
            notice: self.0.notice.clone(),
        }
    }

    /// Where the model is on its way from file to answers.
    pub fn model_state(&self) -> ModelState {
        self.0.models.state()
    }

    /// Begins to load a model file that the person chose on this computer. It is remembered once it works.
    pub fn model_choose(&self, path: &Path) -> Result<ModelState> {
        Ok(self.0.models.choose(path)?)
    }

    /// Begins to load the embedded demo.
    pub fn model_use_demo(&self) -> Result<ModelState> {
        Ok(self.0.models.use_demo()?)
    }

    /// All chats, the last changed first.
    pub fn chat_list(&self) -> Result<Vec<ChatSummary>> {
        Ok(self.0.chats.list()?)
    }

    /// One chat with its messages.
    pub fn chat_open(&self, id: &str) -> Result<Chat> {
        Ok(self.0.generation.chat(id)?)
    }

    /// Sets a chat's title.
    pub fn chat_rename(&self, id: &str, title: &str) -> Result<ChatSummary> {
        Ok(self.0.chats.rename(id, title)?)
    }

    /// Deletes a chat; an answer being written in it is stopped. It can be restored for seven days.
    pub fn chat_delete(&self, id: &str) -> Result<()> {
        self.0.chats.delete(id, clock::now())?;
        self.0.generation.stop_chat(id)?;
        self.0.generation.forget(id);
        Ok(())
    }

    /// Undoes a deletion.
    pub fn chat_restore(&self, id: &str) -> Result<ChatSummary> {
        Ok(self.0.chats.restore(id)?)
    }

    /// Sends a message; without a chat, a new one is begun. The rows exist when this returns.
    pub fn message_send(&self, chat_id: Option<&str>, text: &str) -> Result<Listener> {
        Ok(self.0.generation.send(chat_id, text)?)
    }

    /// Writes the last answer of a chat anew. The rows exist when this returns.
    pub fn message_regenerate(&self, chat_id: &str) -> Result<Listener> {
        Ok(self.0.generation.regenerate(chat_id)?)
    }

    /// Listens to an answer from where it is.
    pub fn generation_attach(&self, answer_id: &str) -> Result<Listener> {
        Ok(self.0.generation.attach(answer_id)?)
    }

    /// Stops an answer; its text so far stays.
    pub fn generation_stop(&self, answer_id: &str) -> Result<()> {
        Ok(self.0.generation.stop(answer_id)?)
    }

    /// Checks a link of an answer and returns the address to open; opening it is the face's work.
    pub fn link_open(&self, url: &str) -> Result<String> {
        Ok(links::check(url)?.into())
    }

    /// Saves and ends what is being written. Called by a face that is about to end; nothing can be sent afterwards.
    pub fn shut_down(&self) {
        self.0.generation.shut_down();
    }
}

/// The answer of a face that has no such thing, for example a file dialog in a browser.
pub fn unsupported(what: &str) -> ApiError {
    ApiError {
        code: ErrorCode::Unsupported,
        message: what.to_owned(),
        hint: None,
        details: None,
    }
}
