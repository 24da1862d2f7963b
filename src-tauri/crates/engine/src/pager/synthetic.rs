//! Routing as a model's might be, made from a few numbers: for tests, and for trying policies before there is a recorded trace.
//!
//! The score of an expert is popularity + topic (drawn anew for each text) + a slow drift + noise of the token, and the largest are taken.
//! Uniform routing would say nothing about a cache: what makes one work is that some experts are popular and that neighbours in time are alike.
//! The default weights were picked so that replaying a trace lands near the few numbers published for DeepSeek V4 (least-recently-used hits
//! 8 to 18 % with 4.5 % of the experts, frequency with recency about 60 % with 10 %, 46 to 54 % with 15 % over mixed prompts).

use super::trace::{Kind, Trace};

/// What the routing is made of.
#[derive(Clone, Debug)]
pub struct Synthetic {
    /// Tokens.
    pub tokens: usize,
    /// Layers.
    pub layers: usize,
    /// Experts in each.
    pub experts: usize,
    /// Experts a token takes in each.
    pub taken: usize,
    /// Tokens of each text.
    pub text: usize,
    /// Weight of the lasting popularity.
    pub popularity: f64,
    /// Weight of the text's topic.
    pub topic: f64,
    /// Weight of the slow drift.
    pub drift: f64,
    /// Weight of what is different for each token.
    pub noise: f64,
    /// How much of the drift stays from token to token.
    pub persistence: f64,
    /// Same seed, same trace.
    pub seed: u64,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            tokens: 600,
            layers: 43,
            experts: 256,
            taken: 6,
            text: 200,
            popularity: 0.6,
            topic: 0.4,
            drift: 0.3,
            noise: 1.2,
            persistence: 0.9,
            seed: 7,
        }
    }
}

impl Synthetic {
    /// A variant in which fewer experts do more of the work.
    pub fn skewed() -> Self {
        Self {
            popularity: 0.7,
            topic: 0.6,
            drift: 0.4,
            ..Self::default()
        }
    }

    /// The trace: the same bits on every machine.
    pub fn trace(&self) -> Trace {
        let mut random = Random::new(self.seed);
        let all = self.layers * self.experts;
        let popularity: Vec<f64> = (0..all)
            .map(|_| self.popularity * random.normal())
            .collect();
        let mut drift: Vec<f64> = (0..all).map(|_| random.normal()).collect();
        let mut topic = vec![0.0; all];
        let mut scores: Vec<(f64, u16)> = Vec::with_capacity(self.experts);
        let mut picked = vec![0u16; self.layers * self.taken];
        let mut trace = Trace::new(self.layers, self.experts, self.taken);
        let change = (1.0 - self.persistence * self.persistence).sqrt();
        for token in 0..self.tokens {
            let first = token % self.text.max(1) == 0;
            if first {
                topic.fill_with(|| self.topic * random.normal());
            }
            for state in &mut drift {
                *state = self.persistence * *state + change * random.normal();
            }
            for (layer, picked) in picked.chunks_exact_mut(self.taken).enumerate() {
                scores.clear();
                scores.extend((0..self.experts).map(|expert| {
                    let at = layer * self.experts + expert;
                    let lasting = popularity[at] + topic[at] + self.drift * drift[at];
                    (lasting + self.noise * random.normal(), expert as u16)
                }));
                scores.select_nth_unstable_by(self.taken - 1, |a, b| b.0.total_cmp(&a.0));
                for (to, (_, expert)) in picked.iter_mut().zip(&scores) {
                    *to = *expert;
                }
                picked.sort_unstable();
            }
            trace.push(if first { Kind::First } else { Kind::Decode }, &picked);
        }
        trace
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014), and normal numbers from it.
pub struct Random(u64);

impl Random {
    /// Same seed, same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In (0, 1).
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Mean 0, variance 1 (Box and Muller). `libm` gives the same bits everywhere.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(self.unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_those_of_splitmix64() {
        // As Vigna's splitmix64.c gives them for this seed.
        let mut random = Random::new(1_234_567);
        for expected in [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ] {
            assert_eq!(random.next(), expected);
        }
    }
}
