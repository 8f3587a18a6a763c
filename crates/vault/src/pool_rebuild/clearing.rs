//! What comes after columns of a file got other places: the old ones are cleared, the other headers told.

use super::file::{FileDone, FileError, Rebuilder, at};
use super::survey::{Parts, parts};
use crate::format::Header;
use crate::redundancy::{PartPath, redo};
use crate::storage::TargetState;
use crate::storage::pool::stub::Stub;
use crate::stripe_reader::StripeReader;
use crate::tree::Tree;
use std::collections::BTreeSet;
use std::io;

impl Rebuilder<'_> {
    /// Removes what lies on targets that are to be emptied, or came back, and has another place now; and redundancy of earlier versions that targets
    /// kept which missed a replacement. What took its place is read before, unless it has just been written.
    pub(super) fn clear(
        &self,
        path: &[u8],
        stub: &Stub,
        fresh: &[usize],
        done: &mut FileDone,
        threads: usize,
    ) -> Result<(), FileError> {
        let leaving = [TargetState::Retired, TargetState::Returned];
        let leaving: Vec<String> = leaving.iter().flat_map(|&state| self.places.in_state(state)).collect();
        let Parts { current, others, broken } = parts(self.pool, self.coders, &self.places, path, stub)?;
        let held: BTreeSet<usize> = current.iter().flat_map(|(_, part)| part.columns()).collect();
        // Redundancy that is there twice, or is of another version of a file that has all it needs now.
        let complete = current.first().is_some_and(|(_, part)| held.len() == part.header.code.m());
        let mut superseded: Vec<(String, PartPath)> = others
            .iter()
            .filter(|(target, part)| {
                complete || (leaving.contains(target) && part.columns().all(|column| held.contains(&column)))
            })
            .map(|(target, part)| (target.clone(), part.place.clone()))
            .collect();
        superseded.extend(broken.into_iter().filter(|_| complete));
        let (mut objects, mut columns) = (Vec::new(), BTreeSet::new());
        for target in &leaving {
            let has = |tree: &Tree| self.pool.stale_columns(tree, target, stub);
            let found = self.places.tree(target).map_or(Ok(Vec::new()), has).map_err(at(target))?;
            if !found.is_empty() {
                objects.push(target.clone());
                columns.extend(found);
            }
        }
        if superseded.is_empty() && objects.is_empty() {
            return Ok(());
        }
        for (_, part) in others.iter().filter(|(target, _)| complete || leaving.contains(target)) {
            columns.extend(part.columns().map(|column| stub.targets.len() + column));
        }
        drop((current, others));
        let Some(stripe_reader) = StripeReader::open(self.pool, self.coders, path)? else { return Ok(()) };
        // What has just been written was checked then.
        let old: Vec<usize> = columns
            .into_iter()
            .filter(|column| !fresh.contains(column) && !stripe_reader.target(*column).is_empty())
            .collect();
        if !old.is_empty() {
            let bad = self.verify(&stripe_reader, &old, threads)?;
            if !bad.is_empty() {
                // It stays until a scrub or repair has put the others in order.
                done.wrong += bad.len() as u64;
                let superseded = superseded.into_iter().map(|(target, _)| target);
                done.kept = superseded.chain(objects).collect();
                return Ok(());
            }
        }
        drop(stripe_reader);
        for (target, place) in superseded {
            let removed = place.tree.remove_if_writable(&place.path).map_err(at(&target))?;
            done.removed += u64::from(removed);
        }
        for target in objects {
            done.removed += self.pool.remove_stale_objects(path, &target, stub)?;
        }
        Ok(())
    }

    /// Brings the lists of targets in the other headers up to date: when a redundancy file is gone, they alone tell where it was.
    pub(super) fn retell(&self, path: &[u8], stub: &Stub) -> Result<(), FileError> {
        let current = parts(self.pool, self.coders, &self.places, path, stub)?.current;
        let Some(m) = current.first().map(|(_, part)| part.header.code.m()) else { return Ok(()) };
        let mut targets: Vec<Vec<u8>> = stub.targets.iter().map(|name| name.clone().into_bytes()).collect();
        for column in 0..m {
            let location = current.iter().find(|(_, part)| part.columns().contains(&column));
            targets.push(location.map_or(Vec::new(), |(name, _)| name.clone().into_bytes()));
        }
        let old = current.iter().filter(|(_, part)| part.header.targets != targets);
        let old: Vec<(String, PartPath)> =
            old.map(|(name, part)| (name.clone(), part.place.clone())).collect();
        // Readers keep writers out.
        drop(current);
        for (name, place) in old {
            let opened = place.open_to_update(self.coders);
            let Some(part) = opened.map_err(|error| at(&name)(io::Error::other(error)))? else { continue };
            let header = Header { targets: targets.clone(), ..part.header.clone() };
            let bytes = header.encode(part.header_bytes()).map_err(io::Error::other).map_err(at(&name))?;
            // A list that does not fit stays as it was; a damaged header is for repair.
            if bytes.len() == part.header_bytes() && part.head_damage.is_none() {
                let writes = [(part.records.trailer(), bytes.clone()), (0, bytes)];
                redo::update(&part.place, &part.file, &header, &writes).map_err(at(&name))?;
            }
        }
        Ok(())
    }
}
