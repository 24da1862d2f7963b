//! What every part of a forward pass is given, and the products of one input with several weights.

use fastar_kernels::matrix::Matrix;
use fastar_kernels::product::{Arithmetic, Product, Vectors, multiply};

use super::config::Config;
use super::experts::Records;
use crate::Cancel;

/// What every part of a forward pass is given.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    /// The model's sizes.
    pub config: &'a Config,
    /// Where dense weights lie.
    pub bytes: &'a [u8],
    /// Where expert records come from.
    pub records: Records<'a>,
    /// Looked at while something is waited for.
    pub cancel: &'a Cancel,
    /// Whether vectors may be rounded to eight bits where that is faster.
    pub arithmetic: Arithmetic,
    /// Whether the roundings of the hosted model are on.
    pub reference: bool,
}

impl Pass<'_> {
    /// `out = W x` for each matrix, x [n, columns]: one hand-over of work for all of them. Outputs are made to fit, [n, rows].
    pub fn project(
        &self,
        x: &[f32],
        vectors: &mut Vectors,
        parts: &mut [(Matrix<'_>, &mut Vec<f32>)],
    ) {
        let Some(columns) = parts.first().map(|(m, _)| m.columns()) else {
            return;
        };
        let forms = parts.iter().map(|(m, _)| m.form(self.arithmetic));
        vectors.prepare(x, columns, forms);
        let vectors = &*vectors;
        let mut products: Vec<_> = parts
            .iter_mut()
            .map(|(m, out)| {
                out.resize(vectors.tokens() * m.rows(), 0.0);
                Product::new(*m, self.arithmetic, vectors, out)
            })
            .collect();
        multiply(&mut products);
    }
}
