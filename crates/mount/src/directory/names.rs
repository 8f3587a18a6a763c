//! Names: what they stand for, and how they come and go.

use super::content::past_the_cache;
use super::reach::{Reached, stat_at, stat_of};
use super::{Answer, Shared};
use crate::attributes::{attributes, device_of, kind, opens_own_file};
use crate::served::{CACHE_TIMEOUT, EntryReply};
use fuser::{
    FileHandle, FileType, FopenFlags, Generation, INodeNo, RenameFlags, ReplyDirectory, ReplyDirectoryPlus,
    Request,
};
use gabion_platform::thread::as_owner;
use gabion_vault::changelog::WHOLE;
use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, Statx, chownat, openat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind::{AlreadyExists, PermissionDenied};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A directory that a program has open.
#[derive(Debug)]
pub(super) struct OpenDirectory {
    directory: File,
    number: u64,
    /// What is in it, as it was when it was read from its beginning.
    entries: Mutex<Option<Arc<Vec<Listed>>>>,
}

#[derive(Debug)]
struct Listed {
    name: Vec<u8>,
    inode: u64,
    kind: FileType,
}

impl Shared {
    pub(super) fn look_up(&self, parent: u64, name: &[u8]) -> Answer<EntryReply> {
        if self.source.is_hidden(parent, name) {
            return Err(Errno::NOENT.into());
        }
        let stat = stat_at(&*self.directory(parent)?, name)?;
        Ok(self.entry_reply(parent, name, &stat))
    }

    /// The directory that a new name is for.
    fn place_for(&self, parent: u64, name: &[u8]) -> Answer<Arc<OwnedFd>> {
        if self.source.is_hidden(parent, name) {
            return Err(Errno::PERM.into());
        }
        // Files get the permissions that programs ask for, which the kernel has already masked.
        gabion_platform::thread::mask_nothing()?;
        self.directory(parent)
    }

