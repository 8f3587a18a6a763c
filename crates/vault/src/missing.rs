//! Columns that files miss because their targets are unavailable.

use crate::catalogue::{CatalogueError, Entry, State};
use crate::examine::{belonging, open_in_order};
use crate::redundancy::Part;
use crate::storage::plain::{DATA, REPOSITORY};
use crate::storage::{RedundancyLocation, Target, TargetState};
use crate::tree::Stat;
use crate::vault::Vault;
use std::collections::BTreeMap;

/// Columns that a file has without some targets.
#[derive(Clone, Copy)]
pub(crate) struct RemainingColumns {
    /// Data columns that would be lost.
    pub(crate) data_gone: usize,
    /// Redundancy columns that would remain.
    pub(crate) redundancy: usize,
    /// Redundancy columns that exist now.
    pub(crate) redundancy_now: usize,
}

/// Columns that remain without `targets`, from the present locations of data and redundancy. `code` is used if no
/// header can be read. None if the locations are unknown.
pub(crate) fn remaining_columns(
    vault: &Vault,
    path: &[u8],
    code: &str,
    targets: &[Vec<u8>],
) -> Option<RemainingColumns> {
    let gone = |name: &[u8]| targets.iter().any(|target| target == name);
    let PresentRedundancy { locations, parts, now } = PresentRedundancy::of(vault, path, &|_| true)?;
    let mut remaining_columns = RemainingColumns { data_gone: 0, redundancy: 0, redundancy_now: 0 };
    for part in &parts {
        remaining_columns.redundancy_now += part.header.columns;
        let location = locations.iter().find(|location| location.place.is(&part.place));
        // The repository of a plain directory counts as a target.
        let target = location.map(|location| &location.target[..]).filter(|target| !target.is_empty());
        if !gone(target.unwrap_or(REPOSITORY)) {
            remaining_columns.redundancy += part.header.columns;
        }
    }
    let header = parts.first().map(|part| &part.header);
    let code = header.map_or_else(
        || vault.coders.get(code).ok().map(|it| it.code().clone()),
        |it| Some(it.code.clone()),
    )?;
    let block = header.map_or(DEFAULT_BLOCK, |header| header.geometry.block());
    let layout = vault.storage.layout(path, &code, block).ok()?;
    // In a short file some columns are empty.
    let size = now.map(|stat| stat.size).or(header.map(|header| header.generation.size))?;
    let cut = layout.geometry.cut(size);
    let has_bytes = |column: usize| size > 0 && !cut.run(0, 1).cell(0, column).is_empty();
    let data = (0..code.k()).filter(|&column| has_bytes(column));
    let lost = |column: &usize| gone(layout.targets.get(*column).map_or(DATA, |target| target));
    remaining_columns.data_gone = data.filter(lost).count();
    Some(remaining_columns)
}

/// The redundancy files that protect the present version of a file.
pub(crate) struct PresentRedundancy {
    /// All locations that redundancy of the file may have.
    pub(crate) locations: Vec<RedundancyLocation>,
    /// Open redundancy files of one revision.
    pub(crate) parts: Vec<Part>,
    /// Status of the file; none if it is gone.
    pub(crate) now: Option<Stat>,
}

impl PresentRedundancy {
    /// Opens those at locations that may be read. None if the locations are unknown.
    pub(crate) fn of(
        vault: &Vault,
        path: &[u8],
        may_be_read: &dyn Fn(&RedundancyLocation) -> bool,
    ) -> Option<PresentRedundancy> {
        let mut locations = vault.storage.redundancy_locations(path).ok()?;
        locations.retain(may_be_read);
        let opened = open_in_order(&locations, |it| it.place.open_conclusive(&vault.coders)).ok()?;
        let owned = |(location, part): (&RedundancyLocation, Option<Part>)| {
            part.filter(|part| location.owns(&part.header))
        };
        let parts: Vec<Part> = locations.iter().zip(opened).filter_map(owned).collect();
        let now = vault.storage.find(path).ok().flatten();
        let (mut parts, _) = belonging(parts, now.map(|stat| stat.generation()));
        let revision = parts.first().map(|part| part.header.revision);
        parts.retain(|part| Some(part.header.revision) == revision);
        // Redundancy of an older version does not protect this one.
        parts.retain(|part| {
            let was = part.header.generation;
            now.is_none_or(|now| (now.size, now.mtime, now.inode) == (was.size, was.mtime, was.inode))
        });
        Some(PresentRedundancy { locations, parts, now })
    }
}

