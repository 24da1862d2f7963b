//! Several products at once: vectors put into the forms that matrices are multiplied with, and one hand-over of work to the team for all of them.
//!
//! Handing work over costs a few microseconds and ends with a wait for the last thread, so what reads the same vectors, or can run side by side, is
//! given together. Each matrix is cut into parts of [`ROWS_PER_TASK`] rows; a part is one task, and each output has one order of operations, so
//! neither threads nor what else is given changes a bit.

use std::cell::RefCell;
use std::ops::Range;

use crate::activations::Activations;
use crate::dense::{self, Data, Rows};
use crate::dispatch::{Level, level};
use crate::matrix::{Elements, Matrix, expanded_product};
use crate::{mxfp4, q8_0, team};

/// Multiplications below which everything stays on the calling thread: handing work over costs about as much as this many.
const PARALLEL_FROM: usize = 1 << 16;
/// Rows a thread takes at a time. A multiple of every kernel's group of rows.
pub(crate) const ROWS_PER_TASK: usize = 64;

/// How a matrix is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Vectors stay `f32`.
    Exact,
    /// Where there is a faster product with vectors of eight bits, that one.
    Fast,
}

/// A form of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As they are, for rows expanded one at a time.
    Plain,
    /// In the order of F32 lines.
    F32,
    /// In that of BF16 lines.
    Bf16,
    /// In that of FP8 lines.
    Fp8,
    /// Eight bits.
    Eight,
}

/// Vectors [n, columns] in the forms that were asked for. Reused: filling anew keeps the memory.
#[derive(Debug, Default)]
pub struct Vectors {
    tokens: usize,
    columns: usize,
    plain: Kept<f32>,
    f32: Kept<dense::Block>,
    bf16: Kept<dense::Block>,
    fp8: Kept<dense::Block>,
    eight: Activations,
}

/// A form, if it was asked for, and its memory in any case.
#[derive(Debug)]
struct Kept<T> {
    filled: bool,
    data: Vec<T>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            filled: false,
            data: Vec::new(),
        }
    }
}

impl<T> Kept<T> {
    fn get(&self) -> &[T] {
        if self.filled { &self.data } else { &[] }
    }

    /// Has `fill` put the form there, unless it is there.
    fn fill(&mut self, fill: impl FnOnce(&mut Vec<T>)) {
        if !std::mem::replace(&mut self.filled, true) {
            fill(&mut self.data);
        }
    }
}

impl Matrix<'_> {
    /// The form this matrix wants vectors in.
    pub fn form(&self, arithmetic: Arithmetic) -> Form {
        match (self.elements(), arithmetic) {
            (Elements::F32(_), _) => Form::F32,
            (Elements::Bf16(_), _) => Form::Bf16,
            (Elements::Fp8(..), _) => Form::Fp8,
            (Elements::Fp4Packets(_) | Elements::Q8(_), Arithmetic::Fast) => Form::Eight,
            _ => Form::Plain,
        }
    }
}

impl Vectors {
    /// How many there are.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Puts x [n, columns] into the given forms, in place of what was here.
    ///
    /// # Panics
    /// If `x` is not whole vectors, or eight bits are wanted and `columns` are not whole blocks.
    pub fn prepare(&mut self, x: &[f32], columns: usize, forms: impl IntoIterator<Item = Form>) {
        self.prepare_at(level(), x, columns, forms);
    }

    pub(crate) fn prepare_at(
        &mut self,
        level: Level,
        x: &[f32],
        columns: usize,
        forms: impl IntoIterator<Item = Form>,
    ) {
        assert!(columns > 0 && x.len().is_multiple_of(columns));
        (self.tokens, self.columns) = (x.len() / columns, columns);
        self.clear();
        for form in forms {
            let arrange = |bytes| move |to: &mut _| dense::arrange(level, bytes, columns, x, to);
            match form {
                Form::Plain => self.plain.fill(|to| {
                    to.clear();
                    to.extend_from_slice(x);
                }),
                Form::F32 => self.f32.fill(arrange(dense::F32)),
                Form::Bf16 => self.bf16.fill(arrange(dense::BF16)),
                Form::Fp8 => self.fp8.fill(arrange(dense::FP8)),
                Form::Eight => {
                    if self.eight.tokens() == 0 {
                        assert!(self.eight.quantize_at(level, x, columns) || x.is_empty());
                    }
                }
            }
        }
    }

