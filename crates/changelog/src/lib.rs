//! Changelog: durable queue of changes that are not yet protected.
//!
//! A monitor records changes of paths; workers claim the entries that are due, bring redundancy up to date, and
//! complete them. A change that [`record`](Changelog::record) acknowledged stays until a worker completed it: a crash
//! of the process, of a worker or of the server repeats work and loses no change (within the limits of
//! [`Durability`]).
//!
//! # Entries
//! There is at most one [`Entry`] per path: the work to do ([`Kind`]), the bytes that changed, the place where
//! redundancy of the path may still lie (its *origin*), and times. Changes merge as they are recorded:
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
//! | delete `a`, rename `a` `b` | the deletion of `a`, and a gap at `b`: a file was at `a` again without a recorded change |
//! | gap, write | a gap: the scan reads the file anyway; entries beneath a gap stay |
//! | gap, delete | a deletion |
//! | gap `d`, rename `d` `e` | a gap at `e` with origin `d` |
//!
//! A deletion that is created for an origin never replaces an entry that is there already.
//!
//! Entries can be processed in any order if workers keep two rules. A deletion removes the redundancy of what is
//! *absent* at and beneath its path. An origin is a hint: redundancy found there counts only if its header agrees
//! with the file, otherwise it is computed again. The order of claims makes that rare.
//!
//! # Versions
//! A modification may name the versions of the file before and after it ([`Span`]): then nothing but its range was
//! written between the two. The entry has the span from the first version to the last one as long as each change begins
//! with the version with which the one before it ended, otherwise the span of the last change. A worker that finds the
//! file at the last version, and redundancy of the first one, needs to read no more than the ranges. Names of versions
//! are opaque here; one that stands for no version at all holds a span open.
//!
//! # Times
//! A modification is due when its file rested ([`When::due`]); each further change moves that on, up to
//! [`When::latest`] of the first. A rename leaves due times alone, a deletion has its own. A file keeps the highest
//! priority it was given.
//!
//! All times come from callers. A server stores them by its own clock, so hosts whose clocks differ understand each
//! other. Clocks may jump:
//! - forward: entries are due and leases end early; fencing numbers refuse workers that lost their claims.
//! - back: a lease or a due time from the future (for due times, by more than [`CLOCK_TOLERANCE`]) is treated as if
//!   it began at the time of the next claim. So nothing waits longer than intended, counted from then.
//!
//! # Claims
//! [`claim`](Changelog::claim) returns due entries, highest priority first, then by due time, sequence and path. One
//! worker holds an entry until its lease ends; the next claim of any worker ends all leases that ran out by its
//! clock. From then on the former worker is [refused](Error::Refused). Two claims never touch the same path or
//! origin, nor paths beneath each other, except that gaps touch nothing; an entry that has to wait for that reason
//! keeps its place before later ones that overlap with it.
//!
//! A claim covers changes up to [`Entry::sequence`]. Later changes are part of the entry, but stay after its
//! completion. A rename or a deletion of a directory moves the entry away during the claim: the worker is refused,
//! and no other worker touches the path before it was refused or its lease ended. A worker calls
//! [`still_mine`](Changelog::still_mine) right before it commits its result.
//!
//! # Workers
//! A worker that asks by [`claim_share`](Changelog::claim_share) gets its fair share of what is due while other workers
//! are known, and nothing while its host is [draining](Changelog::set_draining) or as many workers of its host are at
//! work as the [limits](Changelog::set_limits) of the host allow.
//!
//! # Tasks
//! Workers of several hosts share large pieces of work as [`tasks`].
//!
//! # Monitors
//! A server keeps a mark of each monitor of a deployment, so that an unclean end is noticed: [`monitors`].
//!
//! # Windows
//! Ranges that mounts of several hosts wrote count if versions join and all mounts have recorded everything:
//! [`windows`].
//!
//! # Engines
//! [`Embedded`] (SQLite) for one host; `Redis` (feature `redis`, on by default) for several. The feature `testing` adds
//! `model::Model`, a readable reference in memory, `conformance`, the suite that every engine passes, and `measure`.

#![forbid(unsafe_code)]

mod absent;
pub mod busy;
mod change;
mod codec;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod database;
pub mod embedded;
mod entry;
mod error;
pub mod journal;
mod limits;
#[cfg(feature = "testing")]
pub mod measure;
#[cfg(feature = "testing")]
pub mod model;
pub mod monitors;
pub mod queue;
mod ranges;
#[cfg(feature = "redis")]
pub mod redis;
pub mod server;
mod share;
pub mod tasks;
pub mod windows;

