//! Lowering for the packets layout: every output packet is a sum of input packets.

use super::store;
use crate::compiler::program::Program;
use crate::error::Error;
use crate::matrix::bits::BitMatrix;
use crate::plan::Plan;

/// The program of a plan over packets, for one register of every packet of a group.
pub(in crate::compiler) fn lower(plan: &Plan) -> Result<Program, Error> {
    let w = plan.field().w() as usize;
    let bits = BitMatrix::expand(plan.matrix()?)?;
    let mut program = Program::default();
    for row in 0..bits.rows() {
        let terms: Vec<_> =
            bits.ones_in_row(row).map(|column| program.load(column / w, column % w)).collect();
        let sum = program.sum(terms);
        store(&mut program, plan, row / w, row % w, sum);
    }
    Ok(program)
}
