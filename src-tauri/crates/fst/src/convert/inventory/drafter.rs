//! The tensors of the drafter (`mtp.*`), of both kinds that were published.

use std::collections::BTreeSet;

use super::{Check, EXPERT, PLAIN};
use crate::convert::config::Dimensions;

/// What only the newer drafter has.
const MAIN_PROJECTION: &str = "mtp.0.main_proj.weight";

impl Check<'_> {
    /// Nothing of the drafter is wanted.
    pub(super) fn skip_drafter(&mut self) {
        for (tensor, used) in self.checkpoint.all.iter().zip(&mut self.used) {
            *used |= tensor.name.starts_with("mtp.");
        }
    }

    /// The drafter (`mtp.*`), if the checkpoint has one: it is part of the model, all of it as dense tensors.
    pub(super) fn drafter(&mut self, d: &Dimensions, warnings: &mut Vec<String>) {
        let mut stages = BTreeSet::new();
        let mut ignored = 0;
        for (index, tensor) in self.checkpoint.all.iter().enumerate() {
            let Some((stage, rest)) = tensor
                .name
                .strip_prefix("mtp.")
                .and_then(|rest| rest.split_once('.'))
            else {
                continue;
            };
            // Copies of the main model's embedding and head, which some files carry.
            if rest.contains("emb") || rest == "head.weight" {
                self.used[index] = true;
                ignored += 1;
                continue;
            }
            if let Some(stage) = stage.parse::<usize>().ok().filter(|&s| s < 64)
                && stage.to_string() == tensor.name[4..4 + stage.to_string().len()]
            {
                stages.insert(stage);
            }
        }
        if ignored > 0 {
            warnings.push(format!(
                "{ignored} tensors of the drafter repeat the main model's embedding or head and were left out."
            ));
        }
        let Some(last) = stages.last().copied() else {
            return;
        };
        if d.dspark.is_none() && self.checkpoint.find(MAIN_PROJECTION).is_some() {
            self.wrong.add(|| {
                "there is a DSpark drafter, and config.json lacks dspark_block_size".to_owned()
            });
        }
        for stage in 0..=last {
            let prefix = format!("mtp.{stage}");
            self.block(d, &prefix, 0, false);
            for expert in 0..d.experts {
                for (part, rows, columns) in [
                    ("w1", d.intermediate, d.hidden),
                    ("w3", d.intermediate, d.hidden),
                    ("w2", d.hidden, d.intermediate),
                ] {
                    let name = format!("{prefix}.ffn.experts.{expert}.{part}");
                    self.dense_matrix(&name, EXPERT, rows, columns);
                }
            }
            match d.dspark {
                None => {
                    self.linear(&format!("{prefix}.e_proj"), d.hidden, d.hidden);
                    self.linear(&format!("{prefix}.h_proj"), d.hidden, d.hidden);
                    for norm in ["enorm", "hnorm", "norm"] {
                        self.tensor(&format!("{prefix}.{norm}.weight"), PLAIN, &[d.hidden]);
                    }
                    self.hyper_head(d, &format!("{prefix}."));
                }
                Some(dspark) => {
                    if stage == 0 {
                        let columns = d.hidden.saturating_mul(dspark.targets);
                        self.linear(&format!("{prefix}.main_proj"), d.hidden, columns);
                        self.tensor(&format!("{prefix}.main_norm.weight"), PLAIN, &[d.hidden]);
                    }
                    if stage == last {
                        self.tensor(&format!("{prefix}.norm.weight"), PLAIN, &[d.hidden]);
                        self.hyper_head(d, &format!("{prefix}."));
                        for part in ["markov_w1", "markov_w2"] {
                            self.tensor(
                                &format!("{prefix}.markov_head.{part}.weight"),
                                PLAIN,
                                &[d.vocab, dspark.markov_rank],
                            );
                        }
                        self.tensor(
                            &format!("{prefix}.confidence_head.proj.weight"),
                            PLAIN,
                            &[1, d.hidden.saturating_add(dspark.markov_rank)],
                        );
                    }
                }
            }
        }
    }
}
