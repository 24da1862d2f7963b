//! Where the time of an answer went.

use std::time::Duration;

use fastar_api::{AnswerStats, Finish};
use fastar_engine::Answer;

use super::count;
use crate::inference::Model;

/// What the pager of the experts had waited when the answer began, and when its prompt had been read.
pub(super) struct Tally {
    begin: Option<Duration>,
    read: Option<Duration>,
}

impl Tally {
    pub(super) fn begin(model: &dyn Model) -> Self {
        Self {
            begin: waited(model),
            read: None,
        }
    }

    /// The prompt has been read to its end.
    pub(super) fn prompt_read(&mut self, model: &dyn Model) {
        self.read = waited(model);
    }

    /// The numbers of an answer that has ended.
    pub(super) fn stats(
        &self,
        model: &dyn Model,
        answer: &Answer,
        context_size: u32,
    ) -> AnswerStats {
        let end = waited(model);
        // Stopped before the prompt was read: all of the waiting was for it.
        let read = self.read.or(end);
        let between = |from: Option<Duration>, to: Option<Duration>| {
            Some(milliseconds(to?.saturating_sub(from?)))
        };
        AnswerStats {
            prompt_tokens: count(answer.prompt_tokens),
            reused_tokens: count(answer.reused_tokens),
            answer_tokens: count(answer.answer_tokens),
            reasoning_tokens: count(answer.reasoning_tokens),
            first_token_ms: milliseconds(answer.first_token.unwrap_or(answer.prefill)),
            prefill_ms: milliseconds(answer.prefill),
            decode_ms: milliseconds(answer.decode),
            prefill_waited_ms: between(self.begin, read),
            decode_waited_ms: between(read, end),
            // The first token ends the prefill; the decode time is that of the others.
            tokens_per_second: speed(
                answer.answer_tokens.saturating_sub(1) as f64,
                answer.decode.as_secs_f64(),
            ),
            context_used: count(answer.position),
            context_size,
            finish: match answer.finish {
                fastar_engine::Finish::End => Finish::End,
                fastar_engine::Finish::Length => Finish::Length,
                fastar_engine::Finish::Cancelled => Finish::Stopped,
            },
        }
    }
}

fn waited(model: &dyn Model) -> Option<Duration> {
    model.statistics().map(|statistics| statistics.waited)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn speed(tokens: f64, seconds: f64) -> Option<f64> {
    (tokens > 0.0 && seconds > 0.0).then(|| tokens / seconds)
}

/// A continued answer: what both parts cost, and how the later one left the context.
pub(super) fn sum(earlier: &AnswerStats, later: AnswerStats) -> AnswerStats {
    let both = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    // The first token of each part was written at the end of its prefill.
    let decoded = f64::from(earlier.answer_tokens.saturating_sub(1))
        + f64::from(later.answer_tokens.saturating_sub(1));
    let decode_ms = earlier.decode_ms + later.decode_ms;
    AnswerStats {
        // As the time: of both prompts.
        prompt_tokens: earlier.prompt_tokens.saturating_add(later.prompt_tokens),
        reused_tokens: earlier.reused_tokens.saturating_add(later.reused_tokens),
        answer_tokens: earlier.answer_tokens.saturating_add(later.answer_tokens),
        reasoning_tokens: earlier
            .reasoning_tokens
            .saturating_add(later.reasoning_tokens),
        first_token_ms: earlier.first_token_ms,
        prefill_ms: earlier.prefill_ms + later.prefill_ms,
        decode_ms,
        prefill_waited_ms: both(earlier.prefill_waited_ms, later.prefill_waited_ms),
        decode_waited_ms: both(earlier.decode_waited_ms, later.decode_waited_ms),
        tokens_per_second: speed(decoded, decode_ms / 1000.0),
        ..later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continued_answer_has_the_sum_of_its_parts() {
        let part = |tokens, decode_ms, waited| AnswerStats {
            prompt_tokens: 10,
            reused_tokens: 4,
            answer_tokens: tokens,
            reasoning_tokens: 1,
            first_token_ms: decode_ms / 10.0,
            prefill_ms: 5.0,
            decode_ms,
            prefill_waited_ms: None,
            decode_waited_ms: waited,
            tokens_per_second: None,
            context_used: tokens + 10,
            context_size: 4096,
            finish: Finish::Length,
        };
        let both = sum(&part(5, 1000.0, Some(3.0)), part(7, 3000.0, Some(4.0)));
        assert_eq!((both.answer_tokens, both.reasoning_tokens), (12, 2));
        // 12 tokens were read in the 10 ms, of prompts with 20.
        assert_eq!((both.prompt_tokens, both.reused_tokens), (20, 8));
        assert_eq!((both.first_token_ms, both.prefill_ms), (100.0, 10.0));
        assert_eq!(
            (both.prefill_waited_ms, both.decode_waited_ms),
            (None, Some(7.0))
        );
        // 4 and 6 intervals in 4 seconds.
        assert_eq!(both.tokens_per_second, Some(2.5));
        assert_eq!(both.context_used, 17);
    }
}
