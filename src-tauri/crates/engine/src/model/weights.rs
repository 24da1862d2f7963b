//! Finding and checking the tensors of a model in its container.
//!
//! A [`Weight`] remembers where a matrix lies in the bytes of all dense weights, which are the container's or those that were read into memory
//! ([`Dense`]); [`Weight::view`] makes it a [`Matrix`] again without a copy. The few that a file of version 2 keeps in sidecars are copied.
//! Small vectors are expanded to `f32` once. Shapes and types are checked here and nowhere later.

use std::ops::Range;
use std::sync::Arc;

use fastar_fst::{Container, Dtype, ExpertMatrix, Tensor};
use fastar_kernels::format::bf16;
use fastar_kernels::matrix::{Elements, Matrix, Scales};

use crate::pager::Dense;
use crate::{Error, Result};

/// A matrix among the dense weights.
#[derive(Clone, Debug)]
pub struct Weight {
    rows: usize,
    columns: usize,
    dtype: Dtype,
    data: Place,
    scale: Option<(Dtype, Place)>,
}

/// Where the bytes of a tensor are.
#[derive(Clone, Debug)]
enum Place {
    /// In the bytes of all dense weights.
    Shared(Range<usize>),
    /// Here: they came from a sidecar file.
    Copied(Arc<[u8]>),
}

impl Place {
    fn of<'a>(&'a self, bytes: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Shared(range) => &bytes[range.clone()],
            Self::Copied(copy) => copy,
        }
    }
}

impl Weight {
    /// The matrix, borrowed from the bytes of the dense weights.
    pub fn view<'a>(&'a self, bytes: &'a [u8]) -> Matrix<'a> {
        let scale = self
            .scale
            .as_ref()
            .map(|(dtype, place)| (*dtype, place.of(bytes)));
        match matrix(
            self.dtype,
            self.rows,
            self.columns,
            self.data.of(bytes),
            scale,
        ) {
            Some(m) => m,
            None => unreachable!("the shape was checked when the model was loaded"),
        }
    }

    /// Where a row lies in the bytes of all dense weights; none where rows share scales or are elsewhere.
    pub fn row_place(&self, row: usize) -> Option<Range<usize>> {
        match (&self.data, &self.scale) {
            (Place::Shared(all), None) => {
                let bytes = all.len() / self.rows.max(1);
                let start = all.start + row * bytes;
                (row < self.rows).then_some(start..start + bytes)
            }
            _ => None,
        }
    }

    /// The matrix of one row, from the bytes at [`Weight::row_place`].
    pub fn row_view<'a>(&self, bytes: &'a [u8]) -> Option<Matrix<'a>> {
        matrix(self.dtype, 1, self.columns, bytes, None)
    }
}

/// One matrix of an expert's record; none if the layout does not describe a matrix this engine knows.
pub fn expert_matrix<'a>(part: &ExpertMatrix, record: &'a [u8]) -> Option<Matrix<'a>> {
    let scale = match &part.scale {
        Some((dtype, range)) => Some((*dtype, record.get(range.clone())?)),
        None => None,
    };
    matrix(
        part.dtype,
        part.rows,
        part.columns,
        record.get(part.data.clone())?,
        scale,
    )
}

fn matrix<'a>(
    dtype: Dtype,
    rows: usize,
    columns: usize,
    data: &'a [u8],
    scale: Option<(Dtype, &'a [u8])>,
) -> Option<Matrix<'a>> {
    let elements = match (dtype, scale) {
        (Dtype::F32, None) => Elements::F32(data),
        (Dtype::Bf16, None) => Elements::Bf16(data),
        (Dtype::F8E4m3, Some((Dtype::F8E8m0, s))) => Elements::Fp8(data, Scales::E8m0(s)),
        (Dtype::F8E4m3, Some((Dtype::F32, s))) => Elements::Fp8(data, Scales::F32(s)),
        (Dtype::Fp4Packed, Some((Dtype::F8E8m0, s))) => Elements::Fp4(data, s),
        (Dtype::Fp4Packets, None) => Elements::Fp4Packets(data),
        (Dtype::Q8_0, None) => Elements::Q8(data),
        // Only in records: a dense tensor of packed FP4 is never loaded without its scales.
        (Dtype::Fp4Packed, None) => Elements::Fp4Blocks(data),
        _ => return None,
    };
    Matrix::new(rows, columns, elements)
}

/// Reads tensors by name, naming what is wrong.
pub struct Loader<'a> {
    container: &'a Container,
    dense: Option<&'a Dense>,
    /// What is asked for has been checked already.
    checked: bool,
}

impl<'a> Loader<'a> {
    /// Reads from `container`.
    pub fn new(container: &'a Container) -> Self {
        Self {
            container,
            dense: None,
            checked: false,
        }
    }

    /// For what stays in the container's file and has been checked while others were read into memory.
    pub fn checked(container: &'a Container) -> Self {
        Self {
            container,
            dense: None,
            checked: true,
        }
    }

    /// The same where tensors have been read into memory and checked already.
    pub fn resident(container: &'a Container, dense: Option<&'a Dense>) -> Self {
        Self {
            container,
            dense,
            checked: false,
        }
    }

