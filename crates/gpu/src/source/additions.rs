//! Products of a block's rows with bits of a matrix, with shared subexpressions.

use super::Counts;
use super::text::{Text, line};

/// A row to which others are added.
pub(super) struct Sum {
    /// Its variable.
    pub(super) name: String,
    /// Mask of the added rows.
    pub(super) takes: u64,
    /// True if the variable is initialised; otherwise the sum is zero.
    pub(super) begun: bool,
}

/// Adds rows to sums. None of the sums is one of the rows.
pub(super) fn add(text: &mut Text, counts: &mut Counts, rows: &[String], sums: &mut [Sum]) {
    line!(text, "{{");
    // Eight rows at a time: shared sums are computed, used and dropped.
    for first in (0..rows.len()).step_by(EIGHT) {
        let eight = &rows[first..(first + EIGHT).min(rows.len())];
        let takes: Vec<u64> = sums.iter().map(|sum| sum.takes >> first & ((1 << eight.len()) - 1)).collect();
        let begun: Vec<bool> = sums.iter().map(|sum| sum.begun).collect();
        let fours = Shared::subsets(eight.len(), &takes);
        // A search pays for few products.
        let found = (sums.len() <= FEW).then(|| Shared::found(eight.len(), &takes));
        let shared = found.filter(|found| found.cost(&begun) < fours.cost(&begun)).unwrap_or(fours);
        line!(text, "{{");
        shared.write(text, counts, first, eight, sums);
        line!(text, "}}");
    }
    line!(text, "}}");
}

/// Rows that are processed together.
const EIGHT: usize = 8;

/// Maximum sums for which common terms are searched.
const FEW: usize = 40;

/// Maximum terms of a mask.
const MOST_TERMS: usize = 64;

/// Sums of rows with shared partial sums. Terms are numbered: rows first, then shared sums in order of computation.
struct Shared {
    rows: usize,
    /// Shared sums of two or three terms each, as masks.
    made: Vec<u64>,
    /// The terms of every sum.
    sums: Vec<u64>,
}

impl Shared {
    /// Computes the sums of all needed subsets of four rows ("four Russians"), so that no sum has more than two terms.
    fn subsets(rows: usize, takes: &[u64]) -> Shared {
        const PAIR: u64 = 3;
        const ALL: u64 = 15;
        let mut shared = Shared { rows, made: Vec::new(), sums: vec![0; takes.len()] };
        for low in (0..rows).step_by(4) {
            let wanted = |subset: u64| takes.iter().any(|takes| takes >> low & ALL == subset);
            let mut terms = [0; 16];
            for subset in 1..=ALL {
                let of_three = match subset {
                    // Four rows take one addition more than three.
                    ALL => terms[PAIR as usize] | (ALL ^ PAIR) << low,
                    _ => subset << low,
                };
                let needed = wanted(subset) || subset == PAIR && wanted(ALL);
                terms[subset as usize] = match subset.count_ones() {
                    1 => subset << low,
                    _ if needed => shared.make(of_three),
                    _ => 0,
                };
            }
            for (sum, takes) in shared.sums.iter_mut().zip(takes) {
                *sum |= terms[(takes >> low & ALL) as usize];
            }
        }
        shared
    }

    /// Extracts common terms while that pays: one addition for two or three terms, which saves half an addition or a
    /// whole one in every sum.
    fn found(rows: usize, takes: &[u64]) -> Shared {
        let mut shared = Shared { rows, made: Vec::new(), sums: takes.to_vec() };
        while rows + shared.made.len() < MOST_TERMS {
            let terms = rows + shared.made.len();
            let mut best = (0, 0);
            let mut try_out = |group: u64, gain_of: fn(usize) -> usize| {
                let users = shared.sums.iter().filter(|&&sum| sum & group == group).count();
                best = best.max((gain_of(users), group));
            };
            for a in 0..terms {
                for b in a + 1..terms {
                    // Gains in halves of an addition.
                    try_out(1 << a | 1 << b, |users| users.saturating_sub(2));
                    for c in b + 1..terms {
                        try_out(1 << a | 1 << b | 1 << c, |users| (2 * users).saturating_sub(2));
                    }
                }
            }
            let (gain, group) = best;
            if gain == 0 {
                break;
            }
            let term = shared.make(group);
            for sum in shared.sums.iter_mut().filter(|sum| **sum & group == group) {
                *sum = *sum ^ group | term;
            }
        }
        shared
    }

