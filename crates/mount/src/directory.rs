//! Any directory, shown as it is.
//!
//! Every request is carried out in the source beneath; what changes there is recorded. A file is reached by the directory it is
//! in and its name, or by a handle that is open: a name that stands for another file by now is refused, and symbolic links
//! lead nowhere.

mod content;
mod names;
mod reach;

use crate::attributes::{Wanted, attributes};
use crate::handles::Handles;
use crate::nodes::Nodes;
use crate::recorder::{Recorder, Rest};
use content::{OpenFile, Version};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use gabion_vault::coder::Coders;
use gabion_vault::degraded::Report;
use gabion_vault::storage::Storage;
use names::OpenDirectory;
use reach::Source;
use rustix::fs::{OFlags, Statx, XattrFlags};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How long the kernel believes what it was told of names and attributes. The source may be changed directly as well.
const BELIEVED: Duration = Duration::from_secs(1);

/// How often ranges that were written, and are not recorded yet, are.
const BEAT: Duration = Duration::from_millis(500);

/// What the kernel is asked for, where it can.
const WISHES: [InitFlags; 8] = [
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_POSIX_ACL,
];

/// A file system that shows a directory.
pub struct Directory {
    shared: Arc<Shared>,
}

/// Told of the path of a file, and what had to be done to read it.
pub type Note = Box<dyn Fn(&[u8], &Report) + Send + Sync>;

/// What reads are checked against.
pub struct Guarded {
    /// The source as storage.
    pub storage: Box<dyn Storage>,
    /// Codes made ready.
    pub coders: Coders,
    /// Told of a file that was read with the help of redundancy, when it is closed.
    pub note: Note,
}

/// What requests and the beat share.
struct Shared {
    source: Source,
    nodes: Nodes,
    files: Handles<OpenFile>,
    /// Ranges that were written and are not recorded yet, by file.
    written: Mutex<HashMap<u64, (Range<u64>, Rest)>>,
    /// The version of a file that the kernel may have pages of.
    cached: Mutex<HashMap<u64, Version>>,
    directories: Handles<OpenDirectory>,
    recorder: Arc<Recorder>,
    guarded: Option<Guarded>,
    ended: Mutex<bool>,
    over: std::sync::Condvar,
}

/// What a request is answered with if it fails.
type Answer<T> = io::Result<T>;

