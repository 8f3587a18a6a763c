//! Repair matrices from the points of a code, by logarithms.

use crate::field::Field;
use crate::matrix::cauchy::{CauchyForm, Point};

/// A list of columns, or of their points, on the stack.
#[derive(Clone, Copy)]
pub(super) struct Bytes<const N: usize> {
    count: usize,
    bytes: [u8; N],
}

impl<const N: usize> Default for Bytes<N> {
    fn default() -> Bytes<N> {
        Bytes { count: 0, bytes: [0; N] }
    }
}

impl<const N: usize> Bytes<N> {
    /// Without a branch: losses are unpredictable.
    fn push_if(&mut self, condition: bool, byte: u8) {
        self.bytes[self.count] = byte;
        self.count += usize::from(condition);
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    fn iter(&self) -> impl Iterator<Item = u8> {
        self.bytes[..self.count].iter().copied()
    }
}

/// Sources of a repair: k columns, data first; each redundancy source replaces one unknown data column.
pub(super) struct RepairSources<'a, const N: usize> {
    logarithms: &'a Logarithms,
    columns: Bytes<N>,
    /// Points of the redundancy sources.
    redundancy: Bytes<N>,
    /// Points of the data columns that are not sources.
    unknown: Bytes<N>,
}

impl<'a, const N: usize> RepairSources<'a, N> {
    pub(super) fn new(logarithms: &'a Logarithms) -> RepairSources<'a, N> {
        let [columns, redundancy, unknown] = [Bytes::default(); 3];
        RepairSources { logarithms, columns, redundancy, unknown }
    }

    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    /// Adds the next column; it becomes a source if it is available and needed.
    pub(super) fn add_column(&mut self, column: usize, is_there: bool) {
        let (k, point) = (self.logarithms.k, self.logarithms.at[column]);
        let is_data = column < k;
        let is_source = is_there & (is_data | (self.len() < k));
        self.columns.push_if(is_source, column as u8);
        self.redundancy.push_if(is_source & !is_data, point);
        self.unknown.push_if(is_data & !is_there, point);
    }

    /// Writes the repair matrix: one row per wanted block, one coefficient per source.
    pub(super) fn write_matrix(&self, wanted: &[usize], matrix: &mut [u8]) {
        let RepairSources { logarithms, columns, .. } = self;
        let mut factors = [0; N];
        for (factor, column) in factors.iter_mut().zip(columns.iter()) {
            *factor = self.factor_of_source(column);
        }
        for (&row, coefficients) in wanted.iter().zip(matrix.chunks_exact_mut(logarithms.k)) {
            let point = logarithms.at[row];
            let row_factor = self.factor_of_wanted(row) + PERIOD;
            for (coefficient, (column, factor)) in coefficients.iter_mut().zip(columns.iter().zip(&factors)) {
                let distance = logarithms.distance(point, logarithms.at[column as usize]);
                *coefficient = logarithms.exp[(row_factor + factor - distance) as usize];
            }
        }
    }

    /// Bits in which the points of the wanted blocks differ, or those of the sources, whichever are fewer: a coset of
    /// this many bits contains them all.
    pub(super) fn bits(&self, wanted: &[usize]) -> u32 {
        let at = &self.logarithms.at;
        let bits = |points: &mut dyn Iterator<Item = u8>| {
            let first = points.next().unwrap_or(0);
            u8::BITS - points.fold(0, |bits, point| bits | (point ^ first)).leading_zeros()
        };
        let rows = bits(&mut wanted.iter().map(|&column| at[column]));
        rows.min(bits(&mut self.columns.iter().map(|column| at[column as usize])))
    }

    /// The same matrix given by its points.
    pub(super) fn form(&self, wanted: &[usize]) -> CauchyForm {
        let logarithms = self.logarithms;
        let point = |column: usize, factor: u32| {
            let (at, scale) = (logarithms.at[column], logarithms.exp[factor as usize]);
            Point { at: u64::from(at), scale: u64::from(scale) }
        };
        let source = |column: u8| point(column as usize, self.factor_of_source(column));
        CauchyForm {
            rows: wanted.iter().map(|&column| point(column, self.factor_of_wanted(column))).collect(),
            columns: self.columns.iter().map(source).collect(),
        }
    }

    fn factor_of_source(&self, column: u8) -> u32 {
        let is_redundancy = column as usize >= self.logarithms.k;
        self.logarithms.factor(column, &self.unknown, &self.redundancy, is_redundancy)
    }

    fn factor_of_wanted(&self, column: usize) -> u32 {
        let is_data = column < self.logarithms.k;
        self.logarithms.factor(column as u8, &self.redundancy, &self.unknown, is_data)
    }
}

/// The points of a code with logarithms. Tables have an entry for every byte, so indices need no bounds checks.
#[derive(Debug)]
pub(super) struct Logarithms {
    k: usize,
    at: [u8; 256],
    /// Logarithm of the factor of a column.
    scale: [u32; 256],
    /// log[0] is 0, so that a product of distances skips the point itself.
    log: [u32; 256],
    exp: [u8; 3 * PERIOD as usize],
}

/// Number of non-zero elements of GF(2^8).
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

    /// Logarithm of the distance of two points; 0 for equal points.
    fn distance(&self, from: u8, to: u8) -> u32 {
        self.log[(from ^ to) as usize]
    }

    /// Logarithm of the factor of a column as in [`CauchyForm::exchange`]: distances to `over` multiply it, distances
    /// to `under` divide it; a column that changed sides divides by its old factor.
    fn factor<const N: usize>(
        &self,
        column: u8,
        over: &Bytes<N>,
        under: &Bytes<N>,
        changed_sides: bool,
    ) -> u32 {
        let (point, scale) = (self.at[column as usize], self.scale[column as usize]);
        let scale = if changed_sides { PERIOD - scale } else { scale };
        let above: u32 = over.iter().map(|other| self.distance(point, other)).sum();
        let below: u32 = under.iter().map(|other| PERIOD - self.distance(point, other)).sum();
        (scale + above + below) % PERIOD
    }
}
