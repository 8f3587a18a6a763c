//! Mount of a plain directory: a pass-through file system that records every change for the changelog.
//!
//! A write takes this path: `content::write` writes to the source file, `history` notes which bytes differ from the
//! protected version, and `PendingWrites` collects the range; its flush thread, `fsync` or close hands the range to the
//! `Recorder`, which writes it to the changelog. Redundancy is made later by workers that read the changelog.
//!
//! Files are addressed by parent directory and name, or by an open handle (`resolve`). A name that belongs to another
//! inode by now is refused with `ESTALE`, and symbolic links are never followed.

mod content;
mod history;
mod names;
mod passthrough;
mod reading;
mod resolve;

use crate::attributes::{SetAttr, attributes};
use crate::handles::Handles;
use crate::nodes::Nodes;
use crate::pending::PendingWrites;
use crate::recorder::Recorder;
use crate::served::{Answer, Backing, EntryReply, Files, MappedRead, Opened, Space};
use content::{OpenFile, Version};
use fuser::{
    FileAttr, FileHandle, FopenFlags, Generation, InitFlags, RenameFlags, ReplyDirectory, ReplyDirectoryPlus,
    Request,
};
use gabion_platform::window::Window;
use gabion_vault::coder::Coders;
use gabion_vault::degraded::Report;
use gabion_vault::storage::Storage;
use gabion_vault::storage::plain::{DirectoryWriter, Plain};
use history::History;
use names::OpenDirectory;
use passthrough::Passthrough;
use reading::Lengths;
use resolve::Source;
use rustix::fs::{Statx, XattrFlags};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// FUSE capabilities to ask the kernel for.
const CAPABILITIES: [InitFlags; 8] = [
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_POSIX_ACL,
];

/// The file system of a mounted directory.
pub struct Directory {
    shared: Arc<Shared>,
}

/// Receives the path of a file and a report of the blocks that were reconstructed to read it.
pub type Note = Box<dyn Fn(&[u8], &Report) + Send + Sync>;

/// Returns the paths under which the catalogue knows a file with this inode, size and mtime.
pub type KnownNames = Box<dyn Fn(&gabion_vault::tree::Generation) -> Vec<Vec<u8>> + Send + Sync>;

/// Storage that reads are verified against.
pub struct VerifiedReads {
    /// The source as storage.
    pub storage: Box<dyn Storage>,
    /// Compiled codes.
    pub coders: Coders,
    /// Finds the redundancy of renamed files of a directory. Pools do not use it.
    pub names: KnownNames,
    /// Called when a file is closed whose blocks were reconstructed.
    pub note: Note,
}

/// State that requests and the flush thread share.
struct Shared {
    source: Source,
    nodes: Arc<Nodes>,
    files: Handles<OpenFile>,
    pending: Arc<PendingWrites>,
    /// Bytes written to each file since it was protected.
    history: Arc<History>,
    /// Version of each file whose pages the kernel may have cached.
    cached: Mutex<HashMap<u64, Version>>,
    lengths: Lengths,
    directories: Handles<OpenDirectory>,
    recorder: Arc<Recorder>,
    verified: Option<VerifiedReads>,
    /// Files that are read by FUSE passthrough, if that is enabled.
    passthrough: Option<Passthrough>,
}

impl Directory {
    /// A file system for the directory at `path`; the entry `hidden` in its root is invisible. With `verified`, files
    /// opened read-only are verified block by block, and bad blocks are reconstructed. With `passthrough`, the kernel reads
    /// files directly that are opened read-only and cannot be verified.
    ///
    /// # Errors
    /// The directory cannot be opened, or the flush thread cannot be started.
    pub fn new(
        path: &Path,
        hidden: &OsStr,
        recorder: Arc<Recorder>,
        verified: Option<VerifiedReads>,
        passthrough: bool,
    ) -> io::Result<Directory> {
        let source = Source::open(path, hidden.as_bytes())?;
        let nodes = Arc::new(Nodes::default());
        let pending = Arc::new(PendingWrites::new(Arc::clone(&nodes), Arc::clone(&recorder)));
        let shared = Arc::new(Shared {
            source,
            nodes,
            files: Handles::default(),
            pending: Arc::clone(&pending),
            history: Arc::default(),
            cached: Mutex::default(),
            lengths: Lengths::default(),
            directories: Handles::default(),
            recorder,
            verified,
            passthrough: passthrough.then(Passthrough::default),
        });
        std::thread::Builder::new().name("recorder".to_owned()).spawn(move || pending.flush_loop(|| {}))?;
        Ok(Directory { shared })
    }

    /// Makes this mount the writer of a storage: workers that encode its files ask the mount which bytes were written.
    pub fn set_writer_of(&self, storage: &Plain) {
        let history: Arc<dyn DirectoryWriter> = self.shared.history.clone();
        storage.set_writer(Arc::downgrade(&history));
    }
}

impl Shared {
    /// Records a change of a file, open or not, under all its paths.
    fn record_change_of(&self, number: u64, range: Range<u64>, stat: &Statx) {
        if rustix::fs::FileType::from_raw_mode(u32::from(stat.stx_mode)).is_file() {
            let paths = self.nodes.paths(number);
            // It has hard links that the kernel never looked up.
            if paths.len() < stat.stx_nlink as usize && stat.stx_nlink > 1 {
                self.recorder.record_unknown(Vec::new());
            }
            for path in paths {
                let rest = self.recorder.rest_of(&path, &(*stat).into());
                self.recorder.record_write(path, range.clone(), rest);
            }
        }
    }

