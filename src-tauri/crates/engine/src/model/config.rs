//! config.json of a DeepSeek V4 checkpoint, checked.
//!
//! Field names are those of the original file. Everything here is hostile input: a config that passes describes a network whose
//! every size is positive, consistent and small enough to multiply without overflow.

use serde::Deserialize;

use crate::{Error, Result};

/// How one layer keeps what lies beyond its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ratio {
    /// Nothing: sliding window only.
    None,
    /// Overlapping blocks of four tokens, picked by the lightning indexer (CSA).
    Indexed,
    /// Plain blocks of this many tokens, all attended (HCA).
    Plain(usize),
}

/// YaRN parameters.
#[derive(Clone, Debug, Deserialize)]
pub struct Yarn {
    /// How much longer the context became.
    pub factor: f64,
    /// Context of the first training.
    pub original_max_position_embeddings: f64,
    /// Rotations above which a frequency stays as it is.
    #[serde(default = "beta_fast")]
    pub beta_fast: f64,
    /// Rotations below which a frequency is divided by the factor.
    #[serde(default = "beta_slow")]
    pub beta_slow: f64,
}

fn beta_fast() -> f64 {
    32.0
}
fn beta_slow() -> f64 {
    1.0
}

/// The fields of config.json that decide the arithmetic.
#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    /// Width of the logits.
    pub vocab_size: usize,
    /// Width of one stream (D).
    pub hidden_size: usize,
    /// Layers, the MTP block not counted.
    pub num_hidden_layers: usize,
    /// Query heads (H).
    pub num_attention_heads: usize,
    /// Width of a head, of a KV row and of a compressed row (hd).
    pub head_dim: usize,
    /// Trailing channels of a head that are rotated (rd).
    pub qk_rope_head_dim: usize,
    /// Width of the low-rank query.
    pub q_lora_rank: usize,
    /// Groups of the output projection (G).
    pub o_groups: usize,
    /// Rank of each group (R).
    pub o_lora_rank: usize,
    /// Positions a token sees directly, itself included.
    pub sliding_window: usize,
    /// Compression of each layer; may be longer than the layers.
    pub compress_ratios: Vec<usize>,
    /// Width of an expert.
    pub moe_intermediate_size: usize,
    /// Routed experts in a layer.
    pub n_routed_experts: usize,
    /// Experts a token uses.
    pub num_experts_per_tok: usize,
    /// Shared experts; one.
    #[serde(default = "one")]
    pub n_shared_experts: usize,
    /// Heads of the indexer.
    #[serde(default)]
    pub index_n_heads: usize,
    /// Width of an indexer head.
    #[serde(default)]
    pub index_head_dim: usize,
    /// Compressed rows the indexer picks.
    #[serde(default)]
    pub index_topk: usize,
    /// First layers, whose experts are picked by the token's id.
    #[serde(default)]
    pub num_hash_layers: usize,
    /// MTP blocks in the checkpoint.
    #[serde(default)]
    pub num_nextn_predict_layers: usize,
    /// Factor on the routed experts' weights.
    #[serde(default = "route_scale")]
    pub routed_scaling_factor: f32,
    /// Bound of the SwiGLU inputs; 0 for none.
    #[serde(default)]
    pub swiglu_limit: f32,
    /// Parallel streams of the hyper-connections.
    #[serde(default = "hc_mult")]
    pub hc_mult: usize,
    /// Sinkhorn steps.
    #[serde(default = "hc_iters")]
    pub hc_sinkhorn_iters: usize,
    /// Added where a hyper-connection divides.
    #[serde(default = "eps")]
    pub hc_eps: f32,
    /// Added inside every root of a norm.
    #[serde(default = "eps")]
    pub rms_norm_eps: f32,
    /// Base of the rotation on sliding layers.
    #[serde(default = "theta")]
    pub rope_theta: f64,
    /// Base on layers with a compressor.
    #[serde(default = "compress_theta")]
    pub compress_rope_theta: f64,
    /// YaRN, on layers with a compressor.
    #[serde(default, deserialize_with = "yarn")]
    pub rope_scaling: Option<Yarn>,
    /// Positions there are.
    pub max_position_embeddings: usize,
    /// Beginning of a sequence.
    #[serde(default)]
    pub bos_token_id: u32,
    /// End of an answer.
    #[serde(default = "eos")]
    pub eos_token_id: u32,
}

fn one() -> usize {
    1
}
fn eos() -> u32 {
    1
}
fn route_scale() -> f32 {
    1.5
}
fn hc_mult() -> usize {
    4
}
fn hc_iters() -> usize {
    20
}
fn eps() -> f32 {
    1e-6
}
fn theta() -> f64 {
    10_000.0
}
fn compress_theta() -> f64 {
    160_000.0
}

