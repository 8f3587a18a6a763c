//! Survey: where the columns of files are and which redundancy is left, from stubs and headers without reading content.

use crate::coder::Coders;
use crate::examine::{belonging, open_in_order};
use crate::redundancy::{InconclusivePart, Part, PartPath};
use crate::retry::Failure;
use crate::storage::TargetState;
use crate::storage::pool::config::TargetName;
use crate::storage::pool::stub::Stub;
use crate::storage::pool::{Pool, PoolError};
use crate::tree::Tree;
use std::collections::BTreeMap;

/// States of the targets of a pool.
#[derive(Debug, Clone)]
pub struct TargetStates {
    targets: BTreeMap<TargetName, (TargetState, Option<Tree>)>,
}

impl TargetStates {
    /// Present states.
    pub fn of(pool: &Pool) -> TargetStates {
        let targets = pool.target_states().into_iter().map(|(name, state, tree)| (name, (state, tree)));
        TargetStates { targets: targets.collect() }
    }

    /// State of a target; an unknown target counts as offline.
    pub fn state(&self, name: &TargetName) -> TargetState {
        self.targets.get(name).map_or(TargetState::Offline, |(state, _)| *state)
    }

    /// State of a target that a header names.
    pub(super) fn state_of(&self, name: &[u8]) -> TargetState {
        TargetName::from_bytes(name).map_or(TargetState::Offline, |name| self.state(&name))
    }

    /// The same states, but for one target.
    pub(super) fn with(&self, name: &TargetName, state: TargetState) -> TargetStates {
        let mut states = self.clone();
        if let Some(own) = states.targets.get_mut(name) {
            own.0 = state;
        }
        states
    }

    /// Names of the targets in a state.
    pub fn in_state(&self, wanted: TargetState) -> Vec<TargetName> {
        self.targets.iter().filter(|(_, (state, _))| *state == wanted).map(|(name, _)| name.clone()).collect()
    }

    /// All targets with their states, by name.
    pub(super) fn each(&self, mut visit: impl FnMut(&TargetName, TargetState)) {
        self.targets.iter().for_each(|(name, (state, _))| visit(name, *state));
    }

    /// True if a target is not in service.
    pub fn is_anything_wrong(&self) -> bool {
        self.targets.values().any(|(state, _)| *state != TargetState::Online)
    }

    pub(super) fn tree(&self, name: &TargetName) -> Option<&Tree> {
        self.targets.get(name).and_then(|(_, tree)| tree.as_ref())
    }
}

/// Health of a file by the targets of its columns. Content is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileHealth {
    /// All columns are on targets in service.
    Whole,
    /// It has no redundancy of its present version; its data is complete.
    Pending,
    /// All columns exist, some on retired targets.
    Draining,
    /// Columns are lost and can be reconstructed.
    Degraded,
    /// Too many columns are lost.
    Lost,
}

/// Survey of one file.
#[derive(Debug)]
pub struct Survey {
    /// Health.
    pub health: FileHealth,
    /// Blocks of a stripe that may still be lost; negative if the file is lost.
    pub spare: i64,
    /// Data columns with bytes that are lost or unverified.
    pub data_gone: usize,
    /// Redundancy columns that are lost, unverified or unplaced.
    pub redundancy_gone: usize,
    /// Bytes to be written or verified.
    pub bytes: u64,
    /// Targets whose columns are lost, or that are being drained.
    pub targets: Vec<TargetName>,
    /// Unreachable targets that the stub names for columns without bytes.
    pub empty: Vec<TargetName>,
    /// A returned target has columns that were reconstructed elsewhere.
    pub has_stale_parts: bool,
}

