//! Plans: a matrix that maps some blocks of a stripe to others.
//!
//! Encoding, repair, update and partial products differ only in their matrix and in their input and output columns. A
//! back end compiles a plan once and runs it over any buffers.

use crate::code::Code;
use crate::error::Error;
use crate::field::Field;
use crate::layout::Layout;
use crate::matrix::Matrix;
use crate::matrix::cauchy::CauchyForm;
use crate::matrix::coefficients::Coefficients;
use repair::Repair;
use std::sync::Arc;
pub use structure::Structure;

mod repair;
mod structure;

/// Treatment of the previous content of output buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It is overwritten.
    Write,
    /// The result is added (XOR) to it.
    Add,
}

/// A linear map from input blocks to output blocks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Plan {
    layout: Layout,
    /// One row per output, one column per input.
    coefficients: Coefficients,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    mode: Mode,
    /// Derived from layout and field; stored because every call needs it.
    granule: usize,
    /// Shared between clones, since kernels keep their plans.
    structure: Option<Arc<Structure>>,
}

impl Plan {
    /// A plan that applies `matrix` to blocks without a code; inputs and outputs are numbered from 0.
    ///
    /// # Errors
    /// A layout that the matrix's field does not support.
    pub fn new(matrix: Matrix, layout: Layout, mode: Mode) -> Result<Plan, Error> {
        let granule = layout.granule(matrix.field())?;
        let (inputs, outputs) = ((0..matrix.columns()).collect(), (0..matrix.rows()).collect());
        let coefficients = Coefficients::Held(matrix);
        Ok(Plan { layout, coefficients, inputs, outputs, mode, granule, structure: None })
    }

    /// As [`new`](Plan::new), for a Cauchy matrix of which the points are known: kernels can be faster.
    ///
    /// # Errors
    /// As [`CauchyForm::matrix`]; [`Error::PointTwice`] also for two rows or columns with the same point; a layout that
    /// the field does not support.
    pub fn of_points(field: Field, form: &CauchyForm, layout: Layout, mode: Mode) -> Result<Plan, Error> {
        for points in [&form.rows, &form.columns] {
            let mut sorted: Vec<u64> = points.iter().map(|point| point.at).collect();
            sorted.sort_unstable();
            if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(Error::PointTwice { at: pair[0] });
            }
        }
        let plan = Plan::new(form.matrix(field)?, layout, mode)?;
        Ok(Plan { structure: Some(Arc::new(Structure::plain(form.clone()))), ..plan })
    }

    /// Region multiply: one block times one constant.
    ///
    /// # Errors
    /// [`Error::NotAnElement`], [`Error::NoWordsLayout`].
    pub fn multiply(field: Field, constant: u64, mode: Mode) -> Result<Plan, Error> {
        Plan::new(Matrix::from_fn(field, 1, 1, |_, _| constant)?, Layout::Words, mode)
    }

    /// The difference of two blocks, which equals their sum: the input of an update plan.
    pub fn difference() -> Plan {
        let sum = Matrix::from_fn(Field::GF8, 1, 2, |_, _| 1);
        let plan = sum.and_then(|sum| Plan::new(sum, Layout::Words, Mode::Write));
        plan.expect("GF(2^8) has a one and a words layout")
    }

    /// The matrix: one row per output, one column per input. Most plans store it; for plans stored by their points it
    /// is computed on the first call.
    ///
    /// # Errors
    /// [`Error::MatrixTooLarge`], for plans stored by their points.
    pub fn matrix(&self) -> Result<&Matrix, Error> {
        self.coefficients.matrix()
    }

    /// One coefficient, without computing the matrix.
    ///
    /// # Panics
    /// The input or output does not exist.
    pub fn coefficient(&self, output: usize, input: usize) -> u64 {
        self.coefficients.at(output, input)
    }

    /// The matrix as one Cauchy matrix, if it is known to be one.
    pub fn points(&self) -> Option<&CauchyForm> {
        let of_structure = || {
            let Structure { cauchy, added, exchanged, .. } = self.structure()?;
            exchanged.as_ref().or_else(|| added.iter().all(Option::is_none).then_some(cauchy))
        };
        self.coefficients.points().or_else(of_structure)
    }

    /// The field of the coefficients.
    pub fn field(&self) -> Field {
        self.coefficients.field()
    }

    /// The layout of symbols in the blocks.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The input columns of the stripe, in the order of the input buffers.
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// The output columns of the stripe, in the order of the output buffers.
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// The treatment of outputs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The factors of the matrix, if known.
    pub fn structure(&self) -> Option<&Structure> {
        self.structure.as_deref()
    }

    /// The unit in bytes that all buffers must be a multiple of.
    pub fn granule(&self) -> usize {
        self.granule
    }

    /// Checks number and lengths of buffers; returns the common length (0 without buffers).
    ///
    /// # Errors
    /// [`Error::BufferCount`], [`Error::BufferLength`], [`Error::BufferGranule`].
    #[inline]
    pub fn check_buffers(&self, inputs: &[&[u8]], outputs: &[&mut [u8]]) -> Result<usize, Error> {
        let want = common_length(inputs, outputs);
        // Two plain loops for the valid case: for small buffers these checks are a large part of the call.
        let fit = inputs.len() == self.inputs.len()
            && outputs.len() == self.outputs.len()
            && inputs.iter().all(|b| b.len() == want)
            && outputs.iter().all(|b| b.len() == want)
            // Blocks of one group of packets are common, and a division costs as much as coding some cache lines.
            && (self.granule <= 1 || want == self.granule || want.is_multiple_of(self.granule));
        if fit { Ok(want) } else { Err(self.misfit(inputs, outputs)) }
    }

    /// The error for buffers that do not fit.
    #[cold]
    fn misfit(&self, inputs: &[&[u8]], outputs: &[&mut [u8]]) -> Error {
        let (want_inputs, want_outputs) = (self.inputs.len(), self.outputs.len());
        if inputs.len() != want_inputs || outputs.len() != want_outputs {
            let (inputs, outputs) = (inputs.len(), outputs.len());
            return Error::BufferCount { want_inputs, want_outputs, inputs, outputs };
        }
        let want = common_length(inputs, outputs);
        let mut lengths = inputs.iter().map(|b| b.len()).chain(outputs.iter().map(|b| b.len())).enumerate();
        match lengths.find(|&(_, len)| len != want) {
            Some((index, len)) => Error::BufferLength { index, len, want },
            None => Error::BufferGranule { len: want, granule: self.granule },
        }
    }
}

