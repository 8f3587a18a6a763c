//! Which register holds the address of which block.

use iced_x86::Register;

/// General registers that hold addresses.
const POOL: [Register; 10] = [
    Register::RAX,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Those of them that belong to the caller.
pub(super) const SAVED: [Register; 6] =
    [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];

/// Registers that are fetched anew in every turn where there are more blocks than registers.
const ROTATING: usize = 3;

pub(super) struct Pointers {
    /// Blocks 0..resident have a register for the whole loop.
    resident: usize,
    /// The block in each of the others, and when it was last asked for.
    rotating: Vec<(Option<u32>, usize)>,
    clock: usize,
}

impl Pointers {
    pub(super) fn new(blocks: usize) -> Pointers {
        let resident = if blocks <= POOL.len() { blocks } else { POOL.len() - ROTATING };
        Pointers { resident, rotating: vec![(None, 0); POOL.len() - resident], clock: 0 }
    }

    /// Those that are fetched before the loop.
    pub(super) fn resident(&self) -> Vec<(u32, Register)> {
        (0..self.resident).map(|block| (block as u32, POOL[block])).collect()
    }

    /// What the last turn left in the rotating registers is not what the first one finds.
    pub(super) fn begin_turn(&mut self) {
        self.rotating.iter_mut().for_each(|entry| *entry = (None, 0));
    }

    /// The register of a block, and whether its address has to be fetched into it now.
    pub(super) fn get(&mut self, block: u32) -> (Register, bool) {
        if (block as usize) < self.resident {
            return (POOL[block as usize], false);
        }
        self.clock += 1;
        let known = self.rotating.iter().position(|&(held, _)| held == Some(block));
        let oldest = || (0..self.rotating.len()).min_by_key(|&index| self.rotating[index].1).unwrap_or(0);
        let index = known.unwrap_or_else(oldest);
        self.rotating[index] = (Some(block), self.clock);
        (POOL[self.resident + index], known.is_none())
    }
}
