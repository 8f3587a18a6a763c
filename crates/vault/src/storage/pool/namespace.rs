//! The namespace: one tree of stubs per mirror, read as one.
//!
//! A name exists if any current mirror has it, and its newest revision is what counts. A crash between two mirrors
//! thus leaves the old or the new state of a path, never something in between; which targets are current is
//! decided in [`change`](super::change).

use super::error::PoolError;
use super::stub::{MAX_BYTES, NameOfShared, Stub};
use super::view::Copy;
use crate::format::FileId;
use crate::tree::{Kind, Names, Stat, Tree, absent_is_none, join, split};
use std::io::{self, Read, Write};

/// Where the namespace is on a mirror.
pub(crate) const TREE: &[u8] = b"tree";

/// Where stubs of files are that have several names.
pub(crate) const SHARED: &[u8] = b"shared";

/// The place of a file that has several names, below [`SHARED`].
pub(crate) fn shared_name(id: FileId) -> Vec<u8> {
    let name = id.to_string();
    join(&name.as_bytes()[..2], name.as_bytes())
}

/// Where the stub of the file at `path` is on a mirror.
pub(crate) fn home(stub: &Stub, path: &[u8]) -> Result<Vec<u8>, PoolError> {
    match stub.names {
        0 => beneath(TREE, path),
        _ => Ok(join(SHARED, &shared_name(stub.id))),
    }
}

/// What a path stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Directory(Stat),
    File(Box<Stub>),
}

/// Room for a stub of the usual length, so that it is read at once.
const USUAL_BYTES: usize = 4096;

/// A path of the namespace as one on a mirror. The kernel keeps paths beneath the target; what would lead out of
/// the namespace to other files of the target is refused here.
pub(crate) fn beneath(top: &[u8], path: &[u8]) -> Result<Vec<u8>, PoolError> {
    if path.is_empty() {
        return Ok(top.to_vec());
    }
    let odd = |name: &[u8]| name.is_empty() || name == b"." || name == b".." || name.contains(&0);
    match path.split(|&byte| byte == b'/').any(odd) {
        true => Err(PoolError::path(path, io::ErrorKind::InvalidInput)),
        false => Ok(join(top, path)),
    }
}

/// What one mirror has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    Directory(Stat),
    File(Box<Stub>),
    /// The file is another one's, too: its stub lies apart.
    Name(NameOfShared),
}

impl Written {
    pub(crate) fn revision(&self) -> Option<u64> {
        match self {
            Written::Directory(_) => None,
            Written::File(stub) => Some(stub.revision),
            Written::Name(name) => Some(name.revision),
        }
    }

    /// What a mirror gets in order to have the same; nothing for a directory.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Written::Directory(_) => None,
            Written::File(stub) => Some(stub.encode()),
            Written::Name(name) => Some(name.encode()),
        }
    }
}

/// What one mirror has.
pub(crate) fn read_entry(tree: &Tree, path: &[u8]) -> io::Result<Option<Written>> {
    let file = match tree.read(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let stat = tree.stat(path)?;
            return match stat.kind {
                Kind::Directory => Ok(Some(Written::Directory(stat))),
                _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is neither a stub nor a directory")),
            };
        }
        Err(error) => return absent_is_none(Err(error)),
    };
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    // A new name whose stub was not made durable before a crash: nobody was promised anything.
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let damaged = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    match Stub::decode(&bytes) {
        Ok(stub) => Ok(Some(Written::File(Box::new(stub)))),
        Err(error) => match NameOfShared::decode(&bytes).map_err(damaged)? {
            Some(name) => Ok(Some(Written::Name(name))),
            None => Err(damaged(error)),
        },
    }
}

/// What the mirrors have together. That a mirror has nothing proves nothing where another cannot be read.
pub(crate) fn look_up(copies: &[Copy], path: &[u8]) -> Result<Option<Entry>, PoolError> {
    Ok(match look_at(copies, TREE, path)? {
        None => None,
        Some(Written::Directory(stat)) => Some(Entry::Directory(stat)),
        Some(Written::File(stub)) => Some(Entry::File(stub)),
        Some(Written::Name(name)) => match look_up_shared(copies, name.id)? {
            Some(stub) => Some(Entry::File(Box::new(stub))),
            None => {
                let why = format!("it is a name of file {}, which is nowhere", name.id);
                return Err(PoolError::path(path, io::Error::new(io::ErrorKind::InvalidData, why)));
            }
        },
    })
}

/// The stub of a file that has several names.
pub(crate) fn look_up_shared(copies: &[Copy], id: FileId) -> Result<Option<Stub>, PoolError> {
    Ok(match look_at(copies, SHARED, &shared_name(id))? {
        Some(Written::File(stub)) if stub.id == id => Some(*stub),
        _ => None,
    })
}

/// What the mirrors have together below `top`, as it is written there.
pub(crate) fn look_at(copies: &[Copy], top: &[u8], path: &[u8]) -> Result<Option<Written>, PoolError> {
    let full = beneath(top, path)?;
    let found = copies.iter().map(|copy| (copy, read_entry(&copy.tree, &full)));
    let mut best = None;
    let mut failed = None;
    for (copy, entry) in found {
        match entry {
            Ok(Some(entry)) => best = Some(newer(best, entry)),
            Ok(None) => {}
            Err(source) => failed = Some((copy, source)),
        }
    }
    match (best, failed) {
        (Some(entry), _) => Ok(Some(entry)),
        (None, None) => Ok(None),
        (None, Some((copy, source))) => {
            let kind = source.kind();
            Err(PoolError::path(path, io::Error::new(kind, format!("its stub on {}: {source}", copy.name))))
        }
    }
}

