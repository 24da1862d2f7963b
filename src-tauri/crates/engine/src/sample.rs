//! Choosing the next token from logits.
//!
//! The order is fixed: bias, penalties, then either the likeliest token (temperature 0) or temperature, top-k, top-p among what top-k
//! left, min-p, and one draw. Everything is computed in f64 with functions that give the same bits on every machine, and the random
//! number depends on seed and position alone: the same seed and settings give the same text.

use std::collections::HashMap;

use fastar_kernels::vector::{boltzmann, largest};

use crate::{Error, Result};

/// How tokens are chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 = always the likeliest token (lowest id on ties). Values up to 1e-5 are taken as 0.
    pub temperature: f32,
    /// Keep this many of the likeliest tokens (lower ids on ties). 0 = all.
    pub top_k: usize,
    /// Nucleus: keep the likeliest tokens that together have this probability. 1 = all.
    pub top_p: f32,
    /// Keep tokens at least this likely, relative to the likeliest. 0 = all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens that occur in prompt or answer (Keskar et al. 2019). 1 = off.
    pub repetition_penalty: f32,
    /// Taken from the logits of tokens that occur in the answer, once. 0 = off.
    pub presence_penalty: f32,
    /// Taken from the logits of tokens that occur in the answer, as often as they do. 0 = off.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens. Minus infinity forbids a token.
    pub logit_bias: Vec<(u32, f32)>,
    /// Same seed, same text.
    pub seed: u64,
    /// Most tokens to write; the context is the limit when none.
    pub max_tokens: Option<usize>,
    /// The answer ends before the first of these that its text contains. Empty ones are ignored.
    pub stop: Vec<String>,
}

impl Default for Sampling {
    /// Greedy, to the end of the answer.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
            max_tokens: None,
            stop: Vec::new(),
        }
    }
}

/// Temperatures up to here differ from 0 only where two logits are equal to the last bits.
const GREEDY_UP_TO: f32 = 1e-5;

impl Sampling {
    /// Temperature for a person who chooses none, in the window as in the terminal.
    pub const TEMPERATURE: f64 = 0.6;
    /// Highest temperature a person can choose: at 10 a token e^10 times as likely as another is taken e times as often.
    pub const MOST_TEMPERATURE: f64 = 10.0;
    /// `top_p` for a person who chooses none.
    pub const TOP_P: f64 = 0.95;
    /// Lowest `top_p` a person can choose: the likeliest token alone, unless a thousand are as likely.
    pub const LEAST_TOP_P: f64 = 0.001;

    /// Says what is wrong with these settings, if something is.
    pub fn check(&self) -> Result<()> {
        let fail = |name: &str, value: f32, rule: &str| {
            Err(Error::Input(format!(
                "{name} is {value}; it must be {rule}."
            )))
        };
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return fail("The temperature", self.temperature, "0 or more");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return fail("top_p", self.top_p, "above 0 and at most 1");
        }
        if !(self.min_p >= 0.0 && self.min_p <= 1.0) {
            return fail("min_p", self.min_p, "from 0 to 1");
        }
        if !(self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0) {
            return fail("repetition_penalty", self.repetition_penalty, "above 0");
        }
        for (name, value) in [
            ("presence_penalty", self.presence_penalty),
            ("frequency_penalty", self.frequency_penalty),
        ] {
            if !value.is_finite() {
                return fail(name, value, "a number");
            }
        }
        for (token, bias) in &self.logit_bias {
            if bias.is_nan() || *bias == f32::INFINITY {
                return fail(&format!("The bias of token {token}"), *bias, "a number");
            }
        }
        Ok(())
    }
}

/// Chooses the tokens of one answer.
pub(crate) struct Sampler<'a> {
    sampling: &'a Sampling,
    /// Tokens of the prompt (0) and how often each occurs in the answer. Only kept when a penalty is on.
    seen: HashMap<u32, u32>,
    adjusted: Vec<f32>,
    /// Of each token, relative to the likeliest, whose weight is 1.
    weights: Vec<f64>,
    order: Vec<u32>,
}

impl<'a> Sampler<'a> {
    /// For the answer to `prompt`.
    pub fn new(sampling: &'a Sampling, prompt: &[u32]) -> Self {
        let mut sampler = Self {
            sampling,
            seen: HashMap::new(),
            adjusted: Vec::new(),
            weights: Vec::new(),
            order: Vec::new(),
        };
        if sampler.has_penalties() {
            sampler.seen.extend(prompt.iter().map(|id| (*id, 0)));
        }
        sampler
    }

