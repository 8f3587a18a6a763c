//! FUSE layer: decodes each request of the kernel, calls one method of the mounted directory or pool, and encodes the
//! reply or the error number.

use crate::attributes::SetAttr;
use crate::directory::Directory;
use crate::memory::{with_buffer, with_pages, with_window};
use crate::pool::Pool;
use crate::replies::{Answer, CACHE_TIMEOUT, Opened, Space};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo,
    InitFlags, KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{OFlags, XattrFlags};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// FUSE capabilities to ask the kernel for.
const CAPABILITIES: [InitFlags; 7] = [
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_POSIX_ACL,
];

/// What is mounted. Both kinds have a method of the same name for each request; files are identified by inode number,
/// open files by handle.
pub enum FileSystem {
    Directory(Box<Directory>),
    Pool(Pool),
}

impl From<Directory> for FileSystem {
    fn from(directory: Directory) -> FileSystem {
        FileSystem::Directory(Box::new(directory))
    }
}

impl From<Pool> for FileSystem {
    fn from(pool: Pool) -> FileSystem {
        FileSystem::Pool(pool)
    }
}

/// Calls a method of the mounted directory or pool.
macro_rules! call {
    ($self:ident.$($call:tt)+) => {
        match &$self.files {
            FileSystem::Directory(files) => files.$($call)+,
            FileSystem::Pool(Pool { shared: files, .. }) => files.$($call)+,
        }
    };
}

/// Serves the requests of the kernel.
pub(crate) struct Served {
    files: FileSystem,
    kernel: Kernel,
    is_over: Arc<AtomicBool>,
}

/// Handle for notifications to the kernel; empty until the file system is mounted.
pub(crate) type Kernel = Arc<OnceLock<Notifier>>;

impl Served {
    /// `is_over` becomes true when the kernel has no more requests.
    pub(crate) fn new(files: FileSystem, kernel: Kernel, is_over: Arc<AtomicBool>) -> Served {
        Served { files, kernel, is_over }
    }

    /// To be called before every change.
    fn wait_for_mark(&self) {
        call!(self.recorder.wait_for_mark());
    }

    /// Removes setuid and setgid before the content changes, and invalidates the kernel's cached attributes: until they
    /// expire, the file could be executed with the old rights.
    fn drop_rights(&self, number: INodeNo, handle: FileHandle) -> Answer<()> {
        if call!(self.drop_rights(handle.0))? { self.forget_attributes(number) } else { Ok(()) }
    }

    /// Invalidates the kernel's cached attributes.
    fn forget_attributes(&self, number: INodeNo) -> Answer<()> {
        const ATTRIBUTES_ONLY: i64 = -1;
        self.kernel.get().map_or(Ok(()), |kernel| kernel.inval_inode(number, ATTRIBUTES_ONLY, 0))
    }

    /// The same for requests without the kernel's flag for it.
    fn drop_rights_unless_root(&self, request: &Request, number: INodeNo, handle: FileHandle) -> Answer<()> {
        if request.uid() == 0 { Ok(()) } else { self.drop_rights(number, handle) }
    }
}

/// Replies with the size of an attribute, or with the bytes if the buffer is large enough.
fn answer_sized(reply: ReplyXattr, bytes: &[u8], size: u32) {
    match size as usize {
        0 => reply.size(bytes.len() as u32),
        room if room < bytes.len() => reply.error(Errno::ERANGE),
        _ => reply.data(bytes),
    }
}

/// Sends the result of a request.
macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $send:expr) => {
        match $result {
            Ok($value) => $send,
            Err(error) => $reply.error(Errno::from(error)),
        }
    };
}

