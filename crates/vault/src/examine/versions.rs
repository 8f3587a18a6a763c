//! Detection of stale frames.
//!
//! A write that never reached the medium leaves frames of an older version: intact, with tables that agree with each
//! other, and in conflict with newer, correct data. The header's root, the sum of the checks of all frames,
//! distinguishes this from damaged data. If the sum differs from the root, some frames are stale. Which ones follows
//! from the checks that the stripes in conflict would have if their data were correct: only one selection of stripes
//! gives the root.
//!
//! The same sum confirms data without any frame: if the checks of its missing frames are exactly the difference to the
//! root, the data is correct.

use super::{ExamineError, Findings, ProtectedFile, StripeBuffer};
use crate::format::frame::{Check, check_of, encode_seals, toggle};

/// Maximum number of stripes in question. With more of them than bits in a sum the selection is not unique anyway.
const MAX_CONFLICTS: usize = 1024;

/// Sums of the checks that frames have, or should have according to the other frames of their stripe.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    parts: Vec<Sum>,
    conflicts: Vec<Conflict>,
    too_many: bool,
    /// Stripes without any frame, without limit.
    without_frames: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Sum {
    total: Check,
    /// The checks of all frames are known.
    known: bool,
    /// Change of the total if the data without frames is correct.
    without_frames: Check,
}

/// A stripe whose data contradicts its frames.
#[derive(Debug, Clone)]
struct Conflict {
    stripe: u64,
    /// Per redundancy file: change of the sum if the data is correct.
    deltas: Vec<Check>,
    /// The stripe has no frame, so that the sum does not include it yet.
    without_frames: bool,
}

impl Sums {
    pub(super) fn new(protected: &ProtectedFile) -> Sums {
        let sum = |part| Sum { total: [0; 16], known: protected.is_current(part), without_frames: [0; 16] };
        let parts = protected.parts.iter().map(sum).collect();
        Sums { parts, conflicts: Vec::new(), too_many: false, without_frames: Vec::new() }
    }

    /// Adds a stripe that was read in the strict mode.
    pub(super) fn take(
        &mut self,
        protected: &ProtectedFile,
        stripe: &StripeBuffer,
    ) -> Result<(), ExamineError> {
        let (k, number) = (protected.header.code.k(), stripe.stripe);
        let checks = stripe.frame_checks(protected);
        let (readable, has_frames) = (stripe.is_readable(k), stripe.has_seals(k));
        let without_frames = readable && !has_frames;
        for (sum, check) in self.parts.iter_mut().zip(&checks) {
            match check {
                Some(check) => toggle(&mut sum.total, check),
                None => sum.known &= without_frames,
            }
        }
        let contradicts = has_frames && (0..k).any(|column| !stripe.is_correct(column));
        if !readable || !(without_frames || contradicts) {
            return Ok(());
        }
        if self.conflicts.len() == MAX_CONFLICTS && !without_frames {
            self.too_many = true;
            return Ok(());
        }
        let mut trusted =
            StripeBuffer { stripe: number, blocks: stripe.blocks.clone(), ..StripeBuffer::default() };
        trusted.trust_data(&protected.coder)?;
        let mut deltas: Vec<Check> = vec![[0; 16]; checks.len()];
        for (delta, (is, would_be)) in
            deltas.iter_mut().zip(checks.iter().zip(trusted.frame_checks(protected)))
        {
            is.iter().chain(&would_be).for_each(|check| toggle(delta, check));
        }
        if without_frames {
            self.without_frames.push(number);
            self.parts
                .iter_mut()
                .zip(&deltas)
                .for_each(|(sum, delta)| toggle(&mut sum.without_frames, delta));
        }
        match self.conflicts.len() == MAX_CONFLICTS {
            true => self.too_many = true,
            false => self.conflicts.push(Conflict { stripe: number, deltas, without_frames }),
        }
        Ok(())
    }

