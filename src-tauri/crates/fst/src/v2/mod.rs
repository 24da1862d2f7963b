//! Files of version 2: what the original FaStar published, read as they are.
//!
//! A model of version 2 is several files: `NAME.fst`, beside it `NAME.fst.hc`, `NAME.fst.norm` and `NAME.fst.tid2eid`, and `tokenizer.json` in
//! the same folder. All are looked for beside the name that was given, then beside the file that a link leads to. The main file has no
//! config, no names and no checksums: tensors are found by (kind, layer, half), the config is made from shapes, and what can be told about
//! the files belonging together is checked by [`checks`]. What cannot be told: a `.hc` or `.tid2eid` of another model of exactly the same
//! sizes, when the main file has no such tensors of its own to compare.
//!
//! | offset | type | header field |
//! |---|---|---|
//! | 0 | 4 bytes | `FST\0` |
//! | 4 | u32 | version, 2 |
//! | 8.. | u32 each | hidden, layers, experts, experts per token, and five fields that are not to be trusted; shared experts; 0 |
//! | 48 | u64 | vocabulary |
//! | 56 | f32 x 2 | RMS epsilon, RoPE base |
//! | 64 | u64 x 2 | directory offset, entries |
//! | 80 | u64 x 4 | expert blocks: offset, used bytes, distance, number |
//! | 112 | u64 x 2 | of a draft: block size and rank << 16, noise token; else 0 |
//!
//! A directory entry has 64 bytes: u32 kind, u16 layer (0xFFFF: whole model), u16 half, u16 type (1 Q8_0 with all scales first, 2 BF16,
//! 3 F32), u16 dimensions, u32 0, u64 x 3 sizes, u64 offset, u64 bytes, u64 0. An expert block is gate, up and down, each as 17-byte
//! blocks: a scale and the 32 FP4 codes it is for (layout id `fp4-blocks`).

mod checks;
mod config;
mod draft;
pub(crate) mod file;
mod names;

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use twox_hash::xxhash3_64::Hasher;

use crate::error::{Error, Result, shown_path};
use crate::format::Entry;
use crate::layout::{Dtype, ExpertLayout};
use crate::read::Bytes;

pub use draft::{Draft, draft};
use file::{File, GLOBAL, HEADER_BYTES, Key, Stored};

pub(crate) const VERSION: u32 = 2;

/// One of the files beside the main one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Hc,
    Norm,
    Tid2eid,
}

impl Side {
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Hc => ".hc",
            Self::Norm => ".norm",
            Self::Tid2eid => ".tid2eid",
        }
    }

    /// What is in it, for people.
    fn content(self) -> &'static str {
        match self {
            Self::Hc => "the weights of the hyper-connections",
            Self::Norm => "the norms in their right size",
            Self::Tid2eid => "the table of experts of the first layers",
        }
    }

    fn owns(self, tid: u32, layer: u16) -> bool {
        match self {
            Self::Hc => matches!((tid, layer), (29..=31, GLOBAL) | (23..=28, 0..=0xFFFE)),
            Self::Norm => matches!(
                (tid, layer),
                (1, GLOBAL) | (3 | 4 | 14 | 15 | 22, 0..=0xFFFE)
            ),
            Self::Tid2eid => false,
        }
    }
}

/// Where a tensor is: 0 is the main file, then the sidecars.
pub(crate) type Source = usize;

/// A model of version 2, checked.
pub(crate) struct Model {
    pub config: Value,
    pub layout: ExpertLayout,
    pub layers: usize,
    pub experts: usize,
    pub bank: u64,
    pub stride: u64,
    /// Tensors in the order of their places, with the file each is in.
    pub entries: Vec<(Source, Entry)>,
    /// The files after the main one.
    pub sidecars: Vec<Bytes>,
    /// What follows the main file's name in theirs.
    pub suffixes: Vec<&'static str>,
    pub tokenizer: Option<Vec<u8>>,
    pub identity: u64,
}

/// A file with its directory.
struct Opened {
    bytes: Bytes,
    file: File,
}

