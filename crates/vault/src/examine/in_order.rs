//! Redundancy files of one file, locked in one order.

use crate::storage::RedundancyLocation;

/// Opens redundancy of one file at several locations, in the one order in which everybody does: by target and path. Who
/// holds locks of some of them then never waits for somebody who waits for these. The results are in the order of the
/// locations, which is one of preference and differs between processes that see targets in other states.
///
/// # Errors
/// The first of `open`.
pub(crate) fn open_in_order<T, E>(
    locations: &[RedundancyLocation],
    mut open: impl FnMut(&RedundancyLocation) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    let mut order: Vec<usize> = (0..locations.len()).collect();
    let key = |at: usize| (&locations[at].target, &locations[at].place.path);
    order.sort_by(|&one, &other| key(one).cmp(&key(other)));
    let mut opened: Vec<(usize, T)> =
        order.into_iter().map(|at| Ok((at, open(&locations[at])?))).collect::<Result<_, E>>()?;
    opened.sort_by_key(|(at, _)| *at);
    Ok(opened.into_iter().map(|(_, opened)| opened).collect())
}
