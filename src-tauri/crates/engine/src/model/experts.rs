//! Where the weights of a layer's routed experts come from.
//!
//! The one place that obtains expert records. The expert layer says which experts it wants, in ascending order, and gets them in batches, as they are
//! there; it does not know from where.

use fastar_fst::{Container, ExpertLayout};
use fastar_kernels::matrix::Matrix;

use super::config::Config;
use super::weights::{Loader, Weight, expert_matrix};
use crate::{Error, Result};

/// Where a layer's routed experts lie.
pub enum Experts {
    /// In the container's records of this layer.
    Records(usize),
    /// Among the dense tensors (MTP blocks).
    Dense(Vec<[Weight; 3]>),
}

/// In which order experts may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In any, several at a time: a few tokens, whose outputs are kept apart and added in order afterwards.
    Any,
    /// In ascending order, one at a time: many tokens, whose outputs are added as they come.
    Ascending,
}

/// An expert that has come: its place among the wanted ones, and its gate, up and down.
pub type Arrived<'a> = (usize, [Matrix<'a>; 3]);

impl Experts {
    /// Calls `each` with the experts `wanted`, which are ascending and distinct, until all of them have come. Those of one call are ascending.
    ///
    /// An error of a record ends it.
    pub fn visit(
        &self,
        container: &Container,
        bytes: &[u8],
        wanted: &[u32],
        order: Order,
        each: &mut dyn FnMut(&[Arrived<'_>]),
    ) -> Result<()> {
        let load = |(place, expert): (usize, &u32)| -> Result<Arrived<'_>> {
            let expert = *expert as usize;
            let matrices = match self {
                Self::Records(layer) => {
                    record(container.expert(*layer, expert)?, container.expert_layout())?
                }
                Self::Dense(all) => all[expert].each_ref().map(|w| w.view(bytes)),
            };
            Ok((place, matrices))
        };
        match order {
            Order::Any => {
                let all: Vec<_> = wanted.iter().enumerate().map(load).collect::<Result<_>>()?;
                each(&all);
            }
            Order::Ascending => {
                for one in wanted.iter().enumerate() {
                    each(&[load(one)?]);
                }
            }
        }
        Ok(())
    }
}

/// Gate, up and down of an expert stored among the dense tensors.
pub fn dense_expert(loader: &Loader<'_>, c: &Config, prefix: &str) -> Result<[Weight; 3]> {
    let (i, d) = (c.moe_intermediate_size, c.hidden_size);
    Ok([
        loader.matrix(&format!("{prefix}w1.weight"), i, d)?,
        loader.matrix(&format!("{prefix}w3.weight"), i, d)?,
        loader.matrix(&format!("{prefix}w2.weight"), d, i)?,
    ])
}

fn record<'a>(bytes: &'a [u8], layout: &ExpertLayout) -> Result<[Matrix<'a>; 3]> {
    match (
        expert_matrix(&layout.gate, bytes),
        expert_matrix(&layout.up, bytes),
        expert_matrix(&layout.down, bytes),
    ) {
        (Some(gate), Some(up), Some(down)) => Ok([gate, up, down]),
        _ => Err(unknown_layout(layout)),
    }
}

/// The error for expert records this engine cannot read.
pub fn unknown_layout(layout: &ExpertLayout) -> Error {
    Error::Tensor(format!(
        "The experts of this model file are stored as `{}` in a way this version cannot read. Convert the checkpoint again.",
        layout.id
    ))
}
