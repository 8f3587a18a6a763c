//! Folding: merges changes of the log into the pending table, many paths at a time, in memory first.

use crate::change::{Change, What, When, is_within};
use crate::codec::Reader;
use crate::embedded::FOLD_BYTES;
use crate::embedded::log::Log;
use crate::embedded::state::{Slot, State};
use crate::embedded::store::{Row, Store};
use crate::entry::{Kind, Sequence};
use crate::error::Result;
use crate::ranges::WHOLE;
use gabion_platform::world::Timestamp;
use std::collections::{BTreeSet, HashMap, hash_map};
use std::ops::Bound;

/// Folds the next part of the log; how many bytes it had, 0 if there is nothing more.
pub(super) fn fold(log: Log<'_>, store: Store<'_>) -> Result<usize> {
    let groups = log.read(store.folded()?, FOLD_BYTES)?;
    let Some(&(end, _)) = groups.last() else {
        return Ok(0);
    };
    let mut overlay = Overlay::new(store);
    let mut read = 0;
    for (last, bytes) in &groups {
        let unreadable = || log.0.damaged(format!("the group of change {last} cannot be read"));
        let changes = decode(bytes).ok_or_else(unreadable)?;
        let mut sequence = last.before(changes.len() as u64).ok_or_else(unreadable)?;
        for change in changes {
            sequence = sequence.next();
            overlay.apply(change, sequence)?;
        }
        read += bytes.len();
    }
    let newest_stamp = overlay.write()?;
    store.note_stamp(newest_stamp)?;
    store.set_folded(end)?;
    Ok(read)
}

fn decode(bytes: &[u8]) -> Option<Vec<Change>> {
    let mut reader = Reader(bytes);
    std::iter::from_fn(|| (!reader.is_at_end()).then(|| reader.change())).collect()
}

/// Overlay of the pending table: the rows that changes touched, in memory.
struct Overlay<'a> {
    store: Store<'a>,
    rows: HashMap<Vec<u8>, Row>,
    /// Their paths in order.
    paths: BTreeSet<Vec<u8>>,
    newest_stamp: Timestamp,
}

