//! Finding and opening the model that a command asks for.

use std::path::{Path, PathBuf};

use fastar_app::Preferences;
use fastar_engine::{Engine, Options, Sampling};

use crate::arguments::{ModelOptions, SamplingOptions};
use crate::failure::Failure;
use crate::{models, terminal};

/// An open model with a name for people.
pub struct Model {
    pub engine: Engine,
    pub name: String,
}

impl Model {
    /// What a command that is done with the model ends with: an error where `--trace` could not be written whole.
    pub fn ended(&self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        match (self.engine.trace_failure(), outcome) {
            (None, outcome) => outcome,
            (Some(sentence), Ok(())) => Err(Failure::Error(sentence)),
            (Some(sentence), Err(failure)) => {
                terminal::note(&format!("fastar: {sentence}"));
                Err(failure)
            }
        }
    }
}

/// Opens the model of the options, or the built-in one, and computes as it is told.
pub fn open(options: &ModelOptions, arithmetic: Options) -> Result<Model, Failure> {
    let settings = Options {
        threads: options.threads,
        cache_bytes: options.cache,
        trace: options.trace.clone(),
        ..arithmetic
    };
    let path = file(options.model.as_deref(), options.model_dir.as_deref())?;
    let model = match path {
        Some(path) => Model {
            engine: Engine::open(&path, &settings)?,
            name: name(&path),
        },
        None => Model {
            engine: Engine::from_static(fastar_app::demo::bytes(), &settings)?,
            name: "the built-in demo model".into(),
        },
    };
    let facts = model.engine.facts();
    for sentence in facts.told(&model.name, options.cache.is_some()) {
        terminal::note(&format!("fastar: {sentence}"));
    }
    Ok(model)
}

/// Threads that the model of the options will need.
pub fn threads(options: &ModelOptions) -> usize {
    let paged = options.model.is_some() || options.model_dir.is_some();
    fastar_engine::threads_needed(options.threads, paged)
}

/// Opens a model that will read and write text.
pub fn open_for_text(options: &ModelOptions) -> Result<Model, Failure> {
    // Before anything slow, and before a trace is begun.
    if let Some(path) = file(options.model.as_deref(), options.model_dir.as_deref())?
        && !fastar_fst::inspect(&path)?.tokenizer
    {
        return Err(without_tokenizer(&name(&path)));
    }
    // Without a home folder there are neither settings nor lists.
    let preferences = Preferences::read().ok();
    if let Some(problem) = preferences.as_ref().and_then(|p| p.problem.as_ref()) {
        terminal::note(&format!("fastar: {problem}"));
    }
    let settings = Options {
        hot_lists: preferences.and_then(|p| p.hot_lists),
        ..Options::default()
    };
    open(options, settings)
}

/// What a model file is called.
pub fn name(path: &Path) -> String {
    let name = path.file_stem().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// That a model can neither read nor write text.
pub fn without_tokenizer(name: &str) -> Failure {
    Failure::Error(format!(
        "{name} has no tokenizer, so it can only be used with token ids (`fastar logits`). Convert the checkpoint again with its tokenizer.json."
    ))
}

/// The model file that was asked for, if one was: given itself, or as the only one in a folder.
pub fn file(model: Option<&Path>, folder: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let Some(folder) = folder else {
        return model.map(called).transpose();
    };
    let unreadable =
        |e: std::io::Error| Failure::Error(format!("Could not read {}: {e}.", folder.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|ending| ending == "fst") && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    if found.len() > 1 {
        // A drafter belongs to the model beside it.
        found.retain(|path| !matches!(fastar_fst::draft(path), Ok(Some(_))));
    }
    match found.as_slice() {
        [one] => Ok(Some(one.clone())),
        [] => Err(Failure::Error(match models::unfinished(folder) {
            Some(sentence) => format!(
                "There is no finished model in {}: {sentence}",
                folder.display()
            ),
            None => format!("There is no .fst file in {}.", folder.display()),
        })),
        [first, second, ..] => Err(Failure::Error(format!(
            "There are {} .fst files in {}, for example {} and {}. Choose one with --model.",
            found.len(),
            folder.display(),
            first.file_name().unwrap_or_default().to_string_lossy(),
            second.file_name().unwrap_or_default().to_string_lossy()
        ))),
    }
}

/// The file that a person means: where the path leads to, or else the model of that name in the folder of the app.
pub fn called(given: &Path) -> Result<PathBuf, Failure> {
    let name = given
        .to_str()
        .filter(|_| given.file_name() == Some(given.as_os_str()));
    let (Some(name), Err(_)) = (name, given.symlink_metadata()) else {
        return Ok(given.to_owned());
    };
    // Without a home folder there is only the path.
    let Ok(Preferences { models_folder, .. }) = Preferences::read() else {
        return Ok(given.to_owned());
    };
    match fastar_app::model_called(&models_folder, name) {
        Some(path) => Ok(path),
        None => Err(Failure::Error(format!(
            "There is no file {name} here, and no model of that name in {}. {}",
            models_folder.display(),
            models::there_are(&models_folder, name)
        ))),
    }
}

/// The engine's form of the sampling options. Without a seed each call gives another one.
pub fn sampling(options: &SamplingOptions) -> Sampling {
    Sampling {
        temperature: options.temp,
        top_p: options.top_p,
        seed: options.seed.unwrap_or_else(random),
        max_tokens: options.tokens,
        ..Sampling::default()
    }
}

/// A number from the system's randomness, which the standard library uses to key its hash tables.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}
