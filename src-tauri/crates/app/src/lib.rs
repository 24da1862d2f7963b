//! What FaStar does, without a window and without HTTP: chats, models, and answers that are being written.
//!
//! [`App`] has one method per command of the contract ([`fastar_api`]); the desktop shell and the server call them and add nothing.
//! Methods may wait for the disk, so a face calls them away from its own event loop.

mod access;
mod attachments;
mod chats;
mod clock;
mod data;
pub mod demo;
mod diagnostics;
mod downloads;
mod error;
mod generation;
mod hardware;
pub mod inference;
pub mod install;
pub mod jobs;
mod language;
mod library;
mod links;
mod logs;
mod models;
mod monitor;
mod preferences;
mod prospect;
mod sentinel;
mod sessions;
mod settings;
#[cfg(test)]
mod tests;

#[cfg(test)]
extern crate self as fastar_app;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use fastar_api::{
    ApiError, AppInfo, Attachment, Chat, ChatSummary, DownloadRequest, Draft, ErrorCode,
    ExportFormat, Exported, Face, Found, Job, JobKind, Library, ModelMemory, ModelState,
    NewMessage, Preset, Thinking, TokenCount,
};
use fastar_engine::Sampling;

pub use access::ServerWish;
pub use chats::exchange::MAX_IMPORT_BYTES;
pub use error::guard;
pub use generation::{Listener, MAX_MESSAGE_BYTES};
pub use hardware::hardware;
pub use language::Language;
pub use library::catalogue::{entries as catalogue, file_of};
pub use library::{FoundModel, free_bytes};
pub use links::MAX_LINK_BYTES;
pub use logs::layer as log_layer;
pub use preferences::Preferences;
pub use settings::sampling::GivenSampling;

use chats::Chats;
use data::DataFolder;
use error::{Error, lock};
use generation::Generation;
use jobs::{Jobs, Order, Workshop};
use models::Models;
use sentinel::{Doing, Sentinel};
use sessions::Sessions;
use settings::{Given, Settings};

type Result<T> = std::result::Result<T, ApiError>;

/// Hears sentences.
pub type Told = Arc<dyn Fn(&str) + Send + Sync>;

/// How to open the app.
#[derive(Clone)]
pub struct Options {
    /// The face that asks.
    pub face: Face,
    /// Where chats and settings are kept; the system's place for application data when none.
    pub data_folder: Option<PathBuf>,
    /// A model file for this run only, instead of the remembered one.
    pub model: Option<PathBuf>,
    /// How words are chosen, for this run.
    pub sampling: GivenSampling,
    /// Loads models.
    pub loader: inference::Loader,
    /// Hears what a person at a terminal should know of a model that has been loaded, a sentence at a time.
    pub told: Option<Told>,
    /// Most bytes of memory for experts, for this run; what the settings say when none.
    pub cache_bytes: Option<u64>,
    /// Where models are kept, for this run; the folder the person chose when none.
    pub models_folder: Option<PathBuf>,
    /// Does the work of jobs in the place of the real one; for tests.
    pub workshop: Option<Arc<dyn Workshop>>,
    /// What the face has to tell the person at the start, in sentences.
    pub notice: Option<String>,
}

impl Options {
    /// The defaults with what the environment sets: `FASTAR_DATA_DIR`, `FASTAR_MODEL`,
    /// `FASTAR_MODELS_DIR`, `FASTAR_TEMPERATURE`.
    pub fn from_environment(face: Face) -> Result<Self> {
        let path = data::path_variable;
        let temperature = match std::env::var("FASTAR_TEMPERATURE") {
            Err(_) => None,
            Ok(text) => {
                let number = text.trim().parse().ok();
                let right =
                    number.filter(|t: &f32| (0.0..=Sampling::MOST_TEMPERATURE as f32).contains(t));
                Some(right.ok_or_else(|| {
                    Error::BadRequest(format!(
                        "FASTAR_TEMPERATURE is {text:?}; it must be a number from 0 to {}.",
                        Sampling::MOST_TEMPERATURE
                    ))
                })?)
            }
        };
        Ok(Self {
            face,
            data_folder: path("FASTAR_DATA_DIR"),
            model: path("FASTAR_MODEL"),
            sampling: GivenSampling {
                temperature,
                ..GivenSampling::default()
            },
            loader: Arc::new(inference::load),
            told: None,
            cache_bytes: None,
            models_folder: path("FASTAR_MODELS_DIR"),
            workshop: None,
            notice: None,
        })
    }

