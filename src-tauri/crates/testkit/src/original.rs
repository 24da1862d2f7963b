//! Files of version 2, as the original FaStar's converter writes them, small. Everything is open, so that a test can break what it likes
//! before the files are written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use serde_json::{Value, json};

use crate::{Checkpoint, Vocabulary};

/// Layer number of what belongs to the whole model.
pub const WHOLE: u16 = 0xFFFF;
const PAGE: usize = 4096;

/// A tensor of a directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Kind, layer, half.
    pub key: (u32, u16, u16),
    /// 1 Q8_0, 2 BF16, 3 F32.
    pub kind: u16,
    /// Sizes.
    pub shape: Vec<u64>,
    /// Bytes.
    pub data: Vec<u8>,
}

/// One `.fst` file of version 2.
#[derive(Clone, Debug)]
pub struct Image {
    /// Header fields of 32 bits from offset 8 on: hidden, layers, experts, experts per token, heads, KV heads, head size, expert width,
    /// shared experts, reserved.
    pub numbers: [u32; 10],
    /// Vocabulary.
    pub vocab: u64,
    /// r1 and r2.
    pub extra: [u64; 2],
    /// The directory.
    pub tensors: Vec<Stored>,
    /// Expert blocks, layer by layer.
    pub blocks: Vec<Vec<u8>>,
}

impl Image {
    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; PAGE + self.tensors.len() * 64];
        for (index, tensor) in self.tensors.iter().enumerate() {
            out.resize(out.len().next_multiple_of(PAGE), 0);
            let mut entry = Vec::new();
            entry.extend(tensor.key.0.to_le_bytes());
            for half in [
                tensor.key.1,
                tensor.key.2,
                tensor.kind,
                tensor.shape.len() as u16,
            ] {
                entry.extend(half.to_le_bytes());
            }
            entry.extend([0; 4]);
            for i in 0..3 {
                entry.extend(tensor.shape.get(i).unwrap_or(&1).to_le_bytes());
            }
            entry.extend((out.len() as u64).to_le_bytes());
            entry.extend((tensor.data.len() as u64).to_le_bytes());
            entry.extend([0; 8]);
            out[PAGE + index * 64..PAGE + (index + 1) * 64].copy_from_slice(&entry);
            out.extend_from_slice(&tensor.data);
        }
        out.resize(out.len().next_multiple_of(PAGE), 0);
        let bank = out.len();
        let block = self.blocks.first().map_or(0, Vec::len);
        for bytes in &self.blocks {
            out.extend_from_slice(bytes);
            out.resize(out.len().next_multiple_of(PAGE), 0);
        }
        let mut header = b"FST\0\x02\0\0\0".to_vec();
        for number in self.numbers {
            header.extend(number.to_le_bytes());
        }
        header.extend(self.vocab.to_le_bytes());
        header.extend(1e-6f32.to_le_bytes());
        header.extend(10_000f32.to_le_bytes());
        for field in [
            PAGE as u64,
            self.tensors.len() as u64,
            bank as u64,
            block as u64,
            block.next_multiple_of(PAGE) as u64,
            self.blocks.len() as u64,
            self.extra[0],
            self.extra[1],
        ] {
            header.extend(field.to_le_bytes());
        }
        out[..128].copy_from_slice(&header);
        out
    }

    /// The tensor of a kind and layer.
    pub fn tensor(&mut self, tid: u32, layer: u16) -> &mut Stored {
        self.tensors
            .iter_mut()
            .find(|t| (t.key.0, t.key.1) == (tid, layer))
            .unwrap()
    }
}

/// A whole set of files.
#[derive(Clone, Debug)]
pub struct Original {
    /// `NAME.fst`.
    pub main: Image,
    /// `NAME.fst.hc`.
    pub hc: Option<Image>,
    /// `NAME.fst.norm`.
    pub norm: Option<Image>,
    /// `NAME.fst.tid2eid`.
    pub tid2eid: Option<Vec<u8>>,
    /// `tokenizer.json`.
    pub tokenizer: Option<Value>,
}

