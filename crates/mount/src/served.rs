//! FUSE layer: the [`Files`] trait that both file systems implement, and the adapter that serves kernel requests from
//! it.
//!
//! The adapter decodes requests, calls one method, and encodes the reply or the error number.

use crate::attributes::SetAttr;
use crate::memory::{with_buffer, with_pages, with_window};
use fuser::{
    AccessFlags, BackingId, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use gabion_platform::window::Window;
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

/// Time for which the kernel caches names and attributes. The source may also be changed directly, so it is short.
pub(crate) const CACHE_TIMEOUT: Duration = Duration::from_secs(1);

/// Result of a request; an error is sent as its error number.
pub(crate) type Answer<T> = io::Result<T>;

/// Reply to a lookup: attributes, and the generation of the inode number.
pub(crate) type EntryReply = (FileAttr, Generation);

/// Registers a file with the kernel for passthrough reads.
pub(crate) type Backing<'a> = &'a dyn Fn(BorrowedFd<'_>) -> io::Result<BackingId>;

/// Reply to an open request.
pub(crate) struct Opened {
    pub(crate) handle: FileHandle,
    pub(crate) how: FopenFlags,
    /// Backing file, if the kernel reads it directly.
    pub(crate) passthrough: Option<Arc<BackingId>>,
}

/// A mapped range that the kernel copies from. While this is held, the file cannot be truncated through the mount: the
/// reader would get `EIO` for pages that disappear during the copy.
pub(crate) struct MappedRead<'a> {
    pub(crate) bytes: usize,
    pub(crate) _uncut: RwLockReadGuard<'a, ()>,
}

/// Reply to `statfs`: space in units of `block` bytes, and numbers of files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    pub(crate) blocks: u64,
    pub(crate) free: u64,
    pub(crate) available: u64,
    pub(crate) files: u64,
    pub(crate) free_files: u64,
    pub(crate) block: u32,
    pub(crate) name: u32,
}

