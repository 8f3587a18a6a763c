//! Lists of stripe numbers, kept as ranges: a shard that is bad from end to end takes two numbers.

use serde::{Serialize, Serializer};
use std::fmt;

/// Most ranges in a message.
const SHOWN: usize = 8;

/// Stripe numbers in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StripeList(Vec<(u64, u64)>);

impl StripeList {
    /// Adds a stripe, which is not before any other in the list.
    pub fn push(&mut self, stripe: u64) {
        match self.0.last_mut() {
            Some((_, last)) if stripe <= *last => {}
            Some((_, last)) if stripe == *last + 1 => *last = stripe,
            _ => self.0.push((stripe, stripe)),
        }
    }

    /// Whether a stripe is in the list.
    pub fn contains(&self, stripe: u64) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= stripe);
        after > 0 && self.0[after - 1].1 >= stripe
    }

    /// Number of stripes.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for StripeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", if self.count() == 1 { "stripe " } else { "stripes " })?;
        for (place, (first, last)) in self.0.iter().take(SHOWN).enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        if self.0.len() > SHOWN { write!(f, ", … up to {}", self.0[self.0.len() - 1].1) } else { Ok(()) }
    }
}

/// As pairs of the first and the last stripe of each range.
impl Serialize for StripeList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_read_well() {
        let mut list = StripeList::default();
        [5, 9, 10, 11, 11, 40].into_iter().for_each(|stripe| list.push(stripe));
        assert_eq!((list.to_string().as_str(), list.count()), ("stripes 5, 9-11, 40", 5));
        let inside: Vec<u64> = (0..50).filter(|&stripe| list.contains(stripe)).collect();
        assert_eq!(inside, [5, 9, 10, 11, 40]);
    }
}
