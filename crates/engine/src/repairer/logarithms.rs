//! The matrix of a repair from the points of its code, by logarithms.

use crate::field::Field;
use crate::matrix::cauchy::CauchyForm;

/// A list of columns without an allocation.
#[derive(Clone, Copy)]
pub(super) struct Columns<const N: usize> {
    count: usize,
    columns: [u8; N],
}

impl<const N: usize> Default for Columns<N> {
    fn default() -> Columns<N> {
        Columns { count: 0, columns: [0; N] }
    }
}

impl<const N: usize> Columns<N> {
    /// Without a branch: nobody can foresee what is lost.
    fn push_if(&mut self, condition: bool, column: usize) {
        self.columns[self.count] = column as u8;
        self.count += usize::from(condition);
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    fn iter(&self) -> impl Iterator<Item = u8> {
        self.columns[..self.count].iter().copied()
    }
}

/// What a repair reads: k sources; those that are redundancy stand for the unknown data, one each.
#[derive(Default)]
pub(super) struct Sources<const N: usize> {
    pub(super) sources: Columns<N>,
    redundancy: Columns<N>,
    unknown: Columns<N>,
}

impl<const N: usize> Sources<N> {
    /// The next column; it becomes a source if it is there and is needed.
    pub(super) fn add_column(&mut self, column: usize, k: usize, is_there: bool) {
        let is_data = column < k;
        let is_source = is_there & (is_data | (self.sources.len() < k));
        self.sources.push_if(is_source, column);
        self.redundancy.push_if(is_source & !is_data, column);
        self.unknown.push_if(is_data & !is_there, column);
    }
}

/// The points of a code as logarithms. Columns are bytes, and there is an entry for every byte: no index has to be checked.
#[derive(Debug)]
pub(super) struct Logarithms {
    k: usize,
    at: [u8; 256],
    /// Of the factor of a column.
    scale: [u32; 256],
    /// log[0] is 0, so that a product of distances leaves out the point itself.
    log: [u32; 256],
    exp: [u8; 3 * PERIOD as usize],
}

/// Non-zero elements of GF(2^8).
const PERIOD: u32 = 255;

impl Logarithms {
    pub(super) fn new(points: &CauchyForm) -> Logarithms {
        let (mut log, mut exp) = ([0; 256], [0; 3 * PERIOD as usize]);
        for (i, power) in exp.iter_mut().enumerate() {
            let value = Field::GF8.exp(i as u64 % u64::from(PERIOD));
            *power = value as u8;
            log[value as usize] = i as u32 % PERIOD;
        }
        let (mut at, mut scale) = ([0; 256], [0; 256]);
        for (column, point) in points.columns.iter().chain(&points.rows).enumerate() {
            at[column] = point.at as u8;
            scale[column] = log[point.scale as usize];
        }
        Logarithms { k: points.columns.len(), at, scale, log, exp }
    }

    /// Logarithm of the distance of two columns, 0 from a column to itself.
    fn distance(&self, from: u8, to: u8) -> u32 {
        self.log[(self.at[from as usize] ^ self.at[to as usize]) as usize]
    }

    /// The logarithm of the factor of a column, as [`CauchyForm::exchange`] has them: `over` and `under` are the points
    /// whose distances multiply and divide it; one that changed sides divides by its old factor.
    fn factor<const N: usize>(
        &self,
        column: u8,
        over: &Columns<N>,
        under: &Columns<N>,
        changed_sides: bool,
    ) -> u32 {
        let scale = self.scale[column as usize];
        let scale = if changed_sides { PERIOD - scale } else { scale };
        let above: u32 = over.iter().map(|other| self.distance(column, other)).sum();
        let below: u32 = under.iter().map(|other| PERIOD - self.distance(column, other)).sum();
        (scale + above + below) % PERIOD
    }

    /// The matrix of a repair, wanted block by wanted block, a coefficient for each of the k sources.
    pub(super) fn write_matrix<const N: usize>(
        &self,
        choice: &Sources<N>,
        wanted: &[usize],
        matrix: &mut [u8],
    ) {
        let (unknown, redundancy) = (&choice.unknown, &choice.redundancy);
        let mut factors = [0; N];
        for (factor, column) in factors.iter_mut().zip(choice.sources.iter()) {
            *factor = self.factor(column, unknown, redundancy, column as usize >= self.k);
        }
        for (&row, coefficients) in wanted.iter().zip(matrix.chunks_exact_mut(self.k)) {
            let from = row as u8;
            let row_factor = self.factor(from, redundancy, unknown, row < self.k) + PERIOD;
            let sources = choice.sources.iter().zip(&factors);
            for (coefficient, (column, factor)) in coefficients.iter_mut().zip(sources) {
                *coefficient = self.exp[(row_factor + factor - self.distance(from, column)) as usize];
            }
        }
    }
}
