//! What changed and is not yet protected.
//!
//! A monitor records changes of paths; workers claim what is due, bring redundancy up to date, and complete. What
//! [`record`](Changelog::record) acknowledged stays until a worker completed it: a crash of the process, of a worker
//! or of the server repeats work and forgets nothing (as far as [`Durability`] goes).
//!
//! # Entries
//! There is at most one [`Entry`] per path: what is to be done there ([`Kind`]), which bytes changed, where
//! redundancy of the path may still lie (its *origin*), and when. Each change becomes part of it at once:
//!
//! | changes | become |
//! | --- | --- |
//! | write, write | one modification: overlapping and touching ranges are one, at most [`MAX_RANGES`] of them |
//! | create, delete | a deletion: the log does not know whether the file was ever protected |
//! | delete, write | a modification of the whole file: it is another file |
//! | rename `a` `b` | `b` moved from `a`, with the ranges that were pending for `a`; what was pending for `b` is gone |
//! | rename `a` `b`, rename `b` `c` | `c` moved from `a`; a deletion of `b`, where older redundancy may lie |
//! | rename `a` `b`, rename `b` `a` | `a` moved from `a` (look whether the redundancy there still fits); a deletion of `b` |
//! | rename `a` `b`, rename `c` `b` | `b` moved from `c`; a deletion of `a`, whose redundancy has no owner now |
//! | rename `a` `t`, `b` `a`, `t` `b` | `a` moved from `b`, `b` moved from `a`, a deletion of `t` |
//! | rename `a` `b`, create `a` | `b` moved from `a`, and a modification of the whole of `a` |
//! | rename `a` `b`, delete `b` | a deletion of `b` with origin `a` |
//! | rename of a directory `d` to `e` | `e` moved from `d`; each entry `d/x` becomes `e/x` with origin `d/x`; entries beneath `e` stay unless one of those takes their place |
//! | delete of a directory | one deletion; entries beneath are cancelled, and their origins outside of it deleted |
//! | delete `a`, rename `a` `b` | the deletion of `a`, and a gap at `b`: something was there again and nobody said what |
//! | gap, write | a gap: the scan reads the file anyway; entries beneath a gap stay |
//! | gap, delete | a deletion |
//! | gap `d`, rename `d` `e` | a gap at `e` with origin `d` |
//!
//! A deletion that is created for an origin never replaces an entry that is there already.
//!
//! Entries do not depend on the order in which they are worked on, if workers keep two rules: a deletion removes the
//! redundancy of what is *absent* at and beneath its path, and an origin is a place to look: redundancy found there
//! counts only if its header agrees with the file, else it is computed anew. The order of claims makes that rare.
//!
//! # Times
//! A modification is due when its file rested ([`When::due`]); each further change moves that on, up to
//! [`When::latest`] of the first. A rename leaves due times alone, a deletion has its own. A file keeps the highest
//! priority it was given.
//!
//! All times come from callers, whose clocks may jump:
//! - forward: entries are due and leases end early; fencing numbers keep out who lost its claim.
//! - back: a lease or a due time from the future (for due times, by more than [`CLOCK_TOLERANCE`]) is taken to
//!   begin at the time of the next claim. So nothing waits longer than it was meant to, counted from then.
//!
//! # Claims
//! [`claim`](Changelog::claim) gives due entries, highest priority first, then by due time, sequence and path. An
//! entry is in one worker's hands until its lease ends; whoever claims next, anything, ends all leases that ran out
//! by its clock. From then on the former worker is [refused](Error::Refused). Two claims never touch the same path or
//! origin, nor one a path beneath the other's, except that gaps touch nothing; an entry that has to wait for that
//! reason keeps its place before later ones that overlap with it.
//!
//! A claim goes up to [`Entry::sequence`]. What is recorded later is part of the entry, but outlives the completion.
//! A rename or a deletion of a directory takes the entry away from under the claim: the worker is refused, and until
//! it has heard that, or its lease ends, nobody else touches the path. A worker asks
//! [`still_mine`](Changelog::still_mine) right before it commits its result.
//!
//! # Engines
//! [`Embedded`] for one host, [`Redis`] for several, [`model::Model`] as the reference. [`conformance`] is the same
//! for all.

