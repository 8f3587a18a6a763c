//! Placement: which targets receive which columns.
//!
//! All columns of a file are in different failure domains. Domains are drawn at random, weighted by free space, so that
//! disks fill evenly without any state: the rank of a target is a hash of the item and the target ([rendezvous
//! hashing](https://en.wikipedia.org/wiki/Rendezvous_hashing)).

use super::config::{MemberState, TargetName};
use super::error::PoolError;
use super::objects::parity_path;
use super::view::View;
use crate::format::header::{FIELDS, MAX_HEADER};
use crate::format::{FileId, Header};
use crate::redundancy::{PartPath, REDUNDANCY, read_up_to};
use crate::storage::{Layout, ParityPlacement};
use crate::tree::{Tree, join};
use std::collections::BTreeSet;

/// A target that can receive new data.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) name: TargetName,
    pub(crate) domain: String,
    pub(crate) tree: Tree,
    pub(crate) free: u64,
}

/// Targets that can receive new data, best rank first. Targets with less than `need` bytes free are left out.
pub(crate) fn candidates(view: &View, seed: &[u8], need: u64) -> Vec<Candidate> {
    let mut found: Vec<(f64, Candidate)> = Vec::new();
    for (member, disk) in view.members() {
        if member.state != MemberState::Online {
            continue;
        }
        let Ok(online) = disk.online_writable() else { continue };
        let Ok((free, _)) = online.tree.space() else { continue };
        if free < need.max(1) {
            continue;
        }
        let (name, domain) = (member.name.clone(), member.domain.clone());
        let rank = rank(seed, &member.uuid, free);
        found.push((rank, Candidate { name, domain, tree: online.tree, free }));
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.name.cmp(&b.1.name)));
    found.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Lower is better. Free space counts in powers of two, so that the choice does not change with every byte.
pub(crate) fn rank(seed: &[u8], uuid: &str, free: u64) -> f64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(uuid.as_bytes()).update(seed);
    let mut drawn = [0; 8];
    hasher.finalize_xof().fill(&mut drawn);
    let uniform = (u64::from_le_bytes(drawn) >> 11) as f64 / (1u64 << 53) as f64;
    let weight = f64::from(free.ilog2()).exp2();
    // Exponential variates with rates in proportion to the weights: the minimum is a weighted choice.
    -(1.0 - uniform).max(f64::MIN_POSITIVE).ln() / weight
}

/// Targets for the data columns of a new file, outside the domains in `taken`.
pub(crate) fn data_targets(
    view: &View,
    id: &[u8],
    taken: &BTreeSet<String>,
) -> Result<Vec<Candidate>, PoolError> {
    let need = view.config.stripe;
    let mut taken = taken.clone();
    let mut chosen = candidates(view, id, view.config.block);
    chosen.retain(|candidate| taken.insert(candidate.domain.clone()));
    if chosen.len() < need {
        return Err(PoolError::Domains { need, have: chosen.len(), offline: view.offline() });
    }
    chosen.truncate(need);
    Ok(chosen)
}

/// Targets for columns that lost theirs, with the given lengths, in domains that are neither in `taken` nor shared.
/// None for a column without a suitable target. Targets in `full` are left out.
pub(crate) fn replacement_targets(
    view: &View,
    seed: &[u8],
    needs: &[u64],
    taken: &BTreeSet<String>,
    full: &BTreeSet<TargetName>,
) -> Vec<Option<Candidate>> {
    let mut taken = taken.clone();
    let target = |(number, &need): (usize, &u64)| {
        let seed = [seed, &number.to_le_bytes()].concat();
        let mut rest = candidates(view, &seed, need.saturating_add(RESERVE)).into_iter();
        let found = rest.find(|it| !full.contains(&it.name) && !taken.contains(&it.domain))?;
        taken.insert(found.domain.clone());
        Some(found)
    };
    needs.iter().enumerate().map(target).collect()
}

/// Bytes that a target keeps free when columns are moved to it: for stubs, headers and directories.
const RESERVE: u64 = 1 << 20;