/// Any block size serves to locate columns.
const DEFAULT_BLOCK: u64 = 1 << 16;

/// Targets whose content is not available.
pub(crate) struct UnavailableTargets {
    /// All of them: unreachable ones, and returned ones that are not verified.
    pub(crate) untrusted: Vec<Vec<u8>>,
    /// Unreachable ones.
    pub(crate) offline: Vec<Vec<u8>>,
}

impl UnavailableTargets {
    pub(crate) fn of(targets: &[Target]) -> UnavailableTargets {
        let names = |is: &dyn Fn(TargetState) -> bool| {
            targets.iter().filter(|target| is(target.state)).map(|target| target.name.clone()).collect()
        };
        UnavailableTargets {
            untrusted: names(&|state| !state.has_valid_content()),
            offline: names(&|state| state == TargetState::Offline),
        }
    }
}

/// Restores the state of a file whose columns are complete again because their targets are reachable.
pub(crate) fn restore_if_complete(vault: &Vault, path: &[u8], entry: &mut Entry) {
    let Some(RemainingColumns { data_gone: 0, redundancy_now, .. }) =
        remaining_columns(vault, path, &entry.code, &[])
    else {
        return;
    };
    if redundancy_now >= entry.wanted as usize {
        (entry.state, entry.columns) = (State::Protected, entry.wanted);
    }
}

/// Reduces an entry by the columns on unavailable targets. A removed file misses nothing; for a replaced file, which is
/// pending, only a loss is recorded.
pub(crate) fn apply_losses(vault: &Vault, path: &[u8], missing: &UnavailableTargets, entry: &mut Entry) {
    let now = vault.storage.find(path);
    if matches!(now, Ok(None)) {
        return;
    }
    // If the location is unknown, nothing can be assumed.
    let nothing = RemainingColumns { data_gone: 0, redundancy: 0, redundancy_now: 0 };
    let left = |gone: &[Vec<u8>]| remaining_columns(vault, path, &entry.code, gone).unwrap_or(nothing);
    let RemainingColumns { data_gone, redundancy, redundancy_now } = left(&missing.untrusted);
    let actual = redundancy.saturating_sub(data_gone).min(entry.columns as usize) as u32;
    let mut lost = data_gone > redundancy;
    if lost && missing.offline.len() < missing.untrusted.len() {
        // Returned targets may save it.
        let left = left(&missing.offline);
        lost = left.data_gone > left.redundancy;
    }
    let replaced = matches!(&now, Ok(Some(stat)) if !stat.generation().is_unwritten_since(&entry.generation));
    // A file that was moved here has redundancy of its own.
    let is_pending = replaced && redundancy_now == 0;
    if lost {
        entry.state = State::Lost;
    } else if actual < entry.columns && !is_pending {
        entry.state = entry.state.max(State::Degraded);
    }
    if !replaced {
        entry.columns = actual;
    }
}

/// Number of files in each state but the first, from the catalogue and the available targets.
pub(crate) fn affected(vault: &Vault) -> Result<Vec<(State, u64)>, CatalogueError> {
    let missing = UnavailableTargets::of(&vault.storage.targets());
    if vault.pool.is_none() || missing.untrusted.is_empty() {
        return vault.catalogue.affected();
    }
    let mut states: BTreeMap<State, u64> = BTreeMap::new();
    vault.catalogue.each_page(b"", |page| -> Result<(), CatalogueError> {
        for (path, mut entry) in page {
            apply_losses(vault, &path, &missing, &mut entry);
            *states.entry(entry.state).or_default() += 1;
        }
        Ok(())
    })?;
    states.remove(&State::Protected);
    Ok(states.into_iter().collect())
}