    /// Makes something in a directory that belongs to who asked for it. Who mounted without being root may not act for others; what
    /// they themselves make with another of their groups is given to it.
    fn make<T>(
        &self,
        request: &Request,
        (directory, name): (&OwnedFd, &[u8]),
        make: impl Fn() -> rustix::io::Result<T>,
    ) -> Answer<T> {
        let make = || self.in_room(|| Ok(make()?));
        match as_owner(request.uid(), request.gid(), make) {
            Err(error) if error.kind() == PermissionDenied && request.uid() == geteuid().as_raw() => {
                let group = Gid::from_raw(request.gid());
                let inherits = stat_of(directory)?.stx_mode & 0o2000 != 0;
                // Asked before: what was made could not be given to it.
                if !inherits && group != getegid() && !getgroups()?.contains(&group) {
                    return Err(Errno::PERM.into());
                }
                let made = make()?;
                if !inherits {
                    chownat(directory, name, None, Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
                }
                Ok(made)
            }
            made => made?,
        }
    }

    fn reply_to_new(&self, parent: u64, name: &[u8], stat: &Statx) -> EntryReply {
        let reply = self.entry_reply(parent, name, stat);
        self.record_change_of(reply.0.ino.0, WHOLE, stat);
        reply
    }

    pub(super) fn make_node(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        device: u32,
        request: &Request,
    ) -> Answer<EntryReply> {
        let directory = self.place_for(parent, name)?;
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        self.make(request, (&directory, name), || {
            rustix::fs::mknodat(&*directory, name, kind, permissions, device_of(device))
        })?;
        let stat = stat_at(&*directory, name)?;
        Ok(self.reply_to_new(parent, name, &stat))
    }

    pub(super) fn make_directory(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        request: &Request,
    ) -> Answer<EntryReply> {
        let directory = self.place_for(parent, name)?;
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        self.make(request, (&directory, name), || rustix::fs::mkdirat(&*directory, name, permissions))?;
        let stat = stat_at(&*directory, name)?;
        Ok(self.entry_reply(parent, name, &stat))
    }

    pub(super) fn make_link(
        &self,
        parent: u64,
        name: &[u8],
        target: &Path,
        request: &Request,
    ) -> Answer<EntryReply> {
        let directory = self.place_for(parent, name)?;
        self.make(request, (&directory, name), || rustix::fs::symlinkat(target, &*directory, name))?;
        let stat = stat_at(&*directory, name)?;
        Ok(self.entry_reply(parent, name, &stat))
    }

    pub(super) fn read_link(&self, number: u64) -> Answer<Vec<u8>> {
        let reached = self.reach(number)?;
        Ok(rustix::fs::readlinkat(&reached, "", Vec::new())?.into_bytes())
    }

    pub(super) fn create(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: i32,
        request: &Request,
    ) -> Answer<(EntryReply, FileHandle, FopenFlags)> {
        let directory = self.place_for(parent, name)?;
        let asked = OFlags::from_bits_retain(flags as u32);
        let kept =
            asked & (OFlags::ACCMODE | OFlags::SYNC | OFlags::DSYNC) | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        let (file, stat, is_new) = loop {
            let new = kept | OFlags::CREATE | OFlags::EXCL;
            let open = || openat(&*directory, name, new, permissions);
            match self.make(request, (&directory, name), open) {
                Ok(file) => {
                    let file = File::from(file);
                    let stat = stat_of(&file)?;
                    break (file, stat, true);
                }
                Err(error) if error.kind() == AlreadyExists && !asked.contains(OFlags::EXCL) => {}
                Err(error) => return Err(error),
            }
            // Someone else was first, and that is what was asked for.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = match openat(&*directory, name, flags, Mode::empty()) {
                // And took it away again.
                Err(Errno::NOENT) => continue,
                found => found?,
            };
            let stat = stat_of(&found)?;
            if !opens_own_file(&attributes(0, &stat), asked, request) {
                // The kernel looks again, and sees to permissions, links and pipes.
                return Err(Errno::STALE.into());
            }
            let found = Reached::Named(found);
            if asked.contains(OFlags::TRUNC) {
                // The kernel takes it for new, and does not cut it itself.
                self.resize(self.source.number(&stat), &found, 0, request.uid())?;
            }
            let file = File::from(rustix::fs::open(found.magic(), kept - OFlags::NOFOLLOW, Mode::empty())?);
            let stat = stat_of(&file)?;
            break (file, stat, false);
        };
        let (attr, generation) = self.reply_to_new(parent, name, &stat);
        // Who makes a file, makes it to write to it: the kernel need not know of it.
        let refuse = |_: BorrowedFd<'_>| Err(std::io::ErrorKind::Unsupported.into());
        let (handle, way, _) = self.opened(attr.ino.0, file, kept, &stat, &refuse);
        // Of a file that is not new the kernel may have pages from before.
        let keep = if is_new { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
        let how = keep | FopenFlags::FOPEN_NOFLUSH | past_the_cache(way);
        Ok(((attr, generation), FileHandle(handle), how))
    }

    /// Does something by which a name may stop to stand for a file; if that was its last one, the file is held until the kernel
    /// forgets it.
    fn holding(
        &self,
        (parent, name): (u64, &[u8]),
        directory: &OwnedFd,
        act: impl FnOnce() -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        let held = self.nodes.number(parent, name).and_then(|number| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(directory, name, flags, Mode::empty()).ok()?;
            let stat = stat_of(&file).ok()?;
            let is_directory = rustix::fs::FileType::from_raw_mode(u32::from(stat.stx_mode)).is_dir();
            // The kernel remembers files that have other names for long.
            let is_last = is_directory || stat.stx_nlink == 1;
            if !is_last || self.source.number(&stat) != number {
                return None;
            }
            self.nodes.hold(number, file);
            Some(number)
        });
        let done = act();
        if let (Err(_), Some(number)) = (done, held) {
            self.nodes.let_go(number);
        }
        done
    }

    pub(super) fn unlink(&self, parent: u64, name: &[u8], is_directory: bool) -> Answer<()> {
        if self.source.is_hidden(parent, name) {
            return Err(Errno::NOENT.into());
        }
        let path = self.nodes.path_of(parent, name);
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let directory = self.directory(parent)?;
        self.holding((parent, name), &directory, || rustix::fs::unlinkat(&*directory, name, flags))?;
        // What is noted for it goes by its other names, if it has any.
        self.nodes.removed(parent, name);
        match path {
            Some(path) => self.recorder.record_removal(path),
            None => self.recorder.record_unknown(Vec::new()),
        }
        Ok(())
    }

