//! Where the weights of a layer's routed experts come from.
//!
//! The one place that obtains expert records. The expert layer says which experts it wants, in ascending order, and gets them in batches, as they are
//! there; it does not know from where: a container in memory has them at hand, one on disk pages them ([`Pager`]).

use std::borrow::Cow;

use fastar_fst::{Container, ExpertLayout};
use fastar_kernels::matrix::Matrix;

use super::config::Config;
use super::pass::Pass;
use super::weights::{Loader, Weight, expert_matrix};
use crate::pager::{Pager, Pages};
use crate::{Error, Result};

/// Where a layer's routed experts lie.
pub enum Experts {
    /// Among the records, as those of this layer.
    Records(usize),
    /// Among the dense tensors (MTP blocks).
    Dense(Vec<[Weight; 3]>),
}

/// Where the records of the routed experts come from.
#[derive(Clone, Copy)]
pub enum Records<'a> {
    /// All of them are in memory.
    Container(&'a Container),
    /// They are paged.
    Pager(&'a Pager, &'a ExpertLayout),
}

/// An expert that is wanted, and how many tokens take it.
pub type Wanted = (u32, u32);

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
    /// Asks for the experts `wanted`, which are ascending and distinct. Where they are paged, their reads are under way when this returns.
    pub fn request<'a>(&'a self, pass: Pass<'a>, wanted: &'a [Wanted]) -> Result<Requested<'a>> {
        let source = match (self, pass.records) {
            (Self::Records(layer), Records::Pager(pager, layout)) => {
                Source::Paged(pager.request(*layer, wanted, pass.cancel)?, layout)
            }
            (Self::Records(layer), Records::Container(container)) => {
                Source::Container(container, *layer)
            }
            (Self::Dense(all), _) => Source::Dense(all, pass.bytes),
        };
        Ok(Requested { source, wanted })
    }
}

/// Experts that were asked for.
pub struct Requested<'a> {
    source: Source<'a>,
    wanted: &'a [Wanted],
}

enum Source<'a> {
    Paged(Pages<'a>, &'a ExpertLayout),
    Container(&'a Container, usize),
    Dense(&'a [[Weight; 3]], &'a [u8]),
}

impl<'a> Requested<'a> {
    /// Calls `each` with them until all have come. Those of one call are ascending. An error of a record ends it.
    pub fn visit(self, order: Order, each: &mut dyn FnMut(&[Arrived<'_>])) -> Result<()> {
        let at_hand: &dyn Fn(usize) -> Result<[Matrix<'a>; 3]> = match self.source {
            Source::Paged(mut pages, layout) => {
                return visit_pages(&mut pages, layout, self.wanted, order, each);
            }
            Source::Container(container, layer) => &move |expert| {
                let layout = container.expert_layout();
                match container.expert(layer, expert)? {
                    Cow::Borrowed(bytes) => record(bytes, layout),
                    Cow::Owned(_) => Err(Error::Input("The experts of a file are paged.".into())),
                }
            },
            Source::Dense(all, bytes) => {
                &move |expert| Ok(all[expert].each_ref().map(|w| w.view(bytes)))
            }
        };
        let load = |(place, (expert, _)): (usize, &Wanted)| -> Result<Arrived<'a>> {
            Ok((place, at_hand(*expert as usize)?))
        };
        let wanted = self.wanted.iter().enumerate();
        match order {
            Order::Any => each(&wanted.map(load).collect::<Result<Vec<_>>>()?),
            Order::Ascending => {
                for one in wanted {
                    each(&[load(one)?]);
                }
            }
        }
        Ok(())
    }
}

/// [`Requested::visit`] for records that are paged: what is in memory is computed while the rest is read.
fn visit_pages(
    pages: &mut Pages<'_>,
    layout: &ExpertLayout,
    wanted: &[Wanted],
    order: Order,
    each: &mut dyn FnMut(&[Arrived<'_>]),
) -> Result<()> {
    match order {
        Order::Any => {
            let mut experts = Vec::with_capacity(wanted.len());
            while pages.arrived(&mut experts)? {
                let batch: Vec<Arrived<'_>> = experts
                    .iter()
                    .map(|expert| {
                        let bytes = pages.bytes(*expert).unwrap_or_default();
                        let place = wanted.partition_point(|(e, _)| e < expert);
                        Ok((place, record(bytes, layout)?))
                    })
                    .collect::<Result<_>>()?;
                each(&batch);
                drop(batch);
                for expert in experts.drain(..) {
                    pages.release(expert);
                }
            }
        }
        Order::Ascending => {
            for (place, (expert, _)) in wanted.iter().enumerate() {
                each(&[(place, record(pages.get(*expert)?, layout)?)]);
                pages.release(*expert);
            }
        }
    }
    Ok(())
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
