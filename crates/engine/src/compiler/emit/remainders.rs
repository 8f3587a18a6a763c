//! Where a loop that signs keeps the last eight quotients of every division: after its slots, in a ring of eight turns
//! for each.
//!
//! The position of a turn tells its place in the rings, so positions begin at a multiple of the step.

use super::assembler::{Assembler, memory};
use super::{POSITION, pointers};
use crate::compiler::program::Age;
use iced_x86::{Code, Register};

/// Turns that are remembered.
pub(in crate::compiler) const TURNS: usize = 8;

pub(super) struct Remainders {
    /// Bytes of a block in a turn.
    step: usize,
    /// Where the rings begin.
    first: usize,
}

impl Remainders {
    /// Registers with places in the rings: the last ones of the pool.
    pub(super) const REGISTERS: usize = 3;

    pub(super) fn new(step: usize, slots: u32) -> Remainders {
        Remainders { step, first: slots as usize * step }
    }

    /// The register that has the place of a quotient of this age in its ring.
    pub(super) fn index(&self, age: Age) -> Register {
        pointers::POOL[pointers::POOL.len() - Self::REGISTERS + age as usize]
    }

    /// Where the ring of a division begins.
    pub(super) fn offset(&self, division: usize) -> usize {
        self.first + division * TURNS * self.step
    }

    /// Brings the registers to the turn at the current position.
    pub(super) fn begin_turn(&self, assembler: &mut Assembler) {
        for (age, turns) in [(Age::Eighth, 0), (Age::Seventh, 1), (Age::Last, TURNS - 1)] {
            let index = self.index(age);
            assembler.load(Code::Lea_r64_m, index, memory(POSITION, turns * self.step));
            assembler.with2_immediate(Code::And_rm64_imm32, index, (TURNS * self.step - 1) as i32);
        }
    }
}
