//! Mount of a plain directory: a pass-through file system that records every change for the changelog.
//!
//! Files are addressed by parent directory and name, or by an open handle (`resolve`). A name that belongs to another
//! inode by now is refused with `ESTALE`, and symbolic links are never followed.

mod content;
mod coverage;
mod history;
mod names;
mod passthrough;
mod reading;
mod resolve;
mod windows;

use crate::attributes::attributes;
use crate::handles::Handles;
use crate::nodes::Nodes;
use crate::pending::{Flusher, IsAt, PendingWrites, Spans};
use crate::recorder::{Recorder, Versions};
use crate::replies::{Answer, Space};
use content::OpenFile;
use coverage::Coverage;
use fuser::{FileAttr, Generation};
use gabion_vault::catalogue::PossibleNames;
use gabion_vault::coder::Coders;
use gabion_vault::degraded::Report;
use gabion_vault::storage::Storage;
use gabion_vault::storage::plain::{DirectoryWriter, Plain};
use gabion_vault::tree::Stat;
use history::History;
use names::OpenDirectory;
use passthrough::Passthrough;
use reading::Lengths;
use resolve::Source;
use rustix::fs::Statx;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// The file system of a mounted directory.
pub struct Directory {
    source: Source,
    pub(crate) nodes: Arc<Nodes>,
    files: Handles<OpenFile>,
    pending: Arc<PendingWrites>,
    /// Bytes written to each file since it was protected.
    history: Arc<History>,
    lengths: Lengths,
    pub(crate) directories: Handles<OpenDirectory>,
    pub(crate) recorder: Arc<Recorder>,
    verified: Option<VerifiedReads>,
    /// Files that are read by FUSE passthrough, if that is enabled.
    passthrough: Option<Passthrough>,
    /// Ends before the flusher: it records, too.
    _coverage: Option<Coverage>,
    pub(crate) flusher: Flusher,
}

/// Receives the path of a file and a report of the blocks that were reconstructed to read it.
pub type Note = Box<dyn Fn(&[u8], &Report) + Send + Sync>;

/// Returns the paths under which the redundancy of a file with this inode, size and mtime may lie.
pub type KnownNames = Box<dyn Fn(&gabion_vault::tree::Generation) -> PossibleNames + Send + Sync>;

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

impl VerifiedReads {
    /// Reports blocks of the file at `path` that were reconstructed, if there are any.
    pub(crate) fn note(&self, report: &Report, path: impl FnOnce() -> Vec<u8>) {
        if report.is_degraded() {
            (self.note)(&path(), report);
        }
    }
}

impl Directory {
    /// A file system for the directory at `path`; the entry `hidden` in its root is invisible. With `verified`, files
    /// opened read-only are verified block by block, and bad blocks are reconstructed. With `passthrough`, the kernel
    /// reads files directly that are opened read-only and cannot be verified.
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
        let history = Arc::new(History::new(recorder.is_shared()));
        let spans: Arc<dyn Spans> = history.clone();
        let is_at: Option<IsAt> = recorder.is_shared().then(|| source.finder());
        let pending =
            Arc::new(PendingWrites::new(Arc::clone(&nodes), Arc::clone(&recorder), Some(spans), is_at));
        let coverage = match recorder.is_shared() {
            true => Some(Coverage::start(history.clone(), Arc::clone(&pending), Arc::clone(&recorder))?),
            false => None,
        };
        let flusher = Flusher::start(Arc::clone(&pending), |_| {})?;
        Ok(Directory {
            source,
            nodes,
            files: Handles::default(),
            pending,
            history,
            lengths: Lengths::default(),
            directories: Handles::default(),
            recorder,
            verified,
            passthrough: passthrough.then(Passthrough::default),
            _coverage: coverage,
            flusher,
        })
    }

    /// Makes this mount the writer of a storage: workers that encode its files ask the mount which bytes were written.
    pub fn set_writer_of(&self, storage: &Plain) {
        let history: Arc<dyn DirectoryWriter> = self.history.clone();
        storage.set_writer(Arc::downgrade(&history));
    }

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
                self.recorder.record_write(path, range.clone(), Versions::Unknown, rest);
            }
        }
    }

    /// Reply to a lookup of `name`; counts it as known to the kernel.
    fn entry_reply(&self, parent: u64, name: &[u8], stat: &Statx) -> (FileAttr, Generation) {
        let number = self.source.number(stat);
        let generation = self.nodes.found(parent, name, number);
        self.nodes.shows(number, &Stat::from(*stat).generation());
        (attributes(number, stat), Generation(generation))
    }

    pub(crate) fn has_passthrough(&self) -> bool {
        self.passthrough.is_some()
    }

    pub(crate) fn space(&self) -> Answer<Space> {
        let space = self.source.space()?;
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
}
