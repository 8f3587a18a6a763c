//! What files miss: by where their columns are, and which targets do not answer.

use crate::catalogue::{CatalogueError, Entry, State};
use crate::examine::belonging;
use crate::storage::plain::{DATA, REPOSITORY};
use crate::storage::{Target, TargetState};
use crate::vault::Vault;
use std::collections::BTreeMap;

/// What a file would have without some targets.
#[derive(Clone, Copy)]
pub(crate) struct Remains {
    /// Data columns that would be gone.
    pub(crate) data_gone: usize,
    /// Redundancy columns that would be there.
    pub(crate) redundancy: usize,
    /// Redundancy columns that are there now.
    pub(crate) redundancy_now: usize,
}

/// What is left of a file without `targets`, by where its data is now and its redundancy is found. Where no header can be read,
/// its code is `code`; nothing where it is not known where the data is, or what some of its redundancy is.
pub(crate) fn remains(vault: &Vault, path: &[u8], code: &str, targets: &[Vec<u8>]) -> Option<Remains> {
    let gone = |name: &[u8]| targets.iter().any(|target| target == name);
    let locations = vault.storage.redundancy_locations(path).ok()?;
    let mut parts = Vec::new();
    for location in &locations {
        let part = location.place.open_known(&vault.coders).ok()?;
        parts.extend(part.filter(|part| location.owns(&part.header)));
    }
    let now = vault.storage.find(path).ok().flatten();
    let (mut parts, _) = belonging(parts, now.map(|stat| stat.generation()));
    let revision = parts.first().map(|part| part.header.revision);
    parts.retain(|part| Some(part.header.revision) == revision);
    // What protects an older version does not protect this one.
    parts.retain(|part| {
        let was = part.header.generation;
        now.is_none_or(|now| (now.size, now.mtime, now.inode) == (was.size, was.mtime, was.inode))
    });
    let mut remains = Remains { data_gone: 0, redundancy: 0, redundancy_now: 0 };
    for part in &parts {
        remains.redundancy_now += part.header.columns;
        let location = locations.iter().find(|location| location.place.is(&part.place));
        // A plain directory has one repository, which is a target by name.
        let target = location.map(|location| &location.target[..]).filter(|target| !target.is_empty());
        if !gone(target.unwrap_or(REPOSITORY)) {
            remains.redundancy += part.header.columns;
        }
    }
    let header = parts.first().map(|part| &part.header);
    let code = header.map_or_else(
        || vault.coders.get(code).ok().map(|it| it.code().clone()),
        |it| Some(it.code.clone()),
    )?;
    let block = header.map_or(DEFAULT_BLOCK, |header| header.geometry.block());
    let layout = vault.storage.layout(path, &code, block).ok()?;
    // A short file has nothing in some columns, wherever these would be.
    let size = now.map(|stat| stat.size).or(header.map(|header| header.generation.size))?;
    let cut = layout.geometry.cut(size);
    let has_bytes = |column: usize| size > 0 && !cut.run(0, 1).cell(0, column).is_empty();
    let data = (0..code.k()).filter(|&column| has_bytes(column));
    let lost = |column: &usize| gone(layout.targets.get(*column).map_or(DATA, |target| target));
    remains.data_gone = data.filter(lost).count();
    Some(remains)
}

/// Any will do to tell where columns are.
const DEFAULT_BLOCK: u64 = 1 << 16;

/// Targets whose content does not count.
pub(crate) struct Missing {
    /// All of them: those that do not answer, and those that came back and are not verified.
    pub(crate) uncounted: Vec<Vec<u8>>,
    /// Those that do not answer.
    pub(crate) offline: Vec<Vec<u8>>,
}

impl Missing {
    pub(crate) fn of(targets: &[Target]) -> Missing {
        let names = |is: &dyn Fn(TargetState) -> bool| {
            targets.iter().filter(|target| is(target.state)).map(|target| target.name.clone()).collect()
        };
        Missing {
            uncounted: names(&|state| !state.counts()),
            offline: names(&|state| state == TargetState::Offline),
        }
    }
}

/// A file of a pool that missed columns when it was protected last may have them again: their targets answer.
pub(crate) fn regain(vault: &Vault, path: &[u8], entry: &mut Entry) {
    let Some(Remains { data_gone: 0, redundancy_now, .. }) = remains(vault, path, &entry.code, &[]) else {
        return;
    };
    if redundancy_now >= entry.wanted as usize {
        (entry.state, entry.columns) = (State::Protected, entry.wanted);
    }
}

/// Takes from an entry what is on targets that do not count. A file that was removed since it was protected misses nothing, and one that was
/// replaced is pending: of that one only a loss is told.
pub(crate) fn lose(vault: &Vault, path: &[u8], missing: &Missing, entry: &mut Entry) {
    let now = vault.storage.find(path);
    if matches!(now, Ok(None)) {
        return;
    }
    // Where it is not even known where the file is, nothing can be said for it.
    let nothing = Remains { data_gone: 0, redundancy: 0, redundancy_now: 0 };
    let left = |gone: &[Vec<u8>]| remains(vault, path, &entry.code, gone).unwrap_or(nothing);
    let Remains { data_gone, redundancy, redundancy_now } = left(&missing.uncounted);
    let actual = redundancy.saturating_sub(data_gone).min(entry.columns as usize) as u32;
    let mut lost = data_gone > redundancy;
    if lost && missing.offline.len() < missing.uncounted.len() {
        // What came back may save it.
        let left = left(&missing.offline);
        lost = left.data_gone > left.redundancy;
    }
    let replaced = matches!(&now, Ok(Some(stat)) if !stat.generation().is_unwritten_since(&entry.generation));
    // One that was moved here has redundancy of its own.
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

/// Number of files in each state but the first, by the catalogue and by which targets answer now.
pub(crate) fn affected(vault: &Vault) -> Result<Vec<(State, u64)>, CatalogueError> {
    let missing = Missing::of(&vault.storage.targets());
    if vault.pool.is_none() || missing.uncounted.is_empty() {
        return vault.catalogue.affected();
    }
    let mut states: BTreeMap<State, u64> = BTreeMap::new();
    vault.catalogue.each_page(b"", |page| -> Result<(), CatalogueError> {
        for (path, mut entry) in page {
            lose(vault, &path, &missing, &mut entry);
            *states.entry(entry.state).or_default() += 1;
        }
        Ok(())
    })?;
    states.remove(&State::Protected);
    Ok(states.into_iter().collect())
}
