//! How a watch is, and what it tells.

use crate::guard::Held;
use crate::worker::Done;
use crate::world::Nanos;
use gabion_platform::event::EventLoss;

/// The note of the catalogue that says why the watch hears of every write on the whole file system.
pub(crate) const WIDE: &str = "wide watch";

/// How a watch is.
#[derive(Debug, Clone)]
pub struct Status {
    /// Where events come from.
    pub source: &'static str,
    /// Events of the tree that were heard of.
    pub events: u64,
    /// Changes that were recorded because of them.
    pub recorded: u64,
    /// How often events were lost.
    pub gaps: u64,
    /// Changes that are not protected yet, at most: those that the changelog had when it was last asked, and what was
    /// recorded since.
    pub pending: u64,
    /// When the oldest change happened that was not protected when the changelog was last asked.
    pub oldest: Option<Nanos>,
    /// When the last scan of everything ended.
    pub last_scan: Option<Nanos>,
    /// Scans, of everything or of parts.
    pub scans: u64,
    /// All that workers did.
    pub done: Done,
    /// What waits for an approval.
    pub held: Option<Held>,
    /// Why nothing goes on, if so.
    pub trouble: Option<String>,
    /// Why every write on the whole file system is heard of, if so: nothing is missed, but everyone who writes there pays.
    pub wide: Option<String>,
    /// Why changes cannot be recorded now, if so; a scan follows when they can.
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
            wide: None,
            unrecorded: None,
        }
    }

    /// How long ago the oldest change happened that is not protected yet.
    pub fn lag(&self, now: Nanos) -> Nanos {
        self.oldest.map_or(0, |oldest| now.saturating_sub(oldest).max(0))
    }

    /// Adds what workers did. Names of failures are told once and not kept.
    pub(super) fn add(&mut self, done: &Done) {
        let (failed, damaged, set_aside, spoilt) = Default::default();
        let (mended, changed, for_scan, inodes, write_once) = Default::default();
        let listed = Done { failed, damaged, set_aside, spoilt, mended, changed, ..done.clone() };
        let counted = Done { for_scan, inodes, write_once, ..listed };
        self.done = std::mem::take(&mut self.done).and(counted);
    }
}

/// A scan that ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scan {
    /// Where; the empty path is everything.
    pub within: Vec<Vec<u8>>,
    /// Files that are to be protected there.
    pub files: u64,
    /// How many of them changed, appeared or vanished.
    pub changes: u64,
    /// What could not be looked at, and why.
    pub unreadable: Vec<(Vec<u8>, String)>,
    /// Files of write-once rules that changed all the same.
    pub write_once: Vec<Vec<u8>>,
    /// How long it took.
    pub seconds: f64,
}

/// Something that people may want to hear of.
#[derive(Debug, Clone)]
pub enum Notice {
    /// The tree is watched.
    Armed {
        /// By what.
        source: &'static str,
        /// Why not by what would be better.
        instead: Option<String>,
        /// Mount points in the tree: nothing is heard from there, only scans see it.
        mounts: Vec<Vec<u8>>,
        /// Directories that cannot be watched, and why.
        unwatched: Vec<(Vec<u8>, String)>,
    },
    /// From now on every write on the whole file system is heard of, and why.
    Wide(String),
    /// Events were lost, and a scan was asked for.
    Gap(EventLoss),
    /// So many changes were recorded.
    Recorded(u64),
    /// A scan ended.
    Scanned(Scan),
    /// Workers did something.
    Worked(Box<Done>),
    /// Very many files vanished or changed at once: their redundancy stays until someone approves.
    Held(Held),
    /// What was held was approved or undone.
    Released,
    /// Another policy is in force.
    Policy,
    /// Nothing goes on for now, and why; it is tried again.
    Trouble(String),
}
