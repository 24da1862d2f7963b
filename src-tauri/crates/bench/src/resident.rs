//! An open model: how fast it answers and reads.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fastar_engine::diagnostic;
use fastar_engine::{Cancel, Engine, Options, Session, Statistics};
use fastar_fst::Container;

use crate::fill::Random;
use crate::peer::Test;
use crate::report::Model;
use crate::shape::bytes_per_token;
use crate::{Error, Result};

/// An open model, warm.
pub(crate) struct Resident {
    engine: Engine,
    session: Session,
    /// What it is.
    pub about: Model,
    /// Threads it computes on.
    pub threads: usize,
    vocab: u64,
    context: usize,
    random: Random,
}

impl Resident {
    /// Opens the model and reads a prompt, so that what is read once (to check it, to bring it into memory) has been.
    pub fn open(path: &Path, options: &Options, stop: &AtomicBool) -> Result<Self> {
        let mut resident = Self::cold(path, options)?;
        resident.seconds(Test::Prompt(WARM_UP), stop)?;
        resident.seconds(Test::Answer(2), stop)?;
        Ok(resident)
    }

    /// Opens the model.
    pub fn cold(path: &Path, options: &Options) -> Result<Self> {
        // Closed again before the engine opens it.
        let bytes_per_token = {
            let container = Container::open(path)?;
            bytes_per_token(&container, false)
        };
        let engine = Engine::open(path, options)?;
        let facts = engine.facts();
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Self {
            about: Model {
                name: name.to_string_lossy().into_owned(),
                file_bytes: facts.file_bytes,
                bytes_per_token,
            },
            threads: facts.threads,
            vocab: facts.vocab as u64,
            context: facts.context,
            random: Random::new(1, 0),
            session: engine.session(),
            engine,
        })
    }

    /// Seconds in which every expert comes from the disk once and nothing is computed.
    pub fn page_through(&self) -> Result<f64> {
        let start = Instant::now();
        diagnostic::page_through(&self.engine)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// What its pager has counted.
    pub fn statistics(&self) -> Option<Statistics> {
        self.engine.statistics()
    }

    /// Whether there is room for every expert.
    pub fn in_memory(&self) -> bool {
        let memory = &self.engine.facts().memory;
        memory.slots >= memory.experts
    }

    /// How many experts there is room for, in words.
    pub fn experts_in_memory(&self) -> String {
        let memory = &self.engine.facts().memory;
        format!("{} of {} experts", memory.slots, memory.experts)
    }

    /// Bytes of the weights that are always in memory, of slots for experts, and of what the session keeps.
    pub fn planned_bytes(&self) -> u64 {
        let memory = &self.engine.facts().memory;
        memory.dense_bytes + memory.cache_bytes + self.session.bytes() as u64
    }

    /// Time for a test, from an empty context. Tokens are drawn at random: which ones does not matter to the speed, and a model of random
    /// weights answers nothing that would be better.
    pub fn seconds(&mut self, test: Test, stop: &AtomicBool) -> Result<f64> {
        let (Test::Prompt(count) | Test::Answer(count)) = test;
        if count > self.context {
            return Err(Error::Context {
                tokens: count,
                context: self.context,
            });
        }
        let ids: Vec<u32> = (0..count)
            .map(|_| (self.random.next() % self.vocab) as u32)
            .collect();
        self.session.reset();
        let start = Instant::now();
        match test {
            Test::Prompt(_) => {
                let cancel = Cancel::default();
                let look = || {
                    if stop.load(Ordering::Relaxed) {
                        cancel.cancel();
                    }
                };
                match self.session.prefill(&ids, &cancel, &mut |_| look()) {
                    Err(fastar_engine::Error::Cancelled) => return Err(Error::Stopped),
                    read => drop(read?),
                }
            }
            Test::Answer(_) => {
                for id in ids {
                    if stop.load(Ordering::Relaxed) {
                        return Err(Error::Stopped);
                    }
                    self.session.decode(id)?;
                }
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Tokens a second in a test.
    pub fn rate(&mut self, test: Test, stop: &AtomicBool) -> Result<f64> {
        let (Test::Prompt(count) | Test::Answer(count)) = test;
        Ok(count as f64 / self.seconds(test, stop)?)
    }
}

/// Tokens of the prompt that warms up: enough to use nearly every expert once.
const WARM_UP: usize = 256;
