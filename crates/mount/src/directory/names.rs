//! Names in a mounted directory: lookup, create, link, rename, remove, list.

use super::Directory;
use super::content::direct_io_flags;
use super::resolve::{Resolved, stat_at, stat_of};
use crate::attributes::{attributes, device_of, kind, opens_own_file};
use crate::replies::{Answer, CACHE_TIMEOUT, EntryReply};
use fuser::{
    FileHandle, FileType, FopenFlags, Generation, INodeNo, RenameFlags, ReplyDirectory, ReplyDirectoryPlus,
    Request,
};
use gabion_platform::sync;
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
use std::sync::{Arc, Mutex};

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    directory: File,
    number: u64,
    /// Its entries when it was last read from the start.
    entries: Mutex<Option<Arc<Vec<Listed>>>>,
}

#[derive(Debug)]
struct Listed {
    name: Vec<u8>,
    inode: u64,
    kind: FileType,
}

impl Directory {
    pub(crate) fn look_up(&self, parent: u64, name: &[u8]) -> Answer<EntryReply> {
        if self.source.is_hidden(parent, name) {
            return Err(Errno::NOENT.into());
        }
        let stat = stat_at(&*self.directory(parent)?, name)?;
        Ok(self.entry_reply(parent, name, &stat))
    }

    /// The directory for a new name.
    fn directory_for(&self, parent: u64, name: &[u8]) -> Answer<Arc<OwnedFd>> {
        if self.source.is_hidden(parent, name) {
            return Err(Errno::PERM.into());
        }
        // The kernel has already applied the program's umask.
        gabion_platform::thread::mask_nothing()?;
        self.directory(parent)
    }

    /// Creates an entry that belongs to the caller. A mount without root cannot act for other users; for the mounting
    /// user, an entry created with another of his groups is given to that group.
    fn make<T>(
        &self,
        request: &Request,
        (directory, name): (&OwnedFd, &[u8]),
        make: impl Fn() -> rustix::io::Result<T>,
    ) -> Answer<T> {
        let make = || self.retry_when_full(|| Ok(make()?));
        match as_owner(request.uid(), request.gid(), make) {
            Err(error) if error.kind() == PermissionDenied && request.uid() == geteuid().as_raw() => {
                let group = Gid::from_raw(request.gid());
                let inherits = stat_of(directory)?.stx_mode & 0o2000 != 0;
                // Checked first: the group of the new entry could not be changed.
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

    pub(crate) fn make_node(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        device: u32,
        request: &Request,
    ) -> Answer<EntryReply> {
        let directory = self.directory_for(parent, name)?;
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        self.make(request, (&directory, name), || {
            rustix::fs::mknodat(&*directory, name, kind, permissions, device_of(device))
        })?;
        let stat = stat_at(&*directory, name)?;
        Ok(self.reply_to_new(parent, name, &stat))
    }

    pub(crate) fn make_directory(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        request: &Request,
    ) -> Answer<EntryReply> {
        let directory = self.directory_for(parent, name)?;
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        self.make(request, (&directory, name), || rustix::fs::mkdirat(&*directory, name, permissions))?;
        let stat = stat_at(&*directory, name)?;
        Ok(self.entry_reply(parent, name, &stat))
    }

    pub(crate) fn make_link(
        &self,
        parent: u64,
        name: &[u8],
        target: &Path,
        request: &Request,
    ) -> Answer<EntryReply> {
        let directory = self.directory_for(parent, name)?;
        self.make(request, (&directory, name), || rustix::fs::symlinkat(target, &*directory, name))?;
        let stat = stat_at(&*directory, name)?;
        Ok(self.entry_reply(parent, name, &stat))
    }

    pub(crate) fn read_link(&self, number: u64) -> Answer<Vec<u8>> {
        let resolved = self.resolve(number)?;
        Ok(rustix::fs::readlinkat(&resolved, "", Vec::new())?.into_bytes())
    }

    pub(crate) fn create(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: i32,
        request: &Request,
    ) -> Answer<(EntryReply, FileHandle, FopenFlags)> {
        let directory = self.directory_for(parent, name)?;
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
            // The file exists already; without `O_EXCL` it is opened.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = match openat(&*directory, name, flags, Mode::empty()) {
                // Removed again meanwhile.
                Err(Errno::NOENT) => continue,
                found => found?,
            };
            let stat = stat_of(&found)?;
            if !opens_own_file(&attributes(0, &stat), asked, request) {
                // The kernel retries with a lookup and an open, and checks permissions, links and pipes.
                return Err(Errno::STALE.into());
            }
            let found = Resolved::Named(found);
            if asked.contains(OFlags::TRUNC) {
                // The kernel assumes a new file and does not truncate it.
                self.resize(self.source.number(&stat), &found, 0, request.uid())?;
            }
            let file =
                File::from(rustix::fs::open(found.proc_path(), kept - OFlags::NOFOLLOW, Mode::empty())?);
            let stat = stat_of(&file)?;
            break (file, stat, false);
        };
        let (attr, generation) = self.reply_to_new(parent, name, &stat);
        if is_new {
            self.history.made(attr.ino.0);
        }
        // A created file is opened for writing: no passthrough.
        let refuse = |_: BorrowedFd<'_>| Err(std::io::ErrorKind::Unsupported.into());
        let (handle, mode, _) = self.opened(attr.ino.0, file, kept, &stat, &refuse);
        // An existing file may have stale pages in the cache.
        let keep = if is_new { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
        let how = keep | FopenFlags::FOPEN_NOFLUSH | direct_io_flags(mode);
        Ok(((attr, generation), FileHandle(handle), how))
    }

    /// Runs an operation that may remove a name. If it is the last name of its file, the file is pinned until the
    /// kernel forgets it.
    fn with_pinned(
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
            // With further names the kernel keeps the inode for long, and its number is not reused.
            let is_last = is_directory || stat.stx_nlink == 1;
            if !is_last || self.source.number(&stat) != number {
                return None;
            }
            self.nodes.pin(number, file);
            Some(number)
        });
        let done = act();
        if let (Err(_), Some(number)) = (done, held) {
            self.nodes.unpin(number);
        }
        done
    }

