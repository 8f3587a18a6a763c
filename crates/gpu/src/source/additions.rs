//! Products of a block's rows with bits of a matrix: sums of subsets first, which all rows of the products share.

use super::Counts;
use super::text::{Text, line};
use std::ops::Range;

/// A row that others are added to.
pub(super) struct Sum {
    /// Its variable.
    pub(super) name: String,
    /// Which rows are added, a bit for each.
    pub(super) takes: u64,
    /// Whether it holds something already; otherwise it is zero, and its variable holds nothing.
    pub(super) begun: bool,
}

/// Adds rows to sums. None of the sums is one of the rows.
pub(super) fn add(text: &mut Text, counts: &mut Counts, rows: &[String], sums: &mut [Sum]) {
    line!(text, "{{");
    let fours: Vec<Range<usize>> =
        (0..rows.len()).step_by(4).map(|first| first..(first + 4).min(rows.len())).collect();
    // Two fours at a time: their sums are made, used and forgotten.
    for pair in fours.chunks(2) {
        line!(text, "{{");
        for four in pair {
            let wanted: Vec<usize> = sums.iter().map(|sum| subset(sum, four)).collect();
            make_subsets(text, counts, rows, four, &wanted);
        }
        for sum in sums.iter_mut() {
            let mut terms: Vec<String> = Vec::with_capacity(3);
            terms.extend(sum.begun.then(|| sum.name.clone()));
            terms.extend(pair.iter().filter_map(|four| subset_name(rows, four, subset(sum, four))));
            if terms.len() > usize::from(sum.begun) {
                line!(text, "{} = {};", sum.name, total(&terms));
                counts.additions += usize::from(terms.len() > 1);
                sum.begun = true;
            }
        }
        line!(text, "}}");
    }
    line!(text, "}}");
}

/// Which of four rows a sum takes.
fn subset(sum: &Sum, four: &Range<usize>) -> usize {
    (sum.takes >> four.start) as usize & ((1 << four.len()) - 1)
}

fn subset_name(rows: &[String], four: &Range<usize>, subset: usize) -> Option<String> {
    match subset.count_ones() {
        0 => None,
        1 => Some(rows[four.start + subset.trailing_zeros() as usize].clone()),
        _ => Some(format!("c{}_{subset}", four.start)),
    }
}

/// One addition per subset: of two or three rows, or of all four as two and a pair.
fn make_subsets(
    text: &mut Text,
    counts: &mut Counts,
    rows: &[String],
    four: &Range<usize>,
    wanted: &[usize],
) {
    const ALL: usize = 15;
    const PAIR: usize = 3;
    let is_wanted = |subset: usize| wanted.contains(&subset) || subset == PAIR && wanted.contains(&ALL);
    for subset in (3..=ALL).filter(|subset| subset.count_ones() > 1 && is_wanted(*subset)) {
        let mut terms: Vec<String> = Vec::with_capacity(3);
        let mut rest = subset;
        if subset == ALL {
            terms.extend(subset_name(rows, four, PAIR));
            rest ^= PAIR;
        }
        terms.extend((0..4).filter(|bit| rest >> bit & 1 == 1).map(|bit| rows[four.start + bit].clone()));
        line!(text, "const u32 c{}_{subset} = {};", four.start, total(&terms));
        counts.additions += 1;
    }
}

/// One to three terms.
fn total(terms: &[String]) -> String {
    match terms {
        [a] => a.clone(),
        [a, b] => format!("{a} ^ {b}"),
        _ => format!("x3({})", terms.join(", ")),
    }
}