fn newer(best: Option<Written>, entry: Written) -> Written {
    match best {
        None => entry,
        Some(best) => match (best.revision(), entry.revision()) {
            // Directories have none: the first one counts, and a file rather than a directory.
            (None, Some(_)) => entry,
            (Some(known), Some(revision)) if revision > known => entry,
            _ => best,
        },
    }
}

/// The stub of a file or link.
pub(crate) fn look_up_file(copies: &[Copy], path: &[u8]) -> Result<Stub, PoolError> {
    match look_up(copies, path)? {
        Some(Entry::File(stub)) => Ok(*stub),
        Some(Entry::Directory(_)) => Err(PoolError::path(path, io::ErrorKind::IsADirectory)),
        None => Err(PoolError::path(path, io::ErrorKind::NotFound)),
    }
}

/// The names that the mirrors have together. What they stand for is only told for directories: a stub may be that of
/// a link.
pub(crate) fn names(copies: &[Copy], path: &[u8]) -> Result<Names, PoolError> {
    names_below(copies, TREE, path)
}

/// As [`names`], below another top.
pub(crate) fn names_below(copies: &[Copy], top: &[u8], path: &[u8]) -> Result<Names, PoolError> {
    let full = beneath(top, path)?;
    let mut all = Vec::new();
    let mut failed = None;
    for copy in copies {
        match copy.tree.directory(&full).and_then(|directory| directory.names()) {
            Ok(names) => all.push(names),
            Err(error) => {
                let absent = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
                // An error that says more is kept.
                if !absent || failed.is_none() {
                    failed = Some(error);
                }
            }
        }
    }
    match (all.is_empty(), failed) {
        (true, Some(error)) => Err(PoolError::path(path, error)),
        _ => {
            let entries = all.iter().flat_map(Names::iter);
            let told = entries.map(|(name, kind)| (name, kind.filter(|kind| *kind == Kind::Directory)));
            Names::of(told).map_err(|error| PoolError::path(path, error))
        }
    }
}

/// Names in a directory that stand for nothing: their stubs were not durable before a power cut. Nothing if a name stands for something.
pub(crate) fn only_blanks(copies: &[Copy], path: &[u8]) -> Result<Option<Vec<Vec<u8>>>, PoolError> {
    let mut blanks = Vec::new();
    for (name, _) in names(copies, path)?.iter() {
        let below = join(path, name);
        if look_up(copies, &below)?.is_some() {
            return Ok(None);
        }
        blanks.push(below);
    }
    Ok(Some(blanks))
}

/// Whether a mirror has a name that stands for nothing.
pub(crate) fn is_blank(copies: &[Copy], path: &[u8]) -> Result<bool, PoolError> {
    let full = beneath(TREE, path)?;
    Ok(copies.iter().any(|copy| matches!(copy.tree.find(&full), Ok(Some(stat)) if stat.kind == Kind::File)))
}

/// Puts a stub in place on one mirror, durably; its directory is there.
pub(crate) fn write_stub(tree: &Tree, full: &[u8], text: &str) -> io::Result<()> {
    write_whole(tree, full, text.as_bytes(), b".stub")?;
    tree.sync_directory(split(full).0)
}

/// Replaces a file on a target with another one; a crash leaves one of them.
pub(crate) fn write_whole(tree: &Tree, full: &[u8], bytes: &[u8], suffix: &[u8]) -> io::Result<()> {
    let name = super::config::new_identity()?;
    let temporary = join(crate::redundancy::STAGING, &[name.as_bytes(), suffix].concat());
    let mut file = tree.create(&temporary, 0o600)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let replaced = written.and_then(|()| tree.rename(&temporary, full));
    if replaced.is_err() {
        // The reason of the failure is worth more than a second one.
        let _ = tree.remove(&temporary);
    }
    replaced
}

/// Makes a directory of the namespace and those above it, durably.
pub(crate) fn make_directories(tree: &Tree, full: &[u8], mode: u32) -> io::Result<()> {
    if tree.find(full)?.is_some_and(|stat| stat.kind == Kind::Directory) {
        return Ok(());
    }
    if full != TREE {
        make_directories(tree, split(full).0, mode)?;
    }
    tree.make_directories(full, mode)?;
    tree.sync_directory(split(full).0)
}

/// Gives a directory owner and permissions. Who runs us keeps access, or the namespace could not be kept.
pub(crate) fn dress(tree: &Tree, full: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()> {
    use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};
    let directory = tree.directory(full)?;
    match fchown(&directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
        // Without the right to give things away they stay ours.
        Ok(()) | Err(rustix::io::Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    fchmod(&directory, Mode::from_raw_mode(mode | 0o700))?;
    let extra = super::folder::read(tree, full)?;
    let kept = (mode & 0o700 != 0o700).then_some(mode);
    if extra.mode == kept {
        return Ok(());
    }
    match super::folder::write(tree, full, &super::folder::Extra { mode: kept, ..extra }) {
        // Without extended attributes its owner keeps all rights.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTSUP.raw_os_error()) => Ok(()),
        written => written,
    }
}
