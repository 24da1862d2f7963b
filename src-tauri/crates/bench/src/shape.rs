//! The shapes of the models that are measured: the widths of DeepSeek V4 Flash with few layers, so that a token costs what it costs in the real
//! model, layer for layer, and the file fits a disk. Which tensors there are, how each is stored, and how many bytes a token reads of them.

use fastar_fst::{Container, Dtype, ExpertLayout, tensor_bytes};
use serde_json::{Value, json};

use crate::fill::Fill;

/// Precision of the weights that are multiplied for every token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dense {
    /// FP8 with power-of-two scales for 128 x 128 weights, head and rest in BF16: the checkpoint's own.
    Fp8,
    /// Q8_0, the head too: the bytes of llama.cpp's usual file, for comparing with it.
    Q8,
}

/// Sizes of a model.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Name for people and for the command line.
    pub name: &'static str,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Compression of each layer.
    pub ratios: Vec<usize>,
    /// First layers, whose experts are picked by the token's id.
    pub hash_layers: usize,
    /// Routed experts in a layer.
    pub experts: usize,
    /// Of which a token uses so many.
    pub used: usize,
    /// Width of an expert.
    pub intermediate: usize,
    /// Tokens.
    pub vocab: usize,
    /// Query heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Groups of heads.
    pub groups: usize,
    /// Rank of the queries, and of each group's output.
    pub rank: usize,
    /// Heads of the indexer.
    pub index_heads: usize,
    /// Width of one of them.
    pub index_dim: usize,
    /// Compressed rows it picks.
    pub index_topk: usize,
}

/// One tensor to be made.
pub(crate) struct Spec {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub fill: Fill,
}

/// Streams of the hyper-connections.
const STREAMS: usize = 4;
/// Channels of a head that are rotated.
const ROTATED: usize = 64;
/// Rows and columns that an FP8 scale is for.
const FP8_BLOCK: usize = 128;

