//! A pool of targets, shown as one file system.
//!
//! Names are those of the pool's namespace; files are read and written in place in their objects, on several targets. What is
//! not in a stub yet is in the table of `Inode`s: files that someone has open. Publishing what they are and taking names away
//! exclude each other (`order`), so that no stub comes back after its name is gone.

mod acl;
mod content;
mod errors;
mod extended;
mod history;
mod inodes;
mod names;

use crate::attributes::SetAttr;
use crate::directory::VerifiedReads;
use crate::handles::Handles;
use crate::nodes::Nodes;
use crate::recorder::{Recorder, Rest};
use crate::served::{Answer, Backing, EntryReply, Files, Opened, Space};
use content::OpenFile;
use fuser::{
    FileAttr, FileHandle, FopenFlags, InitFlags, RenameFlags, ReplyDirectory, ReplyDirectoryPlus, Request,
};
use gabion_vault::coder::Coders;
use gabion_vault::live::Live;
use gabion_vault::world::Clock;
use inodes::Inode;
use names::OpenDirectory;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

/// How often ranges that were written, and are not recorded yet, are.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// How many beats pass before what is not in stubs yet is put there.
const FLUSHES_TO_REST: u32 = 4;

/// Blocks that free space is counted in.
const BLOCK: u64 = 4096;

/// What the kernel is asked for, where it can.
const CAPABILITIES: [InitFlags; 7] = [
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_POSIX_ACL,
];

/// A file system that shows a pool.
pub struct Pool {
    shared: Arc<Shared>,
    flusher: Option<std::thread::JoinHandle<()>>,
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
    /// Held to record ranges of one file; held alone while the ranges of all files are on their way from `written` to the changelog, so that
    /// a close or an `fsync` does not return before them.
    recording: RwLock<()>,
    /// The version of a file that the kernel may have pages of.
    cached: Mutex<HashMap<u64, content::Version>>,
    recorder: Arc<Recorder>,
    verified: Option<VerifiedReads>,
    ended: Mutex<bool>,
    over: Condvar,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Shows a pool. `coders` make again what is lost, `clock` is that of the pool. With `guarded`, what is read is
    /// checked block by block. Whoever makes redundancy of this pool, or a clone of it, is told what was written.
    ///
    /// # Errors
    /// Another process has the pool mounted, too few targets answer, or there is no thread to be had.
    pub fn new(
        pool: gabion_vault::storage::pool::Pool,
        coders: Coders,
        clock: Clock,
        recorder: Arc<Recorder>,
        verified: Option<VerifiedReads>,
    ) -> io::Result<Pool> {
        let shared = Arc::new(Shared {
            live: Live::start(pool.clone(), coders)?,
            clock,
            nodes: Nodes::default(),
            inodes: Mutex::default(),
            files: Handles::default(),
            directories: Handles::default(),
            order: RwLock::default(),
            written: Mutex::default(),
            recording: RwLock::default(),
            cached: Mutex::default(),
            recorder,
            verified,
            ended: Mutex::new(false),
            over: Condvar::new(),
        });
        let writer: Weak<Shared> = Arc::downgrade(&shared);
        pool.set_writer(writer);
        let theirs = Arc::clone(&shared);
        let flusher =
            std::thread::Builder::new().name("recorder".to_owned()).spawn(move || theirs.flush_loop())?;
        Ok(Pool { shared, flusher: Some(flusher) })
    }
}

