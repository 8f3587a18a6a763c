//! Redundancy whose name belongs to another file now, or to none.
//!
//! In a plain directory redundancy lies under the name of its file, and names change hands: a file is renamed over another one, two are swapped, a
//! new file takes the name of one that was moved. Redundancy of the file that lost the name is not overwritten or removed, because its file may still
//! exist under another name: without redundancy it would be encoded as new content, with the corruption that it may have. It
//! goes to `displaced/INODE`, and from there to the name under which its file is found. What nobody asks for is [purged](purge).

use crate::catalogue::Catalogue;
use crate::coder::Coders;
use crate::format::Header;
use crate::redundancy::draft::DIRECTORY_MODE;
use crate::redundancy::fence::{Fence, is_superseded};
use crate::redundancy::{Part, PartPath, REDUNDANCY};
use crate::storage::Repository;
use crate::tree::{Generation, Stat, Tree, absent_is_none, join, split};
use crate::world::{Nanos, SECOND};
use std::io;

/// Where it lies, beneath a repository.
pub(crate) const DISPLACED: &[u8] = b"displaced";

/// How long it is kept while changes wait, or files failed: one of them may be its file.
const KEPT_WHILE_BUSY: Nanos = 30 * 24 * 3600 * SECOND;

/// How long it is kept otherwise. A change that was made may not be recorded yet.
const KEPT: Nanos = 600 * SECOND;

/// A file as it is found under a name, to be compared with the file that redundancy was made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// Its present version.
    pub(crate) now: Generation,
    /// When it was made, where the file system records that.
    pub(crate) birth: Option<Nanos>,
}

impl Found {
    pub(crate) fn of(stat: &Stat) -> Found {
        Found { now: stat.generation(), birth: stat.birth }
    }

    /// Whether redundancy is of this file, and the file was not written since. The number of an inode is given to a new file when its file was deleted, and the
    /// new one may have the same size and time; but it was made after the redundancy.
    pub(crate) fn is_of(&self, part: &Part) -> bool {
        self.is_of_header(&part.header)
    }

    /// As [`is_of`](Found::is_of), by the header of the redundancy.
    pub(crate) fn is_of_header(&self, Header { generation, protected_at, .. }: &Header) -> bool {
        self.now.is_unwritten_since(generation) && self.birth.is_none_or(|birth| birth <= *protected_at)
    }
}

/// Where redundancy of the file with this inode is kept.
pub(crate) fn aside(tree: &Tree, inode: u64) -> PartPath {
    PartPath { tree: tree.clone(), path: join(DISPLACED, format!("{inode:016x}").as_bytes()) }
}

/// Whether redundancy is kept for a file.
///
/// # Errors
/// What the operating system says.
pub(crate) fn is_kept(repository: &Repository, file: &Found) -> io::Result<bool> {
    let kept = aside(&repository.tree, file.now.inode);
    Ok(repository.tree.find(&kept.path)?.is_some())
}

/// Whether redundancy is kept for any file.
///
/// # Errors
/// What the operating system says.
pub(crate) fn keeps_any(repository: &Repository) -> io::Result<bool> {
    Ok(repository.tree.find(DISPLACED)?.is_some())
}

/// Redundancy that is at a place. What is damaged counts as nothing, and so does what a later program wrote: neither is moved.
///
/// # Errors
/// It is not known what is in it: the file would be encoded as new content.
pub(crate) fn known(place: &PartPath, coders: &Coders) -> io::Result<Option<Part>> {
    match place.open_conclusive(coders) {
        Ok(part) => Ok(part),
        Err(unknown) if unknown.source.is_later() => Ok(None),
        Err(unknown) => Err(io::Error::other(unknown)),
    }
}

/// Takes redundancy away from a place and keeps it for its file, if `wanted` says yes to it. Says whether it did.
///
/// # Errors
/// See [`known`]; what the operating system says.
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
    let kept = aside(&place.tree, part.header.generation.inode);
    // Names of one file have redundancy each. The newest counts.
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

/// Puts redundancy that was set aside in place for its file. Redundancy of another file that lies there is set aside in turn.
/// Says whether there was any.
///
/// # Errors
/// See [`known`]; what the operating system says.
pub(crate) fn recall(place: &PartPath, coders: &Coders, file: &Found) -> io::Result<bool> {
    let kept = aside(&place.tree, file.now.inode);
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

/// Redundancy that is set aside: its files, and the bytes that they take on the disk.
///
/// # Errors
/// What the operating system says.
pub(crate) fn amount(repository: &Repository) -> io::Result<(u64, u64)> {
    let Some(directory) = absent_is_none(repository.tree.directory(DISPLACED))? else { return Ok((0, 0)) };
    let (mut files, mut bytes) = (0, 0);
    for (name, _) in directory.names()?.iter() {
        // A worker may take it just now.
        let Some(stat) = absent_is_none(directory.stat(name))? else { continue };
        files += 1;
        bytes += stat.allocated;
    }
    Ok((files, bytes))
}

/// How much is known of the files whose redundancy was set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The whole tree was looked at after this time, and everything that it has is protected.
    ByNobody(Nanos),
    /// Nothing that was recorded is left to do.
    Perhaps,
    /// Changes wait to be worked off.
    Likely,
}

/// Removes redundancy that was set aside and that no file will ask for. Gives the number of files.
///
/// # Errors
/// What the operating system or the catalogue says.
pub(crate) fn purge(
    repository: &Repository,
    coders: &Coders,
    catalogue: &Catalogue,
    awaited: Awaited,
    now: Nanos,
) -> io::Result<u64> {
    let Some(directory) = absent_is_none(repository.tree.directory(DISPLACED))? else { return Ok(0) };
    let mut purged = 0;
    for (name, _) in directory.names()?.iter() {
        let place = PartPath { tree: repository.tree.clone(), path: join(DISPLACED, name) };
        let fence = Fence::new(&place);
        let Some(stat) = repository.tree.find(&place.path)? else { continue };
        // A rename changes the ctime.
        let age = now.saturating_sub(stat.ctime);
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