mod absent;
pub mod busy;
mod change;
mod codec;
pub mod conformance;
pub mod embedded;
mod entry;
mod error;
pub mod measure;
pub mod model;
pub mod queue;
mod ranges;
pub mod redis;

pub use self::redis::{Redis, Server};
pub use absent::Absent;
pub(crate) use change::is_within;
pub use change::{Change, MAX_PATH, What, When};
pub use embedded::Embedded;
pub use entry::{Claim, Completion, Durability, Entry, Kind, Memory, Sequence, Summary, WorkerId};
pub use error::{Error, PathFault, Refusal, Result};
pub use queue::Ticket;
pub use ranges::{MAX_RANGES, Ranges, WHOLE};

use crate::world::{Nanos, SECOND};

/// Most entries that one call of [`Changelog::claim`] gives.
pub const MAX_CLAIM: usize = 1024;

/// Most entries that one call of [`Changelog::entries`] gives.
pub const MAX_PAGE: usize = 4096;

/// How far clocks of hosts may differ before an entry from the future is taken for one that was recorded before the
/// clock was set back.
pub const CLOCK_TOLERANCE: Nanos = SECOND;

/// The memory of what is not yet protected; the contract is in the description of the [module](self).
///
/// Every method can fail with the errors of the engine: [`Error::Database`], [`Error::Busy`] and
/// [`Error::Damaged`], or [`Error::Away`], [`Error::Server`] and [`Error::Answer`].
pub trait Changelog: Send + Sync {
    /// Takes changes for recording, in order, without waiting until they are durable; waits only while
    /// [`queue::QUEUE_BYTES`] are on their way. An empty list gives a ticket for all that was taken before.
    ///
    /// # Errors
    /// A change that cannot be ([`Error::Path`], [`Error::Range`], [`Error::Nested`]): none of them is taken then.
    /// [`Error::Closed`].
    fn record_later(&self, changes: &[Change]) -> Result<Ticket>;

    /// Records changes: returns when they are durable, with the number of the last one.
    ///
    /// # Errors
    /// As [`record_later`](Changelog::record_later) and [`Ticket::wait`]. If the engine fails, it is not known
    /// whether the changes are recorded; recording them again would be wrong for a rename. Record a gap.
    fn record(&self, changes: &[Change]) -> Result<Sequence> {
        self.record_later(changes)?.wait()
    }

    /// Gives at most `limit` (and [`MAX_CLAIM`]) entries that are due `now` into the hands of `worker`, for
    /// `lease` nanoseconds.
    ///
    /// # Errors
    /// The engine's.
    fn claim(&self, worker: &WorkerId, limit: usize, lease: Nanos, now: Nanos) -> Result<Vec<Claim>>;

    /// Lets the lease end `lease` nanoseconds from `now`; even if it ran out, as long as nobody claimed since.
    ///
    /// # Errors
    /// [`Error::Refused`]: stop working on it. The engine's.
    fn renew(&self, claim: &mut Claim, lease: Nanos, now: Nanos) -> Result<()>;

    /// As [`renew`](Changelog::renew), for many at once: an engine may do it in one commit. Gives those that are refused.
    ///
    /// # Errors
    /// The engine's; then any of them may be renewed.
    fn renew_all(&self, claims: &[Claim], lease: Nanos, now: Nanos) -> Result<Vec<u64>> {
        let renew = |claim: &Claim| match self.renew(&mut claim.clone(), lease, now) {
            Err(Error::Refused { token, .. }) => Some(Ok(token)),
            Err(error) => Some(Err(error)),
            Ok(()) => None,
        };
        claims.iter().filter_map(renew).collect()
    }

    /// Would a completion be accepted now?
    ///
    /// # Errors
    /// The engine's.
    fn still_mine(&self, claim: &Claim) -> Result<bool>;