    /// No form.
    fn clear(&mut self) {
        self.plain.filled = false;
        for form in [&mut self.f32, &mut self.bf16, &mut self.fp8] {
            form.filled = false;
        }
        self.eight.clear();
    }

    /// Whether this holds a form.
    fn has(&self, form: Form) -> bool {
        match form {
            Form::Plain => self.plain.filled,
            Form::F32 => self.f32.filled,
            Form::Bf16 => self.bf16.filled,
            Form::Fp8 => self.fp8.filled,
            Form::Eight => {
                self.eight.columns() == self.columns && self.eight.tokens() == self.tokens
            }
        }
    }

    /// Takes the given tokens of `from`, in that order, in eight bits, in place of what was here.
    ///
    /// # Panics
    /// If a token is not there in eight bits.
    pub fn select(&mut self, from: &Vectors, tokens: &[usize]) {
        self.clear();
        assert!(self.eight.select(&from.eight, tokens));
        (self.tokens, self.columns) = (tokens.len(), from.columns);
    }
}

/// `out = W x` for some rows of a matrix: x [n, columns], out [n, rows.len()].
pub struct Product<'a> {
    matrix: Matrix<'a>,
    rows: Range<usize>,
    x: &'a Vectors,
    out: &'a mut [f32],
    form: Form,
}

impl<'a> Product<'a> {
    /// All rows.
    ///
    /// # Panics
    /// If a size is wrong, or `x` has not got the form that the matrix wants.
    pub fn new(
        matrix: Matrix<'a>,
        arithmetic: Arithmetic,
        x: &'a Vectors,
        out: &'a mut [f32],
    ) -> Self {
        Self::of_rows(matrix, 0..matrix.rows(), arithmetic, x, out)
    }

    /// Some rows. For eight-bit forms they begin at a multiple of [`mxfp4::GROUP`].
    ///
    /// # Panics
    /// As [`Product::new`].
    pub fn of_rows(
        matrix: Matrix<'a>,
        rows: Range<usize>,
        arithmetic: Arithmetic,
        x: &'a Vectors,
        out: &'a mut [f32],
    ) -> Self {
        let form = matrix.form(arithmetic);
        assert!(rows.start <= rows.end && rows.end <= matrix.rows());
        assert!(matrix.columns() == x.columns && x.has(form));
        assert!(form != Form::Eight || rows.start.is_multiple_of(mxfp4::GROUP));
        assert_eq!(out.len(), x.tokens * rows.len());
        Self {
            matrix,
            rows,
            x,
            out,
            form,
        }
    }

    fn tasks(&self) -> usize {
        // The outputs themselves must not be looked at: tasks are writing them.
        if self.x.tokens == 0 || self.matrix.columns() == 0 {
            return 0;
        }
        self.rows.len().div_ceil(ROWS_PER_TASK)
    }

    /// Rows of a task, counted from the first of the product.
    fn part(&self, task: usize) -> Range<usize> {
        task * ROWS_PER_TASK..self.rows.len().min((task + 1) * ROWS_PER_TASK)
    }

