//! What can go wrong with a container or a checkpoint. Every error is one sentence that names the file, the place and the remedy.

use std::io;
use std::path::{Path, PathBuf};

use crate::remedy::Remedy;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused to read or write.
    #[error("Could not {action} {}: {source}.", shown_path(.path))]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The disk is full, a quota is used up, the file system does not allow files this large, or there is no memory.
    #[error("{message}")]
    NoSpace {
        /// What is missing and where.
        message: String,
    },
    /// The file is something else.
    #[error(
        "{name} is not a FaStar model: it {found}. Choose a .fst file made by `fastar convert`."
    )]
    NotAContainer {
        /// The file.
        name: String,
        /// What it is instead, as far as its first bytes tell.
        found: String,
    },
    /// A file of the original FaStar in memory.
    #[error(
        "{name} is a container of version 2 (the original FaStar), which needs its other files beside it and cannot be read from memory."
    )]
    OldVersion {
        /// The file.
        name: String,
    },
    /// A model of version 2 whose files are incomplete, damaged or do not belong together.
    #[error("{message}")]
    Original {
        /// What, where and what to do.
        message: String,
    },
    /// A version this program does not know.
    #[error(
        "{name} is a model file of version {found}. This FaStar reads version 3, and `fastar upgrade` makes that of version 2. {hint}"
    )]
    Version {
        /// The file.
        name: String,
        /// Its version.
        found: u32,
        /// What to do.
        hint: &'static str,
    },
    /// Shorter or longer than its header says.
    #[error(
        "{name} is incomplete or was changed: it has {actual} bytes and its header says {expected}. `fastar repair` cannot mend that: copy, download or convert it again."
    )]
    Length {
        /// The file.
        name: String,
        /// Bytes there should be.
        expected: u64,
        /// Bytes there are.
        actual: u64,
    },
    /// Another file than it was when the work on it began.
    #[error(
        "{name} was changed while it was checked: {how}. Nothing is known of it as it is now. Check it again once no other program writes to it."
    )]
    Changed {
        /// The file.
        name: String,
        /// What is different, without a full stop.
        how: String,
    },
    /// A field that cannot be right.
    #[error("{name} is damaged: {what}. Copy or convert it again.")]
    Damaged {
        /// The file.
        name: String,
        /// Which field, and why it cannot be right.
        what: String,
    },
    /// What says where everything is does not match its checksum.
    #[error(
        "{name} is damaged: the checksum of its header and directory does not match, and without them nothing in it can be mended. Copy, download or convert it again."
    )]
    Index {
        /// The file.
        name: String,
    },
    /// Bytes that do not match their checksum.
    #[error(
        "{name} is damaged: the checksum of {what} does not match. {}",
        remedy.told(Path::new(name), 1)
    )]
    Checksum {
        /// The file.
        name: String,
        /// Which part.
        what: String,
        /// What helps.
        remedy: Remedy,
    },
    /// An FP8 weight that is not a number, stored so by whoever made the weights.
    #[error(
        "{name} cannot be used: weight {at} of {what} is not a number, and was not when the file was made. Convert another checkpoint."
    )]
    NotANumber {
        /// The file.
        name: String,
        /// Which tensor.
        what: String,
        /// Which of its weights, from 0.
        at: usize,
    },
    /// An expert the container does not have.
    #[error("{name} has no expert {expert} in layer {layer}: it has {layers} layers of {experts}.")]
    NoSuchExpert {
        /// The file.
        name: String,
        /// Asked for.
        layer: usize,
        /// Asked for.
        expert: usize,
        /// There are.
        layers: usize,
        /// There are, in each layer.
        experts: usize,
    },
    /// A tensor the container does not have.
    #[error("{name} has no tensor {tensor:?}.")]
    NoSuchTensor {
        /// The file.
        name: String,
        /// Asked for.
        tensor: String,
    },
    /// The checkpoint folder lacks files or they contradict each other.
    #[error("{} cannot be used as a checkpoint: {problem}", shown_path(.path))]
    Checkpoint {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong, a sentence.
        problem: String,
    },
    /// config.json lacks a field or has an impossible value.
    #[error("{} cannot be used: {problem}", shown_path(.path))]
    Config {
        /// config.json.
        path: PathBuf,
        /// What is wrong, a sentence.
        problem: String,
    },
    /// Another kind of model.
    #[error(
        "{} describes {found}, and FaStar runs only DeepSeek V4 (model_type deepseek_v4, architecture DeepseekV4ForCausalLM).",
        shown_path(.path)
    )]
    Architecture {
        /// config.json.
        path: PathBuf,
        /// What it describes.
        found: String,
    },
    /// Tensors that do not fit config.json.
    #[error("The tensors in {} do not fit its config.json: {problems}.", shown_path(.path))]
    Tensors {
        /// The folder.
        path: PathBuf,
        /// Names, what was found and what was expected; up to three of each kind and a count.
        problems: String,
    },
    /// tokenizer.json is not one, or belongs to another model.
    #[error("{} does not belong to this model: {problem}", shown_path(.path))]
    ForeignTokenizer {
        /// tokenizer.json.
        path: PathBuf,
        /// Why, a sentence.
        problem: String,
    },
    /// The output path cannot be used.
    #[error("Cannot write {}: {problem}", shown_path(.path))]
    Output {
        /// The path asked for.
        path: PathBuf,
        /// Why, a sentence.
        problem: String,
    },
    /// The disk gave back other bytes than were written.
    #[error(
        "The disk does not give back what was written to {}: {tensors}. Run the conversion again to write those parts once more; if it happens again, check the disk.",
        shown_path(.path)
    )]
    ReadBack {
        /// The file.
        path: PathBuf,
        /// Names, up to three and a count.
        tensors: String,
    },
    /// The source of a repair has other weights than the container was made of.
    #[error(
        "{name} cannot be repaired from there: the {what} is another in {place}. Use the checkpoint that the file was made from."
    )]
    OtherWeights {
        /// The container.
        name: String,
        /// The part.
        what: String,
        /// Shards and tensors that were read.
        place: String,
    },
    /// Bytes of a checkpoint that is elsewhere did not come.
    #[error("Tensor {tensor} could not be fetched from {shard} of {}: {problem}.", shown_path(.place))]
    NotFetched {
        /// The tensor, quoted.
        tensor: String,
        /// The file it is in, quoted.
        shard: String,
        /// The checkpoint.
        place: PathBuf,
        /// Why, without a full stop.
        problem: String,
    },
    /// More than one thing is wrong with a checkpoint.
    #[error("{}", numbered(.errors))]
    Several {
        /// The checkpoint.
        path: PathBuf,
        /// At least two.
        errors: Vec<Error>,
    },
    /// Stopped by the person; what was done is kept.
    #[error("Stopped; what was done is kept. Run it again to go on.")]
    Cancelled,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// One error for all that is wrong with a checkpoint.
    pub(crate) fn several(mut errors: Vec<Self>, path: &Path) -> Self {
        match (errors.pop(), errors.is_empty()) {
            (Some(only), true) => only,
            (last, _) => {
                errors.extend(last);
                Self::Several {
                    path: path.to_owned(),
                    errors,
                }
            }
        }
    }

    /// An I/O failure, with a full disk recognised.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let why = match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => fastar_files::unwritten(&source),
            io::ErrorKind::OutOfMemory => "the system gives this program no more memory or address space. Raise its limit (`ulimit -v`) or close other programs.".to_owned(),
            _ => {
                return Self::Io {
                    action,
                    path: path.to_owned(),
                    source,
                };
            }
        };
        Self::NoSpace {
            message: format!("Could not {action} {}: {why}", shown_path(path)),
        }
    }
}