    pub(super) fn and(mut self, other: Sums) -> Sums {
        for (sum, other) in self.parts.iter_mut().zip(&other.parts) {
            toggle(&mut sum.total, &other.total);
            toggle(&mut sum.without_frames, &other.without_frames);
            sum.known &= other.known;
        }
        self.too_many |= other.too_many || self.conflicts.len() + other.conflicts.len() > MAX_CONFLICTS;
        self.conflicts.extend(other.conflicts);
        self.without_frames.extend(other.without_frames);
        self
    }

    /// Marks stripes with stale frames in the findings, as far as they can be determined.
    pub(super) fn mark_stale(mut self, protected: &ProtectedFile, findings: &mut Findings) {
        self.conflicts.sort_by_key(|conflict| conflict.stripe);
        if !self.without_frames.is_empty() && self.data_without_frames_is_correct(protected) {
            return accept_data(self.without_frames.iter().copied(), protected, findings);
        }
        if self.conflicts.iter().any(|conflict| conflict.without_frames) {
            let chosen = self.selection(protected);
            let covers_all = |chosen: &Vec<bool>| {
                self.conflicts.iter().zip(chosen).all(|(it, yes)| *yes || !it.without_frames)
            };
            match chosen.filter(covers_all) {
                Some(chosen) => return accept_data(self.chosen(&chosen), protected, findings),
                None => {
                    // Then the sums decide nothing, and other stripes are judged by their own frames.
                    self.conflicts.retain(|conflict| !conflict.without_frames);
                    self.parts.iter_mut().for_each(|sum| sum.known = false);
                }
            }
        }
        match self.selection(protected) {
            Some(chosen) => accept_data(self.chosen(&chosen), protected, findings),
            None => findings.doubtful = true,
        }
    }

    /// True if the sums equal the roots when all data without frames is correct and all other frames are current: so it
    /// is after redundancy was truncated or overwritten.
    fn data_without_frames_is_correct(&self, protected: &ProtectedFile) -> bool {
        let fits = |(sum, part): (&Sum, &crate::redundancy::Part)| {
            let mut total = sum.total;
            toggle(&mut total, &sum.without_frames);
            total == part.header.root
        };
        let mut known = self.parts.iter().zip(&protected.parts).filter(|(sum, _)| sum.known).peekable();
        known.peek().is_some() && known.all(fits)
    }

    fn chosen(&self, chosen: &[bool]) -> impl Iterator<Item = u64> {
        let chosen = self.conflicts.iter().zip(chosen).filter(|(_, chosen)| **chosen);
        chosen.map(|(conflict, _)| conflict.stripe)
    }

    /// Selection of stripes whose data must be correct for the sums to equal the roots; none if it is not unique.
    fn selection(&self, protected: &ProtectedFile) -> Option<Vec<bool>> {
        let known: Vec<usize> = (0..self.parts.len()).filter(|&at| self.parts[at].known).collect();
        let mut difference = Vec::new();
        for &at in &known {
            let mut sum = self.parts[at].total;
            toggle(&mut sum, &protected.parts[at].header.root);
            difference.extend(sum);
        }
        if difference.iter().all(|&byte| byte == 0) {
            return Some(vec![false; self.conflicts.len()]);
        }
        let of = |conflict: &Conflict| known.iter().flat_map(|&at| conflict.deltas[at]).collect();
        let deltas: Vec<Vec<u8>> = self.conflicts.iter().map(of).collect();
        if self.too_many { None } else { unique_subset(&deltas, difference) }
    }
}

/// Treats the data of some stripes as correct.
fn accept_data(stripes: impl Iterator<Item = u64>, protected: &ProtectedFile, findings: &mut Findings) {
    for stripe in stripes {
        if let Ok(at) = findings.faults.binary_search_by_key(&stripe, |fault| fault.stripe) {
            let fault = &mut findings.faults[at];
            fault.data.clear();
            let held = (0..protected.header.code.m()).filter(|&column| protected.holds(column));
            fault.redundancy = held.collect();
            (fault.stale, fault.lost) = (true, false);
        }
    }
}

