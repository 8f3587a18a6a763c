//! Shard files: split, join, verify, repair.

use crate::code::code_of;
use crate::run::carried_out;
use gabion_shard::set::Note;
use gabion_shard::verify::{self as verification, Report};
use gabion_shard::{Scan, join as joining, repair as repairing, split as splitting};
use pyo3::Python;
use pyo3::prelude::{Bound, Py, PyAny, PyResult, pyclass, pyfunction};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

// A literal in the signature of `split`, so that Python shows it.
const _: () = assert!(splitting::DEFAULT_BLOCK == 262_144);

/// Result of a split.
#[pyclass(module = "gabion.shards", frozen, get_all)]
pub(crate) struct Split {
    /// Identity of the set.
    set: String,
    /// The files, by index.
    shards: Vec<PathBuf>,
    /// Bytes of each.
    shard_len: u64,
    /// Bytes of a block.
    block: u64,
}

/// Result of a join.
#[pyclass(module = "gabion.shards", frozen, get_all)]
pub(crate) struct Joined {
    /// Identity of the set.
    set: String,
    /// The file.
    path: PathBuf,
    /// Its bytes.
    size: u64,
    /// Indexes of shards that were missing.
    missing: Vec<u32>,
    /// Files that were not used, or not all of them.
    notes: Vec<ShardNote>,
}

/// A note on a file.
#[pyclass(module = "gabion.shards", frozen, get_all)]
#[derive(Clone)]
pub(crate) struct ShardNote {
    /// The file.
    path: PathBuf,
    /// The note.
    text: String,
}

/// State of a set.
#[pyclass(module = "gabion.shards", frozen, get_all)]
pub(crate) struct SetState {
    /// Identity of the set.
    set: String,
    /// Name of the file that was split.
    name: String,
    /// Its bytes.
    size: u64,
    /// Identity of the code.
    code: String,
    /// `good`, `recoverable` or `unrecoverable`.
    health: &'static str,
    /// The shards, by index.
    shards: Vec<ShardState>,
    /// Other files that look like shards.
    notes: Vec<ShardNote>,
}

/// State of a shard.
#[pyclass(module = "gabion.shards", frozen, get_all)]
#[derive(Clone)]
pub(crate) struct ShardState {
    /// Its index: data shards first.
    index: u32,
    /// Its file; `None` if there is none.
    path: Option<PathBuf>,
    /// `ok`, `missing`, `header damaged`, `truncated` or `bad blocks`.
    state: &'static str,
    /// The state in words, with the numbers of bad blocks.
    description: String,
}

/// A shard that a repair has rebuilt.
#[pyclass(module = "gabion.shards", frozen, get_all)]
pub(crate) struct RebuiltShard {
    /// Its index.
    index: u32,
    /// Its file.
    path: PathBuf,
    /// What was wrong.
    reason: String,
}

fn notes(notes: Vec<Note>) -> Vec<ShardNote> {
    notes.into_iter().map(|note| ShardNote { path: note.path, text: note.text }).collect()
}

/// Splits a file into k + m shard files in the directory `out`, any k of which restore it.
///
/// All shards appear, or none does. Existing ones are replaced with `force` only. `progress(name, done, total)` is
/// called with bytes as work proceeds; an exception from it ends the work, and nothing appears.
#[pyfunction]
#[pyo3(signature = (source, out, code, *, block=262144, name=None, force=false, threads=0, progress=None))]
#[expect(clippy::too_many_arguments, reason = "named arguments in Python")]
pub(crate) fn split(
    py: Python<'_>,
    source: PathBuf,
    out: PathBuf,
    code: &Bound<'_, PyAny>,
    block: u64,
    name: Option<PathBuf>,
    force: bool,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Split> {
    let name = name.map(|name| name.into_os_string().into_vec());
    let options = splitting::Options { source: Some(source), code: code_of(code)?, out, block, name, force };
    let report = carried_out(py, threads, progress.as_ref(), |run| splitting::Plan::new(&options)?.run(run))?;
    Ok(Split {
        set: report.set.to_string(),
        shards: report.shards,
        shard_len: report.shard_len,
        block: report.content.block,
    })
}

/// Restores the file of the set in the directory `shards` as `target`, which appears when it is complete and checked.
///
/// `set` is the beginning of the identity of a set, where the directory has several.
#[pyfunction]
#[pyo3(signature = (shards, target, *, set=None, force=false, threads=0, progress=None))]
pub(crate) fn join(
    py: Python<'_>,
    shards: PathBuf,
    target: PathBuf,
    set: Option<String>,
    force: bool,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Joined> {
    let to = joining::Target::File { path: target.clone(), force };
    let report =
        carried_out(py, threads, progress.as_ref(), |run| joining::join(&shards, set.as_deref(), &to, run))?;
    Ok(Joined {
        set: report.set.to_string(),
        path: target,
        size: report.content.size,
        missing: report.missing,
        notes: notes(report.notes),
    })
}

/// Reads all shards of the directory `shards` and returns the state of each set.
#[pyfunction]
#[pyo3(signature = (shards, *, set=None, threads=0, progress=None))]
pub(crate) fn verify(
    py: Python<'_>,
    shards: PathBuf,
    set: Option<String>,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<SetState>> {
    let reports = carried_out(py, threads, progress.as_ref(), |run| {
        let scan = Scan::of(&shards)?;
        let chosen = verification::chosen(&scan, set.as_deref())?;
        chosen.into_iter().map(|set| verification::verify(&scan, set, run)).collect::<Result<Vec<_>, _>>()
    })?;
    Ok(reports.into_iter().map(state_of).collect())
}

fn state_of(report: Report) -> SetState {
    let health = match report.health() {
        verification::Health::Good => "good",
        verification::Health::Recoverable => "recoverable",
        verification::Health::Unrecoverable => "unrecoverable",
    };
    let shards = report.shards.iter().map(|shard| ShardState {
        index: shard.index,
        path: shard.path.clone(),
        state: shard.state.word(),
        description: shard.state.to_string(),
    });
    SetState {
        set: report.set.to_string(),
        name: verification::shown_name(&report.content),
        size: report.content.size,
        code: report.content.code.to_string(),
        health,
        shards: shards.collect(),
        notes: notes(report.others),
    }
}

/// Verifies the set in the directory `shards` and rebuilds its missing and damaged shards, which it returns.
///
/// With `dry_run` nothing is written. `force` replaces files that are in the way and are no shards of the set.
#[pyfunction]
#[pyo3(signature = (shards, *, set=None, dry_run=false, force=false, threads=0, progress=None))]
pub(crate) fn repair(
    py: Python<'_>,
    shards: PathBuf,
    set: Option<String>,
    dry_run: bool,
    force: bool,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<RebuiltShard>> {
    carried_out(py, threads, progress.as_ref(), |run| {
        let scan = Scan::of(&shards)?;
        let plan = repairing::Plan::new(&scan, set.as_deref(), force, run)?;
        if !dry_run && !plan.rebuild.is_empty() {
            plan.run(run)?;
        }
        let rebuilt = plan.rebuild.iter();
        Ok(rebuilt
            .map(|it| RebuiltShard { index: it.index, path: it.to.clone(), reason: it.why.clone() })
            .collect())
    })
}
