//! Lowering of any matrix: one map per coefficient, one sum per output.

use super::store;
use super::symbols::Symbols;
use crate::compiler::program::{Program, Value};
use crate::error::Error;
use crate::matrix::Matrix;
use crate::plan::Plan;

/// The program of a plan in the words layout, by its matrix alone.
pub(in crate::compiler) fn lower(plan: &Plan) -> Result<Program, Error> {
    let (mut program, symbols) = (Program::default(), Symbols::of(plan.field()));
    let rows = products(&mut program, plan.matrix()?, |program, input| Some(symbols.load(program, input)));
    for (output, terms) in rows.into_iter().enumerate() {
        let sum = program.sum(terms);
        store(&mut program, plan, output, 0, sum);
    }
    Ok(program)
}

/// The products of every row of the matrix, computed column by column so that each input is live only briefly. A column
/// without a value is zero.
pub(super) fn products(
    program: &mut Program,
    matrix: &Matrix,
    column_value: impl Fn(&mut Program, usize) -> Option<Value>,
) -> Vec<Vec<Value>> {
    let symbols = Symbols::of(matrix.field());
    let mut rows = vec![Vec::new(); matrix.rows()];
    for column in 0..matrix.columns() {
        let Some(input) = column_value(program, column) else { continue };
        for (row, terms) in rows.iter_mut().enumerate() {
            terms.extend(symbols.product(program, matrix.at(row, column), input));
        }
    }
    rows
}
