//! The writing of an answer: the prompt is read, tokens are chosen, and their text is given out part by part.

use std::time::{Duration, Instant};

use crate::chat::{AnswerParser, ChatTokenizer, Conversation, Message, Part, ToolCall, encode};
use crate::sample::Sampler;
use crate::{Cancel, Engine, Error, Result, Sampling, Session};

/// What happens while an answer is written.
#[derive(Debug)]
pub enum Event<'a> {
    /// Prompt tokens read, of those that had to be read.
    Prefill {
        /// Read.
        done: usize,
        /// To read.
        total: usize,
    },
    /// More of what the model thinks before it answers: whole characters only.
    Reasoning(&'a str),
    /// More of the answer: whole characters only.
    Text(&'a str),
    /// The model asks for a tool.
    Call(&'a ToolCall),
    /// The model meant to ask for a tool, and what it wrote is no call.
    BrokenCall {
        /// What it wrote.
        text: &'a str,
        /// What is wrong with it.
        why: &'a str,
    },
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it, or wrote a stop string.
    End,
    /// Token limit or context reached.
    Length,
    /// Cancelled.
    Cancelled,
}

/// A finished answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What the model thought, equal to all [`Event::Reasoning`] joined.
    pub reasoning: String,
    /// Its whole text, equal to all [`Event::Text`] joined.
    pub text: String,
    /// The tools it asks for.
    pub calls: Vec<ToolCall>,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of the whole prompt.
    pub prompt_tokens: usize,
    /// Those of them that were in the session already.
    pub reused_tokens: usize,
    /// Tokens written, reasoning and the end token included.
    pub answer_tokens: usize,
    /// Those of them that were reasoning, its closing tag included.
    pub reasoning_tokens: usize,
    /// Reading the prompt.
    pub prefill: Duration,
    /// From the call to the first token.
    pub first_token: Option<Duration>,
    /// From the first token to the last.
    pub decode: Duration,
    /// Positions in use afterwards.
    pub position: usize,
}

impl Engine {
    /// Writes the next assistant message of `messages`, the last of which is the user's: [`Engine::reply`] to a plain conversation.
    pub fn answer(
        &self,
        session: &mut Session,
        messages: &[Message],
        sampling: &Sampling,
        cancel: &Cancel,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        let conversation = Conversation::of(messages)?;
        self.reply(session, &conversation, sampling, cancel, on_event)
    }

    /// Tokens of the prompt that [`Engine::reply`] would read for a conversation.
    pub fn prompt_tokens(&self, conversation: &Conversation) -> Result<usize> {
        let prompt = encode(self.tokenizer()?, conversation, self.efforts())?;
        Ok(prompt.ids.len())
    }

    /// Tokens of a text by itself. A message's text is always tokenised by itself: so many it adds to a prompt.
    pub fn text_tokens(&self, text: &str) -> Result<usize> {
        let mut ids = Vec::new();
        self.tokenizer()?.encode(text, &mut ids)?;
        Ok(ids.len())
    }

    /// Writes the next answer to a conversation. What `session` holds of the prompt is reused as far as it can be gone back to. After any
    /// result the session is consistent and can be used again.
    ///
    /// A cancelled answer is `Ok` with [`Finish::Cancelled`] and the text so far.
    pub fn reply(
        &self,
        session: &mut Session,
        conversation: &Conversation,
        sampling: &Sampling,
        cancel: &Cancel,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        let begin = Instant::now();
        sampling.check()?;
        if !session.belongs_to(self) {
            return Err(Error::Input(
                "This session belongs to another model.".into(),
            ));
        }
        let tokenizer = self.tokenizer()?;
        let prompt = encode(tokenizer, conversation, self.efforts())?;
        let context = self.facts().context;
        if prompt.ids.len() >= context {
            return Err(Error::ContextFull {
                needed: prompt.ids.len() + 1,
                context,
            });
        }
        // At least one token has to be fed, for its logits.
        let common = prompt
            .ids
            .iter()
            .zip(session.tokens())
            .take_while(|(a, b)| a == b)
            .count()
            .min(prompt.ids.len() - 1);
        let reused = session.back_to(common);
        let mut writing = Writing {
            session,
            tokenizer,
            parser: AnswerParser::new(prompt.opening, &conversation.tools, &sampling.stop),
            sampler: Sampler::new(sampling, &prompt.ids),
            limit: sampling.max_tokens.unwrap_or(usize::MAX),
            context,
            cancel,
            begin,
            on_event,
            parts: Vec::new(),
            answer: Answer {
                reasoning: String::new(),
                text: String::new(),
                calls: Vec::new(),
                finish: Finish::Cancelled,
                prompt_tokens: prompt.ids.len(),
                reused_tokens: reused,
                answer_tokens: 0,
                reasoning_tokens: 0,
                prefill: Duration::ZERO,
                first_token: None,
                decode: Duration::ZERO,
                position: 0,
            },
        };
        let result = writing
            .read(&prompt.ids[reused..])
            .and_then(|first| writing.write(first))
            .and_then(|finish| self.model().settle(cancel).map(|()| finish));
        let mut answer = writing.answer;
        answer.position = session.position();
        self.keep_hot_list_now_and_then();
        match result {
            Ok(finish) => {
                answer.finish = finish;
                Ok(answer)
            }
            Err(Error::Cancelled) => Ok(answer),
            Err(error) => Err(error),
        }
    }
}

/// An answer in the making.
struct Writing<'a> {
    session: &'a mut Session,
    tokenizer: &'a ChatTokenizer,
    parser: AnswerParser,
    sampler: Sampler<'a>,
    limit: usize,
    context: usize,
    cancel: &'a Cancel,
    begin: Instant,
    on_event: &'a mut dyn FnMut(Event<'_>),
    parts: Vec<Part>,
    answer: Answer,
}

