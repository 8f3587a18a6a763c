//! Matrices that factor through a Cauchy matrix on cosets of a subspace: additive FFTs (Lin, Chung and Han).
//!
//! V is the subspace of the points 0..n, n a power of two. A block of 2h points that starts at x is transformed by
//!
//! ```text
//! values → coefficients:  b += a,  a += s · b          s = W_h(x) / W_h(h)
//! coefficients → values:  a += s · b,  b += a
//! ```
//!
//! at distance h, where W_h is the polynomial that vanishes on 0..h. The values on V of the polynomial of degree
//! below n with given values on the coset x + V are a scaled Cauchy matrix times these values:
//! W_n(x) / c_n / (p + x), c_n the product of the non-zero points of V. So
//!
//! - with all *rows* in V, every coset of columns is brought to coefficients, these are summed over the cosets, and
//!   the sum is evaluated on V;
//! - with all *columns* in V, they are brought to coefficients, and these are evaluated on each coset of rows.
//!
//! Columns and rows whose scales are others than those of the formula are multiplied before and after. Columns (rows)
//! that lie in V with the others have no such form and are multiplied one by one.

use super::symbols::Symbols;
use super::{dense, store};
use crate::compiler::program::{Program, Value};
use crate::field::Field;
use crate::matrix::Matrix;
use crate::matrix::cauchy::{CauchyForm, Point};
use crate::plan::Plan;
use std::collections::BTreeMap;

/// The programs of a plan whose structure is known, one per way that its points allow.
pub(in crate::compiler) fn lower(plan: &Plan) -> Vec<(&'static str, Program)> {
    let Some(structure) = plan.structure() else { return Vec::new() };
    let cosets = Cosets { field: plan.field(), symbols: Symbols::of(plan.field()) };
    let factored = |way: Way, program: &mut Program| {
        let mut sums = way(program, &cosets, &structure.cauchy)?;
        for (sum, added) in sums.iter_mut().zip(&structure.added) {
            sum.extend(added.map(|input| cosets.symbols.load(program, input)));
        }
        Some(match &structure.solve {
            Some(solve) => solved(program, solve, sums),
            None => sums,
        })
    };
    let exchanged = |way: Way, program: &mut Program| way(program, &cosets, structure.exchanged.as_ref()?);
    let mut programs = Vec::new();
    let mut try_way = |name, sums: &dyn Fn(&mut Program) -> Option<Sums>| {
        let mut program = Program::default();
        let Some(sums) = sums(&mut program) else { return };
        for (output, terms) in sums.into_iter().enumerate() {
            let sum = program.sum(terms);
            store(&mut program, plan, output, 0, sum);
        }
        programs.push((name, program));
    };
    try_way("by cosets of columns", &|program| factored(rows_in_subspace, program));
    try_way("by cosets of rows", &|program| factored(columns_in_subspace, program));
    try_way("exchanged, by cosets of columns", &|program| exchanged(rows_in_subspace, program));
    try_way("exchanged, by cosets of rows", &|program| exchanged(columns_in_subspace, program));
    programs
}

/// Appends what makes the rows of a Cauchy matrix, where the points allow it.
type Way = fn(&mut Program, &Cosets, &CauchyForm) -> Option<Sums>;

/// The terms of each row.
type Sums = Vec<Vec<Value>>;

fn solved(program: &mut Program, solve: &Matrix, sums: Sums) -> Sums {
    let rows: Vec<Option<Value>> = sums.into_iter().map(|terms| program.sum(terms)).collect();
    dense::products(program, solve, |_, row| rows[row])
}

/// Subspace polynomials of one field.
struct Cosets {
    field: Field,
    symbols: Symbols,
}

impl Cosets {
    /// W_n(x): zero on 0..n, constant on its cosets, linear over GF(2).
    fn vanishing(&self, n: u64, x: u64) -> u64 {
        let (mut value, mut half) = (x, 1);
        while half < n {
            let shift = self.vanishing(half, half);
            value = self.field.mul(value, value ^ shift);
            half *= 2;
        }
        value
    }

    fn quotient(&self, a: u64, b: u64) -> u64 {
        self.field.div(a, b).expect("divisors are not zero: distinct points, non-zero scales")
    }

    fn entry(&self, row: Point, column: Point) -> u64 {
        self.quotient(self.field.mul(row.scale, column.scale), row.at ^ column.at)
    }

    /// The factor of a butterfly of 2h points from x on.
    fn twiddle(&self, h: u64, x: u64) -> u64 {
        self.quotient(self.vanishing(h, x), self.vanishing(h, h))
    }

    /// W_n(x) / c_n: the scale with which a point outside V needs no further constant.
    fn scale(&self, n: u64, x: u64) -> u64 {
        let nonzero = (1..n).fold(1, |product, v| self.field.mul(product, v));
        self.quotient(self.vanishing(n, x), nonzero)
    }

    fn times(&self, program: &mut Program, constant: u64, value: Option<Value>) -> Option<Value> {
        value.and_then(|value| self.symbols.product(program, constant, value))
    }

    /// Values at the points `at..at + n` to coefficients.
    fn to_coefficients(&self, program: &mut Program, at: u64, values: &mut [Option<Value>]) {
        let n = values.len();
        if n < 2 {
            return;
        }
        let (low, high) = values.split_at_mut(n / 2);
        let h = n as u64 / 2;
        self.to_coefficients(program, at, low);
        self.to_coefficients(program, at + h, high);
        let s = self.twiddle(h, at);
        for (a, b) in low.iter_mut().zip(high) {
            // a + s (a + b), where one of them is zero, is one product.
            let (old_a, old_b) = (*a, *b);
            *b = program.sum(old_a.into_iter().chain(old_b));
            *a = match (old_a, old_b) {
                (Some(_), None) => self.times(program, s ^ 1, old_a),
                _ => {
                    let product = self.times(program, s, *b);
                    program.sum(old_a.into_iter().chain(product))
                }
            };
        }
    }

