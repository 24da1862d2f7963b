//! Checkpoints of any size and of every published kind, written to disk a megabyte at a time: for the converter, not for running.
//!
//! Shards are cut as DeepSeek cuts them: embedding, one for each layer, head, one for each block of the drafter. The same options give the
//! same bytes. Weights are random but sane: no value is infinite or no number, norms are about 1.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

/// Which of the published checkpoints it is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// DeepSeek-V4-Flash: FP4 experts, FP8 elsewhere, scales that are powers of two, the older drafter.
    Preview,
    /// -DSpark and -0731: the same with the newer drafter of three blocks.
    DSpark,
    /// -Base: FP8 experts, scales in F32, the older drafter.
    Base,
    /// Everything in BF16, no drafter.
    Bf16,
}

/// What to write.
#[derive(Clone, Debug)]
pub struct Synthetic {
    /// Kind.
    pub kind: Kind,
    /// Layers of the main model.
    pub layers: usize,
    /// Routed experts in each block.
    pub experts: usize,
    /// Width of the residual stream, a multiple of 128.
    pub hidden: usize,
    /// Width of an expert, a multiple of 128.
    pub intermediate: usize,
    /// Tokens.
    pub vocab: usize,
    /// Query heads.
    pub heads: usize,
    /// Width of a head, a multiple of 128.
    pub head_dim: usize,
    /// Width between the two projections of queries.
    pub q_lora: usize,
    /// Groups of heads.
    pub o_groups: usize,
    /// Width of each group's output.
    pub o_lora: usize,
    /// Heads of the indexer.
    pub index_heads: usize,
    /// Width of one of them.
    pub index_head_dim: usize,
}

impl Synthetic {
    /// With the sizes of DeepSeek-V4-Flash: about 3.6 GB for each layer and 2.1 GB for embedding and head.
    pub fn flash(kind: Kind, layers: usize) -> Self {
        Self {
            kind,
            layers,
            experts: 256,
            hidden: 4096,
            intermediate: 2048,
            vocab: 129_280,
            heads: 64,
            head_dim: 512,
            q_lora: 1024,
            o_groups: 8,
            o_lora: 1024,
            index_heads: 64,
            index_head_dim: 128,
        }
    }

    /// Three layers of ratio 0, 0 and 4 with eight experts: a few megabytes.
    pub fn small(kind: Kind) -> Self {
        Self {
            kind,
            layers: 3,
            experts: 8,
            hidden: 256,
            intermediate: 128,
            vocab: 512,
            heads: 4,
            head_dim: 128,
            q_lora: 128,
            o_groups: 2,
            o_lora: 128,
            index_heads: 4,
            index_head_dim: 64,
        }
    }

