//! Lowering for the planar layout, where the bytes of symbols are in B separate planes of a block: every plane is a
//! block of the program, and a coefficient is B x B byte maps between planes. Unlike in the words layout, bytes need
//! not be gathered or scattered.

use crate::bytemap::LinearMap;
use crate::compiler::program::{Location, Program, Value};
use crate::matrix::Matrix;
use crate::plan::Mode;

/// Plane b of input i is block i·B + b; outputs follow.
pub(in crate::compiler) fn lower(matrix: &Matrix, mode: Mode) -> Program {
    let bytes = matrix.field().word_bytes().expect("the caller checked that symbols fill bytes");
    let (inputs, outputs) = (matrix.columns() * bytes, matrix.rows() * bytes);
    let mut program = Program::default();
    let mut sums: Vec<Vec<Value>> = vec![Vec::new(); outputs];
    for column in 0..matrix.columns() {
        let maps: Vec<LinearMap> = (0..matrix.rows())
            .map(|row| LinearMap::multiplication(matrix.field(), matrix.at(row, column)))
            .collect();
        for from in 0..bytes {
            let plane = program.load(column * bytes + from, 0);
            for (output, sum) in sums.iter_mut().enumerate() {
                sum.extend(program.map(plane, maps[output / bytes].byte_map(output % bytes, from)));
            }
        }
    }
    for (output, mut sum) in sums.into_iter().enumerate() {
        if mode == Mode::Add {
            sum.push(program.load(inputs + output, 0));
        }
        let sum = program.sum(sum);
        program.store(Location { block: (inputs + output) as u32, packet: 0 }, sum);
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;

    /// One symbol: its bytes are the planes.
    #[test]
    fn the_program_multiplies_symbols() {
        for field in [Field::GF4, Field::GF8, Field::GF16, Field::GF32, Field::GF64] {
            let bytes = field.word_bytes().unwrap();
            let constants = [0x9d3f_27ab_c481_5e67 & field.mask(), 2, 1, 0];
            let matrix = Matrix::from_fn(field, 2, 2, |row, column| constants[2 * row + column]).unwrap();
            let symbols: Vec<u64> = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]
                .map(|symbol: u64| symbol & field.mask())
                .into();
            let load = |place: Location| {
                let (block, byte) = (place.block as usize / bytes, place.block as usize % bytes);
                symbols.get(block).map_or(0x55, |symbol| (symbol >> (8 * byte)) as u8)
            };
            for (mode, before) in [(Mode::Write, 0), (Mode::Add, 0x55)] {
                for (place, found) in lower(&matrix, mode).evaluate(load) {
                    let output = place.block as usize - 2 * bytes;
                    let sum = (0..2).fold(0, |sum, column| {
                        sum ^ field.mul(matrix.at(output / bytes, column), symbols[column])
                    });
                    assert_eq!(found, (sum >> (8 * (output % bytes))) as u8 ^ before, "{field:?}");
                }
            }
        }
    }
}