/// A path for people, with control characters made visible.
pub(crate) fn shown_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.chars().any(char::is_control) {
        format!("{text:?}")
    } else {
        text.into_owned()
    }
}

/// A path as a shell takes it.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// A name out of an untrusted file: quoted, control characters visible, of bounded length.
pub(crate) fn shown(name: &str) -> String {
    const MOST: usize = 120;
    match name.char_indices().nth(MOST) {
        None => format!("{name:?}"),
        Some((cut, _)) => format!("{:?}...", &name[..cut]),
    }
}

/// What is wrong with a JSON text, and where if that is known, in words for people: what follows "it".
pub fn json_problem(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let place = |between: &str| match (error.line(), error.column()) {
        (0, _) => String::new(),
        (line, column) => format!("{between} at line {line}, column {column}"),
    };
    let text = error.to_string();
    let missing = text
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next());
    match (error.classify(), missing) {
        (Category::Eof, _) => format!("is not valid JSON: it ends too early{}", place(",")),
        (Category::Data, Some(field)) => format!("lacks the field {}{}", shown(field), place(",")),
        (Category::Data, None) => format!("has a value of the wrong kind{}", place("")),
        (Category::Syntax | Category::Io, _) => format!("is not valid JSON{}", place("")),
    }
}

/// Several sentences as one line.
fn numbered(errors: &[Error]) -> String {
    let sentences: Vec<_> = errors
        .iter()
        .enumerate()
        .map(|(index, error)| format!("{}) {error}", index + 1))
        .collect();
    format!(
        "There are {} problems: {}",
        errors.len(),
        sentences.join(" ")
    )
}
