//! Memory of the divisions in a loop that signs: the last eight quotients of each, in rings of eight iterations after
//! the spill slots.
//!
//! The ring index follows from the position, so positions start at a multiple of the step.

use super::assembler::{Assembler, memory};
use super::{POSITION, pointers};
use crate::compiler::program::Age;
use iced_x86::{Code, Register};

/// Iterations per ring.
pub(in crate::compiler) const TURNS: usize = 8;

pub(super) struct Remainders {
    /// Bytes of a block per iteration.
    step: usize,
    /// Offset of the rings.
    first: usize,
}

impl Remainders {
    /// Registers with ring indices: the last ones of the pool.
    pub(super) const REGISTERS: usize = 3;

    pub(super) fn new(step: usize, slots: u32) -> Remainders {
        Remainders { step, first: slots as usize * step }
    }

    /// The register with the ring index of a quotient of this age.
    pub(super) fn index(&self, age: Age) -> Register {
        pointers::POOL[pointers::POOL.len() - Self::REGISTERS + age as usize]
    }

    /// Offset of the ring of a division.
    pub(super) fn offset(&self, division: usize) -> usize {
        self.first + division * TURNS * self.step
    }

    /// Sets the registers for the iteration at the current position.
    pub(super) fn begin_turn(&self, assembler: &mut Assembler) {
        for (age, turns) in [(Age::Eighth, 0), (Age::Seventh, 1), (Age::Last, TURNS - 1)] {
            let index = self.index(age);
            assembler.load(Code::Lea_r64_m, index, memory(POSITION, turns * self.step));
            assembler.with2_immediate(Code::And_rm64_imm32, index, (TURNS * self.step - 1) as i32);
        }
    }
}
