//! Mount of a pool: a file system whose files are striped over several targets.
//!
//! Directories and stubs (size, owner, place of the content) are in the pool's namespace; content is read and written
//! in place in the object files on the targets. While a file is open, its changed attributes are only in the table of
//! `Inode`s; they are published into its stub at `fsync`, at the last close, and every two seconds by the flush thread.
//!
//! A write takes this path: `content::write` → `LiveFile::write` (content and redundancy state) → `PendingWrites` →
//! `Recorder` → changelog.
//!
//! Lock order: publishing a stub holds `order` for reading, removing or renaming a name holds it for writing. So no
//! stub is written under a name that is gone.

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
use crate::pending::PendingWrites;
use crate::recorder::Recorder;
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
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock, Weak};

/// Rounds of the flush thread between two publications of changed stubs.
const ROUNDS_TO_PUBLISH: u32 = 4;

/// Unit of free space, in bytes.
const BLOCK: u64 = 4096;

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

/// The file system of a mounted pool.
pub struct Pool {
    shared: Arc<Shared>,
    flusher: Option<std::thread::JoinHandle<()>>,
}

/// State that requests and the flush thread share.
struct Shared {
    live: Live,
    clock: Clock,
    nodes: Arc<Nodes>,
    /// Open files, by inode number.
    inodes: Mutex<HashMap<u64, Arc<Inode>>>,
    files: Handles<OpenFile>,
    directories: Handles<OpenDirectory>,
    /// Read: publish a stub under a name. Write: remove or rename names.
    order: RwLock<()>,
    pending: PendingWrites,
    /// Version of each file whose pages the kernel may have cached.
    cached: Mutex<HashMap<u64, content::Version>>,
    recorder: Arc<Recorder>,
    verified: Option<VerifiedReads>,
}

impl Pool {
    /// A file system for `pool`. `coders` reconstruct lost blocks, `clock` is the clock of the pool. With `verified`,
    /// files opened read-only are verified block by block. The mount becomes the writer of the pool and its clones:
    /// workers that encode files ask it which bytes were written.
    ///
    /// # Errors
    /// Another process has the pool mounted, too few targets answer, or the flush thread cannot be started.
    pub fn new(
        pool: gabion_vault::storage::pool::Pool,
        coders: Coders,
        clock: Clock,
        recorder: Arc<Recorder>,
        verified: Option<VerifiedReads>,
    ) -> io::Result<Pool> {
        let live = Live::start(pool.clone(), coders)?;
        let nodes = Arc::new(Nodes::default());
        let pending = PendingWrites::new(Arc::clone(&nodes), Arc::clone(&recorder));
        let shared = Arc::new(Shared {
            live,
            clock,
            nodes,
            inodes: Mutex::default(),
            files: Handles::default(),
            directories: Handles::default(),
            order: RwLock::default(),
            pending,
            cached: Mutex::default(),
            recorder,
            verified,
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
    /// Body of the flush thread. Every fourth round also writes stubs of open files.
    fn flush_loop(&self) {
        let mut rounds = 0;
        self.pending.flush_loop(|| {
            rounds += 1;
            if rounds % ROUNDS_TO_PUBLISH == 0 {
                self.publish_all();
            }
        });
        self.pending.flush_all();
        self.close_all();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.pending.stop();
        // If the thread panicked, it has printed why.
        let _ = self.flusher.take().map(std::thread::JoinHandle::join);
    }
}

impl Files for Pool {
    const CAPABILITIES: &'static [InitFlags] = &CAPABILITIES;

    fn end(&mut self) {
        self.shared.pending.stop();
        // Waits until everything is published and recorded. If the thread panicked, it has printed why.
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
        request: &Request,
    ) -> Answer<EntryReply> {
        self.shared.make_node(parent, name, mode, device, request)
    }

    fn make_directory(&self, parent: u64, name: &[u8], mode: u32, request: &Request) -> Answer<EntryReply> {
        self.shared.make_directory(parent, name, mode, request)
    }

    fn make_link(&self, parent: u64, name: &[u8], target: &Path, request: &Request) -> Answer<EntryReply> {
        self.shared.make_link(parent, name, target, request)
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
        Ok(Opened { handle, how, passthrough: None })
    }

    fn create(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: i32,
        request: &Request,
    ) -> Answer<(EntryReply, FileHandle, FopenFlags)> {
        self.shared.create(parent, name, mode, flags, request)
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
