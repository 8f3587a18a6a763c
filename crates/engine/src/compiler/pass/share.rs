//! Common subexpressions of sums are computed once.
//!
//! Two or three terms that several sums have in common become a separate sum, greedily by savings, while an instruction
//! is saved. The cost is instructions, not additions. A sum of n terms takes n - 1 instructions with two inputs, so a
//! pair in s sums saves s - 1. It takes ⌊n / 2⌋ instructions with three inputs: there a triple in s sums saves s - 1,
//! but a pair saves an instruction only in sums with an even number of terms.
//!
//! Ties are resolved in favour of the rarest terms: frequent terms are left for other pairs. That saves another 3 to 5
//! % of the instructions.

use crate::compiler::program::{Op, Program, Value};
use crate::tuning::{
    MAX_TERMS_FOR_TRIPLES, SHARE_BUDGET, SHARE_ODD_WEIGHTS, SHARE_SHORT_SEARCH, SHARE_WINDOW,
};
use std::collections::HashMap;

/// A set of sums. Programs with more of them share within groups of this many, in their order.
type Members = u64;

/// The program with common parts of its sums computed once, for instructions that add `arity` terms.
pub(in crate::compiler) fn share(program: &Program, arity: usize) -> Program {
    let is_sum = |index: &usize| matches!(&program.ops()[*index], Op::Sum(terms) if terms.len() > 1);
    let sums: Vec<usize> = (0..program.ops().len()).filter(is_sum).collect();
    let mut groups = Vec::new();
    let mut place_of = HashMap::new();
    for group in sums.chunks(Members::BITS as usize) {
        for (member, &sum) in group.iter().enumerate() {
            place_of.insert(sum, (groups.len(), member));
        }
        let sums: Vec<&[Value]> = group.iter().map(|&sum| program.ops()[sum].operands()).collect();
        groups.push(Made { parts: Parts::of(&sums, arity), values: HashMap::new() });
    }
    let mut sharing = Program::default();
    let mut renamed: Vec<Value> = Vec::with_capacity(program.ops().len());
    for (index, op) in program.ops().iter().enumerate() {
        let value = match place_of.get(&index) {
            Some(&(group, member)) => groups[group].make_sum(member, &mut sharing, &renamed),
            None => sharing.make(op.rename(|value| renamed[value.index()])),
        };
        renamed.push(value);
    }
    sharing.store_renamed(program, |value| renamed[value.index()]);
    sharing
}

/// The sums of a group during construction of the new program.
struct Made {
    parts: Parts,
    /// Computed parts, as values of the new program.
    values: HashMap<Term, Value>,
}

impl Made {
    fn make_sum(&mut self, member: usize, program: &mut Program, renamed: &[Value]) -> Value {
        let terms = std::mem::take(&mut self.parts.sums[member]);
        self.add_up(&terms, program, renamed)
    }

    /// Computes missing parts: all terms are available when the first sum with them is computed.
    fn add_up(&mut self, terms: &[Term], program: &mut Program, renamed: &[Value]) -> Value {
        let values: Vec<Value> = terms.iter().map(|&term| self.value(term, program, renamed)).collect();
        program.sum(values).unwrap_or_else(|| program.make(Op::Sum(Vec::new())))
    }

    fn value(&mut self, term: Term, program: &mut Program, renamed: &[Value]) -> Value {
        if let Some(&made) = self.values.get(&term) {
            return made;
        }
        let value = match self.parts.body(term) {
            Body::Old(value) => renamed[value.index()],
            Body::Part(terms) => {
                let terms = terms.to_vec();
                self.add_up(&terms, program, renamed)
            }
        };
        self.values.insert(term, value);
        value
    }
}

/// A value of the program or a common part, numbered within a group.
type Term = u16;

enum Body<'a> {
    Old(Value),
    Part(&'a [Term]),
}

/// Sums over old values and common parts.
#[derive(Clone)]
struct Parts {
    arity: usize,
    /// Terms from 0 on.
    old: Vec<Value>,
    /// Terms after the old ones. A part without terms was merged back.
    parts: Vec<Vec<Term>>,
    sums: Vec<Vec<Term>>,
}