    /// The folder that the app will be opened in.
    ///
    /// # Errors
    /// When there is no home folder.
    pub fn folder(&self) -> Result<PathBuf> {
        Ok(data::default_folder(self.data_folder.clone())?)
    }
}

/// Whether the last window on a data folder ended before it had shown anything. Of a folder that is in use it says whether that window
/// is still to come.
pub fn ended_while_opening(folder: &Path) -> bool {
    sentinel::ended_while_opening(folder)
}

/// What a folder with models holds, and what can be fetched, without the app.
///
/// # Errors
/// When the folder cannot be read.
pub fn library(folder: &Path, workshop: &dyn Workshop) -> Result<Library> {
    Ok(library::list(folder, &[], workshop)?)
}

/// The model of a folder that has this name, with its ending or without, where it is whole.
pub fn model_called(folder: &Path, name: &str) -> Option<PathBuf> {
    [name.to_owned(), format!("{name}{}", library::CONTAINER)]
        .iter()
        .filter(|file| library::checked_name(file).is_ok())
        .map(|file| library::set::path_of(folder, file))
        .find(|path| path.is_file())
}

/// Deletes a model of a folder with everything that belongs to it, without the app, and returns the bytes that were freed.
///
/// # Errors
/// When there is no such model, another process is downloading it, or it cannot be removed.
pub fn delete_model(folder: &Path, file: &str) -> Result<u64> {
    // Removing asks nothing of the hub.
    let installer = install::Installer::new(fastar_hub::Settings::default);
    Ok(library::delete(
        folder,
        library::checked_name(file)?,
        &installer,
    )?)
}

/// The running app. Clones share everything; the last one to go saves and ends what is being written.
#[derive(Clone)]
pub struct App(Arc<Inner>, Face);

struct Inner {
    // Dropped in this order: the lock of the folder goes last.
    generation: Generation,
    jobs: Jobs,
    models: Arc<Models>,
    settings: Arc<Mutex<Settings>>,
    given: Given,
    /// Held while a recording begins: two would take one name.
    tracing: Mutex<()>,
    /// How fast memory and disk are, or why that is not known; none before it was measured.
    measured: Mutex<Option<std::result::Result<prospect::Rates, String>>>,
    workshop: Arc<dyn Workshop>,
    models_folder: Option<PathBuf>,
    chats: Arc<Chats>,
    /// In the note until the page of the window is there.
    opening: Mutex<Option<sentinel::Entry>>,
    sentinel: Sentinel,
    data: DataFolder,
    /// Told when what the settings say of the local server has changed.
    server_changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
    notices: Vec<String>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.generation.shut_down();
        self.jobs.shut_down();
        self.sentinel.end();
    }
}

