//! Which tensors a model of given sizes has, and whether a checkpoint has exactly those.
//!
//! The list is section "Checkpoint" of DeepSeek's V4 release: names without `model.` prefix, linear weights `[out, in]`, and for every
//! quantised `X.weight` an `X.scale`.

mod drafter;

use crate::error::{Error, Result, shown};
use crate::layout::{Dtype, ExpertLayout, Storage};

use super::config::Dimensions;
use super::tensors::{LISTED, Tensors, listed};
use safetensors::Dtype as StoredType;

/// What of a checkpoint goes into the container, and where.
pub(crate) struct Selection {
    /// Dense tensors in file order: index in the checkpoint and type.
    pub dense: Vec<(usize, Dtype)>,
    /// Layout of the expert records.
    pub layout: ExpertLayout,
    /// Things a person should know.
    pub warnings: Vec<String>,
    /// Tensors of all experts in record order, `per_expert` each.
    expert_tensors: Vec<usize>,
    per_expert: usize,
}

impl Selection {
    /// Number of expert records.
    pub fn records(&self) -> usize {
        self.expert_tensors.len() / self.per_expert
    }

    /// The tensors of one expert, in the order of its record: data and, where the type has them, scales of w1, w3, w2.
    pub fn record(&self, record: usize) -> &[usize] {
        &self.expert_tensors[record * self.per_expert..(record + 1) * self.per_expert]
    }
}

/// Compares the checkpoint with what its config asks for. All differences are collected before the error is made. None when some of the
/// tensors are in shards that could not be looked into, and nothing else is wrong.
pub(crate) fn select(
    dimensions: &Dimensions,
    checkpoint: &Tensors,
    without_drafter: bool,
) -> Result<Option<Selection>> {
    let mut check = Check {
        checkpoint,
        used: vec![false; checkpoint.all.len()],
        dense: Vec::new(),
        missing: Problems::default(),
        wrong: Problems::default(),
        unseen: false,
    };
    check.model(dimensions);
    let (layout, expert_tensors) = check.experts(dimensions);
    let mut warnings = Vec::new();
    if without_drafter {
        check.skip_drafter();
    } else {
        check.drafter(dimensions, &mut warnings);
    }
    let Check {
        used,
        unseen,
        dense,
        missing,
        wrong,
        ..
    } = check;
    let mut extra = Problems::default();
    for (tensor, used) in checkpoint.all.iter().zip(used) {
        if !used {
            extra.add(|| shown(&tensor.name));
        }
    }
    let problems: Vec<String> = [
        missing.sentence("missing", "tensor"),
        wrong.sentence("", ""),
        extra.sentence("unexpected", "tensor"),
    ]
    .into_iter()
    .flatten()
    .collect();
    match layout {
        _ if problems.is_empty() && unseen => Ok(None),
        Some(layout) if problems.is_empty() => Ok(Some(Selection {
            dense,
            per_expert: expert_tensors.len() / (dimensions.layers * dimensions.experts),
            layout,
            warnings,
            expert_tensors,
        })),
        _ => Err(Error::Tensors {
            path: checkpoint.place.clone(),
            problems: problems.join("; "),
        }),
    }
}

/// Problems of one kind: the first few in words, all counted.
#[derive(Default)]
struct Problems {
    first: Vec<String>,
    count: usize,
}

impl Problems {
    fn add(&mut self, problem: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < LISTED {
            self.first.push(problem());
        }
    }

    fn sentence(self, kind: &str, noun: &str) -> Option<String> {
        if self.count == 0 {
            return None;
        }
        let more = match self.count - self.first.len() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let start = match (noun, self.count) {
            ("", _) => String::new(),
            (_, 1) => format!("{kind} {noun} "),
            _ => format!("{} {kind} {noun}s: ", self.count),
        };
        Some(format!(
            "{start}{}{more}",
            listed(&self.first, ", ", LISTED)
        ))
    }
}

