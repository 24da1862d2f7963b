//! Random weights with every mechanism of V4 in them: sliding, indexed and plain layers, hash and score routing.

use serde_json::json;

use crate::{Checkpoint, Vocabulary};

/// What can be chosen about it.
pub struct Tiny {
    /// Same seed, same weights.
    pub seed: u64,
    /// Compression of each layer, which also says how many there are.
    pub ratios: Vec<usize>,
    /// Positions a token sees directly.
    pub window: usize,
    /// Compressed rows that are picked.
    pub topk: usize,
    /// Positions there are.
    pub context: usize,
    /// First layers that choose their experts by a table of token ids.
    pub hash_layers: usize,
    /// Experts in each layer, of which a token takes two.
    pub experts: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of an expert.
    pub intermediate: usize,
}

impl Default for Tiny {
    fn default() -> Self {
        Self {
            seed: 1,
            ratios: vec![0, 4, 16, 4],
            window: 8,
            topk: 5,
            context: 4096,
            hash_layers: 1,
            experts: 8,
            hidden: 64,
            intermediate: 32,
        }
    }
}

/// The checkpoint, with a byte vocabulary.
pub fn tiny(options: &Tiny) -> Checkpoint {
    let vocabulary = Vocabulary::new(&[]);
    let mut checkpoint = Checkpoint {
        config: json!({
            "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "vocab_size": vocabulary.len(),
            "hidden_size": options.hidden, "num_hidden_layers": options.ratios.len(), "num_attention_heads": 4, "num_key_value_heads": 1,
            "head_dim": 48, "qk_rope_head_dim": 16, "q_lora_rank": 32, "o_groups": 2, "o_lora_rank": 32,
            "sliding_window": options.window, "compress_ratios": options.ratios, "rope_theta": 10000.0,
            "compress_rope_theta": 160000.0,
            "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 64, "beta_fast": 32, "beta_slow": 1},
            "max_position_embeddings": options.context, "index_n_heads": 8, "index_head_dim": 32, "index_topk": options.topk,
            "n_routed_experts": options.experts, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": options.intermediate,
            "routed_scaling_factor": 1.5, "swiglu_limit": 10.0, "num_hash_layers": options.hash_layers, "hc_mult": 4, "hc_sinkhorn_iters": 20,
            "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "num_nextn_predict_layers": 0, "bos_token_id": 0, "eos_token_id": 1
        }),
        tokenizer: Some(vocabulary.tokenizer()),
        tensors: Default::default(),
    };
    let mut state = options.seed;
    checkpoint.fill(|name, _| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // In [-1, 1).
        let x = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        if name.ends_with("norm.weight") {
            1.0 + 0.2 * x
        } else if name.ends_with("_scale") {
            0.5 + 0.3 * x
        } else if name == "embed.weight" || name == "head.weight" {
            1.7 * x
        } else {
            0.3 * x
        }
    });
    checkpoint
}
