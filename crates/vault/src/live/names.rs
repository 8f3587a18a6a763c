//! Names of a mounted pool: lookup, creation, removal, renames.

use super::file::LiveFile;
use super::publish::Durability;
use super::{Live, lock};
use crate::format::Metadata;
use crate::metadata::timespec;
use crate::storage::pool::change::Change;
use crate::storage::pool::error::PoolError;
use crate::storage::pool::extent::with_current_size;
use crate::storage::pool::folder::{self, DirectoryExtra};
use crate::storage::pool::hard_links::Unlinked;
use crate::storage::pool::namespace::{
    NamespaceEntry, TREE, blank_names, look_up, mirror_path, names, set_owner_and_mode,
};
use crate::storage::pool::objects::{create_locked, object_path};
use crate::storage::pool::put::new_stub;
use crate::storage::pool::sequence::{Step, removal};
use crate::storage::pool::stub::{Special, Stub};
use crate::storage::pool::view::MirrorCopy;
use crate::tree::{Names, Stat, absent_is_none, split};
use crate::world::{Stopwatch, Timestamp};
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, futimens};
use std::io;
use std::sync::Arc;

/// Attempts to create the first object of a new file: several disks may fail in turn.
const MAX_ATTEMPTS: usize = 16;

/// An entry of the namespace.
#[derive(Debug, Clone)]
pub enum LiveEntry {
    /// A directory as the first mirror has it, with its extra attributes.
    Directory(Stat, DirectoryExtra),
    /// A file or symbolic link, with its present size.
    File(Box<Stub>),
}

/// Result of a rename.
#[derive(Debug)]
pub enum RenameOutcome {
    /// Nothing changed: both are names of one file.
    SameFile,
    /// The name was changed; the file that had it before, if any.
    Renamed(Option<Unlinked>),
}

/// Changes of a directory's attributes.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectoryChange {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of the last change.
    pub mtime: Option<Timestamp>,
}

/// Extra attributes of a directory, from the first mirror that can be read.
fn directory_extra(copies: &[MirrorCopy], path: &[u8]) -> Result<DirectoryExtra, PoolError> {
    let full = mirror_path(TREE, path)?;
    let mut failed = None;
    for copy in copies {
        match folder::read(&copy.tree, &full) {
            Ok(extra) => return Ok(extra),
            Err(error) => failed = Some(error),
        }
    }
    let absent = || io::ErrorKind::NotFound.into();
    Err(PoolError::path(path, failed.unwrap_or_else(absent)))
}

fn refuse<T>(path: &[u8], kind: io::ErrorKind) -> Result<T, PoolError> {
    Err(PoolError::path(path, kind))
}