/// Fields that name a kind of arithmetic this engine has only one of. Absent means that one.
fn check_arithmetic(json: &serde_json::Value) -> Result<()> {
    use serde_json::json;
    let only = [
        ("scoring_func", json!("sqrtsoftplus")),
        ("topk_method", json!("noaux_tc")),
        ("norm_topk_prob", json!(true)),
        ("hidden_act", json!("silu")),
        ("num_key_value_heads", json!(1)),
        ("tie_word_embeddings", json!(false)),
        ("attention_bias", json!(false)),
    ];
    for (name, value) in only {
        match json.get(name) {
            None | Some(serde_json::Value::Null) => {}
            Some(found) if *found == value => {}
            Some(found) => {
                let found: String = found.to_string().chars().take(60).collect();
                return Err(Error::Config(format!(
                    "The model's config.json cannot be used: {name} is {found}, and V4 has {value}."
                )));
            }
        }
    }
    let scaling = json.get("rope_scaling");
    let kind = scaling.and_then(|scaling| scaling.get("type").or_else(|| scaling.get("rope_type")));
    match kind.and_then(|kind| kind.as_str()) {
        None | Some("yarn" | "default") => Ok(()),
        Some(other) => {
            let other: String = other.chars().take(60).collect();
            Err(Error::Config(format!(
                "The model's config.json cannot be used: rope_scaling is of the kind {other:?}, and V4 has yarn."
            )))
        }
    }
}

/// `rope_scaling` is null, or names its kind as `type` or `rope_type`: YaRN, or `default` for plain rotation.
fn yarn<'de, D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Option<Yarn>, D::Error> {
    let value = serde_json::Value::deserialize(d)?;
    let kind = value.get("type").or_else(|| value.get("rope_type"));
    match kind.and_then(|k| k.as_str()) {
        Some("yarn") => serde_json::from_value(value)
            .map(Some)
            .map_err(serde::de::Error::custom),
        // Other kinds are refused by `check_arithmetic`, in our words.
        _ => Ok(None),
    }
}

/// No size of a real model comes near this; products of four such numbers still fit 64 bits.
const LARGEST: usize = 1 << 24;