impl App {
    /// Takes the data folder, opens the chats, and begins to load a model.
    pub fn open(options: Options) -> Result<Self> {
        error::install_panic_hook();
        let (data, data_notice) =
            DataFolder::take_or_do_without(&data::default_folder(options.data_folder)?)?;
        let now = clock::now();
        let (settings, settings_notice) = Settings::open(data.path(), &clock::file_date(now))?;
        logs::begin(data.path(), settings.log_level());
        tracing::info!(version = env!("CARGO_PKG_VERSION"), face = ?options.face, "FaStar begins");
        let (sentinel, before) = Sentinel::begin(data.path());
        let opening = sentinel::has_window(options.face).then(|| sentinel.note(Doing::Opening));
        let (chats, chats_notice) = {
            let _entry = sentinel.note(Doing::Chats);
            Chats::open(data.path(), now)?
        };
        let absolute = |path: Option<PathBuf>| {
            path.map(|path| std::path::absolute(&path).map_err(Error::file(&path)))
                .transpose()
        };
        let model = absolute(options.model)?;
        let given = Given {
            cache_bytes: options.cache_bytes,
            sampling: options.sampling,
            model: model.clone(),
        };
        let models_folder = absolute(options.models_folder)?;
        let chats = Arc::new(chats);
        let settings = Arc::new(Mutex::new(settings));
        let how = fastar_engine::Options {
            cache_bytes: options.cache_bytes,
            hot_lists: Some(preferences::hot_lists(data.path())),
            ..fastar_engine::Options::default()
        };
        let models = Models::start(
            (options.loader, options.told),
            how,
            Arc::clone(&settings),
            sentinel.clone(),
            model,
        )?;
        let workshop = options.workshop.unwrap_or_else(|| {
            let (settings, folder) = (Arc::clone(&settings), data.path().to_owned());
            Arc::new(install::Installer::new(move || {
                let environment = fastar_hub::Settings::from_environment();
                downloads::reach(&lock(&settings), &folder, environment)
            }))
        });
        let (limit, resume) = {
            let settings = lock(&settings);
            (
                downloads::limit(&settings),
                downloads::resume_at_start(&settings),
            )
        };
        let jobs = Jobs::open(
            Arc::clone(&chats),
            Arc::clone(&workshop),
            sentinel.clone(),
            limit,
            resume,
        )?;
        let generation = Generation::start(
            Arc::clone(&chats),
            Arc::clone(&models),
            Sessions::open(data.path()),
            sentinel.clone(),
            {
                let settings = Arc::clone(&settings);
                Box::new(move || lock(&settings).sampling(&options.sampling))
            },
        )?;
        let title = |id: &str| chats.title(id);
        let notices: Vec<_> = [data_notice, chats_notice, settings_notice, options.notice]
            .into_iter()
            .flatten()
            .chain(before.sentences(title))
            .collect();
        let inner = Inner {
            generation,
            jobs,
            models,
            settings,
            given,
            tracing: Mutex::default(),
            measured: Mutex::default(),
            workshop,
            models_folder,
            chats,
            opening: Mutex::new(opening),
            sentinel,
            data,
            server_changed: OnceLock::new(),
            notices,
        };
        Ok(Self(Arc::new(inner), options.face))
    }

    /// The same app for another face of it: a browser beside the window has no dialogs.
    pub fn seen_by(&self, face: Face) -> Self {
        Self(Arc::clone(&self.0), face)
    }

