//! Repair of damaged blocks of a mounted file.
//!
//! The mount knows which ranges were written since the file was protected, so blocks elsewhere that differ from their
//! signatures are damaged. They are reconstructed from the rest of their stripe before the file is encoded again, while
//! writes through the mount are paused. The replaced bytes are kept, as for any repair.

use super::{DirectoryWriter, Plain};
use crate::replaced;
use crate::storage::{Reconstruct, Storage};
use crate::tree::{Generation, split, stat_of};
use crate::world::Clock;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::PoisonError;

/// Blocks repaired while writers wait.
const AT_ONCE: usize = 16;

impl Plain {
    /// Repairs cells of a file. Cells that cannot be repaired stay as they are; the caller finds them by checking
    /// again.
    pub(super) fn repair_while_paused(
        &self,
        writer: &dyn DirectoryWriter,
        path: &[u8],
        cells: &[Range<u64>],
        reconstruct: Reconstruct<'_>,
    ) {
        for cells in cells.chunks(AT_ONCE) {
            // A repair changes the mtime, so the version is read for each batch.
            let Ok(Some(stat)) = self.find(path) else { return };
            let now = stat.generation();
            let mut act = || self.rewrite_cells(writer, path, cells, &now, reconstruct).ok();
            writer.with_writes_paused(&now, &mut act);
        }
    }

    /// Repairs cells and returns the resulting version of the file.
    fn rewrite_cells(
        &self,
        writer: &dyn DirectoryWriter,
        path: &[u8],
        cells: &[Range<u64>],
        now: &Generation,
        reconstruct: Reconstruct<'_>,
    ) -> io::Result<Generation> {
        let is_in = |version: &Generation, range: &Range<u64>| {
            let written = writer.written_since(version, now);
            let apart = |written: &Range<u64>| written.end <= range.start || range.end <= written.start;
            written.is_some_and(|written| written.iter().all(apart))
        };
        let file = self.root.write(path)?;
        let mut made = Vec::new();
        for cell in cells {
            made.extend(reconstruct(cell, &is_in)?);
        }
        if made.is_empty() {
            return Err(io::Error::other("too few blocks of its stripe are left"));
        }
        let kept = replaced::keep_as(&self.repository, Clock::System.now(), path)?;
        for (range, _) in &made {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, range.start)?;
            kept.1.write_all_at(&bytes, range.start)?;
        }
        kept.1.sync_all()?;
        self.repository.sync_directories(split(&kept.0).0)?;
        // Other programs may write to the directory itself; changes up to this point are detected.
        if !stat_of(&file)?.generation().is_unwritten_since(now) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        for (range, bytes) in made {
            file.write_all_at(&bytes, range.start)?;
            let mut repaired = self.repaired.lock().unwrap_or_else(PoisonError::into_inner);
            repaired.entry(path.to_vec()).or_default().push(range);
        }
        Ok(stat_of(&file)?.generation())
    }
}
