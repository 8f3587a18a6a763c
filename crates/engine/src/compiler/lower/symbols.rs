//! Loading, multiplication and storing of symbols of one or more bytes.
//!
//! A register of symbols of B bytes is gathered by byte: qwords that mean byte 0 of their symbols, byte 1, and so on. A
//! product with a constant is B x B maps from byte to byte; rotating the register by one byte position moves another
//! byte of all symbols to each qword, so B rotations, each with a map per qword, sum to the product.

use crate::bytemap::{ByteMap, LinearMap};
use crate::compiler::program::{Op, Program, Shuffle, Value};
use crate::field::Field;

/// Qwords of a register.
const QWORDS: usize = 8;

/// The symbols of a field in the words layout.
#[derive(Clone, Copy)]
pub(super) struct Symbols {
    pub(super) field: Field,
    bytes: usize,
}

impl Symbols {
    pub(super) fn of(field: Field) -> Symbols {
        let bytes = field.word_bytes().expect("the plan has a words layout");
        Symbols { field, bytes }
    }

    pub(super) fn load(self, program: &mut Program, input: usize) -> Value {
        let symbols = program.load(input, 0);
        match self.bytes {
            1 => symbols,
            bytes => program.make(Op::Shuffle(symbols, Shuffle::Gather(bytes as u8))),
        }
    }

    /// The value in the layout of memory.
    pub(super) fn stored(self, program: &mut Program, value: Option<Value>) -> Option<Value> {
        match self.bytes {
            1 => value,
            bytes => value.map(|value| program.make(Op::Shuffle(value, Shuffle::Scatter(bytes as u8)))),
        }
    }

    /// Constant times value; `None` is zero.
    pub(super) fn product(self, program: &mut Program, constant: u64, value: Value) -> Option<Value> {
        if self.bytes == 1 {
            return program.map(value, ByteMap::multiplication(self.field, constant));
        }
        match constant {
            0 => return None,
            1 => return Some(value),
            _ => {}
        }
        let (map, qwords) = (LinearMap::multiplication(self.field, constant), QWORDS / self.bytes);
        let terms: Vec<Value> = (0..self.bytes)
            .filter_map(|distance| {
                let maps: [ByteMap; QWORDS] = std::array::from_fn(|qword| {
                    let to = qword / qwords;
                    map.byte_map(to, (to + distance) % self.bytes)
                });
                if maps.iter().all(|map| map.is_zero()) {
                    return None;
                }
                let rotated = match distance {
                    0 => value,
                    _ => program.make(Op::Shuffle(value, Shuffle::Rotate((distance * qwords) as u8))),
                };
                Some(program.make(Op::MapEach(rotated, maps)))
            })
            .collect();
        program.sum(terms)
    }
}
