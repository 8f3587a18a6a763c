//! Planning of a rebuild, from stubs and headers.

use super::survey::{FileHealth, TargetStates, each_file, parts, survey};
use super::{RebuildError, RebuildOptions};
use crate::catalogue::{CatalogueError, Entry};
use crate::format::FileId;
use crate::retry::Failure;
use crate::run::{Progress, RunContext};
use crate::storage::TargetState;
use crate::storage::pool::Pool;
use crate::storage::pool::config::TargetName;
use crate::storage::pool::stub::Stub;
use crate::vault::Vault;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// A file to be rebuilt.
#[derive(Debug, Clone)]
pub struct PlannedFile {
    /// Path.
    pub path: Vec<u8>,
    /// Identity; the same for all names of a file.
    pub id: FileId,
    /// Health.
    pub health: FileHealth,
    /// Blocks of a stripe that may still be lost.
    pub spare: i64,
    /// Bytes to write or verify; those of a file with several names count once.
    pub bytes: u64,
    /// Targets whose columns are lost or being drained.
    pub targets: Vec<TargetName>,
    /// Code to encode it with, if it has no redundancy and its data is complete.
    pub code: Option<String>,
}

/// Plan of a rebuild.
#[derive(Debug, Default)]
pub struct Plan {
    /// Lost targets.
    pub gone: Vec<TargetName>,
    /// Retired targets.
    pub retired: Vec<TargetName>,
    /// Targets to be verified: returned, or named by the user.
    pub returned: Vec<TargetName>,
    /// Files to rebuild, the most exposed first. Names of one file follow each other; data restored under one name is
    /// available to the next.
    pub files: Vec<PlannedFile>,
    /// Files that are lost under all their names by the survey, with the targets they miss.
    pub lost: Vec<PlannedFile>,
    /// Files with unreadable stubs, with the error.
    pub unreadable: Vec<(Vec<u8>, Failure)>,
    /// Number of files surveyed.
    pub examined: u64,
}

impl Plan {
    /// Bytes to write or verify.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|item| item.bytes).sum()
    }

    /// Merges both plans, of which `first` was executed before.
    pub(super) fn append_to(&mut self, first: Plan) {
        let planned: HashSet<&Vec<u8>> = first.files.iter().map(|item| &item.path).collect();
        self.files.retain(|item| !planned.contains(&item.path));
        drop(planned);
        self.files.splice(..0, first.files);
        self.returned = first.returned;
    }

    /// Sorts files by risk, with the names of one file next to each other. The name with the most redundancy comes
    /// first: it may restore data that the others' redundancy cannot.
    fn order_by_risk(&mut self) {
        let saved: HashSet<FileId> = self.files.iter().map(|item| item.id).collect();
        self.files.extend(self.lost.extract_if(.., |item| saved.contains(&item.id)));
        let mut names: HashMap<FileId, Vec<(i64, &[u8])>> = HashMap::new();
        for item in &self.files {
            names.entry(item.id).or_default().push((item.spare, &item.path));
        }
        names.retain(|_, names| names.len() > 1);
        let least = names.into_iter().filter_map(|(id, names)| {
            let (spare, path) = names.into_iter().min()?;
            Some((id, (spare, path.to_vec())))
        });
        let least: HashMap<FileId, (i64, Vec<u8>)> = least.collect();
        self.files.sort_by(|one, other| rank(one, &least).cmp(&rank(other, &least)));
        self.lost.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

/// Sort key of a file; files with several names rank with the most exposed name.
fn rank<'a>(
    item: &'a PlannedFile,
    several: &'a HashMap<FileId, (i64, Vec<u8>)>,
) -> ((i64, &'a [u8]), Reverse<i64>, &'a [u8]) {
    let own = (item.spare, item.path.as_slice());
    let first = several.get(&item.id).map_or(own, |(spare, path)| (*spare, path));
    (first, Reverse(item.spare), &item.path)
}

pub(super) fn make_plan(
    vault: &Vault,
    pool: &Pool,
    options: &RebuildOptions,
    context: RunContext<'_>,
) -> Result<Plan, RebuildError> {
    (context.progress)(Progress::Step("looking where files are", None));
    let target_states = TargetStates::of(pool);
    let chosen = |name: &TargetName| options.includes(name);
    let of =
        |state: TargetState| target_states.in_state(state).into_iter().filter(chosen).collect::<Vec<_>>();
    let mut plan = Plan {
        gone: of(TargetState::Offline),
        retired: of(TargetState::Retired),
        returned: of(TargetState::Returned),
        ..Plan::default()
    };
    let (mut failed, mut names) = (None, HashSet::new());
    each_file(pool, &mut |path, stub| {
        plan.examined += 1;
        (context.progress)(Progress::Done(1, 0));
        let stub = match stub {
            Ok(stub) => stub,
            Err(error) => return plan.unreadable.push((path, error.into())),
        };
        let found = match survey(pool, &vault.coders, &target_states, &path, &stub) {
            Ok(found) => found,
            Err(error) => return plan.unreadable.push((path, error.into())),
        };
        let mut code = None;
        let unprotected =
            matches!(found.health, FileHealth::Pending | FileHealth::Draining) && found.spare == 0;
        if unprotected || found.health == FileHealth::Lost {
            match code_for_unprotected(vault, pool, &target_states, &path, &stub) {
                Ok(was) => code = was,
                Err(error) => failed = Some(error),
            }
        }
        // A column that was left out during encoding has no target that could be chosen.
        let misses_any = options.targets.is_empty() && found.health == FileHealth::Degraded;
        let misses = misses_any || found.targets.iter().any(chosen);
        let is_named = options.release && found.empty.iter().any(chosen);
        let ours = misses || is_named || found.has_stale_parts || (unprotected && code.is_some());
        let another = stub.names > 0 && !names.insert(stub.id);
        let item = PlannedFile {
            path,
            id: stub.id,
            health: found.health,
            spare: found.spare,
            bytes: if another { 0 } else { found.bytes },
            targets: found.targets,
            code,
        };
        match found.health {
            _ if !ours => {}
            FileHealth::Lost => plan.lost.push(item),
            _ if item.code.is_some() => plan.files.push(item),
            FileHealth::Degraded | FileHealth::Draining => plan.files.push(item),
            FileHealth::Whole | FileHealth::Pending if found.has_stale_parts || is_named => {
                plan.files.push(item);
            }
            _ => {}
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    plan.order_by_risk();
    Ok(plan)
}

/// Code for a file without redundancy: its previous one, or that of the policy. A catalogue lost with a target does not
/// know the file, so the namespace decides which files exist. Redundancy of an earlier version is replaced by
/// `protect`, which respects guards.
fn code_for_unprotected(
    vault: &Vault,
    pool: &Pool,
    target_states: &TargetStates,
    path: &[u8],
    stub: &Stub,
) -> Result<Option<String>, CatalogueError> {
    let Ok(found) = parts(pool, &vault.coders, target_states, path, stub) else { return Ok(None) };
    if !found.current.is_empty() {
        return Ok(None);
    }
    let stat = stub.stat(0);
    let unwritten = |entry: &Entry| stat.generation().is_unwritten_since(&entry.generation);
    let known = vault.catalogue.find(path)?.filter(|entry| entry.wanted > 0);
    if let Some(entry) = known.filter(unwritten) {
        return Ok(Some(entry.code));
    }
    let treatment = vault.policy.decide(path, &stat, vault.clock.now()).treatment;
    let treatment = treatment.filter(|it| found.others.is_empty() && it.code.m() > 0);
    Ok(treatment.map(|treatment| treatment.identity.clone()))
}