/// Surveys a file.
///
/// # Errors
/// Some of its redundancy cannot be identified.
pub fn survey(
    pool: &Pool,
    coders: &Coders,
    target_states: &TargetStates,
    path: &[u8],
    stub: &Stub,
) -> Result<Survey, InconclusivePart> {
    let mut survey = Survey {
        health: FileHealth::Whole,
        spare: 0,
        data_gone: 0,
        redundancy_gone: 0,
        bytes: 0,
        targets: Vec::new(),
        empty: Vec::new(),
        has_stale_parts: false,
    };
    let (mut unreachable, mut draining) = (0, false);
    for (column, target) in stub.targets.iter().enumerate() {
        let bytes = stub.object_bytes(column, stub.size);
        let state = target_states.state(target);
        // Columns without bytes need no space, but the stub must not refer to a target that is being drained.
        if bytes == 0 && state == TargetState::Retired {
            draining = true;
            survey.targets.push(target.clone());
        }
        if bytes == 0 && state == TargetState::Offline {
            survey.empty.push(target.clone());
        }
        if bytes == 0 || state == TargetState::Online {
            continue;
        }
        survey.targets.push(target.clone());
        survey.bytes += bytes;
        match state {
            TargetState::Retired => draining = true,
            TargetState::Returned => survey.data_gone += 1,
            _ => {
                survey.data_gone += 1;
                unreachable += 1;
            }
        }
    }
    let RedundancyParts { current: parts, others, broken } = parts(pool, coders, target_states, path, stub)?;
    let Some(header) = parts.first().map(|(_, part)| &part.header) else {
        survey.has_stale_parts = !others.is_empty();
        survey.spare = -unreachable;
        survey.health = match (unreachable, survey.data_gone, draining) {
            (0, 0, false) => FileHealth::Pending,
            (0, 0, true) => FileHealth::Draining,
            (0, ..) => FileHealth::Degraded,
            _ => FileHealth::Lost,
        };
        return Ok(survey);
    };
    let m = header.code.m();
    let mut held = vec![TargetState::Offline; m];
    for (target, part) in &parts {
        let state = target_states.state(target);
        for column in part.columns() {
            held[column] = state;
        }
        draining |= state == TargetState::Retired;
    }
    let file = parts.first().map_or(0, |(_, part)| part.records.file());
    for (column, state) in held.iter().enumerate() {
        if *state == TargetState::Online {
            continue;
        }
        survey.bytes += file;
        let location = parts.iter().find(|(_, part)| part.columns().contains(&column));
        match location {
            Some((target, _)) => survey.targets.push(target.clone()),
            // Its target at the time of encoding.
            None => survey.targets.extend(
                header.targets.get(header.code.k() + column).and_then(|name| TargetName::from_bytes(name)),
            ),
        }
        survey.redundancy_gone += usize::from(!state.has_valid_content());
    }
    let reachable = held.iter().filter(|state| **state != TargetState::Offline).count() as i64;
    survey.spare = reachable - unreachable;
    let returned = target_states.in_state(TargetState::Returned);
    let has_leftover = |target: &TargetName| {
        let other = others.iter().any(|(name, _)| name == target);
        let tree = target_states.tree(target);
        other
            || tree
                .is_some_and(|tree| pool.stale_columns(tree, target, stub).map_or(true, |it| !it.is_empty()))
    };
    let complete = held.iter().all(|state| state.has_valid_content());
    survey.has_stale_parts =
        returned.iter().any(has_leftover) || (complete && !(others.is_empty() && broken.is_empty()));
    survey.health = match () {
        () if survey.spare < 0 => FileHealth::Lost,
        () if survey.data_gone + survey.redundancy_gone > 0 => FileHealth::Degraded,
        () if draining => FileHealth::Draining,
        () => FileHealth::Whole,
    };
    survey.targets.sort();
    survey.targets.dedup();
    Ok(survey)
}

/// Redundancy files of a file, each with its target.
pub(super) struct RedundancyParts {
    /// Redundancy of the present version, each column once.
    pub(super) current: Vec<(TargetName, Part)>,
    /// Redundancy of earlier versions, and duplicates.
    pub(super) others: Vec<(TargetName, Part)>,
    /// Redundancy files without a valid header.
    pub(super) broken: Vec<(TargetName, PartPath)>,
}