    /// Computes some rows: part is [n, part rows].
    fn compute(&self, level: Level, part: Range<usize>, out: &mut [f32]) {
        let rows = self.rows.start + part.start..self.rows.start + part.end;
        let (m, columns) = (self.matrix, self.matrix.columns());
        let dense = |data, x: &Kept<dense::Block>, out: &mut [f32]| {
            dense::product(level, Rows { columns, data }, rows.clone(), x.get(), out);
        };
        match (self.form, m.elements()) {
            (_, Elements::F32(data)) => dense(Data::F32(data), &self.x.f32, out),
            (_, Elements::Bf16(data)) => dense(Data::Bf16(data), &self.x.bf16, out),
            (_, Elements::Fp8(data, scales)) => {
                dense(Data::Fp8(data, scales), &self.x.fp8, out);
            }
            (Form::Eight, Elements::Fp4Packets(data)) => {
                mxfp4::part(level, columns, data, rows, &self.x.eight, out);
            }
            (Form::Eight, Elements::Q8(data)) => {
                q8_0::part(level, columns, data, rows, &self.x.eight, out);
            }
            _ => {
                expanded_product(level, m, rows, self.x.plain.get(), out);
            }
        }
    }
}

/// Where the outputs of a product lie, for tasks that write disjoint parts of them.
struct Out(*mut f32);

// SAFETY: tasks write disjoint parts, see `multiply_at`.
unsafe impl Sync for Out {}

impl Out {
    /// # Safety
    /// The range lies in the product's output, and no other task touches it.
    #[allow(clippy::mut_from_ref)]
    unsafe fn slice(&self, start: usize, length: usize) -> &mut [f32] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), length) }
    }
}

thread_local! {
    /// Outputs of a task for many tokens, before each token takes its own. Kept, so that prefill allocates nothing.
    static PART: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Computes the products, all of them side by side.
pub fn multiply(products: &mut [Product<'_>]) {
    multiply_at(level(), products);
}

/// [`multiply`] with the instruction set of `level`, for measuring; the result is the same.
pub fn multiply_at(level: Level, products: &mut [Product<'_>]) {
    let work: usize = products
        .iter()
        .map(|p| p.rows.len() * p.matrix.columns() * p.x.tokens)
        .sum();
    let tasks = products.iter().map(Product::tasks).sum();
    for p in products.iter_mut() {
        if p.matrix.columns() == 0 {
            p.out.fill(0.0);
        }
    }
    // A short list of products, each with where its outputs lie.
    let outs: Vec<Out> = products
        .iter_mut()
        .map(|p| Out(p.out.as_mut_ptr()))
        .collect();
    let products = &*products;
    let one = |mut task: usize| {
        let found = products.iter().zip(&outs).find(|(p, _)| {
            let mine = task < p.tasks();
            if !mine {
                task -= p.tasks();
            }
            mine
        });
        let Some((p, out)) = found else { return };
        let (part, width, n) = (p.part(task), p.rows.len(), p.x.tokens);
        if n == 1 {
            // SAFETY: parts of a product are disjoint ranges of its rows, each computed by one task, and outputs of products are distinct
            // slices borrowed for as long as this function runs.
            let out = unsafe { out.slice(part.start, part.len()) };
            return p.compute(level, part, out);
        }
        PART.with_borrow_mut(|buffer| {
            if buffer.len() < n * part.len() {
                buffer.resize(n * part.len(), 0.0);
            }
            let buffer = &mut buffer[..n * part.len()];
            p.compute(level, part.clone(), buffer);
            for (t, from) in buffer.chunks_exact(part.len()).enumerate() {
                // SAFETY: as above; every token has its own row.
                let to = unsafe { out.slice(t * width + part.start, part.len()) };
                to.copy_from_slice(from);
            }
        });
    };
    if work < PARALLEL_FROM {
        (0..tasks).for_each(one);
    } else {
        team::for_each(tasks, one);
    }
}

/// One product with everything it needs made on the spot: x [n, columns], the result [n, rows].
pub(crate) fn times(level: Level, m: Matrix<'_>, arithmetic: Arithmetic, x: &[f32]) -> Vec<f32> {
    let mut vectors = Vectors::default();
    vectors.prepare_at(level, x, m.columns(), [m.form(arithmetic)]);
    let mut out = vec![0.0; vectors.tokens() * m.rows()];
    multiply_at(
        level,
        &mut [Product::new(m, arithmetic, &vectors, &mut out)],
    );
    out
}
