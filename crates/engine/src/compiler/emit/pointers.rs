//! Assignment of general registers to block addresses.

use iced_x86::Register;
use std::collections::BTreeMap;

/// General registers that hold addresses.
pub(super) const POOL: [Register; 10] = [
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

/// Callee-saved registers of the pool.
const SAVED: [Register; 6] =
    [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];

/// Registers reloaded in every iteration if there are more blocks than registers.
const ROTATING: usize = 3;

pub(super) struct Pointers {
    pool: Vec<Register>,
    /// Blocks with a register for the whole loop, the first ones of the pool.
    resident: Vec<u32>,
    /// The block in each of the other registers.
    rotating: Vec<Option<u32>>,
    /// The blocks that the iteration still accesses, the next one last.
    ahead: Vec<u32>,
}

impl Pointers {
    /// `accesses` are the blocks that an iteration accesses, in order; `spare` are unused registers outside the pool;
    /// the last `taken` registers of the pool are in use.
    pub(super) fn new(
        accesses: impl Iterator<Item = u32>,
        spare: impl Iterator<Item = Register>,
        taken: usize,
    ) -> Pointers {
        let pool: Vec<Register> = spare.chain(POOL.into_iter().take(POOL.len() - taken)).collect();
        let mut ahead: Vec<u32> = accesses.collect();
        ahead.reverse();
        let mut resident = by_frequency(&ahead);
        let rotating = if resident.len() > pool.len() { ROTATING } else { 0 };
        if rotating > 0 {
            resident.truncate(pool.len() - rotating);
        }
        Pointers { pool, resident, rotating: vec![None; rotating], ahead }
    }

    /// Blocks whose address is loaded before the loop.
    pub(super) fn resident(&self) -> Vec<(u32, Register)> {
        self.resident.iter().copied().zip(self.pool.iter().copied()).collect()
    }

    /// Callee-saved registers that the loop writes, including the last `taken` of the pool.
    pub(super) fn saved(&self, taken: usize) -> Vec<Register> {
        let used = &self.pool[..self.resident.len() + self.rotating.len()];
        let others = &POOL[POOL.len() - taken..];
        SAVED.into_iter().filter(|saved| used.contains(saved) || others.contains(saved)).collect()
    }

    /// The register of the next accessed block, and true if its address must be loaded now. It replaces the block whose
    /// next use is farthest.
    pub(super) fn get(&mut self, block: u32) -> (Register, bool) {
        assert_eq!(self.ahead.pop(), Some(block), "blocks are accessed in the given order");
        if let Some(index) = self.resident.iter().position(|&resident| resident == block) {
            return (self.pool[index], false);
        }
        let known = self.rotating.iter().position(|&held| held == Some(block));
        let next_use = |held: Option<u32>| {
            let place = held.and_then(|held| self.ahead.iter().rposition(|&block| block == held));
            place.map_or(usize::MAX, |place| self.ahead.len() - place)
        };
        let farthest =
            || (0..self.rotating.len()).max_by_key(|&index| next_use(self.rotating[index])).unwrap_or(0);
        let index = known.unwrap_or_else(farthest);
        self.rotating[index] = Some(block);
        (self.pool[self.resident.len() + index], known.is_none())
    }
}

/// The blocks by number of accesses, most first.
fn by_frequency(accesses: &[u32]) -> Vec<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    accesses.iter().for_each(|&block| *counts.entry(block).or_default() += 1);
    let mut blocks: Vec<(u32, usize)> = counts.into_iter().collect();
    blocks.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    blocks.into_iter().map(|(block, _)| block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::TestRng;
    use std::collections::HashMap;

    /// Simulates the registers over two iterations.
    fn fetches_in_a_turn(accesses: &[u32], spare: &[Register]) -> usize {
        let mut pointers = Pointers::new(accesses.iter().copied(), spare.iter().copied(), 0);
        let mut held: HashMap<Register, u32> =
            pointers.resident().into_iter().map(|(block, to)| (to, block)).collect();
        let saved = pointers.saved(0);
        let written: Vec<(Register, bool)> = accesses.iter().map(|&block| pointers.get(block)).collect();
        for (register, _) in &written {
            assert!(!SAVED.contains(register) || saved.contains(register), "{register:?} is the caller's");
        }
        for _ in 0..2 {
            for (&block, &(register, fetch)) in accesses.iter().zip(&written) {
                if fetch {
                    held.insert(register, block);
                }
                assert_eq!(held.get(&register), Some(&block), "{register:?} in {accesses:?}");
            }
        }
        written.iter().filter(|(_, fetch)| *fetch).count()
    }

    #[test]
    fn loops_save_what_they_write_and_no_more() {
        let saved = |blocks: u32, taken| Pointers::new(0..blocks, std::iter::empty(), taken).saved(taken);
        assert_eq!(saved(4, 0), []);
        assert_eq!(saved(5, 0), [Register::RBX]);
        assert_eq!(saved(11, 0), SAVED);
        assert_eq!(saved(4, 3), [Register::R13, Register::R14, Register::R15]);
    }

    #[test]
    fn every_access_finds_its_block_in_every_turn() {
        let mut random = TestRng(0x706f_696e);
        for _ in 0..500 {
            let blocks = 1 + random.below(30);
            let accesses: Vec<u32> = (0..random.below(120)).map(|_| random.below(blocks) as u32).collect();
            let fetches = fetches_in_a_turn(&accesses, &[]);
            assert!(blocks > POOL.len() || fetches == 0, "{blocks} blocks have a register each");
            let spare = [Register::RCX, Register::R8];
            assert!(blocks > POOL.len() + 2 || fetches_in_a_turn(&accesses, &spare) == 0);
        }
    }
}
