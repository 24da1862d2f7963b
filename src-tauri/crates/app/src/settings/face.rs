//! Settings as a face sees and changes them: one list, one at a time, and what a change means.

use std::path::PathBuf;

use fastar_api::{CachePlan, Face, ModelState, Setting as Shown, SettingSection as Section};
use serde_json::Value;

use super::Settings;
use super::registry::{
    ALL, CONTEXT, DOWNLOAD_ENDPOINT, DOWNLOAD_LIMIT, DOWNLOAD_PROXY, EXACT, EXPERT_CACHE,
    KEEP_AWAKE, Kind, LOG_LEVEL, MAX_TOKENS, MODEL, MODELS_FOLDER, NOTIFICATIONS, READ_AHEAD, SEED,
    Setting, TEMPERATURE, THREADS, TOP_P, find,
};
use super::sampling::GivenSampling;
use crate::error::{Error, Result, lock};
use crate::models::Wish;
use crate::{App, downloads, logs};

const OPEN_MIRROR: &str = "What comes over http can be read and changed on the way. If this mirror has an https address, use that.";

impl App {
    /// Whether the system should tell what ended while nobody looked at the window.
    pub fn notifications_wanted(&self) -> bool {
        lock(&self.0.settings).flag(&NOTIFICATIONS)
    }

    /// Whether the computer should not go to sleep by itself now: something is under way, and that is wanted.
    pub fn keeps_awake(&self) -> bool {
        self.0.sentinel.is_at_work() && lock(&self.0.settings).flag(&KEEP_AWAKE)
    }

    /// Every setting as it is now, in the order of the screen.
    pub fn setting_list(&self) -> Vec<Shown> {
        let loaded = self.0.models.loaded();
        let settings = lock(&self.0.settings);
        let now = self.0.models.wish(&settings);
        ALL.into_iter()
            // What only a window does is no setting of a page in a browser.
            .filter(|setting| {
                self.1 == Face::Desktop
                    || ![NOTIFICATIONS.key, KEEP_AWAKE.key].contains(&setting.key)
            })
            .map(|setting| {
                let default = setting.default_value();
                let (value, is_set) = self.value(&settings, setting, &default);
                let with = loaded.as_ref().map(|loaded| &loaded.with);
                Shown {
                    key: setting.key.into(),
                    section: setting.section,
                    kind: setting.kind.shown(),
                    scope: setting.scope,
                    help: setting.help.into(),
                    in_use: loaded
                        .as_ref()
                        .map_or(Value::Null, |loaded| in_use(setting, loaded)),
                    pending: with.is_some_and(|with| part(setting, with) != part(setting, &now)),
                    given: self.given(setting),
                    problem: settings.problem(setting).or_else(|| {
                        if setting.key == DOWNLOAD_ENDPOINT.key {
                            return fastar_hub::is_open(&settings.text(setting))
                                .then(|| OPEN_MIRROR.to_owned());
                        }
                        // Of the number that is chosen now, not of one that was.
                        let of_now = loaded.as_ref().filter(|loaded| loaded.with == now)?;
                        (setting.key == THREADS.key)
                            .then(|| of_now.model.facts().warning.clone())
                            .flatten()
                    }),
                    default,
                    value,
                    is_set,
                }
            })
            .collect()
    }

    /// Whether unfinished downloads go on by themselves at the next start.
    pub fn resumes_downloads(&self) -> bool {
        downloads::resume_at_start(&lock(&self.0.settings))
    }

    /// Sets one setting and returns all of them: one may change another. Null and an empty address are as good as a reset.
    ///
    /// # Errors
    /// When there is no such setting, it takes no such value (which is told with the setting's name), or the disk refuses. Nothing is changed then.
    pub fn setting_set(&self, key: &str, value: &Value) -> crate::Result<Vec<Shown>> {
        let setting = known(key)?;
        self.may_change(setting)?;
        let wrong = |what: &str| Error::BadRequest(format!("The setting `{key}` {what}."));
        if value.is_null() {
            return self.setting_reset(key);
        }
        match setting.kind {
            // A face names no paths: it could name any file of the computer.
            Kind::Path => return Err(wrong("is chosen in a dialog of the desktop app").into()),
            Kind::Secret => {
                let token = value.as_str().ok_or_else(|| wrong("must be a text"))?;
                downloads::set_token(&lock(&self.0.settings), self.0.data.path(), token)?;
                return Ok(self.setting_list());
            }
            _ => {}
        }
        {
            let mut settings = lock(&self.0.settings);
            let is_proxy = setting.key == DOWNLOAD_PROXY.key;
            if is_proxy && *value == downloads::shown_proxy(&settings) {
                // What is shown has stars for the password.
                drop(settings);
                return Ok(self.setting_list());
            }
            let value = setting.kind.check(value).map_err(|what| wrong(&what))?;
            let keep = value != "" && value != setting.default_value();
            settings.set(&[(setting, keep.then_some(value))])?;
        }
        self.applied(setting)?;
        Ok(self.setting_list())
    }

    /// Goes back to the default of one setting, and returns all of them.
    ///
    /// # Errors
    /// When there is no such setting, or the disk refuses.
    pub fn setting_reset(&self, key: &str) -> crate::Result<Vec<Shown>> {
        let setting = known(key)?;
        self.may_change(setting)?;
        if setting.key == MODEL.key {
            self.0.models.use_demo()?;
        } else if matches!(setting.kind, Kind::Secret) {
            downloads::forget_token(self.0.data.path())?;
        } else {
            lock(&self.0.settings).set(&[(setting, None)])?;
        }
        self.applied(setting)?;
        Ok(self.setting_list())
    }

