//! Effect of a loss on a file whose bytes lie on targets of a parallel file system, stripe by stripe.
//!
//! On such a file system a target holds ranges of many files, of redundancy files too, and the columns of one stripe
//! may share a target. So the loss is computed from ranges: a data block is gone if any of its bytes are, and so is a
//! frame of redundancy. The worst stripe decides.

use crate::format::Records;
use crate::format::header::MAX_HEADER;
use crate::missing::PresentRedundancy;
use crate::redundancy::PartPath;
use crate::storage::RedundancyLocation;
use crate::vault::Vault;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Where the bytes of files lie, with an assumed loss.
pub trait Placement: Debug {
    /// Ranges of a file of `size` bytes that would be lost, sorted and disjoint.
    ///
    /// # Errors
    /// The placement is unknown, with the reason.
    fn lost(&self, path: &Path, size: u64) -> Result<Vec<Range<u64>>, String>;
}

/// Effect of a loss on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// Nothing is lost.
    Unaffected,
    /// Redundancy is lost, data is not.
    Exposed,
    /// Data is lost, and can be reconstructed.
    Degraded,
    /// Data is lost beyond redundancy.
    Lost,
}

/// A loss, as it is for the worst stripe of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) effect: Effect,
    /// Blocks that the stripe with the least redundancy could lose in addition.
    pub(crate) margin: usize,
}

/// Redundancy columns in one file: where the frames are, and what of the file would be lost.
struct PlacedPart {
    records: Records,
    lost: Vec<Range<u64>>,
    /// Both headers would be lost.
    is_useless: bool,
}

/// Effect of the loss on a file. None if its placement, or that of its redundancy, is unknown.
pub(crate) fn effect(vault: &Vault, path: &[u8], placement: &dyn Placement) -> Option<Effect> {
    loss(vault, path, placement).map(|loss| loss.effect)
}

/// The loss of a file. None if its placement, or that of its redundancy, is unknown.
///
/// A redundancy file whose first header is in a lost range is not opened: if the targets are really gone, that would
/// block.
pub(crate) fn loss(vault: &Vault, path: &[u8], placement: &dyn Placement) -> Option<Loss> {
    let lost_of = |location: &RedundancyLocation| -> io::Result<Option<Vec<Range<u64>>>> {
        let PartPath { tree, path } = &location.place;
        let Some(stat) = tree.find(path)? else { return Ok(None) };
        placement.lost(&tree.shown(path), stat.size).map(Some).map_err(io::Error::other)
    };
    let mut located = Vec::new();
    for location in vault.storage.redundancy_locations(path).ok()? {
        if let Some(lost) = lost_of(&location).ok()? {
            located.push((location.place, lost));
        }
    }
    let lost_at = |place: &PartPath| located.iter().find(|(known, _)| known.is(place)).map(|(_, lost)| lost);
    let has_header =
        |place: &PartPath| lost_at(place).is_none_or(|lost| !overlaps(lost, &(0..MAX_HEADER as u64)));
    let PresentRedundancy { parts, now, .. } =
        PresentRedundancy::of(vault, path, &|location| has_header(&location.place))?;
    let is_reduced = located.iter().any(|(place, _)| !has_header(place));
    let data = match now {
        Some(stat) => placement.lost(&vault.storage.shown(path), stat.size).ok()?,
        // It is gone already.
        None => std::iter::once(0..parts.first()?.header.generation.size).collect(),
    };
    let mut placed = Vec::new();
    for part in &parts {
        let (records, lost) = (part.records, lost_at(&part.place).cloned().unwrap_or_default());
        let is_useless = overlaps(&lost, &(0..records.header_bytes()))
            && overlaps(&lost, &(records.trailer()..records.file()));
        placed.push(PlacedPart { records, lost, is_useless });
    }
    let without = if is_reduced { Effect::Exposed } else { Effect::Unaffected };
    let Some(first) = parts.first() else {
        let effect = if data.is_empty() { without } else { Effect::Lost };
        return Some(Loss { effect, margin: 0 });
    };
    let Loss { effect, margin } = worst_stripe(first.header.code.k(), &data, &placed);
    Some(Loss { effect: effect.max(without), margin })
}

fn worst_stripe(k: usize, data: &[Range<u64>], parts: &[PlacedPart]) -> Loss {
    let all: usize = parts.iter().map(|part| part.records.columns()).sum();
    let mut worst = Loss { effect: Effect::Unaffected, margin: all };
    let Some(cut) = parts.first().map(|part| *part.records.cut()) else { return worst };
    if data.is_empty() && parts.iter().all(|part| part.lost.is_empty()) {
        return worst;
    }
    for stripe in 0..cut.stripes() {
        let run = cut.run(stripe, 1);
        let gone = (0..k).filter(|&column| overlaps(data, &run.cell(0, column))).count();
        let is_left = |part: &PlacedPart, column: usize| {
            let start = part.records.frame_offset(column, stripe);
            let frame = start..start + part.records.frame_bytes(stripe);
            !part.is_useless && !overlaps(&part.lost, &frame)
        };
        let columns = |part: &PlacedPart| (0..part.records.columns()).filter(|&at| is_left(part, at)).count();
        let left: usize = parts.iter().map(columns).sum();
        if gone > left {
            return Loss { effect: Effect::Lost, margin: 0 };
        }
        let effect = match gone {
            0 if left == all => Effect::Unaffected,
            0 => Effect::Exposed,
            _ => Effect::Degraded,
        };
        worst = Loss { effect: worst.effect.max(effect), margin: worst.margin.min(left - gone) };
    }
    // A lost header takes no block with it, but has to be made anew.
    if parts.iter().any(|part| !part.lost.is_empty()) {
        worst.effect = worst.effect.max(Effect::Exposed);
    }
    worst
}

/// True if a byte of `range` is in one of the sorted `ranges`.
fn overlaps(ranges: &[Range<u64>], range: &Range<u64>) -> bool {
    let after = ranges.partition_point(|it| it.end <= range.start);
    !range.is_empty() && ranges.get(after).is_some_and(|it| it.start < range.end)
}

#[cfg(test)]
mod tests {
    use super::overlaps;

    #[test]
    fn overlaps_need_a_common_byte() {
        let ranges = [10..20, 30..40];
        let found =
            [0..10, 0..11, 19..30, 20..30, 35..36, 40..50, 15..15].map(|range| overlaps(&ranges, &range));
        assert_eq!(found, [false, true, true, false, true, false, false]);
    }
}
