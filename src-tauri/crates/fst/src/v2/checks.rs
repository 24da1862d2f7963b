//! Whether the files of a model of version 2 belong together and are right, as far as values tell.

use std::borrow::Cow;
use std::path::Path;

use super::config::Sizes;
use super::file::{Entry, File, Key, Stored};
use super::{Side, problem};
use crate::error::{Result, shown_path};
use crate::layout::Dtype;
use crate::read::Bytes;

/// Norm weights of V4 are about 1; those of the published main file are about 40 times too small.
const SMALLEST_MEAN: f64 = 0.3;
/// Same tensors of two files agree much better than this, those of two models much worse.
const SMALLEST_CORRELATION: f64 = 0.5;

type Data<'a> = dyn Fn(Key) -> Result<Option<(&'a Entry, Cow<'static, [u8]>)>> + 'a;

fn values(entry: &Entry, data: &[u8]) -> Vec<f32> {
    match entry.stored {
        Stored::Plain(Dtype::Bf16) => data
            .as_chunks::<2>()
            .0
            .iter()
            .map(|b| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16))
            .collect(),
        Stored::Plain(Dtype::F32) => data
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b))
            .collect(),
        _ => Vec::new(),
    }
}

/// The list of compression ratios: whole numbers stored as F32.
pub(super) fn ratios(entry: &Entry, data: &[u8]) -> std::result::Result<Vec<usize>, String> {
    values(entry, data)
        .into_iter()
        .map(|r| {
            if r.fract() == 0.0 && (0.0..=16_777_216.0).contains(&r) {
                Ok(r as usize)
            } else {
                Err(format!("its list of compression ratios contains {r}"))
            }
        })
        .collect()
}

/// Norms of a plausible size.
pub(super) fn norms(name: &str, sizes: &Sizes, data: &Data<'_>, sidecar: bool) -> Result<()> {
    for tid in [3, 4] {
        let (mut sum, mut count) = (0.0, 0usize);
        for layer in 0..sizes.layers {
            if let Some((entry, bytes)) = data((tid, layer as u16, 0))? {
                let all = values(entry, &bytes);
                sum += all.iter().map(|v| f64::from(v.abs())).sum::<f64>();
                count += all.len();
            }
        }
        let mean = sum / count.max(1) as f64;
        if mean >= SMALLEST_MEAN {
            continue;
        }
        let which = if tid == 3 { "attention" } else { "expert" };
        return Err(problem(if sidecar {
            format!(
                "{name}.norm is wrong: the norms before the {which} layers are {mean:.3} on average, where about 1 is right. Download it again."
            )
        } else {
            format!(
                "{name} has norms that are far too small ({mean:.3} on average before the {which} layers, where about 1 is right), and {name}.norm, which holds the right ones, is missing. Download it into the same folder."
            )
        }));
    }
    Ok(())
}

/// Whether what both files have of the sidecar's kinds comes from the same model. Scaled values still agree; if not one kind does, the sidecar
/// is another model's. A main file that has none of these tensors cannot tell.
pub(super) fn belongs(
    side: Side,
    main_name: &str,
    main: &File,
    main_bytes: &Bytes,
    name: &str,
    sidecar: &File,
    bytes: &Bytes,
) -> Result<()> {
    let kinds: &[u32] = match side {
        Side::Hc => &[23, 25, 26, 28, 29, 31],
        _ => &[1, 3, 4, 14, 15, 22],
    };
    let mut best: Option<f64> = None;
    for tid in kinds {
        let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
        for (key, b) in sidecar.entries.iter().filter(|(key, _)| key.0 == *tid) {
            let Some(a) = main.entries.get(key) else {
                continue;
            };
            let x = values(a, &super::data_of(a, main_bytes, main_name)?);
            let y = values(b, &super::data_of(b, bytes, name)?);
            if x.len() != y.len() {
                continue;
            }
            let mean = |v: &[f32]| v.iter().map(|v| f64::from(*v)).sum::<f64>() / v.len() as f64;
            let (mx, my) = (mean(&x), mean(&y));
            for (x, y) in x.iter().zip(&y) {
                let (x, y) = (f64::from(*x) - mx, f64::from(*y) - my);
                xy += x * y;
                xx += x * x;
                yy += y * y;
            }
        }
        if xx > 0.0 && yy > 0.0 {
            let correlation = xy / (xx.sqrt() * yy.sqrt());
            best = Some(best.map_or(correlation, |b: f64| b.max(correlation)));
        }
    }
    match best {
        Some(best) if best < SMALLEST_CORRELATION => Err(problem(format!(
            "{name} belongs to another model: not one of its tensors agrees with those of {main_name}. Download the whole set again."
        ))),
        _ => Ok(()),
    }
}

/// The converter that decoded FP8 codes of exponent 15 as zero: it lost the largest weights of nearly every block, about one in two hundred
/// in all, where an undamaged matrix has next to no zeros.
pub(super) fn e4m3(name: &str, sizes: &Sizes, data: &Data<'_>) -> Result<()> {
    const DAMAGE: std::ops::Range<f64> = 0.001..0.05;
    let last = sizes.layers - 1;
    let mut layers = vec![0, last / 2, last];
    layers.dedup();
    for layer in layers {
        let Some((entry, bytes)) = data((5, layer as u16, 0))? else {
            continue;
        };
        let all = values(entry, &bytes);
        let zeros = all.iter().filter(|v| **v == 0.0).count();
        let share = zeros as f64 / all.len().max(1) as f64;
        if DAMAGE.contains(&share) {
            return Err(problem(format!(
                "{name} lost its largest weights when it was made ({:.1} % of layers.{layer}.attn.wq_a.weight are zero, a known error of the original converter), so its answers would be wrong; convert the original checkpoint with `fastar convert`.",
                share * 100.0
            )));
        }
    }
    Ok(())
}

/// The table of the hash layers: its length and every id in it.
pub(super) fn table(at: &Path, bytes: &Bytes, sizes: &Sizes) -> Result<()> {
    let name = shown_path(at);
    let needed = sizes
        .hashed
        .checked_mul(sizes.vocab)
        .and_then(|n| n.checked_mul(sizes.experts_per_token))
        .and_then(|n| u64::try_from(n).ok()?.checked_mul(4));
    if needed != Some(bytes.length()) {
        return Err(problem(format!(
            "{name} is incomplete or belongs to another model: it has {} bytes, and {} layers of {} tokens with {} experts need {}. Download it again.",
            bytes.length(),
            sizes.hashed,
            sizes.vocab,
            sizes.experts_per_token,
            needed.map_or("more than there can be".to_owned(), |n| n.to_string())
        )));
    }
    let mut bad = None;
    bytes.each_piece(0..bytes.length(), &mut |piece| {
        let mut ids = piece
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| i32::from_le_bytes(*b));
        let wrong = |id: &i32| usize::try_from(*id).map_or(true, |id| id >= sizes.experts);
        bad = bad.or_else(|| ids.find(wrong));
        Ok(())
    })?;
    match bad {
        Some(id) => Err(problem(format!(
            "{name} belongs to another model or is damaged: it names expert {id}, and there are {}. Download it again.",
            sizes.experts
        ))),
        None => Ok(()),
    }
}
