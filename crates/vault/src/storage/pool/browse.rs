//! Namespace operations of the command line: listing, directories, removing, moving.

use super::Pool;
use super::change::{Change, MirrorFault};
use super::error::PoolError;
use super::extent::with_current_size;
use super::namespace::{
    NamespaceEntry, TREE, blank_names, has_blank_name, look_up, look_up_file, mirror_path, names,
};
use super::sequence::{Step, removal};
use super::stub::Stub;
use crate::tree::{Kind, Stat, join, split};
use std::io;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Name.
    pub name: Vec<u8>,
    /// Status.
    pub stat: Stat,
    /// Stub of a file or link.
    pub stub: Option<Stub>,
}

/// Name of an entry, and the entry or why it cannot be read.
pub type ListedEntry = (Vec<u8>, Result<DirectoryEntry, PoolError>);

impl Pool {
    /// Entries of a directory, sorted; a path of a file lists that file. Entries with unreadable stubs come with the
    /// error.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn list(&self, path: &[u8]) -> Result<Vec<ListedEntry>, PoolError> {
        let copies = self.shared.copies()?;
        let device = self.shared.device;
        let listed = |name: &[u8], path: &[u8]| {
            let entry =
                look_up(&copies, path)?.ok_or_else(|| PoolError::path(path, io::ErrorKind::NotFound))?;
            let entry = entry.with_current_size(&self.shared.cached_view());
            let (stat, name) = (entry.stat(path, device), name.to_vec());
            let stub = if let NamespaceEntry::File(stub) = entry { Some(*stub) } else { None };
            Ok(DirectoryEntry { name, stat, stub })
        };
        if !path.is_empty() {
            let itself = listed(split(path).1, path)?;
            if itself.stat.kind != Kind::Directory {
                return Ok(vec![(itself.name.clone(), Ok(itself))]);
            }
        }
        let names = names(&copies, path)?;
        let all = names.iter().map(|(name, _)| (name.to_vec(), listed(name, &join(path, name))));
        // Removed meanwhile, or created just before a power failure: its stub was not durable.
        let is_absent = |found: &Result<DirectoryEntry, PoolError>| {
            found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        Ok(all.filter(|(_, found)| !is_absent(found)).collect())
    }

    /// The stub of a file or link.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn stub(&self, path: &[u8]) -> Result<Stub, PoolError> {
        let stub = look_up_file(&self.shared.copies()?, path)?;
        Ok(with_current_size(&self.shared.cached_view(), stub))
    }

    /// Creates a directory and those above it, or sets owner and permissions of an existing one. Returns the mirrors
    /// that failed.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn make_directory(
        &self,
        path: &[u8],
        mode: u32,
        uid: u32,
        gid: u32,
    ) -> Result<Vec<MirrorFault>, PoolError> {
        let full = mirror_path(TREE, path)?;
        let mut change = self.shared.change()?;
        if let Some(NamespaceEntry::File(_)) = look_up(&change.copies, path)? {
            return Err(PoolError::path(path, io::ErrorKind::AlreadyExists));
        }
        change.commit(path, vec![Step::Directory { full, mode, uid, gid }])?;
        Ok(change.faults())
    }

    /// Removes a file, a link or an empty directory. Returns the mirrors that failed.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn remove(&self, path: &[u8]) -> Result<Vec<MirrorFault>, PoolError> {
        let full = mirror_path(TREE, path)?;
        let mut change = self.shared.change()?;
        match look_up(&change.copies, path) {
            Ok(Some(NamespaceEntry::Directory(_))) => {
                if path.is_empty() {
                    return Err(PoolError::path(b"/", io::ErrorKind::InvalidInput));
                }
                let Some(blanks) = blank_names(&change.copies, path)? else {
                    return Err(PoolError::path(path, io::ErrorKind::DirectoryNotEmpty));
                };
                change.commit(path, removal(&full, &blanks)?)?;
            }
            Ok(None) if !has_blank_name(&change.copies, path)? => {
                return Err(PoolError::path(path, io::ErrorKind::NotFound));
            }
            // An unreadable or never durable stub can still be removed; a sweep finds its objects.
            found => {
                change.commit(path, vec![Step::Remove { full }])?;
                if let Ok(Some(NamespaceEntry::File(stub))) = found {
                    change.unlink(*stub)?;
                }
            }
        }
        Ok(change.faults())
    }

    /// Moves a file or directory, replacing an existing file or empty directory. Returns the mirrors that failed.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<Vec<MirrorFault>, PoolError> {
        let mut change = self.shared.change()?;
        if let Some(stub) = change.move_name(from, to)? {
            change.unlink(stub)?;
        }
        Ok(change.faults())
    }
}

impl Change<'_> {
    /// Moves a file or directory as [`Pool::rename`] does. Returns the replaced file.
    pub(crate) fn move_name(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Stub>, PoolError> {
        let change = self;
        let refuse = |path: &[u8], kind: io::ErrorKind| Err(PoolError::path(path, kind));
        mirror_path(TREE, to)?;
        if from.is_empty() || to.is_empty() || to.starts_with(&[from, b"/"].concat()) {
            return refuse(to, io::ErrorKind::InvalidInput);
        }
        let Some(source) = change.reconcile(from)? else { return refuse(from, io::ErrorKind::NotFound) };
        if from == to {
            return Ok(None);
        }
        match change.reconcile(split(to).0)? {
            Some(NamespaceEntry::Directory(_)) => {}
            Some(NamespaceEntry::File(_)) => return refuse(split(to).0, io::ErrorKind::NotADirectory),
            None => return refuse(split(to).0, io::ErrorKind::NotFound),
        }
        let replaced = change.reconcile(to)?;
        match (&source, &replaced) {
            // Two names of one file: both stay.
            (NamespaceEntry::File(source), Some(NamespaceEntry::File(there))) if source.id == there.id => {
                return Ok(None);
            }
            (NamespaceEntry::File(_), Some(NamespaceEntry::Directory(_))) => {
                return refuse(to, io::ErrorKind::IsADirectory);
            }
            (NamespaceEntry::Directory(_), Some(NamespaceEntry::File(_))) => {
                return refuse(to, io::ErrorKind::NotADirectory);
            }
            (NamespaceEntry::Directory(_), Some(NamespaceEntry::Directory(_)))
                if names(&change.copies, to)?.get(0).is_some() =>
            {
                return refuse(to, io::ErrorKind::DirectoryNotEmpty);
            }
            _ => {}
        }
        let id = match &source {
            NamespaceEntry::File(stub) => Some(stub.id),
            NamespaceEntry::Directory(_) => None,
        };
        change.rename(from, to, id)?;
        Ok(match replaced {
            Some(NamespaceEntry::File(stub)) => Some(*stub),
            _ => None,
        })
    }
}
