//! A matrix of FP4 on its way from the checkpoint's two tensors into packets, and back.

use fastar_kernels::mxfp4;

use crate::layout::{ExpertMatrix, FP4_BLOCK};

/// Both forms of one matrix in memory; reused for the next. [`ExpertLayout::fp4_packets`](crate::ExpertLayout::fp4_packets) bounds how large
/// that is.
#[derive(Default)]
pub(crate) struct Packing {
    rows: usize,
    columns: usize,
    /// Nibbles [rows, columns / 2], as in the checkpoint.
    pub weight: Vec<u8>,
    /// Scales [rows, columns / 32], as in the checkpoint.
    pub scale: Vec<u8>,
    pub packets: Vec<u8>,
}

impl Packing {
    /// Makes room for a matrix of this shape; what is in the room is what was before.
    pub fn shape(&mut self, matrix: &ExpertMatrix) {
        let (rows, columns) = (matrix.rows, matrix.columns);
        (self.rows, self.columns) = (rows, columns);
        self.weight.resize(rows * columns / 2, 0);
        self.scale.resize(rows * columns / FP4_BLOCK, 0);
        self.packets.resize(matrix.data.len(), 0);
    }

    /// From the two tensors to packets.
    pub fn pack(&mut self) {
        let Self {
            rows,
            columns,
            weight,
            scale,
            packets,
        } = self;
        let fits = mxfp4::pack(*rows, *columns, weight, scale, packets);
        assert!(fits, "a layout is checked before anything is packed");
    }

    /// From packets to the two tensors.
    pub fn unpack(&mut self) {
        let Self {
            rows,
            columns,
            weight,
            scale,
            packets,
        } = self;
        let fits = mxfp4::unpack(*rows, *columns, packets, weight, scale);
        assert!(fits, "a layout is checked before anything is unpacked");
    }
}