/// A file system: one method per request. Files are identified by inode number, open files by handle.
pub(crate) trait Files: Send + Sync + 'static {
    /// Optional FUSE capabilities to enable.
    const CAPABILITIES: &'static [InitFlags];

    /// True if some files are read by FUSE passthrough.
    fn has_passthrough(&self) -> bool {
        false
    }

    /// Called after the last request.
    fn end(&mut self);
    fn look_up(&self, parent: u64, name: &[u8]) -> Answer<EntryReply>;
    fn forget(&self, number: u64, count: u64);
    fn attributes(&self, number: u64, handle: Option<u64>) -> Answer<FileAttr>;
    fn change(&self, number: u64, handle: Option<u64>, set: SetAttr, uid: u32) -> Answer<FileAttr>;
    fn read_link(&self, number: u64) -> Answer<Vec<u8>>;
    fn make_node(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        device: u32,
        request: &Request,
    ) -> Answer<EntryReply>;
    fn make_directory(&self, parent: u64, name: &[u8], mode: u32, request: &Request) -> Answer<EntryReply>;
    fn make_link(&self, parent: u64, name: &[u8], target: &Path, request: &Request) -> Answer<EntryReply>;
    fn unlink(&self, parent: u64, name: &[u8]) -> Answer<()>;
    fn remove_directory(&self, parent: u64, name: &[u8]) -> Answer<()>;
    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Answer<()>;
    fn link(&self, number: u64, parent: u64, name: &[u8]) -> Answer<EntryReply>;
    fn open(&self, number: u64, flags: i32, backing: Backing<'_>) -> Answer<Opened>;
    fn create(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: i32,
        request: &Request,
    ) -> Answer<(EntryReply, FileHandle, FopenFlags)>;
    fn read(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Answer<usize>;
    /// Reads uncached data from the disk into memory in large pages. `None` if another way to read is better.
    fn fetch(&self, _handle: u64, _offset: u64, _pages: &mut [u8]) -> Option<usize> {
        None
    }
    /// Maps the range from the page cache as the only piece of `window`, so that the reply needs no copy. `None` if the
    /// range cannot be mapped or fails verification.
    fn map_read(
        &self,
        _handle: u64,
        _offset: u64,
        _size: u32,
        _window: &mut Window,
    ) -> Option<MappedRead<'_>> {
        None
    }
    /// Writes, and returns the number of bytes; fewer than asked for only if the space ran out.
    fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Answer<usize>;
    /// Removes setuid and setgid before an unprivileged user changes the content. True if there were any.
    fn drop_rights(&self, handle: u64) -> Answer<bool>;
    fn release(&self, handle: u64);
    fn sync(&self, handle: u64, data_only: bool) -> Answer<()>;
    fn open_directory(&self, number: u64) -> Answer<u64>;
    fn list(&self, handle: u64, offset: u64, reply: &mut ReplyDirectory) -> Answer<()>;
    fn list_all(&self, number: u64, handle: u64, offset: u64, reply: &mut ReplyDirectoryPlus) -> Answer<()>;
    fn close_directory(&self, handle: u64);
    fn sync_directory(&self, handle: u64) -> Answer<()>;
    fn space(&self) -> Answer<Space>;
    fn set_attribute(&self, number: u64, name: &[u8], value: &[u8], flags: i32) -> Answer<()>;
    fn attribute(&self, number: u64, name: &[u8]) -> Answer<Vec<u8>>;
    fn attribute_names(&self, number: u64) -> Answer<Vec<u8>>;
    fn remove_attribute(&self, number: u64, name: &[u8]) -> Answer<()>;
    fn allocate(&self, handle: u64, offset: u64, length: u64, mode: i32) -> Answer<()>;

    /// Finds data or a hole. Without this, the kernel treats the whole file as data.
    fn seek(&self, _handle: u64, _offset: i64, _whence: i32) -> Answer<i64> {
        Err(rustix::io::Errno::NOSYS.into())
    }

    /// Copies between open files. Without this, the kernel reads and writes.
    fn copy(&self, _from: (u64, u64), _to: (u64, u64), _length: u64) -> Answer<u32> {
        Err(rustix::io::Errno::NOSYS.into())
    }
}

/// Adapter from `fuser` requests to [`Files`].
pub(crate) struct Served<F> {
    files: F,
    kernel: Kernel,
}

/// Handle for notifications to the kernel; empty until the file system is mounted.
pub(crate) type Kernel = Arc<OnceLock<Notifier>>;

impl<F: Files> Served<F> {
    pub(crate) fn new(files: F, kernel: Kernel) -> Served<F> {
        Served { files, kernel }
    }

