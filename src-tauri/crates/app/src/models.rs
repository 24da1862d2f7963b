//! Which model is in use, and loading another one without losing the one that works.
//!
//! Loads run on a thread of their own, one after the other; the last wish wins. When a load fails, the model that was in use
//! stays (or the demo takes its place) while the error is shown. A reload is different: the model gives its memory back before it is loaded
//! again, or its cache would be planned around itself; when that fails it is loaded as it was before.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use fastar_api::{ApiError, ModelInfo, ModelMemory, ModelState, Paging, PagingLayer, PagingStep};
use fastar_engine::{Cancel, Options, Statistics};
use fastar_kernels::threads;

use crate::Told;
use crate::error::{Error, Result, guard, lock};
use crate::inference::{Loader, Model, Source};
use crate::sentinel::{Doing, Sentinel};
use crate::settings::Settings;
use crate::settings::registry::{CONTEXT, EXACT, EXPERT_CACHE, READ_AHEAD, THREADS};

/// A waiting answer looks so often whether it was stopped.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A model that is loaded again is given so long to come to rest. Beyond that its memory counts as taken.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Models {
    loader: Loader,
    told: Option<Told>,
    /// How models are loaded, apart from what the settings say.
    options: Options,
    settings: Arc<Mutex<Settings>>,
    sentinel: Sentinel,
    state: Mutex<State>,
    changed: Condvar,
    /// Held while a file is being read: two large models at once would not fit.
    loading: Mutex<()>,
    when_changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct State {
    shown: ModelState,
    in_use: Option<Loaded>,
    /// Number of the last wish.
    wish: u64,
    /// Its file.
    wanted: Option<PathBuf>,
}

/// A model that can answer.
#[derive(Clone)]
pub(crate) struct Loaded {
    /// Differs for every load.
    pub(crate) number: u64,
    pub(crate) info: ModelInfo,
    pub(crate) model: Arc<dyn Model>,
    /// What the settings said when it was loaded.
    pub(crate) with: Wish,
    source: Source,
}

/// A model that was put down, so that another one could be read.
struct Before {
    number: u64,
    info: ModelInfo,
    model: Weak<dyn Model>,
    with: Wish,
    source: Source,
}

/// What the settings say about how a model is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) threads: Option<usize>,
    pub(crate) context: Option<usize>,
    pub(crate) read_ahead: bool,
    pub(crate) exact: bool,
}

impl Models {
    /// Begins to load `given` (for this run only), else the remembered file if it is not held back, else the demo.
    pub(crate) fn start(
        (loader, told): (Loader, Option<Told>),
        options: Options,
        settings: Arc<Mutex<Settings>>,
        sentinel: Sentinel,
        given: Option<PathBuf>,
    ) -> Result<Arc<Self>> {
        let remembered = || lock(&settings).model().filter(|path| !sentinel.holds(path));
        let source = given.or_else(remembered).map_or(Source::Demo, Source::File);
        let models = Arc::new(Self {
            loader,
            told,
            options,
            settings,
            sentinel,
            state: Mutex::new(State {
                shown: ModelState::Loading {
                    name: name(&source),
                },
                in_use: None,
                wish: 0,
                wanted: None,
            }),
            changed: Condvar::new(),
            loading: Mutex::default(),
            when_changed: OnceLock::new(),
        });
        models.load(source, false)?;
        Ok(models)
    }

    /// Called after every change of the model in use; set once.
    pub(crate) fn when_changed(&self, hook: Box<dyn Fn() + Send + Sync>) {
        // A second hook would be a mistake in this crate; the first stays.
        let _ = self.when_changed.set(hook);
    }

    pub(crate) fn state(&self) -> ModelState {
        lock(&self.state).shown.clone()
    }