    fn has_penalties(&self) -> bool {
        let s = self.sampling;
        s.repetition_penalty != 1.0 || s.presence_penalty != 0.0 || s.frequency_penalty != 0.0
    }

    /// The next token; `position` is where it will stand. Logits are numbers or minus infinity, and at least one is a number.
    pub fn choose(&mut self, logits: &[f32], position: usize) -> u32 {
        let token = if self.has_penalties() || !self.sampling.logit_bias.is_empty() {
            let mut adjusted = std::mem::take(&mut self.adjusted);
            self.adjust(logits, &mut adjusted);
            let token = self.draw(&adjusted, position);
            self.adjusted = adjusted;
            token
        } else {
            self.draw(logits, position)
        };
        if self.has_penalties() {
            *self.seen.entry(token).or_insert(0) += 1;
        }
        token
    }

    fn adjust(&self, logits: &[f32], out: &mut Vec<f32>) {
        let s = self.sampling;
        out.clear();
        out.extend_from_slice(logits);
        for (token, bias) in &s.logit_bias {
            if let Some(logit) = out.get_mut(*token as usize) {
                *logit += bias;
            }
        }
        for (token, count) in &self.seen {
            if let Some(logit) = out.get_mut(*token as usize) {
                *logit = if *logit > 0.0 {
                    *logit / s.repetition_penalty
                } else {
                    *logit * s.repetition_penalty
                };
                if *count > 0 {
                    *logit -= s.presence_penalty + s.frequency_penalty * *count as f32;
                }
            }
        }
    }

    fn draw(&mut self, logits: &[f32], position: usize) -> u32 {
        let s = self.sampling;
        let best = argmax(logits);
        if s.temperature <= GREEDY_UP_TO {
            return best;
        }
        let count = logits.len();
        self.weights.resize(count, 0.0);
        let top = logits[best as usize];
        boltzmann(logits, top, f64::from(s.temperature), &mut self.weights);
        let weights = &self.weights;
        let weight = |id: u32| weights[id as usize];
        let least = f64::from(s.min_p);
        let uniform = uniform(s.seed, position as u64);
        if s.top_p >= 1.0 && (s.top_k == 0 || s.top_k >= count) {
            let kept = || {
                (0..count as u32)
                    .map(|id| (id, weight(id)))
                    .filter(|(_, w)| *w >= least)
            };
            let total: f64 = kept().map(|(_, w)| w).sum();
            return walk(kept(), uniform * total).unwrap_or(best);
        }

        let likelier = |a: &u32, b: &u32| {
            logits[*b as usize]
                .total_cmp(&logits[*a as usize])
                .then(a.cmp(b))
        };
        self.order.clear();
        let allowed = match s.top_k {
            0 => count,
            k => k.min(count),
        };
        // What top-p is a share of: everything that top-k left.
        let total: f64 = if allowed == count {
            let total = weights.iter().sum();
            // All tokens whose weight is below this have less than the share that top-p leaves out; half of it allows for rounding.
            let needless = 0.5 * (1.0 - f64::from(s.top_p)) * total / count as f64;
            let ids = (0..count as u32).filter(|id| weight(*id) >= needless);
            self.order.extend(ids);
            total
        } else {
            self.order.extend(0..count as u32);
            self.order.select_nth_unstable_by(allowed, likelier);
            self.order.truncate(allowed);
            // In a fixed order, for a sum of fixed bits.
            self.order.sort_unstable_by(likelier);
            self.order.iter().map(|id| weight(*id)).sum()
        };
        let enough = f64::from(s.top_p) * total;
        let allowed = self.order.len();
        // A nucleus is small as a rule: sort the likeliest 64, then four times as many, until they hold enough.
        let mut sorted = 64.min(allowed);
        let (kept, sum) = loop {
            if sorted < self.order.len() {
                self.order.select_nth_unstable_by(sorted, likelier);
            }
            self.order[..sorted].sort_unstable_by(likelier);
            let mut sum = 0.0;
            let cut = self.order[..sorted].iter().position(|id| {
                sum += weight(*id);
                sum >= enough
            });
            match cut {
                Some(last) => break (last + 1, sum),
                None if sorted == allowed => break (allowed, sum),
                None => sorted = (4 * sorted).min(allowed),
            }
        };
        let nucleus = || {
            let ids = self.order[..kept].iter();
            ids.map(|id| (*id, weight(*id)))
                .filter(|(_, w)| *w >= least)
        };
        let sum = if least > 0.0 {
            nucleus().map(|(_, w)| w).sum()
        } else {
            sum
        };
        walk(nucleus(), uniform * sum).unwrap_or(best)
    }
}

