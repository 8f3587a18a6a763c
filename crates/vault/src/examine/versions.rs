//! Which version the frames are of.
//!
//! A write that never reached the medium leaves frames of an older version: whole, with tables that agree with each other, and at odds
//! with data that is newer and right. The header's root, the sum of the checks of all frames, tells them from damaged data. If the sum is
//! not what it should be, some frames are older; which ones follows from the checks that the stripes in question would have
//! if their data were right: exactly one choice of them makes the sum fit.
//!
//! The same sum vouches for data that no frame speaks of any more: if the checks that its frames would have are just what
//! the sum lacks, the data is what they were made of.

use super::{ExamineError, Findings, Stripe, Subject};
use crate::format::frame::{Check, check_of, encode_seals, toggle};

/// Stripes in question that are kept apart; with more of them than bits in a sum, the choice is not unique anyway.
const MAX_QUESTIONS: usize = 1024;

/// The sums of the checks that frames have, or should have by the other frames of their stripe.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    parts: Vec<Sum>,
    questions: Vec<Question>,
    too_many: bool,
    /// All stripes that no frame speaks of, however many.
    untold: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Sum {
    total: Check,
    /// What every frame should be is known.
    known: bool,
    /// What the total changes by if the data is right that no frame speaks of.
    untold: Check,
}

/// A stripe whose data is not what its frames say.
#[derive(Debug, Clone)]
struct Question {
    stripe: u64,
    /// Per redundancy file: what the sum changes by if the data is right.
    turns: Vec<Check>,
    /// No frame is left that says anything, so nothing of it is in the sum yet.
    untold: bool,
}

impl Sums {
    pub(super) fn new(subject: &Subject) -> Sums {
        let sum = |part| Sum { total: [0; 16], known: subject.is_current(part), untold: [0; 16] };
        let parts = subject.parts.iter().map(sum).collect();
        Sums { parts, questions: Vec::new(), too_many: false, untold: Vec::new() }
    }

    /// Takes in a stripe that was examined, with its blocks of `block` bytes. `readable`: all of its data could be read.
    pub(super) fn take(
        &mut self,
        subject: &Subject,
        stripe: &Stripe,
        number: u64,
        block: usize,
        readable: bool,
    ) -> Result<(), ExamineError> {
        let k = subject.header.code.k();
        let checks = stripe.checks(subject, number);
        let untold = readable && stripe.seals.is_none();
        for (sum, check) in self.parts.iter_mut().zip(&checks) {
            match check {
                Some(check) => toggle(&mut sum.total, check),
                None => sum.known &= untold,
            }
        }
        let is_told = stripe.seals.is_some() && stripe.good[..k].iter().any(|&good| !good);
        if !readable || !(untold || is_told) {
            return Ok(());
        }
        if self.questions.len() == MAX_QUESTIONS && !untold {
            self.too_many = true;
            return Ok(());
        }
        let trusted =
            Stripe { blocks: stripe.blocks.clone(), ..Stripe::default() }.trusting(subject, block)?;
        let mut turns: Vec<Check> = vec![[0; 16]; checks.len()];
        for (turn, (is, would_be)) in turns.iter_mut().zip(checks.iter().zip(trusted.checks(subject, number)))
        {
            is.iter().chain(&would_be).for_each(|check| toggle(turn, check));
        }
        if untold {
            self.untold.push(number);
            self.parts.iter_mut().zip(&turns).for_each(|(sum, turn)| toggle(&mut sum.untold, turn));
        }
        match self.questions.len() == MAX_QUESTIONS {
            true => self.too_many = true,
            false => self.questions.push(Question { stripe: number, turns, untold }),
        }
        Ok(())
    }

    pub(super) fn and(mut self, other: Sums) -> Sums {
        for (sum, other) in self.parts.iter_mut().zip(&other.parts) {
            toggle(&mut sum.total, &other.total);
            toggle(&mut sum.untold, &other.untold);
            sum.known &= other.known;
        }
        self.too_many |= other.too_many || self.questions.len() + other.questions.len() > MAX_QUESTIONS;
        self.questions.extend(other.questions);
        self.untold.extend(other.untold);
        self
    }