    /// Files that are in use, being loaded, or what the next start loads.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let state = lock(&self.state);
        let in_use = state
            .in_use
            .as_ref()
            .and_then(|used| used.info.path.clone());
        let mut files: Vec<PathBuf> = in_use.map(PathBuf::from).into_iter().collect();
        files.extend(state.wanted.clone());
        drop(state);
        files.extend(lock(&self.settings).model());
        files
    }

    /// The file that was wished for last; none for the demo.
    pub(crate) fn wanted(&self) -> Option<PathBuf> {
        lock(&self.state).wanted.clone()
    }

    /// The model that answers now.
    pub(crate) fn in_use(&self) -> Option<Loaded> {
        lock(&self.state).in_use.clone()
    }

    pub(crate) fn number_in_use(&self) -> Option<u64> {
        lock(&self.state)
            .in_use
            .as_ref()
            .map(|loaded| loaded.number)
    }

    /// Loads a file and remembers it once it works.
    pub(crate) fn choose(self: &Arc<Self>, path: &Path) -> Result<ModelState> {
        let path = std::path::absolute(path).map_err(Error::file(path))?;
        self.load(Source::File(path), true)
    }

    /// Loads the embedded demo and remembers that.
    pub(crate) fn use_demo(self: &Arc<Self>) -> Result<ModelState> {
        self.load(Source::Demo, true)
    }

    /// Loads the model in use again, as the settings are now.
    pub(crate) fn reload(self: &Arc<Self>) -> Result<ModelState> {
        let (before, wish, shown) = {
            let mut state = lock(&self.state);
            let before = state.in_use.take().ok_or(Error::NoModel)?;
            state.wish += 1;
            state.wanted = before.info.path.clone().map(PathBuf::from);
            state.shown = ModelState::Loading {
                name: name(&before.source),
            };
            (before, state.wish, state.shown.clone())
        };
        let models = Arc::clone(self);
        let spawned = threads::start("fastar-loading", move || models.reload_now(before, wish));
        match spawned {
            Ok(_) => Ok(shown),
            Err(error) => Ok(self.without_thread(error)),
        }
    }

    fn without_thread(&self, error: threads::Refused) -> ModelState {
        let mut state = lock(&self.state);
        let in_use = state.in_use.as_ref().map(|loaded| loaded.info.clone());
        state.shown = ModelState::Failed {
            name: String::new(),
            error: Error::Thread(error).into(),
            in_use,
        };
        state.shown.clone()
    }

    fn reload_now(&self, before: Loaded, wish: u64) {
        let Loaded {
            model,
            with,
            source,
            ..
        } = before;
        let one_at_a_time = lock(&self.loading);
        self.told();
        let held = Arc::downgrade(&model);
        drop(model);
        wait_for_end(&held);
        if lock(&self.state).wish != wish {
            return;
        }
        let now = self.wish(&lock(&self.settings));
        let (loaded, error) = match self.read_with(&source, wish, &now) {
            Ok(loaded) => (Some(loaded), None),
            Err(error) => {
                let again = self.read_with(&source, wish, &with);
                let demo = || self.read(&Source::Demo, wish).ok();
                (again.ok().or_else(demo), Some(error))
            }
        };
        self.settle(&source, wish, loaded, error);
        drop(one_at_a_time);
        self.told();
    }

    fn load(self: &Arc<Self>, source: Source, remember: bool) -> Result<ModelState> {
        let (wish, shown) = {
            let mut state = lock(&self.state);
            state.wish += 1;
            state.wanted = match &source {
                Source::Demo => None,
                Source::File(path) => Some(path.clone()),
            };
            state.shown = ModelState::Loading {
                name: name(&source),
            };
            (state.wish, state.shown.clone())
        };
        let models = Arc::clone(self);
        let work = move || models.load_now(&source, remember, wish);
        let spawned = threads::start("fastar-loading", work);
        if let Err(error) = spawned {
            return Ok(self.without_thread(error));
        }
        Ok(shown)
    }

    fn load_now(&self, source: &Source, remember: bool, wish: u64) {
        let one_at_a_time = lock(&self.loading);
        if lock(&self.state).wish != wish {
            return;
        }
        let before = self.put_down(source);
        let result = self.read(source, wish).map(|loaded| {
            // Remembered only now: a file that does not work must not be what the next start tries.
            let remembered = if remember {
                self.remember(source)
            } else {
                Ok(())
            };
            (loaded, remembered)
        });
        let (loaded, error) = match result {
            Ok((loaded, remembered)) => (Some(loaded), remembered.err()),
            Err(error) => {
                let again = before.and_then(|before| self.take_up(before, wish));
                let nothing = again.is_none() && lock(&self.state).in_use.is_none();
                let demo = || self.read(&Source::Demo, wish).ok();
                let demo = (nothing && *source != Source::Demo).then(demo).flatten();
                (again.or(demo), Some(error))
            }
        };
        self.settle(source, wish, loaded, error);
        drop(one_at_a_time);
        self.told();
    }

    /// Lets go of a model that has memory of its own before `next` is read: both at once might not fit, and the new one plans with what is free.
    /// Not for a file that cannot even be opened.
    fn put_down(&self, next: &Source) -> Option<Before> {
        let opens = match next {
            Source::Demo => true,
            Source::File(path) => fastar_fst::Container::open(path).is_ok(),
        };
        let mut state = lock(&self.state);
        let has_memory = |used: &Loaded| used.model.facts().memory.dense_bytes > 0;
        if !opens || !state.in_use.as_ref().is_some_and(has_memory) {
            return None;
        }
        let before = state.in_use.take()?;
        drop(state);
        self.told();
        let held = before.model;
        let before = Before {
            number: before.number,
            info: before.info,
            model: Arc::downgrade(&held),
            with: before.with,
            source: before.source,
        };
        drop(held);
        wait_for_end(&before.model);
        Some(before)
    }

    /// The model that was put down, as it was.
    fn take_up(&self, before: Before, wish: u64) -> Option<Loaded> {
        match before.model.upgrade() {
            // An answer has held it all the time.
            Some(model) => Some(Loaded {
                number: before.number,
                info: before.info,
                model,
                with: before.with,
                source: before.source,
            }),
            None => self.read_with(&before.source, wish, &before.with).ok(),
        }
    }

    /// What came of a load, unless something else is wished for meanwhile.
    fn settle(&self, source: &Source, wish: u64, loaded: Option<Loaded>, error: Option<ApiError>) {
        if let Some(error) = &error {
            tracing::warn!(model = %name(source), %error, "a model could not be loaded");
        }
        let mut state = lock(&self.state);
        if state.wish != wish {
            return;
        }
        if loaded.is_some() {
            state.in_use = loaded;
        }
        let in_use = state.in_use.as_ref().map(|loaded| loaded.info.clone());
        if error.is_some() {
            // What did not load is not used; it may be tried again, or deleted.
            let path = in_use.as_ref().and_then(|model| model.path.clone());
            state.wanted = path.map(PathBuf::from);
        }
        state.shown = match (error, in_use) {
            (None, Some(model)) => ModelState::Ready { model },
            (error, in_use) => ModelState::Failed {
                name: name(source),
                error: error.unwrap_or_else(|| Error::NoModel.into()),
                in_use,
            },
        };
    }

    fn told(&self) {
        self.changed.notify_all();
        if let Some(hook) = self.when_changed.get() {
            hook();
        }
    }

    /// What the settings say about how a model is loaded; what was given for this run comes before.
    pub(crate) fn wish(&self, settings: &Settings) -> Wish {
        let whole = |setting| {
            let n = settings.number(setting)?;
            Some(usize::try_from(n).unwrap_or(usize::MAX))
        };
        let given = self.options.cache_bytes;
        Wish {
            cache_bytes: given.or_else(|| settings.number(&EXPERT_CACHE)),
            threads: whole(&THREADS),
            context: whole(&CONTEXT),
            read_ahead: settings.flag(&READ_AHEAD),
            exact: settings.flag(&EXACT),
        }
    }

    fn read(&self, source: &Source, number: u64) -> std::result::Result<Loaded, ApiError> {
        let wish = self.wish(&lock(&self.settings));
        self.read_with(source, number, &wish)
    }

    fn read_with(
        &self,
        source: &Source,
        number: u64,
        with: &Wish,
    ) -> std::result::Result<Loaded, ApiError> {
        let _span = tracing::info_span!("load", model = %name(source)).entered();
        let options = Options {
            cache_bytes: with.cache_bytes,
            threads: with.threads,
            context: with.context,
            without_guesses: !with.read_ahead,
            exact: with.exact,
            ..self.options.clone()
        };
        let path = match source {
            Source::Demo => None,
            Source::File(path) => Some(path),
        };
        let entry = path.map(|path| {
            self.sentinel.note(Doing::Loading {
                name: name(source),
                path: path.clone(),
            })
        });
        let model =
            guard(|| (self.loader)(source, &options).map_err(|error| Error::from(error).into()))?;
        drop(entry);
        if let Some(path) = path {
            self.sentinel.trust(path);
        }
        let memory = &model.facts().memory;
        if let Some(note) = &memory.note {
            tracing::warn!("{note}");
        }
        let info = info(source, model.facts());
        if let Some(told) = &self.told {
            let asked = self.options.cache_bytes.is_some();
            for sentence in model.facts().told(&info.name, asked) {
                told(&sentence);
            }
        }
        tracing::info!(model = %info.name, threads = info.threads, "the model is ready");
        Ok(Loaded {
            number,
            info,
            model,
            with: with.clone(),
            source: source.clone(),
        })
    }

    fn remember(&self, source: &Source) -> std::result::Result<(), ApiError> {
        let path = match source {
            Source::Demo => None,
            Source::File(path) => Some(path.as_path()),
        };
        Ok(lock(&self.settings).set_model(path)?)
    }

    /// What the model in use has in memory, and what it read.
    pub(crate) fn memory(&self) -> Option<ModelMemory> {
        let model = lock(&self.state).in_use.as_ref()?.model.clone();
        let plan = &model.facts().memory;
        let statistics = model.statistics();
        Some(ModelMemory {
            dense_bytes: plan.dense_bytes,
            cache_bytes: plan.cache_bytes,
            slots: plan.slots as u64,
            experts: plan.experts as u64,
            note: plan.note.clone(),
            paging: statistics.map(paging),
        })
    }

    /// The model in use, if there is one.
    pub(crate) fn loaded(&self) -> Option<Loaded> {
        lock(&self.state).in_use.clone()
    }

    /// Name of the model that will write the next answer; an error when none will.
    pub(crate) fn expected_name(&self) -> Result<String> {
        let state = lock(&self.state);
        match (&state.shown, &state.in_use) {
            (ModelState::Loading { name }, _) => Ok(name.clone()),
            (_, Some(loaded)) => Ok(loaded.info.name.clone()),
            _ => Err(Error::NoModel),
        }
    }

    /// The model in use, once loading has come to an end; none when `cancel` is set before.
    pub(crate) fn wait(&self, cancel: &Cancel) -> Result<Option<Loaded>> {
        let mut state = lock(&self.state);
        while matches!(state.shown, ModelState::Loading { .. }) {
            if cancel.is_cancelled() {
                return Ok(None);
            }
            state = self
                .changed
                .wait_timeout(state, LOOK_EVERY)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.in_use.clone().map(Some).ok_or(Error::NoModel)
    }
}

