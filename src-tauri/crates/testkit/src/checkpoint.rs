//! Writing a Hugging Face folder in DeepSeek's tensor names, and converting it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::Value;

/// A checkpoint in memory. Fields are open so that a test can damage them.
pub struct Checkpoint {
    /// config.json.
    pub config: Value,
    /// tokenizer.json, if it has one.
    pub tokenizer: Option<Value>,
    /// BF16 and F32 tensors by name, given as `f32`.
    pub tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
}

/// A converted model in a folder that goes with it.
pub struct TestModel {
    folder: tempfile::TempDir,
}

impl TestModel {
    /// The container.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("model.fst")
    }
}

impl Checkpoint {
    /// Adds a BF16 tensor.
    pub fn bf16(&mut self, name: &str, shape: &[usize], value: impl FnMut(usize) -> f32) {
        let count: usize = shape.iter().product();
        let bytes = (0..count)
            .map(value)
            .flat_map(|v| {
                // Round to nearest, ties to even; values here are never NaN.
                let bits = v.to_bits();
                let rounded = bits + 0x7FFF + ((bits >> 16) & 1);
                ((rounded >> 16) as u16).to_le_bytes()
            })
            .collect();
        self.tensors
            .insert(name.into(), (Dtype::BF16, shape.to_vec(), bytes));
    }

    /// Adds an F32 tensor.
    pub fn f32(&mut self, name: &str, shape: &[usize], value: impl FnMut(usize) -> f32) {
        let count: usize = shape.iter().product();
        let bytes = (0..count).map(value).flat_map(f32::to_le_bytes).collect();
        self.tensors
            .insert(name.into(), (Dtype::F32, shape.to_vec(), bytes));
    }

    /// Adds an I64 tensor.
    pub fn i64(&mut self, name: &str, shape: &[usize], value: impl FnMut(usize) -> i64) {
        let count: usize = shape.iter().product();
        let bytes = (0..count).map(value).flat_map(i64::to_le_bytes).collect();
        self.tensors
            .insert(name.into(), (Dtype::I64, shape.to_vec(), bytes));
    }

    /// Writes the folder.
    pub fn save(&self, folder: &Path) {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("config.json"), self.config.to_string()).unwrap();
        if let Some(tokenizer) = &self.tokenizer {
            std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        }
        let views = self.tensors.iter().map(|(name, (dtype, shape, bytes))| {
            let view = TensorView::new(*dtype, shape.clone(), bytes).unwrap();
            (name.clone(), view)
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        std::fs::write(folder.join("model.safetensors"), bytes).unwrap();
    }

    /// Converts it.
    pub fn convert(&self) -> TestModel {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("checkpoint");
        self.save(&checkpoint);
        let out = folder.path().join("model.fst");
        fastar_fst::convert(&checkpoint, &out, &mut |_, _| {}).unwrap();
        std::fs::remove_dir_all(&checkpoint).unwrap();
        TestModel { folder }
    }

    /// Adds every tensor that the config asks for; `value(name, index)` gives the values.
    pub(crate) fn fill(&mut self, mut value: impl FnMut(&str, usize) -> f32) {
        let number = |name: &str| self.config[name].as_u64().unwrap() as usize;
        let (vocab, d, layers) = (
            number("vocab_size"),
            number("hidden_size"),
            number("num_hidden_layers"),
        );
        let (heads, hd) = (number("num_attention_heads"), number("head_dim"));
        let (q, groups, rank) = (
            number("q_lora_rank"),
            number("o_groups"),
            number("o_lora_rank"),
        );
        let (experts, k, inner) = (
            number("n_routed_experts"),
            number("num_experts_per_tok"),
            number("moe_intermediate_size"),
        );
        let (index_heads, index_dim) = (number("index_n_heads"), number("index_head_dim"));
        let (n, hashed) = (number("hc_mult"), number("num_hash_layers"));
        let ratios: Vec<usize> = self.config["compress_ratios"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r.as_u64().unwrap() as usize)
            .collect();

        let mut matrices: Vec<(String, Vec<usize>)> = Vec::new();
        let mut floats: Vec<(String, Vec<usize>)> = Vec::new();
        let mut matrix = |name: String, shape: &[usize]| matrices.push((name, shape.to_vec()));
        matrix("embed.weight".into(), &[vocab, d]);
        matrix("head.weight".into(), &[vocab, d]);
        matrix("norm.weight".into(), &[d]);
        floats.push(("hc_head_fn".into(), vec![n, n * d]));
        floats.push(("hc_head_base".into(), vec![n]));
        floats.push(("hc_head_scale".into(), vec![1]));
        for (l, ratio) in ratios.iter().take(layers).enumerate() {
            let p = format!("layers.{l}.");
            for part in ["attn", "ffn"] {
                let outputs = n + n + n * n;
                floats.push((format!("{p}hc_{part}_fn"), vec![outputs, n * d]));
                floats.push((format!("{p}hc_{part}_base"), vec![outputs]));
                floats.push((format!("{p}hc_{part}_scale"), vec![3]));
                matrix(format!("{p}{part}_norm.weight"), &[d]);
            }
            let a = format!("{p}attn.");
            matrix(format!("{a}wq_a.weight"), &[q, d]);
            matrix(format!("{a}q_norm.weight"), &[q]);
            matrix(format!("{a}wq_b.weight"), &[heads * hd, q]);
            matrix(format!("{a}wkv.weight"), &[hd, d]);
            matrix(format!("{a}kv_norm.weight"), &[hd]);
            floats.push((format!("{a}attn_sink"), vec![heads]));
            matrix(
                format!("{a}wo_a.weight"),
                &[groups * rank, heads * hd / groups],
            );
            matrix(format!("{a}wo_b.weight"), &[d, groups * rank]);
            let mut compressor = |c: String, dim: usize| {
                let width = if *ratio == 4 { 2 * dim } else { dim };
                floats.push((format!("{c}ape"), vec![*ratio, width]));
                matrix(format!("{c}wkv.weight"), &[width, d]);
                matrix(format!("{c}wgate.weight"), &[width, d]);
                matrix(format!("{c}norm.weight"), &[dim]);
            };
            if *ratio > 0 {
                compressor(format!("{a}compressor."), hd);
            }
            if *ratio == 4 {
                compressor(format!("{a}indexer.compressor."), index_dim);
                matrix(
                    format!("{a}indexer.wq_b.weight"),
                    &[index_heads * index_dim, q],
                );
                matrix(format!("{a}indexer.weights_proj.weight"), &[index_heads, d]);
            }
            let f = format!("{p}ffn.");
            matrix(format!("{f}gate.weight"), &[experts, d]);
            if l >= hashed {
                floats.push((format!("{f}gate.bias"), vec![experts]));
            }
            let names = (0..experts)
                .map(|e| format!("experts.{e}"))
                .chain(["shared_experts".to_owned()]);
            for expert in names {
                matrix(format!("{f}{expert}.w1.weight"), &[inner, d]);
                matrix(format!("{f}{expert}.w3.weight"), &[inner, d]);
                matrix(format!("{f}{expert}.w2.weight"), &[d, inner]);
            }
        }
        for (name, shape) in matrices {
            self.bf16(&name, &shape, |i| value(&name, i));
        }
        for (name, shape) in floats {
            self.f32(&name, &shape, |i| value(&name, i));
        }
        for l in 0..hashed.min(layers) {
            // Every token its own neighbours, no expert twice.
            let id = |i: usize| ((i / k * 7 + i % k) % experts) as i64;
            self.i64(&format!("layers.{l}.ffn.gate.tid2eid"), &[vocab, k], id);
        }
    }
}
