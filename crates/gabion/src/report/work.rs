//! Reports of workers: `gabion work --follow`, `--drain`, `--resume`, `--list` and limits of hosts.

use super::{PathName, Time};
use gabion_vault::changelog::tasks::{Amounts, KnownTask};
use gabion_vault::changelog::{ALL_HOSTS, KnownWorker, Limits};
use gabion_vault::portions::work_name;
use gabion_vault::vault::Vault;
use gabion_vault::worker::Batch;
use gabion_vault::world::{host, process};
use serde::Serialize;
use std::collections::BTreeMap;

/// An event of `gabion work --follow`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WorkEvent {
    /// The worker is known to the changelog.
    Started {
        /// Host of the worker.
        host: String,
        /// Process of the worker.
        process: u32,
        /// The protected tree.
        root: PathName,
    },
    /// A batch of claims was worked off.
    Worked(BatchReport),
    /// A file could not be protected; given again only if the reason changes.
    Failed {
        /// The file.
        #[serde(flatten)]
        path: PathName,
        /// Reason.
        why: String,
    },
    /// A file is damaged and keeps its redundancy.
    Damaged {
        /// The file.
        #[serde(flatten)]
        path: PathName,
    },
    /// A write-once file changed and keeps its redundancy.
    WriteOnceChanged {
        /// The file.
        #[serde(flatten)]
        path: PathName,
    },
    /// Changes wait for an approval.
    Held {
        /// Number of files.
        files: u64,
    },
    /// The worker cannot work, and tries again.
    Interrupted {
        /// Reason.
        why: String,
    },
    /// The worker works again.
    Continued {
        /// Duration of the interruption.
        seconds: f64,
    },
    /// The host is draining: the worker claims nothing.
    Draining,
    /// The host is not draining any more.
    Resumed,
    /// The worker ended.
    Stopped(BatchReport),
}

impl WorkEvent {
    /// Of a worker of this process.
    pub fn started(vault: &Vault) -> WorkEvent {
        WorkEvent::Started { host: host(), process: process(), root: PathName::system(&vault.root) }
    }

    /// Of a failed file.
    pub fn failed(path: &[u8], why: String) -> WorkEvent {
        WorkEvent::Failed { path: PathName::new(path), why }
    }

    /// Of a damaged file.
    pub fn damaged(path: &[u8]) -> WorkEvent {
        WorkEvent::Damaged { path: PathName::new(path) }
    }

    /// Of a write-once file.
    pub fn write_once_changed(path: &[u8]) -> WorkEvent {
        WorkEvent::WriteOnceChanged { path: PathName::new(path) }
    }
}

/// Counts of what a worker did.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct BatchReport {
    encoded: u64,
    encoded_bytes: u64,
    adopted: u64,
    moved: u64,
    removed: u64,
    helped: u64,
    helped_bytes: u64,
}

impl From<Batch> for BatchReport {
    fn from(batch: Batch) -> BatchReport {
        let Batch { encoded, encoded_bytes, adopted, moved, removed, helped, helped_bytes } = batch;
        BatchReport { encoded, encoded_bytes, adopted, moved, removed, helped, helped_bytes }
    }
}

/// `gabion work --list`, `--drain`, `--resume`, `--set-limits` and `--remove-limits`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "command", rename = "work")]
pub struct WorkersReport {
    draining_hosts: Vec<String>,
    limits: Vec<HostLimitsReport>,
    tasks: Vec<KnownTaskReport>,
    workers: Vec<KnownWorkerReport>,
}

impl WorkersReport {
    /// Of the known workers, the tasks that they share, the draining hosts and the limits of hosts.
    pub fn new(
        workers: &[KnownWorker],
        tasks: &[KnownTask],
        draining_hosts: Vec<String>,
        limits: &BTreeMap<String, Limits>,
    ) -> WorkersReport {
        WorkersReport {
            draining_hosts,
            limits: limits.iter().map(|(host, limits)| HostLimitsReport::new(host, *limits)).collect(),
            tasks: tasks.iter().map(KnownTaskReport::new).collect(),
            workers: workers.iter().map(KnownWorkerReport::new).collect(),
        }
    }
}

/// Limits of a host.
#[derive(Debug, Clone, Serialize)]
pub struct HostLimitsReport {
    /// None for all hosts that have no limits of their own.
    host: Option<String>,
    /// Bytes per second.
    rate: Option<u64>,
    workers_at_once: Option<u32>,
}

impl HostLimitsReport {
    /// Of a host or of [`ALL_HOSTS`].
    pub fn new(host: &str, Limits { rate, at_once }: Limits) -> HostLimitsReport {
        let host = (host != ALL_HOSTS).then(|| host.to_owned());
        HostLimitsReport { host, rate, workers_at_once: at_once }
    }
}

/// Work that several workers share.
#[derive(Debug, Clone, Serialize)]
pub struct KnownTaskReport {
    work: &'static str,
    host: String,
    seconds: f64,
    files: u64,
    bytes: u64,
    all_files: u64,
    all_bytes: u64,
    /// Expected rest of the time; none while too little is done.
    seconds_left: Option<f64>,
    hosts: Vec<String>,
}

impl KnownTaskReport {
    /// Of a known task.
    pub fn new(known: &KnownTask) -> KnownTaskReport {
        let Amounts { files, bytes, all_files, all_bytes } = known.amounts;
        let mut hosts: Vec<String> = known.workers.iter().map(|it| it.host().to_owned()).collect();
        hosts.dedup();
        KnownTaskReport {
            work: work_name(known.kind),
            host: known.owner.host().to_owned(),
            seconds: known.age.as_secs_f64(),
            files,
            bytes,
            all_files,
            all_bytes,
            seconds_left: seconds_left(known),
            hosts,
        }
    }
}

/// Expected rest of the time of a task: the rest takes as long as what is done, by bytes if they are known.
pub fn seconds_left(known: &KnownTask) -> Option<f64> {
    let Amounts { files, bytes, all_files, all_bytes } = known.amounts;
    let (done, all) = if all_bytes > 0 { (bytes, all_bytes) } else { (files, all_files) };
    (done > 0 && done <= all).then(|| known.age.as_secs_f64() * (all - done) as f64 / done as f64)
}

/// A worker that is known or holds claims.
#[derive(Debug, Clone, Serialize)]
pub struct KnownWorkerReport {
    host: String,
    process: Option<u32>,
    claims: u64,
    since: Time,
    resident: bool,
    draining: bool,
}

impl KnownWorkerReport {
    /// Of a known worker.
    pub fn new(known: &KnownWorker) -> KnownWorkerReport {
        KnownWorkerReport {
            host: known.worker.host().to_owned(),
            process: known.worker.process(),
            claims: known.claims,
            since: Time(known.since),
            resident: known.attends,
            draining: known.is_draining,
        }
    }
}
