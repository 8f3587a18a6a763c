//! Size of files that are written in place, and whether they are being written.
//!
//! While a stub says `writing`, its size is a lower bound: appended bytes are in the objects. A writer holds locks on
//! the objects, which the operating system releases when the writer dies.

use super::config::TargetName;
use super::namespace::NamespaceEntry;
use super::objects::object_path;
use super::stub::Stub;
use super::view::View;
use crate::tree::{Tree, absent_is_none, split};
use gabion_platform::lock::Lockable;
use std::fs::TryLockError;
use std::io;

/// The tree of the target of a column, if it is reachable.
fn online_tree(view: &View, stub: &Stub, column: usize) -> Option<Tree> {
    let (_, disk) = view.disk(stub.targets[column].as_bytes())?;
    disk.online().ok().map(|online| online.tree)
}

/// A stub with the present size of the file.
pub(crate) fn with_current_size(view: &View, mut stub: Stub) -> Stub {
    if stub.writing {
        stub.size = stub.size.max(bytes_in_objects(view, &stub));
    }
    stub
}

/// The first byte of the file that an object lacks; none if its target is unreachable.
fn first_missing(view: &View, stub: &Stub, column: usize) -> Option<u64> {
    let found = online_tree(view, stub, column)?.find(&object_path(stub.id, column)).ok()?;
    Some(stub.first_byte_after(column, found.map_or(0, |stat| stat.size)))
}

/// Size up to which the objects have every byte. For an unreachable target the size in the stub is assumed.
fn bytes_in_objects(view: &View, stub: &Stub) -> u64 {
    let least = |column| stub.first_byte_after(column, stub.object_bytes(column, stub.size));
    let missing = |column| first_missing(view, stub, column).unwrap_or_else(|| least(column));
    (0..stub.targets.len()).map(missing).min().unwrap_or(0)
}

/// The unreachable target that hides the size of a file: the file is or was being written in place, and an object on
/// this target may hold appended bytes. None if the size is known.
pub(crate) fn target_hiding_size<'a>(view: &View, stub: &'a Stub) -> Option<&'a TargetName> {
    if !stub.writing {
        return None;
    }
    let (mut silent, mut end) = (None, u64::MAX);
    for column in 0..stub.targets.len() {
        match first_missing(view, stub, column) {
            Some(missing) => end = end.min(missing),
            None => silent = Some(&stub.targets[column]),
        }
    }
    silent.filter(|_| end > stub.size)
}

/// Error for a file of unknown size.
pub(crate) fn size_unknown(target: &TargetName) -> io::Error {
    let why = format!("its size is unknown: it was being written, and target {target} is unreachable");
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}

/// True if a file is being written in place.
pub(crate) fn is_being_written(view: &View, stub: &Stub) -> io::Result<bool> {
    if !stub.writing {
        return Ok(false);
    }
    for column in 0..stub.targets.len() {
        let Some(tree) = online_tree(view, stub, column) else { continue };
        let Some(object) = absent_is_none(tree.read(&object_path(stub.id, column)))? else { continue };
        match Lockable::from(object).try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(false)
}

/// Syncs all objects of a file.
pub(crate) fn sync_objects(view: &View, stub: &Stub) -> io::Result<()> {
    for column in 0..stub.targets.len() {
        let Some(tree) = online_tree(view, stub, column) else { continue };
        let path = object_path(stub.id, column);
        if let Some(object) = absent_is_none(tree.read(&path))? {
            object.sync_all()?;
            tree.sync_directory(split(&path).0)?;
        }
    }
    Ok(())
}

impl NamespaceEntry {
    /// With the present size of the file.
    pub(crate) fn with_current_size(self, view: &View) -> NamespaceEntry {
        match self {
            NamespaceEntry::File(stub) if stub.writing => {
                NamespaceEntry::File(Box::new(with_current_size(view, *stub)))
            }
            other => other,
        }
    }
}
