//! Reports of the commands on vaults.

use super::{
    DamagedFile, FileFailure, FileRanges, HeldReport, PathName, RepairedFile, SharingReport, path_names,
};
use gabion_vault::catalogue::{Change, Class, Counts, State};
use gabion_vault::catalogue_rebuild::Rebuilt;
use gabion_vault::deduplication::Sharing;
use gabion_vault::policy::{Decision, Treatment};
use gabion_vault::protect;
use gabion_vault::repair::{Plan, Repaired};
use gabion_vault::retry::Failure;
use gabion_vault::scan::Seen;
use gabion_vault::scrub;
use gabion_vault::vault::{Moved, Renewed, Vault};
use gabion_vault::whatif::WhatIf;
use gabion_vault::worker::Done;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Numbers of files and bytes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FileAmount {
    files: u64,
    bytes: u64,
}

impl FileAmount {
    /// Of a pair of files and bytes.
    pub fn new((files, bytes): (u64, u64)) -> FileAmount {
        FileAmount { files, bytes }
    }
}

/// Files and bytes by class of change.
pub type ClassReport = BTreeMap<&'static str, FileAmount>;

/// Files and bytes of each class.
pub fn changes(counts: &Counts) -> ClassReport {
    Class::ALL.into_iter().map(|class| (class.word(), FileAmount::new(counts.of(class)))).collect()
}

/// A file that was in the place of a redundancy file, and its new path.
#[derive(Debug, Clone, Serialize)]
pub struct SetAside {
    #[serde(flatten)]
    path: PathName,
    to: PathName,
}

/// `gabion protect --dry-run`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "command", rename = "protect")]
pub struct ProtectPlanReport {
    dry_run: bool,
    files: u64,
    bytes: u64,
    changes: ClassReport,
    held: Option<HeldReport>,
    sharing: SharingReport,
}

impl ProtectPlanReport {
    /// Of the result of a scan, and of a survey of equal redundancy.
    pub fn new(seen: &Seen, held: Option<HeldReport>, sharing: &Sharing) -> ProtectPlanReport {
        ProtectPlanReport {
            dry_run: true,
            files: seen.files,
            bytes: seen.bytes,
            changes: changes(&seen.changes),
            held,
            sharing: SharingReport::new(sharing),
        }
    }
}

/// `gabion protect`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "command", rename = "protect")]
pub struct ProtectReport {
    dry_run: bool,
    root: PathName,
    repository: PathName,
    files: u64,
    bytes: u64,
    left_out: u64,
    links: u64,
    special: u64,
    changes: ClassReport,
    encoded: u64,
    encoded_bytes: u64,
    adopted: u64,
    moved: u64,
    removed: u64,
    reduced_redundancy: u64,
    redundancy_bytes: u64,
    stripes_encoded: u64,
    stripes_kept: u64,
    failures: u64,
    failed: Vec<FileFailure>,
    set_aside: Vec<SetAside>,
    damaged: Vec<DamagedFile>,
    changed_in_growth: Vec<FileRanges>,
    write_once_changed: Vec<PathName>,
    held: Option<HeldReport>,
    pending: u64,
    stopped: bool,
    seconds: f64,
    affected: BTreeMap<&'static str, u64>,
    mirrors_not_healed: Vec<String>,
    user_policies: Vec<IgnoredPolicy>,
    sharing: SharingReport,
    peak_memory: Option<u64>,
}