    /// What a cache for experts of this many bytes would be; the largest that fits when none. None while no model is ready, and where all of it is in memory.
    pub fn cache_plan(&self, cache_bytes: Option<u64>) -> Option<CachePlan> {
        let loaded = self.0.models.loaded()?;
        let preview = loaded.model.preview(cache_bytes)?;
        Some(CachePlan {
            cache_bytes: preview.plan.cache_bytes,
            slots: preview.plan.slots as u64,
            experts: preview.plan.experts as u64,
            dense_bytes: preview.plan.dense_bytes,
            note: preview.plan.note,
            fewest_bytes: preview.fewest_bytes,
            most_bytes: preview.most_bytes,
            all_bytes: preview.all_bytes,
            tokens_per_second: preview.speed.map(|speed| speed.tokens_per_second),
            hit_rate: preview.speed.map(|speed| speed.hit_rate),
        })
    }

    /// Loads the model in use again, so that settings count that wait for that. An answer being written is stopped if `stop`; those that wait stay in their queue.
    ///
    /// # Errors
    /// When an answer is being written and may not be stopped.
    pub fn model_reload(&self, stop: bool) -> crate::Result<ModelState> {
        if !stop && self.0.generation.is_writing() {
            return Err(Error::Answering.into());
        }
        let state = self.0.models.reload()?;
        self.0.generation.stop_writing();
        Ok(state)
    }

    /// Who opens the local server is at the computer: a page that it serves must not open it to others.
    fn may_change(&self, setting: &Setting) -> Result<()> {
        if setting.section == Section::Server && self.1 == Face::Web {
            return Err(Error::BadRequest(
                "The local server is set up in the window of FaStar.".into(),
            ));
        }
        Ok(())
    }

    /// What counts of a setting, and whether that was chosen.
    fn value(&self, settings: &Settings, setting: &Setting, default: &Value) -> (Value, bool) {
        match setting.kind {
            Kind::Secret => {
                let has = downloads::has_token(settings, self.0.data.path());
                (has.into(), has)
            }
            _ => match settings.value(setting) {
                Some(_) if setting.key == DOWNLOAD_PROXY.key => {
                    (downloads::shown_proxy(settings).into(), true)
                }
                Some(value) => (value.clone(), true),
                None => (default.clone(), false),
            },
        }
    }

    fn given(&self, setting: &Setting) -> Value {
        let given = &self.0.given;
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        // As it was written: 0.7 is not 0.699999988.
        let decimal = |number: Option<f32>| {
            number
                .and_then(|n| n.to_string().parse::<f64>().ok())
                .into()
        };
        match setting.key {
            key if key == EXPERT_CACHE.key => given.cache_bytes.into(),
            key if key == TEMPERATURE.key => decimal(given.sampling.temperature),
            key if key == TOP_P.key => decimal(given.sampling.top_p),
            key if key == SEED.key => given.sampling.seed.into(),
            key if key == MAX_TOKENS.key => given.sampling.max_tokens.into(),
            // Until another one is chosen.
            key if key == MODEL.key => path(&given.model)
                .filter(|_| self.0.models.wanted() == given.model)
                .into(),
            key if key == MODELS_FOLDER.key => path(&self.0.models_folder).into(),
            _ => Value::Null,
        }
    }

    /// What a change does besides being kept.
    fn applied(&self, setting: &Setting) -> Result<()> {
        let settings = lock(&self.0.settings);
        match setting.key {
            key if key == DOWNLOAD_LIMIT.key => {
                self.0.jobs.set_limit(downloads::limit(&settings));
            }
            key if key == DOWNLOAD_ENDPOINT.key => {
                downloads::moved(&settings, self.0.data.path())?;
            }
            key if key == LOG_LEVEL.key => logs::set_level(settings.log_level()),
            _ => {}
        }
        drop(settings);
        if setting.section == Section::Server
            && let Some(hook) = self.0.server_changed.get()
        {
            hook();
        }
        tracing::info!(setting = setting.key, "a setting was changed");
        Ok(())
    }
}

/// What was given for this run and comes before the settings.
pub(crate) struct Given {
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) sampling: GivenSampling,
    pub(crate) model: Option<PathBuf>,
}

fn known(key: &str) -> Result<&'static Setting> {
    find(key).ok_or_else(|| {
        let key: String = key.chars().take(60).collect();
        Error::BadRequest(format!("There is no setting `{key}`."))
    })
}

/// What of a wish to load belongs to a setting; null for the others.
fn part(setting: &Setting, wish: &Wish) -> Value {
    match setting.key {
        key if key == EXPERT_CACHE.key => wish.cache_bytes.into(),
        key if key == THREADS.key => wish.threads.into(),
        key if key == CONTEXT.key => wish.context.into(),
        key if key == READ_AHEAD.key => wish.read_ahead.into(),
        key if key == EXACT.key => wish.exact.into(),
        _ => Value::Null,
    }
}

/// What the model in use really works with.
fn in_use(setting: &Setting, loaded: &crate::models::Loaded) -> Value {
    let facts = loaded.model.facts();
    match setting.key {
        // Where all of it is in memory there is no cache.
        key if key == EXPERT_CACHE.key && facts.memory.cache_bytes > 0 => {
            facts.memory.cache_bytes.into()
        }
        key if key == THREADS.key => facts.threads.into(),
        key if key == CONTEXT.key => facts.context.into(),
        key if key == READ_AHEAD.key => loaded.with.read_ahead.into(),
        key if key == EXACT.key => loaded.with.exact.into(),
        _ => Value::Null,
    }
}
