//! Bit set that several threads may modify.

use std::sync::atomic::{AtomicU64, Ordering};

/// A fixed-size set of numbers.
#[derive(Debug, Default)]
pub(crate) struct AtomicBitSet(Vec<AtomicU64>);

impl AtomicBitSet {
    /// An empty set for numbers below `count`.
    pub(crate) fn with_len(count: u64) -> AtomicBitSet {
        AtomicBitSet((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let word = self.0.get((number / 64) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (number % 64) & 1 == 1)
    }

    /// Inserts a number; true if it was not in the set. Numbers beyond the size are ignored.
    pub(crate) fn insert(&self, number: u64) -> bool {
        let word = self.0.get((number / 64) as usize);
        let bit = 1 << (number % 64);
        word.is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::AtomicBitSet;

    #[test]
    fn inserted_numbers_are_contained_once() {
        let set = AtomicBitSet::with_len(70);
        assert!(set.insert(3) && set.insert(64) && !set.insert(3));
        let found: Vec<u64> = (0..70).filter(|&number| set.contains(number)).collect();
        assert_eq!(found, [3, 64]);
        assert!(!set.insert(128) && !set.contains(128), "beyond all");
    }
}
