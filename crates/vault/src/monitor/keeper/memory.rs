//! Detection of a changelog server that lost acknowledged changes.
//!
//! A server that restarts without its files, or with older ones, has lost pending entries and assigns sequence numbers
//! again. Only a scan finds the lost changes, and all state that refers to sequence numbers is invalid.

use super::{Keeper, MAX_POLL, Notice};
use crate::changelog::{self, Memory, Sequence};
use crate::worker::Scanned;
use crate::world::Stopwatch;
use std::sync::atomic::Ordering;

/// Last answer of the server, and when it was asked.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    said: Option<Memory>,
    asked: Option<Stopwatch>,
}

impl Keeper {
    /// Requests a full scan if the server has lost changes. Asked whenever work is due, and every few seconds.
    ///
    /// # Errors
    /// The server does not answer and work is due.
    pub(super) fn check_memory(&mut self, is_due: bool) -> changelog::Result<()> {
        let asked = self.remembered.asked.as_ref();
        let is_time = asked.is_none_or(|since| since.elapsed() >= MAX_POLL);
        if !is_due && !is_time {
            return Ok(());
        }
        self.remembered.asked = Some(Stopwatch::start());
        // Read before the server is asked: later acknowledgements may already use the new numbering.
        let acknowledged = self.shared.acknowledged.load(Ordering::Relaxed);
        let now = match self.vault.changelog.memory() {
            Ok(Some(now)) => now,
            // Without due work the error can wait.
            Err(_) if !is_due => return Ok(()),
            other => return other.map(drop),
        };
        let said = self.remembered.said.take();
        let is_lost = said.is_some_and(|said| {
            Memory { sequence: said.sequence.max(Sequence(acknowledged)), ..said }.is_lost(&now)
        });
        if is_lost {
            self.shared.acknowledged.store(now.sequence.0, Ordering::Relaxed);
            (self.scanned, self.passed, self.wants_scan) = (Scanned::default(), Sequence::default(), true);
            let why = "the server of the changelog has lost recorded changes: a full scan follows";
            (self.shared.notify)(&Notice::Trouble(why.to_owned()));
        }
        self.remembered.said = Some(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::changelog::{Memory, Sequence};

    #[test]
    fn another_identity_and_a_number_that_goes_back_are_losses() {
        let memory =
            |identity: &str, number| Memory { identity: identity.to_owned(), sequence: Sequence(number) };
        let before = memory("a", 7);
        assert!(!before.is_lost(&before) && !before.is_lost(&memory("a", 8)));
        assert!(before.is_lost(&memory("a", 6)) && before.is_lost(&memory("b", 7)));
        assert!(before.is_lost(&memory("b", 9)), "others recorded since it came back");
    }
}
