//! Rotary positions: two sets of frequencies, and their angles for a run of positions.

use super::config::Config;

/// Frequencies of one kind of layer, radians per position.
pub struct Rotation {
    frequencies: Vec<f64>,
}

/// Cosines and sines for consecutive positions, [n, rd / 2] each.
#[derive(Default)]
pub struct Angles {
    cos: Vec<f32>,
    sin: Vec<f32>,
    half: usize,
}

impl Rotation {
    /// Sliding layers use `rope_theta` alone. Layers with a compressor use `compress_rope_theta` with YaRN for everything that is
    /// rotated in them: queries, KV rows, compressed rows, index queries and keys. No factor on cosines and sines.
    pub fn new(config: &Config, compressed: bool) -> Self {
        let width = config.qk_rope_head_dim;
        let base = if compressed {
            config.compress_rope_theta
        } else {
            config.rope_theta
        };
        let plain = |i: usize| libm::pow(base, -((2 * i) as f64) / width as f64);
        let mut frequencies: Vec<f64> = (0..width / 2).map(plain).collect();
        if let (true, Some(yarn)) = (compressed, &config.rope_scaling) {
            // The channel pair that makes `rotations` turns over the original context.
            let pair_of = |rotations: f64| {
                width as f64
                    * libm::log(
                        yarn.original_max_position_embeddings
                            / (rotations * 2.0 * std::f64::consts::PI),
                    )
                    / (2.0 * libm::log(base))
            };
            let low = pair_of(yarn.beta_fast).floor().max(0.0);
            let mut high = pair_of(yarn.beta_slow).ceil().min(width as f64 - 1.0);
            if high == low {
                high += 0.001;
            }
            for (i, f) in frequencies.iter_mut().enumerate() {
                let keep = 1.0 - ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                *f = *f * keep + *f / yarn.factor * (1.0 - keep);
            }
        }
        Self { frequencies }
    }

    /// Angles of positions `first, first + step, ...`. Computed in f64: a million positions leave no error in an `f32`.
    pub fn angles(&self, first: usize, step: usize, count: usize, out: &mut Angles) {
        out.half = self.frequencies.len();
        out.cos.clear();
        out.sin.clear();
        for t in 0..count {
            for f in &self.frequencies {
                let (sin, cos) = libm::sincos((first + t * step) as f64 * f);
                out.cos.push(cos as f32);
                out.sin.push(sin as f32);
            }
        }
    }
}

impl Angles {
    /// Cosines and sines of the `t`-th position, [rd / 2] each.
    pub fn at(&self, t: usize) -> (&[f32], &[f32]) {
        let range = t * self.half..(t + 1) * self.half;
        (&self.cos[range.clone()], &self.sin[range])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Flash's numbers from the V4 notes, section 3.2: pairs 0-15 unchanged, 16-24 mixed, 25-31 divided by 16.
    #[test]
    fn yarn_of_flash_keeps_mixes_and_divides_the_right_pairs() {
        let json = serde_json::json!({
            "vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 512,
            "qk_rope_head_dim": 64, "q_lora_rank": 8, "o_groups": 1, "o_lora_rank": 8, "sliding_window": 128,
            "compress_ratios": [0], "moe_intermediate_size": 8, "n_routed_experts": 1, "num_experts_per_tok": 1,
            "max_position_embeddings": 1048576,
            "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1}
        });
        let config = Config::from_json(&json).unwrap();
        let yarn = Rotation::new(&config, true).frequencies;
        for (i, f) in yarn.iter().enumerate() {
            let plain = 160_000f64.powf(-(2.0 * i as f64) / 64.0);
            let ratio = f / plain;
            match i {
                0..=15 => assert!((ratio - 1.0).abs() < 1e-12, "pair {i}"),
                16..=24 => assert!(ratio < 1.0 && ratio > 1.0 / 16.0, "pair {i}"),
                _ => assert!((ratio - 1.0 / 16.0).abs() < 1e-12, "pair {i}"),
            }
        }
        let plain = Rotation::new(&config, false).frequencies;
        assert!((plain[31] - 10_000f64.powf(-62.0 / 64.0)).abs() < 1e-15);
    }
}
