//! A model whose every step a test dictates, and a few short ways to drive the app with it.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastar_api::{Face, GenerationEvent, Message, ModelState};
use fastar_app::inference::{Model, Source, Timeline};
use fastar_app::{App, GivenSampling, Listener, Options};
use fastar_engine::{
    Answer, Cancel, Conversation, Event, Finish, ModelFacts, Sampling, Thinking, Turn,
};

pub enum Step {
    Prefill(usize, usize),
    Think(String),
    Text(String),
    End,
    /// The limit of tokens is reached.
    Full,
    Fail(fastar_engine::Error),
    Panic,
}

/// What the engine was asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    pub model: String,
    pub timeline: usize,
    pub conversation: Vec<String>,
    pub thinking: Thinking,
    pub seed: u64,
    pub temperature: f32,
}

/// The test's end of the model.
#[derive(Clone)]
pub struct Script {
    steps: Sender<Step>,
    receiver: Arc<Mutex<Receiver<Step>>>,
    pub asked: Arc<Mutex<Vec<Asked>>>,
    pub alive: Arc<AtomicUsize>,
    timelines: Arc<AtomicUsize>,
}

impl Script {
    pub fn new() -> Self {
        let (steps, receiver) = channel();
        Self {
            steps,
            receiver: Arc::new(Mutex::new(receiver)),
            asked: Arc::default(),
            alive: Arc::default(),
            timelines: Arc::default(),
        }
    }

    pub fn step(&self, step: Step) {
        self.steps.send(step).unwrap();
    }

    pub fn say(&self, text: &str) {
        self.step(Step::Text(text.into()));
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Waits until the engine was asked `times` times.
    pub fn wait_asked(&self, times: usize) {
        wait_until("the engine was asked", || self.asked().len() >= times);
    }

    pub fn model(&self, name: &str) -> Arc<dyn Model> {
        Arc::new(ScriptedModel {
            name: name.into(),
            facts: ModelFacts {
                file_bytes: 11,
                parameters: 22,
                layers: 3,
                experts: 4,
                vocab: 5,
                context: 4096,
                threads: 2,
                warning: None,
                memory: Default::default(),
                has_tokenizer: true,
                limit: None,
            },
            script: self.clone(),
        })
    }

    /// Loads `good*.fst`, `slow*.fst` (after half a second) and the demo; any other file is damaged.
    pub fn options(&self, folder: &std::path::Path) -> Options {
        let script = self.clone();
        Options {
            face: Face::Web,
            data_folder: Some(folder.to_path_buf()),
            model: None,
            sampling: GivenSampling::default(),
            models_folder: None,
            told: None,
            cache_bytes: None,
            workshop: None,
            notice: None,
            loader: Arc::new(move |source, _| match source {
                Source::Demo => Ok(script.model("demo")),
                Source::File(path) => {
                    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                    if name.starts_with("slow") {
                        std::thread::sleep(Duration::from_millis(500));
                    }
                    if name.starts_with("panic") {
                        panic!("a bug in the loader");
                    }
                    if name.starts_with("good") || name.starts_with("slow") {
                        Ok(script.model(&name))
                    } else {
                        Err(fastar_engine::Error::Config(format!(
                            "{name}.fst is damaged."
                        )))
                    }
                }
            }),
        }
    }

    /// The app on a folder, once its model has been loaded (or not).
    pub fn app(&self, folder: &std::path::Path) -> App {
        let app = App::open(self.options(folder)).expect("opens");
        loaded(&app);
        app
    }
}

struct ScriptedModel {
    name: String,
    facts: ModelFacts,
    script: Script,
}

struct ScriptedTimeline {
    model: String,
    number: usize,
    script: Script,
}

impl Drop for ScriptedTimeline {
    fn drop(&mut self) {
        self.script.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Model for ScriptedModel {
    fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    /// A token for each byte, and five around each turn.
    fn prompt_tokens(&self, conversation: &Conversation) -> fastar_engine::Result<usize> {
        Ok(conversation
            .turns
            .iter()
            .map(|turn| words(turn).len() + 5)
            .sum())
    }

    fn text_tokens(&self, text: &str) -> fastar_engine::Result<usize> {
        Ok(text.len())
    }

    fn timeline(&self) -> Box<dyn Timeline> {
        self.script.alive.fetch_add(1, Ordering::SeqCst);
        Box::new(ScriptedTimeline {
            model: self.name.clone(),
            number: self.script.timelines.fetch_add(1, Ordering::SeqCst),
            script: self.script.clone(),
        })
    }
}

impl Timeline for ScriptedTimeline {
    fn save(&self, _: &std::path::Path) -> fastar_engine::Result<()> {
        Ok(())
    }

    fn load(&mut self, _: &std::path::Path) -> fastar_engine::Result<()> {
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }

    fn reply(
        &mut self,
        conversation: &Conversation,
        sampling: &Sampling,
        cancel: &Cancel,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> fastar_engine::Result<Answer> {
        self.script.asked.lock().unwrap().push(Asked {
            model: self.model.clone(),
            timeline: self.number,
            conversation: conversation.turns.iter().map(words).collect(),
            thinking: conversation.thinking,
            seed: sampling.seed,
            temperature: sampling.temperature,
        });
        let mut text = String::new();
        let mut tokens = 0;
        let mut reasoning_tokens = 0;
        let ended = |finish, text: String, tokens, reasoning_tokens| Answer {
            reasoning: String::new(),
            calls: Vec::new(),
            reasoning_tokens,
            text,
            finish,
            prompt_tokens: 10,
            reused_tokens: 4,
            answer_tokens: tokens,
            prefill: Duration::from_millis(20),
            first_token: Some(Duration::from_millis(25)),
            decode: Duration::from_millis(500),
            position: 10 + tokens,
        };
        loop {
            if cancel.is_cancelled() {
                return Ok(ended(Finish::Cancelled, text, tokens, reasoning_tokens));
            }
            let step = self
                .script
                .receiver
                .lock()
                .unwrap()
                .recv_timeout(Duration::from_millis(2));
            match step {
                Ok(Step::Prefill(done, total)) => on_event(Event::Prefill { done, total }),
                Ok(Step::Text(more)) => {
                    tokens += 1;
                    text.push_str(&more);
                    on_event(Event::Text(&more));
                }
                Ok(Step::Think(more)) => {
                    tokens += 1;
                    reasoning_tokens += 1;
                    on_event(Event::Reasoning(&more));
                }
                Ok(Step::Full) => {
                    return Ok(ended(Finish::Length, text, tokens, reasoning_tokens));
                }
                Ok(Step::End) => return Ok(ended(Finish::End, text, tokens, reasoning_tokens)),
                Ok(Step::Fail(error)) => return Err(error),
                Ok(Step::Panic) => panic!("a bug in the engine"),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(ended(Finish::End, text, tokens, reasoning_tokens));
                }
            }
        }
    }
}

/// A turn in words: who, and what.
fn words(turn: &Turn) -> String {
    match turn {
        Turn::System(text) => format!("System: {text}"),
        Turn::User(text) => format!("User: {text}"),
        Turn::Assistant(reply) => match reply.reasoning.as_deref() {
            None | Some("") => format!("Assistant: {}", reply.content),
            Some(reasoning) => format!("Assistant: ({reasoning}) {}", reply.content),
        },
        other => format!("{other:?}"),
    }
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..4000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("waited 20 s in vain until {what}");
}

pub fn loaded(app: &App) -> ModelState {
    wait_until("a model was loaded", || {
        !matches!(app.model_state(), ModelState::Loading { .. })
    });
    app.model_state()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("runtime");
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(20), future)
            .await
            .expect("an event within 20 s")
    })
}