/// The largest logit, the lowest id on ties.
pub(crate) fn argmax(logits: &[f32]) -> u32 {
    const CHUNK: usize = 4096;
    let top = largest(logits, f32::NEG_INFINITY);
    // Without an early end the compiler looks at many numbers at once.
    let has_top = |chunk: &[f32]| chunk.iter().fold(false, |found, v| found | (*v == top));
    let start = logits.chunks(CHUNK).position(has_top).unwrap_or(0) * CHUNK;
    let chunk = &logits[start.min(logits.len())..];
    (start + chunk.iter().position(|v| *v == top).unwrap_or(0)) as u32
}

/// The token at which the running sum of weights passes `target`; the last one that has a weight if rounding keeps it from passing.
fn walk(weights: impl Iterator<Item = (u32, f64)>, target: f64) -> Option<u32> {
    let mut sum = 0.0;
    let mut last = None;
    for (id, weight) in weights {
        if weight > 0.0 {
            last = Some(id);
        }
        sum += weight;
        if sum > target {
            return last;
        }
    }
    last
}

/// A number in [0, 1) from seed and position: SplitMix64 (Steele, Lea, Flood 2014), its 53 upper bits.
fn uniform(seed: u64, position: u64) -> f64 {
    let step = position.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut z = seed.wrapping_add(step);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 20_000;

    fn warm(seed: u64) -> Sampling {
        Sampling {
            temperature: 1.0,
            seed,
            ..Sampling::default()
        }
    }

    /// Independent draws from the same logits: how often each token came.
    fn counts(sampling: &Sampling, logits: &[f32]) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        for position in 0..DRAWS {
            counts[Sampler::new(sampling, &[]).choose(logits, position) as usize] += 1;
        }
        counts
    }

    /// The draws fit these probabilities: nothing outside them, and chi-square below its 0.1 % point for up to 4 degrees of freedom.
    fn fits(sampling: &Sampling, logits: &[f32], expected: &[f64]) {
        let counts = counts(sampling, logits);
        let (mut chi, mut kinds) = (0.0, 0);
        for (count, p) in counts.iter().zip(expected) {
            if *p == 0.0 {
                assert_eq!(*count, 0, "a token outside the allowed set: {counts:?}");
                continue;
            }
            let e = p * DRAWS as f64;
            chi += (*count as f64 - e).powi(2) / e;
            kinds += 1;
        }
        let point = [10.83, 13.82, 16.27, 18.47][(kinds - 2).min(3)];
        assert!(chi < point, "chi-square {chi} of {counts:?}");
    }

    /// Weights 8, 4, 2, 1, 1 at temperature 1.
    fn logits() -> [f32; 5] {
        [8.0f32, 4.0, 2.0, 1.0, 1.0].map(f32::ln)
    }

    #[test]
    fn the_likeliest_of_many_is_the_first_of_equal_ones() {
        let mut logits = vec![-7.0; 10_000];
        logits[0] = f32::NEG_INFINITY;
        assert_eq!(argmax(&logits), 1);
        for last in [9_999, 8_192, 8_191, 4_096, 33, 0] {
            logits[last] = 2.0;
            assert_eq!(argmax(&logits), last as u32);
        }
    }

    /// A nucleus over a vocabulary most of which is too unlikely to be looked at, against one found by sorting everything.
    #[test]
    fn a_nucleus_holds_the_fewest_tokens_that_have_the_share() {
        let logits: Vec<f32> = (0..5_000u32)
            .map(|i| ((i.wrapping_mul(2_654_435_761) >> 12) % 997) as f32 * -0.03)
            .collect();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        let weight = |id: &usize| libm::exp(f64::from(logits[*id] - logits[order[0]]));
        let total: f64 = order.iter().map(weight).sum();
        for top_p in [0.1, 0.5, 0.9, 0.99] {
            let mut sum = 0.0;
            let inside = order.iter().take_while(|id| {
                let before = sum;
                sum += weight(id);
                before < f64::from(top_p) * total
            });
            let inside: Vec<usize> = inside.copied().collect();
            let sampling = Sampling { top_p, ..warm(5) };
            let mut seen = std::collections::HashSet::new();
            for position in 0..2_000 {
                let token = Sampler::new(&sampling, &[]).choose(&logits, position);
                assert!(inside.contains(&(token as usize)), "{top_p}: {token}");
                seen.insert(token);
            }
            // Each of about a hundred, which are alike, is drawn in 2,000 turns; rare ones need not be.
            if top_p <= 0.5 {
                assert_eq!(seen.len(), inside.len(), "{top_p}");
            }
        }
    }

    #[test]
    fn temperature_zero_and_tiny_ones_take_the_lowest_id_of_equal_logits() {
        for temperature in [0.0, 1e-45, 1e-30, 1e-6] {
            for seed in 0..20 {
                let sampling = Sampling {
                    temperature,
                    ..warm(seed)
                };
                let choice = Sampler::new(&sampling, &[]).choose(&[0.0, 2.0, 2.0, 1.0], 3);
                assert_eq!(choice, 1, "{temperature}");
            }
        }
    }

    #[test]
    fn draws_follow_the_softmax() {
        let p = [0.5, 0.25, 0.125, 0.0625, 0.0625];
        fits(&warm(7), &logits(), &p);
    }

    #[test]
    fn temperature_divides_the_logits() {
        // At temperature 2 the weights are square roots: 4, 2, 1 of 16, 4, 1.
        let sampling = Sampling {
            temperature: 2.0,
            ..warm(3)
        };
        let p = [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0];
        fits(&sampling, &[16.0f32, 4.0, 1.0].map(f32::ln), &p);
    }

    #[test]
    fn top_k_keeps_the_likeliest_and_the_lower_ids_of_equal_ones() {
        let sampling = Sampling {
            top_k: 2,
            ..warm(5)
        };
        fits(&sampling, &logits(), &[2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0, 0.0]);
        let sampling = Sampling {
            top_k: 4,
            ..warm(5)
        };
        let p = [8.0 / 15.0, 4.0 / 15.0, 2.0 / 15.0, 1.0 / 15.0, 0.0];
        fits(&sampling, &logits(), &p);
    }

    #[test]
    fn top_p_keeps_just_enough() {
        // One half is not enough for 0.7, three quarters are.
        let sampling = Sampling {
            top_p: 0.7,
            ..warm(3)
        };
        fits(&sampling, &logits(), &[2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn top_p_is_a_share_of_what_top_k_left() {
        // Of 8, 4, 2 the first two are 0.857: enough for 0.85, not for 0.86.
        for (top_p, p) in [
            (0.85, [2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0, 0.0]),
            (0.86, [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0, 0.0, 0.0]),
        ] {
            let sampling = Sampling {
                top_k: 3,
                top_p,
                ..warm(9)
            };
            fits(&sampling, &logits(), &p);
        }
    }

    #[test]
    fn min_p_is_relative_to_the_likeliest() {
        let sampling = Sampling {
            min_p: 0.2,
            ..warm(11)
        };
        let p = [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0, 0.0, 0.0];
        fits(&sampling, &logits(), &p);
        let both = Sampling {
            min_p: 0.4,
            top_p: 0.99,
            ..warm(11)
        };
        fits(&both, &logits(), &[2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_bias_adds_to_the_logit_and_can_forbid() {
        let sampling = Sampling {
            logit_bias: vec![(3, 8f32.ln()), (0, f32::NEG_INFINITY), (99, 1.0)],
            ..warm(13)
        };
        // 4, 2, 8, 1 are left.
        let p = [0.0, 4.0 / 15.0, 2.0 / 15.0, 8.0 / 15.0, 1.0 / 15.0];
        fits(&sampling, &logits(), &p);
    }

    #[test]
    fn nucleus_over_many_equal_tokens_reaches_beyond_the_first_selection() {
        let sampling = Sampling {
            top_p: 0.5,
            ..warm(1)
        };
        let counts = counts(&sampling, &[0.0; 1000]);
        assert!(counts[500..].iter().all(|n| *n == 0), "beyond the nucleus");
        assert!(counts[64..500].iter().any(|n| *n > 0));
    }

    #[test]
    fn penalties_count_what_was_written_and_what_was_asked() {
        let logits = [2.0f32, 1.9, -1.0, -0.9];
        // Presence: token 0 loses 0.5 once it has been written, however often.
        let sampling = Sampling {
            presence_penalty: 0.5,
            ..Sampling::default()
        };
        let mut sampler = Sampler::new(&sampling, &[1]);
        let written: Vec<u32> = (0..4).map(|p| sampler.choose(&logits, p)).collect();
        assert_eq!(written, [0, 1, 0, 0]);
        // Frequency: 2.0, 1.9, then 1.7, 1.6, 1.4, 1.3 ...: they take turns.
        let sampling = Sampling {
            frequency_penalty: 0.3,
            ..Sampling::default()
        };
        let mut sampler = Sampler::new(&sampling, &[1]);
        let written: Vec<u32> = (0..4).map(|p| sampler.choose(&logits, p)).collect();
        assert_eq!(written, [0, 1, 0, 1]);
        // Repetition: the prompt counts too, so 2.0 / 1.1 is less than 1.9; then 1.9 / 1.1 is less than 2.0 / 1.1.
        let sampling = Sampling {
            repetition_penalty: 1.1,
            ..Sampling::default()
        };
        let mut sampler = Sampler::new(&sampling, &[0]);
        let written: Vec<u32> = (0..2).map(|p| sampler.choose(&logits, p)).collect();
        assert_eq!(written, [1, 0]);
        // A negative logit is multiplied: -0.9 becomes -1.8 and falls behind -1.0.
        let sampling = Sampling {
            repetition_penalty: 2.0,
            logit_bias: vec![(0, f32::NEG_INFINITY), (1, f32::NEG_INFINITY)],
            ..Sampling::default()
        };
        assert_eq!(Sampler::new(&sampling, &[3]).choose(&logits, 0), 2);
    }

    #[test]
    fn the_ends_of_the_unit_interval_stay_inside() {
        let weights = || [(4, 0.0), (7, 0.5), (9, 0.25), (2, 0.0)].into_iter();
        assert_eq!(walk(weights(), 0.0), Some(7));
        assert_eq!(walk(weights(), 0.75), Some(9));
        assert_eq!(walk(weights(), 0.75f64.next_down()), Some(9));
        assert_eq!(walk(weights(), 2.0), Some(9));
        for position in 0..1000 {
            let u = uniform(42, position);
            assert!((0.0..1.0).contains(&u));
        }
    }

    #[test]
    fn another_seed_draws_differently_and_the_same_seed_the_same() {
        let draw = |seed| -> Vec<u32> {
            let sampling = warm(seed);
            let mut sampler = Sampler::new(&sampling, &[]);
            (0..40).map(|p| sampler.choose(&[0.0; 50], p)).collect()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }

    #[test]
    fn settings_outside_their_range_are_refused_by_name() {
        let base = Sampling::default();
        let cases = [
            (
                "temperature",
                Sampling {
                    temperature: -1.0,
                    ..base.clone()
                },
            ),
            (
                "temperature",
                Sampling {
                    temperature: f32::NAN,
                    ..base.clone()
                },
            ),
            (
                "top_p",
                Sampling {
                    top_p: 0.0,
                    ..base.clone()
                },
            ),
            (
                "top_p",
                Sampling {
                    top_p: f32::NAN,
                    ..base.clone()
                },
            ),
            (
                "min_p",
                Sampling {
                    min_p: 1.5,
                    ..base.clone()
                },
            ),
            (
                "repetition_penalty",
                Sampling {
                    repetition_penalty: 0.0,
                    ..base.clone()
                },
            ),
            (
                "presence_penalty",
                Sampling {
                    presence_penalty: f32::INFINITY,
                    ..base.clone()
                },
            ),
            (
                "frequency_penalty",
                Sampling {
                    frequency_penalty: f32::NAN,
                    ..base.clone()
                },
            ),
            (
                "token 5",
                Sampling {
                    logit_bias: vec![(5, f32::NAN)],
                    ..base.clone()
                },
            ),
        ];
        for (name, sampling) in cases {
            let error = sampling
                .check()
                .err()
                .map(|e| e.to_string())
                .unwrap_or_default();
            assert!(error.contains(name), "{name}: {error}");
        }
        assert!(base.check().is_ok());
    }
}