/// Types a plain matrix or norm may have.
const PLAIN: &[Dtype] = &[Dtype::Bf16, Dtype::F32];
/// Weights of linear layers outside the routed experts.
const LINEAR: &[Dtype] = &[Dtype::Bf16, Dtype::F32, Dtype::F8E4m3];
/// Weights of routed experts.
const EXPERT: &[Dtype] = &[Dtype::Bf16, Dtype::F8E4m3, Dtype::Fp4Packed];

struct Check<'a> {
    checkpoint: &'a Tensors,
    used: Vec<bool>,
    dense: Vec<(usize, Dtype)>,
    missing: Problems,
    wrong: Problems,
    /// Something is in a shard that could not be looked into.
    unseen: bool,
}

/// A matrix that was found: how it is stored, its weights, its scales.
struct FoundMatrix {
    storage: Storage,
    weight: usize,
    scale: Option<(usize, Dtype)>,
}

impl Check<'_> {
    /// Everything outside the routed experts and the drafter.
    fn model(&mut self, d: &Dimensions) {
        self.tensor("embed.weight", PLAIN, &[d.vocab, d.hidden]);
        for layer in 0..d.layers {
            let prefix = format!("layers.{layer}");
            self.block(d, &prefix, d.ratios[layer], layer < d.hash_layers);
        }
        self.tensor("norm.weight", PLAIN, &[d.hidden]);
        self.tensor("head.weight", PLAIN, &[d.vocab, d.hidden]);
        self.hyper_head(d, "");
    }

    /// A transformer block without its routed experts.
    fn block(&mut self, d: &Dimensions, prefix: &str, ratio: usize, hash: bool) {
        let name = |rest: &str| format!("{prefix}.{rest}");
        let wide = d.heads.saturating_mul(d.head_dim);
        let grouped = d.o_groups.saturating_mul(d.o_lora);
        let mixes = (2 + d.streams) * d.streams;
        for place in ["attn", "ffn"] {
            self.tensor(
                &name(&format!("hc_{place}_fn")),
                &[Dtype::F32],
                &[mixes, d.streams * d.hidden],
            );
            self.tensor(&name(&format!("hc_{place}_base")), &[Dtype::F32], &[mixes]);
            self.tensor(&name(&format!("hc_{place}_scale")), &[Dtype::F32], &[3]);
        }
        self.tensor(&name("attn_norm.weight"), PLAIN, &[d.hidden]);
        self.tensor(&name("ffn_norm.weight"), PLAIN, &[d.hidden]);
        self.linear(&name("attn.wq_a"), d.q_lora, d.hidden);
        self.tensor(&name("attn.q_norm.weight"), PLAIN, &[d.q_lora]);
        self.linear(&name("attn.wq_b"), wide, d.q_lora);
        self.linear(&name("attn.wkv"), d.head_dim, d.hidden);
        self.tensor(&name("attn.kv_norm.weight"), PLAIN, &[d.head_dim]);
        self.linear(&name("attn.wo_a"), grouped, wide / d.o_groups);
        self.linear(&name("attn.wo_b"), d.hidden, grouped);
        self.tensor(&name("attn.attn_sink"), &[Dtype::F32], &[d.heads]);
        match ratio {
            0 => {}
            // Overlapping windows: two rows of keys and gates for each position.
            4 => {
                self.compressor(&name("attn.compressor"), d, ratio, d.head_dim, 2);
                self.linear(
                    &name("attn.indexer.wq_b"),
                    d.index_heads.saturating_mul(d.index_head_dim),
                    d.q_lora,
                );
                self.tensor(
                    &name("attn.indexer.weights_proj.weight"),
                    PLAIN,
                    &[d.index_heads, d.hidden],
                );
                self.compressor(
                    &name("attn.indexer.compressor"),
                    d,
                    ratio,
                    d.index_head_dim,
                    2,
                );
            }
            _ => self.compressor(&name("attn.compressor"), d, ratio, d.head_dim, 1),
        }
        self.tensor(&name("ffn.gate.weight"), PLAIN, &[d.experts, d.hidden]);
        if hash {
            self.tensor(
                &name("ffn.gate.tid2eid"),
                &[Dtype::I64],
                &[d.vocab, d.experts_per_token],
            );
        } else {
            self.tensor(&name("ffn.gate.bias"), &[Dtype::F32], &[d.experts]);
        }
        let shared = d.intermediate.saturating_mul(d.shared_experts);
        if shared > 0 {
            self.linear(&name("ffn.shared_experts.w1"), shared, d.hidden);
            self.linear(&name("ffn.shared_experts.w3"), shared, d.hidden);
            self.linear(&name("ffn.shared_experts.w2"), d.hidden, shared);
        }
    }

    fn compressor(
        &mut self,
        prefix: &str,
        d: &Dimensions,
        ratio: usize,
        width: usize,
        overlap: usize,
    ) {
        let rows = width * overlap;
        self.tensor(&format!("{prefix}.ape"), &[Dtype::F32], &[ratio, rows]);
        self.tensor(&format!("{prefix}.wkv.weight"), PLAIN, &[rows, d.hidden]);
        self.tensor(&format!("{prefix}.wgate.weight"), PLAIN, &[rows, d.hidden]);
        self.tensor(&format!("{prefix}.norm.weight"), PLAIN, &[width]);
    }

    fn hyper_head(&mut self, d: &Dimensions, prefix: &str) {
        self.tensor(
            &format!("{prefix}hc_head_fn"),
            &[Dtype::F32],
            &[d.streams, d.streams * d.hidden],
        );
        self.tensor(
            &format!("{prefix}hc_head_base"),
            &[Dtype::F32],
            &[d.streams],
        );
        self.tensor(&format!("{prefix}hc_head_scale"), &[Dtype::F32], &[1]);
    }

    /// The routed experts: one storage for each of the three matrices in the whole model.
    fn experts(&mut self, d: &Dimensions) -> (Option<ExpertLayout>, Vec<usize>) {
        let parts = [
            ("w1", d.intermediate, d.hidden),
            ("w3", d.intermediate, d.hidden),
            ("w2", d.hidden, d.intermediate),
        ];
        let mut storages: [Option<Storage>; 3] = [None; 3];
        let mut tensors = Vec::new();
        for layer in 0..d.layers {
            for expert in 0..d.experts {
                for ((part, rows, columns), storage) in parts.into_iter().zip(&mut storages) {
                    let name = format!("layers.{layer}.ffn.experts.{expert}.{part}");
                    let Some(found) = self.matrix(&name, EXPERT, rows, columns) else {
                        continue;
                    };
                    let first = *storage.get_or_insert(found.storage);
                    if first != found.storage {
                        self.wrong.add(|| {
                            format!(
                                "tensor {:?} has type {} where the first expert has {}",
                                format!("{name}.weight"),
                                described(found.storage),
                                described(first)
                            )
                        });
                    }
                    tensors.push(found.weight);
                    tensors.extend(found.scale.map(|(index, _)| index));
                }
            }
        }
        let layout = match storages {
            [Some(gate), Some(up), Some(down)] => {
                ExpertLayout::row_major(d.hidden, d.intermediate, gate, up, down)
            }
            _ => None,
        };
        let layout = layout.map(|rows| rows.in_packets().unwrap_or(rows));
        (layout, tensors)
    }

    /// A linear layer outside the routed experts; goes into the container with its scales.
    fn linear(&mut self, name: &str, rows: usize, columns: usize) {
        self.dense_matrix(name, LINEAR, rows, columns);
    }

    fn dense_matrix(&mut self, name: &str, allowed: &[Dtype], rows: usize, columns: usize) {
        if let Some(found) = self.matrix(name, allowed, rows, columns) {
            self.dense.push((found.weight, found.storage.dtype));
            self.dense.extend(found.scale);
        }
    }

    /// A tensor without scales; goes into the container.
    fn tensor(&mut self, name: &str, allowed: &[Dtype], shape: &[usize]) {
        let found = self.one(name, allowed, |_| Some(shape.to_vec()));
        self.dense.extend(found);
    }

    /// A weight and, if its type has them, its scales.
    fn matrix(
        &mut self,
        name: &str,
        allowed: &[Dtype],
        rows: usize,
        columns: usize,
    ) -> Option<FoundMatrix> {
        let scale_name = format!("{name}.scale");
        let scale_types: &[Dtype] = &[Dtype::F8E8m0, Dtype::F32];
        // Weights have the same shape whichever type the scales turn out to have.
        let usual_scale = |dtype| match dtype {
            Dtype::F8E4m3 | Dtype::Fp4Packed => Some(Dtype::F8E8m0),
            _ => None,
        };
        let shapes = |dtype| {
            Storage {
                dtype,
                scale: usual_scale(dtype),
            }
            .shapes(rows, columns)
        };
        let (weight, dtype) = self.one(&format!("{name}.weight"), allowed, |dtype| {
            shapes(dtype).map(|(weights, _)| weights.to_vec())
        })?;
        let scale = match shapes(dtype)?.1 {
            None => None,
            Some(shape) => {
                let types = match dtype {
                    Dtype::Fp4Packed => &scale_types[..1],
                    _ => scale_types,
                };
                Some(self.one(&scale_name, types, |_| Some(shape.to_vec()))?)
            }
        };
        Some(FoundMatrix {
            storage: Storage {
                dtype,
                scale: scale.map(|(_, dtype)| dtype),
            },
            weight,
            scale,
        })
    }

    /// Looks one tensor up and checks type and shape (which may depend on the type; none when that type cannot hold it).
    fn one(
        &mut self,
        name: &str,
        allowed: &[Dtype],
        shape: impl Fn(Dtype) -> Option<Vec<usize>>,
    ) -> Option<(usize, Dtype)> {
        let Some(index) = self.checkpoint.find(name) else {
            if self.checkpoint.is_unseen(name) {
                self.unseen = true;
            } else {
                self.missing.add(|| shown(name));
            }
            return None;
        };
        self.used[index] = true;
        let tensor = &self.checkpoint.all[index];
        let dtype = stored(tensor.dtype).filter(|dtype| allowed.contains(dtype));
        let Some(dtype) = dtype else {
            self.wrong.add(|| {
                let names: Vec<_> = allowed.iter().map(|dtype| dtype.name()).collect();
                format!(
                    "tensor {} has type {:?} and should have {}",
                    shown(name),
                    tensor.dtype,
                    names.join(" or ")
                )
            });
            return None;
        };
        let expected = shape(dtype);
        if expected.as_deref() != Some(&tensor.shape) {
            self.wrong.add(|| match expected {
                Some(expected) => format!(
                    "tensor {} has shape {:?} and should have {expected:?}",
                    shown(name),
                    tensor.shape
                ),
                None => format!(
                    "tensor {} of shape {:?} cannot be stored as {}",
                    shown(name),
                    tensor.shape,
                    dtype.name()
                ),
            });
            return None;
        }
        Some((index, dtype))
    }
}

fn described(storage: Storage) -> String {
    match storage.scale {
        None => storage.dtype.name().to_owned(),
        Some(scale) => format!("{} with {} scales", storage.dtype.name(), scale.name()),
    }
}

/// The container's type for a checkpoint's, if it has one.
fn stored(dtype: StoredType) -> Option<Dtype> {
    Some(match dtype {
        StoredType::BF16 => Dtype::Bf16,
        StoredType::F32 => Dtype::F32,
        StoredType::I64 => Dtype::I64,
        StoredType::F8_E4M3 => Dtype::F8E4m3,
        StoredType::F8_E8M0 => Dtype::F8E8m0,
        StoredType::I8 => Dtype::Fp4Packed,
        _ => return None,
    })
}
