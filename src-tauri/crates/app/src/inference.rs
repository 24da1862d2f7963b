//! The seam to the engine: all that the app needs of a loaded model.
//!
//! The real implementation is [`load`]; tests of the app and of its faces put a scripted model in its place, so that every
//! moment of an answer can be reached on purpose.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastar_engine::{
    Activity, Answer, Cancel, Conversation, Engine, Event, ModelFacts, Options, PageView, Sampling,
    Session, Statistics, plan::Preview,
};

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The embedded demo.
    Demo,
    /// A container on disk.
    File(PathBuf),
}

/// A loaded model, shared between threads.
pub trait Model: Send + Sync {
    /// Facts for people.
    fn facts(&self) -> &ModelFacts;
    /// A fresh timeline; it stays on the thread that made it.
    fn timeline(&self) -> Box<dyn Timeline>;
    /// See [`Engine::statistics`].
    fn statistics(&self) -> Option<Statistics> {
        None
    }
    /// See [`Engine::preview`].
    fn preview(&self, _cache_bytes: Option<u64>) -> Option<Preview> {
        None
    }
    /// See [`Engine::activity`].
    fn activity(&self) -> Activity {
        Activity::default()
    }
    /// See [`Engine::pages`].
    fn pages(&self) -> Option<Vec<PageView>> {
        None
    }
    /// See [`Engine::record`].
    fn record(&self, _path: Option<&Path>) -> fastar_engine::Result<()> {
        Ok(())
    }
    /// See [`Engine::recorded`].
    fn recorded(&self) -> Option<(PathBuf, u64, bool)> {
        None
    }
    /// See [`Engine::prompt_tokens`].
    fn prompt_tokens(&self, conversation: &Conversation) -> fastar_engine::Result<usize>;
    /// See [`Engine::text_tokens`].
    fn text_tokens(&self, text: &str) -> fastar_engine::Result<usize>;
}

/// One conversation's cached state.
pub trait Timeline {
    /// See [`Engine::reply`].
    fn reply(
        &mut self,
        conversation: &Conversation,
        sampling: &Sampling,
        cancel: &Cancel,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> fastar_engine::Result<Answer>;
    /// See [`Session::save`].
    fn save(&self, path: &Path) -> fastar_engine::Result<()>;
    /// See [`Session::load`].
    fn load(&mut self, path: &Path) -> fastar_engine::Result<()>;
    /// About how many bytes [`Timeline::save`] writes; 0 when there is nothing worth keeping.
    fn bytes(&self) -> usize;
}

/// Loads a model; called on a thread of its own.
pub type Loader =
    Arc<dyn Fn(&Source, &Options) -> fastar_engine::Result<Arc<dyn Model>> + Send + Sync>;

/// Loads with the engine.
pub fn load(source: &Source, options: &Options) -> fastar_engine::Result<Arc<dyn Model>> {
    let engine = match source {
        Source::Demo => Engine::from_static(crate::demo::bytes(), options)?,
        Source::File(path) => Engine::open(path, options)?,
    };
    if !engine.facts().has_tokenizer {
        return Err(fastar_engine::Error::Tokenizer(
            "This model file contains no tokenizer, so it cannot read or write text. Convert it again from a folder with tokenizer.json."
                .into(),
        ));
    }
    Ok(Arc::new(EngineModel(engine)))
}

struct EngineModel(Engine);

struct EngineTimeline {
    engine: Engine,
    session: Session,
}

impl Model for EngineModel {
    fn facts(&self) -> &ModelFacts {
        self.0.facts()
    }

    fn timeline(&self) -> Box<dyn Timeline> {
        Box::new(EngineTimeline {
            engine: self.0.clone(),
            session: self.0.session(),
        })
    }

    fn statistics(&self) -> Option<Statistics> {
        self.0.statistics()
    }

    fn preview(&self, cache_bytes: Option<u64>) -> Option<Preview> {
        self.0.preview(cache_bytes)
    }

    fn activity(&self) -> Activity {
        self.0.activity()
    }

    fn pages(&self) -> Option<Vec<PageView>> {
        self.0.pages()
    }

    fn record(&self, path: Option<&Path>) -> fastar_engine::Result<()> {
        self.0.record(path)
    }

    fn recorded(&self) -> Option<(PathBuf, u64, bool)> {
        self.0.recorded()
    }

    fn prompt_tokens(&self, conversation: &Conversation) -> fastar_engine::Result<usize> {
        self.0.prompt_tokens(conversation)
    }

    fn text_tokens(&self, text: &str) -> fastar_engine::Result<usize> {
        self.0.text_tokens(text)
    }
}

impl Timeline for EngineTimeline {
    fn reply(
        &mut self,
        conversation: &Conversation,
        sampling: &Sampling,
        cancel: &Cancel,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> fastar_engine::Result<Answer> {
        self.engine
            .reply(&mut self.session, conversation, sampling, cancel, on_event)
    }

    fn save(&self, path: &Path) -> fastar_engine::Result<()> {
        self.session.save(path)
    }

    fn load(&mut self, path: &Path) -> fastar_engine::Result<()> {
        self.session.load(path)
    }

    fn bytes(&self) -> usize {
        match self.session.position() {
            0 => 0,
            _ => self.session.bytes(),
        }
    }
}
