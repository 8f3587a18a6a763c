//! Sets of byte ranges that changed in a file.

use std::ops::Range;

/// A change of the whole file, whatever its length is and will be.
pub const WHOLE: Range<u64> = 0..u64::MAX;

/// Most ranges one entry keeps. More are merged across the narrowest gaps, down to [`KEPT_RANGES`]: bytes that did not
/// change are then read again, and an entry stays small whatever a program writes.
pub const MAX_RANGES: usize = 1024;

/// What is left of more ranges than [`MAX_RANGES`]: to find the narrowest gaps is expensive.
pub const KEPT_RANGES: usize = 768;

/// Ranges of bytes: sorted, never empty, never touching each other, at most [`MAX_RANGES`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// No byte.
    pub fn new() -> Ranges {
        Ranges::default()
    }

    /// Every byte.
    pub fn whole() -> Ranges {
        Ranges(vec![WHOLE])
    }

    /// Adds `range`; what overlaps or touches becomes one. An empty range adds nothing.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let before = self.0.partition_point(|r| r.end < range.start);
        let after = self.0.partition_point(|r| r.start <= range.end);
        if before == after {
            self.0.insert(before, range);
            self.narrow();
        } else {
            let joined = range.start.min(self.0[before].start)..range.end.max(self.0[after - 1].end);
            self.0[before] = joined;
            self.0.drain(before + 1..after);
        }
    }

    /// Merges across the narrowest gaps, the first of equals, if there are too many.
    fn narrow(&mut self) {
        if self.0.len() <= MAX_RANGES {
            return;
        }
        let gap = |i: &usize| self.0[i + 1].start - self.0[*i].end;
        let mut gaps: Vec<usize> = (0..self.0.len() - 1).collect();
        gaps.sort_by_key(gap);
        gaps.truncate(self.0.len() - KEPT_RANGES);
        gaps.sort_unstable();
        // From behind, so that the numbers before stay.
        for at in gaps.into_iter().rev() {
            self.0[at].end = self.0[at + 1].end;
            self.0.remove(at + 1);
        }
    }

    /// True for every byte.
    pub fn is_whole(&self) -> bool {
        self.0 == [WHOLE]
    }

    /// True for no byte.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges in order.
    pub fn as_slice(&self) -> &[Range<u64>] {
        &self.0
    }
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Ranges {
        let mut all = Ranges::new();
        ranges.into_iter().for_each(|range| all.insert(range));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT_RANGES, MAX_RANGES, Ranges};

    fn of(ranges: &[(u64, u64)]) -> Ranges {
        ranges.iter().map(|&(start, end)| start..end).collect()
    }

    #[test]
    fn what_overlaps_or_touches_is_one() {
        assert_eq!(of(&[(10, 20), (30, 40), (20, 30)]).as_slice(), std::slice::from_ref(&(10..40)));
        assert_eq!(of(&[(10, 20), (30, 40), (15, 35)]).as_slice(), std::slice::from_ref(&(10..40)));
        assert_eq!(of(&[(30, 40), (10, 20), (0, 100)]).as_slice(), std::slice::from_ref(&(0..100)));
        assert_eq!(of(&[(5, 5), (30, 40), (10, 20)]).as_slice(), [10..20, 30..40]);
        assert!(of(&[(0, 7), (3, u64::MAX)]).is_whole());
    }

    #[test]
    fn too_many_are_merged_across_the_narrowest_gaps() {
        let start = |i: u64| i * 100;
        let mut ranges: Ranges = (0..MAX_RANGES as u64).map(|i| start(i)..start(i) + 10).collect();
        assert_eq!(ranges.as_slice().len(), MAX_RANGES);
        ranges.insert(start(900) + 15..start(900) + 20);
        assert_eq!(ranges.as_slice().len(), KEPT_RANGES);
        // The two around the new one are the narrowest; of equal gaps the first ones follow.
        let merged = (MAX_RANGES - KEPT_RANGES) as u64 - 1;
        assert_eq!(ranges.as_slice()[0], 0..start(merged) + 10);
        assert_eq!(ranges.as_slice()[1], start(merged + 1)..start(merged + 1) + 10);
        assert!(ranges.as_slice().contains(&(start(900)..start(901) + 10)));
    }
}