impl Shape {
    /// Names of the shapes there are.
    pub const NAMES: [&'static str; 3] = ["flash6L32E", "flash3L256E", "tiny"];

    /// The shape with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "flash6L32E" => Some(Self::flash("flash6L32E", &[0, 0, 4, 128, 4, 128], 32)),
            "flash3L256E" => Some(Self::flash("flash3L256E", &[0, 4, 128], 256)),
            "tiny" => Some(Self {
                name: "tiny",
                hidden: 256,
                ratios: vec![0, 0, 4, 128],
                hash_layers: 1,
                experts: 16,
                used: 6,
                intermediate: 256,
                vocab: 512,
                heads: 4,
                head_dim: 128,
                groups: 2,
                rank: 128,
                index_heads: 4,
                index_dim: 128,
                index_topk: 32,
            }),
            _ => None,
        }
    }

    fn flash(name: &'static str, ratios: &[usize], experts: usize) -> Self {
        Self {
            name,
            hidden: 4096,
            ratios: ratios.to_vec(),
            hash_layers: 1,
            experts,
            used: 6,
            intermediate: 2048,
            vocab: 129_280,
            heads: 64,
            head_dim: 512,
            groups: 8,
            rank: 1024,
            index_heads: 64,
            index_dim: 128,
            index_topk: 512,
        }
    }

    /// config.json.
    pub fn config(&self) -> Value {
        json!({
            "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "vocab_size": self.vocab, "hidden_size": self.hidden,
            "num_hidden_layers": self.ratios.len(), "num_attention_heads": self.heads, "num_key_value_heads": 1, "head_dim": self.head_dim,
            "qk_rope_head_dim": ROTATED, "q_lora_rank": self.rank, "o_groups": self.groups, "o_lora_rank": self.rank,
            "sliding_window": 128, "compress_ratios": self.ratios, "rope_theta": 10000.0, "compress_rope_theta": 160000.0,
            "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1},
            "max_position_embeddings": 1_048_576, "index_n_heads": self.index_heads, "index_head_dim": self.index_dim,
            "index_topk": self.index_topk, "n_routed_experts": self.experts, "num_experts_per_tok": self.used, "n_shared_experts": 1,
            "moe_intermediate_size": self.intermediate, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
            "num_hash_layers": self.hash_layers, "hc_mult": STREAMS, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6,
            "num_nextn_predict_layers": 0, "bos_token_id": 0, "eos_token_id": 1
        })
    }

    /// How the experts are stored.
    pub(crate) fn experts_layout(&self) -> Option<ExpertLayout> {
        ExpertLayout::fp4_packets(self.hidden, self.intermediate)
    }

    /// Every dense tensor, in file order.
    pub(crate) fn tensors(&self, dense: Dense) -> Vec<Spec> {
        let (d, mut list) = (
            self.hidden,
            List {
                dense,
                tensors: Vec::new(),
            },
        );
        // A row of the embedding is a hidden state: its entries are of size one.
        list.push(
            "embed.weight",
            Dtype::Bf16,
            &[self.vocab, d],
            Fill::Normal(1.0),
        );
        for (layer, &ratio) in self.ratios.iter().enumerate() {
            self.layer(&mut list, layer, ratio);
        }
        list.hyper("hc_head", STREAMS, 1, d);
        list.norm("norm", d);
        match dense {
            Dense::Q8 => list.linear("head", self.vocab, d),
            Dense::Fp8 => list.bf16("head", self.vocab, d),
        }
        list.tensors
    }

    fn layer(&self, list: &mut List, layer: usize, ratio: usize) {
        let (d, wide) = (self.hidden, self.heads * self.head_dim);
        let p = format!("layers.{layer}.");
        for place in ["attn", "ffn"] {
            let outputs = 2 * STREAMS + STREAMS * STREAMS;
            list.hyper(&format!("{p}hc_{place}"), outputs, 3, d);
            list.norm(&format!("{p}{place}_norm"), d);
        }
        let a = format!("{p}attn.");
        list.linear(&format!("{a}wq_a"), self.rank, d);
        list.norm(&format!("{a}q_norm"), self.rank);
        list.linear(&format!("{a}wq_b"), wide, self.rank);
        list.linear(&format!("{a}wkv"), self.head_dim, d);
        list.norm(&format!("{a}kv_norm"), self.head_dim);
        list.push(
            &format!("{a}attn_sink"),
            Dtype::F32,
            &[self.heads],
            Fill::Constant(0.0),
        );
        list.linear(
            &format!("{a}wo_a"),
            self.groups * self.rank,
            wide / self.groups,
        );
        list.linear(&format!("{a}wo_b"), d, self.groups * self.rank);
        if ratio > 0 {
            list.compressor(&format!("{a}compressor."), ratio, self.head_dim, d);
        }
        if ratio == 4 {
            let indexer = format!("{a}indexer.");
            let rows = self.index_heads * self.index_dim;
            match list.dense {
                Dense::Q8 => list.bf16(&format!("{indexer}wq_b"), rows, self.rank),
                Dense::Fp8 => list.linear(&format!("{indexer}wq_b"), rows, self.rank),
            }
            list.bf16(&format!("{indexer}weights_proj"), self.index_heads, d);
            list.compressor(&format!("{indexer}compressor."), ratio, self.index_dim, d);
        }
        let f = format!("{p}ffn.");
        list.bf16(&format!("{f}gate"), self.experts, d);
        if layer < self.hash_layers {
            let fill = Fill::Experts {
                experts: self.experts,
                used: self.used,
            };
            list.push(
                &format!("{f}gate.tid2eid"),
                Dtype::I64,
                &[self.vocab, self.used],
                fill,
            );
        } else {
            list.push(
                &format!("{f}gate.bias"),
                Dtype::F32,
                &[self.experts],
                Fill::Normal(POPULARITY),
            );
        }
        list.linear(&format!("{f}shared_experts.w1"), self.intermediate, d);
        list.linear(&format!("{f}shared_experts.w3"), self.intermediate, d);
        list.linear(&format!("{f}shared_experts.w2"), d, self.intermediate);
    }

    /// Bytes of weights that a model of this shape reads for a token; see [`bytes_per_token`].
    pub fn bytes_per_token(&self, dense: Dense, picking: bool) -> u64 {
        let tensors = self.tensors(dense);
        let sizes = tensors.iter().map(|t| {
            let bytes = tensor_bytes(t.dtype, &t.shape).unwrap_or(0) as u64;
            (t.name.as_str(), bytes, t.shape[0] as u64)
        });
        let record = self.experts_layout().map_or(0, |layout| layout.bytes) as u64;
        let routed = (self.ratios.len() * self.used) as u64 * record;
        sum(sizes, picking) + routed
    }
}

