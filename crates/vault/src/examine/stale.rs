//! Which stripes have redundancy that is older than their data: a write was lost.
//!
//! Such frames are right by themselves, and say that the data is damaged. The header knows better: its root is the sum (XOR) of
//! the checks of all frames as they should be. For every stripe that looks as if its data were damaged, this computes the
//! checks that its frames would have if the data were right, and what that would change of the sum. Those stripes are stale
//! whose changes together lead from the sum that was found to the root: a system of linear equations over GF(2), with 128 of
//! them for each redundancy file, so that chance solves it once in 2^128.

use super::{ExamineError, Findings, Stripe, StripeFault, Subject};
use crate::format::Frame;
use crate::format::frame::{Seal, table_bytes, toggle};
use crate::redundancy::Part;
use std::collections::BTreeMap;

/// Stripes that are told apart; of more it is only found out whether all are stale.
const MAX_UNKNOWN: usize = 128;

/// One number for each redundancy file.
type Sums = Vec<u128>;

/// Finds the stripes whose redundancy is stale, and puts the blame on that.
pub(super) fn settle(subject: &Subject, findings: &mut Findings, roots: &[Seal]) -> Result<(), ExamineError> {
    // A frame that is damaged spoils the sum, and an older redundancy file has a root of its own.
    let comparable = subject.parts.iter().all(|part| subject.is_current(part));
    if !comparable || findings.faults.iter().any(|fault| !fault.redundancy.is_empty()) {
        return Ok(());
    }
    let number = |bytes: &[u8; 16]| u128::from_le_bytes(*bytes);
    let goal: Sums = subject
        .parts
        .iter()
        .zip(roots)
        .map(|(part, root)| number(&part.header.root) ^ number(root))
        .collect();
    let (mut deltas, mut stripes) = (Vec::new(), Vec::new());
    for (at, fault) in findings.faults.iter().enumerate() {
        if let Some(delta) = change_if_right(subject, fault)? {
            deltas.push(delta);
            stripes.push(at);
        }
    }
    let Some(stale) = solve(&deltas, goal) else { return Ok(()) };
    let held: Vec<usize> = (0..subject.header.code.m()).filter(|&column| subject.holds(column)).collect();
    for (_, &at) in stale.iter().zip(&stripes).filter(|(stale, _)| **stale) {
        let StripeFault { stripe, .. } = findings.faults[at];
        findings.faults[at] =
            StripeFault { stripe, data: Vec::new(), redundancy: held.clone(), lost: false, stale: true };
    }
    findings.stale_root = false;
    Ok(())
}

/// What would change of the sums if the data of this stripe were right; nothing if not all of it can be read.
fn change_if_right(subject: &Subject, fault: &StripeFault) -> Result<Option<Sums>, ExamineError> {
    let run = subject.cut().run(fault.stripe, 1);
    let mut stripe = Stripe::default();
    stripe.read_records(subject, &run);
    let mut sums = vec![[0; 16]; subject.parts.len()];
    stripe.examine(subject, &run, 0, &mut sums)?;
    if !stripe.trust_data(subject, &run)? {
        return Ok(None);
    }
    let Some(seals) = &stripe.seals else { return Ok(None) };
    let k = subject.header.code.k();
    let mut frame = vec![0; run.block as usize + table_bytes(k)];
    for (Part { header, .. }, sum) in subject.parts.iter().zip(&mut sums) {
        for column in header.first..header.first + header.columns {
            let (data, own) = (&seals[..k], &seals[k + column]);
            toggle(sum, &Frame::seal(&mut frame, header.id, column, fault.stripe, data, own));
        }
    }
    Ok(Some(sums.iter().map(|sum| u128::from_le_bytes(*sum)).collect()))
}

/// Which of the deltas add up to the goal; nothing if none do, or if there is more than one answer.
fn solve(deltas: &[Sums], goal: Sums) -> Option<Vec<bool>> {
    let add =
        |sums: &mut Sums, other: &Sums| sums.iter_mut().zip(other).for_each(|(sum, other)| *sum ^= other);
    if deltas.len() > MAX_UNKNOWN {
        let mut all = vec![0; goal.len()];
        deltas.iter().for_each(|delta| add(&mut all, delta));
        return (all == goal).then(|| vec![true; deltas.len()]);
    }
    // Each with a leading bit of its own, and which deltas it consists of.
    let mut basis: BTreeMap<(usize, u32), (Sums, u128)> = BTreeMap::new();
    let leading = |sums: &Sums| {
        let at = sums.iter().position(|&sum| sum != 0)?;
        Some((at, sums[at].leading_zeros()))
    };
    for (at, delta) in deltas.iter().enumerate() {
        let (mut sums, mut made_of) = (delta.clone(), 1u128 << at);
        while let Some((known, of)) = basis.get(&leading(&sums)?) {
            add(&mut sums, known);
            made_of ^= of;
        }
        basis.insert(leading(&sums)?, (sums, made_of));
    }
    let (mut left, mut made_of) = (goal, 0);
    while let Some(bit) = leading(&left) {
        let (known, of) = basis.get(&bit)?;
        add(&mut left, known);
        made_of ^= of;
    }
    Some((0..deltas.len()).map(|at| made_of >> at & 1 == 1).collect())
}

#[cfg(test)]
mod tests {
    use super::{MAX_UNKNOWN, solve};

    #[test]
    fn the_one_answer_is_found_and_no_other() {
        let deltas: Vec<Vec<u128>> = [3, 5, 9, 1 << 100].map(|delta| vec![delta, delta << 7]).to_vec();
        let goal = vec![3 ^ 9, (3 ^ 9) << 7];
        assert_eq!(solve(&deltas, goal), Some(vec![true, false, true, false]));
        assert_eq!(solve(&deltas, vec![0, 0]), Some(vec![false; 4]));
        assert_eq!(solve(&deltas, vec![3, 3]), None, "no sum of these");
        let dependent: Vec<Vec<u128>> = [3, 5, 6].map(|delta| vec![delta]).to_vec();
        assert_eq!(solve(&dependent, vec![3]), None, "two answers");
        let many: Vec<Vec<u128>> = (1..=MAX_UNKNOWN as u128 + 2).map(|delta| vec![delta]).collect();
        let all = many.iter().fold(0, |sum, delta| sum ^ delta[0]);
        assert_eq!(solve(&many, vec![all]), Some(vec![true; many.len()]));
        assert_eq!(solve(&many, vec![all ^ 1]), None);
    }
}
