//! Status and notices of a watch.

use crate::guard::Held;
use crate::retry::Failure;
use crate::worker::Done;
use crate::world::Timestamp;
use gabion_platform::event::EventLoss;
use std::time::Duration;

/// Catalogue note with the reason why the watch receives events of the whole file system.
pub(crate) const FILESYSTEM_WIDE: &str = "wide watch";

/// Status of a watch.
#[derive(Debug, Clone)]
pub struct Status {
    /// Name of the event source.
    pub source: &'static str,
    /// Events received from the tree.
    pub events: u64,
    /// Changes recorded in the changelog.
    pub recorded: u64,
    /// Number of event losses.
    pub gaps: u64,
    /// Upper bound of unprotected changes: those in the changelog when it was last read, plus those recorded since.
    pub pending: u64,
    /// Time of the oldest change that was unprotected when the changelog was last read.
    pub oldest: Option<Timestamp>,
    /// End of the last full scan.
    pub last_scan: Option<Timestamp>,
    /// Number of full and partial scans.
    pub scans: u64,
    /// Sum of the workers' results.
    pub done: Done,
    /// Change-set that waits for an approval.
    pub held: Option<Held>,
    /// Error that stops all work for now.
    pub trouble: Option<String>,
    /// Reason why the watch receives events of the whole file system. No event is missed, but all writers there are
    /// slowed down.
    pub filesystem_wide: Option<String>,
    /// Error that prevents the record of changes; a scan follows once they can be recorded.
    pub unrecorded: Option<String>,
}

impl Status {
    pub(super) fn new(source: &'static str) -> Status {
        Status {
            source,
            events: 0,
            recorded: 0,
            gaps: 0,
            pending: 0,
            oldest: None,
            last_scan: None,
            scans: 0,
            done: Done::default(),
            held: None,
            trouble: None,
            filesystem_wide: None,
            unrecorded: None,
        }
    }

    /// Age of the oldest unprotected change.
    pub fn lag(&self, now: Timestamp) -> Duration {
        self.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest))
    }

    /// Adds results of workers, without their lists: these are reported once.
    pub(super) fn add(&mut self, done: &Done) {
        let (failed, damaged, set_aside, unrecoverable) = Default::default();
        let (reconstructed, changed, for_scan, inodes, write_once) = Default::default();
        let listed =
            Done { failed, damaged, set_aside, unrecoverable, reconstructed, changed, ..done.clone() };
        let counted = Done { for_scan, inodes, write_once, ..listed };
        self.done = std::mem::take(&mut self.done).and(counted);
    }
}

/// Result of a scan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scan {
    /// Scanned paths; the empty path is the whole tree.
    pub within: Vec<Vec<u8>>,
    /// Files there that are to be protected.
    pub files: u64,
    /// Files that changed, appeared or were deleted.
    pub changes: u64,
    /// Paths that could not be read, with reasons.
    pub unreadable: Vec<(Vec<u8>, Failure)>,
    /// Write-once files that changed.
    pub write_once: Vec<Vec<u8>>,
    /// Duration.
    pub seconds: f64,
}

/// Notice of a watch.
#[derive(Debug, Clone)]
pub enum Notice {
    /// The watch receives events.
    WatchStarted {
        /// Name of the event source.
        source: &'static str,
        /// Reason why the preferred source is not used.
        instead: Option<String>,
        /// Mount points in the tree: no events are received from there, only scans cover them.
        mounts: Vec<Vec<u8>>,
        /// Directories that cannot be watched, with reasons.
        unwatched: Vec<(Vec<u8>, String)>,
    },
    /// The watch now receives events of the whole file system, for this reason.
    FilesystemWide(String),
    /// Events were lost and a scan was requested.
    Gap(EventLoss),
    /// Number of changes that were recorded.
    Recorded(u64),
    /// A scan ended.
    Scanned(Scan),
    /// Workers processed entries.
    Worked(Box<Done>),
    /// The guard holds a change-set; its redundancy stays until an approval.
    Held(Held),
    /// The held change-set was approved or reverted.
    Released,
    /// Another policy is in force.
    Policy,
    /// An error stops all work for now; it is retried.
    Trouble(String),
}
