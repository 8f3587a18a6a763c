//! The namespace for people: listing, directories, removing, moving.

use super::Pool;
use super::change::{Change, MirrorFault};
use super::error::PoolError;
use super::extent::settled;
use super::namespace::{Entry, TREE, beneath, is_blank, look_up, look_up_file, names, only_blanks};
use super::sequence::{Step, removal};
use super::stub::Stub;
use crate::tree::{Kind, Stat, join, split};
use std::io;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Vec<u8>,
    /// What it stands for.
    pub stat: Stat,
    /// Where its content is, if it is a file or a link.
    pub stub: Option<Stub>,
}

/// A name in a directory, and what it stands for or why that is not known.
pub type Named = (Vec<u8>, Result<Listed, PoolError>);

impl Pool {
    /// What a directory has, sorted; a path that is a file stands for itself. Names whose stubs cannot be read come with the reason.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn list(&self, path: &[u8]) -> Result<Vec<Named>, PoolError> {
        let copies = self.shared.copies()?;
        let device = self.shared.device;
        let listed = |name: &[u8], path: &[u8]| {
            let entry =
                look_up(&copies, path)?.ok_or_else(|| PoolError::path(path, io::ErrorKind::NotFound))?;
            let entry = entry.settled(&self.shared.known());
            let (stat, name) = (entry.stat(path, device), name.to_vec());
            let stub = if let Entry::File(stub) = entry { Some(*stub) } else { None };
            Ok(Listed { name, stat, stub })
        };
        if !path.is_empty() {
            let itself = listed(split(path).1, path)?;
            if itself.stat.kind != Kind::Directory {
                return Ok(vec![(itself.name.clone(), Ok(itself))]);
            }
        }
        let names = names(&copies, path)?;
        let all = names.iter().map(|(name, _)| (name.to_vec(), listed(name, &join(path, name))));
        // Removed meanwhile, or made a moment before a power cut: its stub was not durable.
        let is_absent = |found: &Result<Listed, PoolError>| {
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
        Ok(settled(&self.shared.known(), stub))
    }

    /// Makes a directory and those above it; one that is there gets owner and permissions. Gives the mirrors
    /// that did not take part.
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
        let full = beneath(TREE, path)?;
        let mut change = self.shared.change()?;
        if let Some(Entry::File(_)) = look_up(&change.copies, path)? {
            return Err(PoolError::path(path, io::ErrorKind::AlreadyExists));
        }
        change.commit(path, vec![Step::Directory { full, mode, uid, gid }])?;
        Ok(change.faults())
    }

    /// Removes a file, a link or an empty directory. Gives the mirrors that did not take part.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn remove(&self, path: &[u8]) -> Result<Vec<MirrorFault>, PoolError> {
        let full = beneath(TREE, path)?;
        let mut change = self.shared.change()?;
        match look_up(&change.copies, path) {
            Ok(Some(Entry::Directory(_))) => {
                if path.is_empty() {
                    return Err(PoolError::path(b"/", io::ErrorKind::InvalidInput));
                }
                let Some(blanks) = only_blanks(&change.copies, path)? else {
                    return Err(PoolError::path(path, io::ErrorKind::DirectoryNotEmpty));
                };
                change.commit(path, removal(&full, &blanks)?)?;
            }
            Ok(None) if !is_blank(&change.copies, path)? => {
                return Err(PoolError::path(path, io::ErrorKind::NotFound));
            }
            // A stub that cannot be read any more, or was never durable, can still be removed; its objects are found by a sweep.
            found => {
                change.commit(path, vec![Step::Remove { full }])?;
                if let Ok(Some(Entry::File(stub))) = found {
                    change.let_go(*stub)?;
                }
            }
        }
        Ok(change.faults())
    }

    /// Moves a file or directory, over a file or an empty directory that is there. Gives the mirrors that did not
    /// take part.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<Vec<MirrorFault>, PoolError> {
        let mut change = self.shared.change()?;
        if let Some(stub) = change.move_name(from, to)? {
            change.let_go(stub)?;
        }
        Ok(change.faults())
    }
}

impl Change<'_> {
    /// Moves a file or directory as [`Pool::rename`] does. Gives the file that had the new name.
    pub(crate) fn move_name(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Stub>, PoolError> {
        let change = self;
        let refuse = |path: &[u8], kind: io::ErrorKind| Err(PoolError::path(path, kind));
        beneath(TREE, to)?;
        if from.is_empty() || to.is_empty() || to.starts_with(&[from, b"/"].concat()) {
            return refuse(to, io::ErrorKind::InvalidInput);
        }
        let Some(source) = change.settle(from)? else { return refuse(from, io::ErrorKind::NotFound) };
        if from == to {
            return Ok(None);
        }
        match change.settle(split(to).0)? {
            Some(Entry::Directory(_)) => {}
            Some(Entry::File(_)) => return refuse(split(to).0, io::ErrorKind::NotADirectory),
            None => return refuse(split(to).0, io::ErrorKind::NotFound),
        }
        let replaced = change.settle(to)?;
        match (&source, &replaced) {
            // Two names of one file: both stay.
            (Entry::File(source), Some(Entry::File(there))) if source.id == there.id => return Ok(None),
            (Entry::File(_), Some(Entry::Directory(_))) => return refuse(to, io::ErrorKind::IsADirectory),
            (Entry::Directory(_), Some(Entry::File(_))) => return refuse(to, io::ErrorKind::NotADirectory),
            (Entry::Directory(_), Some(Entry::Directory(_)))
                if names(&change.copies, to)?.get(0).is_some() =>
            {
                return refuse(to, io::ErrorKind::DirectoryNotEmpty);
            }
            _ => {}
        }
        let id = match &source {
            Entry::File(stub) => Some(stub.id),
            Entry::Directory(_) => None,
        };
        change.rename(from, to, id)?;
        Ok(match replaced {
            Some(Entry::File(stub)) => Some(*stub),
            _ => None,
        })
    }
}
