//! `fastar run`: one prompt, one answer.

use fastar_engine::{Answer, Cancel, Engine, Event, Finish, Message, Role, Sampling, Session};

use crate::arguments::RunOptions;
use crate::failure::Failure;
use crate::model::{self, Model};
use crate::terminal::{Answers, Progress};
use crate::{interrupt, prompt, terminal};

/// Prompts shorter than this are read before a person could wonder.
const LONG_PROMPT: usize = 512;

/// Answers the prompt of the options.
pub fn run(options: &RunOptions) -> Result<(), Failure> {
    interrupt::take_over_with(model::threads(&options.model))?;
    let text = prompt::read(&options.prompt)?;
    let model = model::open_for_text(&options.model)?;
    let outcome = answer(&model, text, options);
    model.ended(outcome)
}

fn answer(model: &Model, text: String, options: &RunOptions) -> Result<(), Failure> {
    let sampling = model::sampling(&options.sampling);
    let mut session = model.engine.session();
    let mut answers = Answers::new();
    let messages = [Message {
        role: Role::User,
        text,
    }];
    let answer = write(
        &model.engine,
        &mut session,
        &messages,
        &sampling,
        &mut answers,
    )?;
    if options.stats {
        statistics(&answer, &model.engine);
    }
    match answer.finish {
        Finish::Cancelled => Err(Failure::Interrupted),
        Finish::Length
            if sampling
                .max_tokens
                .is_none_or(|most| answer.answer_tokens < most) =>
        {
            terminal::note("fastar: The answer ends here because the model's context is full.");
            Ok(())
        }
        Finish::Length | Finish::End => Ok(()),
    }
}

/// Says what was computed and read.
fn statistics(answer: &Answer, engine: &Engine) {
    let rate =
        |tokens: usize, time: std::time::Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
    let read = answer.prompt_tokens - answer.reused_tokens;
    let written = answer.answer_tokens.saturating_sub(1);
    terminal::note(&format!(
        "fastar: {read} tokens read at {:.1} a second, {} written at {:.1} a second.",
        rate(read, answer.prefill),
        answer.answer_tokens,
        rate(written, answer.decode)
    ));
    let Some(paging) = engine.statistics() else {
        return;
    };
    let hits = paging
        .hit_rate()
        .map_or("-".to_owned(), |rate| format!("{:.1} %", 100.0 * rate));
    terminal::note(&format!(
        "fastar: Experts: {hits} in memory when asked for, {} read on demand ({}), {} read ahead ({} used, {} for nothing so far); {:.2} s waited.",
        paging.misses,
        fastar_fst::size(paging.demand_bytes),
        fastar_fst::size(paging.ahead_bytes),
        paging.useful,
        paging.wasted,
        paging.waited.as_secs_f64()
    ));
}

/// Writes the next answer while it comes, with a newline after it. Ctrl+C stops it.
pub fn write(
    engine: &Engine,
    session: &mut Session,
    messages: &[Message],
    sampling: &Sampling,
    answers: &mut Answers,
) -> Result<Answer, Failure> {
    let cancel = Cancel::default();
    let mut progress = Progress::new();
    let mut failed = None;
    let result = interrupt::stops(&cancel, || {
        engine.answer(
            session,
            messages,
            sampling,
            &cancel,
            &mut |event| match event {
                Event::Prefill { done, total } if done < total && total >= LONG_PROMPT => {
                    progress.show(|| format!("Reading the prompt: {} %", 100 * done / total));
                }
                Event::Prefill { .. } => progress.clear(),
                // Plain messages ask for neither reasoning nor tools.
                Event::Reasoning(_) | Event::Call(_) | Event::BrokenCall { .. } => {}
                // After a failed write there is nobody to write for.
                Event::Text(_) if failed.is_some() => {}
                Event::Text(text) => {
                    progress.clear();
                    if let Err(failure) = answers.write(text) {
                        failed = Some(failure);
                        cancel.cancel();
                    }
                }
            },
        )
    });
    progress.clear();
    if let Some(failure) = failed {
        return Err(failure);
    }
    let answer = result?;
    if !answer.text.is_empty() && !answer.text.ends_with('\n') {
        answers.write("\n")?;
    }
    Ok(answer)
}
