//! How words are chosen where a message says nothing else.

use fastar_engine::Sampling;

use super::Settings;
use super::registry::{
    FREQUENCY_PENALTY, MAX_TOKENS, MIN_P, PRESENCE_PENALTY, REPETITION_PENALTY, SEED, TEMPERATURE,
    TOP_K, TOP_P,
};

/// What was given for this run and comes before the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GivenSampling {
    /// 0 makes answers repeatable.
    pub temperature: Option<f32>,
    /// Probability that the likeliest tokens, which are kept, have together.
    pub top_p: Option<f32>,
    /// Beginning of the random numbers.
    pub seed: Option<u64>,
    /// Most tokens of an answer.
    pub max_tokens: Option<usize>,
}

impl Settings {
    /// What the settings say where nothing else was given.
    pub(crate) fn sampling(&self, given: &GivenSampling) -> Sampling {
        let decimal = |setting| self.decimal(setting) as f32;
        let whole = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Sampling {
            temperature: given.temperature.unwrap_or_else(|| decimal(&TEMPERATURE)),
            top_p: given.top_p.unwrap_or_else(|| decimal(&TOP_P)),
            top_k: whole(self.number(&TOP_K).unwrap_or(0)),
            min_p: decimal(&MIN_P),
            repetition_penalty: decimal(&REPETITION_PENALTY),
            presence_penalty: decimal(&PRESENCE_PENALTY),
            frequency_penalty: decimal(&FREQUENCY_PENALTY),
            max_tokens: given.max_tokens.or(self.number(&MAX_TOKENS).map(whole)),
            seed: given
                .seed
                .or(self.number(&SEED))
                .unwrap_or_else(random_seed),
            ..Sampling::default()
        }
    }
}

fn random_seed() -> u64 {
    // The low half of a version 7 id is 62 random bits.
    uuid::Uuid::now_v7().as_u64_pair().1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::registry::{ALL, Kind};

    #[test]
    fn what_is_set_is_used_and_whatever_can_be_set_can_be_computed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut settings, _) = Settings::open(dir.path(), "d").unwrap();
        let expected = Sampling {
            temperature: 0.6,
            top_p: 0.95,
            ..Sampling::default()
        };
        let of = |settings: &Settings| Sampling {
            seed: 0,
            ..settings.sampling(&GivenSampling::default())
        };
        assert_eq!(of(&settings), expected);
        let none = GivenSampling::default();
        assert_ne!(settings.sampling(&none).seed, settings.sampling(&none).seed);

        let set = |settings: &mut Settings, key: &str, value: serde_json::Value| {
            let setting = crate::settings::registry::find(key).unwrap();
            settings.set(&[(setting, Some(value))]).unwrap();
        };
        set(&mut settings, "temperature", 1.5.into());
        set(&mut settings, "top_k", 40.into());
        set(&mut settings, "seed", 7.into());
        set(&mut settings, "max_tokens", 100.into());
        set(&mut settings, "presence_penalty", 2.into());
        let sampling = settings.sampling(&none);
        assert_eq!(sampling.temperature, 1.5);
        assert_eq!(sampling.top_k, 40);
        assert_eq!(sampling.seed, 7);
        assert_eq!(sampling.max_tokens, Some(100));
        assert_eq!(sampling.presence_penalty, 2.0);

        let given = GivenSampling {
            temperature: Some(0.0),
            top_p: Some(0.5),
            seed: Some(8),
            max_tokens: Some(3),
        };
        let first = Sampling {
            temperature: 0.0,
            top_p: 0.5,
            seed: 8,
            max_tokens: Some(3),
            ..sampling
        };
        assert_eq!(settings.sampling(&given), first);

        // The ends of every range are values that the engine takes.
        for setting in ALL {
            let ends = match &setting.kind {
                Kind::Whole(range) => [(*range.start()).into(), (*range.end()).into()],
                Kind::Decimal(range) => [(*range.start()).into(), (*range.end()).into()],
                _ => continue,
            };
            for end in ends {
                set(&mut settings, setting.key, end);
                settings.sampling(&none).check().unwrap();
            }
        }
    }
}
