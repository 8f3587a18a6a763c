//! Nibble lookups in place of byte maps, for machines without `gf2p8affineqb`: the image of a byte is the sum of the
//! images of its nibbles, from two tables of sixteen. The nibbles of a value are computed once for all its maps.

use crate::compiler::program::{Half, Op, Program, Value};

/// The program without maps.
pub(in crate::compiler) fn look_up(program: &Program) -> Program {
    let mut looked_up = Program::default();
    let mut renamed: Vec<Value> = Vec::with_capacity(program.ops().len());
    for op in program.ops() {
        let op = op.rename(|value| renamed[value.index()]);
        renamed.push(match op {
            Op::Map(of, map) => {
                let halves = [Half::Low, Half::High].map(|half| {
                    let nibble = looked_up.make(Op::Nibble(of, half));
                    looked_up.make(Op::Look(nibble, map, half))
                });
                looked_up.make(Op::Sum(halves.to_vec()))
            }
            op => looked_up.make(op),
        });
    }
    looked_up.store_renamed(program, |value| renamed[value.index()]);
    looked_up
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytemap::ByteMap;
    use crate::compiler::program::Location;
    use crate::field::Field;

    #[test]
    fn look_ups_mean_the_same_as_maps() {
        let mut program = Program::default();
        let x = program.load(0, 0);
        for (output, constant) in [2, 0x8e, 0xff].into_iter().enumerate() {
            let image = program.map(x, ByteMap::multiplication(Field::GF8, constant));
            program.store(Location { block: 1 + output as u32, packet: 0 }, image);
        }
        let looked_up = look_up(&program);
        assert!(!looked_up.ops().iter().any(|op| matches!(op, Op::Map(..))));
        let nibbles = looked_up.ops().iter().filter(|op| matches!(op, Op::Nibble(..))).count();
        assert_eq!(nibbles, 2, "both halves once, for three maps");
        for byte in 0..=255 {
            assert_eq!(looked_up.evaluate(|_| byte), program.evaluate(|_| byte));
        }
    }
}
