//! What a container holds, for a person or as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::convert::size;
use crate::error::Result;
use crate::layout::Dtype;
use crate::read::Container;

/// What is in a container.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// Version of the format.
    pub version: u32,
    /// Program that made it.
    pub creator: String,
    /// Name of the architecture in config.json.
    pub architecture: Option<String>,
    /// Transformer layers.
    pub layers: usize,
    /// Routed experts in each layer.
    pub experts: usize,
    /// Experts used for each token.
    pub experts_per_token: Option<u64>,
    /// Width of the residual stream.
    pub hidden: Option<u64>,
    /// Size of the vocabulary.
    pub vocab: Option<u64>,
    /// Positions one conversation may have.
    pub context: Option<u64>,
    /// What the file cannot do, a sentence.
    pub limit: Option<String>,
    /// Parameters in all, without scales and tables.
    pub parameters: u64,
    /// Bytes and parameters by storage type.
    pub types: Vec<TypeSummary>,
    /// Whether it has a tokenizer and can chat.
    pub tokenizer: bool,
    /// Whether it has a drafter (`mtp.*`).
    pub drafter: bool,
    /// Layout id of the expert records.
    pub expert_layout: String,
    /// Used bytes of one expert record.
    pub record_bytes: usize,
    /// Dense tensors.
    pub tensors: usize,
    /// Bytes of all dense tensors.
    pub dense_bytes: u64,
    /// Bytes of all expert records with the gaps between them.
    pub expert_bytes: u64,
    /// Size of the file.
    pub file_bytes: u64,
    /// Name of the folder it was made from.
    pub source: Option<String>,
    /// `owner/name` it was made from.
    pub repository: Option<String>,
    /// Revision of that.
    pub revision: Option<String>,
    /// Identity, 16 hexadecimal digits.
    pub identity: String,
}

/// One storage type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypeSummary {
    /// Type.
    pub dtype: Dtype,
    /// Bytes stored in it.
    pub bytes: u64,
    /// Parameters stored in it; 0 for scales and tables.
    pub parameters: u64,
}

/// Opens and describes the container at `path`. Reads no weights.
pub fn inspect(path: &Path) -> Result<Inspection> {
    Ok(Container::open(path)?.inspect())
}

/// Repository and commit the container at `path` was made from, if it names both. What else of it is damaged does not matter.
pub fn made_from(path: &Path) -> Result<Option<(String, String)>> {
    let container = Container::open_with_any_tokenizer(path)?;
    let source = container.metadata().source.clone();
    Ok(source.repository.zip(source.revision))
}

