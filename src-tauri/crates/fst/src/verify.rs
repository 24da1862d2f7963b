//! Whether a container is whole: its structure in moments, or every byte of it at the speed of the disk. Says which parts are damaged, so
//! that [`repair`](crate::repair()) can fetch just those.

use std::fmt;
use std::hash::Hasher as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use fastar_kernels::q8_0;
use serde::{Deserialize, Serialize};
use twox_hash::xxhash3_64::Hasher;

use crate::error::{Error, Result, shown};
use crate::layout::Dtype;
use crate::read::{Container, Seen};

/// About a megabyte, and whole entries of every type: a block of Q8_0 has 34 bytes.
const PIECE_BYTES: usize = 34 << 15;
/// Mean size of the entries of a norm before a layer; files were published with norms forty times too small, at about 0.02. Those of the
/// model are about 1.2 before attention and 1.6 before the experts.
const LEAST_MEAN_NORM: f64 = 0.3;

/// How much of a container to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Header, index, tokenizer and norms.
    Structure,
    /// Every byte; of a file that was upgraded in place all but what belongs to nothing.
    Full,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Size of the file.
    pub file_bytes: u64,
    /// Bytes that were compared with their checksum.
    pub checked_bytes: u64,
    /// The container's identity, 16 hexadecimal digits.
    pub identity: String,
    /// Parts whose bytes are not what they were, in file order.
    pub damaged: Vec<Damage>,
    /// Weights that are stored as they were made and cannot be right, sentences.
    pub suspicious: Vec<String>,
}

impl Report {
    /// Nothing is damaged and nothing suspicious.
    pub fn is_good(&self) -> bool {
        self.damaged.is_empty() && self.suspicious.is_empty()
    }
}

/// A damaged part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// What it is.
    pub part: Part,
    /// Where it begins in the file.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// Why the disk could not read it, if it is that.
    pub unreadable: Option<String>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, bytes {} to {}: ",
            self.part,
            self.offset,
            self.offset + self.bytes
        )?;
        match &self.unreadable {
            Some(why) => write!(f, "cannot be read ({why})"),
            None if self.part == Part::Padding(self.offset) => f.write_str("not zero"),
            None => f.write_str("the checksum does not match"),
        }
    }
}

/// A part with a checksum of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// tokenizer.json.
    Tokenizer,
    /// A dense tensor, by name.
    Tensor(String),
    /// A routed expert's record.
    Expert {
        /// From 0.
        layer: usize,
        /// From 0.
        expert: usize,
    },
    /// Bytes between two other parts, by where they begin. They mean nothing and are zero.
    Padding(u64),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokenizer => f.write_str("tokenizer"),
            Self::Tensor(name) => write!(f, "tensor {}", shown(name)),
            Self::Expert { layer, expert } => write!(f, "expert {expert} of layer {layer}"),
            Self::Padding(_) => f.write_str("padding"),
        }
    }
}

/// Checks the container at `path`. `progress` gets bytes checked and bytes to check.
///
/// # Errors
/// When header or index are damaged, which say where everything else is; such a file cannot be repaired. When the file is no longer what it
/// was at the start, whatever was found until then. Damage to anything else is in the report.
pub fn verify(
    path: &Path,
    depth: Depth,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report> {
    let container = Container::open_with_any_tokenizer(path)?;
    let seen = Seen::of(path, &container);
    let report = look(&container, depth, cancel, progress);
    if !matches!(report, Err(Error::Cancelled)) {
        // Before any other error, which may have come of the change.
        seen.still()?;
    }
    report
}

fn look(
    container: &Container,
    depth: Depth,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report> {
    #[cfg(target_os = "linux")]
    if let Some(file) = container.file()
        && let Err(error) = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Sequential)
    {
        tracing::debug!(%error, "not read ahead");
    }
    let mut parts: Vec<_> = container
        .checked_parts()
        .filter(|part| depth == Depth::Full || part.is_small())
        .collect();
    parts.sort_by_key(|part| part.offset);
    let total = parts.iter().map(|part| part.bytes).sum();
    let mut reader = Reader {
        container,
        piece: vec![0; PIECE_BYTES],
        cancel,
        progress,
        done: 0,
        total,
    };
    let mut damaged = Vec::new();
    let mut suspicious = Vec::new();
    let fp8_experts = container
        .expert_layout()
        .parts()
        .iter()
        .any(|(_, matrix)| matrix.dtype == Dtype::F8E4m3);
    (reader.progress)(0, total);
    for expected in parts {
        let (checksum, odd) = reader.read(&expected)?;
        let unreadable = match checksum {
            Ok(checksum) if checksum == expected.checksum => {
                if odd > 0 {
                    suspicious.push(format!(
                        "The {} has {odd} values that are no numbers.",
                        expected.part
                    ));
                }
                // Read once more, out of memory: not many files have experts of FP8.
                if let Part::Expert { layer, expert } = expected.part
                    && fp8_experts
                    && let Err(error) = container.expert(layer, expert)
                {
                    suspicious.push(error.to_string());
                }
                continue;
            }
            Ok(_) => None,
            Err(why) => Some(why),
        };
        damaged.push(Damage {
            part: expected.part,
            offset: expected.offset,
            bytes: expected.bytes,
            unreadable,
        });
    }
    if container.version() == crate::v2::VERSION && depth == Depth::Full {
        // No checksums: what can be told is whether every expert is there.
        let (layers, experts) = container.expert_counts();
        for (layer, expert) in (0..layers).flat_map(|l| (0..experts).map(move |e| (l, e))) {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            if let Err(error) = container.expert(layer, expert) {
                suspicious.push(error.to_string());
            }
        }
    }
    for (name, tensor) in container.tensors() {
        let is_damaged = |d: &Damage| matches!(&d.part, Part::Tensor(n) if n == name);
        if is_layer_norm(name) && !damaged.iter().any(is_damaged) {
            suspicious.extend(implausible_norm(name, tensor.dtype, &container.read(name)?));
        }
    }
    Ok(Report {
        file_bytes: container.file_bytes(),
        checked_bytes: total,
        identity: format!("{:016x}", container.identity()),
        damaged,
        suspicious,
    })
}

/// A part as the index has it.
pub(crate) struct CheckedPart {
    pub part: Part,
    pub offset: u64,
    pub bytes: u64,
    pub checksum: u64,
    /// Type of its entries, if it is a dense tensor.
    pub dtype: Option<Dtype>,
}

impl CheckedPart {
    /// Read even when only the structure is asked for.
    fn is_small(&self) -> bool {
        match &self.part {
            Part::Tokenizer => true,
            Part::Tensor(name) => is_layer_norm(name),
            Part::Expert { .. } | Part::Padding(_) => false,
        }
    }
}

struct Reader<'a> {
    container: &'a Container,
    piece: Vec<u8>,
    cancel: &'a AtomicBool,
    progress: &'a mut dyn FnMut(u64, u64),
    done: u64,
    total: u64,
}