/// A file named like `path` with something added, beside the link or beside what it leads to.
fn beside(path: &Path, named: impl Fn(&Path) -> PathBuf) -> Option<PathBuf> {
    let here = named(path);
    if here.exists() {
        return Some(here);
    }
    let target = fs::canonicalize(path).ok()?;
    Some(named(&target)).filter(|there| there.exists())
}

pub(crate) fn sidecar_name(path: &Path, side: Side) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(side.suffix());
    PathBuf::from(name)
}

/// The files that belong to the main file `path`.
pub(crate) fn companions(path: &Path) -> Vec<PathBuf> {
    [Side::Hc, Side::Norm, Side::Tid2eid]
        .into_iter()
        .filter_map(|side| beside(path, |p| sidecar_name(p, side)))
        .chain(beside(path, |p| p.with_file_name("tokenizer.json")))
        .collect()
}

fn problem(message: String) -> Error {
    Error::Original { message }
}

/// Reads what belongs to the main file `path`, whose bytes are `main`.
pub(crate) fn open(path: &Path, main: &Bytes) -> Result<Model> {
    let name = shown_path(path);
    let file = File::parse(main, &name)?;
    refuse_other_kinds(&file, &name)?;
    if file.layers > file.entries.len() as u64 {
        return Err(missing(&name, "most of its tensors"));
    }
    let sidecar = |side: Side| -> Result<Option<(PathBuf, Bytes)>> {
        let Some(at) = beside(path, |p| sidecar_name(p, side)) else {
            return Ok(None);
        };
        if fs::metadata(&at).is_ok_and(|about| about.is_file() && about.len() == 0) {
            return Err(problem(format!(
                "{} is empty: it should hold {}. Download it again.",
                shown_path(&at),
                side.content()
            )));
        }
        let bytes = crate::read::open(&at)?;
        Ok(Some((at, bytes)))
    };
    let mut opened: Vec<(Side, PathBuf, Opened)> = Vec::new();
    for side in [Side::Hc, Side::Norm] {
        if let Some((at, bytes)) = sidecar(side)? {
            let parsed = open_sidecar(side, &at, &bytes, &file)?;
            opened.push((
                side,
                at,
                Opened {
                    bytes,
                    file: parsed,
                },
            ));
        }
    }
    let has = |side: Side| opened.iter().any(|(s, ..)| *s == side);
    if !has(Side::Hc) && (0..31).any(|tid| Side::Hc.owns(tid, 0) && file.get(tid, 0, 0).is_none()) {
        return Err(no_sidecar(&name, Side::Hc));
    }
    // The last one wins: sidecars replace what the main file has of their kinds.
    let find = |key: Key| {
        opened
            .iter()
            .enumerate()
            .rev()
            .find_map(|(i, (_, _, o))| o.file.entries.get(&key).map(|e| (i + 1, e)))
            .or_else(|| file.entries.get(&key).map(|e| (0, e)))
    };
    let bytes_of = |source: Source| -> &Bytes {
        match source {
            0 => main,
            n => &opened[n - 1].2.bytes,
        }
    };
    let data = |key: Key| {
        find(key)
            .map(|(source, entry)| Ok((entry, data_of(entry, bytes_of(source), &name)?)))
            .transpose()
    };
    let ratios = data((40, GLOBAL, 0))?
        .map(|(entry, bytes)| checks::ratios(entry, &bytes))
        .transpose()
        .map_err(|what| damaged(&name, what))?;
    let sizes = config::Sizes::read(
        &file,
        &|key| find(key).map(|(_, e)| e.shape.clone()),
        ratios,
    )
    .map_err(|what| damaged(&name, what))?;
    if sizes.vocab as u64 != file.vocab {
        return Err(damaged(
            &name,
            format!(
                "its header says {} tokens and its embedding has {}",
                file.vocab, sizes.vocab
            ),
        ));
    }
    let compressed = |l: usize| sizes.ratios[l] > 0;
    if (0..sizes.layers)
        .any(|l| compressed(l) && (32..36).any(|t| find((t, l as u16, 0)).is_none()))
    {
        // A compressed row is visible to the last token of its own block: before that nothing is missing.
        let first = sizes.ratios.iter().filter(|r| **r > 0).min();
        return Err(problem(format!(
            "{name} has no weights for the compressors (tensors 32 to 35), without which only the first {} tokens of a chat would be right; convert the original checkpoint with `fastar convert`.",
            first.map_or(0, |r| r - 1)
        )));
    }
    let mut entries = Vec::new();
    for (key, shape) in sizes.needed() {
        let Some(tensor) = names::name(key) else {
            continue;
        };
        let Some((source, entry)) = find(key) else {
            return Err(missing(&name, &format!("tensor {tensor}")));
        };
        if entry.shape != shape {
            let owner = match source {
                0 => name.clone(),
                n => shown_path(&opened[n - 1].1),
            };
            return Err(problem(format!(
                "{owner} has {tensor} in the sizes {:?} where the model needs {shape:?}: the files do not belong together. Download the whole set again.",
                entry.shape
            )));
        }
        let Stored::Plain(dtype) = entry.stored else {
            return Err(damaged(
                &name,
                format!("tensor {tensor} is stored as Q8_0, which only draft files use"),
            ));
        };
        entries.push((
            source,
            Entry {
                name: tensor,
                dtype,
                shape: entry.shape.clone(),
                offset: entry.offset,
                bytes: entry.bytes,
                checksum: 0,
            },
        ));
    }
    let layout = ExpertLayout::fp4_blocks(sizes.hidden, sizes.intermediate)
        .filter(|layout| layout.bytes as u64 == file.block)
        .ok_or_else(|| {
            damaged(
                &name,
                format!(
                    "expert blocks of {} bytes do not hold three matrices of {} x {}",
                    file.block, sizes.intermediate, sizes.hidden
                ),
            )
        })?;
    let side_file = |side: Side| {
        opened
            .iter()
            .find(|(s, ..)| *s == side)
            .map(|(_, at, o)| (shown_path(at), &o.file, &o.bytes))
    };
    checks::norms(&name, &sizes, &data, side_file(Side::Norm).is_some())?;
    for side in [Side::Hc, Side::Norm] {
        if let Some((sidecar_name, sidecar, bytes)) = side_file(side) {
            checks::belongs(side, &name, &file, main, &sidecar_name, sidecar, bytes)?;
        }
    }
    checks::e4m3(&name, &sizes, &data)?;

    let mut suffixes: Vec<_> = opened.iter().map(|(side, ..)| side.suffix()).collect();
    let mut sidecars: Vec<Bytes> = opened.into_iter().map(|(_, _, o)| o.bytes).collect();
    if sizes.hashed > 0 {
        let Some((at, bytes)) = sidecar(Side::Tid2eid)? else {
            return Err(no_sidecar(&name, Side::Tid2eid));
        };
        checks::table(&at, &bytes, &sizes)?;
        let each = (sizes.vocab * sizes.experts_per_token * 4) as u64;
        for layer in 0..sizes.hashed {
            entries.push((
                sidecars.len() + 1,
                Entry {
                    name: format!("layers.{layer}.ffn.gate.tid2eid"),
                    dtype: Dtype::I32,
                    shape: vec![sizes.vocab, sizes.experts_per_token],
                    offset: layer as u64 * each,
                    bytes: each,
                    checksum: 0,
                },
            ));
        }
        sidecars.push(bytes);
        suffixes.push(Side::Tid2eid.suffix());
    }
    entries.sort_by_key(|(source, entry)| (*source, entry.offset));
    let config = sizes.config(&file);
    let identity = {
        use std::hash::Hasher as _;
        let mut hasher = Hasher::new();
        let hash = |hasher: &mut Hasher, bytes: &Bytes, range| {
            bytes.each_piece(range, &mut |piece| {
                hasher.write(piece);
                Ok(())
            })
        };
        hash(&mut hasher, main, 0..file.directory_end)?;
        hasher.write(&main.length().to_le_bytes());
        // The header and directory of two models of the same sizes are the same; some weights tell them apart.
        for key in [(0, GLOBAL, 0), (9, 0, 0)] {
            if let Some(entry) = file.entries.get(&key) {
                let end = entry.offset + entry.bytes.min(1 << 22);
                hash(&mut hasher, main, entry.offset..end)?;
            }
        }
        for bytes in &sidecars {
            hash(&mut hasher, bytes, 0..bytes.length())?;
        }
        hasher.finish()
    };
    let tokenizer = tokenizer(path, sizes.vocab, &config)?;
    Ok(Model {
        layout,
        layers: sizes.layers,
        experts: sizes.experts,
        bank: file.bank,
        stride: file.stride,
        entries,
        sidecars,
        suffixes,
        tokenizer,
        identity,
        config,
    })
}