#[cfg(feature = "redis")]
pub use self::redis::{Redis, address::remember_password};
pub use absent::Absent;
pub use change::{Change, MAX_PATH, Span, VersionName, What, When, Window, is_within};
pub use embedded::Embedded;
pub use entry::{Claim, Completion, Durability, Entry, Kind, Memory, Sequence, Summary, WorkerId};
pub use error::{Error, PathFault, Refusal, Result, ServerError};
pub use journal::Journal;
pub use limits::{ALL_HOSTS, Allowance, Limits};
pub use monitors::Monitors;
pub use queue::Ticket;
pub use ranges::{KEPT_RANGES, MAX_RANGES, Ranges, WHOLE};
pub use server::Server;
pub use share::{Ask, KnownWorker, Share, WORKER_TERM};
pub use tasks::Tasks;
pub use windows::Windows;

use gabion_platform::world::{SECOND, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// Without Redis no password is needed.
#[cfg(not(feature = "redis"))]
pub fn remember_password(_url: &str) {}

/// Most entries that one call of [`Changelog::claim`] gives.
pub const MAX_CLAIM: usize = 1024;

/// Most entries that one call of [`Changelog::entries`] gives.
pub const MAX_PAGE: usize = 4096;

/// Largest difference between clocks of hosts that is left alone, in nanoseconds. An entry from further in the future
/// was recorded before the clock was set back.
pub const CLOCK_TOLERANCE: Duration = SECOND;

/// A changelog; the contract is in the description of the [crate](self).
///
/// Every method can fail with the errors of the engine: [`Error::Database`], [`Error::Busy`] and
/// [`Error::Damaged`], or [`Error::Away`], [`Error::Server`] and [`Error::Answer`].
pub trait Changelog: Send + Sync {
    /// Queues changes for recording, in order, without waiting until they are durable; waits only while
    /// [`queue::QUEUE_BYTES`] are queued. An empty list returns a ticket for everything that was queued before.
    ///
    /// # Errors
    /// An invalid change ([`Error::Path`], [`Error::Range`], [`Error::Nested`]): none of them is queued then.
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

    /// Claims at most `limit` (and [`MAX_CLAIM`]) entries that are due `now` for `worker`, for the time `lease`.
    ///
    /// # Errors
    /// The engine's.
    fn claim(&self, worker: &WorkerId, limit: usize, lease: Duration, now: Timestamp) -> Result<Vec<Claim>>;

    /// Claims what is pending at exactly these paths (at most [`MAX_CLAIM`] of them), even before it is due, and
    /// even if the worker's host is draining: somebody wants these files now. Paths at which nothing is pending are
    /// ignored. Also returns the paths that other claims keep from being claimed now.
    ///
    /// # Errors
    /// The engine's.
    fn claim_paths(
        &self,
        worker: &WorkerId,
        paths: &[Vec<u8>],
        lease: Duration,
        now: Timestamp,
    ) -> Result<(Vec<Claim>, Vec<Vec<u8>>)>;

    /// As [`claim`](Changelog::claim), but grants a fair share of what is due if other workers are known: see [`Ask`].
    /// An engine that knows no workers grants everything.
    ///
    /// # Errors
    /// The engine's.
    fn claim_share(&self, ask: &Ask<'_>, now: Timestamp) -> Result<Share> {
        let claims = self.claim(ask.worker, ask.limit, ask.lease, now)?;
        Ok(Share { claims, ..Share::default() })
    }

    /// Gives a sign of life of an attending worker, which is known from then on for [`WORKER_TERM`]. True if its host
    /// is draining.
    ///
    /// # Errors
    /// The engine's.
    fn attend(&self, worker: &WorkerId, now: Timestamp) -> Result<bool>;

    /// True if the worker's host is draining.
    ///
    /// # Errors
    /// The engine's.
    fn is_draining(&self, worker: &WorkerId) -> Result<bool>;

    /// Forgets an attending worker. Its claims stay.
    ///
    /// # Errors
    /// The engine's.
    fn leave(&self, worker: &WorkerId) -> Result<()>;

    /// Workers that attend or hold claims, in the order of their names.
    ///
    /// # Errors
    /// The engine's.
    fn workers(&self, now: Timestamp) -> Result<Vec<KnownWorker>>;

    /// From now on workers of a host get no claims, or get them again. Durable.
    ///
    /// # Errors
    /// The engine's.
    fn set_draining(&self, host: &str, is_draining: bool) -> Result<()>;

    /// Hosts that are draining, in order, also those without workers.
    ///
    /// # Errors
    /// The engine's.
    fn draining_hosts(&self) -> Result<Vec<String>>;

    /// Sets the limits of a host, or of [`ALL_HOSTS`], or removes them. Durable.
    ///
    /// # Errors
    /// The engine's.
    fn set_limits(&self, host: &str, limits: Option<Limits>) -> Result<()>;

    /// All limits that were set, by host.
    ///
    /// # Errors
    /// The engine's.
    fn limits(&self) -> Result<BTreeMap<String, Limits>>;

    /// The limits of a worker's host, and how many of its workers share them now.
    ///
    /// # Errors
    /// The engine's.
    fn allowance(&self, worker: &WorkerId) -> Result<Allowance>;

    /// Lets the lease end `lease` after `now`; even after it ran out, unless another worker claimed since.
    ///
    /// # Errors
    /// [`Error::Refused`]: stop working on it. The engine's.
    fn renew(&self, claim: &mut Claim, lease: Duration, now: Timestamp) -> Result<()>;

    /// As [`renew`](Changelog::renew), for many at once: an engine may do it in one commit. Returns the tokens of
    /// those that are refused.
    ///
    /// # Errors
    /// The engine's; then any of them may be renewed.
    fn renew_all(&self, claims: &[Claim], lease: Duration, now: Timestamp) -> Result<Vec<u64>> {
        let renew = |claim: &Claim| match self.renew(&mut claim.clone(), lease, now) {
            Err(Error::Refused { token, .. }) => Some(Ok(token)),
            Err(error) => Some(Err(error)),
            Ok(()) => None,
        };
        claims.iter().filter_map(renew).collect()
    }

    /// True if a completion would be accepted now.
    ///
    /// # Errors
    /// The engine's.
    fn still_mine(&self, claim: &Claim) -> Result<bool>;

    /// The work is done: removes what was recorded up to the claim's sequence and nothing else.
    ///
    /// # Errors
    /// [`Error::Refused`]: another worker has the entry, or it was moved; it stays due. The engine's.
    fn complete(&self, claim: &Claim) -> Result<Completion>;

    /// As [`still_mine`](Changelog::still_mine), for many at once.
    ///
    /// # Errors
    /// The engine's.
    fn which_are_mine(&self, claims: &[&Claim]) -> Result<Vec<bool>> {
        claims.iter().map(|claim| self.still_mine(claim)).collect()
    }

    /// As [`complete`](Changelog::complete), for many at once: an engine may do it in one commit. A claim that is
    /// refused does not keep the others from being completed.
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

    /// Ends the leases of dead workers, as if they had run out; returns their number. An engine that does not know
    /// its workers does nothing.
    ///
    /// # Errors
    /// The engine's.
    fn expire_dead_workers(&self, is_dead: &dyn Fn(&WorkerId) -> bool) -> Result<u64> {
        let _ = is_dead;
        Ok(0)
    }

    /// The work failed: the whole entry is due again at `retry_at`, with one more attempt counted.
    ///
    /// # Errors
    /// [`Error::Refused`]. The engine's.
    fn release(&self, claim: &Claim, retry_at: Timestamp, now: Timestamp) -> Result<()>;

    /// Gives back claims on which no work was begun: the entries are due as before, for any worker. An engine that
    /// cannot do that counts an attempt. A refused claim belongs to another worker already.
    ///
    /// # Errors
    /// The engine's.
    fn give_back(&self, claims: &[&Claim], now: Timestamp) -> Result<()> {
        claims.iter().try_for_each(|claim| match self.release(claim, claim.entry.due, now) {
            Err(Error::Refused { .. }) => Ok(()),
            released => released,
        })
    }

    /// Sums of what is pending.
    ///
    /// # Errors
    /// The engine's.
    fn pending(&self) -> Result<Summary>;

    /// Whether anything may be claimed by a worker: an answer that costs the same however much is pending, where an
    /// engine can.
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

    /// True if anything is pending for the file that is or was at a path, or for a directory above it. Reads all
    /// entries.
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

    /// Identity by which a loss of recorded changes is noticed; none for an engine whose files lie beside those of
    /// the vault.
    ///
    /// # Errors
    /// The engine's.
    fn memory(&self) -> Result<Option<Memory>> {
        Ok(None)
    }

    /// Removes all that is pending, all claims and the journal, when a changelog on a server is given up or taken into
    /// use again. Files of an embedded changelog are removed instead.
    ///
    /// # Errors
    /// The engine's.
    fn forget_all(&self) -> Result<()> {
        Ok(())
    }

    /// The journal of the deployment; none for an engine of one host.
    fn journal(&self) -> Option<&dyn Journal> {
        None
    }

    /// Work that several workers share; none for an engine of one host, whose threads share it.
    fn tasks(&self) -> Option<&dyn Tasks> {
        None
    }

    /// Marks of the monitors of a deployment; none for an engine of one host, whose monitors leave marks in files.
    fn monitors(&self) -> Option<&dyn Monitors> {
        None
    }

    /// Ranges that mounts of several hosts wrote; none for an engine of one host.
    fn windows(&self) -> Option<&dyn Windows> {
        None
    }

    /// What an acknowledgment guarantees.
    fn durability(&self) -> Durability;
}

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