    /// The work is done: removes what was recorded up to the claim's sequence and nothing else.
    ///
    /// # Errors
    /// [`Error::Refused`]: the entry is with somebody else, or elsewhere, and stays due. The engine's.
    fn complete(&self, claim: &Claim) -> Result<Completion>;

    /// As [`still_mine`](Changelog::still_mine), for many at once.
    ///
    /// # Errors
    /// The engine's.
    fn which_are_mine(&self, claims: &[&Claim]) -> Result<Vec<bool>> {
        claims.iter().map(|claim| self.still_mine(claim)).collect()
    }

    /// As [`complete`](Changelog::complete), for many at once: an engine may do it in one commit. A claim that is refused does
    /// not keep the others from being completed.
    ///
    /// # Errors
    /// The engine's; then any of them may be completed.
    fn complete_all(&self, claims: &[&Claim]) -> Result<Vec<Result<Completion>>> {
        let complete = |claim: &&Claim| match self.complete(claim) {
            Err(error) if !matches!(error, Error::Refused { .. }) => Err(error),
            outcome => Ok(outcome),
        };
        claims.iter().map(complete).collect()
    }

    /// Ends the leases of workers that are known to be dead, as if they had run out; gives how many. An engine that does
    /// not know its workers lets leases run out by themselves.
    ///
    /// # Errors
    /// The engine's.
    fn bury(&self, is_dead: &dyn Fn(&WorkerId) -> bool) -> Result<u64> {
        let _ = is_dead;
        Ok(0)
    }

    /// The work failed: the whole entry is due again at `retry_at`, with one more attempt counted.
    ///
    /// # Errors
    /// [`Error::Refused`]. The engine's.
    fn release(&self, claim: &Claim, retry_at: Nanos, now: Nanos) -> Result<()>;

    /// Gives back claims on which no work was begun: the entries are due as they were, for any worker. An engine that cannot do
    /// that counts an attempt. A claim that is refused is somebody else's already.
    ///
    /// # Errors
    /// The engine's.
    fn give_back(&self, claims: &[&Claim], now: Nanos) -> Result<()> {
        claims.iter().try_for_each(|claim| match self.release(claim, claim.entry.due, now) {
            Err(Error::Refused { .. }) => Ok(()),
            released => released,
        })
    }

    /// How much is pending.
    ///
    /// # Errors
    /// The engine's.
    fn pending(&self) -> Result<Summary>;

    /// Whether anything may be claimed by a worker: an answer that costs the same however much is pending, where an engine can.
    ///
    /// # Errors
    /// The engine's.
    fn has_claims(&self) -> Result<bool> {
        Ok(self.pending()?.claimed > 0)
    }

    /// At most `limit` (and [`MAX_PAGE`]) entries in the order of their paths, those after `after`.
    ///
    /// # Errors
    /// The engine's.
    fn entries(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<Entry>>;

    /// Whether anything is pending for what is or was at a path, or for a directory above it. Looks at all that is pending.
    ///
    /// # Errors
    /// The engine's.
    fn is_pending(&self, path: &[u8]) -> Result<bool> {
        let mut after = None;
        loop {
            let page = self.entries(after.as_deref(), MAX_PAGE)?;
            let concerns = |place: &Vec<u8>| is_within(path, place);
            if page.iter().any(|entry| entry.origin.iter().chain([&entry.path]).any(concerns)) {
                return Ok(true);
            }
            let Some(last) = page.last() else { return Ok(false) };
            after = Some(last.path.clone());
        }
    }

    /// The number of the last change that was recorded, 0 if there was none.
    ///
    /// # Errors
    /// The engine's.
    fn sequence(&self) -> Result<Sequence>;

    /// By what a loss of recorded changes can be told. Nothing for an engine that has its files where the vault has its own.
    ///
    /// # Errors
    /// The engine's.
    fn memory(&self) -> Result<Option<Memory>> {
        Ok(None)
    }

    /// What an acknowledgment promises.
    fn durability(&self) -> Durability;
}
