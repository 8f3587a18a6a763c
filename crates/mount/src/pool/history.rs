//! Write history of a mounted pool for the workers that encode its files: a block that was not written and differs from
//! its signature is corrupt, and is repaired before the file is encoded.

use super::Shared;
use super::errors::ForKernel;
use super::inodes::{Inode, number_of};
use gabion_vault::live::LiveEntry;
use gabion_vault::storage::pool::PoolWriter;
use gabion_vault::tree::Generation;
use std::ops::Range;

/// Most blocks repaired at a time while writes to the file wait.
const AT_ONCE: usize = 16;

impl PoolWriter for Shared {
    fn written_since(&self, path: &[u8], version: &Generation) -> Option<Vec<Range<u64>>> {
        match self.live.find(path).ok()?? {
            LiveEntry::File(stub) => self.live.written_since(stub.id, version),
            LiveEntry::Directory(..) => None,
        }
    }

    fn repair_blocks(&self, path: &[u8], cells: &[Range<u64>]) {
        let Ok(Some(LiveEntry::File(stub))) = self.live.find(path) else { return };
        let number = number_of(stub.id);
        let held = self.hold_by(number, || match self.live.find(path).for_kernel()? {
            Some(LiveEntry::File(stub)) if number_of(stub.id) == number => Ok(stub),
            _ => Err(rustix::io::Errno::STALE.into()),
        });
        let Ok(inode) = held else { return };
        for cells in cells.chunks(AT_ONCE) {
            let _names = self.read_names();
            // The kernel may not know the name of a file that is not open.
            inode.file.repair_blocks(&|| self.names_of(number, path), cells);
        }
        self.report_reconstructed(&inode, path);
        self.let_go(&inode);
    }
}

impl Shared {
    fn names_of(&self, number: u64, path: &[u8]) -> Vec<Vec<u8>> {
        let mut names = self.nodes.paths(number);
        if !names.iter().any(|name| name == path) {
            names.insert(0, path.to_vec());
        }
        names
    }

    /// Reports blocks of an open file that were reconstructed.
    pub(super) fn report_reconstructed(&self, inode: &Inode, path: &[u8]) {
        let report = inode.file.take_report();
        if let Some(verified) = &self.verified {
            verified.note(&report, || path.to_vec());
        }
    }
}