/// Spread of the experts' biases. The score of an expert varies by about 0.3 from token to token in a random model; half of that makes some
/// experts popular, as they are in a trained one, so that a cache has something to keep. It stays a random model: topics and runs of
/// similar tokens, which make real routing yet more repetitive, are missing.
const POPULARITY: f32 = 0.17;

/// Bytes of weights that a token reads of an open model: every dense tensor, of the embedding, the tables of the hash layers and the position
/// biases of the compressors a row, and the experts it uses. `picking` says whether the indexer has more rows than it may pick, because before that its queries
/// are not computed.
pub fn bytes_per_token(container: &Container, picking: bool) -> u64 {
    let tensors = container.tensors();
    let sizes = tensors.map(|(name, t)| {
        let rows = t.shape.first().copied().unwrap_or(1);
        (name, t.bytes, rows as u64)
    });
    let used = container.config()["num_experts_per_tok"]
        .as_u64()
        .unwrap_or(0);
    let (layers, _) = container.expert_counts();
    let record = container.expert_layout().bytes as u64;
    sum(sizes, picking) + layers as u64 * used * record
}

fn sum<'a>(tensors: impl Iterator<Item = (&'a str, u64, u64)>, picking: bool) -> u64 {
    tensors
        .map(|(name, bytes, rows)| {
            let queries =
                name.contains(".indexer.wq_b.") || name.contains(".indexer.weights_proj.");
            let by_row =
                name == "embed.weight" || name.ends_with(".tid2eid") || name.ends_with(".ape");
            if by_row {
                bytes / rows.max(1)
            } else if name.starts_with("mtp.") || (queries && !picking) {
                0
            } else {
                bytes
            }
        })
        .sum()
}

/// Tensors in the making.
struct List {
    dense: Dense,
    tensors: Vec<Spec>,
}

impl List {
    fn push(&mut self, name: &str, dtype: Dtype, shape: &[usize], fill: Fill) {
        self.tensors.push(Spec {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
            fill,
        });
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.push(
            &format!("{name}.weight"),
            Dtype::Bf16,
            &[width],
            Fill::Near(1.0, 0.1),
        );
    }

    /// A matrix whose outputs are of the size of its inputs.
    fn bf16(&mut self, name: &str, rows: usize, columns: usize) {
        self.push(
            &format!("{name}.weight"),
            Dtype::Bf16,
            &[rows, columns],
            Fill::for_columns(columns),
        );
    }

    /// The same in the model's dense precision.
    fn linear(&mut self, name: &str, rows: usize, columns: usize) {
        let weight = format!("{name}.weight");
        match self.dense {
            Dense::Q8 => self.push(
                &weight,
                Dtype::Q8_0,
                &[rows, columns],
                Fill::for_columns(columns),
            ),
            Dense::Fp8 => {
                self.push(
                    &weight,
                    Dtype::F8E4m3,
                    &[rows, columns],
                    Fill::for_columns(columns),
                );
                let blocks = [rows.div_ceil(FP8_BLOCK), columns.div_ceil(FP8_BLOCK)];
                self.push(
                    &format!("{name}.scale"),
                    Dtype::F8E8m0,
                    &blocks,
                    Fill::for_columns(columns),
                );
            }
        }
    }

    /// A mixing of the streams, [outputs, streams x D].
    fn hyper(&mut self, name: &str, outputs: usize, scales: usize, hidden: usize) {
        let columns = STREAMS * hidden;
        let dtype = match self.dense {
            Dense::Q8 => Dtype::Bf16,
            Dense::Fp8 => Dtype::F32,
        };
        self.push(
            &format!("{name}_fn"),
            dtype,
            &[outputs, columns],
            Fill::for_columns(columns),
        );
        self.push(
            &format!("{name}_base"),
            Dtype::F32,
            &[outputs],
            Fill::Constant(0.0),
        );
        self.push(
            &format!("{name}_scale"),
            Dtype::F32,
            &[scales],
            Fill::Constant(1.0),
        );
    }

    fn compressor(&mut self, prefix: &str, ratio: usize, dim: usize, hidden: usize) {
        let width = if ratio == 4 { 2 * dim } else { dim };
        self.push(
            &format!("{prefix}ape"),
            Dtype::F32,
            &[ratio, width],
            Fill::Constant(0.0),
        );
        self.bf16(&format!("{prefix}wkv"), width, hidden);
        self.bf16(&format!("{prefix}wgate"), width, hidden);
        self.norm(&format!("{prefix}norm"), dim);
    }
}