impl Directory {
    /// Shows the directory at `path`, without the one named `hidden` in it. With `guarded`, files that are only read are checked
    /// block by block, and blocks that are gone or wrong are made from others.
    ///
    /// # Errors
    /// The directory cannot be opened, or there is no thread to be had.
    pub fn new(
        path: &Path,
        hidden: &OsStr,
        recorder: Arc<Recorder>,
        guarded: Option<Guarded>,
    ) -> io::Result<Directory> {
        let shared = Arc::new(Shared {
            source: Source::open(path, hidden.as_bytes())?,
            nodes: Nodes::default(),
            files: Handles::default(),
            written: Mutex::default(),
            cached: Mutex::default(),
            directories: Handles::default(),
            recorder,
            guarded,
            ended: Mutex::new(false),
            over: std::sync::Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new().name("recorder".to_owned()).spawn(move || theirs.beat())?;
        Ok(Directory { shared })
    }
}

impl Shared {
    /// Records what was written and not recorded yet, again and again.
    fn beat(&self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            drop(ended);
            self.record_all_written();
            self.recorder.check();
            self.recorder.catch_up();
            ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            if !*ended {
                ended = self.over.wait_timeout(ended, BEAT).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Notes that bytes of a file were written. Ranges that touch become one; others are recorded at once.
    fn note_written(&self, number: u64, range: Range<u64>, rest: Rest) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let before = written.insert(number, (range.clone(), rest));
        let Some((before, its_rest)) = before else { return };
        if before.start <= range.end && range.start <= before.end {
            let both = before.start.min(range.start)..before.end.max(range.end);
            written.insert(number, (both, rest));
        } else {
            drop(written);
            self.record_change(number, before, its_rest);
        }
    }

    /// Tells the changelog of what is noted of a file.
    fn record_written(&self, number: u64) {
        let noted = self.written.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        if let Some((range, rest)) = noted {
            self.record_change(number, range, rest);
        }
    }

    /// Tells the changelog of all that is noted.
    fn record_all_written(&self) {
        let noted = std::mem::take(&mut *self.written.lock().unwrap_or_else(PoisonError::into_inner));
        for (number, (range, rest)) in noted {
            self.record_change(number, range, rest);
        }
    }

    /// Tells the changelog that bytes of a file changed, by all names that are known.
    fn record_change(&self, number: u64, range: Range<u64>, rest: Rest) {
        for path in self.nodes.paths(number) {
            self.recorder.wrote(path, range.clone(), rest);
        }
    }

    /// The same of a file that need not be open.
    fn record_change_of(&self, number: u64, range: Range<u64>, stat: &Statx) {
        if rustix::fs::FileType::from_raw_mode(u32::from(stat.stx_mode)).is_file() {
            let paths = self.nodes.paths(number);
            // A file has names that nobody has looked up.
            if paths.len() < stat.stx_nlink as usize && stat.stx_nlink > 1 {
                self.recorder.unknown(Vec::new());
            }
            for path in paths {
                let rest = self.recorder.rest(&path, &(*stat).into());
                self.recorder.wrote(path, range.clone(), rest);
            }
        }
    }

    /// Tells the kernel of what a name stands for.
    fn tell(&self, parent: u64, name: &[u8], stat: &Statx) -> (FileAttr, Generation) {
        let number = self.source.number(stat);
        let generation = self.nodes.found(parent, name, number);
        (attributes(number, stat), Generation(generation))
    }
}

/// Answers with what came of a request.
macro_rules! answer {
    ($reply:ident, $result:expr, $told:pat => $tell:expr) => {
        match $result {
            Ok($told) => $tell,
            Err(error) => $reply.error(Errno::from(error)),
        }
    };
}

#[allow(clippy::too_many_arguments)]
impl Filesystem for Directory {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wish in WISHES {
            // What this kernel cannot do, it does without.
            let _ = config.add_capabilities(wish);
        }
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn destroy(&mut self) {
        let shared = &self.shared;
        shared.record_all_written();
        *shared.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        shared.over.notify_all();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.shared.look_up(parent.0, name.as_bytes());
        answer!(reply, found, (attr, generation) => reply.entry(&BELIEVED, &attr, generation));
    }

    fn forget(&self, _: &Request, number: INodeNo, count: u64) {
        self.shared.forget(number.0, count);
    }

    fn getattr(&self, _: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let stat = self.shared.stat(number.0, handle.map(|handle| handle.0));
        answer!(reply, stat, stat => reply.attr(&BELIEVED, &attributes(number.0, &stat)));
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
        let wanted = Wanted { mode, uid, gid, size, atime, mtime };
        let stat = self.shared.change(number.0, handle.map(|handle| handle.0), wanted, request.uid());
        answer!(reply, stat, stat => reply.attr(&BELIEVED, &attributes(number.0, &stat)));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        answer!(reply, self.shared.read_link(number.0), target => reply.data(&target));
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
        let made = self.shared.make_node(parent.0, name.as_bytes(), mode, device, request);
        answer!(reply, made, (attr, generation) => reply.entry(&BELIEVED, &attr, generation));
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
        let made = self.shared.make_directory(parent.0, name.as_bytes(), mode, request);
        answer!(reply, made, (attr, generation) => reply.entry(&BELIEVED, &attr, generation));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.shared.unlink(parent.0, name.as_bytes(), false), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.shared.unlink(parent.0, name.as_bytes(), true), () => reply.ok());
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.shared.make_link(parent.0, name.as_bytes(), target, request);
        answer!(reply, made, (attr, generation) => reply.entry(&BELIEVED, &attr, generation));
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
        answer!(reply, self.shared.rename(from, to, flags), () => reply.ok());
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let made = self.shared.link(number.0, parent.0, name.as_bytes());
        answer!(reply, made, (attr, generation) => reply.entry(&BELIEVED, &attr, generation));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.shared.open(number.0, flags.0), (handle, flags) => reply.opened(handle, flags));
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
        let made = self.shared.create(parent.0, name.as_bytes(), mode, flags, request);
        let how = content::past_the_cache(OFlags::from_bits_retain(flags as u32));
        let how = how | FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
        answer!(reply, made, (attr, generation, handle) => {
            reply.created(&BELIEVED, &attr, generation, handle, how);
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
        content::with_buffer(size as usize, |buffer| {
            let got = self.shared.read(handle.0, offset, buffer);
            answer!(reply, got, got => reply.data(&buffer[..got]));
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let drop_rights = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let written = self.shared.write(handle.0, offset, data, drop_rights);
        answer!(reply, written, () => reply.written(data.len() as u32));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing is kept back here, so there is nothing to be told at close.
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
        reply.ok();
        self.shared.release(handle.0);
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        answer!(reply, self.shared.sync(handle.0, data_only), () => reply.ok());
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.shared.open_directory(number.0);
        answer!(reply, opened, handle => reply.opened(FileHandle(handle), FopenFlags::empty()));
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        answer!(reply, self.shared.list(handle.0, offset, &mut reply), () => reply.ok());
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        answer!(reply, self.shared.list_all(number.0, handle.0, offset, &mut reply), () => reply.ok());
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.shared.directories.remove(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.shared.sync_directory(handle.0), () => reply.ok());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        answer!(reply, self.shared.source.space(), space => reply.statfs(
            space.f_blocks, space.f_bfree, space.f_bavail, space.f_files, space.f_ffree,
            space.f_bsize as u32, space.f_namemax as u32, space.f_frsize as u32,
        ));
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
        let flags = XattrFlags::from_bits_retain(flags as u32);
        answer!(reply, self.shared.set_attribute(number.0, name, value, flags), () => reply.ok());
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        answer!(reply, self.shared.attribute(number.0, name), value => answer_sized(reply, &value, size));
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        answer!(reply, self.shared.attribute_names(number.0), names => answer_sized(reply, &names, size));
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.shared.remove_attribute(number.0, name), () => reply.ok());
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself and need not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.shared.allocate(handle.0, offset, length, mode), () => reply.ok());
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
        answer!(reply, self.shared.seek(handle.0, offset, whence), at => reply.offset(at));
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let copied = self.shared.copy((from.0, from_offset), (to.0, to_offset), length);
        answer!(reply, copied, copied => reply.written(copied));
    }
}

/// A program asks how long something is, or gives room for it.
fn answer_sized(reply: ReplyXattr, bytes: &[u8], size: u32) {
    match size as usize {
        0 => reply.size(bytes.len() as u32),
        room if room < bytes.len() => reply.error(Errno::ERANGE),
        _ => reply.data(bytes),
    }
}
