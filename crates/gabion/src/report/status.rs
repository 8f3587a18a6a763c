//! Report of `gabion status`.

use super::work::KnownWorkerReport;
use super::{
    ClassReport, FileAmount, HeldReport, OverdueReport, PathName, ProblemReport, SharedReport, Time, changes,
    path_names, path_text,
};
use gabion_vault::catalogue::State;
use gabion_vault::changelog::KnownWorker;
use gabion_vault::changelog::monitors::{KnownMonitor, Monitor, MonitorState};
use gabion_vault::degraded::Record;
use gabion_vault::guard::Judgement;
use gabion_vault::promises::VaultPromise;
use gabion_vault::replaced::Run;
use gabion_vault::status::{Affected, Status};
use gabion_vault::storage::pool::Mirrors;
use gabion_vault::storage::{Target, TargetState};
use gabion_vault::vault::Vault;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// `gabion status`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "status")]
pub struct StatusReport<'a> {
    root: PathName,
    storage: &'static str,
    matrix: Vec<MatrixCell>,
    pending: PendingReport,
    held: Option<HeldReport>,
    approved: Option<String>,
    changes: Option<ClassReport>,
    degraded: Vec<AffectedFile>,
    damaged: Vec<AffectedFile>,
    lost: Vec<AffectedFile>,
    last_protect: Option<Time>,
    last_scrub: Option<Time>,
    never_scrubbed: u64,
    scrub_overdue: OverdueReport,
    data_bytes: u64,
    redundancy_bytes: u64,
    targets: Vec<TargetReport>,
    mirrors: Option<&'a Mirrors>,
    survives: Vec<VaultPromise>,
    degraded_reads: Option<DegradedReads<'a>>,
    write_once_changed: Vec<PathName>,
    changed_in_growth: Vec<GrownFile>,
    replaced: Option<Vec<KeptRun>>,
    displaced: Option<FileAmount>,
    shared: Option<SharedReport>,
    user_policy_warnings: usize,
    filesystem_wide: Option<&'a str>,
    daemon: Option<&'a Value>,
    workers: Option<Vec<KnownWorkerReport>>,
    monitors: Vec<MonitorReport>,
}

/// Files with a configured and an actual number of redundancy blocks per stripe.
#[derive(Debug, Serialize)]
struct MatrixCell {
    configured: u32,
    actual: u32,
    files: u64,
    bytes: u64,
}

/// Changes that are not protected yet.
#[derive(Debug, Serialize)]
struct PendingReport {
    files: u64,
    bytes: u64,
    queued: u64,
    oldest: Option<Time>,
}

/// A file that is degraded, damaged or lost.
#[derive(Debug, Serialize)]
struct AffectedFile {
    #[serde(flatten)]
    path: PathName,
    problems: Vec<ProblemReport>,
}

/// A target.
#[derive(Debug, Serialize)]
struct TargetReport {
    name: String,
    domain: String,
    state: TargetState,
    free: Option<u64>,
    total: Option<u64>,
}

/// A mount or a watch of a deployment.
#[derive(Debug, Serialize)]
struct MonitorReport {
    host: String,
    process: Option<u32>,
    kind: &'static str,
    since: Time,
    state: &'static str,
}

/// Degraded reads that were served.
#[derive(Debug, Serialize)]
struct DegradedReads<'a> {
    reads: u64,
    blocks: u64,
    bytes: u64,
    last: Time,
    targets: &'a BTreeMap<String, u64>,
}

