//! Repair matrices and their factors.
//!
//! Let S be the data columns that are sources, E the other data columns, and R the redundancy columns that are sources;
//! |E| = |R| = e. The equations of R, with known data moved to the right, are
//!
//! ```text
//! A[R,E] · d_E = s_R     with     s_i = A[i,S] · d_S + r_i     so     d_E = A[R,E]^-1 · s_R
//! ```
//!
//! Only e x e is inverted, never k x k. A wanted redundancy block is its row of A applied to d_S and to the d_E just
//! found, A[i,S] · d_S + A[i,E] · A[R,E]^-1 · s_R. All factors are multiplied out, so that one pass computes all
//! outputs; the factors are kept beside the product as [`Structure`].

use super::Structure;
use crate::code::Code;
use crate::error::Error;
use crate::matrix::Matrix;
use crate::matrix::cauchy::CauchyForm;
use crate::matrix::coefficients::{Coefficients, MAX_HELD};

pub(super) struct Repair<'a> {
    code: &'a Code,
    /// S, the first of the sources.
    known: &'a [usize],
    /// E.
    unknown: Vec<usize>,
    /// R as rows of A, then the rows of the wanted redundancy.
    rows: Vec<usize>,
    /// For every wanted block its index in E or, past E, its index in `rows`.
    places: Vec<usize>,
}

impl<'a> Repair<'a> {
    /// `sources` are sorted and disjoint from `wanted`.
    pub(super) fn new(code: &'a Code, wanted: &[usize], sources: &'a [usize]) -> Repair<'a> {
        let k = code.k();
        let (known, redundancy) = sources.split_at(sources.partition_point(|&column| column < k));
        let mut next = known.iter().peekable();
        let unknown: Vec<usize> = (0..k).filter(|column| next.next_if_eq(&column).is_none()).collect();
        let mut rows = Vec::with_capacity(redundancy.len() + wanted.len());
        rows.extend(redundancy.iter().map(|column| column - k));
        let place = |&column: &usize| match column.checked_sub(k) {
            None => unknown.binary_search(&column).expect("what is wanted is no source"),
            Some(row) => {
                rows.push(row);
                rows.len() - 1
            }
        };
        let places = wanted.iter().map(place).collect();
        Repair { code, known, unknown, rows, places }
    }

    /// One row per wanted block, one column per source.
    pub(super) fn coefficients(&self) -> Result<Coefficients, Error> {
        let (field, layout) = (self.code.field(), self.code.layout());
        match self.code.points() {
            Some(points) => Coefficients::of_points(field, layout, self.exchanged(points)?),
            None => self.matrix_by_elimination().map(Coefficients::Held),
        }
    }

    /// The Cauchy matrix after R and E change sides.
    fn exchanged(&self, points: &CauchyForm) -> Result<CauchyForm, Error> {
        let rows = self.rows.iter().map(|&row| points.rows[row]).collect();
        let data = self.known.iter().chain(&self.unknown);
        let columns = data.map(|&column| points.columns[column]).collect();
        let exchanged = CauchyForm { rows, columns }.exchange(self.code.field(), self.unknown.len())?;
        let rows = self.places.iter().map(|&place| exchanged.rows[place]).collect();
        Ok(CauchyForm { rows, columns: exchanged.columns })
    }

    fn matrix_by_elimination(&self) -> Result<Matrix, Error> {
        let (field, a, e) = (self.code.field(), self.code.redundancy()?, self.unknown.len());
        let inverse = a.select(&self.rows[..e], &self.unknown)?.inverse()?;
        let known = a.select(&self.rows[..e], self.known)?;
        let mut matrix = Matrix::zero(field, self.places.len(), self.code.k())?;
        for (i, &place) in self.places.iter().enumerate() {
            let (from_known, from_rows) = matrix.row_mut(i).split_at_mut(self.known.len());
            if place < e {
                from_rows.copy_from_slice(inverse.row(place));
            } else {
                let row = a.row(self.rows[place]);
                from_known.iter_mut().zip(self.known).for_each(|(to, &column)| *to = row[column]);
                for (place, &column) in self.unknown.iter().enumerate() {
                    field.add_multiple(from_rows, inverse.row(place), row[column]);
                }
            }
            for (i, &factor) in from_rows.iter().enumerate() {
                field.add_multiple(from_known, known.row(i), factor);
            }
        }
        Ok(matrix)
    }

    /// The factors of `product`, the coefficients of this repair.
    pub(super) fn structure(&self, product: &Coefficients) -> Result<Option<Structure>, Error> {
        let Some(points) = self.code.points() else { return Ok(None) };
        // With much more redundancy than data the factors would be larger than the product.
        if self.places.len().saturating_mul(self.rows.len()) > MAX_HELD {
            return Ok(None);
        }
        let (known, e) = (self.known.len(), self.unknown.len());
        // r_R enters the product only through s_R, so the columns of R in the product are those of the second factor.
        let solve = Matrix::from_fn(self.code.field(), self.places.len(), self.rows.len(), |i, j| {
            if j < e { product.at(i, known + j) } else { u64::from(self.places[i] == j) }
        })?;
        let added = (0..self.rows.len()).map(|i| (i < e).then_some(known + i)).collect();
        let cauchy = points.select(&self.rows, self.known);
        let solve = (!solve.is_identity()).then_some(solve);
        let exchanged = match product.points() {
            _ if solve.is_none() => None,
            Some(points) => Some(points.clone()),
            None => Some(self.exchanged(points)?),
        };
        Ok(Some(Structure { cauchy, added, solve, exchanged }))
    }
}
