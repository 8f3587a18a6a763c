//! Fusion: sums become chains of instructions with two or three inputs, each placed as soon as its terms are available.
//!
//! A long sum is an accumulator that adds pending terms, as many at a time as an instruction takes. A term that would
//! wait longer than `patience` operations for another one is added alone, since waiting occupies a register.

use crate::compiler::program::{Op, Program, Value};

/// Parameters of fusion.
#[derive(Debug, Clone, Copy)]
pub(in crate::compiler) struct Fusion {
    /// Terms that one instruction adds up: 2 or 3.
    pub(in crate::compiler) arity: usize,
    /// Operations that a term may wait.
    pub(in crate::compiler) patience: usize,
}

/// The program with sums of at most `arity` terms.
pub(in crate::compiler) fn fuse(program: &Program, fusion: Fusion) -> Program {
    let mut chains = Chains::new(program, fusion);
    for (index, op) in program.ops().iter().enumerate() {
        match op {
            Op::Sum(terms) if terms.is_empty() => {
                let zero = chains.fused.make(Op::Sum(Vec::new()));
                chains.announce(index, zero);
            }
            // Complete since its last term was computed.
            Op::Sum(_) => {}
            _ => {
                let value = chains.fused.make(op.rename(|value| chains.renamed[value.index()]));
                chains.announce(index, value);
            }
        }
    }
    let Chains { mut fused, renamed, .. } = chains;
    fused.store_renamed(program, |value| renamed[value.index()]);
    fused
}

/// Marks an old value that is not computed yet.
const NOT_YET: Value = Value(u32::MAX);

struct Chains<'a> {
    program: &'a Program,
    fusion: Fusion,
    fused: Program,
    /// New value of every complete old value.
    renamed: Vec<Value>,
    /// The sums that contain a value.
    sums_of: Vec<Vec<u32>>,
    /// Pending new values of a sum, the accumulator first.
    pending: Vec<Vec<Value>>,
    /// Number of terms seen.
    seen: Vec<usize>,
}

impl<'a> Chains<'a> {
    fn new(program: &'a Program, fusion: Fusion) -> Chains<'a> {
        let count = program.ops().len();
        let mut sums_of = vec![Vec::new(); count];
        for (index, op) in program.ops().iter().enumerate() {
            if let Op::Sum(terms) = op {
                terms.iter().for_each(|term| sums_of[term.index()].push(index as u32));
            }
        }
        Chains {
            program,
            fusion,
            fused: Program::default(),
            renamed: vec![NOT_YET; count],
            sums_of,
            pending: vec![Vec::new(); count],
            seen: vec![0; count],
        }
    }

    /// Marks the old value `index` as computed, with every sum that it completes.
    fn announce(&mut self, index: usize, value: Value) {
        let mut complete = vec![(index, value)];
        while let Some((now, value)) = complete.pop() {
            self.renamed[now] = value;
            for sum in std::mem::take(&mut self.sums_of[now]) {
                let sum = sum as usize;
                self.pending[sum].push(value);
                self.seen[sum] += 1;
                let terms = self.program.ops()[sum].operands();
                let last = self.seen[sum] == terms.len();
                if last || self.pending[sum].len() == self.fusion.arity || !self.worth_waiting(sum, index) {
                    self.add_up(sum);
                }
                if last {
                    complete.push((sum, self.pending[sum][0]));
                }
            }
        }
    }

    /// Adds the pending terms into one value.
    fn add_up(&mut self, sum: usize) {
        let pending = std::mem::take(&mut self.pending[sum]);
        let value = self.fused.sum(pending);
        self.pending[sum] = vec![value.unwrap_or_else(|| self.fused.make(Op::Sum(Vec::new())))];
    }

    /// True if another term of the sum is computed soon.
    fn worth_waiting(&self, sum: usize, now: usize) -> bool {
        let terms = self.program.ops()[sum].operands();
        let missing = terms.iter().map(|term| term.index()).filter(|&term| self.renamed[term] == NOT_YET);
        missing.min().is_none_or(|next| next.saturating_sub(now) <= self.fusion.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiler::program::Location;

    fn sum_of(count: usize) -> Program {
        let mut program = Program::default();
        let inputs: Vec<Value> = (0..count).map(|input| program.load(input, 0)).collect();
        let sum = program.sum(inputs);
        program.store(Location { block: count as u32, packet: 0 }, sum);
        program
    }

    fn sums(program: &Program) -> Vec<usize> {
        let sums = program.ops().iter().filter(|op| matches!(op, Op::Sum(_)));
        sums.map(|op| op.operands().len()).collect()
    }

    #[test]
    fn a_sum_becomes_a_chain_with_the_same_meaning() {
        for count in 0..12 {
            let program = sum_of(count);
            for (arity, patience) in [(2, 0), (2, 99), (3, 0), (3, 99)] {
                let fused = fuse(&program, Fusion { arity, patience });
                let load = |place: Location| 1u8.rotate_left(place.block) ^ (place.block as u8) << 2;
                assert_eq!(fused.evaluate(load), program.evaluate(load), "{count} terms");
                assert!(sums(&fused).iter().all(|&terms| terms <= arity));
                if arity == 3 && patience == 99 && count > 1 {
                    assert_eq!(sums(&fused).len(), count / 2, "{count} terms, two more each time");
                }
            }
        }
    }
}