/// The length of the first buffer; 0 without buffers.
fn common_length(inputs: &[&[u8]], outputs: &[&mut [u8]]) -> usize {
    inputs.first().map(|b| b.len()).or(outputs.first().map(|b| b.len())).unwrap_or(0)
}

/// The plans of a code.
impl Code {
    /// All redundancy from all data.
    ///
    /// # Errors
    /// [`Error::MatrixTooLarge`].
    pub fn encode_plan(&self) -> Result<Plan, Error> {
        let all: Vec<usize> = (self.k()..self.blocks()).collect();
        self.encode_columns_plan(&all)
    }

    /// Only the given redundancy columns, from all data.
    ///
    /// # Errors
    /// A column that is not a redundancy column, or listed twice.
    pub fn encode_columns_plan(&self, columns: &[usize]) -> Result<Plan, Error> {
        self.check_columns(columns, Some(Kind::Redundancy))?;
        let rows: Vec<usize> = columns.iter().map(|column| column - self.k()).collect();
        let data: Vec<usize> = (0..self.k()).collect();
        self.part_of_encoding(&rows, data, columns.to_vec(), Mode::Write)
    }

    /// The `lost` columns, data and redundancy mixed, in one pass from k of the `surviving` ones.
    /// Data blocks are preferred, then redundancy with the simplest coefficients.
    ///
    /// # Errors
    /// [`Error::NotEnoughBlocks`] with the numbers, or invalid columns.
    pub fn repair_plan(&self, lost: &[usize], surviving: &[usize]) -> Result<Plan, Error> {
        self.repair_plan_by_cost(lost, surviving, |_| 0)
    }

    /// As [`repair_plan`](Code::repair_plan), from the k surviving columns with the lowest `cost`, such as the latency
    /// of a target. Ties are resolved as there.
    ///
    /// # Errors
    /// As there.
    pub fn repair_plan_by_cost(
        &self,
        lost: &[usize],
        surviving: &[usize],
        cost: impl Fn(usize) -> u64,
    ) -> Result<Plan, Error> {
        self.check_columns(lost, None)?;
        let survives = self.check_columns(surviving, None)?;
        if let Some(&column) = lost.iter().find(|&&column| survives[column]) {
            return Err(Error::LostAndSurviving { column });
        }
        let k = self.k();
        if surviving.len() < k {
            return Err(Error::NotEnoughBlocks { need: k, have: surviving.len() });
        }
        let mut ranked = surviving.to_vec();
        if ranked.len() > k {
            ranked.sort_by_cached_key(|&column| (cost(column), self.own_cost(column), column));
            ranked.truncate(k);
        }
        ranked.sort_unstable();
        self.plan_from(lost, ranked)
    }

    /// Cost of a column as a source: none for data; for redundancy the number of coefficients other than 1, each a
    /// multiplication. Without a stored matrix all are assumed to be other than 1.
    fn own_cost(&self, column: usize) -> usize {
        match (column.checked_sub(self.k()), self.held_redundancy()) {
            (None, _) => 0,
            (Some(row), Some(matrix)) => 1 + matrix.row(row).iter().filter(|&&a| a != 1).count(),
            (Some(_), None) => 1 + self.k(),
        }
    }