impl Parts {
    /// The cheapest result of the searches.
    fn of(sums: &[&[Value]], arity: usize) -> Parts {
        let plain = Parts::plain(sums, arity);
        // A part replaces at least two terms, so there are fewer parts than terms.
        if plain.old.len() + sums.iter().map(|terms| terms.len()).sum::<usize>() > Term::MAX as usize {
            return plain;
        }
        let [first, second] = SHARE_ODD_WEIGHTS;
        let (shared, looks) = Search::new(&plain, first).run();
        if arity == 2 || looks > SHARE_SHORT_SEARCH {
            return shared;
        }
        let (other, _) = Search::new(&plain, second).run();
        if other.instructions() < shared.instructions() { other } else { shared }
    }

    fn plain(sums: &[&[Value]], arity: usize) -> Parts {
        let mut old: Vec<Value> = sums.concat();
        old.sort_unstable();
        old.dedup();
        let number = |term: &Value| old.partition_point(|other| other < term) as Term;
        let sums = sums.iter().map(|terms| terms.iter().map(number).collect()).collect();
        Parts { arity, old, parts: Vec::new(), sums }
    }

    fn body(&self, term: Term) -> Body<'_> {
        match self.old.get(term as usize) {
            Some(&value) => Body::Old(value),
            None => Body::Part(&self.parts[term as usize - self.old.len()]),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Vec<Term>> {
        self.parts.iter().chain(&self.sums)
    }

    fn instructions(&self) -> usize {
        self.all().map(|terms| self.instructions_for(terms.len())).sum()
    }

    fn instructions_for(&self, terms: usize) -> usize {
        terms.saturating_sub(1).div_ceil(self.arity - 1)
    }

    /// Merges parts back into their sums where that takes no more instructions: later sharing may have left a pair to a
    /// single sum, or to sums of lengths for which it saves nothing.
    fn dissolve(&mut self) {
        for part in (0..self.parts.len()).rev() {
            let term = (self.old.len() + part) as Term;
            let body = std::mem::take(&mut self.parts[part]);
            let users = || self.all().filter(|terms| terms.contains(&term));
            let grows = |terms: &Vec<Term>| {
                self.instructions_for(terms.len() + body.len() - 1) - self.instructions_for(terms.len())
            };
            let apart = users().all(|terms| body.iter().all(|term| !terms.contains(term)));
            if !apart || users().map(grows).sum::<usize>() > self.instructions_for(body.len()) {
                self.parts[part] = body;
                continue;
            }
            for terms in self.parts.iter_mut().chain(&mut self.sums) {
                if let Some(place) = terms.iter().position(|&other| other == term) {
                    terms.remove(place);
                    terms.extend(&body);
                }
            }
        }
    }
}

/// The search for common parts of one group.
struct Search {
    parts: Parts,
    worth_of_odd: usize,
    /// The sums that contain every term, and their number.
    members: Vec<Members>,
    counts: Vec<usize>,
    /// Sums with an even number of terms.
    even: Members,
    /// Pairs by the number of sums that contain them (two or more); the number may have decreased since.
    pairs: Vec<Vec<[Term; 2]>>,
    /// Triples, likewise.
    triples: Vec<Vec<[Term; 3]>>,
    budget: usize,
}

/// Savings of a candidate, in quarters of an instruction.
type Worth = usize;

impl Search {
    fn new(plain: &Parts, worth_of_odd: usize) -> Search {
        let mut members = vec![0; plain.old.len()];
        let mut even = 0;
        for (member, terms) in plain.sums.iter().enumerate() {
            terms.iter().for_each(|&term| members[term as usize] |= 1 << member);
            even |= Members::from(terms.len().is_multiple_of(2)) << member;
        }
        Search {
            parts: plain.clone(),
            worth_of_odd,
            counts: members.iter().copied().map(count).collect(),
            members,
            even,
            pairs: vec![Vec::new(); plain.sums.len() + 1],
            triples: vec![Vec::new(); plain.sums.len() + 1],
            budget: SHARE_BUDGET,
        }
    }

