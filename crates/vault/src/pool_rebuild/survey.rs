//! Where files are, and what that is worth: told from stubs and headers alone, without reading content.

use crate::coder::Coders;
use crate::examine::belonging;
use crate::redundancy::{Part, PartPath, Unknown};
use crate::storage::TargetState;
use crate::storage::pool::stub::Stub;
use crate::storage::pool::{Pool, PoolError};
use crate::tree::Tree;
use std::collections::BTreeMap;

/// The targets of a pool, as they are worth now.
#[derive(Debug, Clone)]
pub struct Places {
    targets: BTreeMap<String, (TargetState, Option<Tree>)>,
}

impl Places {
    /// As the pool is now.
    pub fn of(pool: &Pool) -> Places {
        let targets = pool.target_states().into_iter().map(|(name, state, tree)| (name, (state, tree)));
        Places { targets: targets.collect() }
    }

    /// The state of a target; one that the pool does not know is gone.
    pub fn state(&self, name: &str) -> TargetState {
        self.targets.get(name).map_or(TargetState::Offline, |(state, _)| *state)
    }

    /// Names of targets in a state.
    pub fn in_state(&self, wanted: TargetState) -> Vec<String> {
        self.targets.iter().filter(|(_, (state, _))| *state == wanted).map(|(name, _)| name.clone()).collect()
    }

    /// Whether some target is not in service.
    pub fn is_anything_wrong(&self) -> bool {
        self.targets.values().any(|(state, _)| *state != TargetState::Online)
    }

    pub(super) fn tree(&self, name: &str) -> Option<&Tree> {
        self.targets.get(name).and_then(|(_, tree)| tree.as_ref())
    }
}

/// How a file stands by where its parts are. Content is not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// All columns are on targets in service.
    Whole,
    /// It has no redundancy for what it is now; its data is there.
    Pending,
    /// All columns are there, some on targets that are to be emptied.
    Leaving,
    /// Columns are gone, and can be made anew.
    Degraded,
    /// Too many are gone.
    Lost,
}

/// Where the parts of one file are.
#[derive(Debug)]
pub struct Survey {
    /// How it stands.
    pub standing: Standing,
    /// Blocks of a stripe that can be had beyond those that are needed; negative if it is lost.
    pub spare: i64,
    /// Data columns, with bytes, that are gone or unverified.
    pub data_gone: usize,
    /// Redundancy columns that are gone, unverified or never found a place.
    pub redundancy_gone: usize,
    /// Bytes that have to be written, or verified, to put it in order.
    pub bytes: u64,
    /// Targets that it misses, or that are to be emptied of it.
    pub targets: Vec<String>,
    /// Something on a target that came back was made anew elsewhere.
    pub leftover: bool,
}

/// Looks where a file is.
///
/// # Errors
/// It is not known what some of its redundancy is.
pub fn survey(
    pool: &Pool,
    coders: &Coders,
    places: &Places,
    path: &[u8],
    stub: &Stub,
) -> Result<Survey, Unknown> {
    let mut survey = Survey {
        standing: Standing::Whole,
        spare: 0,
        data_gone: 0,
        redundancy_gone: 0,
        bytes: 0,
        targets: Vec::new(),
        leftover: false,
    };
    let (mut unreachable, mut leaving) = (0, false);
    for (column, target) in stub.targets.iter().enumerate() {
        let bytes = stub.object_bytes(column, stub.size);
        let state = places.state(target);
        // Columns without bytes go where they like, but the stub is to name no target that goes away.
        if bytes == 0 && state == TargetState::Retired {
            leaving = true;
            survey.targets.push(target.clone());
        }
        if bytes == 0 || state == TargetState::Online {
            continue;
        }
        survey.targets.push(target.clone());
        survey.bytes += bytes;
        match state {
            TargetState::Retired => leaving = true,
            TargetState::Returned => survey.data_gone += 1,
            _ => {
                survey.data_gone += 1;
                unreachable += 1;
            }
        }
    }
    let Parts { current: parts, others, broken } = parts(pool, coders, places, path, stub)?;
    let Some(header) = parts.first().map(|(_, part)| &part.header) else {
        survey.leftover = !others.is_empty();
        survey.spare = -unreachable;
        survey.standing = match (unreachable, survey.data_gone, leaving) {
            (0, 0, false) => Standing::Pending,
            (0, 0, true) => Standing::Leaving,
            (0, ..) => Standing::Degraded,
            _ => Standing::Lost,
        };
        return Ok(survey);
    };
    let m = header.code.m();
    let mut held = vec![TargetState::Offline; m];
    for (target, part) in &parts {
        let state = places.state(target);
        for column in part.columns() {
            held[column] = state;
        }
        leaving |= state == TargetState::Retired;
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
            // Where it was when it was protected.
            None => survey.targets.extend(
                header
                    .targets
                    .get(header.code.k() + column)
                    .map(|name| lossy(name))
                    .filter(|it| !it.is_empty()),
            ),
        }
        survey.redundancy_gone += usize::from(!state.counts());
    }
    let reachable = held.iter().filter(|state| **state != TargetState::Offline).count() as i64;
    survey.spare = reachable - unreachable;
    let returned = places.in_state(TargetState::Returned);
    let has_leftover = |target: &String| {
        let other = others.iter().any(|(name, _)| name == target);
        let tree = places.tree(target);
        other
            || tree
                .is_some_and(|tree| pool.stale_columns(tree, target, stub).map_or(true, |it| !it.is_empty()))
    };
    let complete = held.iter().all(|state| state.counts());
    survey.leftover =
        returned.iter().any(has_leftover) || (complete && !(others.is_empty() && broken.is_empty()));
    survey.standing = match () {
        () if survey.spare < 0 => Standing::Lost,
        () if survey.data_gone + survey.redundancy_gone > 0 => Standing::Degraded,
        () if leaving => Standing::Leaving,
        () => Standing::Whole,
    };
    survey.targets.sort();
    survey.targets.dedup();
    Ok(survey)
}

fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// The redundancy files of a file, each with the target that it is on.
pub(super) struct Parts {
    /// Those that protect the file as it is now, each column once.
    pub(super) current: Vec<(String, Part)>,
    /// Those of earlier versions of it, and such as are there twice.
    pub(super) others: Vec<(String, Part)>,
    /// Those without a readable header.
    pub(super) broken: Vec<(String, PartPath)>,
}

/// Looks for the redundancy files of a file.
///
/// # Errors
/// It is not known what some of them are.
pub(super) fn parts(
    pool: &Pool,
    coders: &Coders,
    places: &Places,
    path: &[u8],
    stub: &Stub,
) -> Result<Parts, Unknown> {
    let (mut found, mut broken) = (Vec::new(), Vec::new());
    let mut locations = pool.redundancy_locations_of(path, stub);
    // Those in service first: of a column that is there twice, the first one counts.
    locations.sort_by_key(|location| {
        let state = places.state(&lossy(&location.target));
        (state == TargetState::Returned, state != TargetState::Online)
    });
    for location in locations {
        match location.place.open(coders) {
            Ok(Some(part)) if location.owns(&part.header) => found.push((lossy(&location.target), part)),
            Err(error) if error.is_unknown() => {
                let path = location.place.tree.shown(&location.place.path);
                return Err(Unknown { path, source: Box::new(error) });
            }
            Err(error) if error.is_beyond_use() => broken.push((lossy(&location.target), location.place)),
            _ => {}
        }
    }
    let names: Vec<(String, std::path::PathBuf)> =
        found.iter().map(|(name, part)| (name.clone(), part.place.tree.path().to_owned())).collect();
    let name = |part: &Part| {
        let own = names.iter().find(|(_, path)| path == part.place.tree.path());
        own.map_or_else(String::new, |(name, _)| name.clone())
    };
    let now = stub.stat(0).generation();
    let (mut ours, mut others) = belonging(found.into_iter().map(|(_, part)| part).collect(), Some(now));
    let revision = ours.first().map(|part| part.header.revision);
    let fits = |part: &Part| {
        Some(part.header.revision) == revision && now.is_unwritten_since(&part.header.generation)
    };
    others.extend(ours.extract_if(.., |part| !fits(part)));
    let named = |parts: Vec<Part>| parts.into_iter().map(|part| (name(&part), part)).collect();
    Ok(Parts { current: named(ours), others: named(others), broken })
}

/// Visits every file of a pool, with what it stands for or why that is not known.
///
/// # Errors
/// The namespace cannot be read.
pub fn each_file(
    pool: &Pool,
    visit: &mut dyn FnMut(Vec<u8>, Result<Stub, PoolError>),
) -> Result<(), PoolError> {
    pool.each_file(visit)
}

/// Files of a pool that are not whole, by where their parts are.
#[derive(Debug, Default)]
pub struct Overview {
    /// Files by standing.
    pub files: BTreeMap<Standing, u64>,
    /// Those that are degraded or lost, by name, as many as were asked for, with what they miss.
    pub named: Vec<(Vec<u8>, Standing, Vec<String>)>,
    /// Files whose stubs or redundancy cannot be read, and why.
    pub unreadable: Vec<(Vec<u8>, String)>,
}

/// Looks where all files are; at most `names` are named.
///
/// # Errors
/// The namespace cannot be read.
pub fn overview(pool: &Pool, coders: &Coders, names: usize) -> Result<Overview, PoolError> {
    let places = Places::of(pool);
    let mut overview = Overview::default();
    each_file(pool, &mut |path, stub| match stub {
        Ok(stub) => {
            let found = match survey(pool, coders, &places, &path, &stub) {
                Ok(found) => found,
                Err(error) => return overview.unreadable.push((path, error.to_string())),
            };
            *overview.files.entry(found.standing).or_default() += 1;
            if found.standing >= Standing::Degraded && overview.named.len() < names {
                overview.named.push((path, found.standing, found.targets));
            }
        }
        Err(error) => overview.unreadable.push((path, error.to_string())),
    })?;
    overview.named.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Ok(overview)
}