fn paging(s: Statistics) -> Paging {
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    Paging {
        filled: s.filled,
        expert_bytes: s.expert_bytes,
        tokens: s.tokens,
        hits: s.hits,
        misses: s.misses,
        late: s.late,
        waited_ms: milliseconds(s.waited),
        demand_bytes: s.demand_bytes,
        ahead_bytes: s.ahead_bytes,
        warm_bytes: s.warm_bytes,
        useful: s.useful,
        wasted: s.wasted,
        last: PagingStep {
            tokens: s.last.tokens,
            hits: s.last.hits,
            misses: s.last.misses,
            late: s.last.late,
            waited_ms: milliseconds(s.last.waited),
            demand_bytes: s.last.demand_bytes,
        },
        layers: s
            .layers
            .into_iter()
            .map(|layer| PagingLayer {
                hits: layer.hits,
                misses: layer.misses,
                late: layer.late,
                waited_ms: milliseconds(layer.waited),
            })
            .collect(),
    }
}

/// Waits until nobody has a model any more, so that its memory is free.
fn wait_for_end(model: &Weak<dyn Model>) {
    let begin = Instant::now();
    while model.strong_count() > 0 {
        if begin.elapsed() > PATIENCE {
            tracing::warn!("the model is still in use while it is loaded again");
            return;
        }
        std::thread::sleep(LOOK_EVERY / 10);
    }
}

/// Name for people.
fn name(source: &Source) -> String {
    match source {
        Source::Demo => "Demo model".to_owned(),
        Source::File(path) => path.file_stem().map_or_else(
            || path.display().to_string(),
            |stem| stem.to_string_lossy().into_owned(),
        ),
    }
}

fn info(source: &Source, facts: &fastar_engine::ModelFacts) -> ModelInfo {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    ModelInfo {
        name: name(source),
        is_demo: *source == Source::Demo,
        path: match source {
            Source::Demo => None,
            Source::File(path) => Some(path.display().to_string()),
        },
        file_bytes: facts.file_bytes,
        parameters: facts.parameters,
        layers: count(facts.layers),
        experts: count(facts.experts),
        context_size: count(facts.context),
        threads: count(facts.threads),
        limit: facts.limit.clone(),
    }
}
