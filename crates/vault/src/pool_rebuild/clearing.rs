//! Cleanup after columns moved: old copies are removed, and the target lists in headers updated.

use super::file::{FileError, FileResult, Rebuilder, at};
use super::survey::{RedundancyParts, parts};
use crate::examine::ProtectedFile;
use crate::format::Header;
use crate::redundancy::{PartPath, redo};
use crate::storage::TargetState;
use crate::storage::pool::config::TargetName;
use crate::storage::pool::stub::Stub;
use crate::tree::Tree;
use std::collections::BTreeSet;
use std::io;

impl Rebuilder<'_> {
    /// Removes columns from retired and returned targets that have been placed elsewhere, and redundancy of earlier
    /// versions. Replacements that were not just written are verified first.
    pub(super) fn remove_superseded(
        &self,
        path: &[u8],
        stub: &Stub,
        fresh: &[usize],
        done: &mut FileResult,
        threads: usize,
    ) -> Result<(), FileError> {
        let draining = [TargetState::Retired, TargetState::Returned];
        let draining: Vec<TargetName> =
            draining.iter().flat_map(|&state| self.target_states.in_state(state)).collect();
        let RedundancyParts { current, others, broken } =
            parts(self.pool, self.coders, &self.target_states, path, stub)?;
        let held: BTreeSet<usize> = current.iter().flat_map(|(_, part)| part.columns()).collect();
        // Duplicates, or redundancy of another version of a file with complete redundancy.
        let complete = current.first().is_some_and(|(_, part)| held.len() == part.header.code.m());
        let mut superseded: Vec<(TargetName, PartPath)> = others
            .iter()
            .filter(|(target, part)| {
                complete || (draining.contains(target) && part.columns().all(|column| held.contains(&column)))
            })
            .map(|(target, part)| (target.clone(), part.place.clone()))
            .collect();
        superseded.extend(broken.into_iter().filter(|_| complete));
        let (mut objects, mut columns) = (Vec::new(), BTreeSet::new());
        for target in &draining {
            let has = |tree: &Tree| self.pool.stale_columns(tree, target, stub);
            let found = self.target_states.tree(target).map_or(Ok(Vec::new()), has).map_err(at(target))?;
            if !found.is_empty() {
                objects.push(target.clone());
                columns.extend(found);
            }
        }
        if superseded.is_empty() && objects.is_empty() {
            return Ok(());
        }
        for (_, part) in others.iter().filter(|(target, _)| complete || draining.contains(target)) {
            columns.extend(part.columns().map(|column| stub.targets.len() + column));
        }
        drop((current, others));
        let Some(protected) = ProtectedFile::open_to_read(self.pool, self.coders, path)? else {
            return Ok(());
        };
        // Columns that were just written were verified then.
        let old: Vec<usize> = columns
            .into_iter()
            .filter(|column| !fresh.contains(column) && !protected.target(*column).is_empty())
            .collect();
        if !old.is_empty() {
            let bad = self.verify(&protected, &old, threads)?;
            if !bad.is_empty() {
                // Kept until a scrub or repair has restored the replacements.
                done.wrong += bad.len() as u64;
                let superseded = superseded.into_iter().map(|(target, _)| target);
                done.retained = superseded.chain(objects).collect();
                return Ok(());
            }
        }
        drop(protected);
        for (target, location) in superseded {
            let removed = location.tree.remove_if_writable(&location.path).map_err(at(&target))?;
            done.removed += u64::from(removed);
        }
        for target in objects {
            done.removed += self.pool.remove_stale_objects(path, &target, stub)?;
        }
        Ok(())
    }

    /// Updates the target lists in the other headers: when a redundancy file is lost, only these show where it was.
    pub(super) fn update_target_lists(&self, path: &[u8], stub: &Stub) -> Result<(), FileError> {
        let current = parts(self.pool, self.coders, &self.target_states, path, stub)?.current;
        let Some(m) = current.first().map(|(_, part)| part.header.code.m()) else { return Ok(()) };
        let mut targets: Vec<Vec<u8>> = stub.targets.iter().map(|name| name.clone().into_bytes()).collect();
        for column in 0..m {
            let column_part = current.iter().find(|(_, part)| part.columns().contains(&column));
            targets.push(column_part.map_or(Vec::new(), |(name, _)| name.clone().into_bytes()));
        }
        let old = current.iter().filter(|(_, part)| part.header.targets != targets);
        let old: Vec<(TargetName, PartPath)> =
            old.map(|(name, part)| (name.clone(), part.place.clone())).collect();
        // Readers block writers.
        drop(current);
        for (name, location) in old {
            let opened = location.open_to_update(self.coders);
            let Some(part) = opened.map_err(|error| at(&name)(io::Error::other(error)))? else { continue };
            let header = Header { targets: targets.clone(), ..part.header.clone() };
            let bytes = header.encode(part.header_bytes()).map_err(io::Error::other).map_err(at(&name))?;
            // A list that does not fit stays as it was; repair handles damaged headers.
            if bytes.len() == part.header_bytes() && part.head_damage.is_none() {
                let writes = [(part.records.trailer(), bytes.clone()), (0, bytes)];
                redo::update(&part.place, &part.file, &header, &writes).map_err(at(&name))?;
            }
        }
        Ok(())
    }
}
