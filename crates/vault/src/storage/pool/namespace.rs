//! Namespace: one tree of stubs per mirror, read as one.
//!
//! A name exists if any current mirror has it; its highest revision is valid. A crash between two mirrors thus leaves
//! the old or the new state of a path. [`change`](super::change) decides which mirrors are current.

use super::error::PoolError;
use super::stub::{LinkStub, MAX_BYTES, Stub};
use super::view::MirrorCopy;
use crate::format::FileId;
use crate::tree::{Kind, Names, Stat, Tree, absent_is_none, join, split};
use std::io::{self, Read, Write};

/// Directory of the namespace on a mirror.
pub(crate) const TREE: &[u8] = b"tree";

/// Directory of the stubs of files with several names.
pub(crate) const SHARED: &[u8] = b"shared";

/// Path of the stub of a file with several names, below [`SHARED`].
pub(crate) fn shared_name(id: FileId) -> Vec<u8> {
    let name = id.to_string();
    join(&name.as_bytes()[..2], name.as_bytes())
}

/// Path of the stub of the file at `path` on a mirror.
pub(crate) fn stub_path(stub: &Stub, path: &[u8]) -> Result<Vec<u8>, PoolError> {
    match stub.names {
        0 => mirror_path(TREE, path),
        _ => Ok(join(SHARED, &shared_name(stub.id))),
    }
}

/// An entry of the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NamespaceEntry {
    Directory(Stat),
    File(Box<Stub>),
}

/// Room for a stub of the usual length, so that it is read at once.
const USUAL_BYTES: usize = 4096;

/// Converts a path of the namespace to a path on a mirror. Paths that would leave the namespace are refused here; the
/// kernel refuses those that would leave the target.
pub(crate) fn mirror_path(top: &[u8], path: &[u8]) -> Result<Vec<u8>, PoolError> {
    if path.is_empty() {
        return Ok(top.to_vec());
    }
    let odd = |name: &[u8]| name.is_empty() || name == b"." || name == b".." || name.contains(&0);
    match path.split(|&byte| byte == b'/').any(odd) {
        true => Err(PoolError::path(path, io::ErrorKind::InvalidInput)),
        false => Ok(join(top, path)),
    }
}

/// The entry of one mirror at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MirrorEntry {
    Directory(Stat),
    File(Box<Stub>),
    /// A hard link: the stub of the file lies apart.
    Name(LinkStub),
}

impl MirrorEntry {
    pub(crate) fn revision(&self) -> Option<u64> {
        match self {
            MirrorEntry::Directory(_) => None,
            MirrorEntry::File(stub) => Some(stub.revision),
            MirrorEntry::Name(name) => Some(name.revision),
        }
    }

    /// The text to write on another mirror; none for a directory.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            MirrorEntry::Directory(_) => None,
            MirrorEntry::File(stub) => Some(stub.encode()),
            MirrorEntry::Name(name) => Some(name.encode()),
        }
    }
}

/// Reads the entry of one mirror.
pub(crate) fn read_entry(tree: &Tree, path: &[u8]) -> io::Result<Option<MirrorEntry>> {
    let file = match tree.read(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let stat = tree.stat(path)?;
            return match stat.kind {
                Kind::Directory => Ok(Some(MirrorEntry::Directory(stat))),
                _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is neither a stub nor a directory")),
            };
        }
        Err(error) => return absent_is_none(Err(error)),
    };
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    // A new name whose stub was not durable before a crash. It was never acknowledged.
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let damaged = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    match Stub::decode(&bytes) {
        Ok(stub) => Ok(Some(MirrorEntry::File(Box::new(stub)))),
        Err(error) => match LinkStub::decode(&bytes).map_err(damaged)? {
            Some(name) => Ok(Some(MirrorEntry::Name(name))),
            None => Err(damaged(error)),
        },
    }
}

/// Looks up a path on all mirrors. Absence is reported only if every mirror could be read.
pub(crate) fn look_up(copies: &[MirrorCopy], path: &[u8]) -> Result<Option<NamespaceEntry>, PoolError> {
    Ok(match read_newest(copies, TREE, path)? {
        None => None,
        Some(MirrorEntry::Directory(stat)) => Some(NamespaceEntry::Directory(stat)),
        Some(MirrorEntry::File(stub)) => Some(NamespaceEntry::File(stub)),
        Some(MirrorEntry::Name(name)) => match look_up_shared(copies, name.id)? {
            Some(stub) => Some(NamespaceEntry::File(Box::new(stub))),
            None => {
                let why = format!("it is a hard link to file {}, which does not exist", name.id);
                return Err(PoolError::path(path, io::Error::new(io::ErrorKind::InvalidData, why)));
            }
        },
    })
}