    /// Writes the folder: config.json, the index and the shards. `progress` gets bytes written and in all.
    pub fn save(&self, folder: &Path, progress: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("config.json"), self.config().to_string())?;
        let shards = self.shards();
        let all: u64 = shards.iter().flatten().map(Stored::bytes).sum();
        let mut done = 0;
        let mut map = Map::new();
        for (number, tensors) in shards.iter().enumerate() {
            let name = format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len());
            for tensor in tensors {
                map.insert(tensor.name.clone(), json!(name));
            }
            write_shard(&folder.join(name), tensors, &mut |bytes| {
                done += bytes;
                progress(done, all);
            })?;
        }
        let index = json!({"metadata": {"total_size": all}, "weight_map": map});
        fs::write(
            folder.join("model.safetensors.index.json"),
            index.to_string(),
        )
    }

    fn drafter_blocks(&self) -> usize {
        match self.kind {
            Kind::Preview | Kind::Base => 1,
            Kind::DSpark => 3,
            Kind::Bf16 => 0,
        }
    }

    fn ratio(layer: usize) -> usize {
        match layer {
            0 | 1 => 0,
            n if n % 2 == 0 => 4,
            _ => 128,
        }
    }

    fn config(&self) -> Value {
        // Those of the drafter's blocks come after the model's.
        let ratios: Vec<usize> = (0..self.layers)
            .map(Self::ratio)
            .chain(std::iter::repeat_n(0, self.drafter_blocks()))
            .collect();
        let mut config = json!({
            "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "vocab_size": self.vocab, "hidden_size": self.hidden,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads, "num_key_value_heads": 1, "head_dim": self.head_dim,
            "qk_rope_head_dim": 64, "q_lora_rank": self.q_lora, "o_groups": self.o_groups, "o_lora_rank": self.o_lora,
            "sliding_window": 128, "compress_ratios": ratios, "rope_theta": 10000.0, "compress_rope_theta": 160000.0,
            "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1},
            "max_position_embeddings": 1_048_576, "index_n_heads": self.index_heads, "index_head_dim": self.index_head_dim,
            "index_topk": 512, "n_routed_experts": self.experts, "num_experts_per_tok": 6.min(self.experts), "n_shared_experts": 1,
            "moe_intermediate_size": self.intermediate, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
            "num_hash_layers": 3.min(self.layers), "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6,
            "num_nextn_predict_layers": self.drafter_blocks().min(1), "bos_token_id": 0, "eos_token_id": 1
        });
        if self.kind == Kind::DSpark {
            let targets: Vec<usize> = (self.layers.saturating_sub(3)..self.layers).collect();
            config["dspark_target_layer_ids"] = json!(targets);
            config["dspark_block_size"] = json!(5);
            config["dspark_markov_rank"] = json!(256);
            config["dspark_noise_token_id"] = json!(self.vocab - 1);
        }
        config
    }

    /// The tensors of each shard.
    fn shards(&self) -> Vec<Vec<Stored>> {
        let (d, vocab) = (self.hidden, self.vocab);
        let mut shards = vec![vec![Stored::new("embed.weight", "BF16", &[vocab, d])]];
        for layer in 0..self.layers {
            shards.push(self.block(&format!("layers.{layer}"), Self::ratio(layer), layer < 3));
        }
        let mut head = vec![
            Stored::new("norm.weight", "BF16", &[d]),
            Stored::new("head.weight", "BF16", &[vocab, d]),
        ];
        hyper_head(&mut head, "", d);
        shards.push(head);
        let blocks = self.drafter_blocks();
        for stage in 0..blocks {
            let prefix = format!("mtp.{stage}");
            let name = |rest: &str| format!("{prefix}.{rest}");
            let mut block = self.block(&prefix, 0, false);
            if self.kind == Kind::DSpark {
                if stage == 0 {
                    self.linear(&mut block, &name("main_proj"), d, 3 * d);
                    block.push(Stored::new(&name("main_norm.weight"), "BF16", &[d]));
                }
                if stage + 1 == blocks {
                    block.push(Stored::new(&name("norm.weight"), "BF16", &[d]));
                    hyper_head(&mut block, &format!("{prefix}."), d);
                    for part in ["markov_w1", "markov_w2"] {
                        let name = name(&format!("markov_head.{part}.weight"));
                        block.push(Stored::new(&name, "BF16", &[vocab, 256]));
                    }
                    let name = name("confidence_head.proj.weight");
                    block.push(Stored::new(&name, "BF16", &[1, d + 256]));
                }
            } else {
                self.linear(&mut block, &name("e_proj"), d, d);
                self.linear(&mut block, &name("h_proj"), d, d);
                for norm in ["enorm", "hnorm", "norm"] {
                    block.push(Stored::new(&name(&format!("{norm}.weight")), "BF16", &[d]));
                }
                hyper_head(&mut block, &format!("{prefix}."), d);
            }
            shards.push(block);
        }
        shards
    }

    fn block(&self, prefix: &str, ratio: usize, hash: bool) -> Vec<Stored> {
        let (d, wide) = (self.hidden, self.heads * self.head_dim);
        let grouped = self.o_groups * self.o_lora;
        let name = |rest: &str| format!("{prefix}.{rest}");
        let mut block = Vec::new();
        let plain = |block: &mut Vec<Stored>, rest: &str, dtype, shape: &[usize]| {
            block.push(Stored::new(&name(rest), dtype, shape));
        };
        for place in ["attn", "ffn"] {
            plain(&mut block, &format!("hc_{place}_fn"), "F32", &[24, 4 * d]);
            plain(&mut block, &format!("hc_{place}_base"), "F32", &[24]);
            plain(&mut block, &format!("hc_{place}_scale"), "F32", &[3]);
            plain(&mut block, &format!("{place}_norm.weight"), "BF16", &[d]);
        }
        self.linear(&mut block, &name("attn.wq_a"), self.q_lora, d);
        plain(&mut block, "attn.q_norm.weight", "BF16", &[self.q_lora]);
        self.linear(&mut block, &name("attn.wq_b"), wide, self.q_lora);
        self.linear(&mut block, &name("attn.wkv"), self.head_dim, d);
        plain(&mut block, "attn.kv_norm.weight", "BF16", &[self.head_dim]);
        self.linear(
            &mut block,
            &name("attn.wo_a"),
            grouped,
            wide / self.o_groups,
        );
        self.linear(&mut block, &name("attn.wo_b"), d, grouped);
        plain(&mut block, "attn.attn_sink", "F32", &[self.heads]);
        let compressor = |block: &mut Vec<Stored>, place: &str, width: usize| {
            let rows = if ratio == 4 { 2 * width } else { width };
            plain(block, &format!("{place}.ape"), "F32", &[ratio, rows]);
            plain(block, &format!("{place}.wkv.weight"), "BF16", &[rows, d]);
            plain(block, &format!("{place}.wgate.weight"), "BF16", &[rows, d]);
            plain(block, &format!("{place}.norm.weight"), "BF16", &[width]);
        };
        if ratio > 0 {
            compressor(&mut block, "attn.compressor", self.head_dim);
        }
        if ratio == 4 {
            let rows = self.index_heads * self.index_head_dim;
            self.linear(&mut block, &name("attn.indexer.wq_b"), rows, self.q_lora);
            let shape = [self.index_heads, d];
            plain(
                &mut block,
                "attn.indexer.weights_proj.weight",
                "BF16",
                &shape,
            );
            compressor(&mut block, "attn.indexer.compressor", self.index_head_dim);
        }
        plain(&mut block, "ffn.gate.weight", "BF16", &[self.experts, d]);
        if hash {
            let shape = [self.vocab, 6.min(self.experts)];
            plain(&mut block, "ffn.gate.tid2eid", "I64", &shape);
        } else {
            plain(&mut block, "ffn.gate.bias", "F32", &[self.experts]);
        }
        for expert in 0..self.experts {
            for (part, rows, columns) in self.expert_parts() {
                let name = name(&format!("ffn.experts.{expert}.{part}"));
                self.expert(&mut block, &name, rows, columns);
            }
        }
        for (part, rows, columns) in self.expert_parts() {
            let name = name(&format!("ffn.shared_experts.{part}"));
            self.linear(&mut block, &name, rows, columns);
        }
        block
    }

    fn expert_parts(&self) -> [(&'static str, usize, usize); 3] {
        let (d, inner) = (self.hidden, self.intermediate);
        [("w1", inner, d), ("w2", d, inner), ("w3", inner, d)]
    }

    /// A linear layer outside the routed experts.
    fn linear(&self, block: &mut Vec<Stored>, name: &str, rows: usize, columns: usize) {
        let scale = match self.kind {
            Kind::Preview | Kind::DSpark => "F8_E8M0",
            Kind::Base => "F32",
            Kind::Bf16 => {
                block.push(Stored::new(
                    &format!("{name}.weight"),
                    "BF16",
                    &[rows, columns],
                ));
                return;
            }
        };
        let blocks = [rows.div_ceil(128), columns.div_ceil(128)];
        block.push(Stored::new(
            &format!("{name}.weight"),
            "F8_E4M3",
            &[rows, columns],
        ));
        block.push(Stored::new(&format!("{name}.scale"), scale, &blocks));
    }

    /// A matrix of a routed expert.
    fn expert(&self, block: &mut Vec<Stored>, name: &str, rows: usize, columns: usize) {
        match self.kind {
            Kind::Preview | Kind::DSpark => {
                let weight = format!("{name}.weight");
                block.push(Stored::new(&weight, "I8", &[rows, columns / 2]));
                let scale = format!("{name}.scale");
                block.push(Stored::new(&scale, "F8_E8M0", &[rows, columns / 32]));
            }
            Kind::Base | Kind::Bf16 => self.linear(block, name, rows, columns),
        }
    }
}