    /// Where tensors lie that are not elsewhere.
    fn bytes(&self) -> &'a [u8] {
        self.dense.map_or(self.container.bytes(), Dense::bytes)
    }

    /// Whether the indexer's weights are there.
    pub fn has_indexer(&self) -> bool {
        self.container.has_indexer()
    }

    /// Finds a tensor and checks its bytes: loading reads every dense weight once, and a damaged one is named here, not met later.
    fn find(&self, name: &str) -> Result<Tensor<'a>> {
        let mut tensor = self.container.tensor(name).ok_or_else(|| {
            Error::Tensor(format!(
                "The model file has no tensor {name}. Convert the checkpoint again."
            ))
        })?;
        match self.resident_bytes(tensor.data) {
            Some(data) => tensor.data = data,
            None if self.checked && tensor.dtype != Dtype::F8E4m3 => {}
            None => self.container.verify_tensor(name)?,
        }
        Ok(tensor)
    }

    /// The same bytes in memory of our own, if they have been read there.
    fn resident_bytes(&self, data: &[u8]) -> Option<&'a [u8]> {
        let dense = self.dense?;
        let place = range_in(self.container.bytes(), data)?;
        let range = dense.place(place.start as u64, place.len())?;
        Some(&dense.bytes()[range])
    }

    fn place(&self, tensor: &Tensor<'_>) -> Place {
        match range_in(self.bytes(), tensor.data) {
            Some(range) => Place::Shared(range),
            None => Place::Copied(tensor.data.into()),
        }
    }

    /// A matrix [rows, columns] in any stored precision, with its scales.
    pub fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Weight> {
        let tensor = self.find(name)?;
        let stored = match tensor.dtype {
            Dtype::Fp4Packed => [rows, columns / 2],
            _ => [rows, columns],
        };
        if tensor.shape != stored {
            return Err(wrong_shape(name, tensor.shape, &stored));
        }
        let scale = match tensor.dtype {
            Dtype::F8E4m3 | Dtype::Fp4Packed => {
                let scale_name = format!("{}scale", name.trim_end_matches("weight"));
                let scale = self.find(&scale_name)?;
                Some((scale.dtype, self.place(&scale)))
            }
            _ => None,
        };
        let weight = Weight {
            rows,
            columns,
            dtype: tensor.dtype,
            data: self.place(&tensor),
            scale,
        };
        let scales = weight
            .scale
            .as_ref()
            .map(|(dtype, place)| (*dtype, place.of(self.bytes())));
        if matrix(weight.dtype, rows, columns, tensor.data, scales).is_none() {
            return Err(Error::Tensor(format!(
                "Tensor {name} of the model file is stored as {:?}{}, which does not make a [{rows}, {columns}] matrix.",
                tensor.dtype,
                if scales.is_some() { " with scales" } else { "" }
            )));
        }
        Ok(weight)
    }

    /// A BF16 or F32 tensor of `shape`, expanded.
    pub fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let tensor = self.find(name)?;
        if tensor.shape != shape {
            return Err(wrong_shape(name, tensor.shape, shape));
        }
        match tensor.dtype {
            Dtype::Bf16 => Ok(tensor
                .data
                .as_chunks::<2>()
                .0
                .iter()
                .map(|b| bf16(u16::from_le_bytes(*b)))
                .collect()),
            Dtype::F32 => Ok(tensor
                .data
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect()),
            other => Err(Error::Tensor(format!(
                "Tensor {name} of the model file is stored as {other:?}; it must be BF16 or F32."
            ))),
        }
    }

    /// An I64 or I32 table [rows, columns] whose entries lie below `limit`.
    pub fn ids(&self, name: &str, rows: usize, columns: usize, limit: usize) -> Result<Vec<u32>> {
        let tensor = self.find(name)?;
        if tensor.shape != [rows, columns] {
            return Err(wrong_shape(name, tensor.shape, &[rows, columns]));
        }
        let id = |id: i64| match u32::try_from(id) {
            Ok(small) if (small as usize) < limit => Ok(small),
            _ => Err(Error::Tensor(format!(
                "Tensor {name} of the model file names expert {id}; there are {limit}."
            ))),
        };
        match tensor.dtype {
            Dtype::I64 => {
                let (values, _) = tensor.data.as_chunks::<8>();
                values.iter().map(|b| id(i64::from_le_bytes(*b))).collect()
            }
            Dtype::I32 => {
                let (values, _) = tensor.data.as_chunks::<4>();
                values
                    .iter()
                    .map(|b| id(i32::from_le_bytes(*b).into()))
                    .collect()
            }
            other => Err(Error::Tensor(format!(
                "Tensor {name} of the model file is stored as {other:?}; it must be I64 or I32."
            ))),
        }
    }
}

/// Where a slice of `bytes` lies in them; none if it is elsewhere.
fn range_in(bytes: &[u8], slice: &[u8]) -> Option<Range<usize>> {
    let (all, part) = (bytes.as_ptr_range(), slice.as_ptr_range());
    (all.start <= part.start && part.end <= all.end).then(|| {
        let start = part.start as usize - all.start as usize;
        start..start + slice.len()
    })
}

fn wrong_shape(name: &str, found: &[usize], expected: &[usize]) -> Error {
    Error::Tensor(format!(
        "Tensor {name} of the model file has shape {found:?}; its config needs {expected:?}."
    ))
}