/// The bytes of a tensor whose values are looked at, of which none is large.
fn data_of(entry: &file::Entry, bytes: &Bytes, name: &str) -> Result<Cow<'static, [u8]>> {
    const MOST: u64 = 1 << 30;
    if entry.bytes > MOST {
        return Err(damaged(
            name,
            format!("a small tensor has {} bytes", entry.bytes),
        ));
    }
    bytes.read(entry.offset..entry.offset + entry.bytes)
}

fn damaged(name: &str, what: String) -> Error {
    Error::Damaged {
        name: name.to_owned(),
        what,
    }
}

fn missing(name: &str, what: &str) -> Error {
    problem(format!(
        "{name} lacks {what}, so it is not a whole model; download it again, or convert the original checkpoint with `fastar convert`."
    ))
}

fn no_sidecar(name: &str, side: Side) -> Error {
    problem(format!(
        "{name}{} is missing: it holds {}, without which the model writes nonsense. Download it into the same folder.",
        side.suffix(),
        side.content()
    ))
}

fn refuse_other_kinds(file: &File, name: &str) -> Result<()> {
    if draft::is_draft(file) {
        return Err(problem(format!(
            "{name} is a draft model (vocabulary {}), which only helps a main model to answer faster and cannot chat; choose the main .fst file.",
            file.vocab
        )));
    }
    if file.blocks == 0 {
        return Err(problem(format!(
            "{name} is a sidecar that belongs to a main .fst file and holds no experts; choose the main file."
        )));
    }
    Ok(())
}

