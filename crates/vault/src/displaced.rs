//! Displaced redundancy: set aside because its name belongs to another file or to none.
//!
//! In a plain directory redundancy lies under the name of its file, and names change owners: a file is renamed over
//! another one, two are swapped, a new file takes the name of a moved one. Redundancy of the file that lost the name is
//! neither overwritten nor removed, because its file may exist under another name. Without it the file would be encoded
//! as new content, together with any corruption. It is moved to `displaced/INODE`, and from there to the file's new
//! name when that is found. Redundancy that is not needed is [purged](purge).

use crate::catalogue::Catalogue;
use crate::coder::Coders;
use crate::format::Header;
use crate::redundancy::draft::DIRECTORY_MODE;
use crate::redundancy::fence::{Fence, is_superseded};
use crate::redundancy::{Part, PartPath, REDUNDANCY};
use crate::storage::Repository;
use crate::tree::{Generation, Stat, Tree, absent_is_none, join, split};
use crate::world::Timestamp;
use std::io;
use std::time::Duration;

/// Directory of displaced redundancy, below a repository.
pub(crate) const DISPLACED: &[u8] = b"displaced";

/// Retention while changes are pending or files have failed: one of them may own the redundancy.
const KEPT_WHILE_BUSY: Duration = Duration::from_secs(30 * 24 * 3600);

/// Retention otherwise. A recent change may not be recorded yet.
const KEPT: Duration = Duration::from_secs(600);

/// Version of a file under its present name, to compare with the version that redundancy describes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PresentFile {
    /// Present version.
    pub(crate) now: Generation,
    /// Creation time, if the file system records it.
    pub(crate) birth: Option<Timestamp>,
}

impl PresentFile {
    pub(crate) fn of(stat: &Stat) -> PresentFile {
        PresentFile { now: stat.generation(), birth: stat.birth }
    }

    /// True if the redundancy describes this file and the file was not written since. An inode number may be reused by
    /// a file with the same size and mtime, but that file was created after the redundancy.
    pub(crate) fn is_of(&self, part: &Part) -> bool {
        self.is_of_header(&part.header)
    }

    /// As [`is_of`](PresentFile::is_of), for a header.
    pub(crate) fn is_of_header(&self, Header { generation, protected_at, .. }: &Header) -> bool {
        self.now.is_unwritten_since(generation) && self.birth.is_none_or(|birth| birth <= *protected_at)
    }
}

/// Path of displaced redundancy for an inode.
pub(crate) fn displaced_of(tree: &Tree, inode: u64) -> PartPath {
    PartPath { tree: tree.clone(), path: join(DISPLACED, format!("{inode:016x}").as_bytes()) }
}

/// True if displaced redundancy exists for the file.
///
/// # Errors
/// The operating system fails.
pub(crate) fn is_kept(repository: &Repository, file: &PresentFile) -> io::Result<bool> {
    let kept = displaced_of(&repository.tree, file.now.inode);
    Ok(repository.tree.find(&kept.path)?.is_some())
}

/// Whether redundancy is kept for any file.
///
/// # Errors
/// What the operating system says.
pub(crate) fn keeps_any(repository: &Repository) -> io::Result<bool> {
    Ok(repository.tree.find(DISPLACED)?.is_some())
}

/// Redundancy that is at a place. What is damaged counts as nothing, and so does what a later program wrote: neither
/// is moved.
///
/// # Errors
/// The redundancy cannot be read; without it the file would be encoded as new content.
pub(crate) fn known(place: &PartPath, coders: &Coders) -> io::Result<Option<Part>> {
    match place.open_conclusive(coders) {
        Ok(part) => Ok(part),
        Err(unknown) if unknown.source.is_later() => Ok(None),
        Err(unknown) => Err(io::Error::other(unknown)),
    }
}

/// Moves redundancy at a path to `displaced` if `wanted` accepts it. Returns true if it was moved.
///
/// # Errors
/// See [`known`], or the operating system fails.
pub(crate) fn set_aside(
    place: &PartPath,
    coders: &Coders,
    wanted: impl Fn(&Part) -> bool,
) -> io::Result<bool> {
    let fence = Fence::new(place);
    if fence.was_absent() {
        return Ok(false);
    }
    let Some(part) = known(place, coders)?.filter(|part| wanted(part)) else { return Ok(false) };
    let kept = displaced_of(&place.tree, part.header.generation.inode);
    // Hard links of a file have redundancy each; the newest is kept.
    let is_older = |other: &Part| part.header.protected_at < other.header.protected_at;
    let is_older = known(&kept, coders)?.as_ref().is_some_and(is_older);
    drop(part);
    place.tree.make_directories(DISPLACED, DIRECTORY_MODE)?;
    let moved = fence.pass(place, |_| match is_older {
        true => place.tree.remove(&place.path),
        false => absent_is_none(place.tree.rename(&place.path, &kept.path)).map(drop),
    });
    match moved {
        Err(error) if is_superseded(&error) => return Ok(false),
        moved => moved?,
    }
    place.tree.remove_empty(split(&place.path).0, REDUNDANCY)?;
    Ok(true)
}