impl Live {
    /// Looks up a path.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn find(&self, path: &[u8]) -> Result<Option<LiveEntry>, PoolError> {
        let shared = &self.inner.pool.shared;
        let entry = self.inner.lease.read(shared, |copies| match look_up(copies, path)? {
            Some(NamespaceEntry::Directory(mut stat)) => {
                let extra = directory_extra(copies, path)?;
                stat.mode = extra.mode.unwrap_or(stat.mode);
                Ok(Some((NamespaceEntry::Directory(stat), extra)))
            }
            file => Ok(file.map(|file| (file, DirectoryExtra::default()))),
        })?;
        Ok(entry.map(|(entry, extra)| match entry {
            NamespaceEntry::Directory(stat) => LiveEntry::Directory(stat, extra),
            NamespaceEntry::File(stub) if stub.writing => {
                LiveEntry::File(Box::new(with_current_size(&shared.cached_view(), *stub)))
            }
            NamespaceEntry::File(stub) => LiveEntry::File(stub),
        }))
    }

    /// Names in a directory.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn names(&self, path: &[u8]) -> Result<Names, PoolError> {
        self.inner.lease.read(&self.inner.pool.shared, |copies| names(copies, path))
    }

    /// Creates a new file.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn create(&self, path: &[u8], metadata: &Metadata) -> Result<LiveFile, PoolError> {
        mirror_path(TREE, path)?;
        let mut made = self.create_once(path, metadata);
        for _ in 0..2 {
            if !matches!(made, Err(PoolError::Left { .. })) {
                break;
            }
            self.inner.invalidate_free_space();
            made = self.create_once(path, metadata);
        }
        made
    }

    fn create_once(&self, path: &[u8], metadata: &Metadata) -> Result<LiveFile, PoolError> {
        let inner = &self.inner;
        let now = inner.pool.shared.clock.now();
        let mut stub = new_stub(metadata, now, Vec::new(), inner.pool.shared.cached_view().config.block)?;
        stub.writing = true;
        // The first column exists from the beginning: its lock shows that the file is being written.
        let object = object_path(stub.id, 0);
        let mut attempt = 0;
        let (targets, first) = loop {
            let targets = inner.choose_targets(stub.id)?;
            attempt += 1;
            match create_locked(&targets[0].tree, &object) {
                Ok(file) => break (targets, file),
                // The disk may have failed, turned read-only or filled up since it was checked.
                Err(error) => {
                    let given_up = inner.note_failed_write(&targets[0].name, &error);
                    if attempt > 1 && !given_up || attempt > MAX_ATTEMPTS {
                        return Err(PoolError::target(&targets[0].name, "creating an object")(error));
                    }
                }
            }
        };
        stub.targets = targets.iter().map(|target| target.name.clone()).collect();
        match inner.publish_new(path, &mut stub) {
            Ok(seen) => {
                lock(&inner.young).insert(stub.id, Stopwatch::start());
                Ok(LiveFile::made(Arc::clone(inner), stub, first, seen))
            }
            Err(error) => {
                // A file that stays is removed by a sweep.
                let _ = targets[0].tree.remove(&object);
                Err(error)
            }
        }
    }

    /// Opens an existing file, as returned by [`find`](Live::find).
    pub fn open(&self, stub: Stub) -> LiveFile {
        LiveFile::found(Arc::clone(&self.inner), stub)
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn make_link(&self, path: &[u8], target: &[u8], metadata: &Metadata) -> Result<Stub, PoolError> {
        mirror_path(TREE, path)?;
        let mut stub = new_stub(metadata, self.inner.pool.shared.clock.now(), Vec::new(), 0)?;
        stub.link = Some(target.to_vec());
        stub.size = target.len() as u64;
        self.inner.publish_new(path, &mut stub)?;
        lock(&self.inner.young).insert(stub.id, Stopwatch::start());
        Ok(stub)
    }

    /// Creates a pipe, a socket or a device.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn make_special(
        &self,
        path: &[u8],
        special: Special,
        metadata: &Metadata,
    ) -> Result<Stub, PoolError> {
        mirror_path(TREE, path)?;
        let mut stub = new_stub(metadata, self.inner.pool.shared.clock.now(), Vec::new(), 0)?;
        stub.special = Some(special);
        self.inner.publish_new(path, &mut stub)?;
        lock(&self.inner.young).insert(stub.id, Stopwatch::start());
        Ok(stub)
    }

    /// The group that new entries of a directory inherit, if any, and the extra attributes of the directory.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn inherited_by_entries(&self, path: &[u8]) -> Result<(Option<u32>, DirectoryExtra), PoolError> {
        let full = mirror_path(TREE, path)?;
        self.inner.lease.read(&self.inner.pool.shared, |copies| {
            let stat = copies.iter().find_map(|copy| copy.tree.stat(&full).ok());
            let group = stat.filter(|stat| stat.mode & 0o2000 != 0).map(|stat| stat.gid);
            Ok((group, directory_extra(copies, path)?))
        })
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn make_directory(&self, path: &[u8], mode: u32, uid: u32, gid: u32) -> Result<(), PoolError> {
        let full = mirror_path(TREE, path)?;
        let failed = self.inner.lease.modify(&self.inner.pool.shared, |lease| {
            if look_up(&lease.held.copies, path)?.is_some() {
                return refuse(path, io::ErrorKind::AlreadyExists);
            }
            super::Inner::require_directory(lease, path)?;
            self.inner.commit(
                lease,
                path,
                vec![Step::Directory { full, mode, uid, gid }],
                Durability::Volatile,
                false,
            )
        })?;
        lock(&self.inner.new_directories).insert(path.to_vec());
        self.inner.mark_stale(&failed)
    }

    /// Changes owner, permissions and time of a directory.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn change_directory(&self, path: &[u8], wanted: DirectoryChange) -> Result<(), PoolError> {
        let full = mirror_path(TREE, path)?;
        let DirectoryChange { mode, uid, gid, mtime } = wanted;
        let failed = self.inner.lease.modify(&self.inner.pool.shared, |lease| {
            let Some(NamespaceEntry::Directory(now)) = look_up(&lease.held.copies, path)? else {
                return refuse(path, io::ErrorKind::NotFound);
            };
            // Not repeated after a crash, but the record shows that a mirror without the change is behind.
            self.inner.commit(lease, path, Vec::new(), Durability::Volatile, false)?;
            self.inner.on_all(lease, path, false, |tree| {
                if mode.is_some() || uid.is_some() || gid.is_some() {
                    let mode = mode.unwrap_or(now.mode);
                    set_owner_and_mode(tree, &full, mode, uid.unwrap_or(now.uid), gid.unwrap_or(now.gid))?;
                }
                if let Some(mtime) = mtime {
                    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
                    futimens(
                        tree.directory(&full)?,
                        &Timestamps { last_access, last_modification: timespec(mtime) },
                    )?;
                }
                Ok(())
            })
        })?;
        self.inner.mark_stale(&failed)
    }

    /// Changes the extra attributes of a directory: extended attributes, time of access.
    ///
    /// # Errors
    /// See [`PoolError`]; those of `change`.
    pub fn update_directory_extra(
        &self,
        path: &[u8],
        change: impl FnOnce(&mut DirectoryExtra) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let full = mirror_path(TREE, path)?;
        let failed = self.inner.lease.modify(&self.inner.pool.shared, |lease| {
            let mut extra = directory_extra(&lease.held.copies, path)?;
            change(&mut extra)?;
            extra.attributes.sort();
            self.inner.commit(lease, path, Vec::new(), Durability::Volatile, false)?;
            self.inner.on_all(lease, path, false, |tree| folder::write(tree, &full, &extra))
        })?;
        self.inner.mark_stale(&failed)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn remove_directory(&self, path: &[u8]) -> Result<(), PoolError> {
        let full = mirror_path(TREE, path)?;
        let failed = self.inner.lease.modify(&self.inner.pool.shared, |lease| {
            match look_up(&lease.held.copies, path)? {
                Some(NamespaceEntry::Directory(_)) => {}
                Some(NamespaceEntry::File(_)) => return refuse(path, io::ErrorKind::NotADirectory),
                None => return refuse(path, io::ErrorKind::NotFound),
            }
            let Some(blanks) = blank_names(&lease.held.copies, path)? else {
                return refuse(path, io::ErrorKind::DirectoryNotEmpty);
            };
            self.inner.commit(lease, path, removal(&full, &blanks)?, Durability::Volatile, false)
        })?;
        lock(&self.inner.new_directories).remove(path);
        self.inner.mark_stale(&failed)
    }

    /// Removes the name of a file or symbolic link and returns its stub. The objects stay until
    /// [`queue_removal`](Live::queue_removal), since the file may be open.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn remove(&self, path: &[u8]) -> Result<Unlinked, PoolError> {
        let full = mirror_path(TREE, path)?;
        let removed = self.inner.lease.modify(&self.inner.pool.shared, |lease| {
            let stub = match look_up(&lease.held.copies, path)? {
                Some(NamespaceEntry::File(stub)) => *stub,
                Some(NamespaceEntry::Directory(_)) => return refuse(path, io::ErrorKind::IsADirectory),
                None => return refuse(path, io::ErrorKind::NotFound),
            };
            if stub.names > 0 {
                return Ok(None);
            }
            let steps = vec![Step::Remove { full }];
            Ok(Some((stub, self.inner.commit(lease, path, steps, Durability::Volatile, false)?)))
        })?;
        // A file with several names needs a durable change.
        let Some((stub, failed)) = removed else { return self.remove_shared(path) };
        self.inner.mark_stale(&failed)?;
        Ok(Unlinked::Last(stub))
    }

    /// Queues a file for removal that was at `path` and is not open any more: its objects are removed once the removal
    /// of its name is durable.
    pub fn queue_removal(&self, path: &[u8], stub: Stub) {
        self.inner.queue_removal(split(path).0.to_vec(), stub);
    }

    /// Moves a file or directory, replacing a file or an empty directory unless `stays`. Returns the replaced file, to
    /// be passed to [`queue_removal`](Live::queue_removal) if that was its last name.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn rename(&self, from: &[u8], to: &[u8], stays: bool) -> Result<RenameOutcome, PoolError> {
        self.inner.lease.exclusive(&self.inner.pool.shared, |change| {
            if stays && look_up(&change.copies, to)?.is_some() {
                return refuse(to, io::ErrorKind::AlreadyExists);
            }
            let replaced = look_up(&change.copies, to)?;
            if let (Some(NamespaceEntry::File(one)), Some(NamespaceEntry::File(other))) =
                (look_up(&change.copies, from)?, &replaced)
                && one.id == other.id
            {
                return Ok(RenameOutcome::SameFile);
            }
            self.inner.sync_moved(change, from, replaced.is_some())?;
            let replaced = change.move_name(from, to)?;
            self.inner.record_rename(from, to);
            Ok(RenameOutcome::Renamed(replaced.map(|stub| change.note_unlinked(stub)).transpose()?))
        })
    }

    /// Exchanges two names.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn exchange(&self, one: &[u8], other: &[u8]) -> Result<(), PoolError> {
        self.inner.lease.exclusive(&self.inner.pool.shared, |change| {
            self.inner.sync_moved(change, one, true)?;
            self.inner.sync_moved(change, other, true)?;
            change.exchange(one, other)?;
            // Redundancy is searched at both paths.
            self.inner.record_rename(one, other);
            self.inner.record_rename(other, one);
            Ok(())
        })
    }

    /// Makes all names durable.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn sync_names(&self) -> Result<(), PoolError> {
        self.inner.sync_all_names()
    }
}

