//! What the tensor kinds of version 2 are called in DeepSeek's checkpoints.

use super::file::{GLOBAL, Key};

const WHOLE: [(u32, &str); 6] = [
    (0, "embed.weight"),
    (1, "norm.weight"),
    (2, "head.weight"),
    (29, "hc_head_fn"),
    (30, "hc_head_scale"),
    (31, "hc_head_base"),
];

const LAYER: [(u32, u16, &str); 25] = [
    (3, 0, "attn_norm.weight"),
    (4, 0, "ffn_norm.weight"),
    (5, 0, "attn.wq_a.weight"),
    (5, 1, "attn.wq_b.weight"),
    (6, 0, "attn.wkv.weight"),
    (8, 0, "attn.wo_a.weight"),
    (8, 1, "attn.wo_b.weight"),
    (9, 0, "ffn.gate.weight"),
    (10, 0, "ffn.gate.bias"),
    (11, 0, "ffn.shared_experts.w1.weight"),
    (12, 0, "ffn.shared_experts.w3.weight"),
    (13, 0, "ffn.shared_experts.w2.weight"),
    (14, 0, "attn.q_norm.weight"),
    (15, 0, "attn.kv_norm.weight"),
    (22, 0, "attn.attn_sink"),
    (23, 0, "hc_attn_fn"),
    (24, 0, "hc_attn_scale"),
    (25, 0, "hc_attn_base"),
    (26, 0, "hc_ffn_fn"),
    (27, 0, "hc_ffn_scale"),
    (28, 0, "hc_ffn_base"),
    (32, 0, "attn.compressor.ape"),
    (33, 0, "attn.compressor.wkv.weight"),
    (34, 0, "attn.compressor.wgate.weight"),
    (35, 0, "attn.compressor.norm.weight"),
];

/// The checkpoint's name; none for kinds that are not weights of a main model.
pub(crate) fn name((tid, layer, sub): Key) -> Option<String> {
    if layer == GLOBAL {
        let (_, name) = WHOLE.iter().find(|(t, _)| *t == tid && sub == 0)?;
        return Some((*name).to_owned());
    }
    let (_, _, name) = LAYER.iter().find(|(t, s, _)| (*t, *s) == (tid, sub))?;
    Some(format!("layers.{layer}.{name}"))
}
