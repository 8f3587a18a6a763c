//! Files that are written in place: how long they are, and whether someone is at it.
//!
//! As long as a stub says `writing`, its size is only the least that the file has: what was appended since is in the
//! objects. Whoever writes holds a lock on them, which the operating system takes back from the dead.

use super::namespace::Entry;
use super::objects::object_path;
use super::stub::Stub;
use super::view::View;
use crate::tree::{Tree, absent_is_none};
use gabion_platform::lock::Lockable;
use std::fs::TryLockError;
use std::io;

/// The tree of the target that has a column, if it answers.
fn tree_of(view: &View, stub: &Stub, column: usize) -> Option<Tree> {
    let (_, disk) = view.disk(stub.targets[column].as_bytes())?;
    disk.ask().ok().map(|answer| answer.tree)
}

/// A stub with the size that the file has now.
pub(super) fn settled(view: &View, mut stub: Stub) -> Stub {
    if stub.writing {
        stub.size = stub.size.max(bytes_in_objects(view, &stub));
    }
    stub
}

/// Up to where the objects have every byte. Of a target that does not answer they have what the stub says.
fn bytes_in_objects(view: &View, stub: &Stub) -> u64 {
    let first_missing = |column: usize| {
        let known = tree_of(view, stub, column).and_then(|tree| {
            let found = tree.find(&object_path(stub.id, column)).ok()?;
            Some(found.map_or(0, |stat| stat.size))
        });
        let bytes = known.unwrap_or_else(|| stub.object_bytes(column, stub.size));
        stub.first_byte_after(column, bytes)
    };
    (0..stub.targets.len()).map(first_missing).min().unwrap_or(0)
}

/// Whether someone is writing to a file in place.
pub(super) fn is_being_written(view: &View, stub: &Stub) -> io::Result<bool> {
    if !stub.writing {
        return Ok(false);
    }
    for column in 0..stub.targets.len() {
        let Some(tree) = tree_of(view, stub, column) else { continue };
        let Some(object) = absent_is_none(tree.read(&object_path(stub.id, column)))? else { continue };
        match Lockable::from(object).try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(false)
}

impl Entry {
    /// With the size that the file has now.
    pub(super) fn settled(self, view: &View) -> Entry {
        match self {
            Entry::File(stub) if stub.writing => Entry::File(Box::new(settled(view, *stub))),
            other => other,
        }
    }
}
