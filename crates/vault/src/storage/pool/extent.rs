//! Files that are written in place: how long they are, and whether someone is at it.
//!
//! As long as a stub says `writing`, its size is only the least that the file has: what was appended since is in the
//! objects. Whoever writes holds a lock on them, which the operating system takes back from the dead.

use super::namespace::Entry;
use super::objects::object_path;
use super::stub::Stub;
use super::view::View;
use crate::tree::{Tree, absent_is_none, split};
use gabion_platform::lock::Lockable;
use std::fs::TryLockError;
use std::io;

/// The tree of the target that has a column, if it answers.
fn tree_of(view: &View, stub: &Stub, column: usize) -> Option<Tree> {
    let (_, disk) = view.disk(stub.targets[column].as_bytes())?;
    disk.ask().ok().map(|answer| answer.tree)
}

/// A stub with the size that the file has now.
pub(crate) fn settled(view: &View, mut stub: Stub) -> Stub {
    if stub.writing {
        stub.size = stub.size.max(bytes_in_objects(view, &stub));
    }
    stub
}

/// The first byte of the file that an object does not have; nothing if its target does not answer.
fn first_missing(view: &View, stub: &Stub, column: usize) -> Option<u64> {
    let found = tree_of(view, stub, column)?.find(&object_path(stub.id, column)).ok()?;
    Some(stub.first_byte_after(column, found.map_or(0, |stat| stat.size)))
}

/// Up to where the objects have every byte. Of a target that does not answer they have what the stub says.
fn bytes_in_objects(view: &View, stub: &Stub) -> u64 {
    let least = |column| stub.first_byte_after(column, stub.object_bytes(column, stub.size));
    let missing = |column| first_missing(view, stub, column).unwrap_or_else(|| least(column));
    (0..stub.targets.len()).map(missing).min().unwrap_or(0)
}

/// The target without which it cannot be told where a file ends that is written in place, or was when its writer died: what was appended may be in
/// an object there. Nothing if the end is known.
pub(crate) fn hides_the_end<'a>(view: &View, stub: &'a Stub) -> Option<&'a str> {
    if !stub.writing {
        return None;
    }
    let (mut silent, mut end) = (None, u64::MAX);
    for column in 0..stub.targets.len() {
        match first_missing(view, stub, column) {
            Some(missing) => end = end.min(missing),
            None => silent = Some(stub.targets[column].as_str()),
        }
    }
    silent.filter(|_| end > stub.size)
}

/// Says that the end of a file is not known.
pub(crate) fn end_unknown(target: &str) -> io::Error {
    let why = format!(
        "it was being written, and where it ends cannot be told without target {target}, which does not answer"
    );
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}

/// Whether someone is writing to a file in place.
pub(crate) fn is_being_written(view: &View, stub: &Stub) -> io::Result<bool> {
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

/// Makes all objects of a file durable.
pub(crate) fn sync_objects(view: &View, stub: &Stub) -> io::Result<()> {
    for column in 0..stub.targets.len() {
        let Some(tree) = tree_of(view, stub, column) else { continue };
        let path = object_path(stub.id, column);
        if let Some(object) = absent_is_none(tree.read(&path))? {
            object.sync_all()?;
            tree.sync_directory(split(&path).0)?;
        }
    }
    Ok(())
}

impl Entry {
    /// With the size that the file has now.
    pub(crate) fn settled(self, view: &View) -> Entry {
        match self {
            Entry::File(stub) if stub.writing => Entry::File(Box::new(settled(view, *stub))),
            other => other,
        }
    }
}