    /// Says of the findings which stripes have older frames than their header speaks of, where that can be known.
    pub(super) fn settle(mut self, subject: &Subject, findings: &mut Findings) {
        self.questions.sort_by_key(|question| question.stripe);
        if !self.untold.is_empty() && self.vouch_for_untold(subject) {
            return believe(self.untold.iter().copied(), subject, findings);
        }
        if self.questions.iter().any(|question| question.untold) {
            let chosen = self.choice(subject);
            let vouched =
                |chosen: &Vec<bool>| self.questions.iter().zip(chosen).all(|(it, yes)| *yes || !it.untold);
            match chosen.filter(vouched) {
                Some(chosen) => return believe(self.chosen(&chosen), subject, findings),
                None => {
                    // Of the sums nothing is known then; other stripes are judged by their own frames.
                    self.questions.retain(|question| !question.untold);
                    self.parts.iter_mut().for_each(|sum| sum.known = false);
                }
            }
        }
        match self.choice(subject) {
            Some(chosen) => believe(self.chosen(&chosen), subject, findings),
            None => findings.doubtful = true,
        }
    }

    /// Whether the sums are what headers say if all data is right that no frame speaks of, and all else as frames say: so it is if
    /// redundancy was cut off or overwritten.
    fn vouch_for_untold(&self, subject: &Subject) -> bool {
        let fits = |(sum, part): (&Sum, &crate::redundancy::Part)| {
            let mut total = sum.total;
            toggle(&mut total, &sum.untold);
            total == part.header.root
        };
        let mut known = self.parts.iter().zip(&subject.parts).filter(|(sum, _)| sum.known).peekable();
        known.peek().is_some() && known.all(fits)
    }

    fn chosen(&self, chosen: &[bool]) -> impl Iterator<Item = u64> {
        let chosen = self.questions.iter().zip(chosen).filter(|(_, chosen)| **chosen);
        chosen.map(|(question, _)| question.stripe)
    }

    /// Which questions have to be answered with yes for the sums to be what headers say; nothing if that cannot be known.
    fn choice(&self, subject: &Subject) -> Option<Vec<bool>> {
        let known: Vec<usize> = (0..self.parts.len()).filter(|&at| self.parts[at].known).collect();
        let mut difference = Vec::new();
        for &at in &known {
            let mut sum = self.parts[at].total;
            toggle(&mut sum, &subject.parts[at].header.root);
            difference.extend(sum);
        }
        if difference.iter().all(|&byte| byte == 0) {
            return Some(vec![false; self.questions.len()]);
        }
        let of = |question: &Question| known.iter().flat_map(|&at| question.turns[at]).collect();
        let turns: Vec<Vec<u8>> = self.questions.iter().map(of).collect();
        if self.too_many { None } else { the_only_choice(&turns, difference) }
    }
}

/// Takes the data of some stripes for right.
fn believe(stripes: impl Iterator<Item = u64>, subject: &Subject, findings: &mut Findings) {
    for stripe in stripes {
        if let Ok(at) = findings.faults.binary_search_by_key(&stripe, |fault| fault.stripe) {
            let fault = &mut findings.faults[at];
            fault.data.clear();
            let held = (0..subject.header.code.m()).filter(|&column| subject.holds(column));
            fault.redundancy = held.collect();
            (fault.stale, fault.lost) = (true, false);
        }
    }
}

impl Stripe {
    /// Per redundancy file: the sum of the checks that its frames of this stripe should have; nothing where that is not known.
    fn checks(&self, subject: &Subject, number: u64) -> Vec<Option<Check>> {
        let k = subject.header.code.k();
        let of = |part: &crate::redundancy::Part| {
            let seals = self.seals.as_ref()?;
            let mut sum = [0; 16];
            for column in part.columns() {
                let own = &seals[k + column];
                // Without the law only the frame itself says what it should be; of hashes there is none.
                let unknown = subject.coder.is_strong() && own.hash.is_none();
                if unknown || (!subject.coder.has_law() && !self.good[k + column]) {
                    return None;
                }
                toggle(
                    &mut sum,
                    &check_of(part.header.frame_key(), column, number, &encode_seals(&seals[..k], own)),
                );
            }
            Some(sum)
        };
        subject.parts.iter().map(of).collect()
    }

