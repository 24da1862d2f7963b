//! A model that writes what it is told to: the next token is a function of the last one.
//!
//! Embeddings are one-hot, attention and experts write nothing, and row `f(t)` of the head looks at channel `t`. So a script is followed
//! greedily and for certain, as long as no token in it has two followers.

use std::collections::HashMap;

use serde_json::json;

use crate::{Checkpoint, TestModel, Vocabulary};

/// A script: what follows what.
pub struct Chain {
    /// Its tokens.
    pub vocabulary: Vocabulary,
    next: HashMap<u32, u32>,
}

impl Chain {
    /// Nothing follows anything yet; every token leads to the end.
    pub fn new(words: &[&[u8]]) -> Self {
        Self {
            vocabulary: Vocabulary::new(words),
            next: HashMap::new(),
        }
    }

    /// After `</think>`, which ends a prompt without thinking, these pieces are written, then the answer ends.
    pub fn answering(pieces: &[&[u8]]) -> Self {
        let words: Vec<&[u8]> = pieces.iter().copied().filter(|p| p.len() > 1).collect();
        let mut chain = Self::new(&words);
        let mut tokens = vec![chain.vocabulary.control("</think>")];
        tokens.extend(pieces.iter().map(|p| chain.vocabulary.id(p)));
        tokens.push(chain.vocabulary.eos());
        chain.follow(&tokens);
        chain
    }

    /// Each token is followed by the next of the list.
    pub fn follow(&mut self, tokens: &[u32]) {
        for pair in tokens.windows(2) {
            let before = self.next.insert(pair[0], pair[1]);
            assert!(
                before.is_none_or(|b| b == pair[1]),
                "token {} would have two followers",
                pair[0]
            );
        }
    }

    /// The checkpoint, with room for `context` positions.
    pub fn checkpoint(&self, context: usize) -> Checkpoint {
        let vocab = self.vocabulary.len();
        // A multiple of 32 with a channel for every token.
        let d = vocab.next_multiple_of(32);
        let mut checkpoint = Checkpoint {
            config: json!({
                "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "vocab_size": vocab, "hidden_size": d,
                "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "qk_rope_head_dim": 16,
                "q_lora_rank": 32, "o_groups": 1, "o_lora_rank": 32, "sliding_window": 8, "compress_ratios": [0, 4, 16],
                "rope_theta": 10000.0, "compress_rope_theta": 160000.0, "rope_scaling": null, "max_position_embeddings": context,
                "index_n_heads": 2, "index_head_dim": 32, "index_topk": 8, "n_routed_experts": 8, "num_experts_per_tok": 2,
                "n_shared_experts": 1, "moe_intermediate_size": 32, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
                "num_hash_layers": 1, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6,
                "num_nextn_predict_layers": 0, "bos_token_id": 0, "eos_token_id": 1
            }),
            tokenizer: Some(self.vocabulary.tokenizer()),
            tensors: Default::default(),
        };
        let eos = self.vocabulary.eos();
        let next = |token: usize| *self.next.get(&(token as u32)).unwrap_or(&eos) as usize;
        checkpoint.fill(|name, i| {
            let (row, column) = (i / d, i % d);
            match name {
                "embed.weight" => f32::from(row == column),
                "head.weight" => f32::from(column < vocab && next(column) == row),
                _ if name.ends_with("norm.weight") => 1.0,
                // Whatever these are, they are multiplied by zeros on the way out.
                _ if name.ends_with("wo_b.weight") || name.ends_with("w2.weight") => 0.0,
                _ => 0.03 * ((i % 13) as f32 - 6.0),
            }
        });
        checkpoint
    }

    /// The container, with room for 4096 positions.
    pub fn model(&self) -> TestModel {
        self.checkpoint(4096).convert()
    }
}
