//! Matrices that factor through a Cauchy matrix on cosets of a subspace: additive FFTs (Lin, Chung and Han).
//!
//! V is the subspace of the points 0..n, n a power of two; [`cosets`](crate::matrix::cosets) has the butterflies. The
//! values on V of the polynomial of degree below n with given values on the coset x + V are a scaled Cauchy matrix
//! times these values: W_n(x) / c_n / (p + x), c_n the product of the non-zero points of V. So
//!
//! - with all *rows* in V, every coset of columns is brought to coefficients, these are summed over the cosets, and
//!   the sum is evaluated on V;
//! - with all *columns* in V, they are brought to coefficients, and these are evaluated on each coset of rows.
//!
//! Columns and rows with other scales than the formula are multiplied before and after. Columns (rows) that lie in V
//! itself have no such form and are multiplied one by one.

use super::symbols::Symbols;
use super::{dense, store};
use crate::compiler::program::{Program, Value};
use crate::matrix::Matrix;
use crate::matrix::cauchy::CauchyForm;
use crate::matrix::cosets::{Cosets, Member, by_coset, smallest_coset};
use crate::plan::Plan;

/// The programs of a plan with a known structure, one per method that its points allow.
pub(in crate::compiler) fn lower(plan: &Plan) -> Vec<(&'static str, Program)> {
    let Some(structure) = plan.structure() else { return Vec::new() };
    let transforms = Transforms { cosets: Cosets::of(plan.field()), symbols: Symbols::of(plan.field()) };
    let factored = |way: Way, program: &mut Program| {
        let mut sums = way(program, &transforms, &structure.cauchy)?;
        for (sum, added) in sums.iter_mut().zip(&structure.added) {
            sum.extend(added.map(|input| transforms.symbols.load(program, input)));
        }
        Some(match &structure.solve {
            Some(solve) => solved(program, solve, sums),
            None => sums,
        })
    };
    let exchanged =
        |way: Way, program: &mut Program| way(program, &transforms, structure.exchanged.as_ref()?);
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

/// Appends the computation of the rows of a Cauchy matrix, if the points allow it.
type Way = fn(&mut Program, &Transforms, &CauchyForm) -> Option<Sums>;

/// The terms of each row.
type Sums = Vec<Vec<Value>>;

fn solved(program: &mut Program, solve: &Matrix, sums: Sums) -> Sums {
    let rows: Vec<Option<Value>> = sums.into_iter().map(|terms| program.sum(terms)).collect();
    dense::products(program, solve, |_, row| rows[row])
}

/// Transforms of symbols of one field.
struct Transforms {
    cosets: Cosets,
    symbols: Symbols,
}

impl Transforms {
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
        let s = self.cosets.twiddle(h, at);
        for (a, b) in low.iter_mut().zip(high) {
            // a + s (a + b) is a single product if b is zero.
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
        let s = self.cosets.twiddle(h, at);
        for (a, b) in low.iter_mut().zip(&mut *high) {
            let product = self.times(program, s, *b);
            *a = program.sum((*a).into_iter().chain(product));
            *b = program.sum((*a).into_iter().chain(*b));
        }
        self.to_values(program, at, low);
        self.to_values(program, at + h, high);
    }
}

fn rows_in_subspace(program: &mut Program, transforms: &Transforms, form: &CauchyForm) -> Option<Sums> {
    let cosets = &transforms.cosets;
    let (n, base) = smallest_coset(&form.rows)?;
    let mut coefficients: Vec<Vec<Value>> = vec![Vec::new(); n as usize];
    let mut sums: Sums = vec![Vec::new(); form.rows.len()];
    // A factor common to all rows is moved to the columns, where it often cancels.
    let shared = form.rows[0].scale;
    for (at, members) in by_coset(&form.columns, n, base) {
        if at == 0 {
            let columns: Vec<usize> = members.iter().map(|member| member.index).collect();
            let rows: Vec<usize> = (0..form.rows.len()).collect();
            one_by_one(program, transforms, form, &rows, &columns, &mut sums);
            continue;
        }
        let natural = cosets.scale(n, at);
        let mut values = vec![None; n as usize];
        for &Member { index: column, place } in &members {
            let scale = cosets.field().mul(form.columns[column].scale, shared);
            let input = Some(transforms.symbols.load(program, column));
            values[place] = transforms.times(program, cosets.quotient(scale, natural), input);
        }
        transforms.to_coefficients(program, at, &mut values);
        coefficients.iter_mut().zip(values).for_each(|(terms, value)| terms.extend(value));
    }
    let mut values: Vec<Option<Value>> = coefficients.into_iter().map(|terms| program.sum(terms)).collect();
    transforms.to_values(program, 0, &mut values);
    for (point, terms) in form.rows.iter().zip(&mut sums) {
        let factor = cosets.quotient(point.scale, shared);
        terms.extend(transforms.times(program, factor, values[(point.at ^ base) as usize]));
    }
    Some(sums)
}

fn columns_in_subspace(program: &mut Program, transforms: &Transforms, form: &CauchyForm) -> Option<Sums> {
    let cosets = &transforms.cosets;
    let (n, base) = smallest_coset(&form.columns)?;
    let mut coefficients = vec![None; n as usize];
    let mut sums: Sums = vec![Vec::new(); form.rows.len()];
    let shared = form.columns[0].scale;
    for (column, point) in form.columns.iter().enumerate() {
        let input = Some(transforms.symbols.load(program, column));
        let factor = cosets.quotient(point.scale, shared);
        coefficients[(point.at ^ base) as usize] = transforms.times(program, factor, input);
    }
    transforms.to_coefficients(program, 0, &mut coefficients);
    for (at, members) in by_coset(&form.rows, n, base) {
        if at == 0 {
            let rows: Vec<usize> = members.iter().map(|member| member.index).collect();
            let columns: Vec<usize> = (0..form.columns.len()).collect();
            one_by_one(program, transforms, form, &rows, &columns, &mut sums);
            continue;
        }
        let natural = cosets.scale(n, at);
        let mut values = coefficients.clone();
        transforms.to_values(program, at, &mut values);
        for &Member { index: row, place } in &members {
            let scale = cosets.field().mul(form.rows[row].scale, shared);
            sums[row].extend(transforms.times(program, cosets.quotient(scale, natural), values[place]));
        }
    }
    Some(sums)
}

/// Points in the shared coset: one product per row and column.
fn one_by_one(
    program: &mut Program,
    transforms: &Transforms,
    form: &CauchyForm,
    rows: &[usize],
    columns: &[usize],
    sums: &mut Sums,
) {
    for &column in columns {
        let input = transforms.symbols.load(program, column);
        for &row in rows {
            let entry = transforms.cosets.entry(form.rows[row], form.columns[column]);
            sums[row].extend(transforms.symbols.product(program, entry, input));
        }
    }
}
