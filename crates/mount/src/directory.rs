//! Any directory, shown as it is.
//!
//! Every request is carried out in the source beneath; what changes there is recorded. A file is reached by the directory it is
//! in and its name, or by a handle that is open: a name that stands for another file by now is refused, and symbolic links
//! lead nowhere.

mod content;
mod history;
mod names;
mod passing;
mod reach;
mod reading;

use crate::attributes::{SetAttr, attributes};
use crate::handles::Handles;
use crate::nodes::Nodes;
use crate::recorder::{Recorder, Rest};
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
use passing::Passing;
use reach::Source;
use reading::Lengths;
use rustix::fs::{Statx, XattrFlags};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// How often ranges that were written, and are not recorded yet, are.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// What the kernel is asked for, where it can.
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

/// A file system that shows a directory.
pub struct Directory {
    shared: Arc<Shared>,
}

/// Told of the path of a file, and what had to be done to read it.
pub type Note = Box<dyn Fn(&[u8], &Report) + Send + Sync>;

/// Gives the names by which the catalogue knows a file of this inode, size and mtime.
pub type KnownNames = Box<dyn Fn(&gabion_vault::tree::Generation) -> Vec<Vec<u8>> + Send + Sync>;

/// What reads are checked against.
pub struct VerifiedReads {
    /// The source as storage.
    pub storage: Box<dyn Storage>,
    /// Codes made ready.
    pub coders: Coders,
    /// Where redundancy of files of a directory lies that were renamed. Pools need none.
    pub names: KnownNames,
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
    /// Held to record ranges of one file; held alone while the ranges of all files are on their way from `written` to the changelog, so that
    /// a close or an `fsync` does not return before them.
    recording: RwLock<()>,
    /// What was written to files since they were protected.
    history: Arc<History>,
    /// The version of a file that the kernel may have pages of.
    cached: Mutex<HashMap<u64, Version>>,
    lengths: Lengths,
    directories: Handles<OpenDirectory>,
    recorder: Arc<Recorder>,
    verified: Option<VerifiedReads>,
    /// Files that the kernel reads by itself, if it shall.
    passing: Option<Passing>,
    ended: Mutex<bool>,
    over: std::sync::Condvar,
}

impl Directory {
    /// Shows the directory at `path`, without the one named `hidden` in it. With `guarded`, files that are only read are checked
    /// block by block, and blocks that are gone or wrong are made from others. With `passes`, the kernel reads files by itself that
    /// are opened for reading only and cannot be checked.
    ///
    /// # Errors
    /// The directory cannot be opened, or there is no thread to be had.
    pub fn new(
        path: &Path,
        hidden: &OsStr,
        recorder: Arc<Recorder>,
        verified: Option<VerifiedReads>,
        passes: bool,
    ) -> io::Result<Directory> {
        let shared = Arc::new(Shared {
            source: Source::open(path, hidden.as_bytes())?,
            nodes: Nodes::default(),
            files: Handles::default(),
            written: Mutex::default(),
            recording: RwLock::default(),
            history: Arc::default(),
            cached: Mutex::default(),
            lengths: Lengths::default(),
            directories: Handles::default(),
            recorder,
            verified,
            passing: passes.then(Passing::default),
            ended: Mutex::new(false),
            over: std::sync::Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new().name("recorder".to_owned()).spawn(move || theirs.flush_loop())?;
        Ok(Directory { shared })
    }

    /// Has whoever makes redundancy of this storage, or of a clone of it, ask this mount what was written.
    pub fn set_writer_of(&self, storage: &Plain) {
        let history: Arc<dyn DirectoryWriter> = self.shared.history.clone();
        storage.set_writer(Arc::downgrade(&history));
    }
}

impl Shared {
    /// Records what was written and not recorded yet, again and again.
    fn flush_loop(&self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            drop(ended);
            self.record_all_written();
            self.recorder.collect_results();
            self.recorder.record_gap();
            ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            if !*ended {
                ended =
                    self.over.wait_timeout(ended, FLUSH_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
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
        let _recording = self.recording.read().unwrap_or_else(PoisonError::into_inner);
        let noted = self.written.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        if let Some((range, rest)) = noted {
            self.record_change(number, range, rest);
        }
    }

    /// Tells the changelog of all that is noted.
    fn record_all_written(&self) {
        let _recording = self.recording.write().unwrap_or_else(PoisonError::into_inner);
        let noted = std::mem::take(&mut *self.written.lock().unwrap_or_else(PoisonError::into_inner));
        for (number, (range, rest)) in noted {
            self.record_change(number, range, rest);
        }
    }

    /// Tells the changelog that bytes of a file changed, by all names that are known.
    fn record_change(&self, number: u64, range: Range<u64>, rest: Rest) {
        for path in self.nodes.paths(number) {
            self.recorder.record_write(path, range.clone(), rest);
        }
    }

    /// The same of a file that need not be open.
    fn record_change_of(&self, number: u64, range: Range<u64>, stat: &Statx) {
        if rustix::fs::FileType::from_raw_mode(u32::from(stat.stx_mode)).is_file() {
            let paths = self.nodes.paths(number);
            // A file has names that nobody has looked up.
            if paths.len() < stat.stx_nlink as usize && stat.stx_nlink > 1 {
                self.recorder.record_unknown(Vec::new());
            }
            for path in paths {
                let rest = self.recorder.rest_of(&path, &(*stat).into());
                self.recorder.record_write(path, range.clone(), rest);
            }
        }
    }

    /// Tells the kernel of what a name stands for.
    fn entry_reply(&self, parent: u64, name: &[u8], stat: &Statx) -> (FileAttr, Generation) {
        let number = self.source.number(stat);
        let generation = self.nodes.found(parent, name, number);
        (attributes(number, stat), Generation(generation))
    }
}

impl Files for Directory {
    const CAPABILITIES: &'static [InitFlags] = &CAPABILITIES;

    fn end(&mut self) {
        let shared = &self.shared;
        shared.record_all_written();
        *shared.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        shared.over.notify_all();
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

    fn passes_through(&self) -> bool {
        self.shared.passing.is_some()
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
