//! One bit for each of many things, set by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Things that were marked, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Marks(Vec<AtomicU64>);

impl Marks {
    /// None of so many things is marked.
    pub(crate) fn none_of(count: u64) -> Marks {
        Marks((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        let word = self.0.get((number / 64) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (number % 64) & 1 == 1)
    }

    /// Marks one; whether it was not marked before. What has no number stays unmarked.
    pub(crate) fn set(&self, number: u64) -> bool {
        let word = self.0.get((number / 64) as usize);
        let bit = 1 << (number % 64);
        word.is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::Marks;

    #[test]
    fn what_is_marked_is_marked_once_and_nothing_else_is() {
        let marks = Marks::none_of(70);
        assert!(marks.set(3) && marks.set(64) && !marks.set(3));
        let found: Vec<u64> = (0..70).filter(|&number| marks.has(number)).collect();
        assert_eq!(found, [3, 64]);
        assert!(!marks.set(128) && !marks.has(128), "beyond all");
    }
}