    /// Reply to a lookup of `name`; counts it as known to the kernel.
    fn entry_reply(&self, parent: u64, name: &[u8], stat: &Statx) -> (FileAttr, Generation) {
        let number = self.source.number(stat);
        let generation = self.nodes.found(parent, name, number);
        (attributes(number, stat), Generation(generation))
    }
}

impl Files for Directory {
    const CAPABILITIES: &'static [InitFlags] = &CAPABILITIES;

    fn end(&mut self) {
        self.shared.pending.flush_all();
        self.shared.pending.stop();
    }

    fn look_up(&self, parent: u64, name: &[u8]) -> Answer<EntryReply> {
        self.shared.look_up(parent, name)
    }

    fn forget(&self, number: u64, count: u64) {
        self.shared.forget(number, count);
    }

    fn attributes(&self, number: u64, handle: Option<u64>) -> Answer<FileAttr> {
        Ok(attributes(number, &self.shared.stat(number, handle)?))
    }

    fn change(&self, number: u64, handle: Option<u64>, set: SetAttr, uid: u32) -> Answer<FileAttr> {
        Ok(attributes(number, &self.shared.change(number, handle, set, uid)?))
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
        self.shared.unlink(parent, name, false)
    }

    fn remove_directory(&self, parent: u64, name: &[u8]) -> Answer<()> {
        self.shared.unlink(parent, name, true)
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Answer<()> {
        self.shared.rename(from, to, flags)
    }

    fn link(&self, number: u64, parent: u64, name: &[u8]) -> Answer<EntryReply> {
        self.shared.link(number, parent, name)
    }

    fn open(&self, number: u64, flags: i32, backing: Backing<'_>) -> Answer<Opened> {
        self.shared.open(number, flags, backing)
    }

    fn has_passthrough(&self) -> bool {
        self.shared.passthrough.is_some()
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

    fn fetch(&self, handle: u64, offset: u64, pages: &mut [u8]) -> Option<usize> {
        self.shared.fetch(handle, offset, pages)
    }

    fn map_read(&self, handle: u64, offset: u64, size: u32, window: &mut Window) -> Option<MappedRead<'_>> {
        self.shared.map_read(handle, offset, size, window)
    }

    fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Answer<usize> {
        self.shared.write(handle, offset, data)
    }

    fn drop_rights(&self, handle: u64) -> Answer<bool> {
        self.shared.drop_rights(&self.shared.files.get(handle)?.file)
    }

    fn release(&self, handle: u64) {
        self.shared.release(handle);
    }

    fn sync(&self, handle: u64, data_only: bool) -> Answer<()> {
        self.shared.sync(handle, data_only)
    }

    fn open_directory(&self, number: u64) -> Answer<u64> {
        self.shared.open_directory(number)
    }

    fn list(&self, handle: u64, offset: u64, reply: &mut ReplyDirectory) -> Answer<()> {
        self.shared.list(handle, offset, reply)
    }

    fn list_all(&self, number: u64, handle: u64, offset: u64, reply: &mut ReplyDirectoryPlus) -> Answer<()> {
        self.shared.list_all(number, handle, offset, reply)
    }

    fn close_directory(&self, handle: u64) {
        self.shared.directories.remove(handle);
    }

    fn sync_directory(&self, handle: u64) -> Answer<()> {
        self.shared.sync_directory(handle)
    }

    fn space(&self) -> Answer<Space> {
        let space = self.shared.source.space()?;
        Ok(Space {
            blocks: space.f_blocks,
            free: space.f_bfree,
            available: space.f_bavail,
            files: space.f_files,
            free_files: space.f_ffree,
            block: space.f_frsize as u32,
            name: space.f_namemax as u32,
        })
    }

    fn set_attribute(&self, number: u64, name: &[u8], value: &[u8], flags: i32) -> Answer<()> {
        let flags = XattrFlags::from_bits_retain(flags as u32);
        self.shared.set_attribute(number, OsStr::from_bytes(name), value, flags)
    }

    fn attribute(&self, number: u64, name: &[u8]) -> Answer<Vec<u8>> {
        self.shared.attribute(number, OsStr::from_bytes(name))
    }

    fn attribute_names(&self, number: u64) -> Answer<Vec<u8>> {
        self.shared.attribute_names(number)
    }

    fn remove_attribute(&self, number: u64, name: &[u8]) -> Answer<()> {
        self.shared.remove_attribute(number, OsStr::from_bytes(name))
    }

    fn allocate(&self, handle: u64, offset: u64, length: u64, mode: i32) -> Answer<()> {
        self.shared.allocate(handle, offset, length, mode)
    }

    fn seek(&self, handle: u64, offset: i64, whence: i32) -> Answer<i64> {
        self.shared.seek(handle, offset, whence)
    }

    fn copy(&self, from: (u64, u64), to: (u64, u64), length: u64) -> Answer<u32> {
        self.shared.copy(from, to, length)
    }
}