impl super::Inner {
    /// A young file that replaces another must be durable first, or a crash could lose both.
    fn sync_moved(&self, change: &Change<'_>, from: &[u8], replaces: bool) -> Result<(), PoolError> {
        let full = mirror_path(TREE, from)?;
        let Some(NamespaceEntry::File(stub)) = look_up(&change.copies, from)? else { return Ok(()) };
        if !self.is_young(stub.id) {
            return Ok(());
        }
        for copy in &change.copies {
            // A mirror that fails here fails the move as well, and becomes stale.
            let _ = copy.tree.read(&full).and_then(|file| file.sync_all());
        }
        for (column, target) in stub.targets.iter().enumerate().filter(|_| replaces) {
            let Some(Ok(online)) = change.view.disk(target.as_bytes()).map(|(_, disk)| disk.online()) else {
                continue;
            };
            let Some(object) = absent_is_none(online.tree.read(&object_path(stub.id, column)))
                .map_err(PoolError::target(target, "opening an object"))?
            else {
                continue;
            };
            if let Err(error) =
                object.sync_all().map_err(PoolError::target(target, "making an object durable"))
                && (!self.is_target_unusable(&error) || self.is_unsynced(stub.id, column))
            {
                return Err(error);
            }
        }
        if replaces {
            // From now on an unsynced stub would replace one that a crash must preserve.
            lock(&self.young).remove(&stub.id);
        }
        Ok(())
    }
}