impl Writing<'_> {
    /// Reads what the session lacks of the prompt and chooses the first token of the answer.
    fn read(&mut self, prompt: &[u32]) -> Result<u32> {
        let total = prompt.len();
        let _span = tracing::info_span!("prefill", tokens = total).entered();
        let since = Instant::now();
        // Where an edit of this turn's message will come back to.
        self.session.checkpoint();
        (self.on_event)(Event::Prefill { done: 0, total });
        let (body, last) = prompt.split_at(total - 1);
        if !body.is_empty() {
            let on_event = &mut self.on_event;
            self.session.prefill(body, self.cancel, &mut |done| {
                on_event(Event::Prefill { done, total });
            })?;
        }
        // Before the last token, which opens or closes the thinking: another answer starts here, and the next turn, which leaves old
        // reasoning out and so differs from here on.
        self.session.checkpoint();
        let logits = self.session.prefill(last, self.cancel, &mut |_| {})?;
        let token = self.sampler.choose(logits, self.answer.prompt_tokens);
        (self.on_event)(Event::Prefill { done: total, total });
        self.answer.prefill = since.elapsed();
        Ok(token)
    }

    /// Writes from the first token on.
    fn write(&mut self, mut token: u32) -> Result<Finish> {
        if self.limit == 0 {
            return Ok(Finish::Length);
        }
        let _span = tracing::info_span!("decode").entered();
        self.answer.first_token = Some(self.begin.elapsed());
        let first = Instant::now();
        let finish = loop {
            self.answer.answer_tokens += 1;
            self.answer.reasoning_tokens += usize::from(self.parser.is_reasoning());
            self.answer.decode = first.elapsed();
            self.parser
                .push(self.tokenizer.piece(token), &mut self.parts);
            self.give();
            if self.parser.ended() {
                break Ok(Finish::End);
            }
            if self.answer.answer_tokens >= self.limit
                || self.session.position() + 1 >= self.context
            {
                break Ok(Finish::Length);
            }
            if self.cancel.is_cancelled() {
                break Ok(Finish::Cancelled);
            }
            // A stop during the step, which may wait for the disk, leaves the session where it was before.
            match self.session.step(token, self.cancel) {
                Ok(logits) => {
                    let position = self.answer.prompt_tokens + self.answer.answer_tokens;
                    token = self.sampler.choose(logits, position);
                }
                Err(error) => break Err(error),
            }
        };
        self.parser.finish(false, &mut self.parts);
        self.give();
        finish
    }

    fn give(&mut self) {
        for part in self.parts.drain(..) {
            match part {
                Part::Reasoning(text) => {
                    (self.on_event)(Event::Reasoning(&text));
                    self.answer.reasoning.push_str(&text);
                }
                Part::Content(text) => {
                    (self.on_event)(Event::Text(&text));
                    self.answer.text.push_str(&text);
                }
                Part::Call(call) => {
                    (self.on_event)(Event::Call(&call));
                    self.answer.calls.push(call);
                }
                Part::BrokenCall { text, why } => {
                    (self.on_event)(Event::BrokenCall {
                        text: &text,
                        why: &why,
                    });
                }
            }
        }
    }
}
