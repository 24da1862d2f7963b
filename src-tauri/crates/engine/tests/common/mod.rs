//! What the tests of this crate share: fixtures, their containers, and comparing logits.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, missing_docs)]

use std::path::{Path, PathBuf};

use fastar_engine::{Engine, Options};
use safetensors::{Dtype, SafeTensors};

pub const FIXTURES: [&str; 3] = ["a_mixed_bf16", "b_flash_ratios_bf16", "c_fp8_fp4"];

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// A checkpoint folder as a container in a temporary folder.
pub struct Converted {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
}

pub fn convert(checkpoint: &Path) -> Converted {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.fst");
    fastar_fst::convert(checkpoint, &path, &mut |_, _| {}).unwrap();
    Converted {
        _folder: folder,
        path,
    }
}

pub fn open(converted: &Converted, options: &Options) -> Engine {
    Engine::open(&converted.path, options).unwrap()
}

/// expected.safetensors of a fixture: values of the numpy reference in float64.
pub struct Expected(Vec<u8>);

impl Expected {
    pub fn of(name: &str) -> Self {
        Self(std::fs::read(fixture(name).join("expected.safetensors")).unwrap())
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        let all = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = all.tensor(name).unwrap();
        assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
        let (values, _) = tensor.data().as_chunks::<4>();
        values.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    pub fn ids(&self, name: &str) -> Vec<u32> {
        let all = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = all.tensor(name).unwrap();
        assert_eq!(tensor.dtype(), Dtype::I64, "{name}");
        let (values, _) = tensor.data().as_chunks::<8>();
        values
            .iter()
            .map(|b| u32::try_from(i64::from_le_bytes(*b)).unwrap())
            .collect()
    }
}

pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |m, (x, y)| {
        let d = (x - y).abs();
        if d.is_nan() { f32::INFINITY } else { d.max(m) }
    })
}