#[allow(clippy::too_many_arguments)]
impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let (more, has_passthrough) = match &self.files {
            FileSystem::Directory(files) => (InitFlags::FUSE_READDIRPLUS_AUTO, files.has_passthrough()),
            FileSystem::Pool(_) => (InitFlags::empty(), false),
        };
        for capability in CAPABILITIES.into_iter().chain([more]) {
            // Optional: older kernels lack some.
            let _ = config.add_capabilities(capability);
        }
        if has_passthrough && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() {
            let _ = config.set_max_stack_depth(1);
        }
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn destroy(&mut self) {
        self.is_over.store(true, Ordering::Release);
        match &mut self.files {
            FileSystem::Directory(files) => files.flusher.end(),
            FileSystem::Pool(files) => files.flusher.end(),
        }
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = call!(self.look_up(parent.0, name.as_bytes()));
        answer!(reply, found, (attr, generation) => reply.entry(&CACHE_TIMEOUT, &attr, generation));
    }

    fn forget(&self, _: &Request, number: INodeNo, count: u64) {
        let is_gone = call!(self.nodes.forget(number.0, count));
        if let (FileSystem::Directory(files), true) = (&self.files, is_gone) {
            files.forget(number.0);
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let found = call!(self.attributes(number.0, handle.map(|handle| handle.0)));
        answer!(reply, found, attr => reply.attr(&CACHE_TIMEOUT, &attr));
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.wait_for_mark();
        let set = SetAttr { mode, uid, gid, size, atime, mtime };
        let changed = call!(self.change(number.0, handle.map(|handle| handle.0), set, request.uid()));
        answer!(reply, changed, attr => reply.attr(&CACHE_TIMEOUT, &attr));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        answer!(reply, call!(self.read_link(number.0)), target => reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        self.wait_for_mark();
        let made = call!(self.make_node(parent.0, name.as_bytes(), mode, device, request));
        answer!(reply, made, (attr, generation) => reply.entry(&CACHE_TIMEOUT, &attr, generation));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        self.wait_for_mark();
        let made = call!(self.make_directory(parent.0, name.as_bytes(), mode, request));
        answer!(reply, made, (attr, generation) => reply.entry(&CACHE_TIMEOUT, &attr, generation));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.wait_for_mark();
        answer!(reply, call!(self.unlink(parent.0, name.as_bytes(), false)), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.wait_for_mark();
        answer!(reply, call!(self.unlink(parent.0, name.as_bytes(), true)), () => reply.ok());
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.wait_for_mark();
        let made = call!(self.make_link(parent.0, name.as_bytes(), target, request));
        answer!(reply, made, (attr, generation) => reply.entry(&CACHE_TIMEOUT, &attr, generation));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.wait_for_mark();
        let (from, to) = ((parent.0, name.as_bytes()), (to.0, new.as_bytes()));
        answer!(reply, call!(self.rename(from, to, flags)), () => reply.ok());
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.wait_for_mark();
        let made = call!(self.link(number.0, parent.0, name.as_bytes()));
        answer!(reply, made, (attr, generation) => reply.entry(&CACHE_TIMEOUT, &attr, generation));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = match &self.files {
            FileSystem::Directory(files) => files.open(number.0, flags.0, &|file| reply.open_backing(file)),
            FileSystem::Pool(files) => files.shared.open(number.0, flags.0),
        };
        if opened.as_ref().is_ok_and(|opened| opened.has_other_times) {
            // Without it the kernel shows the old times for a second.
            let _ = self.forget_attributes(number);
        }
        answer!(reply, opened, Opened { handle, how, passthrough, .. } => match passthrough {
            Some(backing) => reply.opened_passthrough(handle, how, &backing),
            None => reply.opened(handle, how),
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.wait_for_mark();
        let made = call!(self.create(parent.0, name.as_bytes(), mode, flags, request));
        answer!(reply, made, ((attr, generation), handle, how) => {
            reply.created(&CACHE_TIMEOUT, &attr, generation, handle, how);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // The first two ways save one copy of the bytes. The blocks of a pool's files are not in one file.
        let directory = match &self.files {
            FileSystem::Directory(files) => Some(files),
            FileSystem::Pool(_) => None,
        };
        let mut waiting = Some(reply);
        with_pages(size as usize, |pages| {
            let got = directory?.fetch(handle.0, offset, pages)?;
            waiting.take()?.data(&pages[..got]);
            Some(())
        });
        if waiting.is_none() {
            return;
        }
        let mapped = with_window(size as usize, |window| {
            let mapped = directory?.map_read(handle.0, offset, size, window)?;
            waiting.take()?.data(&window.piece(0)[..mapped.bytes]);
            Some(mapped)
        });
        drop(mapped);
        let Some(reply) = waiting else { return };
        with_buffer(size as usize, |buffer| {
            let got = call!(self.read(handle.0, offset, buffer));
            answer!(reply, got, got => reply.data(&buffer[..got]));
        });
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        how: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.wait_for_mark();
        let dropped = match flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            true => self.drop_rights(number, handle),
            false => Ok(()),
        };
        // As the descriptor is now: nobody is told of `F_SETFL`. Pages of mappings have their places.
        let appends = how.0 as u32 & OFlags::APPEND.bits() != 0;
        let appends = appends && !flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let written = dropped.and_then(|()| match &self.files {
            FileSystem::Directory(files) if appends => files.append(handle.0, offset, data),
            FileSystem::Directory(files) => Ok((files.write(handle.0, offset, data)?, offset)),
            // Nobody else writes to the files of a mounted pool: the kernel knows their sizes.
            FileSystem::Pool(files) => Ok((files.shared.write(handle.0, offset, data)?, offset)),
        });
        let is_elsewhere = written.as_ref().is_ok_and(|(_, place)| *place != offset);
        answer!(reply, written, (written, _) => reply.written(written as u32));
        if is_elsewhere && let Some(kernel) = self.kernel.get() {
            // After the reply, since until then the kernel holds the pages: it has put the bytes at its offset. If this
            // fails, they are there until the file is opened again.
            let _ = kernel.inval_inode(number, offset.cast_signed(), 0);
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Errors are reported by the write itself; close has nothing to report.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        call!(self.release(handle.0));
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        answer!(reply, call!(self.sync(handle.0, data_only)), () => reply.ok());
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = call!(self.open_directory(number.0));
        answer!(reply, opened, handle => reply.opened(FileHandle(handle), FopenFlags::empty()));
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        answer!(reply, call!(self.list(handle.0, offset, &mut reply)), () => reply.ok());
    }

    fn readdirplus(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        answer!(reply, call!(self.list_all(handle.0, offset, &mut reply)), () => reply.ok());
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        call!(self.directories.remove(handle.0).map(drop));
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, call!(self.sync_directory(handle.0)), () => reply.ok());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        answer!(reply, call!(self.space()), space => {
            let Space { blocks, free, available, files, free_files, block, name } = space;
            reply.statfs(blocks, free, available, files, free_files, block, name, block);
        });
    }

    fn setxattr(
        &self,
        _: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        self.wait_for_mark();
        let flags = XattrFlags::from_bits_retain(flags as u32);
        answer!(reply, call!(self.set_attribute(number.0, name.as_bytes(), value, flags)), () => reply.ok());
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = call!(self.attribute(number.0, name.as_bytes()));
        answer!(reply, value, value => answer_sized(reply, &value, size));
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        answer!(reply, call!(self.attribute_names(number.0)), names => answer_sized(reply, &names, size));
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.wait_for_mark();
        answer!(reply, call!(self.remove_attribute(number.0, name.as_bytes())), () => reply.ok());
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself (`default_permissions`).
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.wait_for_mark();
        let dropped = self.drop_rights_unless_root(request, number, handle);
        let allocated = dropped.and_then(|()| call!(self.allocate(handle.0, offset, length, mode)));
        answer!(reply, allocated, () => reply.ok());
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let found = match &self.files {
            FileSystem::Directory(files) => files.seek(handle.0, offset, whence),
            // The kernel then treats the whole file as data.
            FileSystem::Pool(_) => Err(rustix::io::Errno::NOSYS.into()),
        };
        answer!(reply, found, at => reply.offset(at));
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        number: INodeNo,
        to: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.wait_for_mark();
        let dropped = self.drop_rights_unless_root(request, number, to);
        let copied = dropped.and_then(|()| match &self.files {
            FileSystem::Directory(files) => files.copy((from.0, from_offset), (to.0, to_offset), length),
            // The kernel then reads and writes.
            FileSystem::Pool(_) => Err(rustix::io::Errno::NOSYS.into()),
        });
        answer!(reply, copied, copied => reply.written(copied));
    }
}
