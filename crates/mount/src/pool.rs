//! A pool of targets, shown as one file system.
//!
//! Names are those of the pool's namespace; files are read and written in place in their objects, on several targets. What is
//! not in a stub yet is in the table of `Inode`s: files that someone has open. Publishing what they are and taking names away
//! exclude each other (`order`), so that no stub comes back after its name is gone.

mod content;
mod errors;
mod inodes;
mod names;

use crate::attributes::Wanted;
use crate::handles::Handles;
use crate::nodes::Nodes;
use crate::recorder::{Recorder, Rest};
use content::OpenFile;
use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use gabion_vault::coder::Coders;
use gabion_vault::storage::pool::live::Live;
use gabion_vault::world::Clock;
use inodes::Inode;
use names::OpenDirectory;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

/// How long the kernel believes what it was told of names and attributes. Other processes may change the pool as well.
const BELIEVED: Duration = Duration::from_secs(1);

/// How often ranges that were written, and are not recorded yet, are.
const BEAT: Duration = Duration::from_millis(500);

/// How many beats pass before what is not in stubs yet is put there.
const BEATS_TO_REST: u32 = 4;

/// Blocks that free space is counted in.
const BLOCK: u64 = 4096;

/// What the kernel is asked for, where it can.
const WISHES: [InitFlags; 6] = [
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_CACHE_SYMLINKS,
];

/// A file system that shows a pool.
pub struct Pool {
    shared: Arc<Shared>,
    beat: Option<std::thread::JoinHandle<()>>,
}

/// What requests and the beat share.
struct Shared {
    live: Live,
    clock: Clock,
    nodes: Nodes,
    /// Files that someone has open, by number.
    inodes: Mutex<HashMap<u64, Arc<Inode>>>,
    files: Handles<OpenFile>,
    directories: Handles<OpenDirectory>,
    /// Held to publish a file under a name; held alone to take names away.
    order: RwLock<()>,
    /// Ranges that were written and are not recorded yet, by file.
    written: Mutex<HashMap<u64, (Range<u64>, Rest)>>,
    /// The version of a file that the kernel may have pages of.
    cached: Mutex<HashMap<u64, content::Version>>,
    recorder: Arc<Recorder>,
    ended: Mutex<bool>,
    over: Condvar,
}

