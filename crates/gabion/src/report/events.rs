//! Events of `watch`, `mount` and `daemon run`, one JSON object per line.

use super::{DamagedFile, FileFailure, FileRanges, HeldReport, PathName, Time, path_names};
use crate::compute;
use gabion_vault::monitor::{Notice, Status};
use gabion_vault::worker::Done;
use gabion_vault::world::Timestamp;
use serde::Serialize;
use std::path::Path;

/// An event.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A message.
    Message {
        /// The message.
        text: String,
    },
    /// A warning.
    Warning {
        /// The warning.
        text: String,
    },
    /// The watch receives events.
    WatchStarted {
        /// `fanotify` or `inotify`.
        source: &'static str,
        /// Why fanotify is not used.
        instead: Option<String>,
        /// Mount points in the tree, which have no events.
        mounts: Vec<PathName>,
        /// Directories without a watch.
        unwatched: Vec<FileFailure>,
    },
    /// The watch receives events of the whole file system.
    FilesystemWide {
        /// Why.
        why: String,
    },
    /// Events were lost.
    Gap {
        /// Why.
        why: String,
    },
    /// Changes were put into the changelog.
    Recorded {
        /// Number of changes.
        changes: u64,
    },
    /// A scan ended.
    Scanned {
        /// Scanned directories; an empty name stands for the whole tree.
        within: Vec<PathName>,
        /// Files seen.
        files: u64,
        /// Changes found.
        changes: u64,
        /// Directories and files that could not be read.
        unreadable: Vec<FileFailure>,
        /// Changed write-once files.
        write_once_changed: Vec<PathName>,
        /// Duration.
        seconds: f64,
    },
    /// A worker protected files.
    Worked(Box<WorkerReport>),
    /// A change-set is held.
    Held {
        /// The change-set.
        held: HeldReport,
    },
    /// The held change-set was approved or is gone.
    Released,
    /// The policy was reloaded.
    Policy,
    /// An operation failed and is tried again.
    Trouble {
        /// Why.
        why: String,
    },
    /// The watch or mount has stopped.
    Stopped(Box<LiveStatus>),
    /// A mount serves requests.
    Mounted {
        /// The directory, or the name of the pool.
        source: PathName,
        /// The mount point.
        mountpoint: PathName,
        /// The process.
        process: u32,
    },
    /// `auto` chose a device.
    Device {
        /// The choice.
        device: Box<compute::Report>,
    },
}

/// An event of a source of the daemon; events of the daemon itself have no name.
#[derive(Debug, Clone, Serialize)]
pub struct SourceEvent<'a> {
    /// The event.
    #[serde(flatten)]
    pub event: &'a Event,
    /// Name of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_name: Option<&'a str>,
}

impl Event {
    /// Of a mount that serves requests.
    pub fn mounted(source: &Path, mountpoint: &Path) -> Event {
        Event::Mounted {
            source: PathName::system(source),
            mountpoint: PathName::system(mountpoint),
            process: gabion_vault::world::process(),
        }
    }

    /// Of an event of the monitor.
    pub fn new(notice: &Notice) -> Event {
        match notice {
            Notice::WatchStarted { source, instead, mounts, unwatched } => Event::WatchStarted {
                source,
                instead: instead.clone(),
                mounts: path_names(mounts),
                unwatched: unwatched.iter().map(FileFailure::new).collect(),
            },
            Notice::FilesystemWide(why) => Event::FilesystemWide { why: why.clone() },
            Notice::Gap(loss) => Event::Gap { why: loss.words().to_owned() },
            Notice::Recorded(changes) => Event::Recorded { changes: *changes },
            Notice::Scanned(scan) => Event::Scanned {
                within: path_names(&scan.within),
                files: scan.files,
                changes: scan.changes,
                unreadable: scan.unreadable.iter().map(FileFailure::new).collect(),
                write_once_changed: path_names(&scan.write_once),
                seconds: scan.seconds,
            },
            Notice::Worked(done) => Event::Worked(Box::new(WorkerReport::new(done))),
            Notice::Held(held) => Event::Held { held: HeldReport::new(held) },
            Notice::Released => Event::Released,
            Notice::Policy => Event::Policy,
            Notice::Trouble(why) => Event::Trouble { why: why.clone() },
        }
    }
}

/// Results of workers.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerReport {
    encoded: u64,
    encoded_bytes: u64,
    adopted: u64,
    moved: u64,
    removed: u64,
    reduced_redundancy: u64,
    held: u64,
    stripes_encoded: u64,
    stripes_kept: u64,
    failures: u64,
    failed: Vec<FileFailure>,
    damaged: Vec<DamagedFile>,
    write_once_changed: Vec<PathName>,
    unrecoverable: Vec<FileRanges>,
    reconstructed: Vec<FileRanges>,
    changed_in_growth: Vec<FileRanges>,
}

impl WorkerReport {
    /// Of the result of a worker.
    pub fn new(done: &Done) -> WorkerReport {
        WorkerReport {
            encoded: done.encoded,
            encoded_bytes: done.encoded_bytes,
            adopted: done.adopted,
            moved: done.moved,
            removed: done.removed,
            reduced_redundancy: done.reduced_redundancy,
            held: done.held,
            stripes_encoded: done.stripes.0,
            stripes_kept: done.stripes.1,
            failures: done.failures,
            failed: done.failed.iter().map(FileFailure::new).collect(),
            damaged: done.damaged.iter().map(DamagedFile::new).collect(),
            write_once_changed: path_names(&done.write_once),
            unrecoverable: done.unrecoverable.iter().map(FileRanges::new).collect(),
            reconstructed: done.reconstructed.iter().map(FileRanges::new).collect(),
            changed_in_growth: done.changed.iter().map(FileRanges::new).collect(),
        }
    }
}

/// Status of a watch or mount.
#[derive(Debug, Clone, Serialize)]
pub struct LiveStatus {
    source: &'static str,
    events: u64,
    recorded: u64,
    gaps: u64,
    pending: u64,
    scans: u64,
    lag_seconds: f64,
    last_scan: Option<Time>,
    done: WorkerReport,
    held: Option<HeldReport>,
    trouble: Option<String>,
    filesystem_wide: Option<String>,
}

impl LiveStatus {
    /// Of a status at the time `now`.
    pub fn new(status: &Status, now: Timestamp) -> LiveStatus {
        LiveStatus {
            source: status.source,
            events: status.events,
            recorded: status.recorded,
            gaps: status.gaps,
            pending: status.pending,
            scans: status.scans,
            lag_seconds: status.lag(now).as_secs_f64(),
            last_scan: status.last_scan.map(Time),
            done: WorkerReport::new(&status.done),
            held: status.held.as_ref().map(HeldReport::new),
            trouble: status.trouble.clone(),
            filesystem_wide: status.filesystem_wide.clone(),
        }
    }
}
