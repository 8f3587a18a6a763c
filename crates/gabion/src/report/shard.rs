//! Reports of `gabion shard`.

use gabion_shard::set::Note;
use gabion_shard::sources::BadBlocks;
use gabion_shard::stripe_list::StripeList;
use gabion_shard::verify::{Health, Report, Shard, State};
use gabion_shard::{join, repair, split};
use serde::Serialize;
use std::path::PathBuf;

/// `gabion shard split --dry-run`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "split")]
pub struct SplitPlanReport {
    dry_run: bool,
    code: String,
    name: String,
    size: Option<u64>,
    block: u64,
    sparse: bool,
    shards: Vec<String>,
}

impl SplitPlanReport {
    /// Of a plan.
    pub fn new(plan: &split::Plan) -> SplitPlanReport {
        SplitPlanReport {
            dry_run: true,
            code: plan.content.code.to_string(),
            name: lossy(&plan.content.name),
            size: plan.size(),
            block: plan.content.block,
            sparse: plan.content.sparse,
            shards: paths(&plan.shards),
        }
    }
}

/// `gabion shard split`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "split")]
pub struct SplitReport {
    set: String,
    code: String,
    name: String,
    size: u64,
    block: u64,
    sparse: bool,
    shard_bytes: u64,
    shards: Vec<String>,
}

impl SplitReport {
    /// Of the result of a split.
    pub fn new(report: &split::Report) -> SplitReport {
        SplitReport {
            set: report.set.to_string(),
            code: report.content.code.to_string(),
            name: lossy(&report.content.name),
            size: report.content.size,
            block: report.content.block,
            sparse: report.content.sparse,
            shard_bytes: report.shard_len,
            shards: paths(&report.shards),
        }
    }
}

/// `gabion shard join`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "join")]
pub struct JoinReport<'a> {
    set: String,
    code: String,
    name: String,
    size: u64,
    missing: &'a [u32],
    notes: &'a [Note],
}

impl<'a> JoinReport<'a> {
    /// Of the result of a join.
    pub fn new(report: &'a join::Report) -> JoinReport<'a> {
        JoinReport {
            set: report.set.to_string(),
            code: report.content.code.to_string(),
            name: lossy(&report.content.name),
            size: report.content.size,
            missing: &report.missing,
            notes: &report.notes,
        }
    }
}

/// `gabion shard verify`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "verify")]
pub struct VerifyReport<'a> {
    health: Health,
    sets: Vec<SetReport<'a>>,
}

impl<'a> VerifyReport<'a> {
    /// Of the worst health and the sets.
    pub fn new(health: Health, reports: &'a [Report]) -> VerifyReport<'a> {
        VerifyReport { health, sets: reports.iter().map(SetReport::new).collect() }
    }
}

/// A set.
#[derive(Debug, Serialize)]
struct SetReport<'a> {
    set: String,
    name: String,
    code: String,
    size: u64,
    block: u64,
    health: Health,
    lost_stripes: &'a StripeList,
    content_right: Option<bool>,
    loss: Option<String>,
    shards: Vec<ShardReport<'a>>,
    others: &'a [Note],
}

impl<'a> SetReport<'a> {
    fn new(report: &'a Report) -> SetReport<'a> {
        SetReport {
            set: report.set.to_string(),
            name: lossy(&report.content.name),
            code: report.content.code.to_string(),
            size: report.content.size,
            block: report.content.block,
            health: report.health(),
            lost_stripes: &report.lost,
            content_right: report.content_right,
            loss: report.loss(),
            shards: report.shards.iter().map(ShardReport::new).collect(),
            others: &report.others,
        }
    }
}

/// A shard.
#[derive(Debug, Serialize)]
struct ShardReport<'a> {
    index: u32,
    path: Option<String>,
    state: &'static str,
    detail: String,
    bad_blocks: Option<&'a BadBlocks>,
}

impl<'a> ShardReport<'a> {
    fn new(shard: &'a Shard) -> ShardReport<'a> {
        ShardReport {
            index: shard.index,
            path: shard.path.as_ref().map(|path| path.to_string_lossy().into_owned()),
            state: shard.state.word(),
            detail: shard.state.to_string(),
            bad_blocks: match &shard.state {
                State::Damaged { blocks, .. } => Some(blocks),
                _ => None,
            },
        }
    }
}

/// `gabion shard repair`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "repair")]
pub struct ShardRepairReport<'a> {
    dry_run: bool,
    set: String,
    rebuilt: Vec<RebuiltShard<'a>>,
    found: SetReport<'a>,
}

/// A shard that is rebuilt.
#[derive(Debug, Serialize)]
struct RebuiltShard<'a> {
    index: u32,
    path: String,
    why: &'a str,
    replaces: bool,
}

impl<'a> ShardRepairReport<'a> {
    /// Of a plan.
    pub fn new(plan: &'a repair::Plan<'_>, dry_run: bool) -> ShardRepairReport<'a> {
        let rebuilt = |rebuild: &'a repair::Rebuild| RebuiltShard {
            index: rebuild.index,
            path: rebuild.to.to_string_lossy().into_owned(),
            why: &rebuild.why,
            replaces: rebuild.replaces,
        };
        ShardRepairReport {
            dry_run,
            set: plan.report.set.to_string(),
            rebuilt: plan.rebuild.iter().map(rebuilt).collect(),
            found: SetReport::new(&plan.report),
        }
    }
}

fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn paths(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}