impl Reader<'_> {
    /// Checksum of the part's bytes, or why they cannot be read; and how many of its values are no numbers.
    fn read(&mut self, part: &CheckedPart) -> Result<(std::result::Result<u64, String>, u64)> {
        let mut hasher = Hasher::new();
        let mut odd = 0;
        let mut left = part.bytes;
        let before = self.done;
        let mut outcome = Ok(());
        while left > 0 && outcome.is_ok() {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let piece = &mut self.piece[..left.min(PIECE_BYTES as u64) as usize];
            let at = part.offset + (part.bytes - left);
            outcome = self.container.fill(piece, at).map_err(|e| match e {
                Error::Io { source, .. } => source.to_string(),
                Error::Length { .. } => "the file ends before it".into(),
                other => other.to_string(),
            });
            if outcome.is_ok() {
                hasher.write(piece);
                odd += part.dtype.map_or(0, |dtype| not_numbers(dtype, piece));
                left -= piece.len() as u64;
                self.done += piece.len() as u64;
                (self.progress)(self.done, self.total);
            }
        }
        self.done = before + part.bytes;
        Ok((outcome.map(|()| hasher.finish()), odd))
    }
}

/// Entries that are infinite or no number. A piece holds whole entries.
fn not_numbers(dtype: Dtype, piece: &[u8]) -> u64 {
    let count = match dtype {
        Dtype::Bf16 => piece
            .as_chunks::<2>()
            .0
            .iter()
            .filter(|b| u16::from_le_bytes(**b) & 0x7F80 == 0x7F80)
            .count(),
        Dtype::F32 => piece
            .as_chunks::<4>()
            .0
            .iter()
            .filter(|b| u32::from_le_bytes(**b) & 0x7F80_0000 == 0x7F80_0000)
            .count(),
        Dtype::F8E4m3 => piece.iter().filter(|&&b| b & 0x7F == 0x7F).count(),
        Dtype::F8E8m0 => piece.iter().filter(|&&b| b == 0xFF).count(),
        Dtype::Q8_0 => piece
            .as_chunks::<{ q8_0::BLOCK_BYTES }>()
            .0
            .iter()
            .filter(|b| u16::from_le_bytes([b[0], b[1]]) & 0x7C00 == 0x7C00)
            .count(),
        _ => 0,
    };
    count as u64
}

fn is_layer_norm(name: &str) -> bool {
    name.ends_with(".attn_norm.weight") || name.ends_with(".ffn_norm.weight")
}

/// What to say of a norm whose entries are far too small to be the model's.
pub(crate) fn implausible_norm(name: &str, dtype: Dtype, data: &[u8]) -> Option<String> {
    let values: Vec<f64> = match dtype {
        Dtype::Bf16 => data
            .as_chunks::<2>()
            .0
            .iter()
            .map(|b| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16)))
            .collect(),
        Dtype::F32 => data
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| f64::from(f32::from_le_bytes(*b)))
            .collect(),
        _ => return None,
    };
    let mean = values.iter().map(|v| v.abs()).sum::<f64>() / values.len().max(1) as f64;
    (mean < LEAST_MEAN_NORM).then(|| {
        format!(
            "The entries of {} have a mean size of {mean:.3}, and a model's are about 1: such a model writes nonsense. Convert the original checkpoint.",
            shown(name)
        )
    })
}