impl<'a> DegradedReads<'a> {
    fn new(record: &'a Record) -> DegradedReads<'a> {
        let Record { reads, blocks, bytes, last, targets } = record;
        DegradedReads { reads: *reads, blocks: *blocks, bytes: *bytes, last: Time(*last), targets }
    }
}

/// A run of repair whose replaced content is kept.
#[derive(Debug, Serialize)]
struct KeptRun {
    at: Time,
    files: u64,
    bytes: u64,
}

impl KeptRun {
    fn new(run: &Run) -> KeptRun {
        KeptRun { at: Time(run.at), files: run.files, bytes: run.bytes }
    }
}

/// A file that grew and also changed in older blocks.
#[derive(Debug, Serialize)]
struct GrownFile {
    #[serde(flatten)]
    path: PathName,
    /// Number of ranges.
    ranges: u64,
}

impl<'a> StatusReport<'a> {
    /// Of a status, of what the daemon says about the vault, and of the workers that the changelog knows.
    pub fn new(
        vault: &Vault,
        status: &'a Status,
        daemon: Option<&'a Value>,
        workers: Option<&[KnownWorker]>,
    ) -> StatusReport<'a> {
        let cell = |(&(configured, actual), &(files, bytes)): (&(u32, u32), &(u64, u64))| MatrixCell {
            configured,
            actual,
            files,
            bytes,
        };
        let affected = |state: State| {
            let of_state = status.affected.iter().filter(|it| it.state == state);
            of_state.map(AffectedFile::new).collect()
        };
        let grown =
            |(path, ranges): &(Vec<u8>, u64)| GrownFile { path: PathName::new(path), ranges: *ranges };
        StatusReport {
            root: PathName::system(&vault.root),
            storage: vault.storage.kind(),
            matrix: status.matrix.iter().map(cell).collect(),
            pending: PendingReport {
                files: status.pending.0,
                bytes: status.pending.1,
                queued: status.queued,
                oldest: status.oldest.map(Time),
            },
            held: status.held().map(HeldReport::new),
            approved: status.judgement.as_ref().and_then(Judgement::approved).map(ToString::to_string),
            changes: status.changes().map(changes),
            degraded: affected(State::Degraded),
            damaged: affected(State::Damaged),
            lost: affected(State::Lost),
            last_protect: status.last_protect.map(Time),
            last_scrub: status.last_scrub.map(Time),
            never_scrubbed: status.never_scrubbed,
            scrub_overdue: OverdueReport::new(&status.overdue),
            data_bytes: status.data_bytes,
            redundancy_bytes: status.redundancy_bytes,
            targets: status.targets.iter().map(TargetReport::new).collect(),
            mirrors: status.mirrors.as_ref(),
            survives: status.promises(vault),
            degraded_reads: status.degraded_reads.as_ref().map(DegradedReads::new),
            write_once_changed: path_names(status.write_once()),
            changed_in_growth: status.changed_in_growth.iter().map(grown).collect(),
            replaced: status.replaced.as_deref().map(|runs| runs.iter().map(KeptRun::new).collect()),
            user_policy_warnings: status.user_policies,
            displaced: status.displaced.map(FileAmount::new),
            shared: status.shared.map(SharedReport::new),
            filesystem_wide: status.filesystem_wide.as_deref(),
            daemon,
            // Unknown while the changelog's server is away.
            workers: workers.map(|workers| workers.iter().map(KnownWorkerReport::new).collect()),
            monitors: status.monitors.iter().map(MonitorReport::new).collect(),
        }
    }
}

impl MonitorReport {
    fn new(known: &KnownMonitor) -> MonitorReport {
        let Monitor { name, kind, since } = &known.monitor;
        MonitorReport {
            host: name.host().to_owned(),
            process: name.process(),
            kind: kind.word(),
            since: Time(*since),
            state: match known.state {
                MonitorState::Running => "running",
                MonitorState::Silent(_) => "silent",
                MonitorState::Lost => "lost",
            },
        }
    }
}

impl AffectedFile {
    fn new(affected: &Affected) -> AffectedFile {
        let problems = affected.problems.iter().map(ProblemReport::new).collect();
        AffectedFile { path: PathName::new(&affected.path), problems }
    }
}

impl TargetReport {
    fn new(target: &Target) -> TargetReport {
        TargetReport {
            name: path_text(&target.name),
            domain: target.domain.clone(),
            state: target.state,
            free: target.space.map(|it| it.0),
            total: target.space.map(|it| it.1),
        }
    }
}
