//! Names in a mounted pool: lookup, create, link, rename, remove, list.

use super::errors::ForKernel;
use super::inodes::attributes_of;
use super::{Shared, acl};
use crate::attributes::{SetAttr, device_of, opens_own_file};
use crate::nodes::ROOT;
use crate::recorder::{NO_CONTENT, Versions};
use crate::replies::{Answer, CACHE_TIMEOUT, EntryReply, Opened};
use fuser::{
    FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, RenameFlags, ReplyDirectory,
    ReplyDirectoryPlus, Request,
};
use gabion_platform::sync::lock;
use gabion_vault::changelog::WHOLE;
use gabion_vault::format::Metadata;
use gabion_vault::live::{LiveEntry, LiveFile, RenameOutcome};
use gabion_vault::storage::pool::stub::{Special, Stub};
use gabion_vault::storage::pool::{DirectoryExtra, Unlinked};
use gabion_vault::tree::{join, split};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    number: u64,
    /// Its entries when it was last read from the start.
    names: Mutex<Option<Arc<Vec<Vec<u8>>>>>,
}

impl Shared {
    pub(crate) fn look_up(&self, parent: u64, name: &[u8]) -> Answer<EntryReply> {
        let _names = self.read_names();
        let path = self.path_of(parent, name)?;
        let Some(found) = self.live.find(&path).for_kernel()? else {
            // Removed by another process.
            self.nodes.removed(parent, name);
            return Err(Errno::NOENT.into());
        };
        Ok(self.entry_reply(parent, name, &path, &found))
    }

    /// Owner, permissions and access control lists of a new entry, and whether the directory passes on its group.
    fn metadata(
        &self,
        path: &[u8],
        mode: u32,
        is_directory: bool,
        request: &Request,
    ) -> Answer<(Metadata, bool)> {
        let (group, extra) = self.live.inherited_by_entries(split(path).0).for_kernel()?;
        let (attributes, mode) = acl::inherit(&extra.attributes, mode & 0o7777, is_directory);
        let gid = group.unwrap_or_else(|| request.gid());
        let metadata = Metadata { mode, uid: request.uid(), gid, attributes, ..Metadata::default() };
        Ok((metadata, group.is_some()))
    }

    fn make(&self, path: &[u8], mode: u32, request: &Request) -> Answer<LiveFile> {
        let (metadata, _) = self.metadata(path, mode, false, request)?;
        self.retry_when_full(|| self.live.create(path, &metadata).for_kernel())
    }

    pub(crate) fn make_node(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        device: u32,
        request: &Request,
    ) -> Answer<EntryReply> {
        let device = device_of(device);
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let special = match rustix::fs::FileType::from_raw_mode(mode) {
            rustix::fs::FileType::RegularFile => None,
            rustix::fs::FileType::Fifo => Some(Special::Pipe),
            rustix::fs::FileType::Socket => Some(Special::Socket),
            rustix::fs::FileType::CharacterDevice => Some(Special::Character(major, minor)),
            rustix::fs::FileType::BlockDevice => Some(Special::Block(major, minor)),
            _ => return Err(Errno::PERM.into()),
        };
        let names = self.read_names();
        let path = self.path_of(parent, name)?;
        if let Some(special) = special {
            let (metadata, _) = self.metadata(&path, mode, false, request)?;
            let stub = self.live.make_special(&path, special, &metadata).for_kernel()?;
            return Ok(self.entry_reply(parent, name, &path, &LiveEntry::File(Box::new(stub))));
        }
        let inode = self.add(self.make(&path, mode, request)?);
        let found = LiveEntry::File(Box::new(inode.file.stub()));
        let reply = self.entry_reply(parent, name, &path, &found);
        drop(names);
        self.record_new(path, &inode.file);
        self.let_go(&inode);
        Ok(reply)
    }

    fn record_new(&self, path: Vec<u8>, file: &LiveFile) {
        let rest = self.recorder.rest_of(&path, &file.stat());
        self.recorder.record_write(path, WHOLE, Versions::Unknown, rest);
    }

