//! Objects: the columns of files on targets.

use super::config::TargetName;
use super::error::PoolError;
use super::stub::Stub;
use super::view::View;
use crate::format::FileId;
use crate::redundancy::STAGING;
use crate::tree::{Kind, Tree, join, split, stat_of};
use gabion_platform::lock::Lockable;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Directory of objects on a target.
pub(crate) const OBJECTS: &[u8] = b"objects";

/// Directory of redundancy files on a target.
pub(crate) const PARITY: &[u8] = b"parity";

/// Path of the redundancy of a file on a target: at most one redundancy file per file and target.
pub(crate) fn parity_path(id: FileId) -> Vec<u8> {
    let name = id.to_string();
    join(&join(PARITY, &name.as_bytes()[..2]), name.as_bytes())
}

/// Parses the name of a redundancy file.
pub(crate) fn parse_parity(name: &[u8]) -> Option<FileId> {
    let id = FileId(super::stub::unhex(std::str::from_utf8(name).ok()?)?.try_into().ok()?);
    (id.to_string().as_bytes() == name).then_some(id)
}

/// Suffix of unfinished objects.
pub(crate) const UNFINISHED: &[u8] = b".object";

/// Suffix of obstacles that were moved out of the way of objects.
const ASIDE: &[u8] = b".aside";

/// Path of an object on its target.
pub(crate) fn object_path(id: FileId, column: usize) -> Vec<u8> {
    let name = format!("{id}.{column}");
    join(&join(OBJECTS, &name.as_bytes()[..2]), name.as_bytes())
}

/// Parses the name of an object: file and column.
pub(crate) fn parse_name(name: &[u8]) -> Option<(FileId, usize)> {
    let (id, column) = std::str::from_utf8(name).ok()?.split_once('.')?;
    let parsed = (FileId(super::stub::unhex(id)?.try_into().ok()?), column.parse().ok()?);
    (format!("{}.{}", parsed.0, parsed.1).as_bytes() == name).then_some(parsed)
}

/// Creates a file and locks it, so that a sweep does not remove it while it is open.
pub(crate) fn create_locked(tree: &Tree, path: &[u8]) -> io::Result<Lockable> {
    loop {
        let made = match tree.create(path, 0o600) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = split(path).0;
                tree.make_directories(above, 0o700)?;
                tree.sync_directory(split(above).0)?;
                tree.create(path, 0o600)
            }
            made => made,
        }?;
        let made = Lockable::exclusive(made)?;
        // A sweep may have run between the two calls.
        if stat_of(&made)?.links > 0 {
            return Ok(made);
        }
    }
}

/// Moves an obstacle at the path of an object aside: anything that is no file, such as a directory left by `fsck`.
pub(crate) fn move_obstacle_aside(tree: &Tree, object: &[u8]) -> io::Result<()> {
    if tree.find(object)?.is_none_or(|found| found.kind == Kind::File) {
        return Ok(());
    }
    let unique = super::config::new_identity()?;
    tree.rename_new(object, &[object, b".", unique.as_bytes(), ASIDE].concat())
}

/// Path of an object that is being created.
pub(crate) fn unfinished_path(id: FileId, column: usize) -> io::Result<Vec<u8>> {
    let unique = super::config::new_identity()?;
    Ok(join(STAGING, &[format!("{id}.{column}.{unique}").as_bytes(), UNFINISHED].concat()))
}

/// Granularity of the search for zeros: smaller holes save no space on any disk.
const HOLE: u64 = 4096;

/// Writes the bytes that are not zero; the range is empty so far.
pub(crate) fn write_sparse(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut start = 0;
    while start < bytes.len() {
        let end = (start + HOLE as usize).min(bytes.len());
        let zeros = is_zero(&bytes[start..end]);
        let mut run = end;
        while run < bytes.len() {
            let next = (run + HOLE as usize).min(bytes.len());
            if is_zero(&bytes[run..next]) != zeros {
                break;
            }
            run = next;
        }
        if !zeros {
            file.write_all_at(&bytes[start..run], offset + start as u64)?;
        }
        start = run;
    }
    Ok(())
}

/// Overwrites a range; zeros become a hole where possible.
pub(crate) fn overwrite(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let end = offset + bytes.len() as u64;
    let (first, last) = (offset.next_multiple_of(HOLE), end / HOLE * HOLE);
    if first < last && is_zero(bytes) {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(file, punch, first, last - first).is_ok() {
            file.write_all_at(&bytes[..(first - offset) as usize], offset)?;
            return file.write_all_at(&bytes[(last - offset) as usize..], last);
        }
    }
    file.write_all_at(bytes, offset)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// Removes the objects and the redundancy of an unreferenced version of a file. A sweep removes later what cannot be
/// removed now.
pub(crate) fn remove_all(view: &View, stub: &Stub) {
    for (_, online) in view.online_targets() {
        let _ = online.tree.remove(&parity_path(stub.id));
    }
    for (column, target) in stub.targets.iter().enumerate() {
        let tree = view.disk(target.as_bytes()).and_then(|(_, disk)| disk.online().ok());
        let _ = tree.map(|online| online.tree.remove(&object_path(stub.id, column)));
    }
}

/// Syncs files and their directories, all targets in parallel.
pub(crate) fn sync_all(files: &[(&TargetName, &Tree, &Lockable, Vec<u8>)]) -> Result<(), PoolError> {
    std::thread::scope(|scope| {
        let running: Vec<_> = files
            .iter()
            .map(|(target, tree, file, path)| {
                let sync = move || file.sync_all().and_then(|()| tree.sync_directory(split(path).0));
                (target, scope.spawn(sync))
            })
            .collect();
        running.into_iter().try_for_each(|(target, thread)| {
            let done = thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")));
            done.map_err(PoolError::target(target, "making an object durable"))
        })
    })
}