/// A checkpoint with V4-Flash's fixed numbers and small matrices, which can be written as version 2 and be converted to version 3. Its F32
/// matrices hold values that BF16 can hold.
pub fn original_checkpoint(seed: u64, layers: usize) -> Checkpoint {
    let vocabulary = Vocabulary::new(&[]);
    let ratios: Vec<usize> = [0, 4, 128, 4].into_iter().cycle().take(layers).collect();
    let config = json!({
        "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "vocab_size": vocabulary.len(),
        "hidden_size": 64, "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 80, "qk_rope_head_dim": 64, "q_lora_rank": 32, "o_groups": 2, "o_lora_rank": 32,
        "sliding_window": 128, "compress_ratios": ratios, "rope_theta": 10000.0, "compress_rope_theta": 160000.0,
        "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1},
        "max_position_embeddings": 1048576, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32,
        "scoring_func": "sqrtsoftplus", "routed_scaling_factor": 1.5, "swiglu_limit": 10.0, "num_hash_layers": 1, "hc_mult": 4,
        "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "num_nextn_predict_layers": 0,
        "bos_token_id": 0, "eos_token_id": 1
    });
    filled(seed, config, Some(vocabulary.tokenizer()))
}

/// The least that has every kind of tensor, one layer, for reading alone: a container of it has 20 kB. The layer's experts are chosen by a
/// table if it is `hashed`.
pub fn smallest_checkpoint(seed: u64, hashed: bool) -> Checkpoint {
    let config = json!({
        "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "vocab_size": 4, "hidden_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "q_lora_rank": 2, "o_groups": 1,
        "o_lora_rank": 2, "sliding_window": 2, "compress_ratios": [4], "max_position_embeddings": 8, "index_n_heads": 1,
        "index_head_dim": 2, "index_topk": 1, "n_routed_experts": 1, "num_experts_per_tok": 1, "n_shared_experts": 1,
        "moe_intermediate_size": 32, "num_hash_layers": u8::from(hashed), "hc_mult": 1, "num_nextn_predict_layers": 0
    });
    filled(seed, config, None)
}

fn filled(seed: u64, config: Value, tokenizer: Option<Value>) -> Checkpoint {
    let mut checkpoint = Checkpoint {
        config,
        tokenizer,
        tensors: BTreeMap::new(),
    };
    let mut state = seed;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    };
    checkpoint.fill(|name, _| {
        let x = next() as f32 / (1u64 << 23) as f32 - 1.0;
        let value = if name.ends_with("norm.weight") {
            1.0 + 0.2 * x
        } else if name.ends_with("_scale") {
            0.5 + 0.3 * x
        } else if name == "embed.weight" || name == "head.weight" {
            1.7 * x
        } else {
            0.3 * x
        };
        // Never zero, and exact in BF16.
        f32::from_bits((value.to_bits() & 0xFFFF_0000).max(0x3800_0000))
    });
    let experts: Vec<String> = checkpoint
        .tensors
        .keys()
        .filter(|name| name.contains(".experts."))
        .cloned()
        .collect();
    for name in experts {
        let shape = checkpoint.tensors[&name].1.clone();
        let (rows, columns) = (shape[0], shape[1]);
        let mut bytes = |count: usize, limit: u32, base: u8| -> Vec<u8> {
            (0..count).map(|_| base + (next() % limit) as u8).collect()
        };
        let codes = bytes(rows * columns / 2, 256, 0);
        let scales = bytes(rows * columns / 32, 4, 121);
        checkpoint.tensors.insert(
            name.replace(".weight", ".scale"),
            (Dtype::F8_E8M0, vec![rows, columns / 32], scales),
        );
        checkpoint
            .tensors
            .insert(name, (Dtype::I8, vec![rows, columns / 2], codes));
    }
    checkpoint
}

