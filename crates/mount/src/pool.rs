//! Mount of a pool: a file system whose files are striped over several targets.
//!
//! Directories and stubs (size, owner, place of the content) are in the pool's namespace; content is read and written
//! in place in the object files on the targets. While a file is open, its changed attributes are only in the table of
//! `Inode`s; they are published into its stub at `fsync`, at the last close, and every two seconds by the flush thread.
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

use crate::directory::VerifiedReads;
use crate::handles::Handles;
use crate::nodes::Nodes;
use crate::pending::{Flusher, PendingWrites};
use crate::recorder::Recorder;
use crate::replies::{Answer, Space};
use content::OpenFile;
use gabion_vault::coder::Coders;
use gabion_vault::live::Live;
use gabion_vault::world::Clock;
use inodes::Inode;
use names::OpenDirectory;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, RwLock, Weak};

/// Rounds of the flush thread between two publications of changed stubs.
const ROUNDS_TO_PUBLISH: u32 = 4;

/// Unit of free space, in bytes.
const BLOCK: u64 = 4096;

/// The file system of a mounted pool.
pub struct Pool {
    pub(crate) shared: Arc<Shared>,
    pub(crate) flusher: Flusher,
}

/// State that requests and the flush thread share.
pub(crate) struct Shared {
    live: Live,
    clock: Clock,
    pub(crate) nodes: Arc<Nodes>,
    /// Open files, by inode number.
    inodes: Mutex<HashMap<u64, Arc<Inode>>>,
    files: Handles<OpenFile>,
    pub(crate) directories: Handles<OpenDirectory>,
    /// Read: publish a stub under a name. Write: remove or rename names.
    order: RwLock<()>,
    pending: Arc<PendingWrites>,
    pub(crate) recorder: Arc<Recorder>,
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
        let pending = Arc::new(PendingWrites::new(Arc::clone(&nodes), Arc::clone(&recorder), None, None));
        let shared = Arc::new(Shared {
            live,
            clock,
            nodes,
            inodes: Mutex::default(),
            files: Handles::default(),
            directories: Handles::default(),
            order: RwLock::default(),
            pending: Arc::clone(&pending),
            recorder,
            verified,
        });
        let writer: Weak<Shared> = Arc::downgrade(&shared);
        pool.set_writer(writer);
        let (theirs, mut rounds) = (Arc::clone(&shared), 0);
        let flusher = Flusher::start(pending, move |is_last| {
            rounds += 1;
            if is_last {
                theirs.close_all();
            } else if rounds % ROUNDS_TO_PUBLISH == 0 {
                theirs.publish_all();
            }
        })?;
        Ok(Pool { shared, flusher })
    }
}

impl Shared {
    pub(crate) fn space(&self) -> Answer<Space> {
        let (total, free) = self.live.space();
        let (blocks, free) = (total / BLOCK, free / BLOCK);
        // Numbers of files are not bounded by the pool.
        Ok(Space { blocks, free, available: free, files: 0, free_files: 0, block: BLOCK as u32, name: 255 })
    }
}