    /// The result, and the number of pairs and triples examined.
    fn run(mut self) -> (Parts, usize) {
        for term in 0..self.members.len() {
            self.find_with(term as Term);
        }
        while let Some(terms) = self.best() {
            self.make(terms);
        }
        for (member, terms) in self.parts.sums.iter_mut().enumerate() {
            let present = |term: &Term| self.members[*term as usize] >> member & 1 == 1;
            *terms = (0..self.members.len() as Term).filter(present).collect();
        }
        self.parts.dissolve();
        (self.parts, SHARE_BUDGET - self.budget)
    }

    fn in_common(&self, terms: &[Term]) -> Members {
        terms.iter().fold(Members::MAX, |common, &term| common & self.members[term as usize])
    }

    /// Total number of uses of the terms.
    fn uses(&self, terms: &[Term]) -> usize {
        terms.iter().map(|&term| self.counts[term as usize]).sum()
    }

    /// Lists the pairs and triples of a term with earlier terms.
    fn find_with(&mut self, term: Term) {
        let own = self.members[term as usize];
        if !several(own) {
            return;
        }
        // Terms that share fewer than two sums with this one cannot be part of a triple with it.
        let near: Vec<(Term, Members)> = (0..term)
            .map(|other| (other, own & self.members[other as usize]))
            .filter(|&(_, common)| several(common))
            .collect();
        self.spend(term as usize);
        let triples = self.parts.arity > 2 && self.parts.old.len() <= MAX_TERMS_FOR_TRIPLES;
        for (place, &(b, common)) in near.iter().enumerate() {
            self.pairs[count(common)].push([b, term]);
            if !triples || self.budget == 0 {
                continue;
            }
            self.spend(place);
            for &(a, _) in &near[..place] {
                let common = common & self.members[a as usize];
                if several(common) {
                    self.triples[count(common)].push([a, b, term]);
                }
            }
        }
    }

    fn spend(&mut self, looks: usize) {
        self.budget = self.budget.saturating_sub(looks);
    }

    /// The terms with the largest savings, if any.
    fn best(&mut self) -> Option<Vec<Term>> {
        let triple = self.best_triple();
        let pair = self.best_pair(triple.map_or(0, |(_, worth)| worth));
        if self.budget == 0 {
            return None;
        }
        match (pair, triple) {
            (Some(pair), _) => Some(pair.to_vec()),
            (None, Some((triple, _))) => Some(triple.to_vec()),
            (None, None) => None,
        }
    }

    /// The best pair that is worth more than `least`.
    fn best_pair(&mut self, least: Worth) -> Option<[Term; 2]> {
        let mut best = (least, 0);
        let mut found = None;
        for sums in (2..self.pairs.len()).rev() {
            if 4 * (sums - 1) <= best.0 {
                break;
            }
            let mut listed = std::mem::take(&mut self.pairs[sums]);
            self.spend(listed.len());
            listed.retain(|pair| {
                let common = self.in_common(pair);
                if count(common) < sums {
                    self.pairs[count(common)].push(*pair);
                    return false;
                }
                let worth = self.worth_of_pair(common);
                if worth > best.0 || worth == best.0 && found.is_some() && self.uses(pair) < best.1 {
                    best = (worth, self.uses(pair));
                    found = Some(*pair);
                }
                true
            });
            self.pairs[sums] = listed;
        }
        found
    }

    fn worth_of_pair(&self, common: Members) -> Worth {
        let sums = count(common);
        let saved = match self.parts.arity {
            2 => 4 * sums,
            _ => {
                let even = count(common & self.even);
                4 * even + self.worth_of_odd * (sums - even)
            }
        };
        saved.saturating_sub(4)
    }

    /// The best triple among those contained in most sums, or among some of them if there are many.
    fn best_triple(&mut self) -> Option<([Term; 3], Worth)> {
        let mut sums = self.triples.len();
        while sums > 2 {
            sums -= 1;
            let mut listed = std::mem::take(&mut self.triples[sums]);
            let mut best = None;
            let mut place = listed.len();
            // Triples at the end that became rarer are moved to another list, so the window advances.
            while place > 0 && (best.is_none() || place + SHARE_WINDOW > listed.len()) {
                place -= 1;
                self.spend(1);
                let terms = listed[place];
                let common = count(self.in_common(&terms));
                if common < sums {
                    listed.swap_remove(place);
                    self.triples[common].push(terms);
                    continue;
                }
                let uses = self.uses(&terms);
                if best.is_none_or(|(fewest, _)| uses < fewest) {
                    best = Some((uses, terms));
                }
            }
            self.triples[sums] = listed;
            if let Some((_, terms)) = best {
                return Some((terms, 4 * (sums - 1)));
            }
        }
        None
    }

