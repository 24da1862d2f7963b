//! Makes a model of random weights, straight into a container. What is in memory is one expert, whatever the size of the file.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use fastar_fst::{NewContainer, Writer};

use crate::fill::{Filler, Random, expert_matrix};
use crate::shape::{Dense, Shape};
use crate::{Error, Result};

/// What to make. The same recipe gives the same bytes.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Sizes.
    pub shape: Shape,
    /// Precision of the dense weights.
    pub dense: Dense,
    /// Beginning of the random numbers.
    pub seed: u64,
}

/// Makes the model at `out`. `progress` gets bytes written and in all. After an error or `cancel` nothing is left.
///
/// # Errors
/// When the disk has no room for it, before anything is written, or cannot be written to.
pub fn generate(
    recipe: &Recipe,
    out: &Path,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let shape = &recipe.shape;
    let specs = shape.tensors(recipe.dense);
    let layout = shape.experts_layout().ok_or(Error::Shape)?;
    let mut writer = Writer::create(
        out,
        NewContainer {
            config: shape.config().to_string().into_bytes(),
            source: format!("{} of random weights, seed {}", shape.name, recipe.seed),
            tensors: specs
                .iter()
                .map(|spec| (spec.name.clone(), spec.dtype, spec.shape.clone()))
                .collect(),
            layers: shape.ratios.len(),
            experts: shape.experts,
            layout: layout.clone(),
        },
    )?;
    let all = writer.file_bytes();
    let mut done = 0;
    let mut went = |bytes: usize| {
        done += bytes as u64;
        progress(done, all);
        match cancel.load(Ordering::Relaxed) {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    };
    for (number, spec) in specs.iter().enumerate() {
        let random = Random::new(recipe.seed, number as u64);
        let mut filler = Filler::new(spec.dtype, spec.fill, random);
        let mut bytes = 0;
        writer.tensor(&mut |piece| {
            filler.next(piece);
            bytes += piece.len();
        })?;
        went(bytes)?;
    }
    let mut record = vec![0; layout.bytes];
    for number in 0..shape.ratios.len() * shape.experts {
        let mut random = Random::new(recipe.seed, (specs.len() + number) as u64);
        for part in [&layout.gate, &layout.up, &layout.down] {
            expert_matrix(part, &mut random, &mut record);
        }
        writer.record(&record)?;
        went(record.len())?;
    }
    writer.finish()?;
    Ok(())
}