impl StripeBuffer {
    /// Per redundancy file: the sum of the checks that its frames of this stripe should have; none if it is unknown.
    fn frame_checks(&self, protected: &ProtectedFile) -> Vec<Option<Check>> {
        let (k, coder) = (protected.header.code.k(), &protected.coder);
        let data = self.data_seals(k);
        let of = |part: &crate::redundancy::Part| {
            let mut sum = [0; 16];
            for column in part.columns() {
                let own = self.seals[k + column]?;
                // Without the law, and for hashes, only the frame itself contains the expected value.
                let unknown = coder.is_strong() && own.hash.is_none();
                if unknown || (!coder.has_law() && !self.is_correct(k + column)) {
                    return None;
                }
                let table = encode_seals(data.as_ref()?, &own);
                toggle(&mut sum, &check_of(part.header.frame_key(), column, self.stripe, &table));
            }
            data.is_some().then_some(sum)
        };
        protected.parts.iter().map(of).collect()
    }
}

/// The subset of `deltas` whose sum is `difference`; none if no or several subsets match.
fn unique_subset(deltas: &[Vec<u8>], mut difference: Vec<u8>) -> Option<Vec<bool>> {
    let add = |to: &mut Vec<u8>, other: &[u8]| to.iter_mut().zip(other).for_each(|(to, other)| *to ^= other);
    let first_bit = |bytes: &[u8]| {
        let byte = bytes.iter().position(|&byte| byte != 0)?;
        Some(8 * byte + bytes[byte].leading_zeros() as usize)
    };
    let has_bit = |bytes: &[u8], bit: usize| bytes[bit / 8] & (0x80 >> (bit % 8)) != 0;
    // Gaussian elimination: rows in echelon form, each with the deltas that it is the sum of.
    let mut rows: Vec<(usize, Vec<u8>, Vec<bool>)> = Vec::new();
    for (number, delta) in deltas.iter().enumerate() {
        let mut row = delta.clone();
        let mut of: Vec<bool> = (0..deltas.len()).map(|at| at == number).collect();
        for (bit, other, others) in &rows {
            if has_bit(&row, *bit) {
                add(&mut row, other);
                of.iter_mut().zip(others).for_each(|(of, other)| *of ^= other);
            }
        }
        // A delta that is a sum of others could be included or not: not unique.
        let bit = first_bit(&row)?;
        rows.push((bit, row, of));
    }
    let mut chosen = vec![false; deltas.len()];
    for (bit, row, of) in &rows {
        if has_bit(&difference, *bit) {
            add(&mut difference, row);
            chosen.iter_mut().zip(of).for_each(|(chosen, of)| *chosen ^= of);
        }
    }
    difference.iter().all(|&byte| byte == 0).then_some(chosen)
}

#[cfg(test)]
mod tests {
    use super::unique_subset;

    #[test]
    fn a_choice_is_found_if_there_is_one() {
        let deltas: Vec<Vec<u8>> =
            (0..100u64).map(|number| blake3::hash(&number.to_le_bytes()).as_bytes()[..16].to_vec()).collect();
        for pattern in [1u128, 0b1010, (1 << 99) | 5, (1 << 100) - 1, 0x5555 << 60 | 0x1234_5678] {
            let wanted: Vec<bool> = (0..100).map(|at| pattern >> at & 1 == 1).collect();
            let mut sum = vec![0u8; 16];
            for (delta, _) in deltas.iter().zip(&wanted).filter(|(_, wanted)| **wanted) {
                sum.iter_mut().zip(delta).for_each(|(sum, delta)| *sum ^= delta);
            }
            assert_eq!(unique_subset(&deltas, sum.clone()), Some(wanted));
            sum[3] ^= 1;
            assert_eq!(unique_subset(&deltas, sum), None);
        }
    }

    #[test]
    fn ambiguous_choices_are_rejected() {
        let deltas = vec![vec![1, 0], vec![0, 2], vec![1, 2]];
        assert_eq!(unique_subset(&deltas, vec![1, 2]), None);
        assert_eq!(unique_subset(&[], vec![1, 2]), None);
        assert_eq!(unique_subset(&deltas[..2], vec![1, 2]), Some(vec![true, true]));
    }
}