    fn make(&mut self, terms: Vec<Term>) {
        let common = self.in_common(&terms);
        for &term in &terms {
            self.members[term as usize] &= !common;
            self.counts[term as usize] -= count(common);
        }
        if terms.len() == 2 {
            self.even ^= common;
        }
        self.members.push(common);
        self.counts.push(count(common));
        self.parts.parts.push(terms);
        self.find_with((self.members.len() - 1) as Term);
    }
}

fn count(members: Members) -> usize {
    members.count_ones() as usize
}

/// True if there are two or more.
fn several(members: Members) -> bool {
    members & members.wrapping_sub(1) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiler::program::Location;
    use crate::conformance::TestRng;

    fn instructions(program: &Program, arity: usize) -> usize {
        let sums = program.ops().iter().filter(|op| matches!(op, Op::Sum(_)));
        sums.map(|op| op.operands().len().saturating_sub(1).div_ceil(arity - 1)).sum()
    }

    /// Sums of inputs and of earlier sums.
    fn random_program(random: &mut TestRng) -> Program {
        let mut program = Program::default();
        let inputs = 1 + random.below(24);
        let mut values: Vec<Value> = (0..inputs).map(|input| program.load(input, 0)).collect();
        for output in 0..1 + random.below(90) {
            let density = 1 + random.below(4);
            let terms: Vec<Value> = values.iter().copied().filter(|_| random.below(5) < density).collect();
            let sum = program.sum(terms);
            program.store(Location { block: (inputs + output) as u32, packet: 0 }, sum);
            if random.below(8) == 0 {
                values.extend(sum);
            }
        }
        program
    }

    #[test]
    fn random_programs_keep_their_meaning_and_never_grow() {
        let mut random = TestRng(0x7368_6172);
        for round in 0..150 {
            let program = random_program(&mut random);
            for arity in [2, 3] {
                let shared = share(&program, arity);
                let bytes: Vec<u8> = (0..32).map(|_| random.next_u64() as u8).collect();
                let load = |place: Location| bytes[place.block as usize];
                assert_eq!(shared.evaluate(load), program.evaluate(load), "round {round}");
                assert!(instructions(&shared, arity) <= instructions(&program, arity), "round {round}");
            }
        }
    }

    fn sums_of(sums: &[&[usize]]) -> Program {
        let mut program = Program::default();
        for (output, terms) in sums.iter().enumerate() {
            let terms: Vec<Value> = terms.iter().map(|&input| program.load(input, 0)).collect();
            let sum = program.sum(terms);
            program.store(Location { block: 100 + output as u32, packet: 0 }, sum);
        }
        program
    }

    #[test]
    fn a_common_pair_is_made_once() {
        let program = sums_of(&[&[0, 1, 2], &[0, 1, 3], &[0, 1, 4]]);
        assert_eq!(instructions(&program, 2), 6);
        assert_eq!(instructions(&share(&program, 2), 2), 4);
        // Three instructions with three inputs are as good as four with one shared.
        assert_eq!(share(&program, 3).ops().len(), program.ops().len());
    }

    #[test]
    fn a_common_triple_is_made_once() {
        let program = sums_of(&[&[0, 1, 2, 3, 4], &[0, 1, 2, 5, 6], &[0, 1, 2, 7, 8]]);
        assert_eq!(instructions(&program, 3), 6);
        assert_eq!(instructions(&share(&program, 3), 3), 4);
    }

    #[test]
    fn a_sum_within_another_is_reused() {
        let program = sums_of(&[&[0, 1, 2, 3, 4], &[0, 1, 2, 3, 4, 5, 6]]);
        assert_eq!(instructions(&program, 3), 5);
        assert_eq!(instructions(&share(&program, 3), 3), 3);
    }

    #[test]
    fn the_same_program_comes_out_every_time() {
        let program = random_program(&mut TestRng(7));
        assert_eq!(share(&program, 3).ops(), share(&program, 3).ops());
    }
}