    /// The plan that computes `wanted` from exactly the k columns `sources`, which are sorted and disjoint from
    /// `wanted`.
    fn plan_from(&self, wanted: &[usize], sources: Vec<usize>) -> Result<Plan, Error> {
        let repair = Repair::new(self, wanted, &sources);
        let coefficients = repair.coefficients()?;
        // A source without a non-zero coefficient need not be read.
        let is_used = |&j: &usize| (0..wanted.len()).any(|i| coefficients.at(i, j) != 0);
        if (0..sources.len()).all(|j| is_used(&j)) {
            let structure = repair.structure(&coefficients)?;
            return Ok(self.plan(coefficients, sources, wanted.to_vec(), Mode::Write, structure));
        }
        // In an MDS code every block depends on each of any k others, so `wanted` is empty here, and there is nothing
        // to factor.
        let used: Vec<usize> = (0..sources.len()).filter(is_used).collect();
        let all: Vec<usize> = (0..wanted.len()).collect();
        let inputs = used.iter().map(|&j| sources[j]).collect();
        let matrix = Coefficients::Held(coefficients.matrix()?.select(&all, &used)?);
        Ok(self.plan(matrix, inputs, wanted.to_vec(), Mode::Write, None))
    }

    /// Updates all redundancy for a change of the given data columns; the inputs are the differences of old and new
    /// blocks ([`Plan::difference`]).
    ///
    /// # Errors
    /// A column that is not a data column, or listed twice.
    pub fn update_plan(&self, changed: &[usize]) -> Result<Plan, Error> {
        self.products_plan(changed, Mode::Add)
    }

    /// The products of one data block with its column of the matrix: its contribution to all redundancy, to be summed
    /// elsewhere (thesis 2.3.2).
    ///
    /// # Errors
    /// A column that is not a data column.
    pub fn partial_plan(&self, column: usize) -> Result<Plan, Error> {
        self.products_plan(&[column], Mode::Write)
    }

    fn products_plan(&self, data: &[usize], mode: Mode) -> Result<Plan, Error> {
        self.check_columns(data, Some(Kind::Data))?;
        let rows: Vec<usize> = (0..self.m()).collect();
        let outputs = (self.k()..self.blocks()).collect();
        self.part_of_encoding(&rows, data.to_vec(), outputs, mode)
    }

    /// The given rows of the redundancy matrix, applied to the given data columns.
    fn part_of_encoding(
        &self,
        rows: &[usize],
        data: Vec<usize>,
        outputs: Vec<usize>,
        mode: Mode,
    ) -> Result<Plan, Error> {
        let points = self.points().map(|points| points.select(rows, &data));
        let coefficients = match (self.held_redundancy(), &points) {
            (None, Some(points)) => Coefficients::of_points(self.field(), self.layout(), points.clone())?,
            _ => Coefficients::Held(self.redundancy()?.select(rows, &data)?),
        };
        // Coefficients stored by points need no further structure.
        let structure = points.filter(|_| coefficients.points().is_none()).map(Structure::plain);
        Ok(self.plan(coefficients, data, outputs, mode, structure))
    }

    fn plan(
        &self,
        coefficients: Coefficients,
        inputs: Vec<usize>,
        outputs: Vec<usize>,
        mode: Mode,
        structure: Option<Structure>,
    ) -> Plan {
        let (layout, granule, structure) = (self.layout(), self.granule(), structure.map(Arc::new));
        Plan { layout, coefficients, inputs, outputs, mode, granule, structure }
    }

    /// Checks that columns exist, are of the `wanted` kind and occur once. Returns for every column of the code whether
    /// it is listed.
    pub(crate) fn check_columns(&self, columns: &[usize], wanted: Option<Kind>) -> Result<Vec<bool>, Error> {
        let mut named = vec![false; self.blocks()];
        for &column in columns {
            let last = self.blocks() - 1;
            let seen = named.get_mut(column).ok_or(Error::NoSuchColumn { column, last })?;
            if std::mem::replace(seen, true) {
                return Err(Error::ColumnTwice { column });
            }
            let is = if column < self.k() { Kind::Data } else { Kind::Redundancy };
            if let Some(wanted) = wanted.filter(|&wanted| wanted != is) {
                let (is, wanted) = (is.name(), wanted.name());
                return Err(Error::WrongKindOfColumn { column, is, wanted });
            }
        }
        Ok(named)
    }
}

/// Kind of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Redundancy,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Data => "data",
            Kind::Redundancy => "redundancy",
        }
    }
}

#[cfg(test)]
mod tests;