impl ProtectReport {
    /// Of the report of the vault. `stopped` if a signal ended the run early.
    pub fn new(vault: &Vault, report: &protect::Report, seconds: f64, stopped: bool) -> ProtectReport {
        let protect::Report { seen, done, held, pending, affected, unhealed, sharing } = report;
        let aside = |(path, aside): &(Vec<u8>, PathBuf)| SetAside {
            path: PathName::new(path),
            to: PathName::system(aside),
        };
        ProtectReport {
            dry_run: false,
            root: PathName::system(&vault.root),
            repository: PathName::system(vault.repository.path()),
            files: seen.files,
            bytes: seen.bytes,
            left_out: seen.left_out,
            links: seen.links,
            special: seen.special,
            changes: changes(&seen.changes),
            encoded: done.encoded,
            encoded_bytes: done.encoded_bytes,
            adopted: done.adopted,
            moved: done.moved,
            removed: done.removed,
            reduced_redundancy: done.reduced_redundancy,
            redundancy_bytes: done.redundancy_bytes,
            stripes_encoded: done.stripes.0,
            stripes_kept: done.stripes.1,
            failures: done.failures + seen.unreadable.len() as u64,
            failed: done.failed.iter().chain(&seen.unreadable).map(FileFailure::new).collect(),
            set_aside: done.set_aside.iter().map(aside).collect(),
            damaged: done.damaged.iter().map(DamagedFile::new).collect(),
            changed_in_growth: done.changed.iter().map(FileRanges::new).collect(),
            write_once_changed: path_names(&seen.write_once),
            held: held.as_ref().map(HeldReport::new),
            pending: *pending,
            stopped,
            seconds,
            affected: affected.iter().map(|(state, files)| (state.word(), *files)).collect(),
            mirrors_not_healed: unhealed.clone(),
            user_policies: user_policies(seen),
            sharing: SharingReport::new(sharing),
            peak_memory: crate::machine::peak_memory(),
        }
    }
}

/// Users' policies with a warning.
pub(super) fn user_policies(seen: &Seen) -> Vec<IgnoredPolicy> {
    seen.user_policies.iter().map(|(file, why)| IgnoredPolicy::new((file, why))).collect()
}

/// `gabion scrub`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "command", rename = "scrub")]
pub struct ScrubReport {
    files: u64,
    bytes: u64,
    gone: u64,
    changing: u64,
    resumed: u64,
    recorded: bool,
    stopped: bool,
    worst: State,
    damage: Vec<DamagedFile>,
    failed: Vec<FileFailure>,
    seconds: f64,
}

impl ScrubReport {
    /// Of the report of the vault; `recorded` is false if the repository is read-only.
    pub fn new(report: &scrub::Report, seconds: f64, recorded: bool) -> ScrubReport {
        ScrubReport {
            files: report.files,
            bytes: report.bytes,
            gone: report.gone,
            changing: report.changing,
            resumed: report.resumed,
            recorded,
            stopped: report.stopped,
            worst: report.worst(),
            damage: report.damage.iter().map(DamagedFile::new).collect(),
            failed: report.failed.iter().map(FileFailure::new).collect(),
            seconds,
        }
    }
}

/// `gabion repair`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "command", rename = "repair")]
pub struct RepairReport {
    dry_run: bool,
    carried_out: bool,
    examined: u64,
    plan: Vec<DamagedFile>,
    kept: Vec<DamagedFile>,
    repaired: Vec<RepairedFile>,
    failed: Vec<FileFailure>,
}

impl RepairReport {
    /// Of a plan, and of its results if it was carried out.
    pub fn new(
        plan: &Plan,
        repaired: &[Repaired],
        failed: &[(Vec<u8>, Failure)],
        dry_run: bool,
        carried_out: bool,
    ) -> RepairReport {
        RepairReport {
            dry_run,
            carried_out,
            examined: plan.examined,
            plan: plan.files.iter().map(DamagedFile::new).collect(),
            kept: plan.kept.iter().map(DamagedFile::new).collect(),
            repaired: repaired.iter().map(RepairedFile::new).collect(),
            failed: failed.iter().map(FileFailure::new).collect(),
        }
    }
}

/// `gabion work`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "command", rename = "work")]
pub struct WorkReport {
    encoded: u64,
    encoded_bytes: u64,
    moved: u64,
    removed: u64,
    held: u64,
    failures: u64,
    claimed_by_others: u64,
    not_due: u64,
    write_once_changed: Vec<PathName>,
    damaged: Vec<DamagedFile>,
}

