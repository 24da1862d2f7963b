//! A loaded model with its threads and tokenizer.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastar_fst::{Container, Dtype, EffortTable};
use fastar_kernels::processors::{Processors, stay_on};
use fastar_kernels::product::Arithmetic;
use fastar_kernels::team::Team;
use fastar_kernels::threads;

use crate::chat::ChatTokenizer;
use crate::load::{load, recording};
use crate::model::{Activity, Model};
use crate::pager::{PageView, Pager, READERS, Statistics, hot};
use crate::plan::{self, Available, Measured, Need, Plan, Preview};
use crate::{Error, Result, Session};

/// The list of hot experts is written so often at most while the model is in use.
const KEEP_EVERY: Duration = Duration::from_secs(60);
/// More threads than any machine for this has processors.
pub const MOST_THREADS: usize = 512;

/// How to load a model.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads to compute on; when none, one for each core this process may use, or fewer where its quota of time is less.
    pub threads: Option<usize>,
    /// Never round a vector to eight bits, where doing so is faster (see the page of [the model](crate)); to compare with.
    pub exact: bool,
    /// Most bytes of memory for experts; what this process may use, less the rest of the model, when none. At least what a token needs in one
    /// layer, whatever is asked for.
    pub cache_bytes: Option<u64>,
    /// Never read experts that will only probably be needed.
    pub without_guesses: bool,
    /// Folder with a small file for each model that keeps which experts were hottest, for the next start.
    pub hot_lists: Option<PathBuf>,
    /// File to record the experts of every token in: a new one, or an older trace, which it replaces.
    pub trace: Option<PathBuf>,
    /// Most positions one session may have; what the model was made for when none. Never more than that.
    pub context: Option<usize>,
    /// Round KV rows and index keys as the hosted model does (section 4 of the V4 notes).
    pub reference: bool,
}

/// A loaded model. Cheap to clone; all clones share weights and threads.
#[derive(Clone)]
pub struct Engine(Arc<Loaded>);

struct Loaded {
    model: Model,
    tokenizer: Option<ChatTokenizer>,
    efforts: EffortTable,
    team: Team,
    facts: ModelFacts,
    /// What it needs of memory; none where it is in memory as a whole anyway.
    need: Option<Need>,
    hot_lists: Option<PathBuf>,
    /// When the list of hot experts was last written.
    kept: Mutex<Option<Instant>>,
}

/// Facts about a loaded model.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    /// Size of the container in bytes.
    pub file_bytes: u64,
    /// Parameters in all, MTP blocks included.
    pub parameters: u64,
    /// Transformer layers.
    pub layers: usize,
    /// Routed experts in each layer.
    pub experts: usize,
    /// Width of the logits.
    pub vocab: usize,
    /// Positions one session may have.
    pub context: usize,
    /// Threads in use.
    pub threads: usize,
    /// False when the container has no tokenizer: only token ids can be used.
    pub has_tokenizer: bool,
    /// What is unwise about the number of threads that was asked for, a sentence for people.
    pub warning: Option<String>,
    /// What of it is in memory.
    pub memory: Plan,
    /// What the file cannot do and what to do about it, a sentence for people.
    pub limit: Option<String>,
}