impl Config {
    /// Reads and checks the config of a container.
    pub fn from_json(json: &serde_json::Value) -> Result<Self> {
        let config: Config = serde_path_to_error::deserialize(json).map_err(|e| {
            let (field, problem) = (e.path().to_string(), fastar_fst::json_problem(e.inner()));
            Error::Config(match field.as_str() {
                "." => format!("The model's config.json is not one of DeepSeek V4: it {problem}."),
                _ => format!("The model's config.json cannot be used: {field} {problem}."),
            })
        })?;
        config.check()?;
        check_arithmetic(json)?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        let bad = |what: String| {
            Err(Error::Config(format!(
                "The model's config.json cannot be used: {what}."
            )))
        };
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("head_dim", self.head_dim),
            ("qk_rope_head_dim", self.qk_rope_head_dim),
            ("q_lora_rank", self.q_lora_rank),
            ("o_groups", self.o_groups),
            ("o_lora_rank", self.o_lora_rank),
            ("sliding_window", self.sliding_window),
            ("moe_intermediate_size", self.moe_intermediate_size),
            ("n_routed_experts", self.n_routed_experts),
            ("num_experts_per_tok", self.num_experts_per_tok),
            ("hc_mult", self.hc_mult),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        for (name, value) in sizes {
            if value == 0 || value > LARGEST {
                return bad(format!("{name} is {value}"));
            }
        }
        // Every step is work for each token; twenty are used.
        if !(1..=1000).contains(&self.hc_sinkhorn_iters) {
            return bad(format!(
                "hc_sinkhorn_iters is {}; it must be from 1 to 1000",
                self.hc_sinkhorn_iters
            ));
        }
        if self.compress_ratios.len() < self.num_hidden_layers {
            return bad(format!(
                "compress_ratios has {} entries for {} layers",
                self.compress_ratios.len(),
                self.num_hidden_layers
            ));
        }
        if let Some(ratio) = self.compress_ratios.iter().find(|r| **r > LARGEST) {
            return bad(format!("compress_ratios contains {ratio}"));
        }
        if !self.qk_rope_head_dim.is_multiple_of(2) || self.qk_rope_head_dim > self.head_dim {
            return bad(format!(
                "qk_rope_head_dim {} does not fit head_dim {}",
                self.qk_rope_head_dim, self.head_dim
            ));
        }
        if !self.num_attention_heads.is_multiple_of(self.o_groups) {
            return bad(format!(
                "num_attention_heads {} does not divide by o_groups {}",
                self.num_attention_heads, self.o_groups
            ));
        }
        if self.num_experts_per_tok > self.n_routed_experts {
            return bad(format!(
                "num_experts_per_tok {} exceeds n_routed_experts {}",
                self.num_experts_per_tok, self.n_routed_experts
            ));
        }
        if self.n_shared_experts != 1 {
            return bad(format!(
                "n_shared_experts is {}; V4 has 1",
                self.n_shared_experts
            ));
        }
        if self.layer_ratios().any(|r| r == Ratio::Indexed) {
            for (name, value) in [
                ("index_n_heads", self.index_n_heads),
                ("index_head_dim", self.index_head_dim),
                ("index_topk", self.index_topk),
            ] {
                if value == 0 || value > LARGEST {
                    return bad(format!("{name} is {value} and a layer has ratio 4"));
                }
            }
            if self.index_head_dim < self.qk_rope_head_dim {
                return bad(format!(
                    "index_head_dim {} is smaller than qk_rope_head_dim {}",
                    self.index_head_dim, self.qk_rope_head_dim
                ));
            }
        }
        for (name, id) in [
            ("bos_token_id", self.bos_token_id),
            ("eos_token_id", self.eos_token_id),
        ] {
            if id as usize >= self.vocab_size {
                return bad(format!(
                    "{name} {id} is not below vocab_size {}",
                    self.vocab_size
                ));
            }
        }
        let positive = [
            ("rope_theta", self.rope_theta),
            ("compress_rope_theta", self.compress_rope_theta),
            ("rms_norm_eps", self.rms_norm_eps as f64),
            ("hc_eps", self.hc_eps as f64),
        ];
        for (name, value) in positive {
            if !(value.is_finite() && value > 0.0) {
                return bad(format!("{name} is {value}"));
            }
        }
        if !self.routed_scaling_factor.is_finite() {
            return bad(format!(
                "routed_scaling_factor is {}",
                self.routed_scaling_factor
            ));
        }
        if !(self.swiglu_limit.is_finite() && self.swiglu_limit >= 0.0) {
            return bad(format!("swiglu_limit is {}", self.swiglu_limit));
        }
        if let Some(y) = &self.rope_scaling {
            let all = [
                y.factor,
                y.original_max_position_embeddings,
                y.beta_fast,
                y.beta_slow,
            ];
            if all.iter().any(|v| !(v.is_finite() && *v > 0.0)) {
                return bad("rope_scaling holds a value that is not a positive number".into());
            }
        }
        Ok(())
    }

    /// The two roundings of the hosted model work on blocks of 64 KV channels, of 32 index channels, and on index heads whose width is a
    /// power of two. Says why not, if they cannot be applied.
    pub fn check_reference(&self) -> Result<()> {
        let nope = self.head_dim - self.qk_rope_head_dim;
        let indexed = self.layer_ratios().any(|r| r == Ratio::Indexed);
        if !nope.is_multiple_of(fastar_kernels::rounding::KV_BLOCK) {
            return Err(Error::Config(format!(
                "The reference roundings need blocks of 64 channels and this model has {nope} channels without rotation. Run it without them."
            )));
        }
        if indexed
            && !(self.index_head_dim.is_power_of_two()
                && self.index_head_dim >= fastar_kernels::rounding::INDEX_BLOCK)
        {
            return Err(Error::Config(format!(
                "The reference roundings need an index_head_dim that is a power of two from 32 up, and this model has {}. Run it without them.",
                self.index_head_dim
            )));
        }
        Ok(())
    }

    /// Ratio of layer `layer`; indices past the layers are those of the MTP blocks.
    pub fn ratio(&self, layer: usize) -> Ratio {
        match self.compress_ratios.get(layer) {
            None | Some(0) => Ratio::None,
            Some(4) => Ratio::Indexed,
            Some(r) => Ratio::Plain(*r),
        }
    }

    /// About how many bytes of buffers each token of a chunk takes while it is computed: the widest are the queries and outputs of all heads, and
    /// the streams.
    pub fn token_bytes(&self) -> u64 {
        let heads = self.num_attention_heads * self.head_dim;
        let groups = self.o_groups * self.o_lora_rank;
        let index = self.index_n_heads * self.index_head_dim;
        let values = 2 * heads
            + heads / self.o_groups.max(1)
            + 2 * groups
            + index
            + (3 * self.hc_mult + 8) * self.hidden_size
            + 2 * self.q_lora_rank
            + 2 * self.n_routed_experts
            + 4 * self.moe_intermediate_size;
        // Eight-bit copies of what is multiplied, with their scales.
        let copies = heads + groups + index + 4 * self.hidden_size;
        (4 * values + copies * 9 / 8) as u64
    }