    /// Coefficients to values at the points `at..at + n`.
    fn to_values(&self, program: &mut Program, at: u64, coefficients: &mut [Option<Value>]) {
        let n = coefficients.len();
        if n < 2 {
            return;
        }
        let (low, high) = coefficients.split_at_mut(n / 2);
        let h = n as u64 / 2;
        let s = self.twiddle(h, at);
        for (a, b) in low.iter_mut().zip(&mut *high) {
            let product = self.times(program, s, *b);
            *a = program.sum((*a).into_iter().chain(product));
            *b = program.sum((*a).into_iter().chain(*b));
        }
        self.to_values(program, at, low);
        self.to_values(program, at + h, high);
    }
}

/// How many times more points a coset may have than it has to: beyond, transforming the others costs too much.
const MAX_SPARSITY: u64 = 4;

/// The smallest power of two n, and the first point of the coset of 0..n that holds all points; `None` where few of
/// its points are among them.
fn smallest_coset(points: &[Point]) -> Option<(u64, u64)> {
    let first = points.first()?.at;
    let spread = points.iter().fold(0, |bits, point| bits | (point.at ^ first));
    let n = (spread + 1).checked_next_power_of_two()?;
    (n <= MAX_SPARSITY * points.len() as u64).then_some((n, first & !(n - 1)))
}

/// Points by the coset of 0..n they lie in: (index, place in the coset), after a shift of all points by `base`.
fn by_coset(points: &[Point], n: u64, base: u64) -> BTreeMap<u64, Vec<(usize, usize)>> {
    let mut cosets: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
    for (index, point) in points.iter().enumerate() {
        let at = point.at ^ base;
        cosets.entry(at & !(n - 1)).or_default().push((index, (at & (n - 1)) as usize));
    }
    cosets
}

fn rows_in_subspace(program: &mut Program, cosets: &Cosets, form: &CauchyForm) -> Option<Sums> {
    let (n, base) = smallest_coset(&form.rows)?;
    let mut coefficients: Vec<Vec<Value>> = vec![Vec::new(); n as usize];
    let mut sums: Sums = vec![Vec::new(); form.rows.len()];
    // A factor that all rows share goes to the columns, where it often cancels.
    let shared = form.rows[0].scale;
    for (at, members) in by_coset(&form.columns, n, base) {
        if at == 0 {
            one_by_one(program, cosets, form, &(0..form.rows.len()).collect::<Vec<_>>(), &members, &mut sums);
            continue;
        }
        let natural = cosets.scale(n, at);
        let mut values = vec![None; n as usize];
        for &(column, place) in &members {
            let scale = cosets.field.mul(form.columns[column].scale, shared);
            let input = Some(cosets.symbols.load(program, column));
            values[place] = cosets.times(program, cosets.quotient(scale, natural), input);
        }
        cosets.to_coefficients(program, at, &mut values);
        coefficients.iter_mut().zip(values).for_each(|(terms, value)| terms.extend(value));
    }
    let mut values: Vec<Option<Value>> = coefficients.into_iter().map(|terms| program.sum(terms)).collect();
    cosets.to_values(program, 0, &mut values);
    for (point, terms) in form.rows.iter().zip(&mut sums) {
        let factor = cosets.quotient(point.scale, shared);
        terms.extend(cosets.times(program, factor, values[(point.at ^ base) as usize]));
    }
    Some(sums)
}

fn columns_in_subspace(program: &mut Program, cosets: &Cosets, form: &CauchyForm) -> Option<Sums> {
    let (n, base) = smallest_coset(&form.columns)?;
    let mut coefficients = vec![None; n as usize];
    let mut sums: Sums = vec![Vec::new(); form.rows.len()];
    let shared = form.columns[0].scale;
    for (column, point) in form.columns.iter().enumerate() {
        let input = Some(cosets.symbols.load(program, column));
        let factor = cosets.quotient(point.scale, shared);
        coefficients[(point.at ^ base) as usize] = cosets.times(program, factor, input);
    }
    cosets.to_coefficients(program, 0, &mut coefficients);
    for (at, members) in by_coset(&form.rows, n, base) {
        if at == 0 {
            let rows: Vec<usize> = members.iter().map(|&(row, _)| row).collect();
            let columns: Vec<(usize, usize)> = (0..form.columns.len()).map(|column| (column, 0)).collect();
            one_by_one(program, cosets, form, &rows, &columns, &mut sums);
            continue;
        }
        let natural = cosets.scale(n, at);
        let mut values = coefficients.clone();
        cosets.to_values(program, at, &mut values);
        for &(row, place) in &members {
            let scale = cosets.field.mul(form.rows[row].scale, shared);
            sums[row].extend(cosets.times(program, cosets.quotient(scale, natural), values[place]));
        }
    }
    Some(sums)
}

/// What has no coset of its own: a product per row and column.
fn one_by_one(
    program: &mut Program,
    cosets: &Cosets,
    form: &CauchyForm,
    rows: &[usize],
    columns: &[(usize, usize)],
    sums: &mut Sums,
) {
    for &(column, _) in columns {
        let input = cosets.symbols.load(program, column);
        for &row in rows {
            let entry = cosets.entry(form.rows[row], form.columns[column]);
            sums[row].extend(cosets.symbols.product(program, entry, input));
        }
    }
}
