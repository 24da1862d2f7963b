//! The fields of config.json that decide which tensors a checkpoint has. Everything else in it is the engine's business.

use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Result, shown};

/// Sizes of a model, as far as tensor shapes depend on them.
#[derive(Clone, Debug)]
pub(crate) struct Dimensions {
    pub vocab: usize,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub q_lora: usize,
    pub o_groups: usize,
    pub o_lora: usize,
    /// One for each layer, possibly more.
    pub ratios: Vec<usize>,
    pub intermediate: usize,
    pub experts: usize,
    pub experts_per_token: usize,
    pub shared_experts: usize,
    pub index_heads: usize,
    pub index_head_dim: usize,
    pub hash_layers: usize,
    /// Streams of the hyper-connections.
    pub streams: usize,
    /// Sizes of the newer drafter, when the checkpoint has it.
    pub dspark: Option<DSpark>,
}

/// Sizes of the DSpark drafter (`mtp.*` of the newer checkpoints).
#[derive(Clone, Copy, Debug)]
pub(crate) struct DSpark {
    /// Layers of the main model it looks at.
    pub targets: usize,
    pub markov_rank: usize,
}

/// Far above any real model; keeps products of two sizes small.
const MOST: u64 = 1 << 24;
const MOST_LAYERS: u64 = 4096;
const MOST_EXPERTS: usize = 1 << 20;

impl Dimensions {
    /// Reads the sizes, and refuses other architectures and impossible values.
    pub fn read(config: &Value, path: &Path) -> Result<Self> {
        let fail = |problem: String| Error::Config {
            path: path.to_owned(),
            problem,
        };
        if !config.is_object() {
            return Err(fail("it is not a JSON object.".into()));
        }
        check_architecture(config, path)?;
        let number = |field: &str, least: u64, most: u64| -> Result<usize> {
            let value = &config[field];
            match value.as_u64() {
                Some(n) if (least..=most).contains(&n) => Ok(n as usize),
                _ if value.is_null() => Err(fail(format!("field {field} is missing."))),
                _ => Err(fail(format!(
                    "field {field} is {} and must be a whole number from {least} to {most}.",
                    shown(&value.to_string())
                ))),
            }
        };
        let size = |field| number(field, 1, MOST);
        let or = |field: &str, default: usize| match &config[field] {
            Value::Null => Ok(default),
            _ => number(field, 0, MOST),
        };
        // No shape depends on these, but a model without them cannot be run.
        number("sliding_window", 1, MOST)?;
        number("max_position_embeddings", 1, MOST)?;
        let layers = number("num_hidden_layers", 1, MOST_LAYERS)?;
        let ratios = config["compress_ratios"]
            .as_array()
            .and_then(|ratios| {
                ratios
                    .iter()
                    .map(|r| r.as_u64().filter(|&r| r <= MOST).map(|r| r as usize))
                    .collect::<Option<Vec<_>>>()
            })
            .ok_or_else(|| {
                fail(
                    "field compress_ratios must be a list of whole numbers, one for each layer."
                        .into(),
                )
            })?;
        if ratios.len() < layers {
            return Err(fail(format!(
                "compress_ratios has {} entries and num_hidden_layers is {layers}.",
                ratios.len()
            )));
        }
        if let Some(block) = config["quantization_config"].get("weight_block_size")
            && *block != serde_json::json!([128, 128])
        {
            return Err(fail(format!(
                "weight_block_size is {} and only [128, 128] is supported.",
                shown(&block.to_string())
            )));
        }
        let dspark = match &config["dspark_block_size"] {
            Value::Null => None,
            _ => Some(DSpark {
                targets: config["dspark_target_layer_ids"]
                    .as_array()
                    .map(Vec::len)
                    .ok_or_else(|| fail("field dspark_target_layer_ids is missing.".into()))?,
                markov_rank: size("dspark_markov_rank")?,
            }),
        };
        let dimensions = Self {
            vocab: size("vocab_size")?,
            hidden: size("hidden_size")?,
            layers,
            heads: size("num_attention_heads")?,
            head_dim: size("head_dim")?,
            q_lora: size("q_lora_rank")?,
            o_groups: size("o_groups")?,
            o_lora: size("o_lora_rank")?,
            ratios,
            intermediate: size("moe_intermediate_size")?,
            experts: size("n_routed_experts")?,
            experts_per_token: size("num_experts_per_tok")?,
            shared_experts: or("n_shared_experts", 1)?,
            index_heads: size("index_n_heads")?,
            index_head_dim: size("index_head_dim")?,
            hash_layers: or("num_hash_layers", 0)?,
            streams: number("hc_mult", 1, 64)?,
            dspark,
        };
        if dimensions.layers.saturating_mul(dimensions.experts) > MOST_EXPERTS {
            return Err(fail(format!(
                "{layers} layers of {} experts are more than the {MOST_EXPERTS} experts supported.",
                dimensions.experts
            )));
        }
        if dimensions.experts_per_token > dimensions.experts {
            return Err(fail(format!(
                "num_experts_per_tok is {} and n_routed_experts only {}.",
                dimensions.experts_per_token, dimensions.experts
            )));
        }
        if !dimensions
            .heads
            .saturating_mul(dimensions.head_dim)
            .is_multiple_of(dimensions.o_groups)
        {
            return Err(fail(format!(
                "{} heads of {} cannot be split into {} output groups.",
                dimensions.heads, dimensions.head_dim, dimensions.o_groups
            )));
        }
        Ok(dimensions)
    }
}

fn check_architecture(config: &Value, path: &Path) -> Result<()> {
    let names: Vec<&str> = config["architectures"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let model_type = config["model_type"].as_str();
    let fits = match (names.is_empty(), model_type) {
        (true, None) => false,
        (_, Some(name)) if name != "deepseek_v4" => false,
        (false, _) => names.contains(&"DeepseekV4ForCausalLM"),
        (true, _) => true,
    };
    if fits {
        return Ok(());
    }
    let found = match (names.first(), model_type) {
        // The name alone would let people think it is the same.
        (_, Some("deepseek_v41")) => {
            "DeepSeek V4.1, which is another architecture in spite of its name".to_owned()
        }
        (None, None) => "no architecture".to_owned(),
        (Some(name), None) => format!("the architecture {}", shown(name)),
        (None, Some(kind)) => format!("the model type {}", shown(kind)),
        (Some(name), Some(kind)) => {
            format!("the architecture {} of type {}", shown(name), shown(kind))
        }
    };
    Err(Error::Architecture {
        path: path.to_owned(),
        found,
    })
}