impl Shared {
    /// Records what was written and publishes what files are, again and again.
    fn flush_loop(&self) {
        let mut flushes = 0;
        let mut ended = lock(&self.ended);
        while !*ended {
            drop(ended);
            self.record_all_written();
            self.recorder.collect_results();
            self.recorder.record_gap();
            flushes += 1;
            if flushes % FLUSHES_TO_REST == 0 {
                self.rest_all();
            }
            ended = lock(&self.ended);
            if !*ended {
                ended =
                    self.over.wait_timeout(ended, FLUSH_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
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
        let _recording = self.recording.read().unwrap_or_else(PoisonError::into_inner);
        let noted = lock(&self.written).remove(&number);
        if let Some((range, rest)) = noted {
            self.record_change(number, range, rest);
        }
    }

    /// Tells the changelog of all that is noted.
    fn record_all_written(&self) {
        let _recording = self.recording.write().unwrap_or_else(PoisonError::into_inner);
        let noted = std::mem::take(&mut *lock(&self.written));
        for (number, (range, rest)) in noted {
            self.record_change(number, range, rest);
        }
    }

    /// Tells the changelog that bytes of a file changed, by all names that are known.
    fn record_change(&self, number: u64, range: Range<u64>, rest: Rest) {
        if !range.is_empty() {
            for path in self.nodes.paths(number) {
                self.recorder.record_write(path, range.clone(), rest);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        *lock(&self.shared.ended) = true;
        self.shared.over.notify_all();
        // A beat that panicked has said why.
        let _ = self.flusher.take().map(std::thread::JoinHandle::join);
    }
}

impl Files for Pool {
    const CAPABILITIES: &'static [InitFlags] = &CAPABILITIES;

    fn end(&mut self) {
        *lock(&self.shared.ended) = true;
        self.shared.over.notify_all();
        // All is published and recorded when the session is over. A beat that panicked has said why.
        let _ = self.flusher.take().map(std::thread::JoinHandle::join);
    }

    fn look_up(&self, parent: u64, name: &[u8]) -> Answer<EntryReply> {
        self.shared.look_up(parent, name)
    }

    fn forget(&self, number: u64, count: u64) {
        self.shared.forget(number, count);
    }

    fn attributes(&self, number: u64, _: Option<u64>) -> Answer<FileAttr> {
        self.shared.attributes(number)
    }

    fn change(&self, number: u64, _: Option<u64>, set: SetAttr, uid: u32) -> Answer<FileAttr> {
        self.shared.change(number, set, uid)
    }

    fn read_link(&self, number: u64) -> Answer<Vec<u8>> {
        self.shared.read_link(number)
    }

    fn make_node(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        device: u32,
        who: &Request,
    ) -> Answer<EntryReply> {
        self.shared.make_node(parent, name, mode, device, who)
    }

    fn make_directory(&self, parent: u64, name: &[u8], mode: u32, who: &Request) -> Answer<EntryReply> {
        self.shared.make_directory(parent, name, mode, who)
    }

    fn make_link(&self, parent: u64, name: &[u8], target: &Path, who: &Request) -> Answer<EntryReply> {
        self.shared.make_link(parent, name, target, who)
    }

    fn unlink(&self, parent: u64, name: &[u8]) -> Answer<()> {
        self.shared.unlink(parent, name)
    }

    fn remove_directory(&self, parent: u64, name: &[u8]) -> Answer<()> {
        self.shared.remove_directory(parent, name)
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Answer<()> {
        self.shared.rename(from, to, flags)
    }

    fn link(&self, number: u64, parent: u64, name: &[u8]) -> Answer<EntryReply> {
        self.shared.link(number, parent, name)
    }

    fn open(&self, number: u64, flags: i32, _: Backing<'_>) -> Answer<Opened> {
        // The content is in several files; the kernel can only read from one.
        let (handle, how) = self.shared.open(number, flags)?;
        Ok(Opened { handle, how, passes: None })
    }

    fn create(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: i32,
        who: &Request,
    ) -> Answer<(EntryReply, FileHandle, FopenFlags)> {
        self.shared.create(parent, name, mode, flags, who)
    }

    fn read(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        self.shared.read(handle, offset, buffer)
    }

    fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Answer<usize> {
        self.shared.write(handle, offset, data)?;
        Ok(data.len())
    }

    fn drop_rights(&self, handle: u64) -> Answer<bool> {
        self.shared.drop_rights(handle)
    }

    fn release(&self, handle: u64) {
        self.shared.release(handle);
    }

    fn sync(&self, handle: u64, _: bool) -> Answer<()> {
        self.shared.sync(handle)
    }

    fn open_directory(&self, number: u64) -> Answer<u64> {
        Ok(self.shared.directories.add(Arc::new(OpenDirectory::new(number))))
    }

    fn list(&self, handle: u64, offset: u64, reply: &mut ReplyDirectory) -> Answer<()> {
        self.shared.list(handle, offset, reply)
    }

    fn list_all(&self, _: u64, handle: u64, offset: u64, reply: &mut ReplyDirectoryPlus) -> Answer<()> {
        self.shared.list_all(handle, offset, reply)
    }

    fn close_directory(&self, handle: u64) {
        self.shared.directories.remove(handle);
    }

    fn sync_directory(&self, _: u64) -> Answer<()> {
        self.shared.sync_names()
    }

    fn space(&self) -> Answer<Space> {
        let (total, free) = self.shared.live.space();
        let (blocks, free) = (total / BLOCK, free / BLOCK);
        // Numbers of files are not bounded by the pool.
        Ok(Space { blocks, free, available: free, files: 0, free_files: 0, block: BLOCK as u32, name: 255 })
    }

    fn set_attribute(&self, number: u64, name: &[u8], value: &[u8], flags: i32) -> Answer<()> {
        self.shared.set_attribute(number, name, value, flags)
    }

    fn attribute(&self, number: u64, name: &[u8]) -> Answer<Vec<u8>> {
        self.shared.attribute(number, name)
    }

    fn attribute_names(&self, number: u64) -> Answer<Vec<u8>> {
        self.shared.attribute_names(number)
    }

    fn remove_attribute(&self, number: u64, name: &[u8]) -> Answer<()> {
        self.shared.remove_attribute(number, name)
    }

    fn allocate(&self, handle: u64, offset: u64, length: u64, mode: i32) -> Answer<()> {
        self.shared.allocate(handle, offset, length, mode)
    }
}