const KINDS: [(&str, u32, u16); 31] = [
    ("embed.weight", 0, 0),
    ("norm.weight", 1, 0),
    ("head.weight", 2, 0),
    ("attn_norm.weight", 3, 0),
    ("ffn_norm.weight", 4, 0),
    ("attn.wq_a.weight", 5, 0),
    ("attn.wq_b.weight", 5, 1),
    ("attn.wkv.weight", 6, 0),
    ("attn.wo_a.weight", 8, 0),
    ("attn.wo_b.weight", 8, 1),
    ("ffn.gate.weight", 9, 0),
    ("ffn.gate.bias", 10, 0),
    ("ffn.shared_experts.w1.weight", 11, 0),
    ("ffn.shared_experts.w3.weight", 12, 0),
    ("ffn.shared_experts.w2.weight", 13, 0),
    ("attn.q_norm.weight", 14, 0),
    ("attn.kv_norm.weight", 15, 0),
    ("attn.attn_sink", 22, 0),
    ("hc_attn_fn", 23, 0),
    ("hc_attn_scale", 24, 0),
    ("hc_attn_base", 25, 0),
    ("hc_ffn_fn", 26, 0),
    ("hc_ffn_scale", 27, 0),
    ("hc_ffn_base", 28, 0),
    ("hc_head_fn", 29, 0),
    ("hc_head_scale", 30, 0),
    ("hc_head_base", 31, 0),
    ("attn.compressor.ape", 32, 0),
    ("attn.compressor.wkv.weight", 33, 0),
    ("attn.compressor.wgate.weight", 34, 0),
    ("attn.compressor.norm.weight", 35, 0),
];