    /// Facts about the running app.
    pub fn app_info(&self) -> AppInfo {
        AppInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            face: self.1,
            data_folder: self.0.data.path().display().to_string(),
            notices: self.0.notices.clone(),
        }
    }

    /// The data folder in use.
    pub fn folder(&self) -> &Path {
        self.0.data.path()
    }

    /// The page in the window is there: what a face with a window waits for. A browser beside it says nothing about the window.
    pub fn page_shown(&self) {
        if sentinel::has_window(self.1) {
            drop(lock(&self.0.opening).take());
        }
    }

    /// Whether the page in the window is still to come.
    pub fn page_is_awaited(&self) -> bool {
        lock(&self.0.opening).is_some()
    }

    /// Where the model is on its way from file to answers.
    pub fn model_state(&self) -> ModelState {
        self.0.models.state()
    }

    /// What the model in use has in memory, and what it read so far; none while there is no model.
    pub fn model_memory(&self) -> Option<ModelMemory> {
        self.0.models.memory()
    }

    /// Begins to load a model file that the person chose on this computer. It is remembered once it works.
    pub fn model_choose(&self, path: &Path) -> Result<ModelState> {
        Ok(self.0.models.choose(path)?)
    }

    /// A model file anywhere on this computer, as far as its beginning says; nothing of it is used.
    pub fn model_file(&self, path: &Path) -> Result<FoundModel> {
        Ok(library::look(path)?)
    }

    /// Begins to load the embedded demo.
    pub fn model_use_demo(&self) -> Result<ModelState> {
        Ok(self.0.models.use_demo()?)
    }

    /// The folder with the models: given for this run, chosen, or the one beside the chats.
    fn models_folder(&self) -> PathBuf {
        preferences::models_folder(
            &lock(&self.0.settings),
            self.0.models_folder.as_deref(),
            // Never a temporary folder: a model would be gone with it.
            self.0.data.wanted(),
        )
    }

    /// Models on the disk and in the catalogue.
    pub fn model_library(&self) -> Result<Library> {
        Ok(library::list(
            &self.models_folder(),
            &self.0.models.files(),
            &*self.0.workshop,
        )?)
    }

    /// Keeps models in another folder from now on. Those in the old one stay there, and so do downloads that were begun.
    pub fn model_folder_choose(&self, folder: &Path) -> Result<Library> {
        if self.0.models_folder.is_some() {
            return Err(Error::BadRequest(
                "The folder for models was given when FaStar was started (FASTAR_MODELS_DIR). Start it without to choose another one.".into(),
            )
            .into());
        }
        let folder = std::path::absolute(folder).map_err(Error::file(folder))?;
        let text = folder.to_str().ok_or_else(|| {
            Error::BadRequest(format!(
                "The path {} contains bytes that are not text. Choose another folder.",
                folder.display()
            ))
        })?;
        // One that cannot be looked into is not remembered.
        let library = library::list(&folder, &self.0.models.files(), &*self.0.workshop)?;
        lock(&self.0.settings).set(&[(&settings::registry::MODELS_FOLDER, Some(text.into()))])?;
        Ok(library)
    }

    /// Keeps models in another folder from now on, and begins to move those that are in the old one there. Downloads that were begun stay.
    ///
    /// # Errors
    /// When one of the models is in use or something is being done with one; nothing has changed then.
    pub fn model_folder_move(&self, folder: &Path) -> Result<Library> {
        let (before, to) = (self.models_folder(), std::path::absolute(folder));
        let to = to.map_err(Error::file(folder))?;
        if library::is_same(&before, &to) {
            return self.model_library();
        }
        let used = self.0.models.files();
        let models: Vec<String> = library::list(&before, &used, &*self.0.workshop)?
            .files
            .into_iter()
            .filter(|model| !matches!(model.condition, fastar_api::Condition::Incomplete { .. }))
            .map(|model| match model.in_use {
                true => Err(Error::ModelInUse { name: model.name }),
                false => Ok(model.file),
            })
            .collect::<error::Result<_>>()?;
        if let Some(job) = self.job_list().iter().find(|job| !job.state.is_at_rest()) {
            return Err(Error::ModelBusy {
                name: job.title.clone(),
            }
            .into());
        }
        let library = self.model_folder_choose(&to)?;
        // It was looked at as a text just now.
        let place = library.folder.clone();
        for file in models {
            self.0.jobs.start(Order {
                kind: JobKind::Move,
                folder: before.clone(),
                title: file
                    .strip_suffix(library::CONTAINER)
                    .unwrap_or(&file)
                    .into(),
                file,
                repository: place.clone(),
                revision: String::new(),
                drafter: true,
            })?;
        }
        Ok(library)
    }

    /// Begins to load a model of the model folder.
    pub fn model_use(&self, file: &str) -> Result<ModelState> {
        let path = library::set::path_of(&self.models_folder(), library::checked_name(file)?);
        if !path.is_file() {
            return Err(Error::ModelNotFound.into());
        }
        self.model_choose(&path)
    }

    /// The path of a model of the model folder, for a face that can show it.
    pub fn model_path(&self, file: &str) -> Result<PathBuf> {
        let folder = self.models_folder();
        let name = library::checked_name(file)?;
        [
            library::set::path_of(&folder, name),
            library::download_folder(&folder, name),
        ]
        .into_iter()
        .find(|path| path.exists())
        .ok_or_else(|| Error::ModelNotFound.into())
    }

    /// Deletes a model with everything that belongs to it, and returns the bytes that were freed. Refused while it is in use.
    pub fn model_delete(&self, file: &str) -> Result<u64> {
        let (folder, name) = (self.models_folder(), library::checked_name(file)?);
        let path = library::set::path_of(&folder, name);
        let used = self.0.models.files();
        if used.iter().any(|used| library::is_same(used, &path)) {
            return Err(Error::ModelInUse { name: name.into() }.into());
        }
        let _hold = self.0.jobs.hold(&folder, name, name)?;
        let freed = library::delete(&folder, name, &*self.0.workshop)?;
        self.0.jobs.forget_file(&folder, name);
        Ok(freed)
    }

    /// Begins to read a model whole and to compare every checksum.
    pub fn model_verify(&self, file: &str) -> Result<Job> {
        self.on_file(JobKind::Verify, file)
    }

    /// Begins to fetch the damaged records of a model again.
    pub fn model_repair(&self, file: &str) -> Result<Job> {
        self.on_file(JobKind::Repair, file)
    }

    fn on_file(&self, kind: JobKind, file: &str) -> Result<Job> {
        let (folder, name) = (self.models_folder(), library::checked_name(file)?);
        if !library::set::path_of(&folder, name).is_file() {
            return Err(Error::ModelNotFound.into());
        }
        Ok(self.0.jobs.start(Order {
            kind,
            folder,
            title: name.strip_suffix(library::CONTAINER).unwrap_or(name).into(),
            file: name.into(),
            repository: String::new(),
            revision: String::new(),
            drafter: true,
        })?)
    }

    /// Begins to fetch a model of the catalogue. This is the person's word: before it, nothing was asked of the network.
    pub fn download_start(&self, request: &DownloadRequest) -> Result<Job> {
        let entry = library::catalogue::entries()
            .into_iter()
            .find(|entry| entry.id == request.entry)
            .ok_or(Error::ModelNotFound)?;
        let folder = self.models_folder();
        if library::set::path_of(&folder, &entry.file).exists() {
            return Err(Error::BadRequest(format!(
                "{} is in the folder already. Delete it first to download it anew.",
                entry.file
            ))
            .into());
        }
        Ok(self.0.jobs.start(Order {
            kind: JobKind::Download,
            folder,
            file: entry.file,
            title: entry.name,
            repository: entry.repository,
            revision: "main".into(),
            drafter: request.drafter,
        })?)
    }

    /// Goes on with a download that has left something on the disk, whoever began it.
    pub fn download_resume(&self, file: &str) -> Result<Job> {
        let (folder, name) = (self.models_folder(), library::checked_name(file)?);
        let left = self.0.workshop.leftover(&folder, name);
        Ok(self.0.jobs.start(left.ok_or(Error::ModelNotFound)?.order)?)
    }

    /// All jobs, the newest first.
    pub fn job_list(&self) -> Vec<Job> {
        self.0.jobs.list()
    }

    /// Stops a job so that it can go on later.
    pub fn job_pause(&self, id: &str) -> Result<Job> {
        Ok(self.0.jobs.pause(id)?)
    }

    /// Goes on with a job that is paused or has failed.
    pub fn job_resume(&self, id: &str) -> Result<Job> {
        Ok(self.0.jobs.resume(id)?)
    }

    /// Gives a job up; what it has on the disk stays if `keep`.
    pub fn job_cancel(&self, id: &str, keep: bool) -> Result<Job> {
        Ok(self.0.jobs.cancel(id, keep)?)
    }

    /// Takes a job that is at rest out of the list.
    pub fn job_dismiss(&self, id: &str) -> Result<()> {
        Ok(self.0.jobs.dismiss(id)?)
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
        let stopped = self.0.generation.stop_chat(id);
        self.0.generation.forget(id);
        Ok(stopped?)
    }

    /// Undoes a deletion.
    pub fn chat_restore(&self, id: &str) -> Result<ChatSummary> {
        Ok(self.0.chats.restore(id)?)
    }

    /// Keeps a chat at the top of the list, or no longer.
    pub fn chat_pin(&self, id: &str, pinned: bool) -> Result<ChatSummary> {
        Ok(self.0.chats.pin(id, pinned)?)
    }

    /// Moves a chat into a folder, or out of all.
    pub fn chat_move(&self, id: &str, folder: Option<&str>) -> Result<ChatSummary> {
        Ok(self.0.chats.move_to(id, folder)?)
    }

    /// Sets the instructions that stand before a conversation.
    pub fn chat_system_set(&self, id: &str, text: &str) -> Result<()> {
        Ok(self.0.chats.set_system(id, text)?)
    }

    /// Finds a text in titles and messages of all chats.
    pub fn chat_search(&self, query: &str) -> Result<Vec<Found>> {
        Ok(self.0.chats.search(query)?)
    }

    /// One chat, or all of them, as a file, Markdown with headings in the person's language; saving it is the face's work.
    pub fn chat_export(&self, id: Option<&str>, format: ExportFormat) -> Result<Exported> {
        Ok(self.0.chats.export(id, format, self.language())?)
    }

    /// Writes what [`App::chat_export`] gave into a file that the person chose: whole, or not at all.
    pub fn write_exported(&self, path: &Path, exported: &Exported) -> Result<()> {
        Ok(chats::exchange::write(path, exported)?)
    }

    /// Adds the chats of an exported file, all or none, and returns how many there are.
    pub fn chat_import(&self, text: &str) -> Result<u32> {
        Ok(self.0.chats.import(text, clock::now())?)
    }

    /// The same from a file that the person chose.
    pub fn chat_import_file(&self, path: &Path) -> Result<u32> {
        let text = attachments::read_text(path, MAX_IMPORT_BYTES)?;
        self.chat_import(&text)
    }

    /// Reads the text files that the person chose for one message.
    pub fn attachments_read(&self, paths: &[PathBuf]) -> Result<Vec<Attachment>> {
        Ok(attachments::read_all(paths)?)
    }

    /// Saved instructions, by name.
    pub fn preset_list(&self) -> Result<Vec<Preset>> {
        Ok(self.0.chats.presets()?)
    }

    /// Saves instructions under a name; without an id, as a new preset.
    pub fn preset_save(&self, id: Option<&str>, name: &str, text: &str) -> Result<Preset> {
        Ok(self.0.chats.save_preset(id, name, text)?)
    }

    /// Deletes saved instructions.
    pub fn preset_delete(&self, id: &str) -> Result<()> {
        Ok(self.0.chats.delete_preset(id)?)
    }

    /// What the person has begun to write for a new chat; that of the others is in [`Chat::draft`].
    pub fn draft_new(&self) -> Result<Draft> {
        Ok(self.0.chats.new_draft()?)
    }

    /// Keeps what the person has begun to write.
    pub fn draft_save(&self, chat_id: Option<&str>, draft: &Draft) -> Result<()> {
        generation::check_draft(draft)?;
        Ok(self.0.chats.save_draft(chat_id, draft)?)
    }

    /// How many tokens a message would have, and the prompt with it.
    pub fn message_count(
        &self,
        chat_id: Option<&str>,
        message: impl Into<NewMessage>,
    ) -> Result<TokenCount> {
        Ok(self.0.generation.count(chat_id, &message.into())?)
    }

    /// Sends a message; without a chat, a new one is begun. The rows exist when this returns.
    pub fn message_send(
        &self,
        chat_id: Option<&str>,
        message: impl Into<NewMessage>,
    ) -> Result<Listener> {
        Ok(self.0.generation.send(chat_id, &message.into())?)
    }

    /// Sends a new version of a message of the person. The rows exist when this returns.
    pub fn message_edit(
        &self,
        message_id: &str,
        message: impl Into<NewMessage>,
    ) -> Result<Listener> {
        Ok(self.0.generation.edit(message_id, &message.into())?)
    }

    /// Writes a new version of an answer. The rows exist when this returns.
    pub fn message_regenerate(&self, answer_id: &str, thinking: Thinking) -> Result<Listener> {
        Ok(self.0.generation.regenerate(answer_id, thinking)?)
    }

    /// Goes on with an answer that was cut off.
    pub fn answer_continue(&self, answer_id: &str) -> Result<Listener> {
        Ok(self.0.generation.continue_answer(answer_id)?)
    }

    /// Makes a new version of an answer out of what the person wrote.
    pub fn answer_edit(&self, answer_id: &str, text: &str) -> Result<Chat> {
        Ok(self.0.generation.edit_answer(answer_id, text)?)
    }

    /// Shows another version of a message, with what stood behind it.
    pub fn version_show(&self, message_id: &str) -> Result<Chat> {
        Ok(self.0.generation.show_version(message_id)?)
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
        self.0.jobs.shut_down();
        self.0.sentinel.end();
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
