//! Repair of blocks of a mounted file that are damaged beside what was written.
//!
//! The mount knows what was written since the file was protected, so blocks elsewhere that differ from their signatures are
//! damaged. They are reconstructed from the rest of their stripe before new redundancy is made. Nothing is written through the mount meanwhile. What is
//! replaced is kept as by a repair.

use super::{Plain, Writer};
use crate::replaced;
use crate::storage::{Reconstruct, Storage};
use crate::tree::{Generation, split, stat_of};
use crate::world::Clock;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::PoisonError;

/// Blocks that are repaired while programs wait with writing to the file.
const AT_ONCE: usize = 16;

impl Plain {
    /// Repairs cells of a file as far as that can be. The others stay as they are, and whoever asked finds that out.
    pub(super) fn mend_beside(
        &self,
        writer: &dyn Writer,
        path: &[u8],
        cells: &[Range<u64>],
        reconstruct: Reconstruct<'_>,
    ) {
        for cells in cells.chunks(AT_ONCE) {
            // What is repaired gets another mtime: the file is asked for each time.
            let Ok(Some(stat)) = self.find(path) else { return };
            let now = stat.generation();
            let mut act = || self.put_back(writer, path, cells, &now, reconstruct).ok();
            writer.alone(&now, &mut act);
        }
    }

    /// Gives the version that the file has then.
    fn put_back(
        &self,
        writer: &dyn Writer,
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
        // A program that writes to the directory itself is not kept from it: it is noticed up to here.
        if !stat_of(&file)?.generation().is_unwritten_since(now) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        for (range, bytes) in made {
            file.write_all_at(&bytes, range.start)?;
            let mut mended = self.mended.lock().unwrap_or_else(PoisonError::into_inner);
            mended.entry(path.to_vec()).or_default().push(range);
        }
        Ok(stat_of(&file)?.generation())
    }
}