pub fn next(listener: &mut Listener) -> Option<GenerationEvent> {
    block_on(listener.next())
}

/// Hears an answer to its end: the text of `started`, the text that followed, the final row.
pub fn hear(listener: &mut Listener) -> Heard {
    let mut heard: Option<Heard> = None;
    while let Some(event) = next(listener) {
        match (event, &mut heard) {
            (GenerationEvent::Started { answer, user, .. }, None) => {
                heard = Some(Heard {
                    before: answer.text,
                    after: vec![],
                    user,
                    answer: None,
                });
            }
            (GenerationEvent::Text { text }, Some(heard)) if heard.answer.is_none() => {
                heard.after.push(text);
            }
            (GenerationEvent::Finished { answer, .. }, Some(heard)) if heard.answer.is_none() => {
                heard.answer = Some(answer);
            }
            (
                GenerationEvent::Queued { .. }
                | GenerationEvent::Prefill { .. }
                | GenerationEvent::Pace { .. }
                | GenerationEvent::Reasoning { .. },
                Some(_),
            ) => {}
            (event, _) => panic!("out of order: {event:?}"),
        }
    }
    heard.expect("a started event")
}

/// Hears an answer until so much of its text is there.
pub fn hear_until(listener: &mut Listener, text: &str) {
    let mut heard = String::new();
    while heard != text {
        match next(listener) {
            Some(GenerationEvent::Started { answer, .. }) => heard = answer.text,
            Some(GenerationEvent::Text { text }) => heard.push_str(&text),
            other => panic!("{other:?} after {heard:?}"),
        }
    }
}

pub struct Heard {
    pub before: String,
    pub after: Vec<String>,
    pub user: Option<Message>,
    answer: Option<Message>,
}

impl Heard {
    pub fn text(&self) -> String {
        format!("{}{}", self.before, self.after.concat())
    }

    pub fn answer(&self) -> &Message {
        self.answer.as_ref().expect("a finished event")
    }
}
