//! Reports of `gabion pool`.

use super::{FileFailure, PathName, Time};
use gabion_vault::pool_rebuild::survey::{FileHealth, PoolOverview};
use gabion_vault::pool_rebuild::{self, FileError, Plan, PlannedFile, RebuildReport, TargetFill};
use gabion_vault::storage::pool::config::{Config, TargetName};
use gabion_vault::storage::pool::stub::Stub;
use gabion_vault::storage::pool::{DirectoryEntry, HealReport, Orphan, Status, Sweep};
use gabion_vault::tree::Kind;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// `gabion pool create`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "pool create")]
pub struct CreateReport<'a> {
    /// Nothing was changed.
    pub dry_run: bool,
    /// The pool.
    pub pool: &'a Config,
}

/// `gabion pool add`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "pool add")]
pub struct AddReport<'a> {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Name of the target.
    pub target: &'a str,
    /// Its failure domain.
    pub domain: &'a str,
    /// Its directory.
    pub path: &'a str,
}

/// `gabion pool retire` without a rebuild.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "pool retire")]
pub struct RetireReport<'a> {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Name of the target.
    pub target: &'a str,
}

/// `gabion pool forget`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "pool forget")]
pub struct ForgetTargetReport<'a> {
    /// Name of the target.
    pub target: &'a str,
}

/// `gabion pool balance`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "pool balance")]
pub struct BalanceReport<'a> {
    dry_run: bool,
    targets: Vec<FillReport<'a>>,
    planned_bytes: u64,
    files: u64,
    bytes: u64,
    failed: Vec<FileFailure>,
    stopped: bool,
}

/// How full a target was before.
#[derive(Debug, Serialize)]
struct FillReport<'a> {
    name: &'a str,
    used: u64,
    goal: u64,
    room: u64,
}

impl<'a> BalanceReport<'a> {
    /// Of the result of a run.
    pub fn new(report: &'a pool_rebuild::BalanceReport, dry_run: bool) -> BalanceReport<'a> {
        let fill =
            |it: &'a TargetFill| FillReport { name: &it.name, used: it.used, goal: it.goal, room: it.room };
        BalanceReport {
            dry_run,
            targets: report.before.iter().map(fill).collect(),
            planned_bytes: report.planned,
            files: report.files,
            bytes: report.bytes,
            failed: report.failed.iter().map(FileFailure::new).collect(),
            stopped: report.stopped,
        }
    }
}

/// `gabion pool put`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "pool put")]
pub struct PutReport<'a> {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Files and links.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Vaults that were left out.
    pub left_out: u64,
    /// Errors of single files.
    pub failed: &'a [String],
}

/// `gabion pool get`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "pool get")]
pub struct GetReport<'a> {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Files and links.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files with reconstructed blocks.
    pub degraded: usize,
    /// Errors of single files.
    pub failed: &'a [String],
}

/// `gabion pool rm`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "pool rm")]
pub struct RemoveReport<'a> {
    /// Nothing was changed.
    pub dry_run: bool,
    /// The removed files.
    pub removed: &'a [String],
    /// Errors of single files.
    pub failed: &'a [String],
}

/// `gabion pool mv`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "pool mv")]
pub struct MoveReport<'a> {
    /// Nothing was changed.
    pub dry_run: bool,
    /// The former name.
    pub from: &'a str,
    /// The new name.
    pub to: &'a str,
}

/// `gabion pool ls`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "pool ls")]
pub struct ListReport<'a> {
    /// What is listed.
    pub entries: &'a [EntryReport],
    /// Errors of single files.
    pub failed: &'a [String],
}

/// A directory entry.
#[derive(Debug, Serialize)]
pub struct EntryReport {
    #[serde(flatten)]
    path: PathName,
    kind: &'static str,
    size: u64,
    mtime: Time,
    mode: String,
    uid: u32,
    gid: u32,
    #[serde(flatten)]
    stub: Option<StubReport>,
}

/// What the stub of a file says.
#[derive(Debug, Serialize)]
struct StubReport {
    id: String,
    revision: u64,
    targets: Vec<TargetName>,
    block: u64,
    names: u32,
    link: Option<String>,
}