fn open_sidecar(side: Side, at: &Path, bytes: &Bytes, main: &File) -> Result<File> {
    let name = shown_path(at);
    if bytes.start(HEADER_BYTES as u64)?.iter().all(|b| *b == 0) {
        return Err(problem(format!(
            "{name} was never finished: it should hold {}. Download it again.",
            side.content()
        )));
    }
    let file = File::parse(bytes, &name)?;
    if file.layers != main.layers {
        return Err(problem(format!(
            "{name} belongs to another model: it is for {} layers and the main file has {}. Download the whole set again.",
            file.layers, main.layers
        )));
    }
    if file.blocks != 0
        || file
            .entries
            .keys()
            .any(|(tid, layer, _)| !side.owns(*tid, *layer))
    {
        return Err(problem(format!(
            "{name} does not hold {}: it was renamed, or is another file. Download it again.",
            side.content()
        )));
    }
    let whole: &[u32] = match side {
        Side::Hc => &[29, 30, 31],
        _ => &[1],
    };
    let layers: &[u32] = match side {
        Side::Hc => &[23, 24, 25, 26, 27, 28],
        _ => &[3, 4, 14, 15, 22],
    };
    let lacks = whole.iter().any(|t| file.get(*t, GLOBAL, 0).is_none())
        || (0..file.layers).any(|l| layers.iter().any(|t| file.get(*t, l as u16, 0).is_none()));
    if lacks {
        return Err(missing(&name, &format!("some of {}", side.content())));
    }
    Ok(file)
}

fn tokenizer(path: &Path, vocab: usize, config: &Value) -> Result<Option<Vec<u8>>> {
    /// The published one has 8 MB.
    const MOST: u64 = 256 << 20;
    let Some(at) = beside(path, |p| p.with_file_name("tokenizer.json")) else {
        return Ok(None);
    };
    let io = |e| Error::io("read", &at, e);
    let about = fs::metadata(&at).map_err(io)?;
    if !about.is_file() || about.len() > MOST {
        return Err(problem(format!(
            "{} is no file of at most {MOST} bytes. Put the model's tokenizer.json there.",
            shown_path(&at)
        )));
    }
    let text = fs::read(&at).map_err(io)?;
    crate::convert::check_tokenizer(&text, &at, vocab, config)?;
    Ok(Some(text))
}
