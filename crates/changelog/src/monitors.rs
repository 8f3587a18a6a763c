//! Marks of monitors: processes that record changes, on any host.
//!
//! A monitor may have seen changes that it has not recorded yet. So before the first one it sets a mark, renews it
//! while it runs, and removes it when everything is recorded. A mark that was not renewed in time is *lost*, since its
//! monitor ended uncleanly, or its host does not reach the server. Whoever notices that first gives the mark up: in one
//! step the mark is removed and a gap for the whole tree is recorded, so that a scan finds what the monitor had seen.
//! Until the gap is worked off, the loss is listed.
//!
//! A monitor that finds its mark given up sets it again, with a gap for what it did meanwhile.
//!
//! Leases are counted by the clock of the server, since those of hosts may differ.

use crate::change::When;
use crate::entry::WorkerId;
use crate::error::Result;
use gabion_platform::world::Timestamp;
use std::time::Duration;

/// Time after its last renewal at which a mark is lost; less than a minute, which is the longest. A loss costs a scan
/// of the whole tree: it must not happen for a short disturbance of the network.
pub const MARK_LEASE: Duration = Duration::from_secs(20);

/// Kind of a monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MonitorKind {
    /// A mount: changes are made through it.
    Mount,
    /// A watch: it hears of changes.
    Watch,
}

impl MonitorKind {
    /// As it is shown.
    pub fn word(self) -> &'static str {
        match self {
            MonitorKind::Mount => "mount",
            MonitorKind::Watch => "watch",
        }
    }

    /// The kind with this word.
    pub fn of_word(word: &str) -> Option<MonitorKind> {
        [MonitorKind::Mount, MonitorKind::Watch].into_iter().find(|kind| kind.word() == word)
    }
}

/// A monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Monitor {
    /// Its name, which is never used again, with host and process.
    pub name: WorkerId,
    /// What it is.
    pub kind: MonitorKind,
    /// Time at which it began, by its clock.
    pub since: Timestamp,
}

/// State of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MonitorState {
    /// It is renewed.
    Running,
    /// It was not renewed for this time after its lease had ended, and nobody has given it up yet.
    Silent(Duration),
    /// It was given up, and the gap that was recorded then is not worked off.
    Lost,
}

/// A mark as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownMonitor {
    /// The monitor.
    pub monitor: Monitor,
    /// State of its mark.
    pub state: MonitorState,
}

/// Result of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// The mark was there.
    Kept,
    /// The mark was not there: it was given up, or the server lost it. It was set again, and a gap was recorded.
    Again,
}

/// The marks of a deployment; see the [module](self).
pub trait Monitors: Send + Sync {
    /// Sets the mark of a monitor. It is durable when this returns.
    ///
    /// # Errors
    /// The engine's.
    fn begin_monitor(&self, monitor: &Monitor, lease: Duration) -> Result<()>;

    /// Lets the lease of a mark end `lease` from now. If the mark is not there, sets it and records a gap with these
    /// times.
    ///
    /// # Errors
    /// The engine's.
    fn renew_monitor(&self, monitor: &Monitor, lease: Duration, gap: When) -> Result<Renewed>;

    /// Removes the mark of a monitor that has recorded everything.
    ///
    /// # Errors
    /// The engine's.
    fn end_monitor(&self, monitor: &Monitor) -> Result<()>;

    /// Gives up lost marks, and those of monitors that are certainly dead: removes each and records a gap with these
    /// times, in one step. Returns the monitors. A server that was started less than `lease` ago gives up only dead
    /// ones: nobody could renew before.
    ///
    /// # Errors
    /// The engine's.
    fn give_up_monitors(
        &self,
        is_dead: &dyn Fn(&WorkerId) -> bool,
        lease: Duration,
        gap: When,
    ) -> Result<Vec<Monitor>>;

    /// All marks and losses, in the order of the monitors' names.
    ///
    /// # Errors
    /// The engine's.
    fn known_monitors(&self) -> Result<Vec<KnownMonitor>>;
}
