//! Constants of a loop: their memory layout, and the ones that are kept in registers.

use super::Shape;
use super::assembler::register;
use crate::bytemap::{AffineMatrix, ByteMap, MapForm, NibbleTables};
use crate::compiler::machine::{Allocated, Step};
use crate::compiler::program::{Half, Shuffle};
use iced_x86::Register;
use std::collections::HashMap;

/// A loop-invariant operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Constant {
    /// The operand of `gf2p8affineqb`.
    Affine(ByteMap),
    /// The same, with a different map for each eight bytes.
    AffineEach([ByteMap; 8]),
    /// Source index of every byte of a register.
    Places(Shuffle),
    /// Lookup table of sixteen nibble images.
    Table(ByteMap, Half),
    /// 0x0f in every byte.
    NibbleMask,
}

impl Constant {
    /// True if no instruction takes it from memory.
    fn needs_register(self) -> bool {
        matches!(self, Constant::NibbleMask | Constant::Places(_))
    }
}

pub(super) struct Constants {
    offsets: HashMap<Constant, usize>,
    bytes: Vec<u8>,
    /// Constants in registers, in register order.
    resident: Vec<(Constant, Register)>,
    by_constant: HashMap<Constant, Register>,
    passing: Option<Register>,
}

impl Constants {
    /// `taken` machine registers hold values.
    pub(super) fn new(allocated: &Allocated, shape: Shape, taken: usize) -> Constants {
        let used = by_frequency(allocated);
        let mut free = (taken..shape.target.registers()).map(|index| register(shape.target, index));
        // If constants are used for several columns, one register is reserved for loading those without their own.
        let (free_count, needed) =
            (free.len(), used.iter().filter(|(constant, _)| constant.needs_register()).count());
        let affine = used
            .iter()
            .any(|(constant, _)| matches!(constant, Constant::Affine(_) | Constant::AffineEach(_)));
        let serves_several = shape.columns > 1 && affine && used.len() > free_count;
        let passing = if serves_several && free_count > needed { free.next_back() } else { None };
        let mut constants = Constants {
            offsets: HashMap::new(),
            bytes: Vec::new(),
            resident: used.iter().map(|&(constant, _)| constant).zip(free).collect(),
            by_constant: HashMap::new(),
            passing,
        };
        constants.by_constant = constants.resident.iter().copied().collect();
        for (constant, _) in used {
            constants.place(constant, shape.target.width);
        }
        constants
    }

    fn place(&mut self, constant: Constant, width: usize) {
        self.offsets.insert(constant, self.bytes.len());
        match constant {
            Constant::Affine(map) => {
                // Only instructions on 64-byte registers broadcast a memory operand.
                let copies = if width == 64 { 1 } else { width / 8 };
                let matrix = AffineMatrix::prepare(map).0.to_le_bytes();
                (0..copies).for_each(|_| self.bytes.extend(matrix));
            }
            Constant::AffineEach(maps) => {
                self.bytes.extend(maps.iter().flat_map(|map| AffineMatrix::prepare(*map).0.to_le_bytes()));
            }
            Constant::Places(shuffle) => self.bytes.extend(places(shuffle)),
            Constant::Table(map, half) => {
                let tables = NibbleTables::prepare(map);
                self.bytes.extend(match half {
                    Half::Low => tables.low,
                    Half::High => tables.high,
                });
            }
            Constant::NibbleMask => self.bytes.extend([0x0f; 16]),
        }
    }

    /// True if all constants are in registers.
    pub(super) fn are_resident(&self) -> bool {
        self.offsets.len() == self.resident.len()
    }

    pub(super) fn offset(&self, constant: Constant) -> usize {
        self.offsets[&constant]
    }

    /// Constants loaded before the loop.
    pub(super) fn resident(&self) -> Vec<(Constant, Register)> {
        self.resident.clone()
    }

    pub(super) fn resident_register(&self, constant: Constant) -> Option<Register> {
        self.by_constant.get(&constant).copied()
    }

    /// The register for constants that are loaded in the loop.
    pub(super) fn passing_register(&self) -> Option<Register> {
        self.passing
    }

    /// The register of a constant that requires one; register allocation reserves it.
    pub(super) fn register(&self, constant: Constant) -> Register {
        self.by_constant[&constant]
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Source indices of the bytes of a shuffled 64-byte register.
fn places(shuffle: Shuffle) -> [u8; 64] {
    std::array::from_fn(|to| match shuffle {
        // Byte `to` is byte number to / symbols of symbol to % symbols.
        Shuffle::Gather(bytes) => {
            let symbols = 64 / bytes as usize;
            (to % symbols * bytes as usize + to / symbols) as u8
        }
        Shuffle::Scatter(bytes) => {
            let (bytes, symbols) = (bytes as usize, 64 / bytes as usize);
            (to % bytes * symbols + to / bytes) as u8
        }
        Shuffle::Rotate(eights) => ((to + 8 * eights as usize) % 64) as u8,
    })
}

/// The constants of the steps: those that require a register first, then by number of uses.
fn by_frequency(allocated: &Allocated) -> Vec<(Constant, usize)> {
    let mut uses: HashMap<Constant, usize> = HashMap::new();
    let mut order: Vec<Constant> = Vec::new();
    for step in &allocated.steps {
        let constant = match *step {
            Step::Map { map, .. } => Constant::Affine(map),
            Step::MapEach { maps, .. } => Constant::AffineEach(maps),
            // A rotation encodes its distance in the instruction.
            Step::Shuffle { shuffle: Shuffle::Rotate(_), .. } => continue,
            Step::Shuffle { shuffle, .. } => Constant::Places(shuffle),
            Step::Look { map, half, .. } => Constant::Table(map, half),
            Step::Nibble { .. } => Constant::NibbleMask,
            _ => continue,
        };
        let count = uses.entry(constant).or_insert_with(|| {
            order.push(constant);
            0
        });
        *count += 1;
    }
    let mut used: Vec<(Constant, usize)> =
        order.into_iter().map(|constant| (constant, uses[&constant])).collect();
    used.sort_by_key(|&(constant, count)| (!constant.needs_register(), std::cmp::Reverse(count)));
    used
}