    pub(crate) fn create(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: i32,
        request: &Request,
    ) -> Answer<(EntryReply, FileHandle, FopenFlags)> {
        let names = self.read_names();
        let path = self.path_of(parent, name)?;
        let asked = OFlags::from_bits_retain(flags as u32);
        let inode = match self.make(&path, mode, request) {
            // The file exists already; without `O_EXCL` it is opened.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !asked.contains(OFlags::EXCL) => {
                drop(names);
                let (attr, generation) = self.look_up(parent, name)?;
                let opened = self.open_own(attr, flags, request);
                // The entry is not in a reply.
                let (attr, handle, how) = opened.inspect_err(|_| _ = self.nodes.forget(attr.ino.0, 1))?;
                return Ok(((attr, generation), handle, how));
            }
            made => self.add(made?),
        };
        let found = LiveEntry::File(Box::new(inode.file.stub()));
        let (attr, generation) = self.entry_reply(parent, name, &path, &found);
        drop(names);
        self.record_new(path.clone(), &inode.file);
        let handle = self.opened_as(inode, &path, flags);
        Ok(((attr, generation), handle, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH))
    }

    /// Opens the existing file of a create request.
    fn open_own(
        &self,
        mut attr: FileAttr,
        flags: i32,
        request: &Request,
    ) -> Answer<(FileAttr, FileHandle, FopenFlags)> {
        let asked = OFlags::from_bits_retain(flags as u32);
        if !opens_own_file(&attr, asked, request) {
            // The kernel retries with a lookup and an open, and checks permissions, links and pipes.
            return Err(Errno::STALE.into());
        }
        if asked.contains(OFlags::TRUNC) {
            // The kernel assumes a new file and does not truncate it.
            let empty = SetAttr { size: Some(0), ..SetAttr::default() };
            attr = self.change(attr.ino.0, None, empty, request.uid())?;
        }
        let Opened { handle, how, .. } = self.open(attr.ino.0, flags)?;
        Ok((attr, handle, how))
    }

    pub(crate) fn make_directory(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        request: &Request,
    ) -> Answer<EntryReply> {
        let _names = self.read_names();
        let path = self.path_of(parent, name)?;
        let (metadata, handed_down) = self.metadata(&path, mode, true, request)?;
        let Metadata { mode, uid, gid, attributes, .. } = metadata;
        let mode = if handed_down { mode | 0o2000 } else { mode };
        self.live.make_directory(&path, mode, uid, gid).for_kernel()?;
        if !attributes.is_empty() {
            let give = |extra: &mut DirectoryExtra| {
                extra.attributes = attributes;
                Ok(())
            };
            self.live.update_directory_extra(&path, give).for_kernel()?;
        }
        let found = self.live.find(&path).for_kernel()?.ok_or(Errno::NOENT)?;
        Ok(self.entry_reply(parent, name, &path, &found))
    }

    pub(crate) fn make_link(
        &self,
        parent: u64,
        name: &[u8],
        target: &Path,
        request: &Request,
    ) -> Answer<EntryReply> {
        let _names = self.read_names();
        let path = self.path_of(parent, name)?;
        let (metadata, _) = self.metadata(&path, 0o777, false, request)?;
        // Symbolic links have no access control lists.
        let metadata = Metadata { mode: 0o777, attributes: Vec::new(), ..metadata };
        let stub = self.live.make_link(&path, target.as_os_str().as_bytes(), &metadata).for_kernel()?;
        Ok(self.entry_reply(parent, name, &path, &LiveEntry::File(Box::new(stub))))
    }

    pub(crate) fn read_link(&self, number: u64) -> Answer<Vec<u8>> {
        let inode = self.hold(number)?;
        let link = inode.file.stub().link;
        self.let_go(&inode);
        link.ok_or_else(|| Errno::INVAL.into())
    }

    pub(crate) fn unlink(&self, parent: u64, name: &[u8], is_directory: bool) -> Answer<()> {
        let change = self.change_names();
        let path = self.path_of(parent, name)?;
        let mut is_protected = true;
        if is_directory {
            self.live.remove_directory(&path).for_kernel()?;
        } else {
            let unnamed = self.live.remove(&path).for_kernel()?;
            let (Unlinked::Last(stub) | Unlinked::Other(stub)) = &unnamed;
            is_protected = stub.is_file();
            self.name_removed(&path, unnamed);
        }
        self.nodes.removed(parent, name);
        drop(change);
        if is_protected {
            self.recorder.record_removal(path);
        }
        Ok(())
    }

    pub(crate) fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Answer<()> {
        if flags.contains(RenameFlags::RENAME_WHITEOUT) {
            return Err(Errno::INVAL.into());
        }
        let change = self.change_names();
        let (old, new) = (self.path_of(from.0, from.1)?, self.path_of(to.0, to.1)?);
        if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            self.live.exchange(&old, &new).for_kernel()?;
            self.nodes.exchanged(from, to);
            drop(change);
            [old, new].into_iter().for_each(|path| self.recorder.record_unknown(path));
            [from, to].into_iter().for_each(|(parent, name)| self.record_move(parent, name));
            return Ok(());
        }
        let stays = flags.contains(RenameFlags::RENAME_NOREPLACE);
        match self.live.rename(&old, &new, stays).for_kernel()? {
            RenameOutcome::SameFile => return Ok(()),
            RenameOutcome::Renamed(None) => {}
            RenameOutcome::Renamed(Some(unnamed)) => self.name_removed(&new, unnamed),
        }
        self.nodes.renamed(from, to);
        drop(change);
        self.recorder.record_rename(old, new);
        self.record_move(to.0, to.1);
        Ok(())
    }

    /// Updates the ctime of a file after a rename. Directories have the ctime of their mirror.
    fn record_move(&self, parent: u64, name: &[u8]) {
        let Some(number) = self.nodes.number(parent, name).filter(|&number| !Shared::is_directory(number))
        else {
            return;
        };
        let Ok(inode) = self.hold(number) else { return };
        let paths = || self.nodes.paths(number);
        // The rename itself has succeeded, so a failure here is not reported.
        if self.work(&inode, || inode.file.update(&paths, |_| Ok(()))).is_ok()
            && inode.file.with_stub(Stub::is_file)
        {
            self.pending.add(number, NO_CONTENT, self.rest_of(&inode));
        }
        self.let_go(&inode);
    }

    /// Adds a hard link.
    pub(crate) fn link(&self, number: u64, parent: u64, name: &[u8]) -> Answer<EntryReply> {
        let change = self.change_names();
        let path = self.path_of(parent, name)?;
        let inode = self.hold(number)?;
        let linked = inode.file.add_name(&|| self.nodes.paths(number), &path).for_kernel();
        let reply = linked.map(|()| {
            let found = LiveEntry::File(Box::new(inode.file.stub()));
            self.entry_reply(parent, name, &path, &found)
        });
        drop(change);
        if reply.is_ok() && inode.file.with_stub(Stub::is_file) {
            self.record_new(path, &inode.file);
        }
        self.let_go(&inode);
        reply
    }

    pub(crate) fn open_directory(&self, number: u64) -> Answer<u64> {
        Ok(self.directories.add(Arc::new(OpenDirectory { number, names: Mutex::default() })))
    }

    /// Entries of an open directory; read again whenever a listing starts at offset 0.
    fn names(&self, open: &OpenDirectory, offset: u64) -> Answer<Arc<Vec<Vec<u8>>>> {
        let mut names = lock(&open.names);
        if let (Some(names), true) = (&*names, offset > 0) {
            return Ok(Arc::clone(names));
        }
        let found = self.live.names(&self.path(open.number)?).for_kernel()?;
        let dots = [b".".to_vec(), b"..".to_vec()];
        let listed = dots.into_iter().chain(found.iter().map(|(name, _)| name.to_vec())).collect();
        Ok(Arc::clone(names.insert(Arc::new(listed))))
    }

    /// Calls `take` for the entries of an open directory from `offset` on, until it returns true.
    fn walk(
        &self,
        handle: u64,
        offset: u64,
        mut take: impl FnMut(u64, u64, &OsStr, &[u8], Option<(Vec<u8>, LiveEntry)>) -> bool,
    ) -> Answer<()> {
        let open = self.directories.get(handle)?;
        let _names = self.read_names();
        let names = self.names(&open, offset)?;
        for (at, name) in names.iter().enumerate().skip(offset as usize) {
            let found = match name.as_slice() {
                b"." | b".." => None,
                _ => {
                    let path = join(&self.path(open.number)?, name);
                    match self.live.find(&path) {
                        Ok(Some(found)) => Some((path, found)),
                        // Removed meanwhile, or the stub is unreadable: a lookup returns the error.
                        Ok(None) | Err(_) => continue,
                    }
                }
            };
            if take(open.number, at as u64 + 1, OsStr::from_bytes(name), name, found) {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn list(&self, handle: u64, offset: u64, reply: &mut ReplyDirectory) -> Answer<()> {
        self.walk(handle, offset, |number, next, os_name, name, found| match found {
            None => reply.add(INodeNo(number), next, FileType::Directory, os_name),
            Some((path, LiveEntry::Directory(..))) => {
                let child = self.directory_number(number, name, &path);
                reply.add(INodeNo(child), next, FileType::Directory, os_name)
            }
            Some((_, LiveEntry::File(stub))) => {
                let attr = attributes_of(super::inodes::number_of(stub.id), &stub);
                reply.add(attr.ino, next, attr.kind, os_name)
            }
        })
    }

    /// Lists a directory with the attributes of its entries.
    pub(crate) fn list_all(&self, handle: u64, offset: u64, reply: &mut ReplyDirectoryPlus) -> Answer<()> {
        let own = self.attributes(self.directories.get(handle)?.number, None);
        let own = own.or_else(|_| self.attributes(ROOT, None))?;
        self.walk(handle, offset, |number, next, os_name, name, found| match found {
            None => reply.add(INodeNo(number), next, os_name, &CACHE_TIMEOUT, &own, Generation(0)),
            Some((path, found)) => {
                let (attr, generation) = self.entry_reply(number, name, &path, &found);
                let full = reply.add(attr.ino, next, os_name, &CACHE_TIMEOUT, &attr, generation);
                if full {
                    // The entry is not in a reply.
                    self.nodes.forget(attr.ino.0, 1);
                }
                full
            }
        })
    }

    pub(crate) fn sync_directory(&self, _: u64) -> Answer<()> {
        self.pending.flush_all();
        self.live.sync_names().for_kernel()?;
        self.recorder.flush();
        Ok(())
    }
}
