//! A config.json for a file that has none: from shapes where they tell, from the header where it can be trusted, else V4-Flash's constants.

use serde_json::{Value, json};

use super::file::{File, GLOBAL, Key};

/// Sizes that the shapes of the tensors give.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    pub vocab: usize,
    pub hidden: usize,
    pub layers: usize,
    pub experts: usize,
    pub experts_per_token: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub q_lora: usize,
    pub groups: usize,
    pub o_lora: usize,
    pub intermediate: usize,
    pub streams: usize,
    /// Layers whose experts are chosen by the token's id: the first ones, which have no router bias.
    pub hashed: usize,
    pub ratios: Vec<usize>,
}

impl Sizes {
    /// `shape` finds a tensor in the file and its sidecars; `ratios` are those of tensor kind 40.
    pub fn read(
        file: &File,
        shape: &dyn Fn(Key) -> Option<Vec<usize>>,
        ratios: Option<Vec<usize>>,
    ) -> Result<Self, String> {
        let matrix = |tid, layer, sub| match shape((tid, layer, sub)).as_deref() {
            Some(&[rows, columns]) => Ok((rows, columns)),
            Some(other) => Err(format!(
                "tensor {tid} of layer {layer} has the sizes {other:?} where two are needed"
            )),
            None => Err(format!("tensor {tid} of layer {layer} is missing")),
        };
        let vector = |tid, layer| match shape((tid, layer, 0)).as_deref() {
            Some(&[size]) => Ok(size),
            _ => Err(format!(
                "tensor {tid} of layer {layer} is missing or no vector"
            )),
        };
        let (vocab, hidden) = matrix(0, GLOBAL, 0)?;
        let layers = file.layers as usize;
        let heads = vector(22, 0)?;
        let (head_dim, _) = matrix(6, 0, 0)?;
        let (q_lora, _) = matrix(5, 0, 0)?;
        let (out_rows, out_columns) = matrix(8, 0, 0)?;
        let width = heads
            .checked_mul(head_dim)
            .ok_or("its attention is impossibly wide")?;
        if out_columns == 0 || !width.is_multiple_of(out_columns) {
            return Err(format!(
                "{heads} heads of {head_dim} do not divide into groups of {out_columns}"
            ));
        }
        let groups = width / out_columns;
        if groups == 0 || !out_rows.is_multiple_of(groups) {
            return Err(format!(
                "its output of {out_rows} rows has no {groups} groups"
            ));
        }
        let (intermediate, _) = matrix(11, 0, 0)?;
        let (_, stream_columns) = matrix(29, GLOBAL, 0)?;
        if hidden == 0 || !stream_columns.is_multiple_of(hidden) {
            return Err(format!(
                "{stream_columns} columns of its streams are no multiple of {hidden}"
            ));
        }
        let hashed = (0..layers)
            .take_while(|&l| shape((10, l as u16, 0)).is_none())
            .count();
        let ratios = match ratios {
            Some(ratios) if ratios.len() >= layers => ratios,
            Some(ratios) => {
                return Err(format!(
                    "it lists the ratios of {} layers and has {layers}",
                    ratios.len()
                ));
            }
            // What the published model has.
            None if layers == 43 => (0..layers)
                .map(|l| match l {
                    0 | 1 => 0,
                    l if l % 2 == 0 => 4,
                    _ => 128,
                })
                .collect(),
            None => (0..layers)
                .map(|l| shape((32, l as u16, 0)).map_or(0, |s| s[0]))
                .collect(),
        };
        Ok(Self {
            vocab,
            hidden,
            layers,
            experts: file.experts as usize,
            experts_per_token: file.experts_per_token as usize,
            heads,
            head_dim,
            q_lora,
            groups,
            o_lora: out_rows / groups,
            intermediate,
            streams: stream_columns / hidden,
            hashed,
            ratios,
        })
    }

    /// Every tensor a model of these sizes has, with its shape.
    pub fn needed(&self) -> Vec<(Key, Vec<usize>)> {
        let s = self;
        let (d, n) = (s.hidden, s.streams);
        let mut all = vec![
            ((0, GLOBAL, 0), vec![s.vocab, d]),
            ((1, GLOBAL, 0), vec![d]),
            ((2, GLOBAL, 0), vec![s.vocab, d]),
            ((29, GLOBAL, 0), vec![n, n * d]),
            ((30, GLOBAL, 0), vec![1]),
            ((31, GLOBAL, 0), vec![n]),
        ];
        for l in 0..s.layers {
            let layer = l as u16;
            let mut add = |tid, sub, shape: &[usize]| all.push(((tid, layer, sub), shape.to_vec()));
            let width = s.heads * s.head_dim;
            add(3, 0, &[d]);
            add(4, 0, &[d]);
            add(5, 0, &[s.q_lora, d]);
            add(5, 1, &[width, s.q_lora]);
            add(6, 0, &[s.head_dim, d]);
            add(8, 0, &[s.groups * s.o_lora, width / s.groups]);
            add(8, 1, &[d, s.groups * s.o_lora]);
            add(9, 0, &[s.experts, d]);
            if l >= s.hashed {
                add(10, 0, &[s.experts]);
            }
            add(11, 0, &[s.intermediate, d]);
            add(12, 0, &[s.intermediate, d]);
            add(13, 0, &[d, s.intermediate]);
            add(14, 0, &[s.q_lora]);
            add(15, 0, &[s.head_dim]);
            add(22, 0, &[s.heads]);
            for first in [23, 26] {
                // Sizes of real tensors: their product is in the file, so the square of a divisor is small.
                let outputs = n.saturating_mul(n).saturating_add(2 * n);
                add(first, 0, &[outputs, n * d]);
                add(first + 1, 0, &[3]);
                add(first + 2, 0, &[outputs]);
            }
            if s.ratios[l] > 0 {
                let width = if s.ratios[l] == 4 {
                    2 * s.head_dim
                } else {
                    s.head_dim
                };
                add(32, 0, &[s.ratios[l], width]);
                add(33, 0, &[width, d]);
                add(34, 0, &[width, d]);
                add(35, 0, &[s.head_dim]);
            }
        }
        all
    }

    /// The config.json.
    pub fn config(&self, file: &File) -> Value {
        json!({
            "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "vocab_size": self.vocab,
            "hidden_size": self.hidden, "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": 1, "head_dim": self.head_dim, "qk_rope_head_dim": 64, "q_lora_rank": self.q_lora,
            "o_groups": self.groups, "o_lora_rank": self.o_lora, "sliding_window": 128, "compress_ratios": self.ratios,
            "rope_theta": decimal(file.theta), "compress_rope_theta": 160_000.0,
            "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1},
            "max_position_embeddings": 1_048_576, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512,
            "n_routed_experts": self.experts, "num_experts_per_tok": self.experts_per_token, "n_shared_experts": 1,
            "moe_intermediate_size": self.intermediate, "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc",
            "norm_topk_prob": true, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0, "num_hash_layers": self.hashed,
            "hc_mult": self.streams, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": decimal(file.eps),
            "num_nextn_predict_layers": 0, "hidden_act": "silu", "tie_word_embeddings": false, "bos_token_id": 0, "eos_token_id": 1
        })
    }
}

/// The decimal number an `f32` was written from: 1e-6 and not 9.999999974752427e-7.
fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}