    pub(crate) fn unlink(&self, parent: u64, name: &[u8], is_directory: bool) -> Answer<()> {
        if self.source.is_hidden(parent, name) {
            return Err(Errno::NOENT.into());
        }
        let path = self.nodes.path_of(parent, name);
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let directory = self.directory(parent)?;
        self.with_pinned((parent, name), &directory, || rustix::fs::unlinkat(&*directory, name, flags))?;
        // Pending writes are recorded under its other names, if any.
        self.nodes.removed(parent, name);
        match path {
            Some(path) => self.recorder.record_removal(path),
            None => self.recorder.record_unknown(Vec::new()),
        }
        Ok(())
    }

    pub(crate) fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Answer<()> {
        if self.source.is_hidden(from.0, from.1) {
            return Err(Errno::NOENT.into());
        }
        let (old, new) = (self.directory(from.0)?, self.directory_for(to.0, to.1)?);
        let paths = self.nodes.path_of(from.0, from.1).zip(self.nodes.path_of(to.0, to.1));
        let how = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let rename = || rustix::fs::renameat_with(&*old, from.1, &*new, to.1, how);
        let exchanged = flags.contains(RenameFlags::RENAME_EXCHANGE);
        self.retry_when_full(|| match exchanged {
            true => Ok(rename()?),
            false => Ok(self.with_pinned(to, &new, rename)?),
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

    pub(crate) fn link(&self, number: u64, parent: u64, name: &[u8]) -> Answer<EntryReply> {
        let directory = self.directory_for(parent, name)?;
        let resolved = self.resolve(number)?;
        self.retry_when_full(|| {
            let flags = AtFlags::SYMLINK_FOLLOW;
            Ok(rustix::fs::linkat(rustix::fs::CWD, resolved.proc_path(), &*directory, name, flags)?)
        })?;
        let stat = stat_at(&*directory, name)?;
        Ok(self.reply_to_new(parent, name, &stat))
    }

    pub(crate) fn open_directory(&self, number: u64) -> Answer<u64> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = File::from(openat(&*self.directory(number)?, ".", flags, Mode::empty())?);
        Ok(self.directories.add(Arc::new(OpenDirectory { directory, number, entries: Mutex::default() })))
    }

    /// Entries of an open directory; read again whenever a listing starts at offset 0.
    fn entries(&self, open: &OpenDirectory, offset: u64) -> Answer<Arc<Vec<Listed>>> {
        let mut entries = sync::lock(&open.entries);
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

    pub(crate) fn list(&self, handle: u64, offset: u64, reply: &mut ReplyDirectory) -> Answer<()> {
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

    /// Lists a directory with the attributes of its entries.
    pub(crate) fn list_all(&self, handle: u64, offset: u64, reply: &mut ReplyDirectoryPlus) -> Answer<()> {
        let open = self.directories.get(handle)?;
        let number = open.number;
        let entries = self.entries(&open, offset)?;
        for (at, entry) in entries.iter().enumerate().skip(offset as usize) {
            let next = at as u64 + 1;
            let name = OsStr::from_bytes(&entry.name);
            let is_dots = matches!(entry.name.as_slice(), b"." | b"..");
            // Removed meanwhile.
            let Ok(stat) = stat_at(open.directory.as_fd(), &entry.name) else { continue };
            let full = if is_dots {
                let attr = attributes(number, &stat);
                reply.add(INodeNo(entry.inode), next, name, &CACHE_TIMEOUT, &attr, Generation(0))
            } else {
                let (attr, generation) = self.entry_reply(number, &entry.name, &stat);
                let full = reply.add(attr.ino, next, name, &CACHE_TIMEOUT, &attr, generation);
                if full {
                    // The entry did not fit into the reply.
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

    pub(crate) fn sync_directory(&self, handle: u64) -> Answer<()> {
        self.directories.get(handle)?.directory.sync_all()?;
        self.recorder.flush();
        Ok(())
    }
}
