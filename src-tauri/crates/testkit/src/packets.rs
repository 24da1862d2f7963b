//! The records of FP4 experts, from the definition and sharing no code with what is tested.

use crate::Checkpoint;

/// Packets of a matrix of FP4, by the definition in the documentation of `fastar_kernels::mxfp4`: rows are a multiple of eight.
pub fn packets(rows: usize, columns: usize, weight: &[u8], scale: &[u8]) -> Vec<u8> {
    let blocks = columns / 32;
    let mut out = vec![0; rows * blocks * 17];
    for (row, block) in (0..rows).flat_map(|row| (0..blocks).map(move |block| (row, block))) {
        let (packet, b, r) = (block / 32, block % 32, row % 8);
        let t = (blocks - 32 * packet).min(32);
        let start = row / 8 * blocks * 136 + packet * 32 * 136;
        for (j, i) in (0..4).flat_map(|j| (0..4).map(move |i| (j, i))) {
            let column = 32 * block + 8 * j + 2 * i;
            out[start + 128 * b + 32 * j + 4 * r + i] = weight[(row * columns + column) / 2];
        }
        out[start + 128 * t + 8 * b + r] = scale[row * blocks + block];
    }
    out
}

/// The record in packets of an expert of a checkpoint.
pub fn packed_record(checkpoint: &Checkpoint, layer: usize, expert: usize) -> Vec<u8> {
    pairs(checkpoint, layer, expert)
        .flat_map(|(shape, [weight, scale])| packets(shape[0], shape[1] * 2, weight, scale))
        .collect()
}

/// The same in rows, as the checkpoint has them: what containers held before there were packets.
pub fn row_record(checkpoint: &Checkpoint, layer: usize, expert: usize) -> Vec<u8> {
    pairs(checkpoint, layer, expert)
        .flat_map(|(_, pair)| pair.concat())
        .collect()
}

/// Shape of the weights, weights and scales of gate, up and down.
fn pairs(
    checkpoint: &Checkpoint,
    layer: usize,
    expert: usize,
) -> impl Iterator<Item = (&[usize], [&[u8]; 2])> {
    ["w1", "w3", "w2"].into_iter().map(move |part| {
        let [weight, scale] = ["weight", "scale"].map(|what| {
            &checkpoint.tensors[&format!("layers.{layer}.ffn.experts.{expert}.{part}.{what}")]
        });
        (&*weight.1, [&*weight.2, &*scale.2])
    })
}