    pub(super) fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Answer<()> {
        if self.source.is_hidden(from.0, from.1) {
            return Err(Errno::NOENT.into());
        }
        let (old, new) = (self.directory(from.0)?, self.place_for(to.0, to.1)?);
        let paths = self.nodes.path_of(from.0, from.1).zip(self.nodes.path_of(to.0, to.1));
        let how = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let rename = || rustix::fs::renameat_with(&*old, from.1, &*new, to.1, how);
        let exchanged = flags.contains(RenameFlags::RENAME_EXCHANGE);
        self.in_room(|| match exchanged {
            true => Ok(rename()?),
            false => Ok(self.holding(to, &new, rename)?),
        })?;
        match exchanged {
            true => self.nodes.exchanged(from, to),
            false => self.nodes.renamed(from, to),
        }
        match paths {
            Some((from, to)) if !exchanged => self.recorder.record_rename(from, to),
            Some((from, to)) => [from, to].into_iter().for_each(|path| self.recorder.record_unknown(path)),
            None => self.recorder.record_unknown(Vec::new()),
        }
        Ok(())
    }

    pub(super) fn link(&self, number: u64, parent: u64, name: &[u8]) -> Answer<EntryReply> {
        let directory = self.place_for(parent, name)?;
        let reached = self.reach(number)?;
        self.in_room(|| {
            let flags = AtFlags::SYMLINK_FOLLOW;
            Ok(rustix::fs::linkat(rustix::fs::CWD, reached.magic(), &*directory, name, flags)?)
        })?;
        let stat = stat_at(&*directory, name)?;
        Ok(self.reply_to_new(parent, name, &stat))
    }

    pub(super) fn open_directory(&self, number: u64) -> Answer<u64> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = File::from(openat(&*self.directory(number)?, ".", flags, Mode::empty())?);
        Ok(self.directories.add(Arc::new(OpenDirectory { directory, number, entries: Mutex::default() })))
    }

    /// What an open directory has; read anew whenever a program begins at the beginning.
    fn entries(&self, open: &OpenDirectory, offset: u64) -> Answer<Arc<Vec<Listed>>> {
        let mut entries = open.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(entries), true) = (&*entries, offset > 0) {
            return Ok(Arc::clone(entries));
        }
        let mut listed = Vec::new();
        for entry in Dir::read_from(&open.directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes().to_vec();
            if !self.source.is_hidden(open.number, &name) {
                listed.push(Listed { name, inode: entry.ino(), kind: kind(entry.file_type().as_raw_mode()) });
            }
        }
        let listed = Arc::new(listed);
        *entries = Some(Arc::clone(&listed));
        Ok(listed)
    }

    pub(super) fn list(&self, handle: u64, offset: u64, reply: &mut ReplyDirectory) -> Answer<()> {
        let open = self.directories.get(handle)?;
        let entries = self.entries(&open, offset)?;
        for (at, entry) in entries.iter().enumerate().skip(offset as usize) {
            let name = OsStr::from_bytes(&entry.name);
            if reply.add(INodeNo(entry.inode), at as u64 + 1, entry.kind, name) {
                break;
            }
        }
        Ok(())
    }

    /// Lists a directory with what there is to know of everything in it.
    pub(super) fn list_all(
        &self,
        number: u64,
        handle: u64,
        offset: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer<()> {
        let open = self.directories.get(handle)?;
        let entries = self.entries(&open, offset)?;
        for (at, entry) in entries.iter().enumerate().skip(offset as usize) {
            let next = at as u64 + 1;
            let name = OsStr::from_bytes(&entry.name);
            let is_dots = matches!(entry.name.as_slice(), b"." | b"..");
            // Gone meanwhile.
            let Ok(stat) = stat_at(open.directory.as_fd(), &entry.name) else { continue };
            let full = if is_dots {
                let attr = attributes(number, &stat);
                reply.add(INodeNo(entry.inode), next, name, &CACHE_TIMEOUT, &attr, Generation(0))
            } else {
                let (attr, generation) = self.entry_reply(number, &entry.name, &stat);
                let full = reply.add(attr.ino, next, name, &CACHE_TIMEOUT, &attr, generation);
                if full {
                    // The kernel was not told after all.
                    self.nodes.forget(attr.ino.0, 1);
                }
                full
            };
            if full {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn sync_directory(&self, handle: u64) -> Answer<()> {
        self.directories.get(handle)?.directory.sync_all()?;
        self.recorder.flush();
        Ok(())
    }
}