impl<'a> Overlay<'a> {
    fn new(store: Store<'a>) -> Overlay<'a> {
        Overlay { store, rows: HashMap::new(), paths: BTreeSet::new(), newest_stamp: Timestamp::MIN }
    }

    /// Makes one change part of it.
    fn apply(&mut self, change: Change, sequence: Sequence) -> Result<()> {
        let when = change.when;
        self.newest_stamp = self.newest_stamp.max(when.at);
        match change.what {
            What::Modify { path, range, span, .. } => {
                let slot = self.slot(&path)?;
                // A file that is there again after its deletion is another file.
                let deleted = slot.as_ref().is_some_and(|slot| slot.state.kind == Kind::Delete);
                let range = if deleted { WHOLE } else { range };
                let modify = |state| State::modify(state, range.clone(), span, when);
                *slot = Some(Slot::changed(slot.take(), sequence, modify));
            }
            What::Gap { root } => {
                let slot = self.slot(&root)?;
                *slot = Some(Slot::changed(slot.take(), sequence, |state| State::gap(state, when)));
            }
            What::Delete { path } => self.delete(&path, sequence, when)?,
            What::Rename { from, to } if from == to => {}
            What::Rename { from, to } => self.rename(&from, &to, sequence, when)?,
        }
        Ok(())
    }

    fn delete(&mut self, path: &[u8], sequence: Sequence, when: When) -> Result<()> {
        let mut orphans = Vec::new();
        for child in self.beneath(path)? {
            orphans.extend(self.slot(&child)?.take().and_then(|slot| slot.state.origin));
        }
        let slot = self.slot(path)?;
        let mut deleted = Slot::changed(slot.take(), sequence, |state| State::delete(state, when));
        deleted.attempts = 0;
        let origin = deleted.state.origin.clone();
        *slot = Some(deleted);
        orphans.retain(|orphan| !is_within(orphan, path));
        self.clear(orphans, origin.as_deref(), sequence, when)
    }

    fn rename(&mut self, from: &[u8], to: &[u8], sequence: Sequence, when: When) -> Result<()> {
        let mut orphans = Vec::new();
        let children = self.beneath(from)?;
        let (state, attempts) = match self.slot(from)?.take() {
            None => (State { origin: Some(from.to_vec()), ..State::fresh(Kind::Move, when) }, 0),
            // An unrecorded file was at the path again, so the target has to be scanned.
            Some(slot) if slot.state.kind == Kind::Delete => {
                *self.slot(from)? = Some(slot);
                (State::fresh(Kind::Gap, when), 0)
            }
            Some(Slot { mut state, attempts, .. }) => {
                if state.origin.is_some() {
                    orphans.push(from.to_vec());
                } else {
                    state.origin = Some(from.to_vec());
                }
                state.priority = state.priority.max(when.priority);
                (state, attempts)
            }
        };
        let origin = state.origin.clone();
        orphans.extend(self.replace(to, state, sequence, attempts)?);
        for child in children {
            if let Some(Slot { mut state, attempts, .. }) = self.slot(&child)?.take() {
                let path = [to, &child[from.len()..]].concat();
                state.origin.get_or_insert(child);
                orphans.extend(self.replace(&path, state, sequence, attempts)?);
            }
        }
        self.clear(orphans, origin.as_deref(), sequence, when)
    }

    /// Replaces the state of a path; returns the origin of the former one, which no entry refers to now.
    fn replace(
        &mut self,
        path: &[u8],
        state: State,
        sequence: Sequence,
        attempts: u32,
    ) -> Result<Option<Vec<u8>>> {
        let slot = self.slot(path)?;
        let old = slot.take();
        *slot = Some(Slot::new(state, sequence, attempts, old.as_ref()));
        Ok(old.and_then(|old| old.state.origin))
    }

    /// Origins that no entry refers to any more get a deletion, unless something is pending there already or they lie
    /// within `covered`, which the worker clears.
    fn clear(
        &mut self,
        orphans: Vec<Vec<u8>>,
        covered: Option<&[u8]>,
        sequence: Sequence,
        when: When,
    ) -> Result<()> {
        for orphan in orphans {
            if covered.is_some_and(|tree| is_within(&orphan, tree)) {
                continue;
            }
            let slot = self.slot(&orphan)?;
            if slot.is_none() {
                *slot = Some(Slot::new(State::fresh(Kind::Delete, when), sequence, 0, None));
            }
        }
        Ok(())
    }

    fn slot(&mut self, path: &[u8]) -> Result<&mut Option<Slot>> {
        match self.rows.entry(path.to_vec()) {
            hash_map::Entry::Occupied(row) => Ok(&mut row.into_mut().slot),
            hash_map::Entry::Vacant(place) => {
                let row = self.store.row(path)?;
                self.paths.insert(path.to_vec());
                Ok(&mut place.insert(row).slot)
            }
        }
    }

    /// Paths beneath `path` that have a slot, in order.
    fn beneath(&mut self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        for (child, row) in self.store.beneath(path)? {
            if self.paths.insert(child.clone()) {
                self.rows.insert(child, row);
            }
        }
        let from_here = (Bound::Excluded(path), Bound::Unbounded);
        let below = self.paths.range::<[u8], _>(from_here).take_while(|child| child.starts_with(path));
        let pending = |child: &&Vec<u8>| {
            is_within(child, path) && self.rows.get(*child).is_some_and(|row| row.slot.is_some())
        };
        Ok(below.filter(pending).cloned().collect())
    }

    /// Writes the rows back; returns the latest time of any change.
    fn write(self) -> Result<Timestamp> {
        // In order, so that pages of the table are written once.
        for path in &self.paths {
            if let Some(row) = self.rows.get(path) {
                self.store.write(path, row)?;
            }
        }
        Ok(self.newest_stamp)
    }
}