impl EntryReport {
    /// Of an entry and its path.
    pub fn new(path: &[u8], listed: &DirectoryEntry) -> EntryReport {
        let stat = &listed.stat;
        EntryReport {
            path: PathName::new(path),
            kind: match stat.kind {
                Kind::Directory => "directory",
                Kind::Link => "link",
                Kind::Special => "special",
                Kind::File => "file",
            },
            size: stat.size,
            mtime: Time(stat.mtime),
            mode: format!("{:o}", stat.mode),
            uid: stat.uid,
            gid: stat.gid,
            stub: listed.stub.as_ref().map(StubReport::new),
        }
    }
}

impl StubReport {
    fn new(stub: &Stub) -> StubReport {
        StubReport {
            id: stub.id.to_string(),
            revision: stub.revision,
            targets: stub.targets.clone(),
            block: stub.block,
            names: stub.names.max(1),
            link: stub.link.as_deref().map(|link| String::from_utf8_lossy(link).into_owned()),
        }
    }
}

/// `gabion pool status`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "pool status")]
pub struct PoolStatusReport<'a> {
    /// The status.
    pub status: &'a Status,
    /// What healing did.
    pub healed: Option<HealedReport<'a>>,
    /// What sweeping found.
    pub swept: Option<SweptReport<'a>>,
    /// The files, if they were surveyed.
    pub files: Option<FilesReport<'a>>,
}

/// Result of healing the mirrors of the namespace.
#[derive(Debug, Serialize)]
pub struct HealedReport<'a> {
    written: u64,
    removed: u64,
    mirrors: &'a [TargetName],
    failed: &'a [String],
}

impl<'a> HealedReport<'a> {
    /// With the texts of the errors.
    pub fn new(healed: &'a HealReport, failed: &'a [String]) -> HealedReport<'a> {
        HealedReport { written: healed.written, removed: healed.removed, mirrors: &healed.mirrors, failed }
    }
}

/// Leftovers of crashes and absent targets.
#[derive(Debug, Serialize)]
pub struct SweptReport<'a> {
    removed: bool,
    orphans: Vec<OrphanReport<'a>>,
    busy: u64,
}

/// A file that nothing refers to.
#[derive(Debug, Serialize)]
struct OrphanReport<'a> {
    target: &'a str,
    #[serde(flatten)]
    path: PathName,
    bytes: u64,
}

impl<'a> SweptReport<'a> {
    /// Of a sweep.
    pub fn new(swept: &'a Sweep, dry_run: bool) -> SweptReport<'a> {
        let orphan = |orphan: &'a Orphan| OrphanReport {
            target: &orphan.target,
            path: PathName::new(&orphan.path),
            bytes: orphan.bytes,
        };
        SweptReport {
            removed: !dry_run,
            orphans: swept.orphans.iter().map(orphan).collect(),
            busy: swept.busy,
        }
    }
}

/// Files of a pool by health.
#[derive(Debug, Serialize)]
pub struct FilesReport<'a> {
    count: &'a BTreeMap<FileHealth, u64>,
    degraded: Vec<IncompleteFile>,
    lost: Vec<IncompleteFile>,
}

/// A file that misses columns.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct IncompleteFile {
    #[serde(flatten)]
    path: PathName,
    #[schemars(with = "Vec<String>")]
    misses: Vec<TargetName>,
}

impl IncompleteFile {
    /// Of a path and the targets that it misses.
    pub(crate) fn new(path: &[u8], misses: &[TargetName]) -> IncompleteFile {
        IncompleteFile { path: PathName::new(path), misses: misses.to_vec() }
    }

    pub(crate) fn path(&self) -> &PathName {
        &self.path
    }
}

impl<'a> FilesReport<'a> {
    /// Of a survey.
    pub fn new(overview: &'a PoolOverview) -> FilesReport<'a> {
        let named = |wanted: FileHealth| {
            let of_health = overview.named.iter().filter(move |(_, health, _)| *health == wanted);
            of_health.map(|(path, _, misses)| IncompleteFile::new(path, misses)).collect()
        };
        FilesReport {
            count: &overview.files,
            degraded: named(FileHealth::Degraded),
            lost: named(FileHealth::Lost),
        }
    }
}

/// `gabion pool rebuild --dry-run`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "pool rebuild")]
pub struct PoolRebuildPlanReport<'a> {
    dry_run: bool,
    plan: PlanReport<'a>,
    refused: Option<&'a str>,
}