impl Original {
    /// The files of a checkpoint: as published, the main file has no hyper-connections and norms that are 40 times too small.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let number = |name: &str| checkpoint.config[name].as_u64().unwrap();
        let (layers, experts) = (number("num_hidden_layers"), number("n_routed_experts"));
        let mut all = Vec::new();
        for (name, (dtype, shape, data)) in &checkpoint.tensors {
            let (layer, suffix) = match name
                .strip_prefix("layers.")
                .and_then(|rest| rest.split_once('.'))
            {
                Some((layer, suffix)) => (layer.parse().unwrap(), suffix),
                None => (WHOLE, name.as_str()),
            };
            let Some((_, tid, half)) = KINDS.iter().find(|(kind, ..)| *kind == suffix) else {
                continue;
            };
            // The converter makes BF16 of the large F32 matrices.
            let (kind, data) = match dtype {
                Dtype::F32 if suffix.ends_with("_fn") => (
                    2,
                    data.as_chunks::<4>()
                        .0
                        .iter()
                        .flat_map(|b| [b[2], b[3]])
                        .collect(),
                ),
                Dtype::F32 => (3, data.clone()),
                _ => (2, data.clone()),
            };
            all.push(Stored {
                key: (*tid, layer, *half),
                kind,
                shape: shape.iter().map(|n| *n as u64).collect(),
                data,
            });
        }
        let ratios: Vec<f32> = checkpoint.config["compress_ratios"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r.as_u64().unwrap() as f32)
            .collect();
        let take = |kinds: &[u32]| -> Vec<Stored> {
            all.iter()
                .filter(|t| kinds.contains(&t.key.0))
                .cloned()
                .collect()
        };
        let image = |tensors, blocks, [heads, kv, size]: [u32; 3]| Image {
            numbers: [
                number("hidden_size") as u32,
                layers as u32,
                experts as u32,
                number("num_experts_per_tok") as u32,
                heads,
                kv,
                size,
                2048,
                1,
                0,
            ],
            vocab: number("vocab_size"),
            extra: [0, 0],
            tensors,
            blocks,
        };
        let hyper: Vec<u32> = (23..=31).collect();
        let hc = image(take(&hyper), Vec::new(), [32, 4, 128]);
        let norm = image(take(&[1, 3, 4, 14, 15, 22]), Vec::new(), [32, 4, 128]);
        let mut tensors = all.clone();
        tensors.retain(|t| !hyper.contains(&t.key.0));
        for tensor in tensors.iter_mut().filter(|t| matches!(t.key.0, 3 | 4)) {
            for b in tensor.data.as_chunks_mut::<2>().0 {
                let value = f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16) / 40.0;
                *b = ((value.to_bits() >> 16) as u16).to_le_bytes();
            }
        }
        tensors.push(Stored {
            key: (40, WHOLE, 0),
            kind: 3,
            shape: vec![ratios.len() as u64],
            data: ratios.iter().flat_map(|r| r.to_le_bytes()).collect(),
        });
        let blocks = (0..layers)
            .flat_map(|l| (0..experts).map(move |e| (l, e)))
            .map(|(l, e)| {
                ["w1", "w3", "w2"]
                    .iter()
                    .flat_map(|part| {
                        let of = |what: &str| {
                            &checkpoint.tensors
                                [&format!("layers.{l}.ffn.experts.{e}.{part}.{what}")]
                                .2
                        };
                        of("scale")
                            .iter()
                            .zip(of("weight").chunks_exact(16))
                            .flat_map(|(scale, codes)| {
                                std::iter::once(*scale).chain(codes.iter().copied())
                            })
                    })
                    .collect()
            })
            .collect();
        let tid2eid = (0..number("num_hash_layers"))
            .flat_map(|l| {
                checkpoint.tensors[&format!("layers.{l}.ffn.gate.tid2eid")]
                    .2
                    .as_chunks::<8>()
                    .0
            })
            .flat_map(|b| (i64::from_le_bytes(*b) as i32).to_le_bytes())
            .collect();
        Self {
            main: image(tensors, blocks, [64, 1, 512]),
            hc: Some(hc),
            norm: Some(norm),
            tid2eid: Some(tid2eid),
            tokenizer: checkpoint.tokenizer.clone(),
        }
    }

    /// The draft file that goes with it: the least that makes it one.
    pub fn draft(&self) -> Image {
        let mut main = self.main.clone();
        let hidden = main.numbers[0] as usize;
        main.numbers[1] = 3;
        main.extra = [5 | 256 << 16, 128_799];
        main.tensors.retain(|t| matches!(t.key.0, 0 | 2));
        main.tensors.push(Stored {
            key: (19, 0, 0),
            kind: 1,
            shape: vec![hidden as u64, 3 * hidden as u64],
            data: vec![1; hidden * 3 * hidden / 32 * 34],
        });
        let block = main.blocks[0].clone();
        main.blocks.resize(3 * main.numbers[2] as usize, block);
        main
    }

    /// The damage of the converter that read FP8 codes of exponent 15 as zero: one weight in two hundred is gone.
    pub fn lose_large_weights(&mut self) {
        for tensor in self.main.tensors.iter_mut().filter(|t| t.key.0 == 5) {
            for b in tensor.data.as_chunks_mut::<2>().0.iter_mut().step_by(200) {
                *b = [0, 0];
            }
        }
    }

    /// Writes the set as `model.fst` and its companions.
    pub fn save(&self, folder: &Path) -> PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        let path = folder.join("model.fst");
        std::fs::write(&path, self.main.bytes()).unwrap();
        for (name, bytes) in [
            ("model.fst.hc", self.hc.as_ref().map(Image::bytes)),
            ("model.fst.norm", self.norm.as_ref().map(Image::bytes)),
            ("model.fst.tid2eid", self.tid2eid.clone()),
            (
                "tokenizer.json",
                self.tokenizer.as_ref().map(|t| t.to_string().into_bytes()),
            ),
        ] {
            if let Some(bytes) = bytes {
                std::fs::write(folder.join(name), bytes).unwrap();
            }
        }
        path
    }
}
