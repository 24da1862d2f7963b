//! Which model is in use, and loading another one without losing the one that works.
//!
//! Loads run on a thread of their own, one after the other; the last wish wins. When a load fails, the model that was in use
//! stays (or the demo takes its place) while the error is shown.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fastar_api::{ApiError, ModelInfo, ModelMemory, ModelState, Paging, PagingLayer, PagingStep};
use fastar_engine::{Cancel, Options, Statistics};

use crate::error::{Error, Result, guard, lock};
use crate::inference::{Loader, Model, Source};
use crate::settings::Settings;
use crate::settings::registry::EXPERT_CACHE;

/// A waiting answer looks so often whether it was stopped.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) struct Models {
    loader: Loader,
    /// How models are loaded, apart from what the settings say.
    options: Options,
    settings: Arc<Mutex<Settings>>,
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
}

impl Models {
    /// Begins to load `given` (for this run only), else the remembered file, else the demo.
    pub(crate) fn start(
        loader: Loader,
        options: Options,
        settings: Arc<Mutex<Settings>>,
        given: Option<PathBuf>,
    ) -> Result<Arc<Self>> {
        let source = given
            .or_else(|| lock(&settings).model())
            .map_or(Source::Demo, Source::File);
        let models = Arc::new(Self {
            loader,
            options,
            settings,
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
        let spawned = std::thread::Builder::new()
            .name("fastar-loading".into())
            .spawn(move || models.load_now(&source, remember, wish));
        if let Err(error) = spawned {
            let error = ApiError::from(Error::Thread(error));
            let mut state = lock(&self.state);
            let in_use = state.in_use.as_ref().map(|loaded| loaded.info.clone());
            state.shown = ModelState::Failed {
                name: String::new(),
                error,
                in_use,
            };
            return Ok(state.shown.clone());
        }
        Ok(shown)
    }

    fn load_now(&self, source: &Source, remember: bool, wish: u64) {
        let one_at_a_time = lock(&self.loading);
        if lock(&self.state).wish != wish {
            return;
        }
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
                let nothing = lock(&self.state).in_use.is_none();
                let demo = nothing && *source != Source::Demo;
                (
                    demo.then(|| self.read(&Source::Demo, wish).ok()).flatten(),
                    Some(error),
                )
            }
        };
        {
            let mut state = lock(&self.state);
            if state.wish != wish {
                return;
            }
            if loaded.is_some() {
                state.in_use = loaded;
            }
            let in_use = state.in_use.as_ref().map(|loaded| loaded.info.clone());
            state.shown = match (error, in_use) {
                (None, Some(model)) => ModelState::Ready { model },
                (error, in_use) => ModelState::Failed {
                    name: name(source),
                    error: error.unwrap_or_else(|| Error::NoModel.into()),
                    in_use,
                },
            };
        }
        drop(one_at_a_time);
        self.changed.notify_all();
        if let Some(hook) = self.when_changed.get() {
            hook();
        }
    }

    fn read(&self, source: &Source, number: u64) -> std::result::Result<Loaded, ApiError> {
        let _span = tracing::info_span!("load", model = %name(source)).entered();
        let mut options = self.options.clone();
        options.cache_bytes = options
            .cache_bytes
            .or_else(|| lock(&self.settings).number(&EXPERT_CACHE));
        let model =
            guard(|| (self.loader)(source, &options).map_err(|error| Error::from(error).into()))?;
        let memory = &model.facts().memory;
        if let Some(note) = &memory.note {
            tracing::warn!("{note}");
        }
        let info = info(source, model.facts());
        Ok(Loaded {
            number,
            info,
            model,
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