impl<'a> PoolRebuildPlanReport<'a> {
    /// Of a plan, and of the reason why it is not carried out without confirmation.
    pub fn new(plan: &'a Plan, refused: Option<&'a str>) -> PoolRebuildPlanReport<'a> {
        PoolRebuildPlanReport { dry_run: true, plan: PlanReport::new(plan), refused }
    }
}

/// Plan of a rebuild.
#[derive(Debug, Serialize)]
struct PlanReport<'a> {
    gone: &'a [TargetName],
    retired: &'a [TargetName],
    returned: &'a [TargetName],
    examined: u64,
    bytes: u64,
    files: Vec<PlannedFileReport<'a>>,
    lost: Vec<PlannedFileReport<'a>>,
    unreadable: Vec<FileFailure>,
}

/// A file of a plan.
#[derive(Debug, Serialize)]
struct PlannedFileReport<'a> {
    #[serde(flatten)]
    path: PathName,
    health: FileHealth,
    spare: i64,
    bytes: u64,
    targets: &'a [TargetName],
}

impl<'a> PlanReport<'a> {
    fn new(plan: &'a Plan) -> PlanReport<'a> {
        let file = |item: &'a PlannedFile| PlannedFileReport {
            path: PathName::new(&item.path),
            health: item.health,
            spare: item.spare,
            bytes: item.bytes,
            targets: &item.targets,
        };
        PlanReport {
            gone: &plan.gone,
            retired: &plan.retired,
            returned: &plan.returned,
            examined: plan.examined,
            bytes: plan.bytes(),
            files: plan.files.iter().map(file).collect(),
            lost: plan.lost.iter().map(file).collect(),
            unreadable: plan.unreadable.iter().map(FileFailure::new).collect(),
        }
    }
}

/// `gabion pool rebuild`, and `gabion pool retire` with a rebuild.
#[derive(Debug, Serialize)]
pub struct PoolRebuildReport<'a> {
    command: &'a str,
    dry_run: bool,
    plan: PlanReport<'a>,
    files: u64,
    data_columns: u64,
    redundancy_columns: u64,
    bytes: u64,
    seconds: f64,
    verified_columns: u64,
    reconstructed_blocks: u64,
    wrong_blocks: u64,
    removed: u64,
    swept: u64,
    unplaced: Vec<FileColumns>,
    unmoved: Vec<FileColumns>,
    failed: Vec<RebuildFailure>,
    reinstated: &'a [TargetName],
    unverified: &'a BTreeSet<TargetName>,
    stopped: bool,
}

/// A number of columns of a file.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct FileColumns {
    #[serde(flatten)]
    path: PathName,
    columns: usize,
}

impl FileColumns {
    pub(crate) fn new((path, columns): &(Vec<u8>, usize)) -> FileColumns {
        FileColumns { path: PathName::new(path), columns: *columns }
    }

    pub(crate) fn path(&self) -> &PathName {
        &self.path
    }
}

/// A file that could not be rebuilt.
#[derive(Debug, Serialize)]
struct RebuildFailure {
    #[serde(flatten)]
    failure: FileFailure,
    lost: bool,
}

impl<'a> PoolRebuildReport<'a> {
    /// Of the result of a rebuild.
    pub fn new(command: &'a str, report: &'a RebuildReport, seconds: f64) -> PoolRebuildReport<'a> {
        let failure = |failed: &(Vec<u8>, FileError)| RebuildFailure {
            failure: FileFailure::new(failed),
            lost: failed.1.is_loss(),
        };
        PoolRebuildReport {
            command,
            dry_run: false,
            plan: PlanReport::new(&report.plan),
            files: report.files,
            data_columns: report.data,
            redundancy_columns: report.redundancy,
            bytes: report.bytes,
            seconds,
            verified_columns: report.verified,
            reconstructed_blocks: report.reconstructed,
            wrong_blocks: report.wrong,
            removed: report.removed,
            swept: report.swept,
            unplaced: report.unplaced.iter().map(FileColumns::new).collect(),
            unmoved: report.unmoved.iter().map(FileColumns::new).collect(),
            failed: report.failed.iter().map(failure).collect(),
            reinstated: &report.reinstated,
            unverified: &report.unverified,
            stopped: report.stopped,
        }
    }
}
