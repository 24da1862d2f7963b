//! Records of FP4 from one layout to another. The same bytes in another order, so no record grows.

use crate::layout::{Dtype, ExpertLayout, ExpertMatrix, FP4_BLOCK_BYTES};
use crate::packing::Packing;

/// From one layout to another of the same experts.
pub(super) struct Relay {
    from: ExpertLayout,
    to: ExpertLayout,
    packing: Packing,
}

impl Relay {
    /// `from` is `fp4-blocks` or `row-major`, `to` is `row-major` or `fp4-packets`.
    pub fn new(from: &ExpertLayout, to: &ExpertLayout) -> Self {
        Self {
            from: from.clone(),
            to: to.clone(),
            packing: Packing::default(),
        }
    }

    /// A record as it was, and as it will be; both have the length of a record.
    pub fn record(&mut self, before: &[u8], after: &mut [u8]) {
        for ((_, from), (_, to)) in self.from.parts().into_iter().zip(self.to.parts()) {
            self.packing.shape(to);
            take(from, before, &mut self.packing);
            put(&mut self.packing, to, after);
        }
    }
}

fn take(from: &ExpertMatrix, record: &[u8], into: &mut Packing) {
    let data = &record[from.data.clone()];
    if let Some((_, scale)) = &from.scale {
        into.weight.copy_from_slice(data);
        into.scale.copy_from_slice(&record[scale.clone()]);
        return;
    }
    let (blocks, _) = data.as_chunks::<FP4_BLOCK_BYTES>();
    let (codes, _) = into.weight.as_chunks_mut::<{ FP4_BLOCK_BYTES - 1 }>();
    for (([scale, block @ ..], codes), to) in blocks.iter().zip(codes).zip(&mut into.scale) {
        *to = *scale;
        codes.copy_from_slice(block);
    }
}

fn put(from: &mut Packing, to: &ExpertMatrix, record: &mut [u8]) {
    if to.dtype == Dtype::Fp4Packets {
        from.pack();
        record[to.data.clone()].copy_from_slice(&from.packets);
        return;
    }
    record[to.data.clone()].copy_from_slice(&from.weight);
    if let Some((_, scale)) = &to.scale {
        record[scale.clone()].copy_from_slice(&from.scale);
    }
}
