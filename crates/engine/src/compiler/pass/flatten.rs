//! Flattening: nested sums become one sum, so that later passes see all terms and equal ones cancel.

use crate::compiler::program::{Op, Program, Value};

/// Merges every sum with a single use by another sum into that sum. Repeated until nothing changes, since cancelled
/// terms can leave other sums with a single use.
pub(in crate::compiler) fn flatten(program: &Program) -> Program {
    let mut program = program.without_dead_code();
    loop {
        let before = program.ops().len();
        program = flatten_once(&program).without_dead_code();
        if program.ops().len() == before {
            return program;
        }
    }
}

fn flatten_once(program: &Program) -> Program {
    let uses = program.uses();
    let mut used_by_sum = vec![false; program.ops().len()];
    for op in program.ops() {
        if let Op::Sum(terms) = op {
            terms.iter().for_each(|term| used_by_sum[term.index()] = true);
        }
    }
    let mut flat = Program::default();
    // New value of every old value: a list of terms for a merged sum.
    let mut renamed: Vec<Vec<Value>> = Vec::with_capacity(program.ops().len());
    for (index, op) in program.ops().iter().enumerate() {
        let terms = match op {
            Op::Sum(terms) => {
                let all: Vec<Value> = terms.iter().flat_map(|term| renamed[term.index()].clone()).collect();
                if uses[index] == 1 && used_by_sum[index] {
                    all
                } else {
                    let sum = flat.sum(all);
                    vec![sum.unwrap_or_else(|| flat.make(Op::Sum(Vec::new())))]
                }
            }
            // Operands of other operations are never merged: they are not used by a sum only.
            _ => vec![flat.make(op.rename(|value| renamed[value.index()][0]))],
        };
        renamed.push(terms);
    }
    flat.store_renamed(program, |value| renamed[value.index()][0]);
    flat
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiler::program::Location;

    #[test]
    fn nested_sums_become_one_and_equal_terms_cancel() {
        let mut program = Program::default();
        let [a, b, c]: [Value; 3] = std::array::from_fn(|input| program.load(input, 0));
        let inner = program.sum([a, b]).unwrap();
        let outer = program.sum([inner, c, a]);
        program.store(Location { block: 3, packet: 0 }, outer);
        let flat = flatten(&program);
        assert_eq!(flat.ops().len(), 3, "two loads and their sum: {:?}", flat.ops());
        let load = |place: Location| [0x11, 0x22, 0x44][place.block as usize];
        assert_eq!(flat.evaluate(load), program.evaluate(load));
    }

    #[test]
    fn shared_sums_stay() {
        let mut program = Program::default();
        let [a, b, c]: [Value; 3] = std::array::from_fn(|input| program.load(input, 0));
        let shared = program.sum([a, b]);
        let outer = program.sum(shared.into_iter().chain([c]));
        program.store(Location { block: 3, packet: 0 }, shared);
        program.store(Location { block: 4, packet: 0 }, outer);
        assert_eq!(flatten(&program).ops().len(), program.ops().len());
    }
}
