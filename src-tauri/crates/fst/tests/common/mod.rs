//! Checkpoints for tests, and readers of safetensors and containers that share no code with the crate.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};

use fastar_testkit::packets;
use serde_json::{Value, json};

/// A tensor as a safetensors file holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub dtype: String,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

pub type Tensors = BTreeMap<String, Stored>;

/// A folder with real or made-up weights of this project.
pub fn given(name: &str) -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    match name {
        "demo" => crates.join("app/demo"),
        _ => crates.join("engine/tests/fixtures").join(name),
    }
}

/// Reads a safetensors file by the format's definition.
pub fn read_safetensors(path: &Path) -> Tensors {
    let bytes = fs::read(path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let json: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    json.as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| *name != "__metadata__")
        .map(|(name, about)| {
            let at = |i: usize| 8 + header + about["data_offsets"][i].as_u64().unwrap() as usize;
            let stored = Stored {
                dtype: about["dtype"].as_str().unwrap().into(),
                shape: about["shape"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|n| n.as_u64().unwrap() as usize)
                    .collect(),
                data: bytes[at(0)..at(1)].to_vec(),
            };
            (name.clone(), stored)
        })
        .collect()
}

/// Writes a safetensors file by the format's definition.
pub fn write_safetensors(path: &Path, tensors: &Tensors) {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, tensor) in tensors {
        let start = data.len();
        data.extend_from_slice(&tensor.data);
        header.insert(
            name.clone(),
            json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, data.len()]}),
        );
    }
    let header = serde_json::to_vec(&Value::Object(header)).unwrap();
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header);
    out.extend(data);
    fs::write(path, out).unwrap();
}

/// A checkpoint that can be changed before it is written.
pub struct Folder {
    pub path: PathBuf,
    pub config: Value,
    pub tensors: Tensors,
    _keep: tempfile::TempDir,
}

impl Folder {
    pub fn like(name: &str) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let path = keep.path().join("checkpoint");
        fs::create_dir(&path).unwrap();
        let from = given(name);
        let config = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
        Self {
            path,
            config,
            tensors: read_safetensors(&from.join("model.safetensors")),
            _keep: keep,
        }
    }

    /// The smallest model that has every kind of layer: made by hand, no bytes shared with the fixtures.
    pub fn smallest() -> Self {
        let mut folder = Self::like("c_fp8_fp4");
        folder.tensors.retain(|name, _| !name.starts_with("mtp."));
        folder
    }

    /// The same, on the disk.
    pub fn written() -> Self {
        let folder = Self::smallest();
        folder.write();
        folder
    }

    pub fn write_config(&self) {
        fs::write(
            self.path.join("config.json"),
            serde_json::to_vec_pretty(&self.config).unwrap(),
        )
        .unwrap();
    }

    pub fn write(&self) {
        self.write_config();
        write_safetensors(&self.path.join("model.safetensors"), &self.tensors);
    }

    /// Writes three shards with an index; returns their names.
    pub fn write_sharded(&self) -> Vec<String> {
        self.write_config();
        let names: Vec<String> = (1..=3)
            .map(|n| format!("model-{n:05}-of-00003.safetensors"))
            .collect();
        let mut shards = vec![Tensors::new(); 3];
        let mut map = serde_json::Map::new();
        for (index, (name, tensor)) in self.tensors.iter().enumerate() {
            shards[index % 3].insert(name.clone(), tensor.clone());
            map.insert(name.clone(), json!(names[index % 3]));
        }
        for (name, shard) in names.iter().zip(&shards) {
            write_safetensors(&self.path.join(name), shard);
        }
        self.write_index(map);
        names
    }

    pub fn write_index(&self, map: serde_json::Map<String, Value>) {
        fs::write(
            self.path.join("model.safetensors.index.json"),
            serde_json::to_vec(&json!({"metadata": {"total_size": 0}, "weight_map": map})).unwrap(),
        )
        .unwrap();
    }

    pub fn out(&self) -> PathBuf {
        self.path.parent().unwrap().join("out.fst")
    }

    pub fn convert(&self) -> fastar_fst::Result<Vec<String>> {
        fastar_fst::convert(&self.path, &self.out(), &mut |_, _| {})
    }

    /// Converts, expects an error, and checks that nothing was left.
    pub fn refused(&self) -> String {
        let error = self
            .convert()
            .expect_err("a bad checkpoint was converted")
            .to_string();
        assert!(!error.contains('\n'), "more than one line: {error}");
        self.assert_nothing_left();
        error
    }

    pub fn assert_nothing_left(&self) {
        let names: Vec<_> = fs::read_dir(self.path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["checkpoint"], "a conversion left something behind");
    }
}

/// The record of packets of an expert, from its tensors.
pub fn packed_record(tensors: &Tensors, layer: usize, expert: usize) -> Vec<u8> {
    ["w1", "w3", "w2"]
        .iter()
        .flat_map(|part| {
            let name = format!("layers.{layer}.ffn.experts.{expert}.{part}");
            let weight = &tensors[&format!("{name}.weight")];
            let scale = &tensors[&format!("{name}.scale")];
            assert_eq!((&*weight.dtype, &*scale.dtype), ("I8", "F8_E8M0"));
            packets(
                weight.shape[0],
                weight.shape[1] * 2,
                &weight.data,
                &scale.data,
            )
        })
        .collect()
}

/// Bytes of a small container.
pub fn small_container() -> Vec<u8> {
    let folder = Folder::written();
    folder.convert().unwrap();
    fs::read(folder.out()).unwrap()
}

/// Where the header's fields are; see the documentation of the crate.
pub mod at {
    pub const VERSION: usize = 4;
    pub const FILE: usize = 8;
    pub const CONFIG: usize = 16;
    pub const METADATA: usize = 24;
    pub const DIRECTORY: usize = 32;
    pub const TENSORS: usize = 40;
    pub const TOKENIZER: usize = 48;
    pub const LAYERS: usize = 64;
    pub const EXPERTS: usize = 72;
    pub const RECORD: usize = 80;
    pub const STRIDE: usize = 88;
    pub const RECORDS: usize = 96;
    pub const INDEX: usize = 104;
    pub const CHECKSUM: usize = 120;
}

pub fn get(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Start of the directory, and end of the index.
pub fn places(bytes: &[u8]) -> (usize, usize) {
    let up = |n: u64| n.next_multiple_of(8);
    let config = get(bytes, at::INDEX);
    let directory = up(up(config + get(bytes, at::CONFIG)) + get(bytes, at::METADATA));
    let table = up(directory + get(bytes, at::DIRECTORY));
    let end = table + 8 * get(bytes, at::LAYERS) * get(bytes, at::EXPERTS);
    (directory as usize, end as usize)
}

/// Makes the index checksum right again, as an attacker would, for an index that ends at `end`.
pub fn seal(bytes: &mut [u8], end: usize) {
    let mut hasher = twox_hash::xxhash3_64::Hasher::new();
    hasher.write(&bytes[..at::CHECKSUM]);
    // A hostile field may point anywhere; only the small container's own index is ever sealed.
    let index = usize::try_from(get(bytes, at::INDEX)).unwrap_or(usize::MAX);
    hasher.write(bytes.get(index..end).unwrap_or(&[]));
    let checksum = hasher.finish();
    put(bytes, at::CHECKSUM, checksum);
}

/// Writes bytes to a file of its own and opens them.
pub fn open(bytes: &[u8]) -> fastar_fst::Result<fastar_fst::Container> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    fastar_fst::Container::open(file.path())
}