impl ModelFacts {
    /// What a person at a terminal should know of this model, called `name`, once it is loaded: what was asked for and what it became. What fits whole
    /// needs no word, unless `asked`: a size of the cache was given with --cache.
    pub fn told(&self, name: &str, asked: bool) -> Vec<String> {
        let memory = &self.memory;
        let cache = if asked && memory.cache_bytes == 0 {
            Some(format!(
                "All of {name} is in memory with this program; --cache changes nothing."
            ))
        } else if asked || memory.slots < memory.experts {
            Some(memory.sentence())
        } else {
            None
        };
        [self.warning.clone(), memory.note.clone(), cache]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Set from any thread to stop an answer; looked at between layers.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the work to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Engine {
    /// Opens a container and prepares its weights.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        let _span = tracing::info_span!("load", path = %path.display()).entered();
        let container = Container::open(path)?;
        container.hold();
        Self::load(container, options)
    }

    /// The same for a container in memory (the embedded demo).
    pub fn from_static(bytes: &'static [u8], options: &Options) -> Result<Self> {
        let _span = tracing::info_span!("load", path = "embedded").entered();
        Self::load(Container::from_static(bytes)?, options)
    }

    fn load(container: Container, options: &Options) -> Result<Self> {
        let arithmetic = if options.exact {
            Arithmetic::Exact
        } else {
            Arithmetic::Fast
        };
        let processors = Processors::find();
        // All at once: who raises a limit should have to do it only once.
        let readers = container.file().map_or(0, |_| READERS);
        threads::room(started(options.threads, &processors) + readers)?;
        let (team, warning) = team(options.threads, &processors)?;
        let (model, memory, need) = load(Arc::new(container), arithmetic, options)?;
        let container = model.container();
        let tokenizer = container
            .tokenizer()?
            .map(|json| ChatTokenizer::new(&json, &model.config))
            .transpose()?;
        // Where nothing is known, the older table: it adds least to a prompt.
        let efforts = container.effort_table().unwrap_or_default();
        let facts = ModelFacts {
            file_bytes: container.file_bytes(),
            parameters: parameters(container),
            layers: model.config.num_hidden_layers,
            experts: model.config.n_routed_experts,
            vocab: model.config.vocab_size,
            context: model.config.max_position_embeddings,
            threads: team.threads(),
            warning,
            has_tokenizer: tokenizer.is_some(),
            memory,
            limit: container.limit(),
        };
        Ok(Self(Arc::new(Loaded {
            model,
            tokenizer,
            efforts,
            team,
            facts,
            need,
            hot_lists: options.hot_lists.clone(),
            kept: Mutex::default(),
        })))
    }

    /// Facts for people.
    pub fn facts(&self) -> &ModelFacts {
        &self.0.facts
    }

    /// What the pager of the experts did so far; none where all of the model is in memory anyway.
    pub fn statistics(&self) -> Option<Statistics> {
        self.0.model.pager().map(Pager::statistics)
    }

    /// Why the file that [`Options::trace`] names does not hold every token so far, a sentence; none where it does, or where there is none.
    pub fn trace_failure(&self) -> Option<String> {
        self.0.model.recording_failure()
    }

    /// What was computed so far, and how long it took.
    pub fn activity(&self) -> Activity {
        self.0.model.activity()
    }

    /// Every expert as it is now, layer by layer; none where all of the model is in memory anyway.
    pub fn pages(&self) -> Option<Vec<PageView>> {
        self.0.model.pager().map(Pager::pages)
    }

    /// What a cache of another size would be, if this model were loaded again in the place of itself; none where all of it is in memory anyway.
    pub fn preview(&self, cache_bytes: Option<u64>) -> Option<Preview> {
        let (need, pager) = (self.0.need.as_ref()?, self.0.model.pager()?);
        let statistics = pager.statistics();
        // What it holds now is free before it is loaded again.
        let held = need.dense + statistics.filled * need.slot;
        let available = plan::available(Path::new("/")).map(|now| Available {
            bytes: now.bytes.saturating_add(held),
            ..now
        });
        let plan = plan::plan(available, need, cache_bytes);
        let activity = self.activity();
        let alone = &statistics.alone;
        let measured = Measured {
            tokens: activity.alone,
            time: activity.alone_time,
            waited: alone.waited,
            missed: alone.misses + alone.late,
            taken: self.0.facts.layers * need.fewest,
            slots: self.0.facts.memory.slots,
        };
        let mut heat: Vec<f64> = pager.pages().iter().map(|page| page.heat).collect();
        heat.sort_by(|a, b| b.total_cmp(a));
        Some(Preview {
            speed: plan::predict(&heat, &measured, plan.slots),
            fewest_bytes: need.fewest as u64 * need.slot,
            most_bytes: plan::plan(available, need, None).cache_bytes,
            all_bytes: need.experts as u64 * need.slot,
            plan,
        })
    }

    /// Records from now on in a new file which experts tokens take, or no longer.
    pub fn record(&self, path: Option<&Path>) -> Result<()> {
        let new = path
            .map(|path| recording(&self.0.model, path))
            .transpose()?;
        self.0.model.record(new);
        Ok(())
    }

    /// The file of the recording under way, its bytes so far, and whether the disk took them all.
    pub fn recorded(&self) -> Option<(PathBuf, u64, bool)> {
        let recording = self.0.model.recording();
        let r = recording.as_ref()?;
        Some((r.path().to_owned(), r.bytes(), r.is_whole()))
    }

    /// A fresh timeline.
    pub fn session(&self) -> Session {
        Session::new(self)
    }

    /// Tokens of a prompt that are read at a time.
    pub(crate) fn chunk(&self) -> usize {
        self.0.facts.memory.chunk.max(1)
    }

    pub(crate) fn model(&self) -> &Model {
        &self.0.model
    }

    /// The tokenizer, which a chat needs.
    pub(crate) fn tokenizer(&self) -> Result<&ChatTokenizer> {
        self.0.tokenizer.as_ref().ok_or_else(|| {
            Error::Tokenizer("The model file has no tokenizer, so it cannot chat. Convert the checkpoint again with its tokenizer.json.".into())
        })
    }

    /// Which effort texts the model was trained with.
    pub(crate) fn efforts(&self) -> EffortTable {
        self.0.efforts
    }

    /// Keeps the list of hot experts now and then, so that a process that is killed has lost little of it.
    pub(crate) fn keep_hot_list_now_and_then(&self) {
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none_or(|kept| kept.elapsed() >= KEEP_EVERY) {
            self.0.keep_hot_list();
            *kept = Some(Instant::now());
        }
    }

    pub(crate) fn is(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Runs work on this engine's threads.
    pub(crate) fn run<R: Send>(&self, work: impl FnOnce(&Model) -> R + Send) -> R {
        self.0.team.run(|| work(&self.0.model))
    }
}

/// Threads that an engine starts to compute on and, if `paged`, to read the experts of a model file with.
pub fn threads_needed(asked: Option<usize>, paged: bool) -> usize {
    started(asked, &Processors::find()) + if paged { READERS } else { 0 }
}

/// Of the threads that were asked for, those that compute.
fn started(asked: Option<usize>, processors: &Processors) -> usize {
    let wanted = asked.unwrap_or_else(|| processors.threads());
    wanted.min(4 * processors.allowed)
}

/// The threads of an engine: those asked for, or one for each core; and what is unwise about them.
///
/// As many as there are cores stay on a core each. More than there are processors wait for each other; beyond four times as many nothing but
/// waiting would come of it, and no more are started.
fn team(asked: Option<usize>, processors: &Processors) -> Result<(Team, Option<String>)> {
    let wanted = match asked {
        Some(n) if !(1..=MOST_THREADS).contains(&n) => {
            return Err(Error::Input(format!(
                "The number of threads is {n}; it must be from 1 to {MOST_THREADS}."
            )));
        }
        Some(n) => n,
        None => processors.threads(),
    };
    let threads = started(asked, processors);
    let best = processors.threads();
    let counted = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let reason = if wanted > processors.allowed {
        let allowed = counted(processors.allowed, "processor");
        Some(format!("this program may use {allowed}"))
    } else if processors.affordable(wanted) < wanted {
        let quota = processors.quota.unwrap_or_default();
        Some(format!(
            "this program is granted the time of {quota} processors"
        ))
    } else {
        None
    };
    let warning = reason.map(|reason| {
        let asked = counted(wanted, "thread");
        let started = match threads {
            n if n < wanted => format!("; {n} are started, for more would only wait"),
            _ => String::new(),
        };
        format!(
            "{asked} were asked for and {reason}{started}. {} would be faster.",
            counted(best, "thread")
        )
    });
    let places = processors.clone();
    let begin = move |thread| {
        if let Some(processor) = places.place(thread, threads) {
            stay_on(processor);
        }
    };
    let team = Team::new(threads, processors.affordable(processors.allowed), begin)?;
    Ok((team, warning))
}

/// Weights in all: dense ones without their scales and the tables of the hash layers, and every expert.
fn parameters(container: &Container) -> u64 {
    let dense: u64 = container
        .tensors()
        .filter(|(name, t)| {
            !name.ends_with(".scale") && !matches!(t.dtype, Dtype::I32 | Dtype::I64)
        })
        .map(|(_, t)| t.elements())
        .sum();
    let (layers, experts) = container.expert_counts();
    let layout = container.expert_layout();
    let each: u64 = [&layout.gate, &layout.up, &layout.down]
        .iter()
        .map(|m| (m.rows * m.columns) as u64)
        .sum();
    dense + (layers * experts) as u64 * each
}

impl Loaded {
    fn keep_hot_list(&self) {
        let (Some(folder), Some(pager)) = (&self.hot_lists, self.model.pager()) else {
            return;
        };
        let pages = pager.hottest();
        if pages.is_empty() {
            return;
        }
        if let Err(error) = hot::save(folder, self.model.container().identity(), &pages) {
            tracing::warn!(%error, folder = %folder.display(), "the list of hot experts could not be kept");
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.keep_hot_list();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn processors(cores: usize, allowed: usize, quota: Option<f64>) -> Processors {
        Processors {
            cores: (0..cores).collect(),
            allowed,
            quota,
        }
    }

    #[test]
    fn threads_are_those_asked_for_and_what_is_unwise_is_said() {
        let some = |asked, of: &Processors| {
            let (team, warning) = team(asked, of).unwrap();
            (team.threads(), warning.unwrap_or_default())
        };
        let two = processors(2, 4, None);
        assert_eq!(some(None, &two), (2, String::new()));
        assert_eq!(some(Some(1), &two), (1, String::new()));
        assert_eq!(some(Some(4), &two), (4, String::new()));
        let (threads, warning) = some(Some(512), &two);
        assert_eq!(threads, 16);
        assert_eq!(
            warning,
            "512 threads were asked for and this program may use 4 processors; 16 are started, for more would only wait. 2 threads would be faster."
        );
        let granted = processors(4, 4, Some(1.5));
        assert_eq!(some(None, &granted), (1, String::new()));
        let (threads, warning) = some(Some(2), &granted);
        assert_eq!(threads, 2);
        assert_eq!(
            warning,
            "2 threads were asked for and this program is granted the time of 1.5 processors. 1 thread would be faster."
        );
        for wrong in [0, 513] {
            let error = team(Some(wrong), &two).err().unwrap().to_string();
            assert_eq!(
                error,
                format!("The number of threads is {wrong}; it must be from 1 to 512.")
            );
        }
    }
}