/// Domains of targets that hold redundancy of the file at `path`.
pub(crate) fn domains_of_redundancy(view: &View, id: FileId, path: &[u8]) -> BTreeSet<String> {
    let holds = |tree: &Tree| {
        let places = [parity_path(id), join(REDUNDANCY, path)];
        places.iter().any(|place| tree.find(place).ok().flatten().is_some())
    };
    let locations = view.online_targets().into_iter().filter(|(_, online)| holds(&online.tree));
    locations.map(|(index, _)| view.config.target[index].domain.clone()).collect()
}

/// Placement of the redundancy columns of a file. Existing columns stay where they are if their target is suitable.
pub(crate) fn parity_placements(
    view: &View,
    id: FileId,
    columns: usize,
    layout: &Layout,
) -> Vec<ParityPlacement> {
    let names = layout.targets.iter().map(|name| String::from_utf8_lossy(name).into_owned());
    let mut taken: BTreeSet<String> = names.map(|name| view.domain(&name).to_owned()).collect();
    let candidates = candidates(view, &id.0, 1);
    let mut placements: Vec<Option<ParityPlacement>> = vec![None; columns];
    let placement = |candidate: &Candidate, first: usize| {
        let target = candidate.name.as_bytes().to_vec();
        ParityPlacement {
            first,
            columns: 1,
            target,
            place: PartPath { tree: candidate.tree.clone(), path: parity_path(id) },
        }
    };
    for candidate in &candidates {
        let there = column_of(&placement(candidate, 0));
        let Some(slot) = there.and_then(|column| placements.get_mut(column)) else { continue };
        if slot.is_none() && taken.insert(candidate.domain.clone()) {
            *slot = there.map(|column| placement(candidate, column));
        }
    }
    // Between domains the rank decides; within a domain, the target with the most free space is used.
    let mut rest = candidates.iter();
    for (column, slot) in placements.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
        let Some(first) = rest.find(|candidate| !taken.contains(&candidate.domain)) else { break };
        let roomiest =
            candidates.iter().filter(|other| other.domain == first.domain).max_by_key(|other| other.free);
        taken.insert(first.domain.clone());
        *slot = Some(placement(roomiest.unwrap_or(first), column));
    }
    placements.into_iter().flatten().collect()
}

/// The redundancy column in an existing file; none if its header is damaged.
fn column_of(placement: &ParityPlacement) -> Option<usize> {
    let file = placement.place.tree.read(&placement.place.path).ok()?;
    let mut bytes = vec![0; MAX_HEADER];
    let got = read_up_to(&file, &mut bytes, 0).ok()?;
    Header::identity(&bytes[..got])?;
    let number = |name: &str| {
        let place = FIELDS.iter().find(|place| place.name == name)?;
        let bytes = bytes.get(place.offset..place.offset + 2)?;
        Some(usize::from(u16::from_le_bytes(bytes.try_into().ok()?)))
    };
    (number("columns")? == 1).then(|| number("first column"))?
}

#[cfg(test)]
mod tests {
    use super::rank;

    /// Each of six equal disks gets its share of the files; one with twice the space gets about twice as many.
    #[test]
    fn targets_are_chosen_in_proportion_to_free_space() {
        let uuids: Vec<String> = (0..6u8).map(|number| format!("{number:032x}")).collect();
        let draw = |free: [u64; 6]| {
            let mut wins = [0u32; 6];
            for file in 0..6000u32 {
                let ranks = uuids.iter().zip(free).map(|(uuid, free)| rank(&file.to_le_bytes(), uuid, free));
                let best = ranks.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at);
                best.into_iter().for_each(|at| wins[at] += 1);
            }
            wins
        };
        // Six standard deviations, about 29 each.
        let even = draw([1 << 30; 6]);
        assert!(even.iter().all(|wins| wins.abs_diff(1000) < 175), "{even:?}");
        let uneven = draw([1 << 31, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30]);
        assert!(
            uneven[0].abs_diff(1714) < 215 && uneven[1..].iter().all(|wins| wins.abs_diff(857) < 165),
            "{uneven:?}"
        );
    }
}