/// What a request is answered with if it fails.
type Answer<T> = io::Result<T>;

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Shows a pool. `coders` make again what is lost, `clock` is that of the pool.
    ///
    /// # Errors
    /// Another process has the pool mounted, too few targets answer, or there is no thread to be had.
    pub fn new(
        pool: gabion_vault::storage::pool::Pool,
        coders: Coders,
        clock: Clock,
        recorder: Arc<Recorder>,
    ) -> io::Result<Pool> {
        let shared = Arc::new(Shared {
            live: Live::start(pool, coders)?,
            clock,
            nodes: Nodes::default(),
            inodes: Mutex::default(),
            files: Handles::default(),
            directories: Handles::default(),
            order: RwLock::default(),
            written: Mutex::default(),
            cached: Mutex::default(),
            recorder,
            ended: Mutex::new(false),
            over: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let beat = std::thread::Builder::new().name("recorder".to_owned()).spawn(move || theirs.beat())?;
        Ok(Pool { shared, beat: Some(beat) })
    }
}

impl Shared {
    /// Records what was written and publishes what files are, again and again.
    fn beat(&self) {
        let mut beats = 0;
        let mut ended = lock(&self.ended);
        while !*ended {
            drop(ended);
            self.record_all_written();
            self.recorder.check();
            self.recorder.catch_up();
            beats += 1;
            if beats % BEATS_TO_REST == 0 {
                self.rest_all();
            }
            ended = lock(&self.ended);
            if !*ended {
                ended = self.over.wait_timeout(ended, BEAT).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        drop(ended);
        self.record_all_written();
        self.close_all();
    }

    /// Notes that bytes of a file were written. Ranges that touch become one; others are recorded at once.
    fn note_written(&self, number: u64, range: Range<u64>, rest: Rest) {
        let mut written = lock(&self.written);
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
        let noted = lock(&self.written).remove(&number);
        if let Some((range, rest)) = noted {
            self.record_change(number, range, rest);
        }
    }

    /// Tells the changelog of all that is noted.
    fn record_all_written(&self) {
        let noted = std::mem::take(&mut *lock(&self.written));
        for (number, (range, rest)) in noted {
            self.record_change(number, range, rest);
        }
    }

    /// Tells the changelog that bytes of a file changed.
    fn record_change(&self, number: u64, range: Range<u64>, rest: Rest) {
        if let Some(path) = self.nodes.path(number).filter(|_| !range.is_empty()) {
            self.recorder.wrote(path, range, rest);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        *lock(&self.shared.ended) = true;
        self.shared.over.notify_all();
        // A beat that panicked has said why.
        let _ = self.beat.take().map(std::thread::JoinHandle::join);
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
impl Filesystem for Pool {
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
        *lock(&shared.ended) = true;
        shared.over.notify_all();
        // All is published and recorded when the session is over.
        let _ = self.beat.take().map(std::thread::JoinHandle::join);
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.shared.look_up(parent.0, name.as_bytes());
        answer!(reply, found, (attr, generation) => reply.entry(&BELIEVED, &attr, generation));
    }

    fn forget(&self, _: &Request, number: INodeNo, count: u64) {
        self.shared.forget(number.0, count);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.shared.attributes(number.0), attr => reply.attr(&BELIEVED, &attr));
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
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = Wanted { mode, uid, gid, size, atime, mtime };
        let changed = self.shared.change(number.0, wanted, request.uid());
        answer!(reply, changed, attr => reply.attr(&BELIEVED, &attr));
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
        _: u32,
        reply: ReplyEntry,
    ) {
        let made = self.shared.make_node(parent.0, name.as_bytes(), mode, request);
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
        answer!(reply, self.shared.unlink(parent.0, name.as_bytes()), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.shared.remove_directory(parent.0, name.as_bytes()), () => reply.ok());
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

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        // A stub belongs to one name.
        reply.error(Errno::EPERM);
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
        answer!(reply, made, (attr, generation, handle) => {
            let how = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
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
        // Content is in its objects already, so there is nothing to be told at close.
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
        self.shared.release(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.shared.sync(handle.0), () => reply.ok());
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.shared.directories.add(Arc::new(OpenDirectory::new(number.0)));
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        answer!(reply, self.shared.list(handle.0, offset, &mut reply), () => reply.ok());
    }

    fn readdirplus(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        answer!(reply, self.shared.list_all(handle.0, offset, &mut reply), () => reply.ok());
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.shared.directories.remove(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.shared.sync_names(), () => reply.ok());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (total, free) = self.shared.live.space();
        let (total, free) = (total / BLOCK, free / BLOCK);
        // Numbers of files are not bounded by the pool.
        reply.statfs(total, free, free, 0, 0, BLOCK as u32, 255, BLOCK as u32);
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
        answer!(reply, self.shared.set_attribute(number.0, name.as_bytes(), value, flags), () => reply.ok());
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.shared.attribute(number.0, name.as_bytes());
        answer!(reply, value, value => answer_sized(reply, &value, size));
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        answer!(reply, self.shared.attribute_names(number.0), names => answer_sized(reply, &names, size));
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.shared.remove_attribute(number.0, name.as_bytes()), () => reply.ok());
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
}

/// A program asks how long something is, or gives room for it.
fn answer_sized(reply: ReplyXattr, bytes: &[u8], size: u32) {
    match size as usize {
        0 => reply.size(bytes.len() as u32),
        room if room < bytes.len() => reply.error(Errno::ERANGE),
        _ => reply.data(bytes),
    }
}
