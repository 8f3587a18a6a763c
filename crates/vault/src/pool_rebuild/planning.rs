//! What is to be done, told by stubs and headers.

use super::survey::{Places, Standing, each_file, parts, survey};
use super::{Options, RebuildError};
use crate::catalogue::{CatalogueError, Entry};
use crate::format::FileId;
use crate::run::{Progress, RunContext};
use crate::storage::TargetState;
use crate::storage::pool::Pool;
use crate::storage::pool::stub::Stub;
use crate::vault::Vault;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// A file to be put in order.
#[derive(Debug, Clone)]
pub struct Item {
    /// Which one.
    pub path: Vec<u8>,
    /// The same for all names of a file.
    pub id: FileId,
    /// How it stands.
    pub standing: Standing,
    /// Blocks of a stripe that can be had beyond those that are needed.
    pub spare: i64,
    /// Bytes to write or verify; those of a file with several names count at one of them.
    pub bytes: u64,
    /// Targets that it misses or leaves.
    pub targets: Vec<String>,
    /// It has no redundancy, and its data is there: it is protected with this code.
    pub code: Option<String>,
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// Targets that are gone.
    pub gone: Vec<String>,
    /// Targets that are to be emptied.
    pub retired: Vec<String>,
    /// Targets that came back, or are to be looked at, and have to be verified.
    pub returned: Vec<String>,
    /// Files to put in order, the most exposed first. Names of one file follow each other; what one of them can bring back, the next
    /// ones find.
    pub files: Vec<Item>,
    /// Files that are lost under all of their names by where their parts were, with the targets that they miss.
    pub lost: Vec<Item>,
    /// Files whose stubs cannot be read, and why.
    pub unreadable: Vec<(Vec<u8>, String)>,
    /// Files that were looked at.
    pub examined: u64,
}

impl Plan {
    /// Bytes to write or verify.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|item| item.bytes).sum()
    }

    /// Tells of both plans together, where this one came after `first`.
    pub(super) fn follow(&mut self, first: Plan) {
        let planned: HashSet<&Vec<u8>> = first.files.iter().map(|item| &item.path).collect();
        self.files.retain(|item| !planned.contains(&item.path));
        drop(planned);
        self.files.splice(..0, first.files);
        self.returned = first.returned;
    }

    /// Sorts files by what they can still lose, and has names of one file follow each other. The one that can bring back most comes first:
    /// then those are not lost either whose own redundancy does not suffice.
    fn bring_names_together(&mut self) {
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

/// Where a file is in the order of work; those with several names are at the place of the most exposed one.
fn rank<'a>(
    item: &'a Item,
    several: &'a HashMap<FileId, (i64, Vec<u8>)>,
) -> ((i64, &'a [u8]), Reverse<i64>, &'a [u8]) {
    let own = (item.spare, item.path.as_slice());
    let first = several.get(&item.id).map_or(own, |(spare, path)| (*spare, path));
    (first, Reverse(item.spare), &item.path)
}

pub(super) fn make_plan(
    vault: &Vault,
    pool: &Pool,
    options: &Options,
    context: RunContext<'_>,
) -> Result<Plan, RebuildError> {
    (context.progress)(Progress::Step("looking where files are", None));
    let places = Places::of(pool);
    let chosen = |name: &String| options.targets.is_empty() || options.targets.contains(name);
    let of = |state: TargetState| places.in_state(state).into_iter().filter(chosen).collect::<Vec<_>>();
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
            Err(error) => return plan.unreadable.push((path, error.to_string())),
        };
        let found = match survey(pool, &vault.coders, &places, &path, &stub) {
            Ok(found) => found,
            Err(error) => return plan.unreadable.push((path, error.to_string())),
        };
        let mut code = None;
        let bare = matches!(found.standing, Standing::Pending | Standing::Leaving) && found.spare == 0;
        if bare || found.standing == Standing::Lost {
            match stripped(vault, pool, &places, &path, &stub) {
                Ok(was) => code = was,
                Err(error) => failed = Some(error),
            }
        }
        // A column that was left out when the file was protected misses no target that has a name.
        let misses_any = options.targets.is_empty() && found.standing == Standing::Degraded;
        let misses = misses_any || found.targets.iter().any(chosen);
        let ours = misses || found.leftover || (bare && code.is_some());
        let another = stub.names > 0 && !names.insert(stub.id);
        let item = Item {
            path,
            id: stub.id,
            standing: found.standing,
            spare: found.spare,
            bytes: if another { 0 } else { found.bytes },
            targets: found.targets,
            code,
        };
        match found.standing {
            _ if !ours => {}
            Standing::Lost => plan.lost.push(item),
            _ if item.code.is_some() => plan.files.push(item),
            Standing::Degraded | Standing::Leaving => plan.files.push(item),
            Standing::Whole | Standing::Pending if found.leftover => plan.files.push(item),
            _ => {}
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    plan.bring_names_together();
    Ok(plan)
}

/// The code for a file that has no redundancy: the one that it had, or the one that the policy gives it. A catalogue that went with a target
/// does not know the file, so the namespace decides which files there are. Redundancy of an earlier version is replaced by `protect`, where
/// guards can hold that.
fn stripped(
    vault: &Vault,
    pool: &Pool,
    places: &Places,
    path: &[u8],
    stub: &Stub,
) -> Result<Option<String>, CatalogueError> {
    let Ok(found) = parts(pool, &vault.coders, places, path, stub) else { return Ok(None) };
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