fn hyper_head(block: &mut Vec<Stored>, prefix: &str, d: usize) {
    block.push(Stored::new(
        &format!("{prefix}hc_head_fn"),
        "F32",
        &[4, 4 * d],
    ));
    block.push(Stored::new(&format!("{prefix}hc_head_base"), "F32", &[4]));
    block.push(Stored::new(&format!("{prefix}hc_head_scale"), "F32", &[1]));
}

/// A tensor to be written.
struct Stored {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
}

impl Stored {
    fn new(name: &str, dtype: &'static str, shape: &[usize]) -> Self {
        Self {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
        }
    }

    fn bytes(&self) -> u64 {
        let entry = match self.dtype {
            "I64" => 8,
            "F32" => 4,
            "BF16" => 2,
            _ => 1,
        };
        self.shape.iter().product::<usize>() as u64 * entry
    }

    /// Fills `words` with the next values of the tensor.
    fn fill(&self, state: &mut u64, words: &mut [u64]) {
        // Bits to keep, and bits to set, in each word of eight bytes.
        let (keep, set) = match self.dtype {
            // Sign and mantissa free, exponents of 2^-2 to 2^1: from a quarter to four.
            "BF16" if self.name.ends_with("norm.weight") => {
                (0x007F_007F_007F_007F, 0x3F80_3F80_3F80_3F80)
            }
            "BF16" => (0x80FF_80FF_80FF_80FF, 0x3C00_3C00_3C00_3C00),
            "F32" => (0x80FF_FFFF_80FF_FFFF, 0x3C00_0000_3C00_0000),
            // An expert's number.
            "I64" => (1, 0),
            // Exponents below the highest, so that none is no number.
            "F8_E4M3" => (0xF7F7_F7F7_F7F7_F7F7, 0),
            "F8_E8M0" => (0x0707_0707_0707_0707, 0x7070_7070_7070_7070),
            _ => (u64::MAX, 0),
        };
        for word in words {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            *word = (*state & keep) | set;
        }
    }
}

fn write_shard(path: &Path, tensors: &[Stored], wrote: &mut dyn FnMut(u64)) -> io::Result<()> {
    let mut header = Map::new();
    let mut at = 0;
    for tensor in tensors {
        let end = at + tensor.bytes();
        let about =
            json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, end]});
        header.insert(tensor.name.clone(), about);
        at = end;
    }
    let header = Value::Object(header).to_string();
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let mut words = vec![0u64; 1 << 16];
    let mut bytes = Vec::with_capacity(words.len() * 8);
    for tensor in tensors {
        // Every tensor its own sequence, so that none depends on the ones before it.
        let seed = tensor
            .name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let mut state = seed | 1;
        let mut left = tensor.bytes();
        while left > 0 {
            tensor.fill(&mut state, &mut words);
            bytes.clear();
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            let piece = &bytes[..(bytes.len() as u64).min(left) as usize];
            file.write_all(piece)?;
            left -= piece.len() as u64;
            wrote(piece.len() as u64);
        }
    }
    file.flush()
}