    /// A new term.
    fn make(&mut self, terms: u64) -> u64 {
        self.made.push(terms);
        1 << (self.rows + self.made.len() - 1)
    }

    /// Number of additions of up to three terms; an initialised sum counts as a term.
    fn cost(&self, begun: &[bool]) -> usize {
        let of_sum = |(sum, begun): (&u64, &bool)| (sum.count_ones() as usize + usize::from(*begun)) / 2;
        self.made.len() + self.sums.iter().zip(begun).map(of_sum).sum::<usize>()
    }

    fn write(&self, text: &mut Text, counts: &mut Counts, first: usize, rows: &[String], sums: &mut [Sum]) {
        let name = |term: usize| match rows.get(term) {
            Some(row) => row.clone(),
            None => format!("c{first}_{}", term - rows.len()),
        };
        let names = |terms: u64| (0..64).filter(move |term| terms >> term & 1 == 1).map(name);
        for (index, &terms) in self.made.iter().enumerate() {
            let terms: Vec<String> = names(terms).collect();
            line!(text, "const u32 c{first}_{index} = {};", total(&terms));
            counts.additions += 1;
        }
        for (sum, &terms) in sums.iter_mut().zip(&self.sums).filter(|(_, terms)| **terms != 0) {
            let mut rest: Vec<String> = names(terms).collect();
            while !rest.is_empty() {
                let mut terms: Vec<String> = sum.begun.then(|| sum.name.clone()).into_iter().collect();
                terms.extend(rest.drain(..(3 - terms.len()).min(rest.len())));
                line!(text, "{} = {};", sum.name, total(&terms));
                counts.additions += usize::from(terms.len() > 1);
                sum.begun = true;
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Expands shared sums to rows.
    fn expanded(shared: &Shared) -> Vec<u64> {
        let mut rows: Vec<u64> = (0..shared.rows).map(|row| 1 << row).collect();
        let of = |rows: &[u64], terms: u64| {
            (0..rows.len()).filter(|term| terms >> term & 1 == 1).fold(0, |sum, term| sum ^ rows[term])
        };
        for &terms in &shared.made {
            assert!((2..=3).contains(&terms.count_ones()));
            rows.push(of(&rows, terms));
        }
        shared.sums.iter().map(|&terms| of(&rows, terms)).collect()
    }

    #[test]
    fn shared_sums_are_the_sums() {
        let mut seed = 1u64;
        for (rows, count) in [(8, 8), (8, 32), (8, 128), (4, 4), (5, 10), (7, 21), (1, 3)] {
            for _ in 0..50 {
                let mut random = || {
                    seed =
                        seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    seed >> 40 & ((1 << rows) - 1)
                };
                let takes: Vec<u64> = (0..count).map(|_| random()).collect();
                for shared in [Shared::subsets(rows, &takes), Shared::found(rows, &takes)] {
                    assert_eq!(expanded(&shared), takes);
                }
            }
        }
    }

    /// For a product with one constant, computing all subsets of four costs more than it saves.
    #[test]
    fn single_products_are_searched_and_many_are_not() {
        let field = gabion_engine::Field::new(8).unwrap();
        let product = |factor: u64| {
            (0..8).map(move |row| (0..8).map(|bit| (field.mul(factor, 1 << bit) >> row & 1) << bit).sum())
        };
        let cost = |factors: std::ops::Range<u64>| {
            let takes: Vec<u64> = factors.flat_map(product).collect();
            let begun = vec![true; takes.len()];
            (Shared::found(8, &takes).cost(&begun), Shared::subsets(8, &takes).cost(&begun))
        };
        let (found, subsets) = cost(0x53..0x54);
        assert!(found < subsets, "{found} {subsets}");
        let (found, subsets) = cost(0x53..0x63);
        assert!(found > subsets, "{found} {subsets}");
    }
}