impl WorkReport {
    /// Of the result of a worker, and of the numbers of entries that are left.
    pub fn new(done: &Done, claimed_by_others: u64, not_due: u64) -> WorkReport {
        WorkReport {
            encoded: done.encoded,
            encoded_bytes: done.encoded_bytes,
            moved: done.moved,
            removed: done.removed,
            held: done.held,
            failures: done.failures,
            claimed_by_others,
            not_due,
            write_once_changed: path_names(&done.write_once),
            damaged: done.damaged.iter().map(DamagedFile::new).collect(),
        }
    }
}

/// `gabion diff`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "diff")]
pub struct DiffReport {
    /// Files and bytes by class.
    pub changes: ClassReport,
    /// The changes.
    pub files: Vec<ChangeReport>,
}

/// A changed file.
#[derive(Debug, Serialize)]
pub struct ChangeReport {
    class: Class,
    #[serde(flatten)]
    path: PathName,
    size: u64,
    from: Option<PathName>,
}

impl ChangeReport {
    /// Of a change.
    pub fn new(change: &Change) -> ChangeReport {
        let from = change.from.as_deref().map(PathName::new);
        ChangeReport { class: change.class, path: PathName::new(&change.path), size: change.size, from }
    }
}

/// `gabion approve DIGEST`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "approve")]
pub struct ApproveReport {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Digest of the change-set.
    pub digest: String,
    /// The change-set, unless it was approved before.
    pub held: Option<HeldReport>,
    /// It was approved before.
    pub approved_before: bool,
}

/// `gabion approve PATH`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "approve")]
pub struct AcceptReport {
    dry_run: bool,
    write_once: Vec<PathName>,
}

impl AcceptReport {
    /// Of the accepted files.
    pub fn new(dry_run: bool, paths: &[Vec<u8>]) -> AcceptReport {
        AcceptReport { dry_run, write_once: path_names(paths) }
    }
}

/// `gabion whatif`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "whatif")]
pub struct WhatIfReport<'a> {
    lose: &'a [String],
    result: Losses,
    lost_files: Vec<PathName>,
    unknown: u64,
    namespace_lost: bool,
}

/// Files by what a loss of targets does to them.
#[derive(Debug, Serialize)]
struct Losses {
    unaffected: FileAmount,
    exposed: FileAmount,
    degraded: FileAmount,
    lost: FileAmount,
}

impl<'a> WhatIfReport<'a> {
    /// Of the loss of targets.
    pub fn new(lose: &'a [String], answer: &WhatIf) -> WhatIfReport<'a> {
        let result = Losses {
            unaffected: FileAmount::new(answer.unaffected),
            exposed: FileAmount::new(answer.exposed),
            degraded: FileAmount::new(answer.degraded),
            lost: FileAmount::new(answer.lost),
        };
        let (unknown, namespace_lost) = (answer.unknown, answer.namespace_lost);
        WhatIfReport { lose, result, lost_files: path_names(&answer.names), unknown, namespace_lost }
    }
}

/// `gabion catalogue rebuild`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "catalogue rebuild")]
pub struct CatalogueReport {
    dry_run: bool,
    files: u64,
    unusable: Vec<FileFailure>,
    renewed: Vec<&'static str>,
}

impl CatalogueReport {
    /// Of a rebuilt catalogue, and of what else was created again.
    pub fn new(dry_run: bool, rebuilt: &Rebuilt, renewed: &[Renewed]) -> CatalogueReport {
        let word = |what: &Renewed| match what {
            Renewed::Settings => "settings",
            Renewed::Catalogue => "catalogue",
            Renewed::Changelog => "changelog",
        };
        let unusable = rebuilt.unusable.iter();
        CatalogueReport {
            dry_run,
            files: rebuilt.files,
            unusable: unusable.map(|(path, why)| FileFailure::of_system(path, why)).collect(),
            renewed: renewed.iter().map(word).collect(),
        }
    }
}

/// `gabion changelog move`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "changelog move")]
pub struct ChangelogReport {
    from: String,
    to: String,
    pending: Option<u64>,
}

impl ChangelogReport {
    /// Of a changelog that was moved.
    pub fn new(moved: &Moved) -> ChangelogReport {
        ChangelogReport { from: moved.from.clone(), to: moved.to.clone(), pending: moved.pending }
    }
}

/// `gabion policy check`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "policy check")]
pub struct PolicyReport<'a> {
    /// Treatment of files to which no rule applies.
    pub default: TreatmentReport<'a>,
    /// The rules.
    pub rules: Vec<RuleReport<'a>>,
}