/// Moves displaced redundancy to its file's name. Redundancy of another file there is displaced in turn. Returns true
/// if there was any.
///
/// # Errors
/// See [`known`], or the operating system fails.
pub(crate) fn recall(place: &PartPath, coders: &Coders, file: &PresentFile) -> io::Result<bool> {
    let kept = displaced_of(&place.tree, file.now.inode);
    let fence = Fence::new(&kept);
    if !known(&kept, coders)?.is_some_and(|part| file.is_of(&part)) {
        return Ok(false);
    }
    // What a later program wrote is never overwritten.
    if place.reason_to_keep(coders).is_some() {
        return Ok(false);
    }
    set_aside(place, coders, |part| part.header.generation.inode != file.now.inode)?;
    let moved = fence.pass(&kept, |_| {
        place.tree.make_directories(split(&place.path).0, DIRECTORY_MODE)?;
        absent_is_none(place.tree.rename(&kept.path, &place.path))
    });
    match moved {
        Err(error) if is_superseded(&error) => Ok(false),
        moved => Ok(moved?.is_some()),
    }
}

/// Moves redundancy of a file from a place where it may be to the place of the file's name, whatever was written to the
/// file since. Returns true if there was any.
///
/// # Errors
/// See [`known`], or the operating system fails.
pub(crate) fn bring(from: &PartPath, to: &PartPath, coders: &Coders, file: &Stat) -> io::Result<bool> {
    let is_its = |part: &Part| {
        let Header { generation, protected_at, .. } = &part.header;
        generation.inode == file.inode && file.birth.is_none_or(|birth| birth <= *protected_at)
    };
    let fence = Fence::new(from);
    if !known(from, coders)?.is_some_and(|part| is_its(&part)) {
        return Ok(false);
    }
    if let Some(unknown) = to.reason_to_keep(coders) {
        return Err(io::Error::other(unknown));
    }
    set_aside(to, coders, |part| !is_its(part))?;
    let moved = fence.pass(from, |_| {
        to.tree.make_directories(split(&to.path).0, DIRECTORY_MODE)?;
        absent_is_none(from.tree.rename(&from.path, &to.path))
    });
    match moved {
        Err(error) if is_superseded(&error) => return Ok(false),
        moved => {
            if moved?.is_none() {
                return Ok(false);
            }
        }
    }
    let root = if from.path.starts_with(DISPLACED) { DISPLACED } else { REDUNDANCY };
    from.tree.remove_empty(split(&from.path).0, root)?;
    Ok(true)
}

/// Number of displaced files and their allocated bytes.
///
/// # Errors
/// The operating system fails.
pub(crate) fn amount(repository: &Repository) -> io::Result<(u64, u64)> {
    let Some(directory) = absent_is_none(repository.tree.directory(DISPLACED))? else { return Ok((0, 0)) };
    let (mut files, mut bytes) = (0, 0);
    for (name, _) in directory.names()?.iter() {
        // A worker may move it concurrently.
        let Some(stat) = absent_is_none(directory.stat(name))? else { continue };
        files += 1;
        bytes += stat.allocated;
    }
    Ok((files, bytes))
}

/// How likely it is that displaced redundancy is still needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The whole tree was scanned after this time and all its files are protected.
    ByNobody(Timestamp),
    /// No recorded change is pending.
    Perhaps,
    /// Changes are pending.
    Likely,
}

/// Removes displaced redundancy that is no longer needed, but none of an inode for which `is_needed` returns true.
/// Returns the number of files.
///
/// # Errors
/// The operating system or the catalogue fails.
pub(crate) fn purge(
    repository: &Repository,
    coders: &Coders,
    catalogue: &Catalogue,
    awaited: Awaited,
    is_needed: &dyn Fn(u64) -> bool,
    now: Timestamp,
) -> io::Result<u64> {
    let Some(directory) = absent_is_none(repository.tree.directory(DISPLACED))? else { return Ok(0) };
    let mut purged = 0;
    for (name, _) in directory.names()?.iter() {
        let inode = std::str::from_utf8(name).ok().and_then(|name| u64::from_str_radix(name, 16).ok());
        if inode.is_some_and(is_needed) {
            continue;
        }
        let place = PartPath { tree: repository.tree.clone(), path: join(DISPLACED, name) };
        let fence = Fence::new(&place);
        let Some(stat) = repository.tree.find(&place.path)? else { continue };
        // A rename changes the ctime.
        let age = now.since(stat.ctime);
        let goes = match awaited {
            Awaited::ByNobody(before) => stat.ctime < before,
            Awaited::Perhaps => age > KEPT,
            Awaited::Likely => age > KEPT_WHILE_BUSY,
        };
        let is_protected = || -> io::Result<bool> {
            let Some(part) = known(&place, coders)? else { return Ok(false) };
            let names = catalogue.by_inode(&part.header.generation).map_err(io::Error::other)?;
            Ok(names.iter().any(|name| repository.place(name).open(coders).is_ok_and(|part| part.is_some())))
        };
        if goes || (age > KEPT && is_protected()?) {
            match fence.pass(&place, |_| repository.tree.remove(&place.path)) {
                Err(error) if is_superseded(&error) => {}
                removed => {
                    removed?;
                    purged += 1;
                }
            }
        }
    }
    Ok(purged)
}