    fn layer_ratios(&self) -> impl Iterator<Item = Ratio> + '_ {
        (0..self.num_hidden_layers).map(|l| self.ratio(l))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn small() -> serde_json::Value {
        json!({
            "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 80,
            "qk_rope_head_dim": 16, "q_lora_rank": 32, "o_groups": 2, "o_lora_rank": 32, "sliding_window": 8,
            "compress_ratios": [0, 4, 16, 0], "moe_intermediate_size": 32, "n_routed_experts": 6,
            "num_experts_per_tok": 3, "index_n_heads": 8, "index_head_dim": 32, "index_topk": 5,
            "max_position_embeddings": 1024
        })
    }

    #[test]
    fn ratios_mean_none_indexed_and_plain_and_may_be_longer_than_the_layers() {
        let config = Config::from_json(&small()).unwrap();
        let ratios: Vec<_> = (0..5).map(|l| config.ratio(l)).collect();
        assert_eq!(
            ratios,
            [
                Ratio::None,
                Ratio::Indexed,
                Ratio::Plain(16),
                Ratio::None,
                Ratio::None
            ]
        );
    }

    #[test]
    fn yarn_is_known_by_either_name_and_anything_else_is_plain_rotation() {
        for key in ["type", "rope_type"] {
            let mut json = small();
            json["rope_scaling"] =
                json!({key: "yarn", "factor": 16, "original_max_position_embeddings": 64});
            let yarn = Config::from_json(&json).unwrap().rope_scaling.unwrap();
            assert_eq!(
                (yarn.factor, yarn.beta_fast, yarn.beta_slow),
                (16.0, 32.0, 1.0)
            );
        }
        for other in [json!(null), json!({"type": "default"})] {
            let mut json = small();
            json["rope_scaling"] = other;
            assert!(Config::from_json(&json).unwrap().rope_scaling.is_none());
        }
    }

    #[test]
    fn values_that_describe_no_network_are_refused_by_name() {
        let cases = [
            ("vocab_size", json!(0)),
            ("hidden_size", json!(-1)),
            ("hidden_size", json!(1u64 << 40)),
            ("head_dim", json!("many")),
            ("compress_ratios", json!([0, 4])),
            ("qk_rope_head_dim", json!(17)),
            ("qk_rope_head_dim", json!(96)),
            ("o_groups", json!(3)),
            ("num_experts_per_tok", json!(7)),
            ("n_shared_experts", json!(2)),
            ("index_topk", json!(0)),
            ("index_head_dim", json!(8)),
            ("hc_sinkhorn_iters", json!(1_000_000)),
            ("eos_token_id", json!(96)),
            ("rms_norm_eps", json!(0.0)),
            ("rope_theta", json!(-1.0)),
            ("swiglu_limit", json!(-1.0)),
            ("rope_scaling", json!({"type": "linear", "factor": 2})),
            ("scoring_func", json!("softmax")),
            ("norm_topk_prob", json!(false)),
            ("hidden_act", json!("gelu")),
            ("num_key_value_heads", json!(8)),
            ("tie_word_embeddings", json!(true)),
        ];
        for (name, value) in cases {
            let mut json = small();
            json[name] = value.clone();
            let error = Config::from_json(&json).err().map(|e| e.to_string());
            let error = error.unwrap_or_else(|| panic!("{name} = {value} was accepted"));
            assert!(error.contains(name), "{name}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_plain_words() {
        for (name, value, expected) in [
            (
                "vocab_size",
                json!("many"),
                "vocab_size has a value of the wrong kind.",
            ),
            (
                "vocab_size",
                json!(-1),
                "vocab_size has a value of the wrong kind.",
            ),
            (
                "rope_scaling",
                json!({"type": "yarn"}),
                "rope_scaling lacks the field \"",
            ),
            (
                "rope_scaling",
                json!({"type": "linear"}),
                "rope_scaling is of the kind \"linear\", and V4 has yarn.",
            ),
        ] {
            let mut json = small();
            json[name] = value;
            let error = Config::from_json(&json).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let mut json = small();
        json.as_object_mut().unwrap().remove("vocab_size");
        let error = Config::from_json(&json).err().unwrap().to_string();
        assert!(
            error.ends_with("it lacks the field \"vocab_size\"."),
            "{error}"
        );
    }
}