    /// Removes setuid and setgid before the content changes, and invalidates the kernel's cached attributes: until they
    /// expire, the file could be executed with the old rights.
    fn drop_rights(&self, number: INodeNo, handle: FileHandle) -> Answer<()> {
        if self.files.drop_rights(handle.0)?
            && let Some(kernel) = self.kernel.get()
        {
            const ATTRIBUTES_ONLY: i64 = -1;
            kernel.inval_inode(number, ATTRIBUTES_ONLY, 0)?;
        }
        Ok(())
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
impl<F: Files> Filesystem for Served<F> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for capability in F::CAPABILITIES {
            // Optional: older kernels lack some.
            let _ = config.add_capabilities(*capability);
        }
        if self.files.has_passthrough() && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() {
            let _ = config.set_max_stack_depth(1);
        }
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn destroy(&mut self) {
        self.files.end();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.files.look_up(parent.0, name.as_bytes());
        answer!(reply, found, (attr, generation) => reply.entry(&CACHE_TIMEOUT, &attr, generation));
    }

    fn forget(&self, _: &Request, number: INodeNo, count: u64) {
        self.files.forget(number.0, count);
    }

    fn getattr(&self, _: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.files.attributes(number.0, handle.map(|handle| handle.0));
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
        let set = SetAttr { mode, uid, gid, size, atime, mtime };
        let changed = self.files.change(number.0, handle.map(|handle| handle.0), set, request.uid());
        answer!(reply, changed, attr => reply.attr(&CACHE_TIMEOUT, &attr));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        answer!(reply, self.files.read_link(number.0), target => reply.data(&target));
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
        let made = self.files.make_node(parent.0, name.as_bytes(), mode, device, request);
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
        let made = self.files.make_directory(parent.0, name.as_bytes(), mode, request);
        answer!(reply, made, (attr, generation) => reply.entry(&CACHE_TIMEOUT, &attr, generation));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.files.unlink(parent.0, name.as_bytes()), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.files.remove_directory(parent.0, name.as_bytes()), () => reply.ok());
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.files.make_link(parent.0, name.as_bytes(), target, request);
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
        let (from, to) = ((parent.0, name.as_bytes()), (to.0, new.as_bytes()));
        answer!(reply, self.files.rename(from, to, flags), () => reply.ok());
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let made = self.files.link(number.0, parent.0, name.as_bytes());
        answer!(reply, made, (attr, generation) => reply.entry(&CACHE_TIMEOUT, &attr, generation));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.files.open(number.0, flags.0, &|file| reply.open_backing(file));
        answer!(reply, opened, Opened { handle, how, passthrough } => match passthrough {
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
        let made = self.files.create(parent.0, name.as_bytes(), mode, flags, request);
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
        // The first two ways save one copy of the bytes.
        let mut waiting = Some(reply);
        with_pages(size as usize, |pages| {
            let got = self.files.fetch(handle.0, offset, pages)?;
            waiting.take()?.data(&pages[..got]);
            Some(())
        });
        if waiting.is_none() {
            return;
        }
        let mapped = with_window(size as usize, |window| {
            let mapped = self.files.map_read(handle.0, offset, size, window)?;
            waiting.take()?.data(&window.piece(0)[..mapped.bytes]);
            Some(mapped)
        });
        drop(mapped);
        let Some(reply) = waiting else { return };
        with_buffer(size as usize, |buffer| {
            let got = self.files.read(handle.0, offset, buffer);
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
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let dropped = match flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            true => self.drop_rights(number, handle),
            false => Ok(()),
        };
        let written = dropped.and_then(|()| self.files.write(handle.0, offset, data));
        answer!(reply, written, written => reply.written(written as u32));
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
        self.files.release(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        answer!(reply, self.files.sync(handle.0, data_only), () => reply.ok());
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.files.open_directory(number.0);
        answer!(reply, opened, handle => reply.opened(FileHandle(handle), FopenFlags::empty()));
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        answer!(reply, self.files.list(handle.0, offset, &mut reply), () => reply.ok());
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        answer!(reply, self.files.list_all(number.0, handle.0, offset, &mut reply), () => reply.ok());
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.files.close_directory(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.files.sync_directory(handle.0), () => reply.ok());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        answer!(reply, self.files.space(), space => {
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
        answer!(reply, self.files.set_attribute(number.0, name.as_bytes(), value, flags), () => reply.ok());
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.files.attribute(number.0, name.as_bytes());
        answer!(reply, value, value => answer_sized(reply, &value, size));
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        answer!(reply, self.files.attribute_names(number.0), names => answer_sized(reply, &names, size));
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.files.remove_attribute(number.0, name.as_bytes()), () => reply.ok());
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
        let dropped = self.drop_rights_unless_root(request, number, handle);
        let allocated = dropped.and_then(|()| self.files.allocate(handle.0, offset, length, mode));
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
        answer!(reply, self.files.seek(handle.0, offset, whence), at => reply.offset(at));
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
        let dropped = self.drop_rights_unless_root(request, number, to);
        let copied = dropped.and_then(|()| self.files.copy((from.0, from_offset), (to.0, to_offset), length));
        answer!(reply, copied, copied => reply.written(copied));
    }
}