    /// The stripe as it is if its data is right, whatever frames say: redundancy is made anew from it.
    ///
    /// # Errors
    /// The code fails.
    pub fn trusting(mut self, subject: &Subject, block: usize) -> Result<Stripe, ExamineError> {
        let k = subject.header.code.k();
        let (data, redundancy) = self.blocks.split_at_mut(k * block);
        let data: Vec<&[u8]> = data.chunks_exact(block).collect();
        let mut outputs: Vec<&mut [u8]> = redundancy.chunks_exact_mut(block).collect();
        self.seals = Some(subject.coder.encode(&data, &mut outputs)?);
        self.good = vec![true; subject.header.code.blocks()];
        Ok(self)
    }
}

/// Which of the `turns` add up to `difference`; nothing if none or several choices do.
fn the_only_choice(turns: &[Vec<u8>], mut difference: Vec<u8>) -> Option<Vec<bool>> {
    let add = |to: &mut Vec<u8>, other: &[u8]| to.iter_mut().zip(other).for_each(|(to, other)| *to ^= other);
    let first_bit = |bytes: &[u8]| {
        let byte = bytes.iter().position(|&byte| byte != 0)?;
        Some(8 * byte + bytes[byte].leading_zeros() as usize)
    };
    let has_bit = |bytes: &[u8], bit: usize| bytes[bit / 8] & (0x80 >> (bit % 8)) != 0;
    // Gauss: rows in echelon form, each with the turns that it is the sum of.
    let mut rows: Vec<(usize, Vec<u8>, Vec<bool>)> = Vec::new();
    for (number, turn) in turns.iter().enumerate() {
        let mut row = turn.clone();
        let mut of: Vec<bool> = (0..turns.len()).map(|at| at == number).collect();
        for (bit, other, others) in &rows {
            if has_bit(&row, *bit) {
                add(&mut row, other);
                of.iter_mut().zip(others).for_each(|(of, other)| *of ^= other);
            }
        }
        // A turn that others add up to could be left out or taken in.
        let bit = first_bit(&row)?;
        rows.push((bit, row, of));
    }
    let mut chosen = vec![false; turns.len()];
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
    use super::the_only_choice;

    #[test]
    fn a_choice_is_found_if_there_is_one() {
        let turns: Vec<Vec<u8>> =
            (0..100u64).map(|number| blake3::hash(&number.to_le_bytes()).as_bytes()[..16].to_vec()).collect();
        for pattern in [1u128, 0b1010, (1 << 99) | 5, (1 << 100) - 1, 0x5555 << 60 | 0x1234_5678] {
            let wanted: Vec<bool> = (0..100).map(|at| pattern >> at & 1 == 1).collect();
            let mut sum = vec![0u8; 16];
            for (turn, _) in turns.iter().zip(&wanted).filter(|(_, wanted)| **wanted) {
                sum.iter_mut().zip(turn).for_each(|(sum, turn)| *sum ^= turn);
            }
            assert_eq!(the_only_choice(&turns, sum.clone()), Some(wanted));
            sum[3] ^= 1;
            assert_eq!(the_only_choice(&turns, sum), None);
        }
    }

    #[test]
    fn what_is_not_unique_is_no_choice() {
        let turns = vec![vec![1, 0], vec![0, 2], vec![1, 2]];
        assert_eq!(the_only_choice(&turns, vec![1, 2]), None);
        assert_eq!(the_only_choice(&[], vec![1, 2]), None);
        assert_eq!(the_only_choice(&turns[..2], vec![1, 2]), Some(vec![true, true]));
    }
}