/// A rule of a policy.
#[derive(Debug, Serialize)]
pub struct RuleReport<'a> {
    name: &'a str,
    /// None if its files are not protected.
    treatment: Option<TreatmentReport<'a>>,
}

impl<'a> RuleReport<'a> {
    /// Of a rule and its treatment.
    pub fn new((name, treatment): (&'a str, Option<&'a Treatment>)) -> RuleReport<'a> {
        RuleReport { name, treatment: treatment.map(TreatmentReport::new) }
    }
}

/// `gabion policy explain`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "policy explain")]
pub struct RuleDecisionReport<'a> {
    #[serde(flatten)]
    path: PathName,
    rule: &'a str,
    treatment: Option<TreatmentReport<'a>>,
    because: &'a [String],
    passed_over: Vec<RefusalReport<'a>>,
    user_rule: Option<UserRuleReport<'a>>,
    ignored_policies: Vec<IgnoredPolicy>,
}

/// The rule of a file's owner.
#[derive(Debug, Serialize)]
struct UserRuleReport<'a> {
    file: PathName,
    rule: &'a str,
    refused: &'a [String],
}

/// A user's policy that is ignored, or a part of it.
#[derive(Debug, Clone, Serialize)]
pub struct IgnoredPolicy {
    file: PathName,
    why: String,
}

impl IgnoredPolicy {
    /// Of the file's path and the reason.
    pub fn new((file, why): (&[u8], &str)) -> IgnoredPolicy {
        IgnoredPolicy { file: PathName::new(file), why: why.to_owned() }
    }
}

/// A rule that does not apply.
#[derive(Debug, Serialize)]
pub struct RefusalReport<'a> {
    rule: &'a str,
    why: &'a str,
}

impl<'a> RuleDecisionReport<'a> {
    /// Of the decision of the rule with that name, and of the rules before it.
    pub fn new(
        path: &[u8],
        rule: &'a str,
        decision: &'a Decision<'a>,
        because: &'a [String],
        refusals: &'a [(&'a str, String)],
        ignored: &[(Vec<u8>, &str)],
    ) -> RuleDecisionReport<'a> {
        RuleDecisionReport {
            path: PathName::new(path),
            rule,
            treatment: decision.treatment.as_deref().map(TreatmentReport::new),
            because,
            passed_over: refusals.iter().map(|(rule, why)| RefusalReport { rule, why }).collect(),
            user_rule: decision.user.as_ref().map(|user| UserRuleReport {
                file: PathName::new(&user.file),
                rule: &user.rule,
                refused: &user.refused,
            }),
            ignored_policies: ignored.iter().map(|(file, why)| IgnoredPolicy::new((file, why))).collect(),
        }
    }
}

/// What a rule asks for.
#[derive(Debug, Serialize)]
pub struct TreatmentReport<'a> {
    code: &'a str,
    block: u64,
    quiet_s: u64,
    priority: u8,
    scrub_s: u64,
    write_once: bool,
    strong: bool,
    share_duplicates: bool,
}

impl<'a> TreatmentReport<'a> {
    /// Of a treatment.
    pub fn new(treatment: &'a Treatment) -> TreatmentReport<'a> {
        TreatmentReport {
            code: &treatment.identity,
            block: treatment.block,
            quiet_s: treatment.quiet.as_secs(),
            priority: treatment.priority,
            scrub_s: treatment.scrub.as_secs(),
            write_once: treatment.write_once,
            strong: treatment.strong,
            share_duplicates: treatment.share_duplicates,
        }
    }
}