impl Container {
    /// What is in this container.
    pub fn inspect(&self) -> Inspection {
        let config = self.config();
        let number = |field: &str| config[field].as_u64();
        let (layers, experts) = self.expert_counts();
        let metadata = self.metadata();
        let mut types: BTreeMap<Dtype, (u64, u64)> = BTreeMap::new();
        let mut add = |dtype, bytes: u64, parameters: u64| {
            let sum = types.entry(dtype).or_default();
            sum.0 += bytes;
            sum.1 += parameters;
        };
        for (name, tensor) in self.tensors() {
            let bytes = tensor.bytes;
            let parameters = match tensor.dtype {
                Dtype::I32 | Dtype::I64 | Dtype::F8E8m0 => 0,
                Dtype::F32 if name.ends_with(".scale") => 0,
                _ => tensor.elements(),
            };
            add(tensor.dtype, bytes, parameters);
        }
        let records = (layers * experts) as u64;
        for (_, matrix) in metadata.layout.parts() {
            add(
                matrix.dtype,
                records * matrix.data.len() as u64,
                records * (matrix.rows * matrix.columns) as u64,
            );
            if let Some((dtype, range)) = &matrix.scale {
                add(*dtype, records * range.len() as u64, 0);
            }
        }
        let types: Vec<_> = types
            .into_iter()
            .map(|(dtype, (bytes, parameters))| TypeSummary {
                dtype,
                bytes,
                parameters,
            })
            .collect();
        Inspection {
            version: self.version(),
            creator: metadata.creator.clone(),
            architecture: config["architectures"][0]
                .as_str()
                .or(config["model_type"].as_str())
                .map(str::to_owned),
            layers,
            experts,
            experts_per_token: number("num_experts_per_tok"),
            hidden: number("hidden_size"),
            vocab: number("vocab_size"),
            context: number("max_position_embeddings")
                .map(|all| self.exact_positions().map_or(all, |n| all.min(n as u64))),
            limit: self.limit(),
            parameters: types.iter().map(|t| t.parameters).sum(),
            types,
            tokenizer: self.tokenizer_bytes().is_some(),
            drafter: self.tensors().any(|(name, _)| name.starts_with("mtp.")),
            expert_layout: metadata.layout.id.clone(),
            record_bytes: metadata.layout.bytes,
            tensors: self.tensors().count(),
            dense_bytes: self.tensors().map(|(_, t)| t.bytes).sum(),
            expert_bytes: records * (metadata.layout.bytes as u64).next_multiple_of(4096),
            file_bytes: self.file_bytes(),
            source: metadata.source.folder.clone(),
            repository: metadata.source.repository.clone(),
            revision: metadata.source.revision.clone(),
            identity: format!("{:016x}", self.identity()),
        }
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_unknown = |value: Option<u64>| value.map_or("unknown".to_owned(), grouped);
        // Free text out of an untrusted file: control characters made visible.
        let safe = |text: &str| text.escape_debug().to_string();
        let mut line = |name: &str, value: String| writeln!(f, "{name:<15}{value}");
        line(
            "Container",
            format!("version {}, {}", self.version, size(self.file_bytes)),
        )?;
        line(
            "Architecture",
            safe(self.architecture.as_deref().unwrap_or("unknown")),
        )?;
        line(
            "Parameters",
            format!(
                "{} ({})",
                rounded(self.parameters),
                grouped(self.parameters)
            ),
        )?;
        line("Layers", self.layers.to_string())?;
        line(
            "Experts",
            match self.experts_per_token {
                Some(used) => format!("{} in each layer, {used} used per token", self.experts),
                None => format!("{} in each layer", self.experts),
            },
        )?;
        line("Hidden size", or_unknown(self.hidden))?;
        line("Vocabulary", or_unknown(self.vocab))?;
        line("Context", format!("{} tokens", or_unknown(self.context)))?;
        line(
            "Tokenizer",
            if self.tokenizer {
                "yes".into()
            } else {
                "no, token ids only".into()
            },
        )?;
        line("Drafter", if self.drafter { "yes" } else { "no" }.into())?;
        for (index, summary) in self.types.iter().enumerate() {
            let mut text = format!("{:<8} {:>10}", summary.dtype.name(), size(summary.bytes));
            if summary.parameters > 0 {
                text.push_str(&format!("   {} parameters", rounded(summary.parameters)));
            }
            line(if index == 0 { "Stored as" } else { "" }, text)?;
        }
        line(
            "Dense tensors",
            format!(
                "{}, {}",
                grouped(self.tensors as u64),
                size(self.dense_bytes)
            ),
        )?;
        line(
            "Expert records",
            format!(
                "{}, {} ({} bytes each, layout {})",
                grouped((self.layers * self.experts) as u64),
                size(self.expert_bytes),
                grouped(self.record_bytes as u64),
                safe(&self.expert_layout)
            ),
        )?;
        let source = match (&self.repository, &self.revision) {
            (Some(repository), Some(revision)) => Some(format!("{repository} at {revision}")),
            (Some(repository), None) => Some(repository.clone()),
            _ => self.source.clone(),
        };
        line("Made from", safe(source.as_deref().unwrap_or("unknown")))?;
        line("Made by", safe(&self.creator))?;
        if let Some(limit) = &self.limit {
            line("Limit", limit.clone())?;
        }
        line("Identity", self.identity.clone())
    }
}

/// 10376192 as `10,376,192`.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// 10376192 as `10.4 million`.
fn rounded(value: u64) -> String {
    match value {
        0..1_000_000 => grouped(value),
        1_000_000..1_000_000_000 => format!("{:.1} million", value as f64 / 1e6),
        _ => format!("{:.1} billion", value as f64 / 1e9),
    }
}