/// The stub of a file with several names.
pub(crate) fn look_up_shared(copies: &[MirrorCopy], id: FileId) -> Result<Option<Stub>, PoolError> {
    Ok(match read_newest(copies, SHARED, &shared_name(id))? {
        Some(MirrorEntry::File(stub)) if stub.id == id => Some(*stub),
        _ => None,
    })
}

/// The newest entry of the mirrors at a path below `top`.
pub(crate) fn read_newest(
    copies: &[MirrorCopy],
    top: &[u8],
    path: &[u8],
) -> Result<Option<MirrorEntry>, PoolError> {
    let full = mirror_path(top, path)?;
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

fn newer(best: Option<MirrorEntry>, entry: MirrorEntry) -> MirrorEntry {
    match best {
        None => entry,
        Some(best) => match (best.revision(), entry.revision()) {
            // Directories have no revision: the first one is used, and a file in preference to a directory.
            (None, Some(_)) => entry,
            (Some(known), Some(revision)) if revision > known => entry,
            _ => best,
        },
    }
}

/// The stub of a file or link.
pub(crate) fn look_up_file(copies: &[MirrorCopy], path: &[u8]) -> Result<Stub, PoolError> {
    match look_up(copies, path)? {
        Some(NamespaceEntry::File(stub)) => Ok(*stub),
        Some(NamespaceEntry::Directory(_)) => Err(PoolError::path(path, io::ErrorKind::IsADirectory)),
        None => Err(PoolError::path(path, io::ErrorKind::NotFound)),
    }
}

/// Names in a directory, merged over the mirrors. Kinds are reported for directories only, since a stub may be that of
/// a link.
pub(crate) fn names(copies: &[MirrorCopy], path: &[u8]) -> Result<Names, PoolError> {
    names_below(copies, TREE, path)
}

/// As [`names`], below another top directory.
pub(crate) fn names_below(copies: &[MirrorCopy], top: &[u8], path: &[u8]) -> Result<Names, PoolError> {
    let full = mirror_path(top, path)?;
    let mut all = Vec::new();
    let mut failed = None;
    for copy in copies {
        match copy.tree.directory(&full).and_then(|directory| directory.names()) {
            Ok(names) => all.push(names),
            Err(error) => {
                let absent = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
                // Keeps the more specific error.
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
            let kinds = entries.map(|(name, kind)| (name, kind.filter(|kind| *kind == Kind::Directory)));
            Names::of(kinds).map_err(|error| PoolError::path(path, error))
        }
    }
}

/// Blank names of a directory: their stubs were not durable before a power failure. None if any name has an entry.
pub(crate) fn blank_names(copies: &[MirrorCopy], path: &[u8]) -> Result<Option<Vec<Vec<u8>>>, PoolError> {
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

/// True if a mirror has a name without an entry.
pub(crate) fn has_blank_name(copies: &[MirrorCopy], path: &[u8]) -> Result<bool, PoolError> {
    let full = mirror_path(TREE, path)?;
    Ok(copies.iter().any(|copy| matches!(copy.tree.find(&full), Ok(Some(stat)) if stat.kind == Kind::File)))
}

/// Writes a stub durably on one mirror; its directory exists.
pub(crate) fn write_stub(tree: &Tree, full: &[u8], text: &str) -> io::Result<()> {
    write_whole(tree, full, text.as_bytes(), b".stub")?;
    tree.sync_directory(split(full).0)
}

/// Replaces a file on a target atomically.
pub(crate) fn write_whole(tree: &Tree, full: &[u8], bytes: &[u8], suffix: &[u8]) -> io::Result<()> {
    let name = super::config::new_identity()?;
    let temporary = join(crate::redundancy::STAGING, &[name.as_bytes(), suffix].concat());
    let mut file = tree.create(&temporary, 0o600)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let replaced = written.and_then(|()| tree.rename(&temporary, full));
    if replaced.is_err() {
        // The first error is more useful than one of the cleanup.
        let _ = tree.remove(&temporary);
    }
    replaced
}

/// Creates a directory of the namespace and those above it, durably.
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

/// Sets owner and permissions of a directory. The owner keeps access, since Gabion has to maintain the namespace.
pub(crate) fn set_owner_and_mode(tree: &Tree, full: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()> {
    use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};
    let directory = tree.directory(full)?;
    match fchown(&directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
        // Without the privilege to change owners the directory stays ours.
        Ok(()) | Err(rustix::io::Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    fchmod(&directory, Mode::from_raw_mode(mode | 0o700))?;
    let extra = super::folder::read(tree, full)?;
    let kept = (mode & 0o700 != 0o700).then_some(mode);
    if extra.mode == kept {
        return Ok(());
    }
    match super::folder::write(tree, full, &super::folder::DirectoryExtra { mode: kept, ..extra }) {
        // Without extended attributes its owner keeps all permissions.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTSUP.raw_os_error()) => Ok(()),
        written => written,
    }
}
