//! Finding and checking the tensors of a model in its container.
//!
//! A [`Weight`] remembers where a matrix lies in the bytes of all dense weights, which are those of a container in memory or those that were read
//! from its file ([`Dense`]); [`Weight::view`] makes it a [`Matrix`] again without a copy. The few that are not among them (a file of version 2
//! keeps some in sidecars) are copied.
//! Small vectors are expanded to `f32` once. Shapes and types are checked here and nowhere later.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use fastar_fst::{Container, Dtype, ExpertMatrix, Tensor, tensor_bytes};
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
    /// Here: they were read by themselves.
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
}

/// A matrix that stays in the file and of which one row is read at a time.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    count: usize,
    columns: usize,
    dtype: Dtype,
    /// Where the first one is in the file, and the bytes of each.
    first: u64,
    bytes: usize,
}

impl Rows {
    /// Finds a tensor [rows, columns] whose rows stand alone, without scales that belong to several of them. Reads nothing.
    pub fn find(container: &Container, name: &str, rows: usize, columns: usize) -> Result<Self> {
        let tensor = tensor(container, name)?;
        if tensor.shape != [rows, columns] {
            return Err(wrong_shape(name, tensor.shape, &[rows, columns]));
        }
        let place = container.dense_place(name);
        let bytes = tensor_bytes(tensor.dtype, &[columns]);
        match (place, bytes, tensor.dtype) {
            (Some(place), Some(bytes), Dtype::F32 | Dtype::Bf16 | Dtype::Q8_0) => Ok(Self {
                count: rows,
                columns,
                dtype: tensor.dtype,
                first: place.offset,
                bytes,
            }),
            _ => Err(no_matrix(name, tensor.dtype, false, rows, columns)),
        }
    }

    /// Where a row is in the file, and its length; none if there are not so many.
    pub fn place(&self, row: usize) -> Option<(u64, usize)> {
        let at = self.first + row as u64 * self.bytes as u64;
        (row < self.count).then_some((at, self.bytes))
    }

    /// The matrix of one row, from the bytes that are at its [place](Rows::place).
    pub fn view<'a>(&self, bytes: &'a [u8]) -> Option<Matrix<'a>> {
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
}

/// A tensor that was found.
struct Found<'a> {
    dtype: Dtype,
    shape: &'a [usize],
    /// Its bytes, which have been checked.
    data: Cow<'a, [u8]>,
    /// Where those are among all dense weights.
    shared: Option<Range<usize>>,
}

impl Found<'_> {
    fn place(self) -> Place {
        match self.shared {
            Some(range) => Place::Shared(range),
            None => Place::Copied(self.data.into()),
        }
    }
}

impl<'a> Loader<'a> {
    /// Reads from `container`.
    pub fn new(container: &'a Container) -> Self {
        Self {
            container,
            dense: None,
        }
    }

    /// The same where tensors have been read into memory and checked already.
    pub fn resident(container: &'a Container, dense: Option<&'a Dense>) -> Self {
        Self { container, dense }
    }

    /// Whether the indexer's weights are there.
    pub fn has_indexer(&self) -> bool {
        self.container.has_indexer()
    }

    /// Finds a tensor and checks its bytes: loading reads every dense weight once, and a damaged one is named here, not met later.
    fn find(&self, name: &str) -> Result<Found<'a>> {
        let tensor = tensor(self.container, name)?;
        let found = |data, shared| Found {
            dtype: tensor.dtype,
            shape: tensor.shape,
            data,
            shared,
        };
        let place = self.container.dense_place(name);
        if let Some((place, dense)) = place.zip(self.dense)
            && let Some(range) = dense.place(place.offset, place.bytes as usize)
        {
            let data = Cow::Borrowed(&dense.bytes()[range.clone()]);
            return Ok(found(data, Some(range)));
        }
        let data = self.container.read(name)?;
        let shared = match (self.dense, self.container.in_memory(), place) {
            (None, Some(_), Some(place)) => {
                let start = place.offset as usize;
                Some(start..start + data.len())
            }
            _ => None,
        };
        Ok(found(data, shared))
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
                Some(self.find(&format!("{}scale", name.trim_end_matches("weight")))?)
            }
            _ => None,
        };
        let scales = scale.as_ref().map(|scale| (scale.dtype, &*scale.data));
        if matrix(tensor.dtype, rows, columns, &tensor.data, scales).is_none() {
            return Err(no_matrix(
                name,
                tensor.dtype,
                scale.is_some(),
                rows,
                columns,
            ));
        }
        Ok(Weight {
            rows,
            columns,
            dtype: tensor.dtype,
            data: tensor.place(),
            scale: scale.map(|scale| (scale.dtype, scale.place())),
        })
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

fn tensor<'a>(container: &'a Container, name: &str) -> Result<Tensor<'a>> {
    container.tensor(name).ok_or_else(|| {
        Error::Tensor(format!(
            "The model file has no tensor {name}. Convert the checkpoint again."
        ))
    })
}

fn no_matrix(name: &str, dtype: Dtype, scales: bool, rows: usize, columns: usize) -> Error {
    Error::Tensor(format!(
        "Tensor {name} of the model file is stored as {dtype:?}{}, which does not make a [{rows}, {columns}] matrix.",
        if scales { " with scales" } else { "" }
    ))
}

fn wrong_shape(name: &str, found: &[usize], expected: &[usize]) -> Error {
    Error::Tensor(format!(
        "Tensor {name} of the model file has shape {found:?}; its config needs {expected:?}."
    ))
}
