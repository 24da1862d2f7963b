//! Choosing the next token from logits.
//!
//! Everything is computed in f64 with functions that give the same bits on every machine, and the random number depends on seed and
//! position alone, so the same seed gives the same text.

use crate::{Error, Result};

/// How tokens are chosen.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// 0 = always the likeliest token (lowest id on ties).
    pub temperature: f32,
    /// Nucleus: keep the likeliest tokens that together have this probability. 1 = all.
    pub top_p: f32,
    /// Same seed, same text.
    pub seed: u64,
    /// Most tokens to write; the context is the limit when none.
    pub max_tokens: Option<usize>,
}

impl Default for Sampling {
    /// Greedy, to the end of the answer.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            seed: 0,
            max_tokens: None,
        }
    }
}

impl Sampling {
    /// Says what is wrong with these settings, if something is.
    pub fn check(&self) -> Result<()> {
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return Err(Error::Input(format!(
                "The temperature is {}; it must be 0 or more.",
                self.temperature
            )));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(Error::Input(format!(
                "top_p is {}; it must be above 0 and at most 1.",
                self.top_p
            )));
        }
        Ok(())
    }

    /// The next token; `position` is where it will stand. Logits are finite and not empty.
    pub(crate) fn choose(&self, logits: &[f32], position: usize) -> u32 {
        let best = argmax(logits);
        if self.temperature == 0.0 {
            return best;
        }
        let top = f64::from(logits[best as usize]);
        let temperature = f64::from(self.temperature);
        let weight = |id: u32| libm::exp((f64::from(logits[id as usize]) - top) / temperature);
        let total: f64 = (0..logits.len() as u32).map(weight).sum();
        let target = uniform(self.seed, position as u64);
        if self.top_p >= 1.0 {
            return walk(
                (0..logits.len() as u32).map(|id| (id, weight(id))),
                target * total,
            )
            .unwrap_or(best);
        }
        // The nucleus is small: sort the likeliest 64, then four times as many, until they hold enough.
        let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
        let likelier = |a: &u32, b: &u32| {
            logits[*b as usize]
                .total_cmp(&logits[*a as usize])
                .then(a.cmp(b))
        };
        let enough = f64::from(self.top_p) * total;
        let mut size = 64.min(ids.len());
        loop {
            if size < ids.len() {
                ids.select_nth_unstable_by(size, likelier);
            }
            ids[..size].sort_unstable_by(likelier);
            let mut sum = 0.0;
            for (i, id) in ids[..size].iter().enumerate() {
                sum += weight(*id);
                if sum >= enough || i + 1 == ids.len() {
                    let nucleus = ids[..=i].iter().map(|id| (*id, weight(*id)));
                    return walk(nucleus, target * sum).unwrap_or(best);
                }
            }
            size = (4 * size).min(ids.len());
        }
    }
}

/// The largest logit, the lowest id on ties.
pub(crate) fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, v) in logits.iter().enumerate() {
        if *v > logits[best] {
            best = id;
        }
    }
    best as u32
}

/// The token at which the running sum of weights passes `target`.
fn walk(mut weights: impl Iterator<Item = (u32, f64)>, target: f64) -> Option<u32> {
    let mut sum = 0.0;
    weights
        .find(|(_, w)| {
            sum += w;
            sum > target
        })
        .map(|(id, _)| id)
}

/// A number in [0, 1) from seed and position: SplitMix64 (Steele, Lea, Flood 2014), its 53 upper bits.
fn uniform(seed: u64, position: u64) -> f64 {
    let mut z = seed.wrapping_add(position.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(sampling: &Sampling, logits: &[f32], draws: usize) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        for position in 0..draws {
            counts[sampling.choose(logits, position) as usize] += 1;
        }
        counts
    }

    #[test]
    fn temperature_zero_takes_the_lowest_id_of_equal_logits() {
        let greedy = Sampling::default();
        assert_eq!(greedy.choose(&[0.0, 2.0, 2.0, 1.0], 0), 1);
    }

    /// Chi-square against the softmax worked out by hand; 3 degrees of freedom, 16.27 is the 0.1 % point.
    #[test]
    fn draws_follow_the_softmax() {
        let sampling = Sampling {
            temperature: 2.0,
            seed: 7,
            ..Sampling::default()
        };
        // exp(l / 2) = 8, 4, 2, 2 -> 1/2, 1/4, 1/8, 1/8
        let logits = [8.0f32, 4.0, 2.0, 2.0].map(|w| 2.0 * w.ln());
        let draws = 20_000;
        let counts = counts(&sampling, &logits, draws);
        let chi: f64 = counts
            .iter()
            .zip([0.5, 0.25, 0.125, 0.125])
            .map(|(n, p)| {
                let expected = p * draws as f64;
                (*n as f64 - expected).powi(2) / expected
            })
            .sum();
        assert!(chi < 16.27, "chi-square {chi}, counts {counts:?}");
    }

    #[test]
    fn nucleus_keeps_just_enough_tokens_in_proportion() {
        let sampling = Sampling {
            temperature: 1.0,
            top_p: 0.7,
            seed: 3,
            ..Sampling::default()
        };
        // 1/2, 1/4, 1/8, 1/8: one half is not enough for 0.7, three quarters are. Kept: 2/3 and 1/3.
        let logits = [8.0f32, 4.0, 2.0, 2.0].map(f32::ln);
        let draws = 30_000;
        let counts = counts(&sampling, &logits, draws);
        assert_eq!(counts[2] + counts[3], 0);
        let chi: f64 = counts[..2]
            .iter()
            .zip([2.0 / 3.0, 1.0 / 3.0])
            .map(|(n, p)| {
                let expected = p * draws as f64;
                (*n as f64 - expected).powi(2) / expected
            })
            .sum();
        assert!(chi < 10.83, "chi-square {chi}, counts {counts:?}");
    }

    #[test]
    fn nucleus_over_many_equal_tokens_reaches_beyond_the_first_selection() {
        let sampling = Sampling {
            temperature: 1.0,
            top_p: 0.5,
            seed: 1,
            ..Sampling::default()
        };
        let logits = vec![0.0f32; 1000];
        let counts = counts(&sampling, &logits, 20_000);
        assert!(counts[500..].iter().all(|n| *n == 0), "beyond the nucleus");
        assert!(counts[64..500].iter().any(|n| *n > 0));
    }

    #[test]
    fn another_seed_draws_differently_and_the_same_seed_the_same() {
        let with = |seed| Sampling {
            temperature: 1.0,
            seed,
            ..Sampling::default()
        };
        let logits = vec![0.0f32; 50];
        let draw = |seed| {
            (0..40)
                .map(|p| with(seed).choose(&logits, p))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }

    #[test]
    fn settings_outside_their_range_are_refused() {
        for (temperature, top_p) in [
            (-1.0, 1.0),
            (f32::NAN, 1.0),
            (1.0, 0.0),
            (1.0, 1.5),
            (1.0, f32::NAN),
        ] {
            let sampling = Sampling {
                temperature,
                top_p,
                ..Sampling::default()
            };
            assert!(sampling.check().is_err(), "{temperature} {top_p}");
        }
        assert!(Sampling::default().check().is_ok());
    }
}