/// Finds the redundancy files of a file.
///
/// # Errors
/// Some of them cannot be identified.
pub(super) fn parts(
    pool: &Pool,
    coders: &Coders,
    target_states: &TargetStates,
    path: &[u8],
    stub: &Stub,
) -> Result<RedundancyParts, InconclusivePart> {
    let (mut found, mut broken) = (Vec::new(), Vec::new());
    let mut locations = pool.redundancy_locations_of(path, stub);
    // Targets in service first: of duplicate columns the first one is used.
    locations.sort_by_key(|location| {
        let state = target_states.state_of(&location.target);
        (state == TargetState::Returned, state != TargetState::Online)
    });
    let opened = open_in_order(&locations, |location| match location.place.open(coders) {
        Err(error) if error.is_inconclusive() => {
            let path = location.place.tree.shown(&location.place.path);
            Err(InconclusivePart { path, source: Box::new(error) })
        }
        opened => Ok(opened),
    })?;
    for (location, opened) in locations.into_iter().zip(opened) {
        let Some(target) = TargetName::from_bytes(&location.target) else { continue };
        match opened {
            Ok(Some(part)) if location.owns(&part.header) => found.push((target, part)),
            Err(error) if error.is_unusable() => broken.push((target, location.place)),
            _ => {}
        }
    }
    let names: Vec<(TargetName, std::path::PathBuf)> =
        found.iter().map(|(name, part)| (name.clone(), part.place.tree.path().to_owned())).collect();
    let name = |part: &Part| {
        let own = names.iter().find(|(_, path)| path == part.place.tree.path());
        own.map(|(name, _)| name.clone())
    };
    let now = stub.stat(0).generation();
    let (mut ours, mut others) = belonging(found.into_iter().map(|(_, part)| part).collect(), Some(now));
    let revision = ours.first().map(|part| part.header.revision);
    let fits = |part: &Part| {
        Some(part.header.revision) == revision && now.is_unwritten_since(&part.header.generation)
    };
    others.extend(ours.extract_if(.., |part| !fits(part)));
    let named = |parts: Vec<Part>| parts.into_iter().filter_map(|part| Some((name(&part)?, part))).collect();
    Ok(RedundancyParts { current: named(ours), others: named(others), broken })
}

/// Visits every file of a pool, with its stub or the error.
///
/// # Errors
/// The namespace cannot be read.
pub fn each_file(
    pool: &Pool,
    visit: &mut dyn FnMut(Vec<u8>, Result<Stub, PoolError>),
) -> Result<(), PoolError> {
    pool.each_file(visit)
}

/// Health of all files of a pool.
#[derive(Debug, Default)]
pub struct PoolOverview {
    /// Number of files by health.
    pub files: BTreeMap<FileHealth, u64>,
    /// Degraded and lost files, up to a limit, with the targets they miss.
    pub named: Vec<(Vec<u8>, FileHealth, Vec<TargetName>)>,
    /// Files with unreadable stubs or redundancy, with the error.
    pub unreadable: Vec<(Vec<u8>, Failure)>,
}

/// Surveys all files; names at most `names` of them.
///
/// # Errors
/// The namespace cannot be read.
pub fn overview(pool: &Pool, coders: &Coders, names: usize) -> Result<PoolOverview, PoolError> {
    let target_states = TargetStates::of(pool);
    let mut overview = PoolOverview::default();
    each_file(pool, &mut |path, stub| match stub {
        Ok(stub) => {
            let found = match survey(pool, coders, &target_states, &path, &stub) {
                Ok(found) => found,
                Err(error) => return overview.unreadable.push((path, error.into())),
            };
            *overview.files.entry(found.health).or_default() += 1;
            if found.health >= FileHealth::Degraded && overview.named.len() < names {
                overview.named.push((path, found.health, found.targets));
            }
        }
        Err(error) => overview.unreadable.push((path, error.into())),
    })?;
    overview.named.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Ok(overview)
}
